//! The cases, each a function of the harness, the end that leads and the end that follows.

mod connections;
mod endings;
mod flow;
mod streams;

pub use connections::*;
pub use endings::*;
pub use flow::*;
pub use streams::*;
