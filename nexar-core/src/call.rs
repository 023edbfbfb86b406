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
    /// Reduce, result on one rank.
    Reduce = 6,
    /// Everybody's block to one rank.
    Gather = 7,
    /// One rank's blocks, one to each.
    Scatter = 8,
    /// A block from everybody to everybody, each another.
    AllToAll = 9,
    /// Reduce over the ranks up to one's own.
    Scan = 10,
    /// Reduce over the ranks below one's own.
    ExclusiveScan = 11,
    /// Blocks of different lengths to everybody.
    AllGatherV = 12,
    /// Blocks of different lengths to one rank.
    GatherV = 13,
    /// One rank's blocks of different lengths, one to each.
    ScatterV = 14,
    /// Reduce, each rank keeps its block, of different lengths.
    ReduceScatterV = 15,
    /// Blocks of different lengths from everybody to everybody.
    AllToAllV = 16,
    /// A block to and from each neighbour.
    NeighborAllToAll = 17,
    /// Blocks of different lengths to and from each neighbour.
    NeighborAllToAllV = 18,
    /// All-reduce of several buffers.
    AllReduceMany = 19,
    /// All-reduce of compressed data.
    AllReduceCompressed = 20,
    /// New communicators, by colour.
    Split = 21,
    /// A new communicator of the same ranks.
    Duplicate = 22,
    /// A new communicator of some ranks.
    Subgroup = 23,
    /// All-reduce of the smallest value and where it is.
    AllReduceMinLocation = 24,
    /// All-reduce of the largest value and where it is.
    AllReduceMaxLocation = 25,
}

impl Collective {
    /// Every collective, in the order of the wire numbers.
    pub const ALL: [Collective; 25] = [
        Collective::Barrier,
        Collective::Broadcast,
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Reduce,
        Collective::Gather,
        Collective::Scatter,
        Collective::AllToAll,
        Collective::Scan,
        Collective::ExclusiveScan,
        Collective::AllGatherV,
        Collective::GatherV,
        Collective::ScatterV,
        Collective::ReduceScatterV,
        Collective::AllToAllV,
        Collective::NeighborAllToAll,
        Collective::NeighborAllToAllV,
        Collective::AllReduceMany,
        Collective::AllReduceCompressed,
        Collective::Split,
        Collective::Duplicate,
        Collective::Subgroup,
        Collective::AllReduceMinLocation,
        Collective::AllReduceMaxLocation,
    ];

    /// The name of the method: `all_reduce` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "barrier",
            Collective::Broadcast => "broadcast",
            Collective::AllReduce => "all_reduce",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::Reduce => "reduce",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::AllToAll => "all_to_all",
            Collective::Scan => "scan",
            Collective::ExclusiveScan => "exclusive_scan",
            Collective::AllGatherV => "all_gather_v",
            Collective::GatherV => "gather_v",
            Collective::ScatterV => "scatter_v",
            Collective::ReduceScatterV => "reduce_scatter_v",
            Collective::AllToAllV => "all_to_all_v",
            Collective::NeighborAllToAll => "neighbor_all_to_all",
            Collective::NeighborAllToAllV => "neighbor_all_to_all_v",
            Collective::AllReduceMany => "all_reduce_many",
            Collective::AllReduceCompressed => "all_reduce_compressed",
            Collective::Split => "split",
            Collective::Duplicate => "duplicate",
            Collective::Subgroup => "subgroup",
            Collective::AllReduceMinLocation => "all_reduce_min_location",
            Collective::AllReduceMaxLocation => "all_reduce_max_location",
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
    /// Each round every rank exchanges with one that is twice as far away what has to go there or further.
    Bruck = 8,
}

