//! What all calls of a communicator share, and what changes it.

use super::{
    RpcOptions, RpcStats,
    attend::Attendance,
    call::{Answer, Call},
    context::Control,
    error::Cause,
    items::Items,
    job::Job,
    peer::Peer,
    registry::{Method, Registry},
    runtime::Runtime,
};
use crate::{
    Failure,
    lane::{Hub, OutLane, Pump},
    membership::SendOf,
    mesh::{Group, Listening, lock},
    transport::{StreamError, Transport},
    wire::{LaneKind, rpc::FailureCode},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Time limits that pass within this time have a timer of their own; for others the clock of the mesh, which
/// ticks ten times a second, is good enough.
const PRECISE: Duration = Duration::from_secs(1);

/// What calls, handlers, wakers and the background runtime share.
pub(super) struct Inner<T: Transport> {
    pub(super) group: Arc<Group<T>>,
    pub(super) hub: Arc<Hub<Inner<T>>>,
    pub(super) methods: Registry<T>,
    pub(super) runtime: Runtime,
    pub(super) max_body: usize,
    pub(super) max_handlers: usize,
    state: Mutex<State<T>>,
}

pub(super) struct State<T: Transport> {
    pub(super) peers: Vec<Peer<T>>,
    /// Calls of this rank, by number.
    pub(super) calls: BTreeMap<u64, Call>,
    pub(super) next_call: u64,
    /// Handlers that count towards the limit.
    pub(super) running: usize,
    /// Handlers in all.
    pub(super) handlers: usize,
    /// Members whose calls wait for a handler to end, in turn.
    pub(super) starved: VecDeque<usize>,
    pub(super) attendance: Attendance,
    pub(super) failure: Option<Failure>,
    pub(super) closed: bool,
    /// Those who wait until everything is answered and written.
    pub(super) drains: Vec<Waker>,
    /// The next precise timer goes off then.
    timer: Option<Instant>,
    /// Reused.
    ready: Vec<usize>,
}

/// What is to be done once the state is unlocked, since it may run foreign code.
pub(super) struct After<T: Transport> {
    pub(super) wake: Vec<Waker>,
    pub(super) stale: Vec<Waker>,
    pub(super) start: Vec<(Arc<dyn Method<T>>, Job<T>)>,
    pub(super) ended: Vec<(Arc<Items>, Result<(), Cause>)>,
    pub(super) stop: Vec<(Arc<Control>, FailureCode)>,
    /// Somebody is to take in the calls that come.
    pub(super) attend: bool,
    timer: Option<Instant>,
}

/// The locked state, with what belongs to it.
pub(super) struct Core<'a, T: Transport> {
    pub(super) inner: &'a Inner<T>,
    pub(super) state: &'a mut State<T>,
    pub(super) after: &'a mut After<T>,
}

impl<T: Transport> Inner<T> {
    pub(super) fn new(group: Arc<Group<T>>, options: RpcOptions) -> Arc<Self> {
        let world = group.size();
        let background = group.transport().background().clone();
        Arc::new_cyclic(|inner: &Weak<Self>| {
            let hub = Arc::new(Hub::new(inner.clone(), background, world));
            let peers = (0..world).map(|member| Peer::new(&hub, member));
            Inner {
                state: Mutex::new(State {
                    peers: peers.collect(),
                    calls: BTreeMap::new(),
                    next_call: 0,
                    running: 0,
                    handlers: 0,
                    starved: VecDeque::new(),
                    attendance: Attendance::default(),
                    failure: None,
                    closed: false,
                    drains: Vec::new(),
                    timer: None,
                    ready: Vec::new(),
                }),
                group,
                hub,
                methods: Registry::new(),
                runtime: Runtime::new(options.runtime),
                max_body: options.max_body,
                max_handlers: options.max_handlers.max(1),
            }
        })
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Core<'_, T>) -> R) -> R {
        let mut after = After {
            wake: Vec::new(),
            stale: Vec::new(),
            start: Vec::new(),
            ended: Vec::new(),
            stop: Vec::new(),
            attend: false,
            timer: None,
        };
        let mut state = lock(&self.state);
        let output = act(&mut Core {
            inner: self,
            state: &mut state,
            after: &mut after,
        });
        drop(state);
        self.follow_up(after);
        output
    }

