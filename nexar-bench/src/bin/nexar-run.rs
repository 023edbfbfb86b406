//! Starts the ranks of a program on this machine.

use clap::Parser;
use nexar_bench::{
    launch::{self, Job},
    log, options,
};
use nexar_quic::Backend;
use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
    time::Duration,
};

const DETAILS: &str = "\
Examples:
  nexar-run -n 4 -- target/release/examples/all_reduce
  nexar-run -n 2 --timeout 30 --env RUST_LOG=debug -- ./train --epochs 3

Each line that a rank writes is printed with its rank before it: `[2] loss 0.3`.
The ranks have an empty standard input. Ctrl-C goes to all ranks; pressed twice
it kills them.

When a rank fails, the others get the time of --grace to end with their own
error, then they are stopped. The exit status is that of the first rank that
failed (128 + signal if a signal killed it), 0 if none did, and 2 if the ranks
could not be started.

The ranks get NEXAR_RANK, NEXAR_WORLD_SIZE, NEXAR_SEED, NEXAR_SEED_ROLE and a
fresh NEXAR_SECRET, which Communicator::from_env() reads. Other variables, such
as NEXAR_ALGORITHM, are passed on. NEXAR_LOG=debug shows more of what happens.";

/// Starts N ranks of a program on this machine, and looks after them.
#[derive(Debug, Parser)]
#[command(name = "nexar-run", version, max_term_width = 100, after_help = DETAILS)]
struct Args {
    /// Number of ranks to start
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    ranks: u16,

    /// Transports (quinn, s2n-quic), given to the ranks in turn [default: the program's]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = options::transport)]
    transport: Vec<Backend>,

    /// Time limit in seconds for all ranks to join, and for each operation [default: 60 to join, the
    /// program's for operations]
    #[arg(long, value_name = "SECS", env = "NEXAR_TIMEOUT_SECS", value_parser = options::time_limit)]
    timeout: Option<Duration>,

    /// How many seconds the other ranks may take to end after one has failed
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = options::seconds)]
    grace: Duration,

    /// Sets a variable in the environment of all ranks; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(OsString, OsString)>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

fn variable(text: &str) -> Result<(OsString, OsString), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

impl Args {
    fn job(self) -> Option<Job> {
        let mut command = self.command.into_iter();
        let mut job = Job::new("nexar-run", command.next()?, command, self.ranks.into());
        job.env = self.env;
        job.transports = self.transport;
        job.grace = self.grace;
        if let Some(limit) = self.timeout {
            job.join_limit = limit;
            let seconds = limit.as_secs_f64().to_string();
            job.env
                .push((OsStr::new("NEXAR_TIMEOUT_SECS").into(), seconds.into()));
        }
        Some(job)
    }
}

// One thread, this one: the ranks die with the thread that starts them.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(job) = Args::parse().job() else {
        return ExitCode::from(2);
    };
    if let Err(error) = log::start() {
        eprintln!("nexar-run: {error}");
        return ExitCode::from(2);
    }
    match launch::run(&job).await {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("nexar-run: {error}");
            ExitCode::from(2)
        }
    }
}
