//! The programs that measure: building them, and starting those of other libraries.

use super::{CompareError, Peer, PeerState, Subject, plan::Line, process};
use crate::files::FileError;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Where things are, and where they go.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Directory of the crate nexar-bench.
    pub package: PathBuf,
    /// Target directory of cargo.
    pub target: PathBuf,
    /// Python, with torch.
    pub python: PathBuf,
}

/// What can measure.
#[derive(Debug)]
pub struct Tools {
    perf: PathBuf,
    sources: Sources,
    peers: BTreeMap<Peer, PeerState>,
}

impl Tools {
    /// Builds nexar-perf, and the programs of the peers that are there.
    ///
    /// # Errors
    ///
    /// [`CompareError`] if nexar-perf cannot be built. What is wrong with a peer stands in [`peers`](Self::peers).
    pub async fn build(sources: Sources, wanted: &[Peer]) -> Result<Self, CompareError> {
        let manifest = sources.package.join("Cargo.toml");
        let mut perf = cargo_build(&manifest, &sources.target);
        perf.args(["-p", "nexar-bench", "--bin", "nexar-perf"]);
        process::build("cargo build of nexar-perf", &mut perf).await?;
        let mut tools = Tools {
            perf: sources.target.join("release/nexar-perf"),
            sources,
            peers: BTreeMap::new(),
        };
        for &peer in wanted {
            let state = match tools.prepare(peer).await {
                Ok(version) => PeerState::Installed(version),
                Err(error) => PeerState::Missing(error.to_string()),
            };
            tools.peers.insert(peer, state);
        }
        Ok(tools)
    }

    /// The peers that were looked for.
    pub fn peers(&self) -> &BTreeMap<Peer, PeerState> {
        &self.peers
    }

    /// nexar-perf.
    pub(super) fn perf(&self) -> &Path {
        &self.perf
    }

    /// Whether it can be measured.
    pub(super) fn has(&self, subject: Subject) -> bool {
        let installed = |peer| matches!(self.peers.get(&peer), Some(PeerState::Installed(_)));
        subject.peer().is_none_or(installed)
    }

    fn directory(&self) -> PathBuf {
        self.sources.target.join("nexar-compare")
    }

    fn openmpi(&self) -> PathBuf {
        self.directory().join("openmpi")
    }

    fn nexar02(&self) -> PathBuf {
        self.directory().join("nexar-0.2")
    }

    /// Builds a peer's program; gives its version.
    async fn prepare(&self, peer: Peer) -> Result<String, CompareError> {
        let source = self.sources.package.join("peers");
        match peer {
            Peer::OpenMpi => {
                let directory = self.directory();
                fs::create_dir_all(&directory).map_err(FileError::of("make", &directory))?;
                let mut mpicc = process::command("mpicc");
                mpicc.args(["-O3", "-o"]).arg(self.openmpi());
                mpicc.arg(source.join("openmpi.c"));
                process::build("mpicc", &mut mpicc).await?;
                let mut mpirun = process::command("mpirun");
                let text = process::output("mpirun", mpirun.arg("--version")).await?;
                Ok(version_of_mpirun(&text))
            }
            Peer::Gloo => {
                let check = "import torch, torch.distributed as d; assert d.is_gloo_available(); \
                             print(torch.__version__)";
                let mut python = process::command(&self.sources.python);
                let name = self.sources.python.display().to_string();
                let text = process::output(&name, python.args(["-c", check])).await?;
                Ok(format!("Gloo of torch {}", text.trim()))
            }
            Peer::Nexar02 => {
                let manifest = source.join("nexar-0.2/Cargo.toml");
                let mut build = cargo_build(&manifest, &self.nexar02());
                process::build("cargo build of nexar 0.2.0", &mut build).await?;
                Ok("nexar 0.2.0".into())
            }
        }
    }

    /// Microseconds of one operation of each line; the lines have the same number of ranks. What has not been
    /// measured is left out.
    pub(super) async fn measure_peer(
        &self,
        subject: Subject,
        lines: &[Line],
    ) -> Result<Vec<(Line, f64)>, CompareError> {
        let Some(ranks) = lines.first().map(|line| line.ranks) else {
            return Ok(Vec::new());
        };
        let (program, args) = self.start(subject, ranks);
        let mut command = process::command(program);
        command.args(args).args(lines.iter().map(item));
        let output = process::output(subject.title(), &mut command).await?;
        Ok(times(lines, &output))
    }

    /// How a peer is started, without what it measures.
    fn start(&self, subject: Subject, ranks: usize) -> (PathBuf, Vec<OsString>) {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        match subject {
            Subject::OpenMpi => {
                // With more ranks than cores, who waits has to give way.
                let wait = if ranks > 2 {
                    " --mca mpi_yield_when_idle 1"
                } else {
                    ""
                };
                let mut args = words(&format!(
                    "--allow-run-as-root --oversubscribe --bind-to none --mca pml ob1 --mca btl tcp,self \
                     --mca btl_tcp_if_include lo{wait} -np {ranks}"
                ));
                args.push(self.openmpi().into());
                ("mpirun".into(), args)
            }
            Subject::Gloo => {
                let script = self.sources.package.join("peers/gloo.py");
                let args = vec![script.into(), ranks.to_string().into()];
                (self.sources.python.clone(), args)
            }
            _ => {
                let config = match subject {
                    Subject::Nexar02Quic => "quic",
                    _ => "default",
                };
                let program = self.nexar02().join("release/peer-nexar-0-2");
                (program, words(&format!("{config} {ranks}")))
            }
        }
    }
}

