//! Where tensors live and how they are reduced.
//!
//! - [`DeviceAdapter`]: how the host reaches a [`Region`] of memory. [`CpuAdapter`] gives a direct view
//!   without a copy; an adapter for an accelerator copies piece by piece through staging slots, with an
//!   in-order [`ExecutionQueue`].
//! - [`DeviceBuffer`]: elements in the memory of a device.
//! - [`reduce`]: vectorised reductions over bytes, for all element types and operations.
//!
//! The feature `testing` adds a simulated device, and a conformance suite for adapters.
//!
//! ```
//! use nexar_core::{DataType, Element, ReduceOp};
//! use nexar_device::reduce;
//!
//! let mut acc = i32::as_bytes(&[1, -5, 7]).to_vec();
//! let incoming = i32::as_bytes(&[3, -9, 2]);
//! reduce::reduce(DataType::I32, ReduceOp::Max, &mut acc, incoming)?;
//! assert_eq!(acc, i32::as_bytes(&[3, -5, 7]));
//! # Ok::<(), reduce::ReduceError>(())
//! ```
#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapter;
mod buffer;
mod copy;
mod cpu;
#[cfg(all(feature = "cuda", target_pointer_width = "64"))]
pub mod cuda;
pub mod reduce;
mod region;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

pub use adapter::{Access, Capabilities, DeviceAdapter, DeviceError, ExecutionQueue};
pub use buffer::DeviceBuffer;
pub use copy::{CopyIn, CopyOut};
pub use cpu::CpuAdapter;
pub use region::{HostView, MemorySpace, Region};
