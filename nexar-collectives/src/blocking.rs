//! The communicator for programs without async.
//!
//! ```
//! use nexar_collectives::{ReduceOp, blocking::Communicator};
//! use std::thread;
//!
//! # fn main() -> nexar_collectives::Result<()> {
//! // Two ranks in one process; a program of several processes calls `Communicator::from_env`.
//! let ranks = Communicator::local(2)?;
//! let threads: Vec<_> = ranks
//!     .into_iter()
//!     .map(|comm| {
//!         thread::spawn(move || {
//!             let mut data = [comm.rank() as f32 + 1.0; 4];
//!             comm.all_reduce(&mut data, ReduceOp::Sum)?;
//!             assert_eq!(data, [3.0; 4]);
//!             comm.shutdown()
//!         })
//!     })
//!     .collect();
//! for thread in threads {
//!     thread.join().expect("a rank panicked")?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The calling thread does the work of an operation: it moves the data and reduces it, without handing over to another
//! thread. Several threads may use one communicator at a time; collectives then run one after the other, and messages
//! at the same time.
//!
//! Do not call it from async code, whose thread it would block: use the async [`Communicator`](crate::Communicator)
//! there.

use nexar_core::{
    Element, ReduceOp, Result, TimeLimits,
    membership::{JoinRequest, SeedRoute},
    messaging::{Received, Source, Tag},
    rpc::Rpc,
    transport::Transport,
};
use nexar_device::{CpuAdapter, DeviceAdapter};
use nexar_quic::AnyTransport;

use crate::{
    Builder, Reduction, Started,
    compression::{Compression, Compressor},
};
use bytemuck::Pod;

pub use nexar_core::task::block_on;

/// A [`Communicator`](crate::Communicator) whose methods return when they are done.
///
/// Its methods have the arguments, results and errors of those of the same names there. What is not here is reached
/// by [`as_async`](Self::as_async): `comm.as_async().start_all_reduce(data, op).wait_blocking()`, say, or with
/// [`block_on`], as for device memory: `block_on(comm.as_async().on_device().all_reduce(&mut buffer, op))`.
#[derive(Debug)]
pub struct Communicator<T: Transport = AnyTransport, D: DeviceAdapter = CpuAdapter> {
    inner: crate::Communicator<T, D>,
}

impl Communicator {
    /// Joins the group that the environment describes; see [`crate::Communicator::from_env`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::from_env`].
    pub fn from_env() -> Result<Self> {
        block_on(crate::Communicator::from_env()).map(Self::from)
    }

    /// Starts a description of the group to join; [`Builder::join_blocking`] joins it.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `world_size` ranks in this process, for tests; see [`crate::Communicator::local`]. Each must be used from a
    /// thread of its own.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::local`].
    pub fn local(world_size: usize) -> Result<Vec<Self>> {
        let ranks = block_on(crate::Communicator::local(world_size))?;
        Ok(ranks.into_iter().map(Self::from).collect())
    }
}

impl<D: DeviceAdapter> Builder<D> {
    /// [`join`](Self::join), for programs without async.
    ///
    /// # Errors
    ///
    /// Those of [`join`](Self::join).
    pub fn join_blocking(self) -> Result<Communicator<AnyTransport, D>> {
        block_on(self.join()).map(Communicator::from)
    }
}

impl<O> Started<O> {
    /// Waits for the operation on this thread, which sleeps meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Self::wait).
    pub fn wait_blocking(self) -> Result<O> {
        block_on(self)
    }
}

