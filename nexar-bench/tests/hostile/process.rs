//! Processes that a test starts, listens to and ends.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// Comes before what a rank says to its test on standard output.
pub(crate) const MARK: &str = "@ ";

/// A process of which standard output is read line by line. Dropping it ends it.
pub(crate) struct Process {
    name: String,
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Starts it with an environment that describes no group but for what `command` sets.
    pub(crate) fn start(name: String, command: &mut Command) -> Process {
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("NEXAR_")) {
            if !command.get_envs().any(|(set, _)| set == name) {
                command.env_remove(name);
            }
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::default();
        let (sender, lines) = mpsc::channel();
        let start = Instant::now();
        follow(child.stdout.take().unwrap(), start, &log, Some(sender));
        follow(child.stderr.take().unwrap(), start, &log, None);
        let stdin = child.stdin.take().unwrap();
        Process {
            name,
            child,
            stdin,
            lines,
            log,
        }
    }

    /// Waits for a line that begins with `start`; gives the rest of it.
    pub(crate) fn expect(&self, start: &str, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(start) {
                        return rest.trim().to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.fail(&format!("no {start:?} within {limit:?}"))
                }
                Err(RecvTimeoutError::Disconnected) => self.fail(&format!("no {start:?}")),
            }
        }
    }

    /// Waits for a line of `start` and a number that is at least `least`.
    pub(crate) fn reaches(&self, start: &str, least: u64, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.number(start, deadline.saturating_duration_since(Instant::now())) < least {}
    }

    /// Waits for a line of `start` and a number.
    pub(crate) fn number(&self, start: &str, limit: Duration) -> u64 {
        let text = self.expect(start, limit);
        match text.parse() {
            Ok(number) => number,
            Err(_) => self.fail(&format!("{start} {text:?} is no number")),
        }
    }

    /// How far it is by now.
    pub(crate) fn position(&mut self) -> u64 {
        self.say("where");
        self.number("here", Duration::from_secs(5))
    }

    /// Waits for the end; gives the exit status.
    pub(crate) fn exit(&mut self, limit: Duration) -> Option<i32> {
        let start = Instant::now();
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.code(),
                None if start.elapsed() > limit => {
                    self.fail(&format!("it still runs after {limit:?}"))
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Waits for an end without a failure.
    pub(crate) fn succeeds(&mut self, limit: Duration) {
        let status = self.exit(limit);
        if status != Some(0) {
            self.fail(&format!("exit status {status:?}"));
        }
    }

    /// Sends a line to its standard input.
    pub(crate) fn say(&mut self, line: &str) {
        if let Err(error) = writeln!(self.stdin, "{line}") {
            self.fail(&format!("it does not hear {line:?}: {error}"));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Its resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes: u64 = line
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kilobytes << 10
    }

    /// Fails the test, with all that the process said.
    pub(crate) fn fail(&self, what: &str) -> ! {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let last = log.len().saturating_sub(40);
        panic!("{}: {what}; it said {:#?}", self.name, &log[last..]);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines until the end: all into the log with the time since `start`, and to the test what is meant for it.
fn follow(
    source: impl Read + Send + 'static,
    start: Instant,
    log: &Arc<Mutex<Vec<String>>>,
    lines: Option<mpsc::Sender<String>>,
) {
    let log = Arc::clone(log);
    thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            log.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(format!("{:.3} s: {line}", start.elapsed().as_secs_f64()));
            if let Some(lines) = &lines {
                // The test runner's own words may come before on the same line.
                let said = line.split_once(MARK).map_or(&*line, |(_, said)| said);
                let _ = lines.send(said.to_owned());
            }
        }
    });
}
