//! A formed group of processes: one connection and one control stream for each pair of ranks, with
//! heartbeats, failure detection and clean leaving. Communicators are made on it with [`Mesh::group`].
//!
//! All of its background work runs on the transport's own runtime, so that a rank whose application blocks
//! all of its workers is not taken for dead.

mod control;
mod group;
mod lanes;
mod monitor;
mod peer;
mod progress;
mod shared;

pub(crate) use group::VERDICT_LIMIT;
pub use group::{Group, OngoingCall};

use crate::{
    Error, Failure, TimeLimits,
    membership::{Link, Links, RecvOf},
    task::run_on,
    transport::{Connection, Transport},
    wire::{
        MAX_WORLD_SIZE,
        control::Control,
        join::{Member, Table},
    },
};
use group::dropped;
use lanes::Unclaimed;
use peer::{Peer, Presence};
pub use shared::Exchanges;
pub(crate) use shared::{GroupListener, LeftMember, Listening};
use shared::{GroupShared, LastWord};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{Instant, timeout, timeout_at},
};

/// Code of a connection that is closed because its rank left.
const CLOSE_LEFT: u64 = 0;
/// Code of a connection that is closed because its rank's mesh was dropped without leaving.
const CLOSE_DROPPED: u64 = 1;
/// Code of a connection that is closed because nothing was heard from the peer.
const CLOSE_LOST: u64 = 3;
/// Code of a connection that is closed because the peer broke the protocol.
const CLOSE_PROTOCOL: u64 = 4;

/// Communicators that a rank has at a time; more are refused.
const MAX_GROUPS: usize = 4096;

/// How long a rank that leaves tries to deliver its last words to those that have everything else.
const CONFIRMATION_LIMIT: Duration = Duration::from_secs(2);

/// How long a mesh that is dropped tries to tell the others.
const FAREWELL_LIMIT: Duration = Duration::from_millis(250);

/// Locks a mutex; data behind a panicked lock holder is still consistent here, since no lock is held across
/// a call of foreign code.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A formed group of processes. Dropping it without [`leave`](Mesh::leave) looks like a failure of this rank
/// to the others.
pub struct Mesh<T: Transport> {
    shared: Arc<Shared<T>>,
    tasks: Vec<AbortHandle>,
}

/// What the background tasks share.
pub(crate) struct Shared<T: Transport> {
    transport: Arc<T>,
    table: Table,
    limits: TimeLimits,
    /// By rank; none for this rank.
    peers: Vec<Option<Peer<T::Connection>>>,
    groups: Mutex<Groups<T>>,
    leaving: Mutex<Option<Leaving>>,
}

/// This rank has begun to leave.
struct Leaving {
    since: Instant,
    /// The ranks that were there.
    present: Vec<usize>,
}

struct Groups<T: Transport> {
    by_id: HashMap<u64, Arc<GroupShared<RecvOf<T>>>>,
    /// Lanes of communicators that this rank has not made yet.
    unclaimed: Unclaimed<RecvOf<T>>,
}

impl<T: Transport> Mesh<T> {
    pub(crate) fn start(transport: Arc<T>, links: Links<T>, limits: TimeLimits) -> Self {
        let Links {
            table,
            links,
            listener,
        } = links;
        let (peers, links): (Vec<_>, Vec<_>) = links.into_iter().map(Peer::split).unzip();
        let shared = Arc::new(Shared {
            transport,
            table,
            limits,
            peers,
            groups: Mutex::new(Groups {
                by_id: HashMap::new(),
                unclaimed: Unclaimed::default(),
            }),
            leaving: Mutex::new(None),
        });
        let mut tasks = Vec::new();
        for (rank, link) in links.into_iter().enumerate() {
            if let Some(link) = link {
                tasks.extend(control::spawn(&shared, rank, link));
            }
        }
        tasks.push(monitor::spawn(&shared));
        tasks.push(control::spawn_doorman(&shared, listener));
        Mesh { shared, tasks }
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.shared.table.rank as usize
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.shared.table.members.len()
    }

    /// Who the members are, in rank order.
    pub fn members(&self) -> &[Member] {
        &self.shared.table.members
    }

    /// The time limits.
    pub fn limits(&self) -> TimeLimits {
        self.shared.limits
    }

    /// The transport.
    pub fn transport(&self) -> &Arc<T> {
        &self.shared.transport
    }

    /// The connection to a rank; none for this rank itself or one that does not exist.
    pub fn connection(&self, rank: usize) -> Option<&T::Connection> {
        self.shared.peer(rank).map(|p| &p.connection)
    }

