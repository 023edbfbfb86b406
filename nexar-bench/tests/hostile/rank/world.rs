//! How a rank that sends messages joins and leaves.

use super::{Result, say};
use nexar_core::{
    Mesh, TimeLimits,
    membership::{JoinRequest, SeedRoute, join},
    messaging::Messenger,
    task::run_on,
    transport::Transport,
};
use nexar_quic::{AnyTransport, Backend, Config, Identity, Secret};
use std::{
    env, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

/// A rank with its messages.
pub(super) struct World {
    pub(super) mesh: Mesh<AnyTransport>,
    pub(super) messenger: Arc<Messenger<AnyTransport>>,
}

impl World {
    /// Joins the group that the environment describes.
    pub(super) async fn join() -> Result<World> {
        let (rank, world): (usize, usize) =
            (setting("RANK")?.parse()?, setting("WORLD_SIZE")?.parse()?);
        let seed: SocketAddr = setting("SEED")?.parse()?;
        let backend: Backend = setting("TRANSPORT")?.parse()?;
        let mut limits = TimeLimits::default();
        if let Ok(seconds) = setting("DETECTION_SECS") {
            limits = limits.with_detection(Duration::try_from_secs_f64(seconds.parse()?)?);
        }
        let local = match setting("BIND") {
            Ok(address) => {
                SocketAddr::new(address.parse()?, if rank == 0 { seed.port() } else { 0 })
            }
            Err(_) if rank == 0 => seed,
            Err(_) => source(seed)?,
        };
        let identity = Identity::from_secret(&Secret::new(&setting("SECRET")?)?, "hostile")?;
        let config = Config::new(identity, local)
            .idle_timeout(limits.detection * 2)
            .keep_alive(Some(limits.detection / 2));
        let transport = Arc::new(AnyTransport::bind(backend, config)?);
        let route = match rank {
            0 => SeedRoute::Here(Arc::clone(&transport)),
            _ => SeedRoute::Dial(vec![(Arc::clone(&transport), seed)]),
        };
        let request = JoinRequest::new("hostile", world)
            .with_rank(Some(rank))
            .with_limits(limits);
        let joining = async move { join(route, &request).await };
        let joined = run_on(transport.background(), joining).await;
        let mesh = joined.ok_or("joining was given up")??;
        let group = Arc::new(mesh.group(1, (0..world).collect())?);
        let messenger = Arc::new(Messenger::new(group));
        say("joined");
        Ok(World { mesh, messenger })
    }

    pub(super) fn rank(&self) -> usize {
        self.mesh.rank()
    }

    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (own, world) = (self.rank(), self.mesh.world_size());
        (0..world).filter(move |rank| *rank != own)
    }

    /// Leaves in the order that a communicator keeps.
    pub(super) async fn leave(self) -> Result<()> {
        let World { mesh, messenger } = self;
        mesh.prepare_leave();
        messenger.drain().await?;
        messenger.group().leave();
        drop(messenger);
        Ok(mesh.leave().await?)
    }
}

fn setting(name: &str) -> Result<String> {
    let name = format!("NEXAR_{name}");
    env::var(&name).map_err(|_| format!("{name} is not set").into())
}

/// The address from which the system would send to `target`.
fn source(target: SocketAddr) -> io::Result<SocketAddr> {
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    Ok(SocketAddr::new(socket.local_addr()?.ip(), 0))
}
