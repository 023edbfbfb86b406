//! The communicator: what programs hold.

mod builder;
mod collectives;
mod groups;
mod local;
mod located;
mod many;
mod messages;
mod network;
mod on_device;
mod raw;
mod reduction;
mod requests;
mod settings;
mod started;
#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use local::{run_local, run_local_on};
pub use on_device::OnDevice;
pub use raw::{RawSlice, RawSliceMut};
pub use reduction::Reduction;
pub use settings::{Rank, SeedRole};
pub use started::Started;

use crate::{engine::Engine, schedule::Overrides};
use nexar_core::{
    Error, Mesh, Result, TimeLimits,
    membership::{self, JoinRequest, SeedRoute},
    mesh::Group,
    messaging::Messenger,
    rpc::{Rpc, RpcOptions},
    task::run_on,
    transport::Transport,
};
use nexar_device::{CpuAdapter, DeviceAdapter};
use nexar_quic::AnyTransport;
pub(crate) use requests::{Input, Output, Place, moved, reduced};
use std::{fmt, net::SocketAddr, sync::Arc};
use tokio::time::{Instant, timeout, timeout_at};

/// The number of the communicator of all ranks.
const WORLD: u64 = 0;

/// A group of ranks that communicate, and this process's place in it.
///
/// # Calls
///
/// A collective is a call that all members make, in the same order. They run one after the other, in the order in which
/// their futures are first polled or they are started; those of different communicators run at the same time. Any number of
/// threads and tasks may share a communicator by reference, but only the program can see to it that all ranks order
/// their calls in the same way.
///
/// Every call announces its kind, number, element type, length, reduction and root. Ranks that do not make the same
/// call both get an error that shows the two calls, never a wrong value. Calls with no elements are compared, too.
///
/// A rank returns when it has its result and every rank that it exchanges data with has entered the call. Only a
/// [`barrier`](Self::barrier) waits for all.
///
/// # Buffers
///
/// Counts and lengths are in elements. Each rank's arguments are checked before anything is sent: after an
/// [`Error::InvalidArgument`] or [`Error::Unsupported`](Error::Unsupported) nothing has happened, the others wait, and the
/// call can be made again with better arguments. Buffers of inputs stay as they are; those of results hold an
/// unspecified mixture of old and new values after any other error.
///
/// # Failures
///
/// A rank that dies, leaves, makes another call or does not come within the time limit fails the operation with an
/// [`Error::Operation`](Error::Operation) that names the rank, on every member, and with it all later operations on this
/// communicator. Some ranks may have completed the operation before it failed on others. [`Error`] has a table of what
/// to do.
///
/// # Cancel safety
///
/// Dropping the future of a collective before it is done aborts the operation on all ranks and makes the communicator
/// unusable; the buffer then holds an unspecified mixture of old and new values. The same goes for a call that waits
/// for the end of an earlier one. A future that was never polled is a call that this rank has not made: the others wait
/// for it.
///
/// # Operations
///
#[doc = include_str!("../../docs/links.txt")]
#[doc = include_str!("../../docs/README.md")]
///
/// # Example
///
/// ```
/// use nexar_collectives::{Communicator, ReduceOp};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> nexar_collectives::Result<()> {
/// // Two ranks in one process; a program of several processes calls `Communicator::from_env`.
/// let ranks = Communicator::local(2).await?;
/// let work = ranks.into_iter().map(|comm| async move {
///     let mut data = vec![comm.rank() as f32 + 1.0; 4];
///     comm.all_reduce(&mut data, ReduceOp::Sum).await?;
///     assert_eq!(data, [3.0; 4]);
///     comm.shutdown().await
/// });
/// let mut tasks = tokio::task::JoinSet::new();
/// work.for_each(|rank| { tasks.spawn(rank); });
/// for result in tasks.join_all().await {
///     result?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Communicator<T: Transport = AnyTransport, D: DeviceAdapter = CpuAdapter> {
    // Declared before the mesh: the group says that it leaves while the connections still exist.
    shared: Arc<Shared<T>>,
    mesh: Arc<Mesh<T>>,
    device: D,
}

/// What a communicator shares with operations that go on by themselves.
pub(crate) struct Shared<T: Transport> {
    pub(crate) engine: Engine<T>,
    pub(crate) messages: Arc<Messenger<T>>,
    rpc: Rpc<T>,
    rpc_options: RpcOptions,
    /// It was made from another one: dropping it is a clean way to leave it.
    derived: bool,
}

