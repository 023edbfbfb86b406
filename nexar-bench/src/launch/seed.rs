//! The seed that introduces the ranks to each other.

use super::{Job, LaunchError};
use nexar_collectives::{
    AnyTransport, Identity, JoinError, Secret,
    membership::{SeedSettings, serve_seed},
    transport::Transport,
};
use nexar_quic::{Backend, Config};
use std::{
    env,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

pub(super) struct Seed {
    transport: Arc<AnyTransport>,
    secret: Secret,
    job: String,
}

impl Seed {
    /// Listens on a free loopback port, with a fresh secret.
    pub(super) fn open() -> Result<Self, LaunchError> {
        let job = env::var("NEXAR_JOB").ok().filter(|name| !name.is_empty());
        let job = job.unwrap_or_else(|| "nexar".into());
        let secret = Secret::random()?;
        let identity = Identity::from_secret(&secret, &job)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let transport = AnyTransport::bind(Backend::default(), Config::new(identity, address))?;
        Ok(Seed {
            transport: Arc::new(transport),
            secret,
            job,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.transport.local_addr()
    }

    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(super) fn job(&self) -> &str {
        &self.job
    }

    /// Waits until all ranks have come and know each other.
    pub(super) async fn serve(self, job: &Job) -> Result<(), JoinError> {
        let settings = SeedSettings::new(self.job, job.world_size, job.join_limit);
        let result = serve_seed(&self.transport, &settings).await;
        self.transport.close(0, "the group has formed").await;
        result
    }
}
