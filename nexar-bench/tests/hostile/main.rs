//! Groups on networks that lose, delay, refuse and change: real processes on several "hosts", which are
//! network namespaces of this test's own.
//!
//! Every case runs on each transport alone and on a mixed group. Where namespaces, `ip`, `tc` or `nft` are
//! not to be had, or a transport is not part of the build, a case says so in one line and passes.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests count as tests"
)]

#[macro_use]
mod transports;

mod crowd;
mod cut;
mod hosts;
mod job;
mod loss;
mod net;
mod path;
mod process;
mod rank;
mod relay;
mod stuck;

/// Says that a test does not run, past the capture of the test runner.
fn skip(why: &str) {
    use std::io::Write;
    let test = std::thread::current();
    let name = test.name().unwrap_or("a test");
    let line = format!("skipped: {why} ({name})\n");
    // As the line is for people only, nothing depends on it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
