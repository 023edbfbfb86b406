//! The state of a messenger, and what changes it.

use super::{
    MAX_BODIES,
    error::{Cause, MessageFailure},
    inbox::Inbox,
    operation::{Kind, Operation},
    peer::Peer,
};
use crate::{
    Failure,
    lane::{Hub, OutLane, Pump},
    membership::{RecvOf, SendOf},
    mesh::{Group, Listening, lock},
    transport::{StreamError, Transport},
    wire::LaneKind,
};
use std::{
    collections::{BTreeMap, HashMap},
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{sync::Semaphore, time::Instant};

/// What a messenger's operations, its wakers and the background runtime share.
pub(super) struct Inner<T: Transport> {
    pub(super) group: Arc<Group<T>>,
    pub(super) hub: Arc<Hub<Inner<T>>>,
    pub(super) limit: Duration,
    /// Bodies elsewhere that may be taken in or put in place at a time.
    pub(super) bodies: Semaphore,
    /// Small messages sent since an operation waited last.
    pub(super) burst: AtomicUsize,
    state: Mutex<State<T>>,
}

pub(super) struct State<T: Transport> {
    pub(super) peers: Vec<Peer<T>>,
    pub(super) inbox: Inbox,
    /// Operations in progress. A later one has a higher number.
    pub(super) operations: BTreeMap<u64, Operation<RecvOf<T>>>,
    next_operation: u64,
    /// Transfers that were asked for, by number: the receive.
    pub(super) transfers: HashMap<u64, u64>,
    pub(super) next_transfer: u64,
    /// Operations that wait for an event of their kind.
    pub(super) probes: usize,
    pub(super) drains: usize,
    pub(super) failure: Option<Failure>,
    pub(super) closed: bool,
    /// Reused.
    ready: Vec<usize>,
}

/// Wakers to be called and to be dropped once the state is unlocked: either may run foreign code.
#[derive(Default)]
pub(super) struct After {
    wake: Vec<Waker>,
    stale: Vec<Waker>,
}

/// The locked state, with what belongs to it.
pub(super) struct Core<'a, T: Transport> {
    pub(super) inner: &'a Inner<T>,
    pub(super) state: &'a mut State<T>,
    pub(super) after: &'a mut After,
}

impl<T: Transport> Inner<T> {
    pub(super) fn new(group: Arc<Group<T>>) -> Arc<Self> {
        let world = group.size();
        let background = group.transport().background().clone();
        Arc::new_cyclic(|inner| {
            let hub = Arc::new(Hub::new(inner.clone(), background, world));
            let peers = (0..world).map(|member| Peer::new(&hub, member));
            Inner {
                limit: group.limits().operation,
                bodies: Semaphore::new(MAX_BODIES),
                burst: AtomicUsize::new(0),
                state: Mutex::new(State {
                    peers: peers.collect(),
                    inbox: Inbox::new(world),
                    operations: BTreeMap::new(),
                    next_operation: 0,
                    transfers: HashMap::new(),
                    next_transfer: 0,
                    probes: 0,
                    drains: 0,
                    failure: None,
                    closed: false,
                    ready: Vec::new(),
                }),
                group,
                hub,
            }
        })
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Core<'_, T>) -> R) -> R {
        let mut after = After::default();
        let mut state = lock(&self.state);
        let output = act(&mut Core {
            inner: self,
            state: &mut state,
            after: &mut after,
        });
        drop(state);
        after.wake.into_iter().for_each(Waker::wake);
        output
    }

    pub(super) fn begin(&self, kind: Kind<RecvOf<T>>) -> u64 {
        self.with(|core| {
            match kind {
                Kind::Probe(_) => core.state.probes += 1,
                Kind::Drain => core.state.drains += 1,
                Kind::Send(_) | Kind::Receive(_) => {}
            }
            let id = core.state.next_operation;
            core.state.next_operation += 1;
            core.state.operations.insert(
                id,
                Operation {
                    waker: None,
                    deadline: None,
                    timed_out: false,
                    lazy: false,
                    kind,
                },
            );
            id
        })
    }

