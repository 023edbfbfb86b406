//! The foundation of nexar: element types, errors, the wire format, the transport traits, messaging and
//! membership. It knows no particular network stack and no device.
#![warn(missing_docs)]

mod dtype;
mod op;
pub mod transport;

pub use dtype::{DataType, Element, UnknownName, as_bytes_mut, bf16, f16};
pub use op::{ReduceOp, UnsupportedReduction};
