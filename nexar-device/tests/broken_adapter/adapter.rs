//! An adapter with a lie.

use nexar_core::{DataType, ReduceOp};
use nexar_device::{
    Access, Capabilities, DeviceAdapter, DeviceError, ExecutionQueue, MemorySpace, Region,
    testing::{MemoryDevice, MemoryQueue, Slot, Transfer},
};
use std::{
    any::Any,
    future::Future,
    mem,
    ops::Range,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    thread,
    time::Duration,
};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Lie {
    /// Nothing.
    None,
    /// Transfers are complete before the data has moved.
    CompletesEarly,
    /// A dropped queue frees the region although copies are under way.
    FreesEarly,
    /// A dropped transfer does not happen.
    ForgetsDropped,
    /// Every 10th slot is never free again.
    LosesSlots,
    /// The first slot of a queue is none beyond the number, and who waits for it is not woken.
    NoFirstSlot,
    /// Nobody is woken where a slot is free.
    ForgetsWakers,
    /// Copies begin at the start of the slot.
    IgnoresAt,
    /// What lies behind the region counts as a part of it.
    IgnoresLength,
    /// Copies do not wait for the work of the stream.
    IgnoresStream,
    /// Copies do not wait for those of dropped queues.
    IgnoresDroppedQueues,
    /// New memory holds what was there before.
    DirtyMemory,
    /// Fill writes zeros.
    FillsZero,
    /// A queue says that its region is shorter or longer by so many bytes.
    OtherLength(isize),
}

/// The simulated device with a lie.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub(crate) device: MemoryDevice,
    lie: Lie,
    /// Slots that were given away.
    slots: Arc<AtomicUsize>,
}

/// Bytes behind each region that count as a part of it, where that is the lie.
const BEHIND: usize = 64;

impl Broken {
    pub(crate) fn new(device: MemoryDevice, lie: Lie) -> Broken {
        Broken {
            device,
            lie,
            slots: Arc::default(),
        }
    }
}

// SAFETY: what it lies about is data and time; memory and regions are those of the simulated device, which stays sound.
unsafe impl DeviceAdapter for Broken {
    type Queue = BrokenQueue;