    fn follow_up(&self, after: After<T>) {
        after.wake.into_iter().for_each(Waker::wake);
        drop(after.stale);
        for (method, job) in after.start {
            method.start(job, &self.runtime);
        }
        if after.attend {
            self.attend();
        }
        for (items, end) in after.ended {
            items.end(end);
        }
        for (control, why) in after.stop {
            control.cancel(why);
        }
        if let Some(deadline) = after.timer {
            let inner = self.hub.inner();
            self.hub.background().spawn(async move {
                sleep_until(deadline).await;
                if let Some(inner) = inner.upgrade() {
                    inner.with(|core| core.alarm(deadline));
                }
            });
        }
    }
}

impl<T: Transport> Pump for Inner<T> {
    fn pump(&self) {
        self.with(|core| core.pump());
    }

    fn tick(&self, now: Instant, lazy: Option<u64>) {
        let lost = self.with(|core| {
            if let Some(call) = lazy.and_then(|id| core.state.calls.get_mut(&id)) {
                call.lazy = true;
            }
            core.expire(now);
            core.check_attendance();
            core.broken_for_good(now)
        });
        for (rank, error) in lost {
            let reason = format!("a stream failed: {error}");
            self.group.fail(Failure::PeerLost { rank, reason });
        }
    }
}

