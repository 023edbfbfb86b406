//! The network: addresses, links and faults.

use super::{
    MemoryConfig,
    endpoint::{Endpoint, MemoryTransport},
    link::{Link, LinkStats, SplitMix64, YEAR},
    lock,
    state::{Ends, Shared},
};
use crate::transport::{ConnectionError, PeerId};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{runtime::Handle, sync::Notify, time::Instant};

/// A network in the memory of this process. Clones are handles to the same network.
///
/// The seed decides the jitter of every message, together with the addresses and the order in which two
/// endpoints dial each other; on a `current_thread` runtime with paused time a run can be repeated.
///
/// Endpoints that use delays, partitions or [`kill`](Self::kill) need a runtime with its timer enabled.
#[derive(Clone)]
pub struct MemoryNetwork {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) config: MemoryConfig,
    seed: u64,
    state: Mutex<State>,
    healed: Notify,
}

#[derive(Default)]
struct State {
    endpoints: HashMap<SocketAddr, Arc<Endpoint>>,
    links: HashMap<(SocketAddr, SocketAddr), Arc<Link>>,
    /// Fixed part and jitter of links that have none of their own.
    delay: (Duration, Duration),
    /// Pairs of addresses that cannot reach each other, the smaller first.
    partitions: HashSet<(SocketAddr, SocketAddr)>,
    connections: Vec<Weak<Shared>>,
    /// Length of `connections` at which those that are gone are removed.
    sweep_at: usize,
    instances: u64,
    next_port: u16,
}

const FIRST_PORT: u16 = 1024;

impl State {
    fn link(&mut self, from: SocketAddr, to: SocketAddr) -> &Arc<Link> {
        let (fixed, jitter) = self.delay;
        self.links.entry((from, to)).or_insert_with(|| {
            let link = Link::default();
            link.set_delay(fixed, jitter);
            Arc::new(link)
        })
    }

    fn is_cut(&self, a: SocketAddr, b: SocketAddr) -> bool {
        self.partitions.contains(&pair(a, b))
    }

    fn free_address(&mut self) -> Option<SocketAddr> {
        for _ in FIRST_PORT..=u16::MAX {
            let port = self.next_port.max(FIRST_PORT);
            self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if !self.endpoints.contains_key(&address) {
                return Some(address);
            }
        }
        None
    }

    /// The living connections between two addresses, whichever dialled.
    fn between(&self, a: SocketAddr, b: SocketAddr) -> Vec<Arc<Shared>> {
        let living = self.connections.iter().filter_map(Weak::upgrade);
        living
            .filter(|shared| pair_of(shared.ends.addresses) == pair(a, b))
            .collect()
    }

    /// The living connections of one endpoint, with the side that it is; both if it dialled itself.
    fn of(&self, instance: u64) -> Vec<(Arc<Shared>, usize)> {
        let living = self.connections.iter().filter_map(Weak::upgrade);
        let sides = living.flat_map(|shared| [(shared.clone(), 0), (shared, 1)]);
        sides
            .filter(|(shared, side)| shared.ends.instances[*side] == instance)
            .collect()
    }
}

fn pair(a: SocketAddr, b: SocketAddr) -> (SocketAddr, SocketAddr) {
    (a.min(b), a.max(b))
}

fn pair_of([a, b]: [SocketAddr; 2]) -> (SocketAddr, SocketAddr) {
    pair(a, b)
}

impl MemoryNetwork {
    /// A network without faults and with default limits.
    pub fn new(seed: u64) -> Self {
        Self::with_config(seed, MemoryConfig::default())
    }

    /// A network without faults and with the given limits. Times are cut to a year.
    pub fn with_config(seed: u64, mut config: MemoryConfig) -> Self {
        config.handshake_timeout = config.handshake_timeout.min(YEAR);
        config.idle_timeout = config.idle_timeout.min(YEAR);
        let state = Mutex::default();
        MemoryNetwork {
            inner: Arc::new(Inner {
                config,
                seed,
                state,
                healed: Notify::new(),
            }),
        }
    }

