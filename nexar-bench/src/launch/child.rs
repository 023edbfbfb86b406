//! Starting one rank, and sending signals to it.

use super::{Job, LaunchError, descriptors::Limit, seed::Seed};
use rustix::process::{Pid, Signal, kill_process_group};
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, Command};

/// Variables that describe another way into a group than the launcher's.
const REMOVED: [&str; 6] = [
    "NEXAR_SECRET_FILE",
    "NEXAR_CERT",
    "NEXAR_KEY",
    "NEXAR_CA",
    "NEXAR_BIND",
    "NEXAR_ADVERTISE",
];

pub(super) fn spawn(
    job: &Job,
    seed: &Seed,
    limit: Limit,
    rank: usize,
) -> Result<Child, LaunchError> {
    let mut command = Command::new(&job.program);
    command.args(&job.args);
    for name in REMOVED {
        command.env_remove(name);
    }
    command.envs(job.env.iter().map(|(name, value)| (name, value)));
    command
        .env("NEXAR_RANK", rank.to_string())
        .env("NEXAR_WORLD_SIZE", job.world_size.to_string())
        .env("NEXAR_SEED", seed.address().to_string())
        .env("NEXAR_SEED_ROLE", "join")
        .env("NEXAR_JOB", seed.job())
        .env("NEXAR_SECRET", seed.secret().expose());
    if !job.transports.is_empty() {
        command.env(
            "NEXAR_TRANSPORT",
            job.transports[rank % job.transports.len()].name(),
        );
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let restore = move || limit.restore().map_err(Into::into);
    // SAFETY: between fork and exec the closure only makes one system call, which is safe there.
    unsafe { command.pre_exec(restore) };
    die_with_parent(&mut command);
    command.spawn().map_err(|source| LaunchError::Start {
        program: job.program.clone(),
        source,
    })
}

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the call above.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(rustix::io::Errno::SRCH.into()),
        }
    };
    // SAFETY: between fork and exec the closure only makes two system calls, which are safe there; it
    // neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_command: &mut Command) {}

/// Sends a signal to a rank and what it has started, if it has not been waited for.
pub(super) fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.id() {
        signal_group(pid, signal);
    }
}

/// Sends a signal to the process group of a rank. An error means that it has ended.
pub(super) fn signal_group(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}

/// The exit status in the convention of shells.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
