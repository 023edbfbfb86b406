//! The seed: collects the processes of a group and tells each who the others are.

use super::{Greeting, Link, Listener, listener::LET_GO};
use crate::{
    error::{JoinError, RefuseReason},
    transport::{Connection, SendStream, Transport},
    wire::{
        self, FrameError, MAX_JOIN_FRAME, PROTOCOL_VERSION,
        join::{Alive, Answer, Join, Member, Table},
    },
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

/// How long a process that holds a rank may take to answer when another one claims the rank.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// How long handing out the table may take.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);

/// How long a seed that is no rank waits for that at least, however late it is.
const LAST_CALL: Duration = Duration::from_millis(500);

/// Refusals that a seed remembers for its error message.
const MAX_REMEMBERED: usize = 16;

/// What a seed has to know.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SeedSettings {
    /// Name of the job; processes of another job are refused.
    pub job: String,
    /// Number of ranks.
    pub world_size: usize,
    /// How long to wait for all of them.
    pub limit: Duration,
}

impl SeedSettings {
    /// The given settings.
    pub fn new(job: impl Into<String>, world_size: usize, limit: Duration) -> Self {
        SeedSettings {
            job: job.into(),
            world_size,
            limit,
        }
    }
}

/// Introduces `settings.world_size` processes to each other on `transport`, without being one of them.
/// Returns when all have been told, or with the error that they have been told. A process that has died
/// meanwhile is not waited for beyond the time limit.
///
/// # Cancel safety
///
/// Dropping the future ends the seed; processes that wait for it fail to join.
pub async fn serve_seed<T: Transport>(
    transport: &Arc<T>,
    settings: &SeedSettings,
) -> Result<(), JoinError> {
    let deadline = Instant::now() + settings.limit;
    let mut listener = Listener::spawn(transport);
    let mut seed = Seed::new(Arc::clone(transport), settings, None);
    let members = seed.collect(&mut listener).await?;
    let mut deliveries = seed.hand_out(members);
    let until = deadline.max(Instant::now() + LAST_CALL);
    let all = async { while deliveries.join_next().await.is_some() {} };
    let _ = timeout_at(until, all).await;
    Ok(())
}

/// This process as a member, where the seed is one.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) rank: Option<u32>,
    pub(super) member: Member,
    pub(super) detection_ms: u64,
}

struct Applicant<T: Transport> {
    link: Link<T>,
    member: Member,
    rank: Option<u32>,
    detection_ms: u64,
}

enum Entry<T: Transport> {
    Own(Own),
    Applicant(Applicant<T>),
}

impl<T: Transport> Entry<T> {
    fn rank(&self) -> Option<u32> {
        match self {
            Entry::Own(own) => own.rank,
            Entry::Applicant(applicant) => applicant.rank,
        }
    }

    fn detection_ms(&self) -> u64 {
        match self {
            Entry::Own(own) => own.detection_ms,
            Entry::Applicant(applicant) => applicant.detection_ms,
        }
    }

    fn member(&self) -> &Member {
        match self {
            Entry::Own(own) => &own.member,
            Entry::Applicant(applicant) => &applicant.member,
        }
    }
}

pub(super) struct Seed<'a, T: Transport> {
    transport: Arc<T>,
    settings: &'a SeedSettings,
    entries: Vec<Entry<T>>,
    refused: Vec<String>,
    /// Refusals that are being told.
    refusals: JoinSet<()>,
    /// Identities of applicants whose connection has ended.
    gone: (mpsc::Sender<Member>, mpsc::Receiver<Member>),
}

/// The entries in rank order.
pub(super) struct Ranked<T: Transport> {
    entries: Vec<Entry<T>>,
    session: [u8; 16],
}

impl<T: Transport> Ranked<T> {
    fn table(&self, rank: usize) -> Table {
        Table {
            session: self.session,
            rank: rank as u32,
            members: self.entries.iter().map(|e| e.member().clone()).collect(),
        }
    }

    /// The table of the seed's own process.
    pub(super) fn own_table(&self) -> Option<Table> {
        let rank = self
            .entries
            .iter()
            .position(|e| matches!(e, Entry::Own(_)))?;
        Some(self.table(rank))
    }
}

impl<'a, T: Transport> Seed<'a, T> {
    pub(super) fn new(transport: Arc<T>, settings: &'a SeedSettings, own: Option<Own>) -> Self {
        let entries = own.into_iter().map(Entry::Own).collect();
        Seed {
            transport,
            settings,
            entries,
            refused: Vec::new(),
            refusals: JoinSet::new(),
            gone: mpsc::channel(64),
        }
    }

    /// Waits until everybody has come. On failure, everybody who has come is told before it returns.
    pub(super) async fn collect(
        &mut self,
        listener: &mut Listener<T>,
    ) -> Result<Ranked<T>, JoinError> {
        let collected = self.collect_all(listener).await;
        if collected.is_err() {
            // Each refusal has a time limit of its own.
            while self.refusals.join_next().await.is_some() {}
        }
        collected
    }