    /// A new endpoint at `address`, whose peers learn its `identity`. Without an address, or with port 0, it
    /// gets one on 127.0.0.1 that nobody else has. No socket is opened: any address can be used.
    ///
    /// The endpoint's background work runs on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Bind`] if the address is taken, or outside a runtime.
    pub fn bind(
        &self,
        address: Option<SocketAddr>,
        identity: PeerId,
    ) -> Result<MemoryTransport, ConnectionError> {
        let unspecified = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let failure = |source| ConnectionError::Bind {
            address: address.unwrap_or(unspecified),
            source: Arc::new(source),
        };
        let runtime = Handle::try_current().map_err(|error| failure(io::Error::other(error)))?;
        let mut state = lock(&self.inner.state);
        let taken = || failure(io::ErrorKind::AddrInUse.into());
        let address = match address.filter(|address| address.port() != 0) {
            Some(address) if state.endpoints.contains_key(&address) => return Err(taken()),
            Some(address) => address,
            None => state.free_address().ok_or_else(taken)?,
        };
        state.instances += 1;
        let endpoint = Endpoint::new(address, state.instances, identity, runtime);
        state.endpoints.insert(address, Arc::clone(&endpoint));
        Ok(MemoryTransport::new(Arc::clone(&self.inner), endpoint))
    }

    /// From now on every message takes `fixed` plus a random time up to `jitter` (each at most a year), on
    /// all links. Messages of
    /// one stream keep their order, those of different streams may overtake each other. Credits and
    /// acknowledgements are messages too.
    pub fn set_delay(&self, fixed: Duration, jitter: Duration) {
        let mut state = lock(&self.inner.state);
        state.delay = (fixed, jitter);
        state
            .links
            .values()
            .for_each(|link| link.set_delay(fixed, jitter));
    }

    /// Like [`set_delay`](Self::set_delay), for what `from` sends to `to`.
    pub fn set_link_delay(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        fixed: Duration,
        jitter: Duration,
    ) {
        lock(&self.inner.state)
            .link(from, to)
            .set_delay(fixed, jitter);
    }

    /// Cuts two addresses off from each other, in both directions, until they are [healed](Self::heal).
    /// Nobody is told: traffic waits, dials and connections time out.
    pub fn partition(&self, a: SocketAddr, b: SocketAddr) {
        let connections = {
            let mut state = lock(&self.inner.state);
            state.partitions.insert(pair(a, b));
            state.between(a, b)
        };
        for shared in connections {
            shared.with(|core| [0, 1].map(|side| core.cut(side)));
        }
    }

    /// Ends a [partition](Self::partition); what was sent meanwhile arrives, on the connections that have not
    /// timed out.
    pub fn heal(&self, a: SocketAddr, b: SocketAddr) {
        let connections = {
            let mut state = lock(&self.inner.state);
            state.partitions.remove(&pair(a, b));
            state.between(a, b)
        };
        self.inner.healed.notify_waiters();
        for shared in connections {
            shared.with(|core| [0, 1].map(|side| core.heal(side)));
        }
    }

    /// The endpoint at `address` crashes: its own handles fail with
    /// [`EndpointClosed`](ConnectionError::EndpointClosed), what it has in flight is lost, and its peers hear
    /// nothing more, until their connections time out. The address is free for a successor. False if
    /// nobody is bound there.
    pub fn kill(&self, address: SocketAddr) -> bool {
        let (endpoint, connections) = {
            let mut state = lock(&self.inner.state);
            let Some(endpoint) = state.endpoints.remove(&address) else {
                return false;
            };
            endpoint.crashed.store(true, Relaxed);
            let connections = state.of(endpoint.instance);
            (endpoint, connections)
        };
        for (shared, side) in connections {
            shared.with(|core| core.sever(side));
        }
        endpoint.shut();
        true
    }

    /// All connections between two addresses are lost at once: both sides get
    /// [`Reset`](ConnectionError::Reset). Returns how many there were.
    pub fn drop_connections(&self, a: SocketAddr, b: SocketAddr) -> usize {
        let connections = lock(&self.inner.state).between(a, b);
        let living = |shared: &&Arc<Shared>| {
            shared.with(|core| core.state.sides.iter().any(|side| side.over.is_none()))
        };
        let count = connections.iter().filter(living).count();
        for shared in connections {
            shared.with(|core| core.drop_both());
        }
        count
    }

    /// What `from` has sent to `to` so far, whether it has arrived or not.
    pub fn link_stats(&self, from: SocketAddr, to: SocketAddr) -> LinkStats {
        let state = lock(&self.inner.state);
        state
            .links
            .get(&(from, to))
            .map(|link| link.stats())
            .unwrap_or_default()
    }

