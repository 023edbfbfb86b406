//! The command line.

use crate::{
    collective::{Kind, Method},
    help::{DETAILS, EXAMPLES},
    size::{self, Sweep, readable},
};
use clap::{Parser, ValueEnum, builder::PossibleValue};
use nexar_bench::options;
use nexar_collectives::{DataType, ReduceOp};
use nexar_quic::Backend;
use std::{path::PathBuf, time::Duration};

/// The largest size where none is given.
const LARGEST: usize = 64 << 20;

/// Measures an operation between N processes: collectives in the manner of nccl-tests, messages, remote calls.
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
    #[arg(value_enum, value_name = "OPERATION")]
    pub(crate) subject: Subject,

    /// Number of ranks to start on this machine
    #[arg(short = 'n', long, value_name = "RANKS", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) ranks: Option<u16>,

    /// Smallest size in bytes; K, M, G are binary: 64K, 1.5M
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "8", value_parser = size::parse)]
    pub(crate) min: usize,

    /// Largest size [default: 64M; of rpc the smallest]
    #[arg(short = 'e', long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) max: Option<usize>,

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

    /// Root rank of a broadcast, reduce, gather or scatter
    #[arg(short = 'r', long, value_name = "RANK", default_value = "0")]
    pub(crate) root: usize,

    /// Tensors of all-reduce-many, among which each size is divided
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) tensors: u32,

    /// Compressor of all-reduce-compressed: top-k:RATIO, random-k:RATIO or blocks:LENGTH
    #[arg(long, value_name = "NAME:SETTING", default_value = "top-k:0.01")]
    pub(crate) compressor: Method,

    /// Transports (quinn, s2n-quic), given to the ranks in turn
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = options::transport)]
    pub(crate) transport: Vec<Backend>,

    /// Verify every element on every rank, before and after the measurement: on, off, or how often
    #[arg(short = 'c', long, value_name = "on|off|COUNT", default_value = "on", value_parser = checks)]
    pub(crate) check: u32,

    /// All-reduces of this size beside the measurement, on a communicator of their own
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) beside: Option<usize>,

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Collective(Kind),
    Compressed,
    SendRecv,
    Rpc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeKind {
    MultiThread,
    CurrentThread,
}

impl Subject {
    /// All that are not plain collectives.
    const OTHERS: [Subject; 3] = [Subject::Compressed, Subject::SendRecv, Subject::Rpc];

    const ALL: [Subject; Kind::ALL.len() + Self::OTHERS.len()] = {
        let mut all = [Subject::SendRecv; Kind::ALL.len() + Self::OTHERS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = if at < Kind::ALL.len() {
                Subject::Collective(Kind::ALL[at])
            } else {
                Self::OTHERS[at - Kind::ALL.len()]
            };
            at += 1;
        }
        all
    };

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Subject::Collective(kind) => kind.name(),
            Subject::Compressed => "all-reduce-compressed",
            Subject::SendRecv => "send-recv",
            Subject::Rpc => "rpc",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Subject::Collective(kind) => kind.describe().about,
            Subject::Compressed => {
                "An all-reduce of f32 that sends less and is not exact (--compressor)"
            }
            Subject::SendRecv => "Latency and bandwidth of messages between two ranks",
            Subject::Rpc => "Latency and rate of remote calls between two ranks",
        }
    }
}

impl ValueEnum for Subject {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.about()))
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
        self.check_reduction()?;
        if self.min == 0 {
            return Err("--min: the smallest size is 1 byte".into());
        }
        let (min, max) = (self.min, self.largest());
        if min > max {
            return Err(format!("--min: {min} is more than --max, {max}"));
        }
        match self.ranks {
            Some(ranks) => self.check_world(ranks.into()),
            None => Ok(()),
        }
    }

    fn check_reduction(&self) -> Result<(), String> {
        let (dtype, op) = (self.dtype, self.op);
        let error = match (self.subject, op.check(dtype)) {
            (Subject::Compressed, _) if dtype != DataType::F32 => {
                return Err(format!("--dtype: it compresses f32, not {dtype}"));
            }
            (Subject::Compressed, _) if self.allows(op) => return Ok(()),
            (Subject::Compressed, _) => format!("{op} of compressed data is not possible"),
            (Subject::Collective(kind), _) if !kind.describe().reduces => return Ok(()),
            (Subject::Collective(_), Err(error)) => error.to_string(),
            (Subject::Collective(_), Ok(())) if self.allows(op) => return Ok(()),
            (Subject::Collective(kind), Ok(())) => format!("there is no {kind} of {op}"),
            (Subject::SendRecv | Subject::Rpc, _) => return Ok(()),
        };
        let known = ReduceOp::ALL
            .into_iter()
            .filter(|op| op.supports(dtype) && self.allows(*op));
        let known: Vec<_> = known.map(ReduceOp::name).collect();
        Err(format!("{error}; --op can be {}", known.join(", ")))
    }

    /// Whether a reduction is defined for what is measured, apart from the element type.
    fn allows(&self, op: ReduceOp) -> bool {
        match self.subject {
            Subject::Collective(kind) => kind.allows(op),
            Subject::Compressed => matches!(op, ReduceOp::Sum | ReduceOp::Average),
            Subject::SendRecv | Subject::Rpc => false,
        }
    }

    /// What the number of ranks decides.
    pub(crate) fn check_world(&self, world_size: usize) -> Result<(), String> {
        let root = self.root;
        match self.subject {
            Subject::Collective(kind) if kind.describe().rooted && root >= world_size => Err(
                format!("--root: there is no rank {root} in a world of {world_size}"),
            ),
            Subject::SendRecv | Subject::Rpc if world_size < 2 => {
                let name = self.subject.name();
                Err(format!("{name}: it takes at least 2 ranks"))
            }
            _ => Ok(()),
        }
    }

    fn largest(&self) -> usize {
        let largest = match self.subject {
            Subject::Rpc => self.min,
            _ => LARGEST,
        };
        self.max.unwrap_or(largest)
    }

    /// The sizes to measure; a barrier has none.
    pub(crate) fn sizes(&self) -> Sweep {
        match self.subject {
            Subject::Collective(kind) if !kind.has_data() => Sweep::new(0, 0, self.factor),
            _ => Sweep::new(self.min, self.largest(), self.factor),
        }
    }

    /// What the head of the table says about the sizes.
    pub(crate) fn describe_sizes(&self) -> String {
        let (min, max) = (readable(self.min), readable(self.largest()));
        let (factor, check) = (self.factor, self.check);
        format!(", {min} to {max} by factor {factor}, checks {check}")
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
            (args.min, args.largest(), args.factor, args.check),
            (8, 64 << 20, 2, 1)
        );
        assert_eq!((args.dtype, args.op), (DataType::F32, ReduceOp::Sum));
        assert!(args.check().is_ok());
        let args = Args::try_parse_from(["nexar-perf", "rpc", "--min", "16"]).unwrap();
        assert_eq!(args.sizes().collect::<Vec<_>>(), [16]);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let cases: [&[&str]; 11] = [
            &["all-reduce-compressed", "--op", "max"],
            &["all-reduce-compressed", "--dtype", "bf16"],
            &["scan", "--op", "average"],
            &["exclusive-scan", "--dtype", "i8", "--op", "average"],
            &["gather", "-n", "2", "--root", "2"],
            &["send-recv", "-n", "1"],
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
