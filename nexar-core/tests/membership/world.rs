//! Ranks on an in-memory network.

use nexar_core::{
    JoinError, Mesh, TimeLimits,
    membership::{JoinRequest, SeedRoute, join},
    transport::{
        Connection, NewConnection, PeerId, Transport,
        memory::{
            MemoryConnection, MemoryNetwork, MemoryRecvStream, MemorySendStream, MemoryTransport,
        },
    },
    wire::{
        self, MAX_JOIN_FRAME, PROTOCOL_VERSION,
        join::{Join, Opening},
    },
};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

pub(crate) type MemoryMesh = Mesh<MemoryTransport>;

/// The time limit for joining.
pub(crate) const LIMIT: Duration = Duration::from_secs(4);

pub(crate) struct Hosts {
    pub(crate) network: MemoryNetwork,
    pub(crate) transports: Vec<Arc<MemoryTransport>>,
}

impl Hosts {
    pub(crate) fn new(world: usize) -> Self {
        let network = MemoryNetwork::new(7);
        let bind =
            |rank: usize| Arc::new(network.bind(None, PeerId::new(&rank.to_string())).unwrap());
        Hosts {
            transports: (0..world).map(bind).collect(),
            network,
        }
    }

    pub(crate) fn address(&self, rank: usize) -> std::net::SocketAddr {
        self.transports[rank].local_addr()
    }

    pub(crate) fn request(&self, rank: usize) -> JoinRequest {
        JoinRequest::new("job", self.transports.len())
            .with_rank(Some(rank))
            .with_limits(TimeLimits::default().with_join(LIMIT))
    }

    /// Joins as rank 0, the seed, or as another rank; with the time that it took.
    pub(crate) fn join_with(&self, request: JoinRequest) -> Joining {
        let rank = request.rank.unwrap();
        let transport = Arc::clone(&self.transports[rank]);
        let seed = self.address(0);
        tokio::spawn(async move {
            let started = Instant::now();
            let route = match rank {
                0 => SeedRoute::Here(transport),
                _ => SeedRoute::Dial(vec![(transport, seed)]),
            };
            (join(route, &request).await, started.elapsed())
        })
    }

    pub(crate) fn join(&self, rank: usize) -> Joining {
        self.join_with(self.request(rank))
    }

    /// A process that applies for a rank and then does nothing.
    pub(crate) async fn stuck(&self, rank: usize) -> Stuck {
        let transport = &self.transports[rank];
        let new = transport.connect(self.address(0), None).await.unwrap();
        let (mut send, recv) = new.connection.open_bi().await.unwrap();
        let join = Opening::Join(Join {
            version: PROTOCOL_VERSION,
            job: "job".into(),
            world_size: self.transports.len() as u32,
            rank: Some(rank as u32),
            address: transport.local_addr(),
            detection_ms: 4_000,
        });
        wire::write_frame(&mut send, &join, MAX_JOIN_FRAME)
            .await
            .unwrap();
        Stuck {
            _connection: new,
            _send: send,
            recv,
        }
    }

    /// All ranks, joined.
    pub(crate) async fn meshes(&self) -> Vec<MemoryMesh> {
        let joining: Vec<_> = (0..self.transports.len()).map(|r| self.join(r)).collect();
        let mut meshes = Vec::new();
        for mesh in joining {
            meshes.push(mesh.await.unwrap().0.unwrap());
        }
        meshes
    }
}

/// What came of joining, and how long it took.
pub(crate) type Joining = JoinHandle<(Result<MemoryMesh, JoinError>, Duration)>;

/// Keeps the connection of an applicant open.
pub(crate) struct Stuck {
    _connection: NewConnection<MemoryConnection>,
    _send: MemorySendStream,
    pub(crate) recv: MemoryRecvStream,
}