    /// The sum of [`link_stats`](Self::link_stats) over all links.
    pub fn total_stats(&self) -> LinkStats {
        let state = lock(&self.inner.state);
        state
            .links
            .values()
            .map(|link| link.stats())
            .fold(LinkStats::default(), |sum, link| LinkStats {
                writes: sum.writes + link.writes,
                bytes: sum.bytes + link.bytes,
                streams: sum.streams + link.streams,
                connections: sum.connections + link.connections,
            })
    }
}

impl Inner {
    /// The time that a message of a handshake takes.
    pub(super) async fn cross(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        deadline: Instant,
    ) -> Result<(), ConnectionError> {
        let delay = {
            let mut state = lock(&self.state);
            let mut random = self.random(from, to, "handshake");
            state.link(from, to).draw_delay(&mut random)
        };
        if !delay.is_zero() {
            tokio::time::sleep_until((Instant::now() + delay).min(deadline)).await;
        }
        loop {
            let mut healed = std::pin::pin!(self.healed.notified());
            healed.as_mut().enable();
            if !lock(&self.state).is_cut(from, to) {
                return Ok(());
            }
            if tokio::time::timeout_at(deadline, healed).await.is_err() {
                return Err(ConnectionError::TimedOut);
            }
        }
    }

    pub(super) fn endpoint(&self, address: SocketAddr) -> Result<Arc<Endpoint>, ConnectionError> {
        lock(&self.state)
            .endpoints
            .get(&address)
            .cloned()
            .ok_or_else(|| ConnectionError::Unreachable {
                address,
                reason: "nobody listens there".into(),
            })
    }

    /// A new connection between two endpoints, the dialler first.
    pub(super) fn connection(&self, endpoints: [&Arc<Endpoint>; 2]) -> Arc<Shared> {
        let [a, b] = endpoints.map(|endpoint| endpoint.address);
        let mut state = lock(&self.state);
        let links = [Arc::clone(state.link(a, b)), Arc::clone(state.link(b, a))];
        let number = links[0].connections.fetch_add(1, Relaxed);
        let seeds = [(a, b), (b, a)].map(|(from, to)| self.random(from, to, number).next());
        let ends = Ends {
            addresses: [a, b],
            instances: endpoints.map(|endpoint| endpoint.instance),
            identities: endpoints.map(|endpoint| endpoint.identity.clone()),
            runtimes: endpoints.map(|endpoint| endpoint.runtime.clone()),
            links,
        };
        let shared = Shared::new(ends, self.config.clone(), seeds);
        if state.connections.len() >= state.sweep_at {
            state
                .connections
                .retain(|connection| connection.strong_count() > 0);
            state.sweep_at = (2 * state.connections.len()).max(64);
        }
        state.connections.push(Arc::downgrade(&shared));
        let is_cut = state.is_cut(a, b);
        // Whoever crashed or was cut off since the handshake began was not told of this connection.
        let crashed = endpoints.map(|endpoint| endpoint.crashed.load(Relaxed));
        drop(state);
        shared.with(|core| {
            for side in [0, 1] {
                if crashed[side] {
                    core.sever(side);
                }
                if is_cut {
                    core.cut(side);
                }
            }
        });
        shared
    }

    /// Frees the endpoint's address; returns its connections.
    pub(super) fn unbind(&self, endpoint: &Endpoint) -> Vec<(Arc<Shared>, usize)> {
        let mut state = lock(&self.state);
        let bound = state.endpoints.get(&endpoint.address);
        if bound.is_some_and(|bound| bound.instance == endpoint.instance) {
            state.endpoints.remove(&endpoint.address);
        }
        state.of(endpoint.instance)
    }

    /// Randomness for one purpose on one link, the same for every network with this seed.
    fn random(&self, from: SocketAddr, to: SocketAddr, purpose: impl Hash) -> SplitMix64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, from, to, purpose).hash(&mut hasher);
        SplitMix64(hasher.finish())
    }
}

impl fmt::Debug for MemoryNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.inner.state);
        f.debug_struct("MemoryNetwork")
            .field("seed", &self.inner.seed)
            .field("endpoints", &state.endpoints.keys())
            .field("partitions", &state.partitions)
            .finish_non_exhaustive()
    }
}
