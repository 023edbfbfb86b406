//! Starts the ranks of a program on this machine and looks after them.
//!
//! The launcher serves the seed at which the ranks find each other, on a loopback port that the system
//! chooses, and gives every rank a fresh secret. The secret is in the ranks' environment only, never on a
//! command line.

mod child;
mod descriptors;
mod output;
mod seed;
mod supervise;

use nexar_collectives::{IdentityError, transport::ConnectionError};
use nexar_quic::Backend;
use std::{ffi::OsString, io, time::Duration};

/// How long a rank may take to end after `SIGTERM` before it is killed.
pub const TERMINATION_LIMIT: Duration = Duration::from_secs(2);

/// How long the ranks that are left get by default after one has failed: a little more than they need to
/// notice it themselves.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// A program to start as several ranks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Job {
    /// Name of the launching tool, which starts its messages.
    pub tool: String,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Number of ranks.
    pub world_size: usize,
    /// Variables to set for every rank, in addition to the launcher's own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Transports, given to the ranks in turn; empty leaves the choice to the program.
    pub transports: Vec<Backend>,
    /// How long all ranks may take to join.
    pub join_limit: Duration,
    /// How long the other ranks may take to end after one has failed.
    pub grace: Duration,
    /// What to do with the standard output of the ranks.
    pub stdout: Lines,
}

/// What to do with a stream of output of the ranks. Lines are never mixed; one longer than
/// [`MAX_LINE`](Self::MAX_LINE) is broken into several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lines {
    /// Write each line with the rank before it: `[2] line`.
    #[default]
    Prefixed,
    /// Write the lines as they are.
    Plain,
}

impl Lines {
    /// Longest line that stays whole, in bytes.
    pub const MAX_LINE: usize = 64 << 10;
}

impl Job {
    /// `world_size` ranks of `program`, with the default limits.
    pub fn new(
        tool: impl Into<String>,
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = OsString>,
        world_size: usize,
    ) -> Self {
        Job {
            tool: tool.into(),
            program: program.into(),
            args: args.into_iter().collect(),
            world_size,
            env: Vec::new(),
            transports: Vec::new(),
            join_limit: Duration::from_secs(60),
            grace: DEFAULT_GRACE,
            stdout: Lines::default(),
        }
    }
}

/// Why ranks could not be started or watched. None is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The program could not be started.
    #[error("cannot start {program:?}: {source}")]
    Start {
        /// The program.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// The system refused signal handlers, a thread or a pipe.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// This process may not open enough files to watch so many ranks.
    #[error(
        "starting rank {rank}: this process may have {limit} open files, {world_size} ranks need about \
         {needed}: raise the limit (`ulimit -n`)"
    )]
    Descriptors {
        /// The rank that could not be started.
        rank: usize,
        /// Number of ranks.
        world_size: usize,
        /// The limit of this process.
        limit: u64,
        /// About how many it needs.
        needed: u64,
    },
    /// The identity of the seed could not be made.
    #[error("making the secret of the group: {0}")]
    Identity(#[from] IdentityError),
    /// The address of the seed could not be listened on.
    #[error("opening the seed on the loopback interface: {0}")]
    Seed(#[from] ConnectionError),
}

/// Runs a job until all its ranks have ended, and returns the exit status that the launcher should end with:
/// 0 if all ranks ended with 0, otherwise that of the first that did not (128 + signal if a signal
/// killed it).
///
/// - Standard output and error of the ranks go to those of this process line by line; standard input is empty.
/// - `SIGINT`, `SIGTERM` and `SIGHUP` are forwarded to all ranks; a second one kills them.
/// - Every rank is the leader of a process group of its own, and signals go to the whole group.
/// - When a rank fails, the others get [`Job::grace`] to end with their own error, then `SIGTERM`, and
///   `SIGKILL` [`TERMINATION_LIMIT`] later.
/// - The launcher needs three open files for each rank; the soft limit of this process is raised to the hard
///   one, and the ranks get the old one.
/// - On Linux the ranks are killed when this process dies, whatever kills it. The system ties this to the calling
///   thread: call this from one that lives as long as the process, such as the main thread, with
///   `block_on`.
///
/// Memory: less than 10 MiB for output that the standard output does not take; beyond that the ranks wait in
/// their writes.
///
/// # Errors
///
/// [`LaunchError`].
///
/// # Cancel safety
///
/// Dropping the future kills the ranks.
///
/// # Example
///
/// ```no_run
/// use nexar_bench::launch::{self, Job};
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), launch::LaunchError> {
///     let mut job = Job::new("my-launcher", "./train", ["--epochs".into(), "3".into()], 4);
///     job.env.push(("RUST_LOG".into(), "info".into()));
///     let status = launch::run(&job).await?;
///     std::process::exit(status.into());
/// }
/// ```
pub async fn run(job: &Job) -> Result<u8, LaunchError> {
    supervise::run(job).await
}

impl LaunchError {
    fn system(doing: &'static str) -> impl FnOnce(io::Error) -> LaunchError {
        move |source| LaunchError::System { doing, source }
    }
}
