//! The side of a process that joins: asking the seed, then connecting to the other ranks.

use super::{
    Greeting, Link, Links, Listener,
    seed::{Own, Seed, SeedSettings},
};
use crate::{
    Mesh, TimeLimits,
    error::{JoinError, RefuseReason},
    transport::{Connection, ConnectionError, StreamError, Transport},
    wire::{
        self, FrameError, MAX_JOIN_FRAME, MAX_WORLD_SIZE, PROTOCOL_VERSION,
        join::{Alive, Answer, Hello, Join, Member, Opening, Table},
    },
};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

/// Connections that one rank dials at a time.
const MAX_DIALS: usize = 16;

/// First and longest time that an attempt to reach the seed is given before the next.
const ATTEMPT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// Pause before dialling again after a failure.
const PAUSE: Duration = Duration::from_millis(50);

const CLOSE_DONE: u64 = 0;

/// Code of connections between ranks that are closed because one of them could not reach all others.
const CLOSE_UNFORMED: u64 = 5;

/// Missing ranks of which an error says where they were looked for.
const MAX_NOTES: usize = 16;

/// How a process gets into a group.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JoinRequest {
    /// Name of the job.
    pub job: String,
    /// Number of ranks.
    pub world_size: usize,
    /// The rank wanted, or none for any.
    pub rank: Option<usize>,
    /// Where other ranks reach this process; none for the transport's own address (and, where
    /// that is unspecified, the address at which the seed sees this process).
    pub advertise: Option<SocketAddr>,
    /// The time limits.
    pub limits: TimeLimits,
}

impl JoinRequest {
    /// A request for any rank of a world of `world_size`, with default limits.
    pub fn new(job: impl Into<String>, world_size: usize) -> Self {
        JoinRequest {
            job: job.into(),
            world_size,
            rank: None,
            advertise: None,
            limits: TimeLimits::default(),
        }
    }

    /// With a rank of one's own choice.
    pub fn with_rank(mut self, rank: Option<usize>) -> Self {
        self.rank = rank;
        self
    }

    /// With an address to advertise.
    pub fn with_advertise(mut self, address: Option<SocketAddr>) -> Self {
        self.advertise = address;
        self
    }

