//! Joining a group that the program describes.

use super::{
    Communicator,
    network::{Bind, check_reachable, host_addresses, join_addresses, resolve},
    settings::{Credentials, Rank, SeedRole, Settings},
};
use nexar_core::{
    ConfigError, Error, Result, TimeLimits,
    membership::{JoinRequest, SeedRoute},
    rpc::RpcOptions,
    transport::ConnectionError,
};
use nexar_device::{CpuAdapter, DeviceAdapter};
use nexar_quic::{AnyTransport, Backend, Config, Identity, Secret};
use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

/// Describes the group to join; made by [`Communicator::builder`].
///
/// ```no_run
/// use nexar_collectives::{Communicator, Rank, Secret};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let comm = Communicator::builder()
///     .world_size(2)
///     .rank(Rank::Fixed(0))
///     .seed("10.0.0.1:29400")
///     .secret(Secret::from_file("/run/secrets/cluster")?)
///     .join()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it joins"]
pub struct Builder<D: DeviceAdapter = CpuAdapter> {
    settings: Settings,
    algorithms: Option<String>,
    rpc: RpcOptions,
    device: D,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            settings: Settings::default(),
            algorithms: None,
            rpc: RpcOptions::default(),
            device: CpuAdapter,
        }
    }
}

impl Builder {
    /// A description read from the environment; see [`Communicator::from_env`] for the variables. Methods called
    /// on it override them.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the variable that is missing or does not parse.
    pub fn from_env() -> Result<Self> {
        let settings = Settings::from_env()?;
        Ok(Builder {
            settings,
            ..Builder::default()
        })
    }
}

impl<D: DeviceAdapter> Builder<D> {
    /// Number of ranks. Default: 1.
    pub fn world_size(mut self, world_size: usize) -> Self {
        self.settings.world_size = world_size;
        self
    }

    /// The rank that this process wants. Default: any.
    pub fn rank(mut self, rank: Rank) -> Self {
        self.settings.rank = rank;
        self
    }

    /// `host:port` where the ranks find each other.
    pub fn seed(mut self, address: impl Into<String>) -> Self {
        self.settings.seed = Some(address.into());
        self
    }

    /// Whether this process serves the seed's address. Default: rank 0 does.
    pub fn seed_role(mut self, role: SeedRole) -> Self {
        self.settings.seed_role = role;
        self
    }

    /// Address or interface to listen on, with or without a port. Default: for the seed its address; for the
    /// others the address from which the system sends to the seed, and a free port.
    pub fn bind(mut self, address: impl Into<String>) -> Self {
        self.settings.bind = Some(address.into());
        self
    }