impl<T: Transport, D: DeviceAdapter> From<crate::Communicator<T, D>> for Communicator<T, D> {
    fn from(inner: crate::Communicator<T, D>) -> Self {
        Communicator { inner }
    }
}

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    /// Joins a group over a transport of one's own making; see [`crate::Communicator::join`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::join`].
    pub fn join(route: SeedRoute<T>, request: JoinRequest, device: D) -> Result<Self> {
        block_on(crate::Communicator::join(route, request, device)).map(Self::from)
    }

    /// The async communicator behind this one.
    pub fn as_async(&self) -> &crate::Communicator<T, D> {
        &self.inner
    }

    /// The async communicator instead of this one.
    pub fn into_async(self) -> crate::Communicator<T, D> {
        self.inner
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> usize {
        self.inner.rank()
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.inner.world_size()
    }

    /// The communicator's number, as it stands in error messages.
    pub fn id(&self) -> u64 {
        self.inner.id()
    }

    /// The time limits.
    pub fn limits(&self) -> TimeLimits {
        self.inner.limits()
    }

    /// The remote calls between the ranks, to be waited for by [`block_on`]; see [`crate::Communicator::rpc`].
    pub fn rpc(&self) -> &Rpc<T> {
        self.inner.rpc()
    }

    /// Leaves the group cleanly; see [`crate::Communicator::shutdown`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::shutdown`].
    pub fn shutdown(self) -> Result<()> {
        block_on(self.inner.shutdown())
    }

    /// See [`crate::Communicator::all_reduce_many`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::all_reduce_many`].
    pub fn all_reduce_many<E: Element, B: AsMut<[E]>>(
        &self,
        buffers: &mut [B],
        op: ReduceOp,
    ) -> Result<()> {
        block_on(self.inner.all_reduce_many(buffers, op))
    }

    /// See [`crate::Communicator::split`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::split`].
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Self>> {
        Ok(block_on(self.inner.split(color, key))?.map(Self::from))
    }

    /// See [`crate::Communicator::duplicate`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::duplicate`].
    pub fn duplicate(&self) -> Result<Self> {
        block_on(self.inner.duplicate()).map(Self::from)
    }

    /// See [`crate::Communicator::subgroup`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::subgroup`].
    pub fn subgroup(&self, ranks: &[usize]) -> Result<Option<Self>> {
        Ok(block_on(self.inner.subgroup(ranks))?.map(Self::from))
    }
}

