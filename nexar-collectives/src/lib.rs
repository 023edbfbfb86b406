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
//! See [`Communicator`] for the operations and [`Communicator::from_env`] for the environment.
//!
//! # Features
//!
//! `quinn` (default) and `s2n-quic`, in any combination: [`Backend`]s, chosen at run time, and mixed within a
//! group if need be. Without either, [`Communicator::join`] takes a transport of one's own.
#![warn(missing_docs)]

pub mod blocking;
mod communicator;
pub mod compression;
mod digest;
mod engine;
mod location;
mod schedule;

pub use communicator::{
    Builder, Communicator, MemorySpace, Rank, RawSlice, RawSliceMut, Reduction, SeedRole, Started,
    run_local,
};
pub use nexar_core::{
    Algorithm, Call, Collective, ConfigError, DataType, Element, Error, Failure, JoinError,
    OperationError, ReduceOp, RefuseReason, Result, TimeLimits, UnsupportedReduction, bf16, f16,
    membership,
    messaging::{MessageError, MessageFailure, Received, Source, Tag, WaitingFor},
    transport,
};
pub use nexar_device::{CpuAdapter, DeviceAdapter};
pub use nexar_quic::{AnyTransport, Backend, Identity, IdentityError, Secret};