    /// Works on an operation until that is done, or `over` says that it is not wanted any more.
    pub(super) async fn unless<R>(
        &self,
        id: u64,
        mut over: impl FnMut(&mut Core<'_, T>) -> Poll<Result<R, Cause>>,
        work: impl Future<Output = Result<R, MessageFailure>>,
    ) -> Result<R, Cause> {
        let mut work = pin!(work);
        poll_fn(|cx| match self.poll(id, cx, &mut over) {
            Poll::Ready(over) => Poll::Ready(over),
            Poll::Pending => work.as_mut().poll(cx).map_err(Cause::Message),
        })
        .await
    }

    /// Takes in what has come, then lets `check` see whether the operation is over. It is over without
    /// that when the communicator has failed, and when its time is.
    pub(super) fn poll<R>(
        &self,
        id: u64,
        cx: &Context<'_>,
        check: impl FnOnce(&mut Core<'_, T>) -> Poll<Result<R, Cause>>,
    ) -> Poll<Result<R, Cause>> {
        self.with(|core| {
            // What the pump finds for this operation needs no wake-up.
            if let Some(operation) = core.state.operations.get_mut(&id) {
                operation.lazy = false;
                core.after.stale.extend(operation.waker.take());
            }
            core.pump();
            if let Some(failure) = &core.state.failure {
                return Poll::Ready(Err(Cause::Failed(failure.clone())));
            }
            if let Poll::Ready(output) = check(core) {
                return Poll::Ready(output);
            }
            core.wait(id, cx)
        })
    }
}

impl<T: Transport> Pump for Inner<T> {
    fn pump(&self) {
        self.with(|core| core.pump());
    }

    fn tick(&self, now: Instant, lazy: Option<u64>) {
        let lost = self.with(|core| {
            if let Some(operation) = lazy.and_then(|id| core.state.operations.get_mut(&id)) {
                operation.lazy = true;
            }
            core.expire(now);
            core.broken_for_good(now)
        });
        for (rank, error) in lost {
            let reason = format!("a stream failed: {error}");
            self.group.fail(Failure::PeerLost { rank, reason });
        }
    }
}

impl<T: Transport> Core<'_, T> {
    fn wait<R>(&mut self, id: u64, cx: &Context<'_>) -> Poll<Result<R, Cause>> {
        let Some(operation) = self.state.operations.get_mut(&id) else {
            return Poll::Ready(Err(Cause::Failed(Failure::ShutDown)));
        };
        if operation.timed_out {
            return Poll::Ready(Err(Cause::TimedOut(operation.kind.waiting_for())));
        }
        self.inner.burst.store(0, Ordering::Relaxed);
        let limit = self.inner.limit;
        operation
            .deadline
            .get_or_insert_with(|| Instant::now() + limit);
        operation.waker = Some(cx.waker().clone());
        let (former, woken) = self.inner.hub.lead(id, cx.waker());
        self.after.stale.extend(former);
        if woken {
            self.after.wake.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Ends an operation. What it held is the caller's to deal with.
    pub(super) fn end(&mut self, id: u64) -> Option<Kind<RecvOf<T>>> {
        let operation = self.state.operations.remove(&id)?;
        match operation.kind {
            Kind::Probe(_) => self.state.probes -= 1,
            Kind::Drain => self.state.drains -= 1,
            Kind::Send(_) | Kind::Receive(_) => {}
        }
        let operations = &self.state.operations;
        let next = || {
            let mut newest_first = operations.iter().rev().filter(|(_, o)| !o.lazy);
            newest_first.find_map(|(id, o)| Some((*id, o.waker.clone()?)))
        };
        let (former, wake) = self.inner.hub.resign(id, next);
        self.after.stale.extend(former);
        self.after.stale.extend(operation.waker);
        self.after.wake.extend(wake);
        Some(operation.kind)
    }

    pub(super) fn wake(&mut self, id: u64) {
        if let Some(operation) = self.state.operations.get_mut(&id) {
            self.after.wake.extend(operation.waker.take());
        }
    }

    pub(super) fn wake_all(&mut self, which: impl Fn(&Kind<RecvOf<T>>) -> bool) {
        for operation in self.state.operations.values_mut() {
            if which(&operation.kind) {
                self.after.wake.extend(operation.waker.take());
            }
        }
    }

    /// Takes in what has come, and writes what may be written.
    pub(super) fn pump(&mut self) {
        let mut ready = std::mem::take(&mut self.state.ready);
        if self.inner.hub.take(&mut ready) {
            self.take_changes();
        }
        for member in ready.drain(..) {
            self.read(member);
            self.write(member);
        }
        self.state.ready = ready;
    }

    /// What is new in the group: its failure, members that left, lanes that came.
    fn take_changes(&mut self) {
        if let Some(failure) = self.inner.group.failure() {
            return self.fail(failure);
        }
        for member in 0..self.state.peers.len() {
            self.take_lane(member);
            if self.state.peers[member].left.is_none()
                && let Some(left) = self.inner.group.left(member)
            {
                self.state.peers[member].left = Some(left.message_lane);
                self.left(member);
            }
        }
        for (member, transfer, lane) in self.inner.group.take_bulk_lanes(Listening::Messages) {
            self.take_bulk_lane(member, transfer, lane);
        }
    }

    fn take_lane(&mut self, member: usize) {
        let peer = &mut self.state.peers[member];
        if peer.recv.is_none()
            && !peer.ended
            && let Some(lane) = self.inner.group.take_lane(member, LaneKind::Message)
        {
            peer.recv = Some(lane);
            self.read(member);
        }
    }

    /// The communicator has failed: every operation ends, and nothing is kept.
    fn fail(&mut self, failure: Failure) {
        self.state.failure = Some(failure);
        self.state.inbox.clear();
        for peer in &mut self.state.peers {
            peer.queue.clear();
            peer.recv = None;
            peer.ended = true;
            if let OutLane::Opening(task) = std::mem::replace(&mut peer.lane, OutLane::Over) {
                task.abort();
            }
        }
        self.wake_all(|_| true);
    }

    /// A stream of a member broke. The control stream is to say why; if it does not, the member is lost.
    pub(super) fn broke(&mut self, member: usize, error: &StreamError) {
        if let Some(peer) = self.state.peers.get_mut(member) {
            peer.broken.note(error);
        }
    }

    fn broken_for_good(&self, now: Instant) -> Vec<(usize, String)> {
        if self.state.failure.is_some() || self.state.closed {
            return Vec::new();
        }
        let peers = self.state.peers.iter().enumerate();
        let for_good = peers.filter_map(|(member, peer)| {
            let error = peer.broken.for_good(now)?;
            peer.left.is_none().then(|| (member, error.to_owned()))
        });
        for_good.collect()
    }

    fn expire(&mut self, now: Instant) {
        for operation in self.state.operations.values_mut() {
            if operation.deadline.is_some_and(|deadline| deadline <= now) {
                operation.timed_out = true;
                self.after.wake.extend(operation.waker.take());
            }
        }
    }

    /// Fails the communicator: a member broke the protocol.
    pub(super) fn violated(&mut self, rank: usize, what: impl Into<String>) {
        let what = what.into();
        let failure = self.inner.group.fail(Failure::Protocol { rank, what });
        self.fail(failure);
    }

    /// No further operations.
    pub(super) fn stop(&mut self) {
        self.state.closed = true;
        self.wake_all(|_| true);
    }

    /// Everything has been written that can be.
    pub(super) fn is_flushed(&self) -> bool {
        let mut peers = self.state.peers.iter();
        peers.all(|peer| peer.queue.bytes() == 0 || matches!(peer.lane, OutLane::Over))
    }

    /// Closes everything and hands out the lanes. What is queued and cannot be written at once is lost.
    pub(super) fn close(&mut self) -> Vec<OutLane<SendOf<T>>> {
        self.stop();
        self.state.inbox.clear();
        let mut lanes = Vec::new();
        for member in 0..self.state.peers.len() {
            self.write(member);
            let peer = &mut self.state.peers[member];
            peer.queue.clear();
            peer.recv = None;
            peer.ended = true;
            let lane = std::mem::replace(&mut peer.lane, OutLane::Over);
            if let OutLane::Opening(task) = &lane {
                task.abort();
            }
            lanes.push(lane);
        }
        lanes
    }
}