    async fn collect_all(&mut self, listener: &mut Listener<T>) -> Result<Ranked<T>, JoinError> {
        let deadline = Instant::now() + self.settings.limit;
        while self.entries.len() < self.settings.world_size {
            let event = timeout_at(deadline, async {
                tokio::select! {
                    greeting = listener.joins.recv() => Event::Came(greeting.map(Box::new)),
                    gone = self.gone.1.recv() => Event::Went(gone),
                }
            });
            match event.await {
                Err(_) => return Err(self.give_up()),
                Ok(Event::Came(None)) => return Err(self.endpoint_closed()),
                Ok(Event::Came(Some(greeting))) => self.admit(*greeting).await?,
                Ok(Event::Went(member)) => {
                    self.entries.retain(|e| {
                        member
                            .as_ref()
                            .is_none_or(|m| m.identity != e.member().identity)
                    });
                }
            }
        }
        self.assign()
    }

    /// Explicit ranks first; the others take what is free, in the order in which they came.
    fn assign(&mut self) -> Result<Ranked<T>, JoinError> {
        let mut ranked: Vec<Option<Entry<T>>> = Vec::new();
        ranked.resize_with(self.settings.world_size, || None);
        let (fixed, any): (Vec<_>, Vec<_>) =
            self.entries.drain(..).partition(|e| e.rank().is_some());
        for entry in fixed {
            if let Some(slot) = entry.rank().and_then(|rank| ranked.get_mut(rank as usize)) {
                *slot = Some(entry);
            }
        }
        let mut any = any.into_iter();
        let entries = ranked
            .into_iter()
            .map(|slot| slot.or_else(|| any.next()))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| JoinError::Protocol {
                whom: "the seed".into(),
                what: "ranks are inconsistent".into(),
            })?;
        Ok(Ranked {
            entries,
            session: rand::random(),
        })
    }

    fn check(&self, join: &Join) -> Result<(), RefuseReason> {
        let world_size = self.settings.world_size as u32;
        if join.version != PROTOCOL_VERSION {
            return Err(RefuseReason::Version {
                theirs: join.version,
                ours: PROTOCOL_VERSION,
            });
        }
        if join.job != self.settings.job {
            let (theirs, ours) = (join.job.clone(), self.settings.job.clone());
            return Err(RefuseReason::Job { theirs, ours });
        }
        if join.world_size != world_size {
            return Err(RefuseReason::WorldSize {
                theirs: join.world_size,
                ours: world_size,
            });
        }
        if let Some(first) = self.entries.first()
            && join.detection_ms != first.detection_ms()
        {
            return Err(RefuseReason::Detection {
                theirs_ms: join.detection_ms,
                ours_ms: first.detection_ms(),
            });
        }
        match join.rank {
            Some(rank) if rank >= world_size => {
                Err(RefuseReason::RankOutOfRange { rank, world_size })
            }
            _ => Ok(()),
        }
    }

    async fn admit(&mut self, greeting: Greeting<T, Join>) -> Result<(), JoinError> {
        let from = greeting.link.new.connection.remote_addr();
        if let Err(reason) = self.check(&greeting.opening) {
            self.remember(from, &reason);
            self.refuse(greeting.link, reason.clone());
            // A process that disagrees about the world means that this world can never be complete.
            return match reason {
                RefuseReason::WorldSize { .. } | RefuseReason::Detection { .. } => {
                    Err(self.conflict(from, reason))
                }
                _ => Ok(()),
            };
        }
        let Greeting { link, opening } = greeting;
        let member = Member {
            address: reachable(opening.address, from),
            identity: link.new.connection.peer_identity().clone(),
        };
        let applicant = Applicant {
            link,
            member,
            rank: opening.rank,
            detection_ms: opening.detection_ms,
        };
        if let Some(at) = self.rival(&applicant) {
            if self.still_there(at, applicant.member.address).await {
                let rank = applicant.rank.unwrap_or_default();
                let reason = RefuseReason::DuplicateRank { rank };
                self.remember(from, &reason);
                self.refuse(applicant.link, reason.clone());
                return Err(self.conflict(from, reason));
            }
            self.entries.remove(at);
        }
        self.watch(&applicant);
        self.entries.push(Entry::Applicant(applicant));
        Ok(())
    }

    /// The entry that holds the rank that `applicant` claims.
    fn rival(&self, applicant: &Applicant<T>) -> Option<usize> {
        let rank = applicant.rank?;
        self.entries.iter().position(|e| e.rank() == Some(rank))
    }

    /// Whether the process of an entry lives beside the one at `newcomer`. A process at the same address
    /// is its new incarnation.
    async fn still_there(&mut self, at: usize, newcomer: SocketAddr) -> bool {
        let holder = match self.entries.get_mut(at) {
            Some(Entry::Applicant(holder)) => holder,
            Some(Entry::Own(_)) => return true,
            None => return false,
        };
        if holder.member.address == newcomer {
            return false;
        }
        let probe = async {
            wire::write_frame(&mut holder.link.send, &Answer::Probe, MAX_JOIN_FRAME).await?;
            wire::read_frame::<_, Alive>(&mut holder.link.recv, 16).await
        };
        matches!(timeout(PROBE_LIMIT, probe).await, Ok(Ok(Some(Alive))))
    }

    fn watch(&self, applicant: &Applicant<T>) {
        let connection = applicant.link.new.connection.clone();
        let (member, gone) = (applicant.member.clone(), self.gone.0.clone());
        self.transport.background().spawn(async move {
            tokio::select! {
                _ = connection.closed() => { let _ = gone.send(member).await; }
                () = gone.closed() => {}
            }
        });
    }

    fn remember(&mut self, from: SocketAddr, reason: &RefuseReason) {
        tracing::warn!(%from, %reason, "refused a process that wants to join");
        if self.refused.len() < MAX_REMEMBERED {
            self.refused.push(format!("refused {from}: {reason}"));
        }
    }

    /// Tells everybody who waits, and fails.
    fn dismiss(&mut self, reason: &RefuseReason) {
        for entry in std::mem::take(&mut self.entries) {
            if let Entry::Applicant(applicant) = entry {
                self.refuse(applicant.link, reason.clone());
            }
        }
    }

    fn refuse(&mut self, link: Link<T>, reason: RefuseReason) {
        while self.refusals.try_join_next().is_some() {}
        self.refusals
            .spawn_on(link.refuse(reason), self.transport.background());
    }

    fn conflict(&mut self, address: SocketAddr, reason: RefuseReason) -> JoinError {
        self.dismiss(&RefuseReason::Conflict(format!(
            "{reason} (process at {address})"
        )));
        JoinError::Conflict { address, reason }
    }

    fn give_up(&mut self) -> JoinError {
        let world_size = self.settings.world_size;
        let ranks = missing(&self.entries, world_size);
        self.dismiss(&RefuseReason::Missing {
            ranks: ranks.iter().map(|r| *r as u32).collect(),
            limit_ms: self.settings.limit.as_millis() as u64,
        });
        JoinError::Missing {
            ranks,
            world_size,
            limit: self.settings.limit,
            notes: std::mem::take(&mut self.refused),
        }
    }

    fn endpoint_closed(&self) -> JoinError {
        JoinError::Protocol {
            whom: "the seed".into(),
            what: "the local endpoint was closed while the group formed".into(),
        }
    }

    /// Sends everybody the table, in the background: a process that has died in the meantime must not hold up the
    /// others.
    pub(super) fn hand_out(&self, mut ranked: Ranked<T>) -> JoinSet<()> {
        let mut deliveries = JoinSet::new();
        let tables: Vec<Table> = (0..ranked.entries.len()).map(|r| ranked.table(r)).collect();
        for (entry, table) in ranked.entries.drain(..).zip(tables) {
            if let Entry::Applicant(applicant) = entry {
                deliveries.spawn_on(
                    deliver::<T>(applicant.link, table),
                    self.transport.background(),
                );
            }
        }
        deliveries
    }
}

