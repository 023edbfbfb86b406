//! Who reads the lanes.
//!
//! A waiting operation reads them itself. Where several wait, the one that was polled last is the leader:
//! the transport's wake-ups go to it, it takes in what has come, and wakes those whose messages it found.
//! Without a leader, the transport's background runtime takes in what has come.
//!
//! A leader may be a future that its task does not poll any more. So a wake-up that nobody has followed
//! when the clock of the mesh has ticked twice goes to the background runtime, and that operation does not
//! lead again until it is polled.

use crate::mesh::{GroupListener, lock};
use std::{
    sync::{Arc, Mutex, Weak},
    task::{Wake, Waker},
};
use tokio::{runtime::Handle, time::Instant};

/// What the lanes belong to.
pub(crate) trait Pump: Send + Sync + 'static {
    /// Takes in what has come, and writes what may be written.
    fn pump(&self);

    /// Looks at the clock. `lazy` is an operation that did not follow a wake-up.
    fn tick(&self, now: Instant, lazy: Option<u64>);
}

pub(crate) struct Hub<P> {
    inner: Weak<P>,
    background: Handle,
    state: Mutex<HubState>,
}

struct HubState {
    leader: Option<(u64, Waker)>,
    /// A wake-up is on its way to somebody.
    woken: bool,
    /// The clock has ticked since.
    overdue: bool,
    /// The group has news.
    changed: bool,
    /// The background runtime is about to write what was queued without being written.
    deferred: bool,
    /// Members whose lanes may be read or written.
    ready: Vec<usize>,
    is_ready: Vec<bool>,
}

impl HubState {
    fn set_ready(&mut self, member: usize) {
        if let Some(ready) = self.is_ready.get_mut(member)
            && !std::mem::replace(ready, true)
        {
            self.ready.push(member);
        }
    }
}

impl<P: Pump> Hub<P> {
    pub(crate) fn new(inner: Weak<P>, background: Handle, world: usize) -> Self {
        Hub {
            inner,
            background,
            state: Mutex::new(HubState {
                leader: None,
                woken: false,
                overdue: false,
                changed: false,
                deferred: false,
                ready: Vec::new(),
                is_ready: vec![false; world],
            }),
        }
    }

    /// What the lanes belong to, for background tasks.
    pub(crate) fn inner(&self) -> Weak<P> {
        self.inner.clone()
    }

    /// The runtime for background tasks.
    pub(crate) fn background(&self) -> &Handle {
        &self.background
    }

    /// The lanes of a member may be read or written.
    pub(crate) fn set_ready(&self, member: usize) {
        self.signal(|state| state.set_ready(member));
    }

    /// The lanes of a member may be read or written, by whoever pumps next; nobody is woken for it.
    pub(crate) fn mark_ready(&self, member: usize) {
        lock(&self.state).set_ready(member);
    }

    /// What is queued for a member is written soon, by whoever takes in what has come first.
    pub(crate) fn defer(&self, member: usize) {
        let mut state = lock(&self.state);
        state.set_ready(member);
        if !std::mem::replace(&mut state.deferred, true) {
            drop(state);
            self.spawn_pump();
        }
    }

    /// Whether the group has news that nobody has taken in.
    pub(crate) fn is_changed(&self) -> bool {
        lock(&self.state).changed
    }

    fn signal(&self, mark: impl FnOnce(&mut HubState)) {
        let mut state = lock(&self.state);
        mark(&mut state);
        if std::mem::replace(&mut state.woken, true) {
            return;
        }
        let leader = state.leader.as_ref().map(|(_, waker)| waker.clone());
        drop(state);
        match leader {
            Some(waker) => waker.wake(),
            None => self.spawn_pump(),
        }
    }

    fn spawn_pump(&self) {
        let inner = self.inner.clone();
        self.background.spawn(async move {
            if let Some(inner) = inner.upgrade() {
                inner.pump();
            }
        });
    }

    /// What has happened since the last time: the members that are ready are put into `ready`; whether
    /// the group has news.
    pub(crate) fn take(&self, ready: &mut Vec<usize>) -> bool {
        ready.clear();
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.ready, ready);
        for member in ready.iter() {
            if let Some(ready) = state.is_ready.get_mut(*member) {
                *ready = false;
            }
        }
        (state.woken, state.overdue, state.deferred) = (false, false, false);
        std::mem::take(&mut state.changed)
    }

    /// An operation waits and leads from now on. Returns the waker of the former leader, to be dropped
    /// without a lock, and whether the new one is to be woken.
    pub(crate) fn lead(&self, operation: u64, waker: &Waker) -> (Option<Waker>, bool) {
        let mut state = lock(&self.state);
        let same = matches!(&state.leader, Some((leader, its)) if *leader == operation && its.will_wake(waker));
        let former = if same {
            None
        } else {
            state.leader.replace((operation, waker.clone()))
        };
        (former.map(|(_, waker)| waker), state.woken)
    }

    /// An operation is over. If it was the leader, `next` leads. Returns the waker of the former leader, to
    /// be dropped without a lock, and the one to be woken.
    pub(crate) fn resign(
        &self,
        operation: u64,
        next: impl FnOnce() -> Option<(u64, Waker)>,
    ) -> (Option<Waker>, Option<Waker>) {
        let mut state = lock(&self.state);
        if state
            .leader
            .as_ref()
            .is_none_or(|(leader, _)| *leader != operation)
        {
            return (None, None);
        }
        let former = std::mem::replace(&mut state.leader, next());
        let leader = state.leader.as_ref().map(|(_, waker)| waker.clone());
        let woken = state.woken;
        drop(state);
        if woken && leader.is_none() {
            self.spawn_pump();
        }
        (former.map(|(_, waker)| waker), leader.filter(|_| woken))
    }

    /// The leader, if it has not followed a wake-up for long; it does not lead any more.
    fn depose(&self) -> Option<(u64, Waker)> {
        let mut state = lock(&self.state);
        if !state.woken {
            state.overdue = false;
            return None;
        }
        if !std::mem::replace(&mut state.overdue, true) {
            return None;
        }
        let leader = state.leader.take();
        drop(state);
        self.spawn_pump();
        leader
    }
}

impl<P: Pump> GroupListener for Hub<P> {
    fn changed(&self) {
        self.signal(|state| state.changed = true);
    }

    fn tick(&self, now: Instant) {
        let deposed = self.depose();
        if let Some(inner) = self.inner.upgrade() {
            inner.tick(now, deposed.as_ref().map(|(operation, _)| *operation));
        }
    }
}

/// Wakes whoever reads the lanes of one member.
pub(crate) struct LaneWaker<P> {
    pub(crate) hub: Arc<Hub<P>>,
    pub(crate) member: usize,
}

impl<P: Pump> Wake for LaneWaker<P> {
    fn wake(self: Arc<Self>) {
        self.hub.set_ready(self.member);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.hub.set_ready(self.member);
    }
}
