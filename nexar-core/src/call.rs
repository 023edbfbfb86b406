//! The description of a collective call, as every rank announces it to the ranks that it talks to.

use crate::{DataType, ReduceOp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which collective.
///
/// The discriminants are part of the wire format and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum Collective {
    /// Wait for everybody.
    Barrier = 1,
    /// One rank's buffer to everybody.
    Broadcast = 2,
    /// Reduce, result on every rank.
    AllReduce = 3,
    /// Everybody's block to everybody.
    AllGather = 4,
    /// Reduce, each rank keeps its block.
    ReduceScatter = 5,
}

impl Collective {
    /// Every collective, in the order of the wire numbers.
    pub const ALL: [Collective; 5] = [
        Collective::Barrier,
        Collective::Broadcast,
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
    ];

    /// The name of the method: `all_reduce` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "barrier",
            Collective::Broadcast => "broadcast",
            Collective::AllReduce => "all_reduce",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
        }
    }

    /// The collective with this wire number, if there is one.
    pub const fn from_wire(number: u8) -> Option<Collective> {
        if number == 0 || number as usize > Self::ALL.len() {
            return None;
        }
        Some(Self::ALL[number as usize - 1])
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A way to carry out a collective.
///
/// The discriminants are part of the wire format and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum Algorithm {
    /// Each round every rank tells one that is twice as far away.
    Dissemination = 1,
    /// A tree in which the number of ranks that have the data doubles in each round.
    Binomial = 2,
    /// From rank to rank in a row, piece by piece.
    Chain = 3,
    /// The root sends each rank a part, and all exchange their parts.
    ScatterAllGather = 4,
    /// Each round every rank exchanges all of its data with one that is twice as far away.
    RecursiveDoubling = 5,
    /// Every rank exchanges parts with every other at once.
    Direct = 6,
    /// Around in a ring, piece by piece.
    Ring = 7,
}

impl Algorithm {
    /// Every algorithm, in the order of the wire numbers.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Dissemination,
        Algorithm::Binomial,
        Algorithm::Chain,
        Algorithm::ScatterAllGather,
        Algorithm::RecursiveDoubling,
        Algorithm::Direct,
        Algorithm::Ring,
    ];

    /// The name in settings: `recursive-doubling` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Dissemination => "dissemination",
            Algorithm::Binomial => "binomial",
            Algorithm::Chain => "chain",
            Algorithm::ScatterAllGather => "scatter-all-gather",
            Algorithm::RecursiveDoubling => "recursive-doubling",
            Algorithm::Direct => "direct",
            Algorithm::Ring => "ring",
        }
    }

    /// The algorithm with this wire number, if there is one.
    pub const fn from_wire(number: u8) -> Option<Algorithm> {
        if number == 0 || number as usize > Self::ALL.len() {
            return None;
        }
        Some(Self::ALL[number as usize - 1])
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One collective call. The members of a communicator must make equal calls in the same order; two
/// values that differ are a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// Which collective.
    pub collective: Collective,
    /// Number of the call on its communicator, from 0.
    pub sequence: u64,
    /// Element type; absent for a barrier.
    pub dtype: Option<DataType>,
    /// The reduction, where there is one.
    pub op: Option<ReduceOp>,
    /// Elements per rank (of the whole buffer for all_reduce and broadcast, of one block otherwise).
    pub count: u64,
    /// The root, where there is one.
    pub root: Option<u32>,
    /// The algorithm; all members choose the same from the values above.
    pub algorithm: Algorithm,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.collective, self.sequence)?;
        let mut separator = " (";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let written = write!(f, "{separator}{text}");
            separator = ", ";
            written
        };
        if let Some(dtype) = self.dtype {
            part(f, format_args!("{} x {dtype}", self.count))?;
        }
        if let Some(op) = self.op {
            part(f, format_args!("{op}"))?;
        }
        if let Some(root) = self.root {
            part(f, format_args!("root {root}"))?;
        }
        part(f, format_args!("{}", self.algorithm))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_numbers_round_trip() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_wire(algorithm as u8), Some(algorithm));
        }
        for collective in Collective::ALL {
            assert_eq!(Collective::from_wire(collective as u8), Some(collective));
        }
        assert_eq!(
            (Algorithm::from_wire(0), Algorithm::from_wire(8)),
            (None, None)
        );
    }

    #[test]
    fn a_call_reads_like_a_call() {
        let call = Call {
            collective: Collective::Broadcast,
            sequence: 7,
            dtype: Some(DataType::F32),
            op: None,
            count: 12,
            root: Some(2),
            algorithm: Algorithm::Chain,
        };
        assert_eq!(call.to_string(), "broadcast #7 (12 x f32, root 2, chain)");
    }
}
