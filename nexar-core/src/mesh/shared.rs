//! What the background tasks know of a group, and what it knows of its members.

use super::{lock, progress::Ongoing};
use crate::{
    Call, Exchange, Failure,
    wire::{LaneKind, Preamble},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// Past calls that are remembered to recognise a mismatch late.
const HISTORY: usize = 32;

/// The kinds of lane that a communicator has one of in each direction and pair.
const LASTING_LANES: usize = 3;

/// What the background tasks know of a group.
pub(crate) struct GroupShared<R> {
    pub(super) id: u64,
    /// Ranks in the mesh, by rank in the group.
    pub(super) members: Vec<usize>,
    /// This rank in the group.
    pub(super) own: usize,
    pub(super) progress: AtomicU64,
    /// This rank cannot go on before its device has done something.
    pub(super) waits_for_device: AtomicBool,
    pub(super) state: Mutex<State<R>>,
}

/// What the messages or the calls of a group hear from the mesh. It is called without any lock held.
pub(crate) trait GroupListener: Send + Sync {
    /// A lane came, a member left, or the group failed.
    fn changed(&self);

    /// Called about ten times a second.
    fn tick(&self, now: Instant);
}

/// For whom a listener listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listening {
    /// The point-to-point messages.
    Messages,
    /// The remote calls.
    Calls,
}

impl Listening {
    const COUNT: usize = 2;

    fn of(kind: LaneKind) -> Self {
        match kind {
            LaneKind::Rpc | LaneKind::RpcBulk => Listening::Calls,
            LaneKind::Collective | LaneKind::Message | LaneKind::Bulk => Listening::Messages,
        }
    }
}

/// How a member left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeftMember {
    /// The collective calls that it has made.
    pub(crate) calls: u64,
    /// Whether it had opened a message lane to this rank.
    pub(crate) message_lane: bool,
    /// Whether it had opened a lane of calls to this rank.
    pub(crate) rpc_lane: bool,
}

/// What a rank says last in a communicator.
#[derive(Debug, Clone)]
pub(super) enum LastWord {
    /// It leaves well.
    Left(LeftMember),
    /// The communicator has failed.
    Failed(Failure),
}

impl LeftMember {
    /// It left without saying so for this group.
    pub(super) const SILENTLY: Self = LeftMember {
        calls: 0,
        message_lane: false,
        rpc_lane: false,
    };
}

pub(super) struct State<R> {
    pub(super) failure: Option<Failure>,
    /// The members have been told how this rank leaves.
    pub(super) announced: bool,
    /// Calls begun on this rank.
    pub(super) calls: u64,
    pub(super) ongoing: Option<Ongoing>,
    /// Since when work for a call is going on that has to do with no other rank.
    pub(super) local_since: Option<Instant>,
    pub(super) history: VecDeque<Registered>,
    pub(super) members: Vec<MemberState<R>>,
    pub(super) waker: Option<Waker>,
    listeners: [Listener<R>; Listening::COUNT],
}

/// Somebody who hears of changes.
pub(super) struct Listener<R> {
    hears: Option<Arc<dyn GroupListener>>,
    /// Member, number and lane of what has a lane of its own, until the listener takes them. Only kept
    /// where there is a listener; the transport's limit of concurrent streams bounds them.
    bulk: Vec<(usize, u64, R)>,
}

pub(super) struct MemberState<R> {
    /// Calls begun, as far as it has said.
    pub(super) calls: u64,
    /// When it said that it waits for its device, and in which call, unless it has said otherwise since.
    pub(super) waited_for_device: Option<(Instant, u64)>,
    pub(super) left: Option<LeftMember>,
    pub(super) lanes: [Option<R>; LASTING_LANES],
    /// This rank has opened a message lane to it.
    pub(super) message_lane: bool,
    /// This rank has opened a lane of calls to it.
    pub(super) rpc_lane: bool,
}

/// What this rank exchanges with each member, if it does.
pub type Exchanges = Arc<[Option<Exchange>]>;

