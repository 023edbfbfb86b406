//! Communicators, as far as the core knows them: a list of ranks, their lanes, and what happens to the
//! calls made on them.

use super::{
    MAX_GROUPS, Shared,
    lanes::Claimed,
    lock,
    peer::Presence,
    shared::{
        Exchanges, GroupListener, GroupShared, LeftMember, Listening, Registered, lane_index,
    },
};
use crate::{
    Call, Error, Failure,
    membership::{RecvOf, SendOf},
    task::run_on,
    transport::{Connection, SendStream, StreamError, Transport},
    wire::{LaneKind, Preamble, control::Control},
};
use bytes::Bytes;
use std::{
    fmt,
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

/// How long a failed stream waits for the control stream to say why.
pub(crate) const VERDICT_LIMIT: Duration = Duration::from_secs(1);

/// A list of ranks that communicate in isolation from other lists. Dropping it without [`leave`](Group::leave)
/// looks like a failure of this rank to the other members.
pub struct Group<T: Transport> {
    mesh: Arc<Shared<T>>,
    shared: Arc<GroupShared<RecvOf<T>>>,
    one_host: bool,
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
        let one_host = on_one_host(members.iter().map(|rank| mesh.table.members[*rank].address));
        let shared = Arc::new(GroupShared::new(id, members, own));
        let mut groups = lock(&mesh.groups);
        if groups.by_id.contains_key(&id) {
            return Err(invalid(format!("communicator {id} exists already")));
        }
        if groups.by_id.len() >= MAX_GROUPS {
            let reason = format!("there are {MAX_GROUPS} communicators already: drop some first");
            return Err(invalid(reason));
        }
        let Claimed { lanes, words } = groups.unclaimed.claim(id);
        // Before others see the communicator: of two words of a rank the first counts.
        for (rank, word) in words {
            shared.hear_last(rank, word);
        }
        groups.by_id.insert(id, Arc::clone(&shared));
        for (rank, preamble, stream) in lanes {
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
        Ok(Group {
            mesh,
            shared,
            one_host,
        })
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

    /// Whether all members have the same IP address, or loopback addresses. It follows from the addresses under
    /// which the seed has introduced the ranks to each other, so that all members find the same.
    pub fn is_one_host(&self) -> bool {
        self.one_host
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
    /// at a time; the caller sees to that. `exchanges` has, by member, what only the two ranks of a pair know.
    ///
    /// # Errors
    ///
    /// The failure of the group, or of a member that has left before.
    pub fn begin(
        &self,
        call: impl FnOnce(u64) -> Call,
        exchanges: Option<Exchanges>,
    ) -> Result<OngoingCall<'_, T>, Failure> {
        let call = self.shared.begin(call, exchanges)?;
        Ok(OngoingCall {
            group: self,
            call,
            finished: false,
        })
    }

    /// Carries out work for a call that only has to do with this rank's device: before the call is begun, within it, or
    /// after it. If the group fails meanwhile, it is given up; it takes no longer than the time limit for operations.
    /// The caller's turn with calls is its turn here.
    ///
    /// # Errors
    ///
    /// The failure of the group.
    pub async fn device_work<F: Future>(&self, work: F) -> Result<F::Output, Failure> {
        let mut work = pin!(work);
        let mut waiting = None;
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            waiting.get_or_insert_with(|| DeviceWork::begin(&self.shared));
            self.shared.poll_failure(cx).map(Err)
        })
        .await
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
        let mut opening = pin!(self.try_open_lane(member, kind, message));
        // A member that grants no further stream must not hold up a group that has failed.
        let opened = poll_fn(|cx| match self.shared.poll_failure(cx) {
            Poll::Ready(failure) => Poll::Ready(Err(failure)),
            Poll::Pending => opening.as_mut().poll(cx).map(Ok),
        });
        match opened.await? {
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
        if let Some(state) = lock(&self.shared.state).members.get_mut(member) {
            match kind {
                LaneKind::Message => state.message_lane = true,
                LaneKind::Rpc => state.rpc_lane = true,
                LaneKind::Collective | LaneKind::Bulk | LaneKind::RpcBulk => {}
            }
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

    /// From now on `listener` hears of changes, or nobody; the lanes that belong to single messages or calls
    /// are kept for it.
    pub(crate) fn listen(&self, what: Listening, listener: Option<Arc<dyn GroupListener>>) {
        self.shared.listen(what, listener);
    }

    /// The lasting lane of this kind from a member, if it has come.
    pub(crate) fn take_lane(&self, member: usize, kind: LaneKind) -> Option<RecvOf<T>> {
        let index = lane_index(kind)?;
        let mut state = lock(&self.shared.state);
        state.members.get_mut(member)?.lanes.get_mut(index)?.take()
    }

    /// The lanes of single messages or calls that have come: member, number, lane.
    pub(crate) fn take_bulk_lanes(&self, what: Listening) -> Vec<(usize, u64, RecvOf<T>)> {
        self.shared.take_bulk(what)
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
            None if self.left(member).is_some() => self.fail(Failure::PeerLeft { rank: member }),
            None => {
                let reason = format!("a stream failed: {error}");
                self.fail(Failure::PeerLost {
                    rank: member,
                    reason,
                })
            }
        }
    }

    /// Tells the other members that this rank makes no further calls; calls that it makes all the same fail.
    /// Where the group has failed, it tells them of the failure instead, so that all report the same.
    pub fn leave(&self) {
        self.mesh.announce_leave(&self.shared, None);
        self.shared.set_failure(Failure::ShutDown);
    }
}

/// Work of this rank's device that is waited for.
struct DeviceWork<'a, R>(&'a GroupShared<R>);

impl<'a, R> DeviceWork<'a, R> {
    fn begin(shared: &'a GroupShared<R>) -> Self {
        shared.set_device_work(true);
        DeviceWork(shared)
    }
}

impl<R> Drop for DeviceWork<'_, R> {
    fn drop(&mut self) {
        self.0.set_device_work(false);
    }
}