impl<T: Transport> Shared<T> {
    fn new(
        group: Group<T>,
        overrides: Overrides,
        rpc_options: RpcOptions,
        derived: bool,
    ) -> Arc<Self> {
        let group = Arc::new(group);
        Arc::new(Shared {
            rpc: Rpc::new(Arc::clone(&group), rpc_options.clone()),
            rpc_options,
            messages: Arc::new(Messenger::new(Arc::clone(&group))),
            engine: Engine::new(group, overrides),
            derived,
        })
    }

    /// Waits until the others have everything that this rank has sent, and says that it makes no more calls.
    async fn leave(&self) {
        let group = self.engine.group();
        let deadline = Instant::now() + group.limits().leave;
        // Each is begun, however long the one before took.
        let _ = timeout_at(deadline, self.engine.drain()).await;
        let _ = timeout_at(deadline, self.messages.drain()).await;
        let _ = timeout_at(deadline, self.rpc.drain()).await;
        group.leave();
    }
}

impl<T: Transport> Drop for Shared<T> {
    fn drop(&mut self) {
        // A derived communicator that is dropped by a panic has failed, which dropping its group says.
        if !self.derived || std::thread::panicking() {
            return;
        }
        let group = Arc::clone(self.engine.group());
        if self.messages.stats().queued_bytes == 0 {
            return group.leave();
        }
        let messages = Arc::clone(&self.messages);
        let limit = group.limits().leave;
        let runtime = group.transport().background().clone();
        runtime.spawn(async move {
            let _ = timeout(limit, messages.drain()).await;
            group.leave();
        });
    }
}

impl Communicator {
    /// Joins the group that the environment describes, as set by `nexar-run` or by hand.
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `NEXAR_WORLD_SIZE` | number of ranks; 1 if neither it nor `NEXAR_SEED` is set |
    /// | `NEXAR_RANK` | this rank, or `any`; `any` if not set |
    /// | `NEXAR_SEED` | `host:port` where the ranks find each other; required from two ranks up |
    /// | `NEXAR_SEED_ROLE` | `host` or `join`: whether this process serves the seed's address; rank 0 does if not set |
    /// | `NEXAR_SECRET`, `NEXAR_SECRET_FILE` | the cluster secret, or a file with it; required beyond loopback |
    /// | `NEXAR_CERT`, `NEXAR_KEY`, `NEXAR_CA` | PEM files, instead of a secret |
    /// | `NEXAR_BIND` | address or interface to listen on, with or without a port |
    /// | `NEXAR_ADVERTISE` | address at which the others reach this process, if another |
    /// | `NEXAR_TRANSPORT` | `quinn` or `s2n-quic`, one that is part of the build; if not set, the first of them |
    /// | `NEXAR_TIMEOUT_SECS` | time limit for joining and for each operation |
    /// | `NEXAR_DETECTION_SECS` | silence after which a rank is taken for dead |
    /// | `NEXAR_SPIN_US` | microseconds to look for data before sleeping, 0 for none |
    /// | `NEXAR_JOB` | name of the job, to tell jobs with one secret apart |
    /// | `NEXAR_ALGORITHM` | forced algorithms, such as `all_reduce:ring` |
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the variable that is missing or does not parse, and the feature to enable for a
    /// transport that is not part of the build; [`Error::Join`] says why the group did not form, with the
    /// ranks that did not come.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws from the group.
    pub async fn from_env() -> Result<Self> {
        Builder::from_env()?.join().await
    }

    /// Starts a description of the group to join; [`Builder::join`] joins it.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `world_size` ranks in this process, connected over real QUIC on the loopback interface: for tests
    /// and notebooks. Each must be used from a task or thread of its own.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a world of 0; else as [`from_env`](Self::from_env).
    pub async fn local(world_size: usize) -> Result<Vec<Self>> {
        local::local(world_size).await
    }
}

