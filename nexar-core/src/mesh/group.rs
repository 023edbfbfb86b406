//! Communicators, as far as the core knows them: a list of ranks, their lanes, and what happens to the
//! calls made on them.

use super::{Shared, lock, peer::Presence};
use crate::{
    Call, Error, Failure,
    membership::{RecvOf, SendOf},
    task::run_on,
    transport::{Connection, SendStream, StreamError, Transport},
    wire::{LaneKind, Preamble, control::Control},
};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::Instant;

/// A call without progress for so long asks the other members where they are.
const STALL: Duration = Duration::from_millis(500);

/// How often it asks again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Past calls that are remembered to recognise a mismatch late.
const HISTORY: usize = 32;

/// How long a failed stream waits for the control stream to say why.
const VERDICT_LIMIT: Duration = Duration::from_secs(1);

/// The kinds of lane that a communicator has one of in each direction and pair.
const LASTING_LANES: usize = 2;

/// A list of ranks that communicate in isolation from other lists. Dropping it tells the other members that
/// this rank makes no further calls.
pub struct Group<T: Transport> {
    mesh: Arc<Shared<T>>,
    shared: Arc<GroupShared<RecvOf<T>>>,
}

/// What the background tasks know of a group.
pub(crate) struct GroupShared<R> {
    id: u64,
    /// Ranks in the mesh, by rank in the group.
    members: Vec<usize>,
    /// This rank in the group.
    own: usize,
    failed: AtomicBool,
    progress: AtomicU64,
    state: Mutex<State<R>>,
}

/// What the messaging of a group hears from the mesh. It is called without any lock held.
pub(crate) trait GroupListener: Send + Sync {
    /// A lane came, a member left, or the group failed.
    fn changed(&self);

    /// Called about ten times a second.
    fn tick(&self, now: Instant);
}

/// How a member left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeftMember {
    /// The collective calls that it has made.
    pub(crate) calls: u64,
    /// Whether it had opened a message lane to this rank.
    pub(crate) message_lane: bool,
}

impl LeftMember {
    /// It left without saying so for this group.
    pub(super) const SILENTLY: Self = LeftMember {
        calls: 0,
        message_lane: false,
    };
}

struct State<R> {
    failure: Option<Failure>,
    /// Calls begun on this rank.
    calls: u64,
    ongoing: Option<Ongoing>,
    history: VecDeque<Call>,
    members: Vec<MemberState<R>>,
    waker: Option<Waker>,
    listener: Option<Arc<dyn GroupListener>>,
    /// Member, transfer number and lane of large messages, until the listener takes them. Only kept where there is a
    /// listener; the transport's limit of concurrent streams bounds them.
    bulk: Vec<(usize, u64, R)>,
}

struct MemberState<R> {
    /// Calls begun, as far as it has said.
    calls: u64,
    left: Option<LeftMember>,
    lanes: [Option<R>; LASTING_LANES],
    /// This rank has opened a message lane to it.
    message_lane: bool,
}

struct Ongoing {
    call: Call,
    started: Instant,
    /// Value of the progress counter, and since when it has it.
    progress: (u64, Instant),
    asked: Option<Instant>,
}

