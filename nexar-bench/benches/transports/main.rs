//! What moves bytes between two processes of one host, side by side: every transport of nexar, plain TCP,
//! TLS over TCP, and the QUIC implementations without nexar. Then collectives on top of each transport.
//!
//! The other side is always a child process of this same program, never a thread: ranks are processes,
//! each with an allocator and a scheduler share of its own, and on a machine with few cores the rate with
//! both ends sending depends on that. Every process runs a `current_thread` runtime. An own
//! subject is one file in `subjects` and one line in [`subjects::all`].
//!
//! `cargo bench -p nexar-bench --bench transports` measures, `nexar-report` makes tables and a chart of the
//! results.

mod channels;
mod keys;
mod peer;
mod ranks;
mod subject;
mod subjects;
mod work;

use criterion::{Criterion, criterion_group};
use std::{
    error::Error,
    process::{ExitCode, exit},
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .without_plots()
        .nresamples(2_000)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(4))
        .sample_size(10);
    targets = channels::measure, ranks::measure
}

fn main() -> ExitCode {
    match peer::role() {
        Ok(None) => {
            benches();
            Criterion::default().configure_from_args().final_summary();
            ExitCode::SUCCESS
        }
        Ok(Some(role)) => {
            or_exit("the peer", peer::run(role));
            ExitCode::SUCCESS
        }
        Err(error) => or_exit("the role of this process", Err(error)),
    }
}

/// criterion's closures cannot fail, and a measurement that did not happen must not look like one.
fn or_exit<T>(what: &str, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => {
            eprintln!("transports: {what}: {error}");
            exit(1)
        }
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
