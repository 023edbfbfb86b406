//! Running a program to its end.

use super::CompareError;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env, io,
    pin::pin,
    process::{Output, Stdio},
    time::Duration,
};
use tokio::{process::Command, time::timeout};

/// No measurement takes as long.
const LIMIT: Duration = Duration::from_secs(120);

/// What a program gets to end its processes after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// A program without the settings of nexar that this process has: the older crate reads some of the same
/// names.
pub(super) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("NEXAR_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// What the program prints.
///
/// # Errors
///
/// [`CompareError::Process`] if it does not start, fails, or takes longer than two minutes; then it is ended.
pub(super) async fn output(name: &str, command: &mut Command) -> Result<String, CompareError> {
    let error = |reason: String| CompareError::Process {
        program: name.to_owned(),
        reason,
    };
    let started = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = started.map_err(|e| error(not_started(&e)))?;
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    let mut end = pin!(child.wait_with_output());
    let output = match timeout(LIMIT, &mut end).await {
        Ok(output) => output.map_err(|e| error(e.to_string()))?,
        Err(_) => {
            if let Some(pid) = pid {
                // It may have ended at this moment.
                let _ = kill_process(pid, Signal::TERM);
            }
            // It is killed if it does not end by itself.
            let _ = timeout(GRACE, end).await;
            return Err(error(format!("not ready after {} s", LIMIT.as_secs())));
        }
    };
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(error(failure(&output)))
    }
}

/// Runs a build to its end, however long it takes; what it says goes to standard error.
///
/// # Errors
///
/// [`CompareError::Process`] if it does not start or fails.
pub(super) async fn build(name: &str, command: &mut Command) -> Result<(), CompareError> {
    let reason = match command.stdout(Stdio::null()).status().await {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("{status} (its messages are above)"),
        Err(e) => not_started(&e),
    };
    Err(CompareError::Process {
        program: name.to_owned(),
        reason,
    })
}

fn not_started(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "not installed".into(),
        _ => format!("cannot be started: {error}"),
    }
}

/// The status and the last words.
fn failure(output: &Output) -> String {
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    match last {
        Some(line) => format!("{}: {}", output.status, line.trim()),
        None => output.status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_or_the_last_words_come_back() {
        let run = async |script: &str| {
            let mut shell = command("sh");
            output("shell", shell.args(["-c", script])).await
        };
        assert_eq!(run("echo one; echo two").await.unwrap(), "one\ntwo\n");
        let error = run("echo first >&2; echo last >&2; echo >&2; exit 3").await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "shell: exit status: 3: last"
        );
        let error = output("nothing", &mut command("/nonexistent/program")).await;
        assert_eq!(error.unwrap_err().to_string(), "nothing: not installed");
    }
}
