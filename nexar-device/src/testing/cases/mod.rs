//! The cases, each a function of what it works with.

mod buffers;
mod cancellation;
mod concurrency;
mod copies;
mod memory;
mod order;
mod reductions;
mod slots;

pub use buffers::*;
pub use cancellation::*;
pub use concurrency::*;
pub use copies::*;
pub use memory::*;
pub use order::*;
pub use reductions::*;
pub use slots::*;

use super::{
    Outcome,
    tools::{Queue, slot},
};

/// Why a case for copies does not apply, and why one for views does not.
const IN_PLACE: (&str, &str) = (
    "the host reaches it in place",
    "the host does not reach it in place",
);