/// A call as this rank tells the others of it.
#[derive(Debug, Clone)]
pub(super) struct Registered {
    pub(super) call: Call,
    /// By member, where each pair of ranks has its own.
    pub(super) exchanges: Option<Exchanges>,
}

impl Registered {
    /// What a member is told.
    pub(super) fn towards(&self, member: usize) -> Call {
        let exchange = self.exchanges.as_ref().and_then(|all| all.get(member));
        Call {
            exchange: exchange.copied().flatten(),
            ..self.call
        }
    }
}

pub(super) fn lane_index(kind: LaneKind) -> Option<usize> {
    match kind {
        LaneKind::Collective => Some(0),
        LaneKind::Message => Some(1),
        LaneKind::Rpc => Some(2),
        LaneKind::Bulk | LaneKind::RpcBulk => None,
    }
}

/// Who has to hear of a change, once the state is unlocked.
struct Changed(
    Option<Waker>,
    [Option<Arc<dyn GroupListener>>; Listening::COUNT],
);

impl Changed {
    fn call(self) {
        if let Some(waker) = self.0 {
            waker.wake();
        }
        for listener in self.1.into_iter().flatten() {
            listener.changed();
        }
    }
}

impl<R> State<R> {
    pub(super) fn wake_with(&mut self, cx: &mut Context<'_>) {
        if !self.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    fn changed(&mut self) -> Changed {
        Changed(self.waker.take(), self.hearing())
    }

    fn hearing(&self) -> [Option<Arc<dyn GroupListener>>; Listening::COUNT] {
        self.listeners.each_ref().map(|l| l.hears.clone())
    }

    /// The first member that has left and takes no part in call number `sequence`.
    fn leaver(&self, sequence: u64) -> Option<usize> {
        self.members
            .iter()
            .position(|m| m.left.is_some_and(|left| left.calls <= sequence))
    }
}

impl<R> GroupShared<R> {
    pub(super) fn new(id: u64, members: Vec<usize>, own: usize) -> Self {
        let states = members.iter().map(|_| MemberState {
            calls: 0,
            waited_for_device: None,
            left: None,
            lanes: [const { None }; LASTING_LANES],
            message_lane: false,
            rpc_lane: false,
        });
        let state = State {
            failure: None,
            announced: false,
            calls: 0,
            ongoing: None,
            local_since: None,
            history: VecDeque::new(),
            members: states.collect(),
            waker: None,
            listeners: std::array::from_fn(|_| Listener {
                hears: None,
                bulk: Vec::new(),
            }),
        };
        GroupShared {
            id,
            own,
            progress: AtomicU64::new(0),
            waits_for_device: AtomicBool::new(false),
            state: Mutex::new(state),
            members,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn members(&self) -> &[usize] {
        &self.members
    }

    /// The number in this group of a rank of the mesh.
    pub(super) fn member(&self, rank: usize) -> Option<usize> {
        self.members.iter().position(|r| *r == rank)
    }

    pub(super) fn begin(
        &self,
        call: impl FnOnce(u64) -> Call,
        exchanges: Option<Exchanges>,
    ) -> Result<Registered, Failure> {
        let mut state = lock(&self.state);
        let sequence = state.calls;
        if state.failure.is_none()
            && let Some(rank) = state.leaver(sequence)
        {
            let failure = Failure::PeerLeft { rank };
            drop(state);
            self.set_failure(failure.clone());
            return Err(failure);
        }
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let call = Registered {
            call: call(sequence),
            exchanges,
        };
        state.calls = sequence.wrapping_add(1);
        let progress = self.progress.load(Ordering::Relaxed);
        state.ongoing = Some(Ongoing::new(call.clone(), progress));
        Ok(call)
    }

    pub(super) fn end(&self) {
        self.waits_for_device.store(false, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if let Some(ongoing) = state.ongoing.take() {
            if state.history.len() == HISTORY {
                state.history.pop_front();
            }
            state.history.push_back(ongoing.call);
        }
        state.waker = None;
    }

    pub(super) fn poll_failure(&self, cx: &mut Context<'_>) -> Poll<Failure> {
        let mut state = lock(&self.state);
        match &state.failure {
            Some(failure) => Poll::Ready(failure.clone()),
            None => {
                state.wake_with(cx);
                Poll::Pending
            }
        }
    }

    /// Fails the group on this rank; false if it had failed before.
    pub(super) fn set_failure(&self, failure: Failure) -> bool {
        let mut state = lock(&self.state);
        if state.failure.is_some() {
            return false;
        }
        state.failure = Some(failure);
        let changed = state.changed();
        drop(state);
        changed.call();
        true
    }

    /// Those who listen for changes of the group.
    pub(super) fn listeners(&self) -> impl Iterator<Item = Arc<dyn GroupListener>> + use<R> {
        lock(&self.state).hearing().into_iter().flatten()
    }

    /// From now on `listener` hears of changes, or nobody.
    pub(super) fn listen(&self, what: Listening, listener: Option<Arc<dyn GroupListener>>) {
        let new = Listener {
            hears: listener,
            bulk: Vec::new(),
        };
        let mut state = lock(&self.state);
        let before = std::mem::replace(&mut state.listeners[what as usize], new);
        drop(state);
        drop(before);
    }

    /// The lanes of their own that have come.
    pub(super) fn take_bulk(&self, what: Listening) -> Vec<(usize, u64, R)> {
        std::mem::take(&mut lock(&self.state).listeners[what as usize].bulk)
    }

    /// A member has left and makes no further calls. Only the first word counts.
    pub(super) fn set_left(&self, member: usize, left: LeftMember) {
        let mut state = lock(&self.state);
        let ongoing = state.ongoing.as_ref().map(|o| o.call.call.sequence);
        let Some(slot) = state.members.get_mut(member) else {
            return;
        };
        let calls = slot.left.get_or_insert(left).calls;
        let changed = state.changed();
        drop(state);
        changed.call();
        if ongoing.is_some_and(|sequence| sequence >= calls) {
            self.set_failure(Failure::PeerLeft { rank: member });
        }
    }

    /// A rank of the mesh has said its last word; of one that is no member it does not count.
    pub(super) fn hear_last(&self, rank: usize, word: LastWord) {
        let Some(member) = self.member(rank) else {
            return;
        };
        match word {
            LastWord::Left(left) => self.set_left(member, left),
            LastWord::Failed(failure) => {
                self.set_failure(failure);
            }
        }
    }

    /// Compares a call in which a member waits with this rank's call of that number.
    pub(super) fn compare(&self, member: usize, theirs: Call) -> Option<Failure> {
        let mut state = lock(&self.state);
        let slot = state.members.get_mut(member)?;
        slot.calls = slot.calls.max(theirs.sequence.wrapping_add(1));
        let ours = state
            .ongoing
            .iter()
            .map(|o| &o.call)
            .chain(&state.history)
            .find(|call| call.call.sequence == theirs.sequence)?
            .towards(member);
        (!ours.agrees(&theirs)).then(|| Failure::mismatch((self.own, ours), (member, theirs)))
    }

    /// A lane from a rank has come. One that nobody can want is dropped, which stops it.
    pub(super) fn add_lane(&self, rank: usize, preamble: Preamble, stream: R) {
        let Some(member) = self.member(rank) else {
            return;
        };
        let mut state = lock(&self.state);
        match lane_index(preamble.kind) {
            Some(index) => {
                if let Some(slot) = state
                    .members
                    .get_mut(member)
                    .and_then(|m| m.lanes.get_mut(index))
                {
                    *slot = Some(stream);
                }
            }
            None => {
                let listener = &mut state.listeners[Listening::of(preamble.kind) as usize];
                if listener.hears.is_some() {
                    listener.bulk.push((member, preamble.message, stream));
                }
            }
        }
        let changed = state.changed();
        drop(state);
        changed.call();
    }
}
