//! Running the tools.

#![allow(dead_code, reason = "not every test file uses all of it")]

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

pub(crate) const PERF: &str = env!("CARGO_BIN_EXE_nexar-perf");
pub(crate) const RUN: &str = env!("CARGO_BIN_EXE_nexar-run");

/// The tool with an environment that describes no group.
pub(crate) fn command(tool: &str, args: &[&str]) -> Command {
    let mut command = Command::new(tool);
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("NEXAR_")) {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) fn output(tool: &str, args: &[&str]) -> Output {
    command(tool, args).output().unwrap()
}

/// `nexar-run` with a shell script as the program.
pub(crate) fn script(options: &[&str], script: &str) -> Command {
    let mut command = command(RUN, options);
    command.args(["--", "sh", "-c", script]);
    command
}

pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8(bytes.to_vec())
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// A tool that runs while the test looks at its output.
pub(crate) struct Running {
    child: Child,
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) stderr: BufReader<ChildStderr>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Running {
            child,
            stdout,
            stderr,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.child.id(), signal);
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        drop(self.stdout);
        self.child.wait().unwrap()
    }

    /// Waits for the end; gives the remaining lines of both streams.
    pub(crate) fn finish(mut self) -> (ExitStatus, Vec<String>, Vec<String>) {
        let stderr = thread::spawn(move || self.stderr.lines().map_while(Result::ok).collect());
        let stdout = self.stdout.lines().map_while(Result::ok).collect();
        (self.child.wait().unwrap(), stdout, stderr.join().unwrap())
    }
}

/// The next line.
pub(crate) fn line(source: &mut impl BufRead) -> String {
    let mut line = String::new();
    source.read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "the output ended");
    line.trim_end().to_owned()
}

/// The next `count` lines, sorted.
pub(crate) fn sorted(source: &mut impl BufRead, count: usize) -> Vec<String> {
    let mut lines: Vec<String> = (0..count).map(|_| line(source)).collect();
    lines.sort();
    lines
}

pub(crate) fn send_signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Whether a process runs; one that nobody has waited for does not.
pub(crate) fn runs(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    !stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .trim_start()
        .starts_with(['Z', 'X'])
}

/// Polls until the process has ended.
pub(crate) fn wait_for_end(pid: u32) {
    let start = Instant::now();
    while runs(pid) {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "process {pid} still runs"
        );
        thread::sleep(Duration::from_millis(5));
    }
}
