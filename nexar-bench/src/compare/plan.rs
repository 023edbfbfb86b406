//! What is compared.

use crate::options::readable;
use serde::{Deserialize, Serialize};
use std::fmt;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Sizes of the all-reduce.
pub(super) const SIZES: [usize; 6] = [8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB];

/// Numbers of ranks.
pub(super) const WORLDS: [usize; 3] = [2, 4, 8];

/// The collectives beside the all-reduce, at these sizes and numbers of ranks.
pub(super) const COLLECTIVES: [Operation; 4] = [
    Operation::Broadcast,
    Operation::AllGather,
    Operation::ReduceScatter,
    Operation::AllToAll,
];
pub(super) const COLLECTIVE_SIZES: [usize; 2] = [MIB, 16 * MIB];
pub(super) const COLLECTIVE_WORLDS: [usize; 2] = [2, 4];

/// Bytes of a message of a stream.
pub(super) const STREAM: usize = MIB;

/// Bytes of what is short.
pub(super) const SHORT: usize = 8;

/// Lines of a batch: a program that takes seconds to start measures so many at a time.
const BATCH: usize = 4;

/// Something that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Operation {
    /// A sum in place; the size is that of the data of a rank.
    AllReduce,
    /// A barrier.
    Barrier,
    /// A broadcast from rank 0.
    Broadcast,
    /// Each rank gives a block; the size is that of all blocks together.
    AllGather,
    /// Each rank gets the sum of a block; the size is that of all blocks together.
    ReduceScatter,
    /// Each rank gives a block to each; the size is that of all blocks of a rank together.
    AllToAll,
    /// A message to another rank and one back, divided by two.
    HalfRoundTrip,
    /// One of many messages one way.
    Stream,
    /// A remote call of one caller.
    Call,
    /// One of the remote calls of 64 callers.
    #[serde(rename = "calls-64")]
    Calls,
}

impl Operation {
    /// The name that the peers know, too.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "all-reduce",
            Operation::Barrier => "barrier",
            Operation::Broadcast => "broadcast",
            Operation::AllGather => "all-gather",
            Operation::ReduceScatter => "reduce-scatter",
            Operation::AllToAll => "all-to-all",
            Operation::HalfRoundTrip => "half-round-trip",
            Operation::Stream => "stream",
            Operation::Call => "call",
            Operation::Calls => "calls-64",
        }
    }

    /// Whether it is a remote call.
    pub const fn is_call(self) -> bool {
        matches!(self, Operation::Call | Operation::Calls)
    }
}

/// A line of a table: what is measured together, with each library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Line {
    /// What is measured.
    pub operation: Operation,
    /// Number of ranks.
    pub ranks: usize,
    /// Bytes, where there are any.
    pub bytes: usize,
    /// Whether nexar looks for data before it sleeps, as it does by default.
    pub spin: bool,
}

impl Line {
    /// A line with default settings.
    pub const fn new(operation: Operation, ranks: usize, bytes: usize) -> Self {
        Line {
            operation,
            ranks,
            bytes,
            spin: true,
        }
    }

    /// The same without spinning.
    pub const fn without_spin(self) -> Self {
        Line {
            spin: false,
            ..self
        }
    }
}

/// As in `all-reduce n=2 64 MiB`.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} n={}", self.operation.name(), self.ranks)?;
        if self.bytes > 0 {
            write!(f, " {}", readable(self.bytes))?;
        }
        if !self.spin {
            f.write_str(" spin off")?;
        }
        Ok(())
    }
}

/// Everything that is compared, in the order of measuring: what has the same number of ranks stands together.
pub fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    for ranks in WORLDS {
        let all_reduce = |&bytes: &usize| Line::new(Operation::AllReduce, ranks, bytes);
        lines.extend(SIZES[..3].iter().map(all_reduce));
        lines.push(Line::new(Operation::Barrier, ranks, 0));
        lines.extend(SIZES[3..].iter().map(all_reduce));
        if COLLECTIVE_WORLDS.contains(&ranks) {
            for bytes in COLLECTIVE_SIZES {
                lines.extend(COLLECTIVES.map(|operation| Line::new(operation, ranks, bytes)));
            }
        }
        if ranks == 2 {
            lines.extend([
                Line::new(Operation::HalfRoundTrip, ranks, SHORT),
                Line::new(Operation::Stream, ranks, STREAM),
                Line::new(Operation::Call, ranks, SHORT),
                Line::new(Operation::Calls, ranks, SHORT),
            ]);
        }
    }
    for ranks in WORLDS {
        lines.push(Line::new(Operation::AllReduce, ranks, SHORT).without_spin());
    }
    lines.push(Line::new(Operation::HalfRoundTrip, 2, SHORT).without_spin());
    lines
}

/// A part of it, for a look.
pub fn quick_lines() -> Vec<Line> {
    let mut lines = lines();
    lines.retain(|line| [0, SHORT, MIB].contains(&line.bytes));
    lines
}

/// Lines that are measured in turn, with as many ranks.
pub(super) fn batches(lines: &[Line]) -> impl Iterator<Item = &[Line]> {
    lines
        .chunk_by(|a, b| (a.ranks, a.spin) == (b.ranks, b.spin))
        .flat_map(|alike| alike.chunks(BATCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_line_has_a_name_of_its_own() {
        let lines = lines();
        let names: HashSet<_> = lines.iter().map(Line::to_string).collect();
        assert_eq!(names.len(), lines.len());
        for name in [
            "all-reduce n=8 64 MiB",
            "barrier n=4",
            "all-to-all n=4 16 MiB",
            "half-round-trip n=2 8 B",
            "stream n=2 1 MiB",
            "calls-64 n=2 8 B",
            "all-reduce n=8 8 B spin off",
            "half-round-trip n=2 8 B spin off",
        ] {
            assert!(names.contains(name), "{name}");
        }
        assert!(quick_lines().len() < lines.len());
    }

    #[test]
    fn names_are_those_of_the_results_file() {
        for line in lines() {
            let json = serde_json::to_value(line.operation).unwrap();
            assert_eq!(json, line.operation.name());
        }
    }

    #[test]
    fn batches_have_all_lines_and_one_world_each() {
        let lines = lines();
        let mut all = Vec::new();
        for batch in batches(&lines) {
            assert!((1..=BATCH).contains(&batch.len()));
            let same = |line: &Line| (line.ranks, line.spin) == (batch[0].ranks, batch[0].spin);
            assert!(batch.iter().all(same));
            all.extend_from_slice(batch);
        }
        assert_eq!(all, lines);
    }
}