impl<T: Transport> Core<'_, T> {
    /// Takes in what has come, and writes what may be written.
    pub(super) fn pump(&mut self) {
        let mut ready = std::mem::take(&mut self.state.ready);
        if self.inner.hub.take(&mut ready) {
            self.take_changes();
        }
        for member in ready.drain(..) {
            self.read(member);
            self.write(member);
            self.start_some(member);
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
                self.state.peers[member].left = Some(left.rpc_lane);
                self.left(member);
            }
        }
        for (member, number, lane) in self.inner.group.take_bulk_lanes(Listening::Calls) {
            self.take_bulk_lane(member, number, lane);
        }
    }

    fn take_lane(&mut self, member: usize) {
        let peer = &mut self.state.peers[member];
        if peer.recv.is_none()
            && !peer.ended
            && let Some(lane) = self.inner.group.take_lane(member, LaneKind::Rpc)
        {
            peer.recv = Some(lane);
            self.read(member);
        }
    }

    /// A member has left, and perhaps its lane has come to its end: what waits for it fails.
    pub(super) fn left(&mut self, member: usize) {
        self.abandon_served(member);
        let peer = &mut self.state.peers[member];
        let waiting: Vec<u64> = peer.waiting.iter_mut().flat_map(|w| w.drain(..)).collect();
        let gone = peer.is_gone();
        if gone {
            peer.wanted.clear();
            peer.queue.clear();
            self.forget_abandoned(Some(member));
        }
        let failure = Cause::Failed(Failure::PeerLeft { rank: member });
        let to_it = self.state.calls.iter().filter(|(_, c)| c.to == member);
        let ids: Vec<u64> = to_it.map(|(id, _)| *id).collect();
        for id in ids {
            if gone || waiting.contains(&id) {
                self.answered(id, Answer::Failed(failure.clone()));
            }
        }
    }

    /// The communicator has failed: every call ends, and nothing is kept.
    fn fail(&mut self, failure: Failure) {
        self.state.failure = Some(failure.clone());
        for member in 0..self.state.peers.len() {
            self.abandon_served(member);
            let peer = &mut self.state.peers[member];
            peer.queue.clear();
            peer.wanted.clear();
            peer.recv = None;
            peer.ended = true;
            if let OutLane::Opening(task) = std::mem::replace(&mut peer.lane, OutLane::Over) {
                task.abort();
            }
        }
        self.forget_abandoned(None);
        self.end_calls(&Cause::Failed(failure));
        self.after.wake.append(&mut self.state.drains);
    }

    fn end_calls(&mut self, cause: &Cause) {
        let ids: Vec<u64> = self.state.calls.keys().copied().collect();
        for id in ids {
            self.answered(id, Answer::Failed(cause.clone()));
        }
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

    /// Ends what has no time left.
    fn expire(&mut self, now: Instant) {
        let late = self.state.calls.iter().filter(|(_, c)| c.deadline <= now);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.call_timed_out(id);
        }
        for member in 0..self.state.peers.len() {
            let serving = self.state.peers[member].serving.iter();
            let late = serving.filter(|(_, s)| s.deadline <= now);
            let late: Vec<u64> = late.map(|(call, _)| *call).collect();
            for call in late {
                self.stop_serving(member, call, FailureCode::TimedOut);
            }
        }
    }

    /// Sees to it that a deadline is noticed in time.
    pub(super) fn watch(&mut self, deadline: Instant, limit: Duration) {
        if limit < PRECISE && self.state.timer.is_none_or(|timer| deadline < timer) {
            self.state.timer = Some(deadline);
            self.after.timer = Some(deadline);
        }
    }

    /// A precise timer has gone off.
    fn alarm(&mut self, deadline: Instant) {
        let now = Instant::now();
        self.expire(now);
        if self.state.timer != Some(deadline) {
            return;
        }
        self.state.timer = None;
        let State { calls, peers, .. } = &*self.state;
        let calls = calls.values().filter(|c| c.waits()).map(|c| c.deadline);
        let serving = peers.iter().flat_map(|peer| peer.serving.values());
        let serving = serving.filter(|s| s.control.over().is_none());
        if let Some(next) = calls.chain(serving.map(|s| s.deadline)).min() {
            self.watch(next, next.saturating_duration_since(now));
        }
    }

    /// Fails the communicator: a member broke the protocol.
    pub(super) fn violated(&mut self, rank: usize, what: impl Into<String>) {
        let what = what.into();
        let failure = self.inner.group.fail(Failure::Protocol { rank, what });
        self.fail(failure);
    }

    /// No further calls, made or taken.
    pub(super) fn stop(&mut self) {
        if !std::mem::replace(&mut self.state.closed, true) {
            self.cancel_all();
            self.end_attendance();
        }
        self.end_calls(&Cause::Failed(Failure::ShutDown));
    }

    /// No handler runs, and everything has been written that can be.
    pub(super) fn is_settled(&self) -> bool {
        let mut peers = self.state.peers.iter();
        self.state.failure.is_some()
            || self.state.handlers == 0
                && peers.all(|peer| {
                    let written = peer.queue.bytes() == 0 || matches!(peer.lane, OutLane::Over);
                    written && peer.serving.is_empty()
                })
    }

    /// Ready once that is so.
    pub(super) fn poll_settled(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.pump();
        if self.is_settled() {
            return Poll::Ready(());
        }
        let drains = &mut self.state.drains;
        if !drains.iter().any(|drain| drain.will_wake(cx.waker())) {
            drains.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Cancels all handlers.
    pub(super) fn stop_serving_all(&mut self, why: FailureCode) {
        for member in 0..self.state.peers.len() {
            let calls: Vec<u64> = self.state.peers[member].serving.keys().copied().collect();
            for call in calls {
                self.stop_serving(member, call, why);
            }
        }
    }

    pub(super) fn stats(&self) -> RpcStats {
        let peers = self.state.peers.iter();
        RpcStats {
            calls: self.state.calls.len(),
            handlers: self.state.handlers,
            waiting: peers
                .clone()
                .flat_map(|p| &p.backlog)
                .map(VecDeque::len)
                .sum(),
            queued_bytes: peers.map(|peer| peer.queue.bytes()).sum(),
        }
    }

    /// Those who wait for that look again.
    pub(super) fn wake_drains(&mut self) {
        if !self.state.drains.is_empty() && self.is_settled() {
            self.after.wake.append(&mut self.state.drains);
        }
    }

    /// Closes everything and hands out the lanes. What is queued and cannot be written at once is lost.
    pub(super) fn close(&mut self) -> Vec<OutLane<SendOf<T>>> {
        self.stop();
        let mut lanes = Vec::new();
        for member in 0..self.state.peers.len() {
            self.write(member);
            self.abandon_served(member);
            let peer = &mut self.state.peers[member];
            peer.queue.clear();
            peer.wanted.clear();
            peer.recv = None;
            peer.ended = true;
            let lane = std::mem::replace(&mut peer.lane, OutLane::Over);
            if let OutLane::Opening(task) = &lane {
                task.abort();
            }
            lanes.push(lane);
        }
        self.forget_abandoned(None);
        lanes
    }
}
