//! The cases, each a function of the harness, the end that leads and the end that follows.

mod connections;
mod endings;
mod flow;
mod leaving;
mod lies;
mod messages;
mod outside;
mod streams;

pub use connections::*;
pub use endings::*;
pub use flow::*;
pub use leaving::*;
pub use lies::*;
pub use messages::*;
pub use outside::*;
pub use streams::*;