impl Algorithm {
    /// Every algorithm, in the order of the wire numbers.
    pub const ALL: [Algorithm; 8] = [
        Algorithm::Dissemination,
        Algorithm::Binomial,
        Algorithm::Chain,
        Algorithm::ScatterAllGather,
        Algorithm::RecursiveDoubling,
        Algorithm::Direct,
        Algorithm::Ring,
        Algorithm::Bruck,
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
            Algorithm::Bruck => "bruck",
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

/// One collective call. The members of a communicator must make the same calls in the same order; two
/// that do not [agree](Call::agrees) are a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// Which collective.
    pub collective: Collective,
    /// Number of the call on its communicator, from 0.
    pub sequence: u64,
    /// Element type; absent for a barrier, and for elements of a type that is not built in.
    pub dtype: Option<DataType>,
    /// Bytes of an element of a type that is not built in; otherwise 0.
    pub element: u32,
    /// The reduction, where there is a built-in one.
    pub op: Option<ReduceOp>,
    /// Elements per rank (of the whole buffer for reductions and broadcast, of one block otherwise); 0 where
    /// each rank has its own number.
    pub count: u64,
    /// The root, where there is one.
    pub root: Option<u32>,
    /// The algorithm; all members choose the same from the values above.
    pub algorithm: Algorithm,
    /// Stands for everything else that must be the same: the counts of all blocks, the name of a reduction of
    /// one's own, the list of ranks. 0 where there is nothing else.
    pub digest: u64,
    /// What this rank exchanges with the one that it tells of the call, where only these two know it.
    pub exchange: Option<Exchange>,
}

/// The elements that two ranks exchange in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// Elements that this rank sends to the other.
    pub sends: u64,
    /// Elements that this rank expects from the other.
    pub expects: u64,
    /// Blocks of which each of the two consists.
    pub blocks: u32,
}

impl Call {
    /// Whether two ranks make the same call: all is equal, and each sends what the other expects.
    pub fn agrees(&self, theirs: &Call) -> bool {
        let mirrored = theirs.exchange.map(|exchange| Exchange {
            sends: exchange.expects,
            expects: exchange.sends,
            blocks: exchange.blocks,
        });
        let turned = Call {
            exchange: mirrored,
            ..*theirs
        };
        *self == turned
    }
}

impl Call {
    /// Whether each rank has its own number of elements.
    fn has_own_counts(&self) -> bool {
        let by_rank = [Collective::AllGatherV, Collective::ReduceScatterV];
        self.exchange.is_some() || by_rank.contains(&self.collective)
    }
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
            match self.has_own_counts() {
                true => part(f, format_args!("{dtype}"))?,
                false => part(f, format_args!("{} x {dtype}", self.count))?,
            }
        } else if self.element > 0 {
            part(f, format_args!("{} x {} bytes", self.count, self.element))?;
        }
        if let Some(op) = self.op {
            part(f, format_args!("{op}"))?;
        }
        if let Some(root) = self.root {
            part(f, format_args!("root {root}"))?;
        }
        if let Some(exchange) = self.exchange {
            let Exchange {
                sends,
                expects,
                blocks,
            } = exchange;
            part(
                f,
                format_args!("sends the other {sends} and expects {expects}"),
            )?;
            if blocks > 1 {
                part(f, format_args!("in {blocks} blocks"))?;
            }
        }
        if self.digest != 0 {
            part(f, format_args!("arguments #{:08x}", self.digest as u32))?;
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
            (Algorithm::from_wire(0), Algorithm::from_wire(9)),
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
            element: 0,
            digest: 0,
            exchange: None,
        };
        assert_eq!(call.to_string(), "broadcast #7 (12 x f32, root 2, chain)");
        let call = Call {
            dtype: None,
            element: 24,
            digest: 0xa_1234_5678,
            exchange: Some(Exchange {
                sends: 3,
                expects: 4,
                blocks: 1,
            }),
            ..call
        };
        assert_eq!(
            call.to_string(),
            "broadcast #7 (12 x 24 bytes, root 2, sends the other 3 and expects 4, \
             arguments #12345678, chain)"
        );
    }

    #[test]
    fn calls_agree_if_each_sends_what_the_other_expects() {
        let ours = Call {
            collective: Collective::AllToAllV,
            sequence: 1,
            dtype: Some(DataType::F32),
            element: 0,
            op: None,
            count: 0,
            root: None,
            algorithm: Algorithm::Direct,
            digest: 0,
            exchange: Some(Exchange {
                sends: 3,
                expects: 4,
                blocks: 1,
            }),
        };
        let with = |exchange| Call { exchange, ..ours };
        let exchange = |sends, expects| {
            Some(Exchange {
                sends,
                expects,
                blocks: 1,
            })
        };
        assert!(ours.agrees(&with(exchange(4, 3))));
        assert!(!ours.agrees(&ours));
        assert!(!ours.agrees(&with(None)));
        assert!(with(None).agrees(&with(None)));
    }
}
