//! Remote calls on the in-memory network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod basics;
mod bodies;
mod cancel;
mod endings;
mod failures;
mod limits;
mod nested;
mod random;
mod streams;
mod world;
