//! The command line.

use crate::size::{self, Sweep};
use clap::{Parser, ValueEnum};
use nexar_bench::options;
use nexar_collectives::{DataType, ReduceOp};
use nexar_quic::Backend;
use std::{fmt, path::PathBuf, time::Duration};

const EXAMPLES: &str = "\
Examples:
  nexar-perf all-reduce -n 4                   8 B to 64 MiB, f32 sum
  nexar-perf all-reduce -n 2 --dtype bf16 --op max --max 1M
  nexar-perf broadcast -n 3 --root 2 --min 1M --max 1G --factor 4
  nexar-perf barrier -n 8 --json -             one JSON object per line
  nexar-run -n 2 -- nexar-perf all-gather      started by something else";

const DETAILS: &str = "\
Across hosts, start one nexar-perf per rank with NEXAR_RANK, NEXAR_WORLD_SIZE,
NEXAR_SEED (host:port of rank 0) and NEXAR_SECRET in the environment.

Columns, as in nccl-tests:
  size    bytes of the buffer; of the larger one for all-gather and
          reduce-scatter (the blocks of all ranks together). A size that is no
          multiple of the element (and of the ranks) is rounded down.
  count   elements; those of one rank for all-gather and reduce-scatter
  time    of one operation: back-to-back operations divided by their number,
          slowest rank, median of five loops
  algbw   size / time, in GB/s (1e9 bytes)
  busbw   algbw times 2(n-1)/n for all-reduce, (n-1)/n for all-gather and
          reduce-scatter, 1 for broadcast: comparable between numbers of ranks
  #wrong  elements that differ from the exact result, on all ranks together

--json writes one object per size with the keys collective, ranks, transport,
dtype, redop, bytes, count, time_us, p50_us, p99_us, algbw_gbps, busbw_gbps (in
GB/s, as in the table) and wrong (null if not checked). p50_us and p99_us are
of single operations, timed one by one, each on its slowest rank.

Exit status: 0; 1 if an element is wrong; 2 if the arguments do not make sense;
3 if an operation fails; 128 + signal if a signal killed a rank.";

/// Measures a collective between N processes and prints the table of nccl-tests.
///
/// Starts N ranks of itself on this machine, or joins as one rank if NEXAR_RANK is in the environment.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "nexar-perf",
    version,
    max_term_width = 100,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{DETAILS}"),
)]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_enum)]
    pub(crate) collective: Kind,

    /// Number of ranks to start on this machine
    #[arg(short = 'n', long, value_name = "RANKS", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) ranks: Option<u16>,

    /// Smallest size in bytes; K, M, G are binary: 64K, 1.5M
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "8", value_parser = size::parse)]
    pub(crate) min: usize,

    /// Largest size
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub(crate) max: usize,

    /// Each size is this many times the one before
    #[arg(short = 'f', long, default_value = "2", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) factor: u32,

    /// Operations per loop [default: so many that a size takes about 0.3 s]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) iters: Option<u32>,

    /// Operations before the measurement [default: until the time of one is known; 5 with --iters]
    #[arg(short = 'w', long, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) warmup: Option<u32>,

    /// Element type: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "f32")]
    pub(crate) dtype: DataType,

    /// Reduction: sum product min max average bit-and bit-or bit-xor logical-and logical-or logical-xor
    #[arg(short = 'o', long, default_value = "sum")]
    pub(crate) op: ReduceOp,

    /// Root rank of a broadcast
    #[arg(short = 'r', long, value_name = "RANK", default_value = "0")]
    pub(crate) root: usize,

    /// Transports (quinn, s2n-quic), given to the ranks in turn
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = options::transport)]
    pub(crate) transport: Vec<Backend>,

    /// Verify every element on every rank, before and after the measurement: on, off, or how often
    #[arg(short = 'c', long, value_name = "on|off|COUNT", default_value = "on", value_parser = checks)]
    pub(crate) check: u32,

    /// Write the results as JSON to this file; `-` writes them to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// The tokio runtime of each rank; the operations run in its main future, as in `#[tokio::main]`
    #[arg(long, value_enum, default_value = "multi-thread")]
    pub(crate) runtime: RuntimeKind,

    /// Time limit in seconds for joining and for each operation [default: 60 and 300]
    #[arg(long, value_name = "SECS", env = "NEXAR_TIMEOUT_SECS", value_parser = options::time_limit)]
    pub(crate) timeout: Option<Duration>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Barrier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeKind {
    MultiThread,
    CurrentThread,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "all-reduce",
            Kind::AllGather => "all-gather",
            Kind::ReduceScatter => "reduce-scatter",
            Kind::Broadcast => "broadcast",
            Kind::Barrier => "barrier",
        }
    }

    pub(crate) const fn reduces(self) -> bool {
        matches!(self, Kind::AllReduce | Kind::ReduceScatter)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn checks(text: &str) -> Result<u32, String> {
    match text {
        "on" => Ok(1),
        "off" => Ok(0),
        count => count
            .parse()
            .map_err(|_| "expected on, off or a number".into()),
    }
}

impl Args {
    /// What the parser cannot see.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(Err(error)) = self.reduction().map(|op| op.check(self.dtype)) {
            let known = ReduceOp::ALL
                .into_iter()
                .filter(|op| op.supports(self.dtype));
            let known: Vec<_> = known.map(ReduceOp::name).collect();
            return Err(format!("{error}; --op can be {}", known.join(", ")));
        }
        if self.min == 0 {
            return Err("--min: the smallest size is 1 byte".into());
        }
        if self.min > self.max {
            return Err(format!(
                "--min: {} is more than --max, {}",
                self.min, self.max
            ));
        }
        match self.ranks {
            Some(ranks) => self.check_root(ranks.into()),
            None => Ok(()),
        }
    }

    pub(crate) fn check_root(&self, world_size: usize) -> Result<(), String> {
        if self.collective == Kind::Broadcast && self.root >= world_size {
            let root = self.root;
            return Err(format!(
                "--root: there is no rank {root} in a world of {world_size}"
            ));
        }
        Ok(())
    }

    /// The reduction, where there is one.
    pub(crate) fn reduction(&self) -> Option<ReduceOp> {
        self.collective.reduces().then_some(self.op)
    }

    /// The sizes to measure; a barrier has none.
    pub(crate) fn sizes(&self) -> Sweep {
        match self.collective {
            Kind::Barrier => Sweep::new(0, 0, self.factor),
            _ => Sweep::new(self.min, self.max, self.factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_parser_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let args = Args::try_parse_from(["nexar-perf", "all-reduce"]).unwrap();
        assert_eq!(
            (args.min, args.max, args.factor, args.check),
            (8, 64 << 20, 2, 1)
        );
        assert_eq!((args.dtype, args.op), (DataType::F32, ReduceOp::Sum));
        assert!(args.check().is_ok());
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let cases: [&[&str]; 5] = [
            &["all-reduce", "--dtype", "bool"],
            &["reduce-scatter", "--op", "bit-and"],
            &["broadcast", "-n", "2", "--root", "2"],
            &["all-gather", "--min", "2K", "--max", "1K"],
            &["all-gather", "--min", "0"],
        ];
        for case in cases {
            let words = ["nexar-perf"].iter().chain(case);
            let args = Args::try_parse_from(words).unwrap();
            assert!(args.check().is_err(), "{case:?}");
        }
        let fine = [
            "nexar-perf",
            "broadcast",
            "--dtype",
            "bool",
            "-n",
            "2",
            "--root",
            "1",
        ];
        assert!(Args::try_parse_from(fine).unwrap().check().is_ok());
    }
}