impl<T: Transport> Group<T> {
    pub(super) fn new(mesh: Arc<Shared<T>>, id: u64, members: Vec<usize>) -> Result<Self, Error> {
        let invalid = |reason: String| Error::InvalidArgument {
            operation: "group",
            reason,
        };
        let own = members.iter().position(|rank| *rank == mesh.rank());
        let own = own.ok_or_else(|| invalid("this rank is not in the list".into()))?;
        let mut sorted = members.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!("a rank occurs twice in {members:?}")));
        }
        if sorted.last().is_some_and(|rank| *rank >= mesh.peers.len()) {
            return Err(invalid(format!("a rank in {members:?} does not exist")));
        }
        let shared = Arc::new(GroupShared::new(id, members, own));
        let mut groups = lock(&mesh.groups);
        if groups.by_id.contains_key(&id) {
            return Err(invalid(format!("communicator {id} exists already")));
        }
        groups.by_id.insert(id, Arc::clone(&shared));
        for (rank, preamble, stream) in groups.unclaimed.claim(id) {
            shared.add_lane(rank, preamble, stream);
        }
        drop(groups);
        // A member may have gone before this list of ranks existed.
        for (member, rank) in shared.members.iter().enumerate() {
            match mesh.peer(*rank).map(|p| p.presence()) {
                Some(Presence::Left) => shared.set_left(member, LeftMember::SILENTLY),
                Some(Presence::Lost) => {
                    let reason = "it was lost before".into();
                    shared.set_failure(Failure::PeerLost {
                        rank: member,
                        reason,
                    });
                }
                Some(Presence::Here) | None => {}
            }
        }
        Ok(Group { mesh, shared })
    }

    /// The communicator's number.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        self.shared.own
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.shared.members.len()
    }

    /// The transport.
    pub fn transport(&self) -> &Arc<T> {
        &self.mesh.transport
    }

    /// Ranks in the mesh, by rank in the group.
    pub fn members(&self) -> &[usize] {
        &self.shared.members
    }

    /// Why the group has failed, if it has. A failed group stays failed.
    pub fn failure(&self) -> Option<Failure> {
        lock(&self.shared.state).failure.clone()
    }

    /// Fails the group on all its members. Returns the reason that counts: an earlier one, if there is.
    pub fn fail(&self, failure: Failure) -> Failure {
        self.mesh.fail_group(&self.shared, failure.clone());
        self.failure().unwrap_or(failure)
    }

    /// Begins a call: gives it the next sequence number and starts its time limit. One call is in progress
    /// at a time; the caller sees to that.
    ///
    /// # Errors
    ///
    /// The failure of the group, or of a member that has left before.
    pub fn begin(&self, call: impl FnOnce(u64) -> Call) -> Result<OngoingCall<'_, T>, Failure> {
        let call = self.shared.begin(call)?;
        Ok(OngoingCall {
            group: self,
            call,
            finished: false,
        })
    }

    /// Opens a lane to a member.
    ///
    /// # Errors
    ///
    /// The failure of the group.
    pub async fn open_lane(
        &self,
        member: usize,
        kind: LaneKind,
        message: u64,
    ) -> Result<SendOf<T>, Failure> {
        match self.try_open_lane(member, kind, message).await {
            Ok(stream) => Ok(stream),
            Err(error) => Err(self.verdict(member, &error).await),
        }
    }

    /// Opens a lane to a member; the group is the same whatever comes of it.
    pub(crate) async fn try_open_lane(
        &self,
        member: usize,
        kind: LaneKind,
        message: u64,
    ) -> Result<SendOf<T>, StreamError> {
        let rank = self.shared.members.get(member);
        let peer = rank.and_then(|rank| self.mesh.peer(*rank));
        let connection = &peer.ok_or(StreamError::Closed)?.connection;
        let preamble = Preamble {
            communicator: self.id(),
            kind,
            message,
        }
        .encode();
        let mut stream = connection.open_uni().await?;
        stream.write_all(Bytes::copy_from_slice(&preamble)).await?;
        if kind == LaneKind::Message
            && let Some(state) = lock(&self.shared.state).members.get_mut(member)
        {
            state.message_lane = true;
        }
        Ok(stream)
    }

    /// The lane of this kind from a member, once it has come. It is given out once.
    pub fn poll_lane(
        &self,
        cx: &mut Context<'_>,
        member: usize,
        kind: LaneKind,
    ) -> Poll<RecvOf<T>> {
        let mut state = lock(&self.shared.state);
        let lane = lane_index(kind)
            .and_then(|index| state.members.get_mut(member)?.lanes.get_mut(index)?.take());
        match lane {
            Some(lane) => Poll::Ready(lane),
            None => {
                state.wake_with(cx);
                Poll::Pending
            }
        }
    }

    /// From now on `listener` hears of changes, or nobody; the lanes of large messages are kept for it.
    pub(crate) fn listen(&self, listener: Option<Arc<dyn GroupListener>>) {
        let mut state = lock(&self.shared.state);
        let bulk = std::mem::take(&mut state.bulk);
        let before = std::mem::replace(&mut state.listener, listener);
        drop(state);
        drop((bulk, before));
    }

    /// The message lane from a member, if it has come.
    pub(crate) fn take_message_lane(&self, member: usize) -> Option<RecvOf<T>> {
        let index = lane_index(LaneKind::Message)?;
        let mut state = lock(&self.shared.state);
        state.members.get_mut(member)?.lanes.get_mut(index)?.take()
    }

    /// The lanes of large messages that have come: member, number of the transfer, lane.
    pub(crate) fn take_bulk_lanes(&self) -> Vec<(usize, u64, RecvOf<T>)> {
        std::mem::take(&mut lock(&self.shared.state).bulk)
    }

    /// How a member has left, if it has.
    pub(crate) fn left(&self, member: usize) -> Option<LeftMember> {
        lock(&self.shared.state).members.get(member)?.left
    }

    /// The time limits.
    pub fn limits(&self) -> crate::TimeLimits {
        self.mesh.limits
    }

    /// Why a stream to or from a member failed: what the control stream says, for which it waits a little.
    pub async fn verdict(&self, member: usize, error: &StreamError) -> Failure {
        let said = timeout_on(&self.mesh, poll_fn(|cx| self.shared.poll_failure(cx))).await;
        match said {
            Some(failure) => failure,
            None => {
                let reason = format!("a stream failed: {error}");
                self.fail(Failure::PeerLost {
                    rank: member,
                    reason,
                })
            }
        }
    }

    /// Tells the other members that this rank makes no further calls.
    fn announce_leave(&self) {
        let state = lock(&self.shared.state);
        if state.failure.is_some() {
            return;
        }
        for (rank, member) in self.shared.members.iter().zip(&state.members) {
            if let Some(peer) = self.mesh.peer(*rank)
                && peer.presence() == Presence::Here
            {
                peer.send(Control::Leave {
                    communicator: self.id(),
                    calls: state.calls,
                    message_lane: member.message_lane,
                });
            }
        }
    }
}

