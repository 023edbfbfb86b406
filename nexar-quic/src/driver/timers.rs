//! The backends' timers. They belong to the set, so that a waiter can fire them, too: one of tokio would wake
//! the thread of its own runtime.

use super::Drivers;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Instant,
};

/// The armed timers in the order of their deadlines.
#[derive(Default)]
pub(super) struct Timers(Mutex<Armed>);

#[derive(Default)]
struct Armed {
    timers: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
}

impl Timers {
    fn armed(&self) -> MutexGuard<'_, Armed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The earliest deadline.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.armed().timers.first_key_value().map(|(key, _)| key.0)
    }

    /// Wakes what waits for a deadline that has passed.
    pub(super) fn fire(&self, now: Instant) {
        while let Some(waker) = self.armed().pop_due(now) {
            waker.wake();
        }
    }
}

impl Armed {
    fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let first = self.timers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

/// One timer.
#[derive(Debug)]
pub(crate) struct Timer {
    drivers: Arc<Drivers>,
    id: u64,
    deadline: Instant,
}

impl Timer {
    pub(crate) fn new(drivers: Arc<Drivers>, deadline: Instant) -> Self {
        let id = {
            let mut armed = drivers.timers.armed();
            armed.next_id += 1;
            armed.next_id
        };
        Timer {
            drivers,
            id,
            deadline,
        }
    }

    fn disarm(&self) {
        let removed = self
            .drivers
            .timers
            .armed()
            .timers
            .remove(&(self.deadline, self.id));
        drop(removed);
    }
}

impl Timer {
    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.disarm();
        self.deadline = deadline;
    }

    /// Ready at the deadline; until then the task is woken when it has come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.deadline {
            self.disarm();
            return Poll::Ready(());
        }
        let key = (self.deadline, self.id);
        let old = self
            .drivers
            .timers
            .armed()
            .timers
            .insert(key, cx.waker().clone());
        drop(old);
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.disarm();
    }
}
