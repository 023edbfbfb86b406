//! The futures of the set.

use super::{Drivers, readiness::Readiness};
use std::{
    future::Future,
    io, mem,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};
use tokio::task::unconstrained;

pub(super) type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One future of the set.
struct Slot {
    future: BoxFuture,
    ready: Arc<Ready>,
    waker: Waker,
}

/// Wakes one slot: notes it once until it is polled.
struct Ready {
    noted: AtomicBool,
    slot: usize,
    drivers: Weak<Drivers>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.noted.swap(true, Ordering::AcqRel)
            && let Some(drivers) = self.drivers.upgrade()
        {
            drivers.update(|state| state.ready(self.slot));
        }
    }
}

/// The futures and the readiness of the socket, for the one that polls.
pub(super) struct Core {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    readiness: Option<Readiness>,
}

impl Core {
    pub(super) fn new(readiness: Readiness) -> Self {
        Core {
            slots: Vec::new(),
            free: Vec::new(),
            readiness: Some(readiness),
        }
    }

    /// Takes new futures in, then polls these and the `ready` ones once.
    pub(super) fn poll(&mut self, spawned: Vec<BoxFuture>, ready: Vec<usize>, drivers: &Drivers) {
        for slot in ready {
            self.poll_slot(slot);
        }
        for future in spawned {
            let slot = self.insert(future, drivers);
            self.poll_slot(slot);
        }
    }

    fn insert(&mut self, future: BoxFuture, drivers: &Drivers) -> usize {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let ready = Arc::new(Ready {
            noted: AtomicBool::new(true),
            slot,
            drivers: drivers.weak.clone(),
        });
        // Without tokio's budget, which is meant for tasks that are polled once per turn: here many
        // polls happen in one turn, and the party that polls bounds its time itself.
        let future: BoxFuture = Box::pin(unconstrained(future));
        let new = Slot {
            future,
            waker: ready.clone().into(),
            ready,
        };
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(new),
            None => self.slots.push(Some(new)),
        }
        slot
    }

    fn poll_slot(&mut self, slot: usize) {
        let Some(Some(entry)) = self.slots.get_mut(slot) else {
            return;
        };
        entry.ready.noted.store(false, Ordering::Release);
        let mut cx = Context::from_waker(&entry.waker);
        if entry.future.as_mut().poll(&mut cx).is_ready() {
            self.slots[slot] = None;
            self.free.push(slot);
        }
    }

    /// Stops the readiness of the socket from waking the background.
    pub(super) fn disarm(&mut self) {
        if let Some(readiness) = &mut self.readiness {
            readiness.disarm();
        }
    }

    /// Arms the readiness; see [`Readiness::poll_ready`].
    pub(super) fn poll_readiness(
        &mut self,
        cx: &mut Context<'_>,
        want_write: bool,
    ) -> Poll<io::Result<()>> {
        match &mut self.readiness {
            Some(readiness) => readiness.poll_ready(cx, want_write),
            None => Poll::Pending,
        }
    }

    /// Everything, to be dropped outside the lock.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        (mem::take(&mut self.slots), self.readiness.take())
    }
}
