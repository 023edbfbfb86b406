//! Groups that form, fail to form, and come to their end, on an in-memory network with paused time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod forming;
mod leaving;
mod world;