    /// Makes a communicator of the given ranks, which must include this one, in this order. All of them
    /// must make it with the same `id`, which no other communicator of theirs has or had.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a list that is empty, has an unknown or repeated rank or lacks this one, for
    /// an `id` in use, and for more than 4096 communicators at a time.
    pub fn group(&self, id: u64, members: Vec<usize>) -> Result<Group<T>, Error> {
        Group::new(Arc::clone(&self.shared), id, members)
    }

    /// Says that the last things are being sent before [`leave`](Mesh::leave): from now on, the connection to a rank
    /// of which nothing is heard for 2 s is closed, so that nobody waits for it.
    pub fn prepare_leave(&self) {
        self.shared.begin_leave();
    }

    /// Tells the others that this rank leaves, waits until they have confirmed it, and closes the endpoint.
    /// Finish the communicators' lanes first. A rank of which nothing is heard for 2 s is not waited for.
    ///
    /// # Errors
    ///
    /// [`Error::NotConfirmed`] lists the ranks that did not answer within the limit, or were lost since this rank
    /// began to leave; the endpoint is closed all the same.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the mesh half closed; it can only be dropped then.
    pub async fn leave(&self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let goodbye = run_on(self.shared.transport.background(), shared.say_goodbye()).await;
        let others = || self.shared.others().map(|(rank, _)| rank).collect();
        let ranks = goodbye.unwrap_or_else(others);
        for (_, peer) in self.shared.others() {
            peer.connection.close(CLOSE_LEFT, "left");
        }
        self.shared.transport.close(CLOSE_LEFT, "left").await;
        if ranks.is_empty() {
            Ok(())
        } else {
            Err(Error::NotConfirmed { ranks })
        }
    }
}

impl<T: Transport> Shared<T> {
    /// Says goodbye to everybody and waits for the answers; the ranks that did not answer in time.
    async fn say_goodbye(self: Arc<Self>) -> Vec<usize> {
        self.end_all_groups(|_| None);
        let mut waits = Vec::new();
        for rank in self.begin_leave() {
            if let Some(peer) = self.peer(rank) {
                if peer.presence() == Presence::Here {
                    peer.send(Control::Goodbye);
                }
                waits.push((rank, peer.confirmed()));
            }
        }
        let deadline = Instant::now() + self.limits.leave;
        let mut silent = Vec::new();
        for (rank, confirmed) in waits {
            if !timeout_at(deadline, confirmed).await.unwrap_or(false) {
                silent.push(rank);
            }
        }
        self.deliver_confirmations(&silent).await;
        silent
    }

    /// Waits until the others, but for the silent ones, have what this rank said last: closing a connection discards what is on its way, and
    /// a rank whose goodbye was confirmed in vain would wait for an answer that never comes.
    async fn deliver_confirmations(&self, silent: &[usize]) {
        let there = self
            .others()
            .filter(|(rank, peer)| peer.presence() != Presence::Lost && !silent.contains(rank));
        let ends: Vec<_> = there.map(|(_, peer)| peer.end()).collect();
        let delivered = async {
            for end in ends {
                end.await;
            }
        };
        let _ = timeout(CONFIRMATION_LIMIT, delivered).await;
    }

    /// The ranks that were there when this rank began to leave, which is now if not before.
    fn begin_leave(&self) -> Vec<usize> {
        let here = || {
            let here = |(_, peer): &(usize, &Peer<_>)| peer.presence() == Presence::Here;
            self.others().filter(here).map(|(rank, _)| rank).collect()
        };
        let mut leaving = lock(&self.leaving);
        let leaving = leaving.get_or_insert_with(|| Leaving {
            since: Instant::now(),
            present: here(),
        });
        leaving.present.clone()
    }
}

impl<T: Transport> fmt::Debug for Mesh<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mesh")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}

impl<T: Transport> Drop for Mesh<T> {
    /// Sees to it that the others hear of an abort, and of this rank's end, before the process can exit:
    /// it waits for that for 300 ms at most, and not at all on the transport's own runtime.
    fn drop(&mut self) {
        // From now on nobody looks at the clock for those who wait.
        self.shared.end_all_groups(|group| Some(dropped(group.own)));
        let runtime = self.shared.transport.background().clone();
        let (told, wait) = std::sync::mpsc::channel::<()>();
        runtime.spawn(farewell(
            Arc::clone(&self.shared),
            std::mem::take(&mut self.tasks),
            told,
        ));
        let on_it = Handle::try_current().is_ok_and(|current| current.id() == runtime.id());
        if !on_it {
            let _ = wait.recv_timeout(FAREWELL_LIMIT + Duration::from_millis(50));
        }
    }
}

