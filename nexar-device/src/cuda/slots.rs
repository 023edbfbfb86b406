//! Pinned host memory, in slots of one length that the queues of a device share.

use super::{context::Context, driver::Driver, error::CudaError, lock, numa};
use std::{
    ffi::{c_uint, c_void},
    fmt, mem,
    ptr::{self, NonNull},
    slice,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll, Waker},
};

/// Every context may use the memory. Not write-combined: the host reads the slots.
const PORTABLE: c_uint = 1;

/// Pinned memory of one slot.
#[derive(Debug)]
struct Pinned(NonNull<u8>);

// SAFETY: it is plain memory, and the only way to it.
unsafe impl Send for Pinned {}

/// The slots of a device.
pub(super) struct SlotPool {
    context: Arc<Context>,
    pci_bus_id: Option<String>,
    len: usize,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<Pinned>,
    /// Slots that exist, or are being allocated.
    total: usize,
    /// Queues that wait, the first come first.
    waiting: Vec<Waiting>,
}

struct Waiting {
    share: Arc<Share>,
    waker: Waker,
}

/// What a queue has of the slots: how many are in use. It changes only while the pool is locked.
#[derive(Debug, Default)]
pub(super) struct Share(AtomicUsize);

impl SlotPool {
    pub(super) fn new(
        context: &Arc<Context>,
        pci_bus_id: Option<String>,
        len: usize,
        limit: usize,
    ) -> Arc<SlotPool> {
        Arc::new(SlotPool {
            context: Arc::clone(context),
            pci_bus_id,
            len,
            limit,
            state: Mutex::default(),
        })
    }