/// A release build with the versions of the lock file.
fn cargo_build(manifest: &Path, target: &Path) -> tokio::process::Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = process::command(cargo);
    command
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target);
    command
}

/// `Open MPI 4.1.4` of `mpirun (Open MPI) 4.1.4`.
fn version_of_mpirun(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let words = first.trim_start_matches("mpirun").replace(['(', ')'], "");
    words.trim().to_owned()
}

/// A line as the peers' programs take it.
fn item(line: &Line) -> String {
    format!("{}:{}", line.operation.name(), line.bytes)
}

/// What the peers' programs print.
#[derive(Debug, Deserialize)]
struct Record {
    operation: String,
    ranks: usize,
    bytes: usize,
    us: f64,
}

/// The times of the lines in what a peer prints, among which there may be anything else.
fn times(lines: &[Line], output: &str) -> Vec<(Line, f64)> {
    let records = output
        .lines()
        .filter_map(|text| serde_json::from_str::<Record>(text).ok());
    let mut times = Vec::new();
    for record in records {
        let named = lines.iter().find(|line| {
            let name = line.operation.name();
            (name, line.ranks, line.bytes) == (&record.operation, record.ranks, record.bytes)
        });
        match named {
            Some(line) if record.us.is_finite() && record.us > 0.0 => {
                times.push((*line, record.us))
            }
            _ => {}
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::Operation;

    fn tools(state: PeerState) -> Tools {
        Tools {
            perf: "/target/release/nexar-perf".into(),
            sources: Sources {
                package: "/bench".into(),
                target: "/target".into(),
                python: "python3".into(),
            },
            peers: BTreeMap::from([(Peer::OpenMpi, state)]),
        }
    }

    #[test]
    fn times_are_found_between_other_words() {
        let lines = [
            Line::new(Operation::AllReduce, 4, 8),
            Line::new(Operation::Barrier, 4, 0),
            Line::new(Operation::AllToAll, 4, 1 << 20),
        ];
        let output = "\
warning: something\n\
{\"operation\":\"barrier\",\"ranks\":4,\"bytes\":0,\"us\":33.5}\n\
{\"operation\": \"all-reduce\", \"ranks\": 4, \"bytes\": 8, \"us\": 70}\n\
{\"operation\":\"all-reduce\",\"ranks\":2,\"bytes\":8,\"us\":7}\n\
{\"operation\":\"all-to-all\",\"ranks\":4,\"bytes\":1048576,\"us\":0}\n\
{\"operation\":\"all-to-all\"}\n";
        assert_eq!(times(&lines, output), [(lines[1], 33.5), (lines[0], 70.0)]);
    }

    #[test]
    fn peers_are_told_the_ranks_and_the_items() {
        let tools = tools(PeerState::Installed("Open MPI 4".into()));
        let text = |subject, ranks| {
            let (program, args) = tools.start(subject, ranks);
            let words = [program.into_os_string()].into_iter().chain(args);
            words
                .collect::<Vec<_>>()
                .join(" ".as_ref())
                .into_string()
                .unwrap()
        };
        let two = text(Subject::OpenMpi, 2);
        assert!(two.starts_with("mpirun ") && two.ends_with("-np 2 /target/nexar-compare/openmpi"));
        assert!(!two.contains("yield"));
        assert!(text(Subject::OpenMpi, 4).contains("--mca mpi_yield_when_idle 1 -np 4"));
        assert_eq!(text(Subject::Gloo, 8), "python3 /bench/peers/gloo.py 8");
        let older = "/target/nexar-compare/nexar-0.2/release/peer-nexar-0-2";
        assert_eq!(text(Subject::Nexar02, 2), format!("{older} default 2"));
        assert_eq!(text(Subject::Nexar02Quic, 4), format!("{older} quic 4"));
        assert_eq!(
            item(&Line::new(Operation::Stream, 2, 1 << 20)),
            "stream:1048576"
        );
    }

    #[test]
    fn a_peer_that_is_missing_is_not_measured() {
        let there = tools(PeerState::Installed("Open MPI 4".into()));
        assert!(there.has(Subject::OpenMpi) && there.has(Subject::Quinn));
        assert!(!there.has(Subject::Gloo));
        assert!(!tools(PeerState::Missing("no mpicc".into())).has(Subject::OpenMpi));
    }

    #[test]
    fn the_version_is_in_the_first_line() {
        let text = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n";
        assert_eq!(version_of_mpirun(text), "Open MPI 4.1.4");
        assert_eq!(version_of_mpirun(""), "");
    }
}