/// Delivers what the control streams still hold, then closes the connections. Dropping `told` reports it.
async fn farewell<T: Transport>(
    shared: Arc<Shared<T>>,
    tasks: Vec<AbortHandle>,
    told: std::sync::mpsc::Sender<()>,
) {
    let here = shared
        .others()
        .filter(|(_, peer)| peer.presence() == Presence::Here);
    let ends: Vec<_> = here.map(|(_, peer)| peer.end()).collect();
    let delivered = async {
        for end in ends {
            end.await;
        }
    };
    let _ = timeout(FAREWELL_LIMIT, delivered).await;
    for (_, peer) in shared.others() {
        peer.connection
            .close(CLOSE_DROPPED, "dropped without leaving");
    }
    for task in tasks {
        task.abort();
    }
    // The transport's drivers send the closing packets when they run next.
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    drop(told);
}

impl<T: Transport> Shared<T> {
    fn rank(&self) -> usize {
        self.table.rank as usize
    }

    fn peer(&self, rank: usize) -> Option<&Peer<T::Connection>> {
        self.peers.get(rank).and_then(Option::as_ref)
    }

    fn others(&self) -> impl Iterator<Item = (usize, &Peer<T::Connection>)> {
        self.peers
            .iter()
            .enumerate()
            .filter_map(|(rank, peer)| Some((rank, peer.as_ref()?)))
    }

    fn all_groups(&self) -> Vec<Arc<GroupShared<RecvOf<T>>>> {
        lock(&self.groups).by_id.values().cloned().collect()
    }

    fn find_group(&self, id: u64) -> Option<Arc<GroupShared<RecvOf<T>>>> {
        lock(&self.groups).by_id.get(&id).cloned()
    }

    /// Ends every communicator on this rank. The others are told of its failure, else of `otherwise`, else that it
    /// leaves.
    fn end_all_groups(&self, otherwise: impl Fn(&GroupShared<RecvOf<T>>) -> Option<Failure>) {
        for group in self.all_groups() {
            self.announce_leave(&group, otherwise(&group).as_ref());
            group.set_failure(Failure::ShutDown);
        }
    }

    /// Fails a communicator and tells its other members.
    fn fail_group(&self, group: &GroupShared<RecvOf<T>>, failure: Failure) {
        if group.set_failure(failure.clone()) {
            let abort = Control::Abort {
                communicator: group.id(),
                failure,
            };
            self.tell(group, &abort);
        }
    }

    /// Sends a frame to every other member of a communicator.
    fn tell(&self, group: &GroupShared<RecvOf<T>>, frame: &Control) {
        self.tell_each(group, |_| frame.clone());
    }

    /// Sends each other member of a communicator a frame of its own.
    fn tell_each(&self, group: &GroupShared<RecvOf<T>>, frame: impl Fn(usize) -> Control) {
        for (member, rank) in group.members().iter().enumerate() {
            if let Some(peer) = self.peer(*rank)
                && peer.presence() == Presence::Here
            {
                peer.send(frame(member));
            }
        }
    }

    /// A rank has said its last word in a communicator, which this rank may only make later.
    fn hear_last(&self, rank: usize, communicator: u64, word: LastWord) {
        let mut groups = lock(&self.groups);
        let Some(group) = groups.by_id.get(&communicator).cloned() else {
            return groups.unclaimed.keep_word(rank, communicator, word);
        };
        drop(groups);
        group.hear_last(rank, word);
    }

    /// Drops lanes of communicators that this rank has not made within the time limit of an operation: their
    /// senders have given up, and may have mistaken a communicator that this rank has dropped.
    fn forget_unclaimed(&self, now: Instant) {
        let Some(before) = now.checked_sub(self.limits.operation) else {
            return;
        };
        let forgotten = lock(&self.groups).unclaimed.forget(before);
        drop(forgotten);
    }

    /// A rank is dead. The communicators that it belongs to fail.
    fn lost(&self, rank: usize, reason: &str) {
        let Some(peer) = self.peer(rank) else { return };
        if !peer.set_presence(Presence::Lost) {
            return;
        }
        tracing::debug!(rank, reason, "lost a rank");
        peer.connection.close(CLOSE_LOST, reason);
        for group in self.all_groups() {
            if let Some(member) = group.member(rank) {
                let reason = reason.to_owned();
                self.fail_group(
                    &group,
                    Failure::PeerLost {
                        rank: member,
                        reason,
                    },
                );
            }
        }
    }

    /// A rank has said goodbye.
    fn left(&self, rank: usize) {
        let Some(peer) = self.peer(rank) else { return };
        if !peer.set_presence(Presence::Left) {
            return;
        }
        for group in self.all_groups() {
            if let Some(member) = group.member(rank) {
                group.set_left(member, LeftMember::SILENTLY);
            }
        }
    }
}

const _: () = assert!(MAX_WORLD_SIZE <= u32::MAX as usize);

/// What the tasks of a connection own.
type LinkParts<T> = (Link<T>, tokio::sync::mpsc::Receiver<peer::Outgoing>);
