//! Measures collectives in the manner of nccl-tests, and messages and remote calls between two ranks.

mod args;
mod check;
mod collective;
mod help;
mod load;
mod measure;
mod messages;
mod rank;
mod report;
mod rpc;
mod size;
mod sweep;
mod values;

use args::{Args, RuntimeKind};
use clap::Parser;
use nexar_bench::{
    launch::{self, Job, Lines},
    log,
};
use rank::Outcome;
use std::{env, ffi::OsString, process::ExitCode};
use tokio::runtime;

/// Exit status if an element was wrong.
const WRONG: u8 = 1;
/// Exit status if the command line or the environment does not make sense.
const USAGE: u8 = 2;
/// Exit status if the group could not form or an operation failed.
const FAILED: u8 = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    let joined = env::var_os("NEXAR_RANK").is_some_and(|rank| !rank.is_empty());
    let run = if joined { join } else { launch };
    let status = match args.check().and_then(|()| log::start()) {
        Ok(()) => run(args),
        Err(error) => refuse(&error),
    };
    ExitCode::from(status)
}

fn refuse(error: &str) -> u8 {
    eprintln!("nexar-perf: {error}");
    USAGE
}

/// Starts this program again as each of the ranks.
fn launch(args: Args) -> u8 {
    let Some(ranks) = args.ranks else {
        return refuse("-n RANKS says how many ranks to start (or set NEXAR_RANK to be one)");
    };
    if let Err(error) = report::check_writable(args.json.as_deref()) {
        return refuse(&error.to_string());
    }
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return refuse(&format!("cannot find this program: {error}")),
    };
    let own: Vec<OsString> = env::args_os().skip(1).collect();
    let mut job = Job::new("nexar-perf", program, own, ranks.into());
    job.transports = args.transport;
    job.stdout = Lines::Plain;
    if let Some(limit) = args.timeout {
        job.join_limit = limit;
        job.env.push((
            "NEXAR_TIMEOUT_SECS".into(),
            limit.as_secs_f64().to_string().into(),
        ));
    }
    // One thread, this one: the ranks die with the thread that starts them.
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("cannot start a runtime: {error}")),
    };
    runtime
        .block_on(launch::run(&job))
        .unwrap_or_else(|error| refuse(&error.to_string()))
}

/// Is one of the ranks.
fn join(args: Args) -> u8 {
    let mut builder = match args.runtime {
        RuntimeKind::MultiThread => runtime::Builder::new_multi_thread(),
        RuntimeKind::CurrentThread => runtime::Builder::new_current_thread(),
    };
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("cannot start a runtime: {error}")),
    };
    match runtime.block_on(rank::run(&args)) {
        Ok(Outcome::Right) => 0,
        Ok(Outcome::Wrong) => WRONG,
        Err(error) => {
            eprintln!("nexar-perf: {error}");
            if error.is_usage() { USAGE } else { FAILED }
        }
    }
}
