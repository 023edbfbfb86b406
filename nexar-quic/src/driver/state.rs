//! Who polls the set, and what is ready in it.

use super::{executor::BoxFuture, waiter::Signal};
use std::{mem, sync::Arc, task::Waker, time::Duration};

/// How long the set may be without a visible owner before the background takes over; see
/// [`Quiet::interval`].
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Who polls the futures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Owner {
    /// The background task.
    #[default]
    Background,
    /// The waiter with this number.
    Waiter(u64),
    /// Nobody: the last waiter is done, and another one is likely to come before the background wakes.
    Nobody,
}

/// The part of the set that wakers touch. See the module's rule 2.
#[derive(Default)]
pub(super) struct State {
    pub(super) owner: Owner,
    /// Slots to poll.
    ready: Vec<usize>,
    /// New futures.
    spawned: Vec<BoxFuture>,
    /// Waiters that sleep while somebody else drives.
    waiting: Vec<Arc<Signal>>,
    /// Changes with everything that a waiter does.
    activity: u64,
    /// The owner is a waiter that lets other tasks of its runtime run.
    paused: bool,
    /// The background looks at every tick whether the set still has an owner.
    ticking: bool,
    /// The background is inside its poll and will look at the state again before it sleeps.
    background_awake: bool,
    /// A waiter handed over while it was.
    background_called: bool,
    background: Option<Waker>,
    closed: bool,
    next_waiter: u64,
}

impl State {
    /// Notes that the future in `slot` wants to be polled.
    pub(super) fn ready(&mut self, slot: usize) -> Option<Waker> {
        if self.closed {
            return None;
        }
        self.ready.push(slot);
        self.call_background_if_needed()
    }

    /// Takes a new future in, or gives it back if the set is closed.
    pub(super) fn spawn(&mut self, future: BoxFuture) -> (Option<Waker>, Option<BoxFuture>) {
        if self.closed {
            return (None, Some(future));
        }
        self.spawned.push(future);
        (self.call_background_if_needed(), None)
    }

    /// A waiter sees new work in its loop, and so does the background while it is awake.
    fn call_background_if_needed(&self) -> Option<Waker> {
        match self.owner {
            Owner::Waiter(_) => None,
            Owner::Background | Owner::Nobody if self.background_awake => None,
            Owner::Background | Owner::Nobody => self.background.clone(),
        }
    }

    /// Has the background look at the state once more.
    fn call_background(&mut self) -> Option<Waker> {
        self.background_called = true;
        if self.background_awake {
            None
        } else {
            self.background.clone()
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.spawned.is_empty()
    }

    pub(super) fn take_ready(&mut self) -> (Vec<BoxFuture>, Vec<usize>) {
        (mem::take(&mut self.spawned), mem::take(&mut self.ready))
    }

    pub(super) fn close(&mut self) -> Vec<BoxFuture> {
        self.closed = true;
        self.ready.clear();
        mem::take(&mut self.spawned)
    }
}

/// What waiters do.
impl State {
    pub(super) fn new_waiter(&mut self) -> u64 {
        self.next_waiter += 1;
        self.next_waiter
    }

    /// Makes `waiter` the owner, unless another waiter is.
    pub(super) fn claim(&mut self, waiter: &Arc<Signal>) -> bool {
        self.activity += 1;
        if self.closed {
            return false;
        }
        match self.owner {
            Owner::Waiter(owner) if owner != waiter.id => {
                if !self.waiting.iter().any(|other| other.id == waiter.id) {
                    self.waiting.push(waiter.clone());
                }
                false
            }
            _ => {
                self.owner = Owner::Waiter(waiter.id);
                self.paused = false;
                self.waiting.retain(|other| other.id != waiter.id);
                true
            }
        }
    }

    pub(super) fn is_driven_by_other(&self, waiter: u64) -> bool {
        matches!(self.owner, Owner::Waiter(owner) if owner != waiter)
    }