/// Methods that do what the async ones of the same names do.
macro_rules! blocking {
    ($(fn $name:ident $(<$($element:ident: $bound:ident),+>)? ($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {$(
            #[doc = concat!("See [`crate::Communicator::", stringify!($name), "`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`crate::Communicator::", stringify!($name), "`].")]
            pub fn $name $(<$($element: $bound),+>)? (&self, $($argument: $type),*) -> Result<$output> {
                block_on(self.inner.$name($($argument),*))
            }
        )*}
    };
}

blocking! {
    fn barrier() -> ();
    fn broadcast<E: Element>(data: &mut [E], root: usize) -> ();
    fn reduce<E: Element>(data: &mut [E], op: ReduceOp, root: usize) -> ();
    fn reduce_into<E: Element>(input: &[E], output: &mut [E], op: ReduceOp, root: usize) -> ();
    fn reduce_with<E: Pod>(data: &mut [E], reduction: &Reduction<E>, root: usize) -> ();
    fn all_reduce<E: Element>(data: &mut [E], op: ReduceOp) -> ();
    fn all_reduce_into<E: Element>(input: &[E], output: &mut [E], op: ReduceOp) -> ();
    fn all_reduce_scaled<E: Element>(data: &mut [E], factor: E) -> ();
    fn all_reduce_compressed<C: Compressor>(data: &mut [f32], op: ReduceOp, compression: &mut Compression<C>) -> ();
    fn all_reduce_with<E: Pod>(data: &mut [E], reduction: &Reduction<E>) -> ();
    fn all_reduce_min_location<E: Element>(values: &mut [E], locations: &mut [u64]) -> ();
    fn all_reduce_max_location<E: Element>(values: &mut [E], locations: &mut [u64]) -> ();
    fn scan<E: Element>(data: &mut [E], op: ReduceOp) -> ();
    fn scan_into<E: Element>(input: &[E], output: &mut [E], op: ReduceOp) -> ();
    fn scan_with<E: Pod>(data: &mut [E], reduction: &Reduction<E>) -> ();
    fn exclusive_scan<E: Element>(data: &mut [E], op: ReduceOp) -> ();
    fn exclusive_scan_into<E: Element>(input: &[E], output: &mut [E], op: ReduceOp) -> ();
    fn exclusive_scan_with<E: Pod>(data: &mut [E], reduction: &Reduction<E>) -> ();
    fn all_gather<E: Element>(input: &[E], output: &mut [E]) -> ();
    fn all_gather_in_place<E: Element>(data: &mut [E]) -> ();
    fn all_gather_v<E: Element>(input: &[E], output: &mut [E], counts: &[usize]) -> ();
    fn gather<E: Element>(input: &[E], output: &mut [E], root: usize) -> ();
    fn gather_v<E: Element>(input: &[E], output: &mut [E], counts: &[usize], root: usize) -> ();
    fn scatter<E: Element>(input: &[E], output: &mut [E], root: usize) -> ();
    fn scatter_v<E: Element>(input: &[E], counts: &[usize], output: &mut [E], root: usize) -> ();
    fn reduce_scatter<E: Element>(input: &[E], output: &mut [E], op: ReduceOp) -> ();
    fn reduce_scatter_in_place<E: Element>(data: &mut [E], op: ReduceOp) -> ();
    fn reduce_scatter_v<E: Element>(input: &[E], output: &mut [E], counts: &[usize], op: ReduceOp) -> ();
    fn reduce_scatter_with<E: Pod>(input: &[E], output: &mut [E], reduction: &Reduction<E>) -> ();
    fn all_to_all<E: Element>(input: &[E], output: &mut [E]) -> ();
    fn all_to_all_in_place<E: Element>(data: &mut [E]) -> ();
    fn all_to_all_v<E: Element>(input: &[E], send_counts: &[usize], output: &mut [E], recv_counts: &[usize]) -> ();
    fn neighbor_all_to_all<E: Element>(neighbors: &[usize], input: &[E], output: &mut [E]) -> ();
    fn neighbor_all_to_all_v<E: Element>(neighbors: &[usize], input: &[E], send_counts: &[usize], output: &mut [E], recv_counts: &[usize]) -> ();
    fn send<E: Element>(data: &[E], to: usize, tag: u64) -> ();
    fn send_parts<E: Element>(parts: &[&[E]], to: usize, tag: u64) -> ();
}

/// Receives; see the async methods of the same names for what they do and their errors.
impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    /// See [`crate::Communicator::recv`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::recv`].
    pub fn recv<E: Element>(
        &self,
        buffer: &mut [E],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Received> {
        block_on(self.inner.recv(buffer, source, tag))
    }

    /// See [`crate::Communicator::recv_parts`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::recv_parts`].
    pub fn recv_parts<E: Element>(
        &self,
        buffers: &mut [&mut [E]],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Received> {
        block_on(self.inner.recv_parts(buffers, source, tag))
    }

    /// See [`crate::Communicator::recv_vec`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::recv_vec`].
    pub fn recv_vec<E: Element>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        max: usize,
    ) -> Result<(Received, Vec<E>)> {
        block_on(self.inner.recv_vec(source, tag, max))
    }

    /// See [`crate::Communicator::send_recv`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::send_recv`].
    pub fn send_recv<S: Element, R: Element>(
        &self,
        data: &[S],
        to: usize,
        send_tag: u64,
        buffer: &mut [R],
        source: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Received> {
        block_on((self.inner).send_recv(data, to, send_tag, buffer, source, recv_tag))
    }

    /// See [`crate::Communicator::probe`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::probe`].
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Received> {
        block_on(self.inner.probe(source, tag))
    }

    /// See [`crate::Communicator::try_probe`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Communicator::try_probe`].
    pub fn try_probe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Received>> {
        self.inner.try_probe(source, tag)
    }
}