/// The output of a future if it is ready within the verdict limit. The timer runs on the transport's
/// runtime, since the caller may have none.
async fn timeout_on<T: Transport, F: Future>(mesh: &Shared<T>, future: F) -> Option<F::Output> {
    let sleep = tokio::time::sleep;
    let mut clock = run_on(mesh.transport.background(), async move {
        sleep(VERDICT_LIMIT).await
    });
    let mut future = pin!(future);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        Pin::new(&mut clock).poll(cx).map(|_| None)
    })
    .await
}

impl<T: Transport> Drop for Group<T> {
    fn drop(&mut self) {
        self.announce_leave();
        lock(&self.mesh.groups).by_id.remove(&self.shared.id);
    }
}

impl<T: Transport> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("id", &self.id())
            .field("rank", &self.rank())
            .field("members", &self.members())
            .finish()
    }
}

/// A call in progress. Dropping it before [`finish`](OngoingCall::finish) fails the group on all members.
#[derive(Debug)]
pub struct OngoingCall<'a, T: Transport> {
    group: &'a Group<T>,
    call: Call,
    finished: bool,
}

impl<'a, T: Transport> OngoingCall<'a, T> {
    /// The call, with its sequence number.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The group.
    pub fn group(&self) -> &'a Group<T> {
        self.group
    }

    /// Records that data has moved.
    pub fn made_progress(&self) {
        self.group.shared.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Ready once the group has failed.
    pub fn poll_failure(&self, cx: &mut Context<'_>) -> Poll<Failure> {
        self.group.shared.poll_failure(cx)
    }

    /// Ends the call well.
    pub fn finish(mut self) {
        self.finished = true;
        self.group.shared.end();
    }

    /// Ends the call with a failure of the group, on all members. Returns the reason that counts.
    pub fn fail(mut self, failure: Failure) -> Failure {
        self.finished = true;
        let failure = self.group.fail(failure);
        self.group.shared.end();
        failure
    }
}

impl<T: Transport> Drop for OngoingCall<'_, T> {
    fn drop(&mut self) {
        if !self.finished {
            let reason = format!(
                "its {} was dropped before it was done",
                self.call.collective
            );
            self.group.fail(Failure::Aborted {
                rank: self.group.rank(),
                reason,
            });
            self.group.shared.end();
        }
    }
}

fn lane_index(kind: LaneKind) -> Option<usize> {
    match kind {
        LaneKind::Collective => Some(0),
        LaneKind::Message => Some(1),
        LaneKind::Bulk => None,
    }
}

/// Who has to hear of a change, once the state is unlocked.
struct Changed(Option<Waker>, Option<Arc<dyn GroupListener>>);

impl Changed {
    fn call(self) {
        if let Some(waker) = self.0 {
            waker.wake();
        }
        if let Some(listener) = self.1 {
            listener.changed();
        }
    }
}

