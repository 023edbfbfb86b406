//! What is measured: messages, kernels, and algorithms beside what the model says of them.

use nexar_collectives::{
    Algorithm, Collective,
    tune::{self, Hosts, Machine},
};
use serde::Deserialize;
use std::{
    hint::black_box,
    io::{self, Write},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The sizes between which algorithms are compared, in bytes: as nexar-perf counts them.
const SMALLEST: usize = 1 << 10;
const LARGEST: usize = 16 << 20;
const FACTOR: usize = 4;

/// A size with which the cost of a message hardly counts.
const LONG: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    #[error("cannot run {path}: {source}; build it with `cargo build --release -p nexar-bench`, or name it with --perf", path = path.display())]
    Start { path: PathBuf, source: io::Error },
    #[error("{command} failed: {output}")]
    Failed { command: String, output: String },
    #[error("{command} printed what is no result: {source}")]
    Result {
        command: String,
        source: serde_json::Error,
    },
    #[error("{command} printed too few results")]
    Missing { command: String },
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// The program that measures.
pub(crate) struct Perf(pub(crate) PathBuf);

/// What messages between two ranks cost.
pub(crate) struct Messages {
    /// Half of a round trip of 8 bytes.
    pub(crate) latency_us: f64,
    /// One of a stream of messages of 8 bytes.
    pub(crate) overhead_us: f64,
    /// In a stream of long messages.
    pub(crate) handling_ns_per_byte: f64,
}

/// A JSON line of messages.
#[derive(Deserialize)]
struct MessageLine {
    bytes: usize,
    p50_us: f64,
    messages_per_s: f64,
}

/// A JSON line of a collective.
#[derive(Deserialize)]
struct CollectiveLine {
    bytes: usize,
    p50_us: f64,
}

impl Perf {
    fn run<T: for<'a> Deserialize<'a>>(
        &self,
        args: &[&str],
        algorithm: Option<String>,
    ) -> Result<Vec<T>, MeasureError> {
        let mut command = Command::new(&self.0);
        command.args(args).args(["--check", "off", "--json", "-"]);
        command.env_remove("NEXAR_RANK").stdin(Stdio::null());
        if let Some(algorithm) = algorithm {
            command.env("NEXAR_ALGORITHM", algorithm);
        }
        let output = command.output().map_err(|source| MeasureError::Start {
            path: self.0.clone(),
            source,
        })?;
        let command = format!("nexar-perf {}", args.join(" "));
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(MeasureError::Failed { command, output });
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().map(serde_json::from_str);
        let lines: Result<_, _> = lines.collect();
        lines.map_err(|source| MeasureError::Result { command, source })
    }

    /// What messages between two ranks on this machine cost.
    pub(crate) fn messages(&self) -> Result<Messages, MeasureError> {
        let (min, max) = ("8", LONG.to_string());
        let factor = (LONG / 8).to_string();
        let args = ["send-recv", "-n", "2", "-b", min, "-e", &max, "-f", &factor];
        let lines: Vec<MessageLine> = self.run(&args, None)?;
        match lines.as_slice() {
            [short, .., long] if short.messages_per_s > 0.0 && long.messages_per_s > 0.0 => {
                let overhead_us = 1e6 / short.messages_per_s;
                let parts = long.bytes.div_ceil(tune::PART) as f64;
                let long_ns = 1e9 / long.messages_per_s - 1e3 * overhead_us * parts;
                Ok(Messages {
                    latency_us: short.p50_us,
                    overhead_us,
                    handling_ns_per_byte: long_ns.max(0.0) / long.bytes as f64,
                })
            }
            _ => Err(MeasureError::Missing {
                command: args.join(" "),
            }),
        }
    }

    /// The times of a collective by size.
    fn collective(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        ranks: u16,
    ) -> Result<Vec<CollectiveLine>, MeasureError> {
        let name = collective.name().replace('_', "-");
        let [ranks, min, max, factor] =
            [usize::from(ranks), SMALLEST, LARGEST, FACTOR].map(|n| n.to_string());
        let args = [
            name.as_str(),
            "-n",
            &ranks,
            "-b",
            &min,
            "-e",
            &max,
            "-f",
            &factor,
        ];
        self.run(&args, Some(format!("{}:{algorithm}", collective.name())))
    }
}

/// The time of a kernel per byte, over a segment that stays in the cache: the best of some runs.
pub(crate) fn kernel_ns_per_byte(kernel: fn(&mut [f32], &[f32])) -> f64 {
    const ELEMENTS: usize = 16 << 10;
    const ROUNDS: u32 = 64;
    let (mut into, from) = (vec![1.0f32; ELEMENTS], vec![1e-9f32; ELEMENTS]);
    let mut best = Duration::MAX;
    for _ in 0..32 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            kernel(black_box(&mut into), black_box(&from));
        }
        best = best.min(start.elapsed() / ROUNDS);
    }
    best.as_nanos() as f64 / (ELEMENTS * size_of::<f32>()) as f64
}

/// Bytes of a block, of what nexar-perf calls the size: it counts the blocks of all ranks.
fn block(collective: Collective, ranks: usize, bytes: usize) -> usize {
    match collective {
        Collective::AllGather
        | Collective::Gather
        | Collective::Scatter
        | Collective::ReduceScatter
        | Collective::AllToAll
        | Collective::AllToAllV => bytes / ranks,
        _ => bytes,
    }
}

/// Measures each algorithm and prints what the model says beside it.
pub(crate) fn compare(
    perf: &Perf,
    machine: &Machine,
    collectives: &[Collective],
    worlds: &[u16],
) -> Result<(), MeasureError> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "collective      ranks  size (B)   algorithm            measured (us)  model (us)  model / measured"
    )?;
    for collective in collectives {
        for &ranks in worlds {
            for &algorithm in tune::algorithms(*collective) {
                for line in perf.collective(*collective, algorithm, ranks)? {
                    let world = usize::from(ranks);
                    let bytes = block(*collective, world, line.bytes);
                    let (model, hosts) = (*collective, Hosts::One);
                    let model = tune::predict(machine, hosts, model, algorithm, world, bytes);
                    let model = model.map_or(f64::NAN, |ns| ns / 1e3);
                    let (name, size, measured) = (collective.name(), line.bytes, line.p50_us);
                    let factor = model / measured;
                    writeln!(
                        out,
                        "{name:<15} {ranks:>5}  {size:>8}   {algorithm:<20} {measured:>13.1}  {model:>10.1}  {factor:>16.2}",
                        algorithm = algorithm.name(),
                    )?;
                }
            }
        }
    }
    Ok(())
}
