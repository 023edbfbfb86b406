//! Every operation, element type and reduction against a serial model, bit by bit.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod algorithms;
mod alone;
#[path = "../common/mod.rs"]
mod common;
mod exchanges;
mod mixed;
mod model;
mod moves;
mod nan;
mod precision;
mod random;
mod reductions;
mod refused;
mod scans;
mod table;