    /// `host:port` at which the other ranks reach this process, where that is not where it listens.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.settings.advertise = Some(address.into());
        self
    }

    /// The secret that all ranks share. Without a secret or identity, only loopback is allowed.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.settings.credentials = Credentials::Secret(secret);
        self
    }

    /// Certificates of a PKI of one's own, instead of a secret.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.settings.credentials = Credentials::Identity(identity);
        self
    }

    /// As [`identity`](Self::identity), from PEM files: certificate chain, private key, CA certificates.
    pub fn identity_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        ca: impl Into<PathBuf>,
    ) -> Self {
        self.settings.credentials = Credentials::Files {
            certificate: certificate.into(),
            key: key.into(),
            ca: ca.into(),
        };
        self
    }

    /// The QUIC implementation. Ranks with different ones can be in one group. Default: quinn where it is part
    /// of the build, which depends on the crate's features; [`join`](Self::join) fails with [`Error::Config`]
    /// where the one asked for is not.
    pub fn transport(mut self, backend: Backend) -> Self {
        self.settings.backend = backend;
        self
    }

    /// The time limits.
    pub fn limits(mut self, limits: TimeLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// How long a rank that waits looks for data before it sleeps. It saves the latency of a wake-up and
    /// costs processor time; zero turns it off. Default: 50 us.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.settings.spin = Some(spin);
        self
    }

    /// Name of the job: processes of another job with the same secret are refused. Default: `nexar`.
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.settings.job = job.into();
        self
    }

    /// Forces algorithms, such as `all_reduce:ring`, several separated by commas. All ranks must force the
    /// same.
    pub fn algorithms(mut self, algorithms: impl Into<String>) -> Self {
        self.algorithms = Some(algorithms.into());
        self
    }

    /// Settings of the [remote calls](Communicator::rpc) on this rank, also for communicators that are made from this
    /// one. Default: [`RpcOptions::default`].
    pub fn rpc_options(mut self, options: RpcOptions) -> Self {
        self.rpc = options;
        self
    }

    /// The adapter through which the communicator reaches memory that is not a Rust slice. Operations on
    /// slices, which are host memory, need none. Default: [`CpuAdapter`].
    pub fn device<E: DeviceAdapter>(self, device: E) -> Builder<E> {
        Builder {
            settings: self.settings,
            algorithms: self.algorithms,
            rpc: self.rpc,
            device,
        }
    }

    /// Joins the group: returns once this rank is connected to every other rank.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the setting that does not make sense; [`Error::Connection`] if the address
    /// cannot be listened on; [`Error::Join`] says why the group did not form.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws from the group.
    pub async fn join(self) -> Result<Communicator<AnyTransport, D>> {
        let Builder {
            mut settings,
            algorithms,
            rpc,
            device,
        } = self;
        if let Some(algorithms) = algorithms {
            settings.overrides = algorithms
                .parse()
                .map_err(|e| ConfigError::new("algorithms", format!("{e}")))?;
        }
        settings.check(["world size", "rank", "seed", "transport"])?;
        let advertise = match &settings.advertise {
            Some(text) => resolve("NEXAR_ADVERTISE", text).await?.first().copied(),
            None => None,
        };
        let bind = settings.bind.as_deref().map(Bind::parse).transpose()?;
        let seed = match &settings.seed {
            Some(text) => resolve("NEXAR_SEED", text).await?,
            None => vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        };
        let (route, seen) = if settings.hosts_seed() {
            host(&settings, &seed, bind.as_ref())?
        } else {
            (dial(&settings, &seed, bind.as_ref())?, None)
        };
        let request = JoinRequest::new(settings.job.clone(), settings.world_size)
            .with_rank(settings.rank.fixed())
            .with_advertise(advertise.or(seen))
            .with_limits(settings.limits);
        Communicator::join_with(route, request, device, settings.overrides, rpc).await
    }
}

/// Listens on the seed's address.
fn host(
    settings: &Settings,
    seed: &[SocketAddr],
    bind: Option<&Bind>,
) -> Result<(SeedRoute<AnyTransport>, Option<SocketAddr>)> {
    let told_where = settings.advertise.is_some() || bind.is_some_and(|b| !b.is_unspecified());
    if let Some(text) = &settings.seed
        && settings.world_size > 1
        && !told_where
    {
        check_reachable(text, seed)?;
    }
    let identity = settings.identity()?;
    let mut refused = None;
    for (local, seen) in host_addresses(seed, bind)? {
        match open(settings, &identity, local) {
            Ok(transport) => {
                // Behind an address such as 0.0.0.0, the others reach this rank as they reach the seed.
                let advertise = local.ip().is_unspecified().then_some(seen);
                return Ok((SeedRoute::Here(Arc::new(transport)), advertise));
            }
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    let source = refused.unwrap_or(ConnectionError::EndpointClosed);
    Err(Error::Connection {
        doing: "listening on the seed's address",
        source,
    })
}

/// Listens on one address for each family that the seed may be reached over.
fn dial(
    settings: &Settings,
    seed: &[SocketAddr],
    bind: Option<&Bind>,
) -> Result<SeedRoute<AnyTransport>> {
    let identity = settings.identity()?;
    let mut ways = Vec::new();
    let mut refused = None;
    for (local, targets) in join_addresses(seed, bind)? {
        match open(settings, &identity, local) {
            Ok(transport) => {
                let transport = Arc::new(transport);
                ways.extend(targets.into_iter().map(|to| (Arc::clone(&transport), to)));
            }
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    match (ways.is_empty(), refused) {
        (true, Some(source)) => Err(Error::Connection {
            doing: "opening an endpoint",
            source,
        }),
        _ => Ok(SeedRoute::Dial(ways)),
    }
}

fn open(
    settings: &Settings,
    identity: &Identity,
    local: SocketAddr,
) -> std::result::Result<AnyTransport, ConnectionError> {
    let detection = settings.limits.detection;
    let mut config = Config::new(identity.clone(), local)
        // The group notices a silent rank itself; the transport is the second line of defence.
        .idle_timeout(detection * 2)
        .keep_alive(Some(detection / 2));
    if let Some(spin) = settings.spin {
        config = config.spin(spin);
    }
    AnyTransport::bind(settings.backend, config)
}
