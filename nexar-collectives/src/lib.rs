//! Collective operations between processes, over encrypted QUIC.
//!
//! A program of several processes ("ranks") joins a group and then works on it:
//!
//! ```no_run
//! use nexar_collectives::{Communicator, ReduceOp};
//!
//! #[tokio::main]
//! async fn main() -> nexar_collectives::Result<()> {
//!     let comm = Communicator::from_env().await?;
//!     let mut grads = vec![comm.rank() as f32; 1 << 20];
//!     comm.all_reduce(&mut grads, ReduceOp::Sum).await?;
//!     comm.shutdown().await
//! }
//! ```
//!
//! Several ranks in one process, for tests and examples:
//!
//! ```
//! use nexar_collectives::{ReduceOp, run_local};
//!
//! let sums = run_local(3, async |comm| {
//!     let mut data = [comm.rank() as u32 + 1];
//!     comm.all_reduce(&mut data, ReduceOp::Sum).await?;
//!     Ok(data[0])
//! })?;
//! assert_eq!(sums, [6, 6, 6]);
//! # Ok::<(), nexar_collectives::Error>(())
//! ```
//!
//! # Where to look
//!
//! | | |
//! |---|---|
//! | the operations, each with a table of values and an example | [`Communicator`](Communicator#operations) |
//! | how calls, buffers and failures work | [`Communicator`](Communicator#calls) |
//! | how a group forms | [`Communicator::from_env`], [`Communicator::builder`], [`Communicator::join`] |
//! | element types and reductions | [`Element`], [`ReduceOp`], [`Reduction`] |
//! | messages by source and tag | [`Communicator::send`], [`Communicator::recv`] |
//! | operations that go on by themselves | [`Started`] |
//! | without async | [`blocking`] |
//! | fewer bytes for results that are not exact | [`compression`] |
//! | what went wrong, and what to do | [`Error`], [`Failure`], [`MessageFailure`] |
//! | memory of a GPU or another device | [`OnDevice`], [`DeviceBuffer`] |
//! | memory that is given by its address | [`RawSlice`], [`RawSliceMut`] |
//!
//! # Features
//!
//! `quinn` (default) and `s2n-quic`, in any combination: [`Backend`]s, chosen at run time, and mixed within a
//! group if need be. Without either, [`Communicator::join`] takes a transport of one's own. `cuda`: the adapter for NVIDIA
//! GPUs, which needs their driver when it runs and nothing when it is built.
#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod blocking;
mod communicator;
pub mod compression;
mod digest;
mod engine;
mod location;
mod schedule;
#[cfg(any(test, feature = "tune"))]
#[doc(hidden)]
pub mod tune;

pub use communicator::{
    Builder, Communicator, OnDevice, Rank, RawSlice, RawSliceMut, Reduction, SeedRole, Started,
    run_local, run_local_on,
};
pub use nexar_core::{
    Algorithm, Call, Collective, ConfigError, DataType, Element, Error, Failure, JoinError,
    OperationError, ReduceOp, RefuseReason, Result, TimeLimits, UnsupportedReduction, bf16, f16,
    membership,
    messaging::{MessageError, MessageFailure, Received, Source, Tag, WaitingFor},
    rpc, transport,
};
#[cfg(feature = "cuda")]
#[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
pub use nexar_device::cuda;
pub use nexar_device::{
    Capabilities, CpuAdapter, DeviceAdapter, DeviceBuffer, DeviceError, MemorySpace, Region,
};
pub use nexar_quic::{AnyTransport, Backend, Identity, IdentityError, Secret};