impl<R> State<R> {
    fn wake_with(&mut self, cx: &mut Context<'_>) {
        if !self.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    fn changed(&mut self) -> Changed {
        Changed(self.waker.take(), self.listener.clone())
    }

    /// The first member that has left and takes no part in call number `sequence`.
    fn leaver(&self, sequence: u64) -> Option<usize> {
        self.members
            .iter()
            .position(|m| m.left.is_some_and(|left| left.calls <= sequence))
    }
}

impl<R> GroupShared<R> {
    fn new(id: u64, members: Vec<usize>, own: usize) -> Self {
        let states = members.iter().map(|_| MemberState {
            calls: 0,
            left: None,
            lanes: [const { None }; LASTING_LANES],
            message_lane: false,
        });
        let state = State {
            failure: None,
            calls: 0,
            ongoing: None,
            history: VecDeque::new(),
            members: states.collect(),
            waker: None,
            listener: None,
            bulk: Vec::new(),
        };
        GroupShared {
            id,
            own,
            failed: AtomicBool::new(false),
            progress: AtomicU64::new(0),
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

    pub(super) fn calls(&self) -> u64 {
        lock(&self.state).calls
    }

    fn begin(&self, call: impl FnOnce(u64) -> Call) -> Result<Call, Failure> {
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
        let call = call(sequence);
        state.calls = sequence.wrapping_add(1);
        let now = Instant::now();
        let progress = (self.progress.load(Ordering::Relaxed), now);
        state.ongoing = Some(Ongoing {
            call,
            started: now,
            progress,
            asked: None,
        });
        Ok(call)
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        if let Some(ongoing) = state.ongoing.take() {
            if state.history.len() == HISTORY {
                state.history.pop_front();
            }
            state.history.push_back(ongoing.call);
        }
        state.waker = None;
    }

    fn poll_failure(&self, cx: &mut Context<'_>) -> Poll<Failure> {
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
        self.failed.store(true, Ordering::Release);
        let changed = state.changed();
        drop(state);
        changed.call();
        true
    }

    /// Who listens for changes of the group.
    pub(super) fn listener(&self) -> Option<Arc<dyn GroupListener>> {
        lock(&self.state).listener.clone()
    }

    /// A member has left and makes no further calls. Only the first word counts.
    pub(super) fn set_left(&self, member: usize, left: LeftMember) {
        let mut state = lock(&self.state);
        let ongoing = state.ongoing.as_ref().map(|o| o.call.sequence);
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

    /// A member has begun so many calls.
    pub(super) fn set_position(&self, member: usize, calls: u64) {
        if let Some(member) = lock(&self.state).members.get_mut(member) {
            member.calls = member.calls.max(calls);
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
            .find(|call| call.sequence == theirs.sequence)?;
        (*ours != theirs).then(|| mismatch((self.own, *ours), (member, theirs)))
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
            None if state.listener.is_some() => state.bulk.push((member, preamble.message, stream)),
            None => {}
        }
        let changed = state.changed();
        drop(state);
        changed.call();
    }

    /// A failure where the time limit has passed; the call where it is time to ask the others about it.
    pub(super) fn check_time(
        &self,
        now: Instant,
        limit: Duration,
    ) -> (Option<Failure>, Option<Call>) {
        let mut state = lock(&self.state);
        let State {
            ongoing,
            members,
            failure,
            ..
        } = &mut *state;
        let Some(ongoing) = ongoing else {
            return (None, None);
        };
        if failure.is_some() {
            return (None, None);
        }
        if now.saturating_duration_since(ongoing.started) >= limit {
            let sequence = ongoing.call.sequence;
            let late = |(rank, m): (usize, &MemberState<R>)| {
                (rank != self.own && m.calls <= sequence).then_some(rank)
            };
            let missing = members.iter().enumerate().filter_map(late).collect();
            return (Some(Failure::TimedOut { limit, missing }), None);
        }
        let progress = self.progress.load(Ordering::Relaxed);
        if progress != ongoing.progress.0 {
            ongoing.progress = (progress, now);
            return (None, None);
        }
        let stalled = now.saturating_duration_since(ongoing.progress.1) >= STALL;
        let due = ongoing
            .asked
            .is_none_or(|at| now.saturating_duration_since(at) >= ASK_AGAIN);
        if stalled && due {
            ongoing.asked = Some(now);
            return (None, Some(ongoing.call));
        }
        (None, None)
    }
}

/// A mismatch of two calls, the lower rank first, so that it reads the same on every rank.
pub(crate) fn mismatch(ours: (usize, Call), theirs: (usize, Call)) -> Failure {
    let (first, second) = if ours.0 <= theirs.0 {
        (ours, theirs)
    } else {
        (theirs, ours)
    };
    Failure::Mismatch { first, second }
}

impl Failure {
    /// A mismatch between this rank's call and another's.
    pub fn mismatch(ours: (usize, Call), theirs: (usize, Call)) -> Failure {
        mismatch(ours, theirs)
    }
}
