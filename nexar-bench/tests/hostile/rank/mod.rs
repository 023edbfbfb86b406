//! What the processes of the tests run: this program once more, with the task in the environment. They speak to
//! their test by lines on standard output, and hear from it by lines on standard input.

mod messages;
mod reduce;
mod world;

use crate::process::MARK;
use nexar_collectives::Error;
use std::{
    env, io, process, result,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use tokio::runtime;

/// The environment variable with the task: a name and its arguments.
pub(crate) const TASK: &str = "HOSTILE_TASK";

/// Exit status after an error, which has been reported.
pub(crate) const FAILED: i32 = 3;

/// Exit status of a rank whose test is gone.
const ABANDONED: i32 = 4;

/// Threads of a rank's runtime.
const WORKERS: usize = 2;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = result::Result<T, E>;

#[test]
#[ignore = "it is what the processes of the other tests run"]
fn rank() {
    let Ok(task) = env::var(TASK) else { return };
    process::exit(match run(&task) {
        Ok(()) => 0,
        Err(error) => {
            report(&*error);
            FAILED
        }
    });
}

/// Says something to the test.
fn say(line: &str) {
    // In one piece, as several threads may speak.
    println!("{MARK}{line}");
}

fn report(error: &(dyn std::error::Error + Send + Sync + 'static)) {
    match error.downcast_ref::<Error>() {
        Some(typed) => {
            let kind = if typed.is_peer_failure() {
                "peers"
            } else {
                "other"
            };
            say(&format!("failed {kind} {:?} {typed}", typed.failed_ranks()));
        }
        None => say(&format!("failed other [] {error}")),
    }
}

fn run(task: &str) -> Result<()> {
    let words: Vec<&str> = task.split(' ').collect();
    if let ["relay", millis, listen, target] = words[..] {
        let delay = Duration::from_millis(millis.parse()?);
        let ready = || say("ready");
        return Ok(crate::relay::run(
            delay,
            listen.parse()?,
            target.parse()?,
            ready,
        )?);
    }
    let orders = Orders::listen();
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match words[..] {
            ["reduce", elements] => reduce::run(&orders, elements.parse()?).await,
            ["messages", count, length] => {
                messages::in_a_row(count.parse()?, length.parse()?).await
            }
            ["stream", from] => messages::stream(&orders, from.parse()?).await,
            ["beside", length] => messages::beside(length.parse()?).await,
            ["everybody", length] => messages::everybody(length.parse()?).await,
            ["half-read", length, times] => {
                messages::half_read(length.parse()?, times.parse()?).await
            }
            _ => Err(format!("there is no task {task:?}").into()),
        }
    })
}

/// What the test wants of a rank that runs, and how far it is.
#[derive(Default)]
struct Orders {
    stop: AtomicBool,
    /// Seconds for which to block all threads.
    block: AtomicU64,
    position: AtomicU64,
}

impl Orders {
    /// Obeys standard input from now on.
    fn listen() -> Arc<Orders> {
        let orders = Arc::new(Orders::default());
        let hearing = Arc::clone(&orders);
        thread::spawn(move || {
            for line in io::stdin().lines().map_while(io::Result::ok) {
                match line.split_once(' ').unwrap_or((&line, "")) {
                    ("stop", _) => hearing.stop.store(true, Relaxed),
                    ("block", seconds) => {
                        hearing.block.store(seconds.parse().unwrap_or(0), Relaxed);
                    }
                    ("where", _) => say(&format!("here {}", hearing.position.load(Relaxed))),
                    _ => {}
                }
            }
            process::exit(ABANDONED);
        });
        orders
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// One step more is done.
    fn step(&self, what: &str) -> u64 {
        let position = self.position.fetch_add(1, Relaxed) + 1;
        say(&format!("{what} {position}"));
        position
    }

    /// Blocks every thread of the runtime and this one, if the test wants it.
    async fn block(&self) -> Result<()> {
        let seconds = Duration::from_secs(self.block.swap(0, Relaxed));
        if seconds.is_zero() {
            return Ok(());
        }
        say("blocking");
        let blockers: Vec<_> = (0..WORKERS)
            .map(|_| tokio::spawn(async move { thread::sleep(seconds) }))
            .collect();
        thread::sleep(seconds);
        for blocker in blockers {
            blocker.await?;
        }
        say("unblocked");
        Ok(())
    }
}