impl<D: DeviceAdapter> Communicator<AnyTransport, D> {
    /// As [`Communicator::local`], with an adapter for each rank, whose number is the world size.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn local_on(devices: impl IntoIterator<Item = D>) -> Result<Vec<Self>> {
        local::local_on(devices.into_iter().collect()).await
    }
}

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    /// Joins a group over a transport of one's own making. The builder, `NEXAR_*` variables and `nexar-run` are for
    /// the QUIC transports: here, each process is told where the seed is.
    ///
    /// The first process is the seed, with `SeedRoute::Here(endpoint)`; the others dial it, with
    /// `SeedRoute::Dial(vec![(endpoint, address_of_the_seed)])`:
    ///
    /// ```
    /// use nexar_collectives::{
    ///     Communicator, CpuAdapter, Result,
    ///     membership::{JoinRequest, SeedRoute},
    ///     transport::Transport,
    /// };
    /// use std::{net::SocketAddr, sync::Arc};
    ///
    /// async fn rank<T: Transport>(endpoint: T, seed: Option<SocketAddr>) -> Result<Communicator<T>> {
    ///     let endpoint = Arc::new(endpoint);
    ///     let route = match seed {
    ///         None => SeedRoute::Here(endpoint),
    ///         Some(address) => SeedRoute::Dial(vec![(endpoint, address)]),
    ///     };
    ///     Communicator::join(route, JoinRequest::new("my job", 2), CpuAdapter).await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Join`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws from the group.
    pub async fn join(route: SeedRoute<T>, request: JoinRequest, device: D) -> Result<Self> {
        let (overrides, rpc) = (Overrides::default(), RpcOptions::default());
        Self::join_with(route, request, device, overrides, rpc).await
    }

    async fn join_with(
        route: SeedRoute<T>,
        request: JoinRequest,
        device: D,
        overrides: Overrides,
        rpc: RpcOptions,
    ) -> Result<Self> {
        let transport = match &route {
            SeedRoute::Here(transport) => Some(Arc::clone(transport)),
            SeedRoute::Dial(ways) => ways.first().map(|way| Arc::clone(&way.0)),
            _ => None,
        };
        let no_way = || Error::InvalidArgument {
            operation: "join",
            reason: "there is no way to the seed".into(),
        };
        let transport = transport.ok_or_else(no_way)?;
        request.limits.check()?;
        let joining = async move { membership::join(route, &request).await };
        let mesh = run_on(transport.background(), joining)
            .await
            .ok_or_else(no_way)??;
        let group = mesh.group(WORLD, (0..mesh.world_size()).collect())?;
        Ok(Communicator {
            shared: Shared::new(group, overrides, rpc, false),
            mesh: Arc::new(mesh),
            device,
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }

    fn engine(&self) -> &Engine<T> {
        &self.shared.engine
    }

    fn group(&self) -> &Group<T> {
        self.engine().group()
    }

    pub(crate) fn place(&self) -> Place {
        self.engine().place()
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> usize {
        self.group().rank()
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.group().size()
    }

    /// The communicator's number, as it stands in error messages.
    pub fn id(&self) -> u64 {
        self.group().id()
    }

    /// The address on which this rank listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.mesh.transport().local_addr()
    }

    /// The name of the transport, such as `quinn`.
    pub fn transport_name(&self) -> &str {
        self.mesh.transport().name()
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/rpc.md")]
    pub fn rpc(&self) -> &Rpc<T> {
        &self.shared.rpc
    }

    /// The device adapter.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The time limits.
    pub fn limits(&self) -> TimeLimits {
        self.mesh.limits()
    }

    /// Leaves the group cleanly: waits until everything that this rank has sent has arrived, tells the
    /// others, and closes the endpoint. The others' operations in which this rank has taken part complete; later ones
    /// fail there with [`Failure::PeerLeft`](nexar_core::Failure::PeerLeft).
    ///
    /// Dropping a communicator without this closes the connections without waiting for confirmations (it may block for up to 300 ms to
    /// tell the others); to them, this rank has failed.
    ///
    /// # Errors
    ///
    /// [`Error::NotConfirmed`] lists the ranks that did not confirm within the time limit for leaving, or of which
    /// nothing was heard for 2 s meanwhile; ranks that were known to be gone before are not among them.
    ///
    /// # Cancel safety
    ///
    /// A dropped future drops the communicator.
    pub async fn shutdown(self) -> Result<()> {
        let Communicator { shared, mesh, .. } = self;
        let (transport, derived) = (Arc::clone(mesh.transport()), shared.derived);
        if !derived || Arc::strong_count(&mesh) == 1 {
            mesh.prepare_leave();
        }
        run_on(transport.background(), async move { shared.leave().await }).await;
        if !derived {
            return mesh.leave().await;
        }
        // Without the first communicator, the last one closes the connections: the last that has everything
        // confirmed, so the mesh is kept until then.
        match Arc::into_inner(mesh) {
            Some(last) => last.leave().await,
            None => Ok(()),
        }
    }
}

impl<T: Transport, D: DeviceAdapter> fmt::Debug for Communicator<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("id", &self.id())
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}