    /// `waiter` lets other tasks of its runtime run. It stays the owner if it is polled again before
    /// the second tick.
    pub(super) fn pause(&mut self) -> Option<Waker> {
        self.paused = true;
        self.start_ticking()
    }

    /// `waiter` sleeps: the background takes over at once.
    pub(super) fn sleep(&mut self, waiter: u64) -> Option<Waker> {
        if self.owner != Owner::Waiter(waiter) {
            return None;
        }
        self.owner = Owner::Background;
        self.call_background()
    }

    /// `waiter` is done or gone. Gives back another waiter to wake, which drives from now on, and the
    /// background's waker if it has something to do.
    pub(super) fn leave(&mut self, waiter: u64) -> (Option<Arc<Signal>>, Option<Waker>) {
        self.activity += 1;
        self.waiting.retain(|other| other.id != waiter);
        if self.owner != Owner::Waiter(waiter) {
            return (None, None);
        }
        self.owner = Owner::Nobody;
        let next = self.waiting.pop();
        let background = if self.has_work() {
            self.call_background()
        } else {
            None
        };
        let ticks = self.start_ticking();
        (next, background.or(ticks))
    }

    fn start_ticking(&mut self) -> Option<Waker> {
        if mem::replace(&mut self.ticking, true) {
            None
        } else {
            self.call_background()
        }
    }
}

/// Ticks that a waiter may be inside its poll without a sign of life before the background takes over.
const MAX_QUIET_TICKS: u32 = 20;

/// For how many ticks in a row something was heard of the waiters, or nothing.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    activity: u64,
    ticks: u32,
    lively: u32,
}

impl Quiet {
    fn tick(&mut self, activity: u64) {
        if activity == self.activity {
            self.ticks = self.ticks.saturating_add(1);
            self.lively = 0;
        } else {
            self.ticks = 0;
            self.lively = self.lively.saturating_add(1);
        }
        self.activity = activity;
    }

    /// The time to the next tick: longer while waiters come and go, since each tick wakes a thread.
    pub(super) fn interval(&self) -> Duration {
        TICK * (1 << (self.lively / 4).min(2))
    }
}

/// What the background must do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// Poll the set.
    Drive,
    /// Somebody else does; look again after a tick.
    Watch,
    /// Somebody else does and will call.
    Rest,
    /// The set is closed.
    End,
}

/// What the background does.
impl State {
    /// Begins a poll of the background. `expired` tells that another tick has passed.
    pub(super) fn background_polled(
        &mut self,
        waker: &Waker,
        quiet: &mut Quiet,
        expired: bool,
    ) -> Duty {
        if !self
            .background
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
        {
            self.background = Some(waker.clone());
        }
        if self.closed {
            return Duty::End;
        }
        if self.owner != Owner::Background {
            if expired {
                quiet.tick(self.activity);
            }
            // One inside its poll mostly waits for a core that others have, and this thread would only be
            // one more that wants it.
            let in_its_poll = matches!(self.owner, Owner::Waiter(_)) && !self.paused;
            let patience = if in_its_poll { MAX_QUIET_TICKS } else { 1 };
            let abandoned = expired && quiet.ticks >= patience;
            let called = self.owner == Owner::Nobody && self.has_work();
            if !abandoned && !called {
                return if self.ticking {
                    Duty::Watch
                } else {
                    Duty::Rest
                };
            }
            self.owner = Owner::Background;
        }
        self.ticking = false;
        self.background_awake = true;
        self.background_called = false;
        Duty::Drive
    }

    /// Whether the background is still the owner.
    pub(super) fn background_owns(&self) -> bool {
        self.owner == Owner::Background
    }

    /// Ends a poll of the background; false if it must look again at once.
    pub(super) fn background_sleeps(&mut self) -> bool {
        self.background_awake = false;
        let work = self.has_work() && !matches!(self.owner, Owner::Waiter(_));
        !work && !self.background_called
    }
}
