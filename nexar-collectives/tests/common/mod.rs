//! Worlds for tests.
#![allow(dead_code, reason = "each test file uses a part")]

use nexar_collectives::{
    AnyTransport, Backend, Communicator, CpuAdapter, DeviceAdapter, Identity, Secret, TimeLimits,
    membership::{JoinRequest, SeedRoute},
    transport::{
        PeerId, Transport,
        memory::{MemoryNetwork, MemoryTransport},
    },
};
use nexar_quic::Config;
use std::{
    future::Future,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};
use tokio::task::JoinSet;

/// A communicator over the in-memory network.
pub(crate) type MemoryCommunicator = Communicator<MemoryTransport>;

/// Worlds of every interesting size: one, powers of two, and others.
pub(crate) const WORLDS: [usize; 5] = [1, 2, 3, 5, 8];

/// A loopback address that nobody listens on. It is outside the range from which the system gives out ports
/// (32,768 and up on Linux), and a process has each once, so that nothing takes it before the seed does.
pub(crate) fn free_address() -> SocketAddr {
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 12_000;
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let begin = std::process::id().wrapping_mul(200) % u32::from(PORTS);
    let candidate = |_| {
        let next = u32::from(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + ((begin + next) % u32::from(PORTS)) as u16;
        SocketAddr::from(([127, 0, 0, 1], port))
    };
    let mut candidates = (0..PORTS).map(candidate);
    candidates
        .find(|address| UdpSocket::bind(address).is_ok())
        .unwrap()
}

/// `world` ranks on an in-memory network, with their addresses.
pub(crate) async fn memory_world(
    world: usize,
    limits: TimeLimits,
) -> (MemoryNetwork, Vec<SocketAddr>, Vec<MemoryCommunicator>) {
    memory_world_with(&vec![CpuAdapter; world], limits).await
}

/// A rank for each device on an in-memory network, with their addresses.
pub(crate) async fn memory_world_with<D: DeviceAdapter>(
    devices: &[D],
    limits: TimeLimits,
) -> (
    MemoryNetwork,
    Vec<SocketAddr>,
    Vec<Communicator<MemoryTransport, D>>,
) {
    let world = devices.len();
    let network = MemoryNetwork::new(7);
    let transports: Vec<Arc<MemoryTransport>> = (0..world)
        .map(|rank| {
            Arc::new(
                network
                    .bind(None, PeerId::new(&format!("rank {rank}")))
                    .unwrap(),
            )
        })
        .collect();
    let addresses: Vec<SocketAddr> = transports.iter().map(|t| t.local_addr()).collect();
    let seed = addresses[0];
    let mut joins = JoinSet::new();
    for (rank, (transport, device)) in transports.into_iter().zip(devices).enumerate() {
        let request = JoinRequest::new("test", world)
            .with_rank(Some(rank))
            .with_limits(limits);
        let route = match rank {
            0 => SeedRoute::Here(transport),
            _ => SeedRoute::Dial(vec![(transport, seed)]),
        };
        joins.spawn(Communicator::join(route, request, device.clone()));
    }
    let mut ranks: Vec<_> = joins
        .join_all()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    ranks.sort_by_key(Communicator::rank);
    (network, addresses, ranks)
}

/// The backends that are part of this build.
pub(crate) fn available() -> Vec<Backend> {
    let all = Backend::ALL.into_iter();
    all.filter(|backend| backend.is_available()).collect()
}

/// `world` ranks over real QUIC, once for each backend that is part of this build.
pub(crate) async fn quic_worlds(world: usize) -> Vec<Vec<Communicator>> {
    let mut worlds = Vec::new();
    for backend in available() {
        worlds.push(quic_world(world, &[backend]).await);
    }
    worlds
}

/// `world` ranks over real QUIC that take the backends in turn.
pub(crate) async fn quic_world(world: usize, backends: &[Backend]) -> Vec<Communicator> {
    let secret = Secret::random().unwrap();
    let transport = |rank: usize| {
        let backend = backends[rank % backends.len()];
        let identity = Identity::from_secret(&secret, "test").unwrap();
        let config = Config::new(identity, "127.0.0.1:0".parse().unwrap());
        Arc::new(AnyTransport::bind(backend, config).unwrap())
    };
    let transports: Vec<_> = (0..world).map(transport).collect();
    let seed = transports[0].local_addr();
    let mut joins = JoinSet::new();
    for (rank, transport) in transports.into_iter().enumerate() {
        let request = JoinRequest::new("test", world).with_rank(Some(rank));
        let route = match rank {
            0 => SeedRoute::Here(transport),
            _ => SeedRoute::Dial(vec![(transport, seed)]),
        };
        joins.spawn(Communicator::join(route, request, CpuAdapter));
    }
    let joined = joins.join_all().await.into_iter();
    let mut ranks: Vec<_> = joined.map(Result::unwrap).collect();
    ranks.sort_by_key(Communicator::rank);
    ranks
}

/// Runs `work` on every rank at once; the results in rank order.
pub(crate) async fn on_all<T, D, R, F>(
    ranks: &[Arc<Communicator<T, D>>],
    work: impl Fn(Arc<Communicator<T, D>>) -> F,
) -> Vec<R>
where
    T: Transport,
    D: DeviceAdapter,
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for comm in ranks {
        let (rank, work) = (comm.rank(), work(Arc::clone(comm)));
        tasks.spawn(async move { (rank, work.await) });
    }
    let mut results = tasks.join_all().await;
    results.sort_by_key(|(rank, _)| *rank);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Puts the ranks where several tasks can use them.
pub(crate) fn share<T: Transport, D: DeviceAdapter>(
    ranks: Vec<Communicator<T, D>>,
) -> Vec<Arc<Communicator<T, D>>> {
    ranks.into_iter().map(Arc::new).collect()
}
