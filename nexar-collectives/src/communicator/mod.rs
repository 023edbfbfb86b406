//! The communicator: what programs hold.

mod builder;
mod local;
mod network;
mod settings;

pub use builder::Builder;
pub use settings::{Rank, SeedRole};

use crate::{
    engine::{Engine, Request},
    schedule::{Operation, Overrides},
};
use nexar_core::{
    Element, Error, Mesh, ReduceOp, Result, TimeLimits, as_bytes_mut,
    membership::{self, JoinRequest, SeedRoute},
    task::run_on,
    transport::Transport,
};
use nexar_device::{CpuAdapter, DeviceAdapter};
use nexar_quic::AnyTransport;
use std::{fmt, net::SocketAddr, sync::Arc};
use tokio::time::timeout;

/// The number of the communicator of all ranks.
const WORLD: u64 = 0;

/// A group of ranks that communicate, and this process's place in it.
///
/// All members make the same collective calls in the same order. A call on one rank that differs from that on
/// another is an error on both, and so is a rank that dies, leaves or does not come within the time
/// limit: the operation fails on every member with an [`Error`] that names the rank, and so do all later
/// operations on this communicator.
///
/// Calls on one communicator run one after the other, in the order in which their futures are first
/// polled.
///
/// # Cancel safety
///
/// Dropping the future of a collective before it is done aborts the operation on all ranks and makes the communicator
/// unusable; the buffer then holds an unspecified mixture of old and new values.
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
    engine: Engine<T>,
    mesh: Arc<Mesh<T>>,
    device: D,
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
        Self::join_with(route, request, device, Overrides::default()).await
    }

    async fn join_with(
        route: SeedRoute<T>,
        request: JoinRequest,
        device: D,
        overrides: Overrides,
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
        Self::from_mesh(Arc::new(mesh), device, overrides)
    }

    fn from_mesh(mesh: Arc<Mesh<T>>, device: D, overrides: Overrides) -> Result<Self> {
        let group = mesh.group(WORLD, (0..mesh.world_size()).collect())?;
        Ok(Communicator {
            engine: Engine::new(group, overrides),
            mesh,
            device,
        })
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> usize {
        self.engine.group().rank()
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.engine.group().size()
    }

    /// The communicator's number, as it stands in error messages.
    pub fn id(&self) -> u64 {
        self.engine.group().id()
    }

    /// The address on which this rank listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.mesh.transport().local_addr()
    }

    /// The name of the transport, such as `quinn`.
    pub fn transport_name(&self) -> &str {
        self.mesh.transport().name()
    }

    /// The device adapter.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The time limits.
    pub fn limits(&self) -> TimeLimits {
        self.mesh.limits()
    }

    /// Waits until all ranks have called it.
    ///
    /// Cost: ⌈log₂ n⌉ rounds of one small message (dissemination).
    ///
    /// # Errors
    ///
    /// [`Error::Operation`].
    pub async fn barrier(&self) -> Result<()> {
        let request = Request {
            operation: Operation::Barrier,
            dtype: None,
            op: None,
            input: &[0],
            output: &mut [],
        };
        self.engine.run(request).await
    }

    /// Replaces `data` on every rank by that of `root`. The length is the same on all ranks.
    ///
    /// The root returns once all ranks that it sends to have entered the call, not when they have the data.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if there is no rank `root`; [`Error::Operation`].
    pub async fn broadcast<E: Element>(&self, data: &mut [E], root: usize) -> Result<()> {
        self.check_root("broadcast", root)?;
        let count = data.len();
        self.engine
            .run(Request {
                operation: Operation::Broadcast { root, count },
                dtype: Some(E::DATA_TYPE),
                op: None,
                input: &[],
                output: writable(data),
            })
            .await
    }

    /// Replaces `data` on every rank by the element-wise reduction of all ranks' data. The length is the
    /// same on all ranks. Every rank gets the same bits.
    ///
    /// Cost: about `2 (n-1)/n` times the data sent by each rank; ⌈log₂ n⌉ rounds if it is small.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if `op` is not defined for `E`; [`Error::Operation`].
    pub async fn all_reduce<E: Element>(&self, data: &mut [E], op: ReduceOp) -> Result<()> {
        op.check(E::DATA_TYPE)?;
        let count = data.len();
        self.engine
            .run(Request {
                operation: Operation::AllReduce { count },
                dtype: Some(E::DATA_TYPE),
                op: Some(op),
                input: &[],
                output: writable(data),
            })
            .await
    }

    /// Fills `output` with the `input` of all ranks, in the order of the ranks. `input` has the same length on all
    /// ranks, and `output` is world size times as long.
    ///
    /// Cost: each rank sends its input to all others.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the lengths do not fit; [`Error::Operation`].
    pub async fn all_gather<E: Element>(&self, input: &[E], output: &mut [E]) -> Result<()> {
        let count = input.len();
        self.check_blocks("all_gather", "output", output.len(), "input", count)?;
        self.engine
            .run(Request {
                operation: Operation::AllGather { count },
                dtype: Some(E::DATA_TYPE),
                op: None,
                input: E::as_bytes(input),
                output: writable(output),
            })
            .await
    }

    /// Reduces the `input` of all ranks element by element and fills `output` with this rank's block of the
    /// result: rank r gets the r-th. `input` is world size times as long as `output` and stays
    /// unchanged.
    ///
    /// Cost: about `(n-1)/n` times the input sent by each rank.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the lengths do not fit; [`Error::Unsupported`] if `op` is not
    /// defined for `E`; [`Error::Operation`].
    pub async fn reduce_scatter<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        op: ReduceOp,
    ) -> Result<()> {
        op.check(E::DATA_TYPE)?;
        let count = output.len();
        self.check_blocks("reduce_scatter", "input", input.len(), "output", count)?;
        self.engine
            .run(Request {
                operation: Operation::ReduceScatter { count },
                dtype: Some(E::DATA_TYPE),
                op: Some(op),
                input: E::as_bytes(input),
                output: writable(output),
            })
            .await
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
        let Communicator { engine, mesh, .. } = self;
        let limit = mesh.limits().leave;
        let transport = Arc::clone(mesh.transport());
        let mesh = Arc::try_unwrap(mesh);
        if let Ok(mesh) = &mesh {
            mesh.prepare_leave();
        }
        let draining = async move {
            let _ = timeout(limit, engine.drain()).await;
            engine.group().leave();
        };
        run_on(transport.background(), draining).await;
        match mesh {
            Ok(mesh) => mesh.leave().await,
            // Another communicator still uses the connections.
            Err(_) => Ok(()),
        }
    }

    fn check_root(&self, operation: &'static str, root: usize) -> Result<()> {
        let world_size = self.world_size();
        if root < world_size {
            return Ok(());
        }
        let reason = format!("root {root} does not exist in a world of {world_size}");
        Err(Error::InvalidArgument { operation, reason })
    }

    /// Checks that a buffer holds one block for each rank.
    fn check_blocks(
        &self,
        operation: &'static str,
        long: &str,
        long_len: usize,
        short: &str,
        short_len: usize,
    ) -> Result<()> {
        let world_size = self.world_size();
        if short_len.checked_mul(world_size) == Some(long_len) {
            return Ok(());
        }
        let reason = format!(
            "{long} has {long_len} elements, but should have {world_size} times the {short_len} of {short}"
        );
        Err(Error::InvalidArgument { operation, reason })
    }
}

/// The bytes of a buffer that an operation fills.
fn writable<E: Element>(data: &mut [E]) -> &mut [u8] {
    // SAFETY: the engine stores elements only through the kernels of nexar-device, or copies elements of
    // this type, and for bool both write 0 or 1 whatever a peer has sent.
    unsafe { as_bytes_mut(data) }
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