    fn name(&self) -> &'static str {
        "broken"
    }

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn space_of(&self, address: *const u8) -> Option<MemorySpace> {
        self.device.space_of(address)
    }

    fn allocate(&self, space: MemorySpace, length: usize) -> Result<Region, DeviceError> {
        let region = match self.lie {
            Lie::IgnoresLength if length < isize::MAX as usize => {
                let longer = self.device.allocate(space, length + BEHIND)?;
                let address = longer.address();
                // SAFETY: it is a part of a region that goes along.
                unsafe { Region::from_raw(address, length, space, 0, longer) }
            }
            _ => self.device.allocate(space, length)?,
        };
        if self.lie == Lie::DirtyMemory {
            let address = region.address().addr() as u64;
            self.device.write(address, &vec![0xA5; length])?;
        }
        Ok(region)
    }

    fn open(&self, region: Region) -> Result<Access<BrokenQueue>, DeviceError> {
        let stream = match self.lie {
            Lie::IgnoresStream => 0,
            _ => region.stream(),
        };
        let (address, space, len) = (region.address(), region.space(), region.len());
        let region = Arc::new(region);
        let keep: Box<dyn Any + Send> = match self.lie {
            Lie::FreesEarly => Box::new(()),
            _ => Box::new(Arc::clone(&region)),
        };
        let longer = match self.lie {
            Lie::IgnoresLength if len > 0 => BEHIND,
            _ => 0,
        };
        // SAFETY: the region goes along, but where that is a lie; the simulated device bears it.
        let inner = unsafe { Region::from_raw(address, len + longer, space, stream, keep) };
        match self.device.open(inner)? {
            Access::Staged(inner) => Ok(Access::Staged(BrokenQueue {
                inner: Arc::new(Mutex::new(inner)),
                broken: self.clone(),
                address: address.addr() as u64,
                len,
                _region: region,
            })),
            Access::Host(view) => Ok(Access::Host(view)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct BrokenQueue {
    inner: Arc<Mutex<MemoryQueue>>,
    broken: Broken,
    address: u64,
    len: usize,
    _region: Arc<Region>,
}

/// A slot, or what passes for one.
pub(crate) enum BrokenSlot {
    Real(Slot),
    Early(Box<[u8]>),
}

impl AsRef<[u8]> for BrokenSlot {
    fn as_ref(&self) -> &[u8] {
        match self {
            BrokenSlot::Real(slot) => slot.as_ref(),
            BrokenSlot::Early(bytes) => bytes,
        }
    }
}

impl AsMut<[u8]> for BrokenSlot {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            BrokenSlot::Real(slot) => slot.as_mut(),
            BrokenSlot::Early(bytes) => bytes,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Copy {
    out: bool,
    range: Range<usize>,
    at: usize,
}

pub(crate) enum BrokenTransfer {
    Real(Transfer),
    Early(Option<Result<BrokenSlot, DeviceError>>),
    /// It does not begin before it is polled.
    Lazy(Arc<Mutex<MemoryQueue>>, Copy, Option<Slot>),
}

impl Future for BrokenTransfer {
    type Output = Result<BrokenSlot, DeviceError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let BrokenTransfer::Lazy(queue, copy, slot) = &mut *self
            && let Some(slot) = slot.take()
        {
            let transfer = enqueue(queue, copy, slot);
            *self = BrokenTransfer::Real(transfer);
        }
        match &mut *self {
            BrokenTransfer::Real(inner) => {
                let outcome = Pin::new(inner).poll(cx);
                outcome.map(|outcome| outcome.map(BrokenSlot::Real))
            }
            BrokenTransfer::Early(outcome) => match outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => Poll::Pending,
            },
            BrokenTransfer::Lazy(..) => Poll::Pending,
        }
    }
}

fn enqueue(queue: &Mutex<MemoryQueue>, copy: &Copy, slot: Slot) -> Transfer {
    let mut queue = queue.lock().expect("nobody panics with the queue");
    match copy.out {
        true => queue.copy_out(copy.range.clone(), slot, copy.at),
        false => queue.copy_in(slot, copy.at, copy.range.clone()),
    }
}

impl BrokenQueue {
    fn copy(&self, mut copy: Copy, slot: BrokenSlot) -> BrokenTransfer {
        if self.broken.lie == Lie::IgnoresAt {
            copy.at = 0;
        }
        match (self.broken.lie, slot) {
            (_, BrokenSlot::Early(bytes)) => self.copy_at_once(&copy, bytes),
            (Lie::CompletesEarly, BrokenSlot::Real(slot)) => {
                let bytes = slot.as_ref().into();
                let mut transfer = enqueue(&self.inner, &copy, slot);
                let mut cx = Context::from_waker(Waker::noop());
                let outcome = match Pin::new(&mut transfer).poll(&mut cx) {
                    Poll::Ready(Err(error)) => Err(error),
                    _ => Ok(BrokenSlot::Early(bytes)),
                };
                BrokenTransfer::Early(Some(outcome))
            }
            (Lie::ForgetsDropped, BrokenSlot::Real(slot)) => {
                BrokenTransfer::Lazy(Arc::clone(&self.inner), copy, Some(slot))
            }
            (_, BrokenSlot::Real(slot)) => BrokenTransfer::Real(enqueue(&self.inner, &copy, slot)),
        }
    }

    /// A copy with a slot that is none.
    fn copy_at_once(&self, copy: &Copy, mut bytes: Box<[u8]>) -> BrokenTransfer {
        let address = self.address + copy.range.start as u64;
        let host = bytes.get_mut(copy.at..copy.at + copy.range.len());
        let copied = match (host, copy.out) {
            (Some(host), true) => self.broken.device.read(address, host),
            (Some(host), false) => self.broken.device.write(address, host),
            (None, _) => Ok(()),
        };
        let outcome = copied.map(|()| BrokenSlot::Early(bytes));
        BrokenTransfer::Early(Some(outcome))
    }

    fn inner(&self) -> MutexGuard<'_, MemoryQueue> {
        self.inner.lock().expect("nobody panics with the queue")
    }
}

impl ExecutionQueue for BrokenQueue {
    type Slot = BrokenSlot;
    type Transfer = BrokenTransfer;

    fn region_len(&self) -> usize {
        match self.broken.lie {
            Lie::OtherLength(more) => self.len.saturating_add_signed(more),
            _ => self.len,
        }
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<BrokenSlot, DeviceError>> {
        let (device, slots) = (&self.broken.device, &self.broken.slots);
        if self.broken.lie == Lie::NoFirstSlot {
            let in_use = device.usage().slots_in_use;
            if in_use >= device.capabilities().slots {
                return Poll::Pending;
            }
        }
        let mut silent = Context::from_waker(Waker::noop());
        let cx = match self.broken.lie {
            Lie::ForgetsWakers => &mut silent,
            _ => cx,
        };
        let mut slot = ready!(self.inner().poll_slot(cx))?;
        let number = slots.fetch_add(1, Ordering::Relaxed);
        if self.broken.lie == Lie::LosesSlots && number % 10 == 9 {
            mem::forget(slot);
            slot = ready!(self.inner().poll_slot(cx))?;
        }
        Poll::Ready(Ok(BrokenSlot::Real(slot)))
    }

    fn copy_out(&mut self, range: Range<usize>, slot: BrokenSlot, at: usize) -> BrokenTransfer {
        let out = true;
        self.copy(Copy { out, range, at }, slot)
    }

    fn copy_in(&mut self, slot: BrokenSlot, at: usize, range: Range<usize>) -> BrokenTransfer {
        let out = false;
        self.copy(Copy { out, range, at }, slot)
    }

    fn fill(&mut self, range: Range<usize>, byte: u8) -> Result<(), DeviceError> {
        let byte = match self.broken.lie {
            Lie::FillsZero => 0,
            _ => byte,
        };
        self.inner().fill(range, byte)
    }

    fn reduce(
        &mut self,
        slot: BrokenSlot,
        at: usize,
        range: Range<usize>,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<BrokenTransfer, DeviceError> {
        match slot {
            BrokenSlot::Real(slot) => {
                let transfer = self.inner().reduce(slot, at, range, dtype, op)?;
                Ok(BrokenTransfer::Real(transfer))
            }
            BrokenSlot::Early(bytes) => {
                let outcome = Ok(BrokenSlot::Early(bytes));
                Ok(BrokenTransfer::Early(Some(outcome)))
            }
        }
    }
}

impl Drop for BrokenQueue {
    fn drop(&mut self) {
        if self.broken.lie == Lie::IgnoresDroppedQueues {
            // The device comes to know it too late.
            let inner = Arc::clone(&self.inner);
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                drop(inner);
            });
        }
    }
}
