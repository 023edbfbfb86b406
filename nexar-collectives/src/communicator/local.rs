//! Several ranks in one process.

use super::Communicator;
use nexar_core::{
    ConfigError, Error, Result,
    membership::{JoinRequest, SeedRoute},
    transport::Transport,
    wire::MAX_WORLD_SIZE,
};
use nexar_device::CpuAdapter;
use nexar_quic::{AnyTransport, Backend, Config, Identity, Secret};
use std::{net::SocketAddr, sync::Arc};

pub(super) async fn local(world_size: usize) -> Result<Vec<Communicator>> {
    if world_size == 0 || world_size > MAX_WORLD_SIZE {
        let reason = format!("{world_size} is not a number from 1 to {MAX_WORLD_SIZE}");
        return Err(Error::InvalidArgument {
            operation: "local",
            reason,
        });
    }
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
    for (rank, transport) in transports.into_iter().enumerate() {
        let request = JoinRequest::new("local", world_size).with_rank(Some(rank));
        let runtime = transport.background().clone();
        let route = match rank {
            0 => SeedRoute::Here(transport),
            _ => SeedRoute::Dial(vec![(transport, seed)]),
        };
        let join = Communicator::join(route, request, CpuAdapter);
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