enum Event<T: Transport> {
    Came(Option<Box<Greeting<T, Join>>>),
    Went(Option<Member>),
}

/// The ranks that nobody holds. Processes that take any rank fill the lowest free ones.
fn missing<T: Transport>(entries: &[Entry<T>], world_size: usize) -> Vec<usize> {
    let mut free: Vec<usize> = (0..world_size)
        .filter(|rank| !entries.iter().any(|e| e.rank() == Some(*rank as u32)))
        .collect();
    let any = entries.iter().filter(|e| e.rank().is_none()).count();
    free.drain(..any.min(free.len()));
    free
}

/// Where a process is reached that says it listens on `claimed` and is seen at `seen`.
fn reachable(claimed: SocketAddr, seen: SocketAddr) -> SocketAddr {
    if claimed.ip().is_unspecified() {
        SocketAddr::new(seen.ip(), claimed.port())
    } else {
        claimed
    }
}

async fn deliver<T: Transport>(mut link: Link<T>, table: Table) {
    let delivery = async {
        wire::write_frame(&mut link.send, &Answer::Table(table), MAX_JOIN_FRAME).await?;
        link.send.finish()?;
        link.send.acked().await?;
        Ok::<_, FrameError>(())
    };
    match timeout(DELIVERY_LIMIT, delivery).await {
        Ok(Ok(())) => {
            // The other side closes once it has read the table.
            let _ = timeout(LET_GO, link.new.connection.closed()).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a process did not take the table of members"),
        Err(_) => tracing::debug!("a process did not take the table of members in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_is_replaced_by_the_one_seen() {
        let addr = |s: &str| s.parse::<SocketAddr>().unwrap();
        assert_eq!(
            reachable(addr("0.0.0.0:7"), addr("10.0.0.9:55")),
            addr("10.0.0.9:7")
        );
        assert_eq!(reachable(addr("[::]:7"), addr("[::1]:55")), addr("[::1]:7"));
        assert_eq!(
            reachable(addr("10.0.0.1:7"), addr("10.0.0.9:55")),
            addr("10.0.0.1:7")
        );
    }
}
