//! On what was measured.

use super::format::date;
use serde::{Deserialize, Serialize};
use std::{fs, process::Command, thread, time::SystemTime};

/// The machine and the build that results belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Number of processors that a program can use at a time.
    pub cores: usize,
    /// The system and its version.
    pub kernel: String,
    /// Version of the compiler.
    pub rustc: String,
    /// The commit, and whether there are changes on top.
    pub commit: String,
}

impl Machine {
    /// This machine, with the compiler and the repository of the working directory. What cannot be found out
    /// is called unknown.
    pub fn this() -> Self {
        Machine {
            cpu: cpu().unwrap_or_else(unknown),
            cores: thread::available_parallelism().map_or(1, Into::into),
            kernel: output("uname", &["-sr"]).unwrap_or_else(unknown),
            rustc: output("rustc", &["--version"]).unwrap_or_else(unknown),
            commit: commit().unwrap_or_else(unknown),
        }
    }

    /// The beginning of a report: when, and on what.
    pub(crate) fn describe(&self, time: SystemTime) -> String {
        format!(
            "{date}, {cpu}, {cores} cores, {kernel}, loopback; {rustc}, commit {commit}.",
            date = date(time),
            cpu = self.cpu,
            cores = self.cores,
            kernel = self.kernel,
            rustc = self.rustc,
            commit = self.commit,
        )
    }
}

fn unknown() -> String {
    "unknown".into()
}

fn cpu() -> Option<String> {
    match fs::read_to_string("/proc/cpuinfo") {
        Ok(text) => model(&text),
        Err(_) => output("sysctl", &["-n", "machdep.cpu.brand_string"]),
    }
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    let name = line.split_once(':')?.1.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn commit() -> Option<String> {
    let commit = output("git", &["rev-parse", "--short", "HEAD"])?;
    let changes = Command::new("git")
        .args(["status", "--porcelain", "--untracked-files=no"])
        // Reports go there; no build depends on it.
        .args(["--", ":(top)", ":(top,exclude)docs"])
        .output()
        .is_ok_and(|output| !output.stdout.is_empty());
    Some(match changes {
        true => format!("{commit} with changes"),
        false => commit,
    })
}

/// The first line that a command prints, if it succeeds.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found() {
        let text = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9R14\nstepping: 1\n";
        assert_eq!(model(text).as_deref(), Some("AMD EPYC 9R14"));
        assert_eq!(model("processor: 0\n"), None);
        assert_eq!(model("model name\t:\n"), None);
    }

    #[test]
    fn nothing_is_left_empty() {
        let machine = Machine::this();
        for text in [machine.cpu, machine.kernel, machine.rustc, machine.commit] {
            assert!(!text.is_empty());
        }
        assert!(machine.cores > 0);
    }
}
