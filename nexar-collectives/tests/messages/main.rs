//! Messages between ranks, over real QUIC and over the in-memory network.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;
mod endings;
mod order;
mod values;

use common::{memory_world, share};
use nexar_collectives::{
    Backend, Communicator, CpuAdapter, Secret, TimeLimits,
    membership::{JoinRequest, SeedRoute},
    transport::Transport,
};
use nexar_quic::{AnyTransport, Config, Identity};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};
use tokio::task::JoinSet;

pub(crate) type Ranks<T> = Vec<Arc<Communicator<T>>>;

/// Elements of 64 MiB.
pub(crate) const LARGE: usize = 16 << 20;

pub(crate) async fn quic(world: usize) -> Ranks<AnyTransport> {
    share(Communicator::local(world).await.unwrap())
}

/// Over real QUIC, with time limits.
pub(crate) async fn quic_with(world: usize, limits: TimeLimits) -> Ranks<AnyTransport> {
    let secret = Secret::random().unwrap();
    let bind = |_| {
        let identity = Identity::from_secret(&secret, "messages").unwrap();
        let config = Config::new(identity, "127.0.0.1:0".parse().unwrap());
        Arc::new(AnyTransport::bind(Backend::default(), config).unwrap())
    };
    let transports: Vec<_> = (0..world).map(bind).collect();
    let seed = transports[0].local_addr();
    let mut joins = JoinSet::new();
    for (rank, transport) in transports.into_iter().enumerate() {
        let request = JoinRequest::new("messages", world)
            .with_rank(Some(rank))
            .with_limits(limits);
        let route = match rank {
            0 => SeedRoute::Here(transport),
            _ => SeedRoute::Dial(vec![(transport, seed)]),
        };
        joins.spawn(Communicator::join(route, request, CpuAdapter));
    }
    let mut ranks: Vec<_> = joins
        .join_all()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    ranks.sort_by_key(Communicator::rank);
    share(ranks)
}

pub(crate) async fn memory(world: usize) -> Ranks<impl Transport> {
    share(memory_world(world, TimeLimits::default()).await.2)
}

/// Numbers that no other seed has, and not at the same places.
pub(crate) fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let first = seed * 1_000_003;
    (first..first + count)
        .map(|n| (n % 16_777_213) as f32)
        .collect()
}

/// Whether a future is done when it is polled once.
pub(crate) async fn is_done(future: impl Future + Unpin) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}
