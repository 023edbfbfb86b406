//! The foundation of nexar: element types, errors, the wire format, the transport traits, messaging and
//! membership. It knows no particular network stack and no device.
//!
//! The feature `testing` adds a conformance suite for transports.
#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod call;
mod config;
mod dtype;
mod error;
mod lane;
pub mod membership;
pub mod mesh;
pub mod messaging;
mod op;
pub mod rpc;
pub mod task;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
pub mod transport;
pub mod wire;

pub use call::{Algorithm, Call, Collective, Exchange};
pub use config::TimeLimits;
pub use dtype::{DataType, Element, UnknownName, as_bytes_mut, bf16, f16};
pub use error::{ConfigError, Error, Failure, JoinError, OperationError, RefuseReason, Result};
pub use mesh::Mesh;
pub use op::{ReduceOp, UnsupportedReduction};
