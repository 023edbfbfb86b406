//! Point-to-point messages on the in-memory network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod basics;
mod bodies;
mod cancel;
mod endings;
mod limits;
mod random;
mod typed;
mod world;
