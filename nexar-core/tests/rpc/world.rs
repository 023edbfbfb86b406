//! Ranks to call each other.

use nexar_core::{
    Error, Failure, Mesh, TimeLimits,
    membership::{JoinRequest, SeedRoute, join},
    rpc::{Rpc, RpcError, RpcFailure, RpcOptions},
    transport::{
        PeerId, Transport,
        memory::{MemoryNetwork, MemoryTransport},
    },
};
use std::{
    future::{Future, poll_fn},
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

pub(crate) type Calls = Rpc<MemoryTransport>;

pub(crate) type Ranks = Vec<Arc<Calls>>;

pub(crate) struct World {
    pub(crate) ranks: Ranks,
    pub(crate) meshes: Vec<Mesh<MemoryTransport>>,
    pub(crate) network: MemoryNetwork,
}

impl World {
    pub(crate) async fn new(size: usize) -> Self {
        Self::with_options(size, RpcOptions::default()).await
    }

    pub(crate) async fn with_options(size: usize, options: RpcOptions) -> Self {
        Self::on(MemoryNetwork::new(7), size, short(), options).await
    }

    pub(crate) async fn with_limits(size: usize, limits: TimeLimits) -> Self {
        Self::on(MemoryNetwork::new(7), size, limits, RpcOptions::default()).await
    }

    pub(crate) async fn on(
        network: MemoryNetwork,
        size: usize,
        limits: TimeLimits,
        options: RpcOptions,
    ) -> Self {
        let bind =
            |rank: usize| Arc::new(network.bind(None, PeerId::new(&rank.to_string())).unwrap());
        let transports: Vec<_> = (0..size).map(bind).collect();
        let seed = transports[0].local_addr();
        let mut joining = Vec::new();
        for (rank, transport) in transports.into_iter().enumerate() {
            let request = JoinRequest::new("job", size)
                .with_rank(Some(rank))
                .with_limits(limits);
            joining.push(tokio::spawn(async move {
                let route = match rank {
                    0 => SeedRoute::Here(transport),
                    _ => SeedRoute::Dial(vec![(transport, seed)]),
                };
                join(route, &request).await.unwrap()
            }));
        }
        let mut meshes = Vec::new();
        for mesh in joining {
            meshes.push(mesh.await.unwrap());
        }
        let ranks = ranks(&meshes, 1, &options);
        World {
            ranks,
            meshes,
            network,
        }
    }

    pub(crate) fn address(&self, rank: usize) -> std::net::SocketAddr {
        self.meshes[rank].transport().local_addr()
    }
}

/// A communicator of all ranks.
pub(crate) fn ranks(meshes: &[Mesh<MemoryTransport>], id: u64, options: &RpcOptions) -> Ranks {
    let members: Vec<usize> = (0..meshes.len()).collect();
    let rpc = |mesh: &Mesh<MemoryTransport>| {
        let group = mesh.group(id, members.clone()).unwrap();
        Arc::new(Rpc::new(Arc::new(group), options.clone()))
    };
    meshes.iter().map(rpc).collect()
}

/// What is wrong with one call.
pub(crate) fn rpc_error<T: std::fmt::Debug>(result: nexar_core::Result<T>) -> RpcError {
    match result.unwrap_err() {
        Error::Rpc(error) => *error,
        error => panic!("{error}"),
    }
}

pub(crate) fn cause<T: std::fmt::Debug>(result: nexar_core::Result<T>) -> RpcFailure {
    rpc_error(result).cause
}

/// The failure of the communicator, or of the callee.
pub(crate) fn failure<T: std::fmt::Debug>(result: nexar_core::Result<T>) -> Failure {
    match cause(result) {
        RpcFailure::Failed { failure } => failure,
        cause => panic!("{cause}"),
    }
}

/// Bytes that say which message they are of.
pub(crate) fn body(seed: usize, length: usize) -> Vec<u8> {
    /// A prime, so that the same bytes never come at the same place of a power of two.
    const PERIOD: usize = 65_521;
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    let pattern =
        PATTERN.get_or_init(|| (0..PERIOD).map(|i| ((i * 31) ^ (i >> 8)) as u8).collect());
    let mut bytes = pattern[seed * 97 % PERIOD..].to_vec();
    while bytes.len() < length {
        bytes.extend_from_slice(pattern);
    }
    bytes.truncate(length);
    bytes
}

/// Polls a future for the first time and leaves the rest to a task.
pub(crate) async fn start<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let mut future = Box::pin(future);
    let first = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    tokio::spawn(async move {
        match first {
            Poll::Ready(output) => output,
            Poll::Pending => future.await,
        }
    })
}

/// Lets everything happen that can happen now.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> F::Output {
    let limited = tokio::time::timeout(limit, future).await;
    limited.expect("takes too long")
}

/// Time limits with which a hang is found soon.
pub(crate) fn short() -> TimeLimits {
    TimeLimits::default().with_operation(Duration::from_secs(20))
}
