//! Several ranks in one process.

use super::Communicator;
use nexar_core::{
    ConfigError, Error, Result,
    membership::{JoinRequest, SeedRoute},
    task::block_on,
    transport::Transport,
    wire::MAX_WORLD_SIZE,
};
use nexar_device::{CpuAdapter, DeviceAdapter};
use nexar_quic::{AnyTransport, Backend, Config, Identity, Secret};
use std::{net::SocketAddr, panic, sync::Arc, thread};

/// Runs `work` on each of `world_size` ranks in this process, each on a thread of its own and connected over real
/// QUIC on the loopback interface, and shuts them down: for tests, examples and notebooks. Returns what each rank
/// returned, in rank order.
///
/// There is no tokio runtime on these threads; the operations of a communicator need none.
///
/// ```
/// use nexar_collectives::{ReduceOp, run_local};
///
/// let sums = run_local(3, async |comm| {
///     let mut data = [comm.rank() as u32 + 1];
///     comm.all_reduce(&mut data, ReduceOp::Sum).await?;
///     Ok(data[0])
/// })?;
/// assert_eq!(sums, [6, 6, 6]);
/// # Ok::<(), nexar_collectives::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`Communicator::local`]; else the error of the lowest rank that had one, in `work` or in its shutdown. Errors
/// that tell of the loss of another rank give way to others.
///
/// # Panics
///
/// Passes on a panic of `work`.
pub fn run_local<R: Send>(
    world_size: usize,
    work: impl AsyncFn(&Communicator) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    run(block_on(local(world_size))?, work)
}

/// [`run_local`] with an adapter for each rank, whose number is the world size: for tests of programs that work on the
/// memory of devices.
///
/// ```
/// use nexar_collectives::{DeviceBuffer, MemorySpace, ReduceOp, run_local_on};
/// use nexar_device::testing::MemoryDevice;
///
/// // Three ranks, each with a simulated device of its own.
/// let devices = [MemoryDevice::new(), MemoryDevice::new(), MemoryDevice::new()];
/// run_local_on(devices, async |comm| {
///     let (adapter, space) = (comm.device(), MemorySpace::Device(0));
///     let mut buffer = DeviceBuffer::from_slice(adapter, space, &[1u32; 100]).await?;
///     comm.on_device().all_reduce(&mut buffer, ReduceOp::Sum).await?;
///     let mut sums = [0; 100];
///     buffer.copy_to(&mut sums).await?;
///     assert_eq!(sums, [3; 100]);
///     Ok(())
/// })?;
/// # Ok::<(), nexar_collectives::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`run_local`].
///
/// # Panics
///
/// Passes on a panic of `work`.
pub fn run_local_on<D: DeviceAdapter, R: Send>(
    devices: impl IntoIterator<Item = D>,
    work: impl AsyncFn(&Communicator<AnyTransport, D>) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    run(block_on(local_on(devices.into_iter().collect()))?, work)
}

fn run<D: DeviceAdapter, R: Send>(
    ranks: Vec<Communicator<AnyTransport, D>>,
    work: impl AsyncFn(&Communicator<AnyTransport, D>) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let work = &work;
    let run = |comm: Communicator<AnyTransport, D>| {
        block_on(async move {
            let output = work(&comm).await?;
            comm.shutdown().await?;
            Ok(output)
        })
    };
    thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|comm| scope.spawn(|| run(comm)))
            .collect();
        let joined: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let results = joined
            .into_iter()
            .map(|joined| joined.unwrap_or_else(|panicked| panic::resume_unwind(panicked)));
        first_cause(results.collect())
    })
}

/// The outputs, or the first error. One that only tells of the loss of another rank gives way to that of the rank.
fn first_cause<R>(results: Vec<Result<R>>) -> Result<Vec<R>> {
    let is_cause = |result: &Result<R>| matches!(result, Err(error) if !error.is_peer_failure());
    let cause = results.iter().position(is_cause);
    let mut results = results.into_iter();
    match cause.and_then(|at| results.nth(at)) {
        Some(cause) => cause.map(|_| Vec::new()),
        None => results.collect(),
    }
}

pub(super) async fn local(world_size: usize) -> Result<Vec<Communicator>> {
    check(world_size)?;
    local_on(vec![CpuAdapter; world_size]).await
}

fn check(world_size: usize) -> Result<()> {
    if (1..=MAX_WORLD_SIZE).contains(&world_size) {
        return Ok(());
    }
    let reason = format!("{world_size} is not a number from 1 to {MAX_WORLD_SIZE}");
    Err(Error::InvalidArgument {
        operation: "local",
        reason,
    })
}

pub(super) async fn local_on<D: DeviceAdapter>(
    devices: Vec<D>,
) -> Result<Vec<Communicator<AnyTransport, D>>> {
    let world_size = devices.len();
    check(world_size)?;
    let refused = |e: nexar_quic::IdentityError| ConfigError::new("secret", e.to_string());
    let secret = Secret::random().map_err(refused)?;
    let transports = (0..world_size)
        .map(|_| {
            let identity = Identity::from_secret(&secret, "local").map_err(refused)?;
            let config = Config::new(identity, SocketAddr::from(([127, 0, 0, 1], 0)));
            AnyTransport::bind(Backend::default(), config)
                .map(Arc::new)
                .map_err(|source| Error::Connection {
                    doing: "opening an endpoint",
                    source,
                })
        })
        .collect::<Result<Vec<_>>>()?;
    let Some(seed) = transports.first().map(|t| t.local_addr()) else {
        return Ok(Vec::new());
    };
    let mut joining = Vec::new();
    for (rank, (transport, device)) in transports.into_iter().zip(devices).enumerate() {
        let request = JoinRequest::new("local", world_size).with_rank(Some(rank));
        let runtime = transport.background().clone();
        let route = match rank {
            0 => SeedRoute::Here(transport),
            _ => SeedRoute::Dial(vec![(transport, seed)]),
        };
        let join = Communicator::join(route, request, device);
        joining.push(nexar_core::task::run_on(&runtime, join));
    }
    let mut ranks = Vec::with_capacity(world_size);
    for join in joining {
        let stopped = || Error::Connection {
            doing: "joining",
            source: nexar_core::transport::ConnectionError::EndpointClosed,
        };
        ranks.push(join.await.ok_or_else(stopped)??);
    }
    Ok(ranks)
}
