//! Watching the ranks until all have ended.

use super::{
    Job, LaunchError, TERMINATION_LIMIT,
    child::{self, exit_code, signal_group},
    descriptors::{self, Limit},
    output::Output,
    seed::Seed,
};
use rustix::process::Signal;
use std::{
    fmt,
    future::{Future, poll_fn},
    io::{self, Write},
    pin::pin,
    process::ExitStatus,
    task::Poll,
    time::Duration,
};
use tokio::{
    process::Child,
    signal::unix::{self, SignalKind},
    time::{Instant, sleep_until},
};

/// Longest grace, so that the time at which it ends can be represented.
const MAX_GRACE: Duration = Duration::from_secs(86_400 * 365);

/// What is to happen to ranks that do not end by themselves.
enum Stage {
    /// All is well.
    Running,
    /// One has failed; the others get `SIGTERM` at this time.
    Grace(Instant),
    /// They have got it, and are killed at this time.
    Terminating(Instant),
    /// They have been killed.
    Killed,
}

struct Supervisor<'a> {
    job: &'a Job,
    /// The ranks that have not ended.
    ranks: Vec<Option<Child>>,
    stage: Stage,
    /// Exit status of the first rank that failed.
    failed: Option<u8>,
    interrupted: bool,
}

pub(super) async fn run(job: &Job) -> Result<u8, LaunchError> {
    let limit = Limit::raise();
    let mut signals = Signals::new()?;
    let seed = Seed::open()?;
    let mut output = Output::start()?;
    let mut ranks = Vec::with_capacity(job.world_size);
    for rank in 0..job.world_size {
        let mut child = child::spawn(job, &seed, limit, rank)
            .map_err(|error| descriptors::explain(error, rank, job.world_size))?;
        output.add_stdout(rank, job.stdout, child.stdout.take());
        output.add_stderr(rank, child.stderr.take());
        ranks.push(Some(child));
    }
    let mut supervisor = Supervisor {
        job,
        ranks,
        stage: Stage::Running,
        failed: None,
        interrupted: false,
    };
    let mut forming = pin!(seed.serve(job));
    let mut formed = false;
    while supervisor.ranks.iter().any(Option::is_some) {
        let deadline = supervisor.deadline();
        tokio::select! {
            (rank, status) = next_end(&mut supervisor.ranks) => supervisor.ended(rank, status),
            signal = signals.next() => supervisor.forward(signal),
            () = wait_until(deadline) => supervisor.advance(),
            result = &mut forming, if !formed => {
                formed = true;
                if let Err(error) = result {
                    supervisor.say(format_args!("{error}"));
                }
            }
        }
    }
    tokio::select! {
        () = output.finish() => {}
        _ = signals.next() => {}
    }
    Ok(supervisor.failed.unwrap_or(0))
}

impl Supervisor<'_> {
    fn say(&self, message: fmt::Arguments<'_>) {
        // If standard error is gone there is nobody to tell.
        let _ = writeln!(io::stderr(), "{}: {message}", self.job.tool);
    }

    fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running | Stage::Killed => None,
            Stage::Grace(at) | Stage::Terminating(at) => Some(at),
        }
    }

    fn left(&self) -> usize {
        self.ranks.iter().flatten().count()
    }

    fn ended(&mut self, rank: usize, (pid, status): (Option<u32>, io::Result<ExitStatus>)) {
        if let (Stage::Terminating(_) | Stage::Killed, Some(pid)) = (&self.stage, pid) {
            // What the rank has started goes with it.
            signal_group(pid, Signal::KILL);
        }
        let (code, how) = match status {
            Ok(status) if status.success() => return,
            Ok(status) => (exit_code(status), status.to_string()),
            Err(error) => (1, format!("cannot be watched: {error}")),
        };
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(code);
        self.say(format_args!("rank {rank} failed ({how})"));
        if matches!(self.stage, Stage::Running) {
            self.stage = Stage::Grace(Instant::now() + self.job.grace.min(MAX_GRACE));
        }
    }

    /// Passes a signal on; the second time the ranks are killed.
    fn forward(&mut self, signal: Signal) {
        if self.interrupted {
            self.kill();
        } else {
            self.interrupted = true;
            self.send(signal);
        }
    }

    /// Takes the next step against ranks that have not ended in time.
    fn advance(&mut self) {
        match self.stage {
            Stage::Running | Stage::Killed => {}
            Stage::Grace(_) => {
                let grace = self.job.grace.as_secs_f32();
                let ranks = counted(self.left());
                self.say(format_args!(
                    "stopping {ranks}: {grace} s have passed since the failure"
                ));
                self.send(Signal::TERM);
                self.stage = Stage::Terminating(Instant::now() + TERMINATION_LIMIT);
            }
            Stage::Terminating(_) => self.kill(),
        }
    }

    fn kill(&mut self) {
        self.say(format_args!("killing {}", counted(self.left())));
        self.send(Signal::KILL);
        self.stage = Stage::Killed;
    }

    fn send(&self, signal: Signal) {
        self.ranks
            .iter()
            .flatten()
            .for_each(|rank| child::signal(rank, signal));
    }
}

fn counted(ranks: usize) -> String {
    if ranks == 1 {
        "1 rank".into()
    } else {
        format!("{ranks} ranks")
    }
}

/// Waits for the next rank to end and takes it out.
async fn next_end(ranks: &mut [Option<Child>]) -> (usize, (Option<u32>, io::Result<ExitStatus>)) {
    poll_fn(|cx| {
        for (rank, slot) in ranks.iter_mut().enumerate() {
            let Some(child) = slot else { continue };
            let pid = child.id();
            let waited = pin!(child.wait()).poll(cx);
            if let Poll::Ready(status) = waited {
                *slot = None;
                return Poll::Ready((rank, (pid, status)));
            }
        }
        Poll::Pending
    })
    .await
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The signals that are forwarded.
struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, LaunchError> {
        let listen =
            |kind| unix::signal(kind).map_err(LaunchError::system("installing signal handlers"));
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