    /// With other time limits.
    pub fn with_limits(mut self, limits: TimeLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// The way to the seed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SeedRoute<T> {
    /// This process is the seed, on this endpoint.
    Here(Arc<T>),
    /// Dial the seed. There may be several ways (an IPv4 and an IPv6 endpoint, say); they are tried in turn,
    /// and the group uses the endpoint over which the seed answered.
    Dial(Vec<(Arc<T>, SocketAddr)>),
}

/// Joins a group: returns once this rank is connected to every other rank.
///
/// # Errors
///
/// [`JoinError`]; when the time limit passes, it lists the ranks that have not come.
///
/// # Cancel safety
///
/// Dropping the future withdraws from the group.
pub async fn join<T: Transport>(
    route: SeedRoute<T>,
    request: &JoinRequest,
) -> Result<Mesh<T>, JoinError> {
    let deadline = Instant::now() + request.limits.join;
    let (transport, listener, table) = match route {
        SeedRoute::Here(transport) => {
            let mut listener = Listener::spawn(&transport);
            let table = host(&transport, request, &mut listener).await?;
            (transport, listener, table)
        }
        SeedRoute::Dial(ways) => {
            let (transport, table) = ask_seed(ways, request, deadline).await?;
            let listener = Listener::spawn(&transport);
            (transport, listener, table)
        }
    };
    check_table(&table, request)?;
    let links = connect_all(&transport, listener, table, request, deadline).await?;
    Ok(Mesh::start(transport, links, request.limits))
}

fn own_address<T: Transport>(transport: &T, request: &JoinRequest) -> SocketAddr {
    request.advertise.unwrap_or_else(|| transport.local_addr())
}

async fn host<T: Transport>(
    transport: &Arc<T>,
    request: &JoinRequest,
    listener: &mut Listener<T>,
) -> Result<Table, JoinError> {
    let settings = SeedSettings::new(request.job.clone(), request.world_size, request.limits.join);
    let own = Own {
        rank: request.rank.map(|r| r as u32),
        member: Member {
            address: own_address(&**transport, request),
            identity: transport.identity().clone(),
        },
        detection_ms: detection_ms(request),
    };
    let mut seed = Seed::new(Arc::clone(transport), &settings, Some(own));
    let ranked = seed.collect(listener).await?;
    let table = ranked.own_table().ok_or_else(|| JoinError::Protocol {
        whom: "the seed".into(),
        what: "this process is not in its own table".into(),
    })?;
    seed.hand_out(ranked).detach_all();
    Ok(table)
}

fn detection_ms(request: &JoinRequest) -> u64 {
    u64::try_from(request.limits.detection.as_millis()).unwrap_or(u64::MAX)
}

/// Asks over each way in turn until the seed answers.
async fn ask_seed<T: Transport>(
    ways: Vec<(Arc<T>, SocketAddr)>,
    request: &JoinRequest,
    deadline: Instant,
) -> Result<(Arc<T>, Table), JoinError> {
    let mut patience = ATTEMPT.0;
    let mut last = String::from("no attempt was made");
    let mut lost = None;
    loop {
        for (transport, address) in &ways {
            let until = deadline.min(Instant::now() + patience);
            match timeout_at(until, transport.connect(*address, None)).await {
                Err(_) => last = "no answer".into(),
                Ok(Err(error)) if is_final(&error) => {
                    let whom = "the seed".into();
                    return Err(JoinError::Connect {
                        whom,
                        address: *address,
                        source: error,
                    });
                }
                Ok(Err(error)) => last = error.to_string(),
                Ok(Ok(new)) => match wait_for_table(&**transport, new, request, deadline).await? {
                    Some(table) => return Ok((Arc::clone(transport), table)),
                    None => lost = Some(*address),
                },
            }
        }
        if Instant::now() + PAUSE >= deadline {
            let limit = request.limits.join;
            return Err(match lost {
                Some(address) => JoinError::NotFormed {
                    address,
                    limit,
                    last: "its connection ended, and it was not reached again".into(),
                },
                None => JoinError::SeedUnreachable {
                    address: ways.first().map_or_else(unspecified, |way| way.1),
                    limit,
                    last,
                },
            });
        }
        sleep(PAUSE).await;
        patience = (patience * 2).min(ATTEMPT.1);
    }
}

fn unspecified() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

/// Whether dialling again cannot help.
fn is_final(error: &ConnectionError) -> bool {
    matches!(
        error,
        ConnectionError::Refused { .. }
            | ConnectionError::WrongPeer { .. }
            | ConnectionError::EndpointClosed
            | ConnectionError::Unreachable { .. }
    )
}

fn refused(by: &str, address: SocketAddr, error: FrameError) -> Result<(), JoinError> {
    match error {
        FrameError::Wire(error) => Err(JoinError::Protocol {
            whom: by.into(),
            what: error.to_string(),
        }),
        FrameError::Stream(StreamError::Connection(source @ ConnectionError::Refused { .. })) => {
            Err(JoinError::Connect {
                whom: by.into(),
                address,
                source,
            })
        }
        FrameError::Stream(_) => Ok(()),
    }
}

/// Applies at the seed and waits; `None` where the connection is lost.
async fn wait_for_table<T: Transport>(
    transport: &T,
    new: crate::transport::NewConnection<T::Connection>,
    request: &JoinRequest,
    deadline: Instant,
) -> Result<Option<Table>, JoinError> {
    let address = new.connection.remote_addr();
    let join = Join {
        version: PROTOCOL_VERSION,
        job: request.job.clone(),
        world_size: request.world_size as u32,
        rank: request.rank.map(|r| r as u32),
        address: own_address(transport, request),
        detection_ms: detection_ms(request),
    };
    // The seed keeps the time; a little more is given for its answer to arrive.
    let until = deadline + Duration::from_millis(900);
    let answer = match timeout_at(until, apply(&new.connection, join)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return refused("the seed", address, error).map(|()| None),
        Err(_) => {
            let limit = request.limits.join;
            let last = "it is gone, or started later and still waits for other ranks".into();
            return Err(JoinError::NotFormed {
                address,
                limit,
                last,
            });
        }
    };
    new.connection.close(CLOSE_DONE, "joined");
    match answer {
        Answer::Table(table) => Ok(Some(table)),
        Answer::Refuse(RefuseReason::Missing { ranks, .. }) => Err(JoinError::Missing {
            ranks: ranks.into_iter().map(|r| r as usize).collect(),
            world_size: request.world_size,
            limit: request.limits.join,
            notes: Vec::new(),
        }),
        Answer::Refuse(reason) => Err(JoinError::Refused {
            by: format!("the seed at {address}"),
            reason,
        }),
        Answer::Probe | Answer::Welcome => Err(JoinError::Protocol {
            whom: format!("the seed at {address}"),
            what: "an answer out of place".into(),
        }),
    }
}

async fn apply<C: Connection>(connection: &C, join: Join) -> Result<Answer, FrameError> {
    let (mut send, mut recv) = connection.open_bi().await.map_err(StreamError::from)?;
    wire::write_frame(&mut send, &Opening::Join(join), MAX_JOIN_FRAME).await?;
    loop {
        match wire::read_frame(&mut recv, MAX_JOIN_FRAME).await? {
            Some(Answer::Probe) => wire::write_frame(&mut send, &Alive, 16).await?,
            Some(answer) => return Ok(answer),
            None => return Err(StreamError::UnexpectedEnd.into()),
        }
    }
}

fn check_table(table: &Table, request: &JoinRequest) -> Result<(), JoinError> {
    let world_size = table.members.len();
    let good = world_size == request.world_size
        && world_size <= MAX_WORLD_SIZE
        && (table.rank as usize) < world_size
        && request.rank.is_none_or(|rank| rank == table.rank as usize);
    if good {
        return Ok(());
    }
    Err(JoinError::Protocol {
        whom: "the seed".into(),
        what: format!("rank {} in a table of {world_size} members", table.rank),
    })
}

/// Dials the ranks below, waits for the ranks above.
async fn connect_all<T: Transport>(
    transport: &Arc<T>,
    mut listener: Listener<T>,
    table: Table,
    request: &JoinRequest,
    deadline: Instant,
) -> Result<Links<T>, JoinError> {
    let mut links: Vec<Option<Link<T>>> = Vec::new();
    links.resize_with(table.members.len(), || None);
    let reached = reach_all(transport, &mut listener, &table, &mut links, deadline).await;
    let error = match reached {
        Ok(notes) if notes.is_empty() => {
            return Ok(Links {
                table,
                links,
                listener,
            });
        }
        Ok(notes) => JoinError::Missing {
            ranks: notes.keys().copied().collect(),
            world_size: links.len(),
            limit: request.limits.join,
            notes: notes.into_values().take(MAX_NOTES).collect(),
        },
        Err(error) => error,
    };
    // A rank that has reached all others learns why this one is gone.
    let reason = match &error {
        JoinError::Missing { ranks, .. } => format!("it could not connect to ranks {ranks:?}"),
        _ => "it could not join".into(),
    };
    for link in links.iter().flatten() {
        link.new.connection.close(CLOSE_UNFORMED, &reason);
    }
    Err(error)
}

/// Fills in the links. Returns the ranks that are missing at the deadline, each with a note.
async fn reach_all<T: Transport>(
    transport: &Arc<T>,
    listener: &mut Listener<T>,
    table: &Table,
    links: &mut [Option<Link<T>>],
    deadline: Instant,
) -> Result<BTreeMap<usize, String>, JoinError> {
    let own = table.rank as usize;
    let mut below = 0..own;
    let mut dials = JoinSet::new();
    let mut failures = BTreeMap::new();
    let mut open = table.members.len() - 1;
    while open > 0 {
        while dials.len() < MAX_DIALS
            && let Some(rank) = below.next()
        {
            let hello = Hello {
                version: PROTOCOL_VERSION,
                session: table.session,
                rank: table.rank,
            };
            let member = table.members[rank].clone();
            let dial = dial_rank(Arc::clone(transport), rank, member, hello, deadline);
            dials.spawn_on(dial, transport.background());
        }
        let event = timeout_at(deadline, async {
            tokio::select! {
                Some(dialled) = dials.join_next() => Step::Dialled(dialled.ok().map(Box::new)),
                greeting = listener.hellos.recv() => Step::Came(greeting.map(Box::new)),
            }
        });
        match event.await {
            Err(_) | Ok(Step::Dialled(None) | Step::Came(None)) => break,
            Ok(Step::Dialled(Some(dialled))) => match (dialled.0, dialled.1?) {
                (rank, Ok(link)) => {
                    links[rank] = Some(link);
                    open -= 1;
                }
                (rank, Err(failure)) => drop(failures.insert(rank, failure)),
            },
            Ok(Step::Came(Some(greeting))) => {
                let rank = greeting.opening.rank as usize;
                if let Some(link) = welcome(transport, *greeting, table).await {
                    open -= usize::from(links[rank].is_none());
                    links[rank] = Some(link);
                }
            }
        }
    }
    // The dials end at the same deadline; they say what became of them.
    while let Ok(Some(done)) = timeout(PAUSE, dials.join_next()).await {
        if let Ok((rank, Ok(Err(failure)))) = done {
            failures.insert(rank, failure);
        }
    }
    let missing = (0..links.len()).filter(|rank| *rank != own && links[*rank].is_none());
    Ok(missing
        .map(|rank| {
            let address = table.members[rank].address;
            let note = match failures.remove(&rank) {
                Some(failure) => format!("rank {rank}, dialled at {address}: {failure}"),
                None if rank < own => format!("rank {rank} at {address} was not dialled"),
                None => format!("rank {rank} at {address} did not dial this rank"),
            };
            (rank, note)
        })
        .collect())
}

/// A rank, and the connection to it, or the last failure where the time was up.
type Dialled<T> = (usize, Result<Result<Link<T>, String>, JoinError>);

enum Step<T: Transport> {
    Dialled(Option<Box<Dialled<T>>>),
    Came(Option<Box<Greeting<T, Hello>>>),
}

/// Checks that a dialler is the rank that it says it is.
async fn welcome<T: Transport>(
    transport: &Arc<T>,
    greeting: Greeting<T, Hello>,
    table: &Table,
) -> Option<Link<T>> {
    let hello = &greeting.opening;
    let member = table.members.get(hello.rank as usize);
    let expected = hello.rank > table.rank
        && hello.session == table.session
        && member.is_some_and(|m| m.identity == *greeting.link.new.connection.peer_identity());
    if !expected {
        let from = greeting.link.new.connection.remote_addr();
        tracing::warn!(%from, "refused a connection that does not belong to this group");
        transport
            .background()
            .spawn(greeting.link.refuse(RefuseReason::Stranger));
        return None;
    }
    let mut link = greeting.link;
    wire::write_frame(&mut link.send, &Answer::Welcome, MAX_JOIN_FRAME)
        .await
        .ok()?;
    Some(link)
}

/// Dials one rank until it answers or the time is up.
async fn dial_rank<T: Transport>(
    transport: Arc<T>,
    rank: usize,
    member: Member,
    hello: Hello,
    deadline: Instant,
) -> Dialled<T> {
    let mut last = String::from("no answer");
    while Instant::now() < deadline {
        let dial = dial_once(&*transport, rank, &member, hello.clone());
        match timeout_at(deadline, dial).await {
            Err(_) => break,
            Ok(Ok(link)) => return (rank, Ok(Ok(link))),
            Ok(Err(DialError::Final(error))) => return (rank, Err(error)),
            Ok(Err(DialError::Again(failure))) => {
                last = failure;
                sleep(PAUSE).await;
            }
        }
    }
    (rank, Ok(Err(last)))
}

enum DialError {
    /// Dialling again cannot help.
    Final(JoinError),
    /// Another attempt may help.
    Again(String),
}

/// A link-local address needs the number of this host's interface, which means nothing elsewhere.
fn from_here(mut address: SocketAddr, local: SocketAddr) -> SocketAddr {
    if let (SocketAddr::V6(address), SocketAddr::V6(local)) = (&mut address, local)
        && address.ip().is_unicast_link_local()
    {
        address.set_scope_id(local.scope_id());
    }
    address
}

async fn dial_once<T: Transport>(
    transport: &T,
    rank: usize,
    member: &Member,
    hello: Hello,
) -> Result<Link<T>, DialError> {
    let address = from_here(member.address, transport.local_addr());
    let whom = format!("rank {rank}");
    let dialled = transport.connect(address, Some(&member.identity)).await;
    // A rank that cannot reach one other stays until the time limit all the same: if it went away, those who
    // have nothing to do with it would miss it as well.
    let new = dialled.map_err(|source| match source {
        ConnectionError::EndpointClosed => DialError::Final(JoinError::Connect {
            whom: whom.clone(),
            address,
            source,
        }),
        source => DialError::Again(source.to_string()),
    })?;
    let greet = async {
        let (mut send, mut recv) = new.connection.open_bi().await.map_err(StreamError::from)?;
        wire::write_frame(&mut send, &Opening::Hello(hello), MAX_JOIN_FRAME).await?;
        let answer = wire::read_frame(&mut recv, MAX_JOIN_FRAME).await?;
        Ok::<_, FrameError>((send, recv, answer))
    };
    match timeout(Duration::from_secs(10), greet).await {
        Ok(Ok((send, recv, Some(Answer::Welcome)))) => Ok(Link { new, send, recv }),
        Ok(Ok((.., Some(Answer::Refuse(reason))))) => {
            let by = format!("{whom} at {address}");
            Err(DialError::Final(JoinError::Refused { by, reason }))
        }
        Ok(Ok(_)) => Err(DialError::Final(JoinError::Protocol {
            whom,
            what: "no answer to hello".into(),
        })),
        Ok(Err(error)) => {
            let failure = error.to_string();
            Err(match refused(&whom, address, error) {
                Err(error) => DialError::Final(error),
                Ok(()) => DialError::Again(failure),
            })
        }
        Err(_) => Err(DialError::Again("it did not answer hello".into())),
    }
}