impl<T: Transport> Shared<T> {
    /// Tells the other members, once, how this rank leaves a communicator: with the failure that it has met, else
    /// with `otherwise`, else well. It comes before the goodbye on the same streams.
    pub(super) fn announce_leave(
        &self,
        group: &GroupShared<RecvOf<T>>,
        otherwise: Option<&Failure>,
    ) {
        let mut state = lock(&group.state);
        if std::mem::replace(&mut state.announced, true) {
            return;
        }
        let failure = state.failure.as_ref().or(otherwise);
        for (rank, member) in group.members.iter().zip(&state.members) {
            let Some(peer) = self.peer(*rank) else {
                continue;
            };
            if peer.presence() == Presence::Here {
                peer.send(match failure {
                    Some(failure) => Control::Abort {
                        communicator: group.id,
                        failure: failure.clone(),
                    },
                    None => Control::Leave {
                        communicator: group.id,
                        calls: state.calls,
                        message_lane: member.message_lane,
                        rpc_lane: member.rpc_lane,
                    },
                });
            }
        }
    }
}

/// Whether addresses are of one host, as far as they tell.
fn on_one_host(addresses: impl Iterator<Item = SocketAddr>) -> bool {
    let mut hosts = addresses.map(|address| match address.ip().to_canonical() {
        ip if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    });
    let first = hosts.next();
    hosts.all(|host| Some(host) == first)
}

/// What the others hear of a rank that drops a communicator without leaving it.
pub(super) fn dropped(rank: usize) -> Failure {
    let reason = "it dropped its communicator without a shutdown, or panicked".into();
    Failure::PeerLost { rank, reason }
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
        let failure = dropped(self.rank());
        self.mesh.announce_leave(&self.shared, Some(&failure));
        let mut groups = lock(&self.mesh.groups);
        groups.by_id.remove(&self.shared.id);
        groups.unclaimed.drop_group(self.shared.id);
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
    call: Registered,
    finished: bool,
}

impl<'a, T: Transport> OngoingCall<'a, T> {
    /// The call, with its sequence number.
    pub fn call(&self) -> &Call {
        &self.call.call
    }

    /// The call as a member is told of it.
    pub fn towards(&self, member: usize) -> Call {
        self.call.towards(member)
    }

    /// The group.
    pub fn group(&self) -> &'a Group<T> {
        self.group
    }

    /// Records that data has moved.
    pub fn made_progress(&self) {
        self.group.shared.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Records whether data can only move once this rank's device has done something. A call whose time is over names
    /// the ranks for which that is so.
    pub fn set_waiting_for_device(&self, waits: bool) {
        let flag = &self.group.shared.waits_for_device;
        flag.store(waits, Ordering::Relaxed);
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
                self.call.call.collective
            );
            self.group.fail(Failure::Aborted {
                rank: self.group.rank(),
                reason,
            });
            self.group.shared.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_addresses_are_one_host() {
        let one = |addresses: &[&str]| on_one_host(addresses.iter().map(|a| a.parse().unwrap()));
        assert!(one(&["10.0.0.1:7000"]));
        assert!(one(&["10.0.0.1:7000", "10.0.0.1:7001", "10.0.0.1:7000"]));
        assert!(one(&["127.0.0.1:7000", "127.0.0.2:7001", "[::1]:7002"]));
        assert!(one(&["[::ffff:10.0.0.1]:7000", "10.0.0.1:7001"]));
        assert!(!one(&["10.0.0.1:7000", "10.0.0.1:7001", "10.0.0.2:7001"]));
        assert!(!one(&["127.0.0.1:7000", "10.0.0.1:7001"]));
    }
}