    /// A slot for the queue with this share: at once if it has none, otherwise when it is its turn.
    pub(super) fn poll(
        self: &Arc<Self>,
        share: &Arc<Share>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Result<CudaSlot, CudaError>> {
        let mut state = lock(&self.state);
        let position = state.position(share);
        let ahead = position.unwrap_or(state.waiting.len());
        if share.0.load(Ordering::Relaxed) > 0 && self.available(&state) <= ahead {
            let waker = cx.waker().clone();
            // The old one is dropped without the lock: what a waker does then is not ours.
            let old = match position {
                Some(position) => Some(mem::replace(&mut state.waiting[position].waker, waker)),
                None => {
                    let share = Arc::clone(share);
                    state.waiting.push(Waiting { share, waker });
                    None
                }
            };
            drop(state);
            drop(old);
            return Poll::Pending;
        }
        let served = position.map(|position| state.waiting.remove(position));
        share.0.fetch_add(1, Ordering::Relaxed);
        let pinned = state.free.pop();
        state.total += usize::from(pinned.is_none());
        drop(state);
        drop(served);
        let pinned = match pinned {
            Some(pinned) => pinned,
            None => match self.allocate() {
                Ok(pinned) => pinned,
                Err(error) => {
                    self.give_back(share, None);
                    return Poll::Ready(Err(error));
                }
            },
        };
        Poll::Ready(Ok(CudaSlot {
            pinned: Some(pinned),
            share: Arc::clone(share),
            pool: Arc::clone(self),
        }))
    }

    /// Slots that are there for the queues that wait. Those beyond the limit are for queues that have none.
    fn available(&self, state: &State) -> usize {
        self.limit.saturating_sub(state.total - state.free.len())
    }

    fn allocate(&self) -> Result<Pinned, CudaError> {
        numa::near(self.pci_bus_id.as_deref(), || {
            let bound = self.context.bind()?;
            let mut address = ptr::null_mut();
            // SAFETY: `address` is there to be written.
            unsafe { bound.mem_host_alloc(&mut address, self.len, PORTABLE)? };
            let address = NonNull::new(address.cast::<u8>()).ok_or(CudaError::Driver {
                call: "cuMemHostAlloc",
                code: 0,
                name: "no memory".into(),
                text: "the driver returned a null pointer".into(),
            })?;
            // SAFETY: the driver has just allocated as many bytes there, for this alone.
            unsafe { address.write_bytes(0, self.len) };
            Ok(Pinned(address))
        })
    }

    /// A queue has a slot less in use. Without memory, it is lost to the pool.
    fn give_back(&self, share: &Arc<Share>, pinned: Option<Pinned>) {
        let mut state = lock(&self.state);
        match pinned {
            Some(pinned) => state.free.push(pinned),
            None => state.total -= 1,
        }
        let left = share.0.fetch_sub(1, Ordering::Relaxed) - 1;
        let wakers = self.to_wake(&state, (left == 0).then_some(share));
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// A queue that is dropped waits no more, and whoever came after it may be next.
    pub(super) fn forget(&self, share: &Arc<Share>) {
        let mut state = lock(&self.state);
        let Some(position) = state.position(share) else {
            return;
        };
        let forgotten = state.waiting.remove(position);
        let wakers = self.to_wake(&state, None);
        drop(state);
        drop(forgotten);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Who can go on: as many as there are slots, and a queue that has none.
    fn to_wake(&self, state: &State, without: Option<&Arc<Share>>) -> Vec<Waker> {
        let available = self.available(state);
        let waiting = state.waiting.iter().enumerate();
        let ready = waiting.filter(|(position, waiting)| {
            *position < available || without.is_some_and(|share| Arc::ptr_eq(share, &waiting.share))
        });
        ready.map(|(_, waiting)| waiting.waker.clone()).collect()
    }
}

impl State {
    fn position(&self, share: &Arc<Share>) -> Option<usize> {
        let mut waiting = self.waiting.iter();
        waiting.position(|waiting| Arc::ptr_eq(&waiting.share, share))
    }
}

impl fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotPool")
            .field("len", &self.len)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Drop for SlotPool {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
        let free = mem::take(&mut state.free);
        if free.is_empty() {
            return;
        }
        self.context.give(move |driver| {
            for pinned in free {
                free_pinned(driver, pinned);
            }
        });
    }
}

fn free_pinned(driver: &Driver, pinned: Pinned) {
    // SAFETY: the driver allocated it, and nobody uses it any more.
    let _ = unsafe { driver.mem_free_host(pinned.0.as_ptr().cast()) };
}

/// A staging slot: pinned host memory, which the device copies from and to by itself. It goes back to the
/// adapter when it is dropped.
pub struct CudaSlot {
    /// There until the slot is dropped.
    pinned: Option<Pinned>,
    share: Arc<Share>,
    pool: Arc<SlotPool>,
}

impl CudaSlot {
    pub(super) fn len(&self) -> usize {
        self.pool.len
    }

    /// The byte at `at`, for the driver.
    pub(super) fn address(&mut self, at: usize) -> *mut c_void {
        self.as_mut()[at..].as_mut_ptr().cast()
    }

    /// Drops a slot that a device which is lost may still write: nobody gets it again.
    pub(super) fn retire(mut self) {
        if let Some(pinned) = self.pinned.take() {
            self.pool.give_back(&self.share, None);
            self.pool
                .context
                .give(move |driver| free_pinned(driver, pinned));
        }
    }
}

impl AsRef<[u8]> for CudaSlot {
    fn as_ref(&self) -> &[u8] {
        let Some(pinned) = &self.pinned else {
            return &[];
        };
        // SAFETY: the memory has this length, is initialised and belongs to the slot alone. No copy of the
        // device is under way: while one is, it owns the slot.
        unsafe { slice::from_raw_parts(pinned.0.as_ptr(), self.pool.len) }
    }
}

impl AsMut<[u8]> for CudaSlot {
    fn as_mut(&mut self) -> &mut [u8] {
        let Some(pinned) = &mut self.pinned else {
            return &mut [];
        };
        // SAFETY: as in `as_ref`; the exclusive borrow of the slot is handed on.
        unsafe { slice::from_raw_parts_mut(pinned.0.as_ptr(), self.pool.len) }
    }
}

impl fmt::Debug for CudaSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaSlot")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Drop for CudaSlot {
    fn drop(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            self.pool.give_back(&self.share, Some(pinned));
        }
    }
}
