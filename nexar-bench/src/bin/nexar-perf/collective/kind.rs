//! The collectives, and what distinguishes them.

use nexar_collectives::ReduceOp;
use std::fmt;

/// A collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    AllReduceMany,
    Reduce,
    Broadcast,
    AllGather,
    AllGatherV,
    Gather,
    GatherV,
    Scatter,
    ScatterV,
    ReduceScatter,
    ReduceScatterV,
    AllToAll,
    AllToAllV,
    NeighborAllToAll,
    Scan,
    ExclusiveScan,
    Barrier,
}

/// How the data is divided into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Division {
    /// Not at all.
    Whole,
    /// A block for each rank, all of one length.
    Even,
    /// A block for each rank, that of rank r of about r + 1 shares.
    Uneven,
    /// A block for each of two neighbours.
    Pair,
    /// There is no data.
    Nothing,
}

/// How much of the data is in a buffer of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// There is no such buffer. Without an input, the collective works in place, in the output.
    None,
    /// All of it.
    All,
    /// This rank's block.
    Own,
    /// This rank's block, as many times as there are ranks.
    OwnOfEach,
    /// All of it on the root, nothing elsewhere.
    AllOnRoot,
}

/// What to multiply the algorithm bandwidth with to get that of the links, for n ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bus {
    /// 2 (n-1)/n.
    ThereAndBack,
    /// (n-1)/n.
    ToOthers,
    /// 1.
    Once,
    /// 0.
    Nothing,
}

/// What distinguishes a collective from the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Description {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) division: Division,
    pub(crate) input: Extent,
    pub(crate) output: Extent,
    pub(crate) bus: Bus,
    /// There is a reduction.
    pub(crate) reduces: bool,
    /// There is a root.
    pub(crate) rooted: bool,
}

impl Description {
    const fn new(name: &'static str, about: &'static str, bus: Bus) -> Self {
        Description {
            name,
            about,
            division: Division::Whole,
            input: Extent::None,
            output: Extent::All,
            bus,
            reduces: false,
            rooted: false,
        }
    }

    const fn blocks(mut self, division: Division, input: Extent, output: Extent) -> Self {
        (self.division, self.input, self.output) = (division, input, output);
        self
    }

    const fn reducing(mut self) -> Self {
        self.reduces = true;
        self
    }

    const fn rooted(mut self) -> Self {
        self.rooted = true;
        self
    }
}

impl Kind {
    pub(crate) const ALL: [Kind; 18] = [
        Kind::AllReduce,
        Kind::AllReduceMany,
        Kind::Reduce,
        Kind::Broadcast,
        Kind::AllGather,
        Kind::AllGatherV,
        Kind::Gather,
        Kind::GatherV,
        Kind::Scatter,
        Kind::ScatterV,
        Kind::ReduceScatter,
        Kind::ReduceScatterV,
        Kind::AllToAll,
        Kind::AllToAllV,
        Kind::NeighborAllToAll,
        Kind::Scan,
        Kind::ExclusiveScan,
        Kind::Barrier,
    ];

    pub(crate) const fn describe(self) -> Description {
        use Division::{Even, Nothing, Pair, Uneven};
        use Extent::{All, AllOnRoot, None, Own, OwnOfEach};
        let new = Description::new;
        match self {
            Kind::AllReduce => new(
                "all-reduce",
                "Every rank gets the reduction of all ranks' data",
                Bus::ThereAndBack,
            )
            .reducing(),
            Kind::AllReduceMany => new(
                "all-reduce-many",
                "An all-reduce of many tensors at once (--tensors)",
                Bus::ThereAndBack,
            )
            .reducing(),
            Kind::Reduce => new(
                "reduce",
                "The root gets the reduction of all ranks' data",
                Bus::Once,
            )
            .reducing()
            .rooted(),
            Kind::Broadcast => {
                new("broadcast", "Every rank gets the root's data", Bus::Once).rooted()
            }
            Kind::AllGather => new(
                "all-gather",
                "Every rank gets the blocks of all ranks",
                Bus::ToOthers,
            )
            .blocks(Even, Own, All),
            Kind::AllGatherV => new(
                "all-gather-v",
                "An all-gather of blocks of different lengths",
                Bus::ToOthers,
            )
            .blocks(Uneven, Own, All),
            Kind::Gather => new(
                "gather",
                "The root gets the blocks of all ranks",
                Bus::ToOthers,
            )
            .blocks(Even, Own, AllOnRoot)
            .rooted(),
            Kind::GatherV => new(
                "gather-v",
                "A gather of blocks of different lengths",
                Bus::ToOthers,
            )
            .blocks(Uneven, Own, AllOnRoot)
            .rooted(),
            Kind::Scatter => new(
                "scatter",
                "Every rank gets its block of the root's data",
                Bus::ToOthers,
            )
            .blocks(Even, AllOnRoot, Own)
            .rooted(),
            Kind::ScatterV => new(
                "scatter-v",
                "A scatter of blocks of different lengths",
                Bus::ToOthers,
            )
            .blocks(Uneven, AllOnRoot, Own)
            .rooted(),
            Kind::ReduceScatter => new(
                "reduce-scatter",
                "Every rank gets its block of the reduction of all ranks' data",
                Bus::ToOthers,
            )
            .blocks(Even, All, Own)
            .reducing(),
            Kind::ReduceScatterV => new(
                "reduce-scatter-v",
                "A reduce-scatter of blocks of different lengths",
                Bus::ToOthers,
            )
            .blocks(Uneven, All, Own)
            .reducing(),
            Kind::AllToAll => new(
                "all-to-all",
                "Every rank sends a block to every rank",
                Bus::ToOthers,
            )
            .blocks(Even, All, All),
            Kind::AllToAllV => new(
                "all-to-all-v",
                "An all-to-all of blocks of different lengths",
                Bus::ToOthers,
            )
            .blocks(Uneven, All, OwnOfEach),
            Kind::NeighborAllToAll => new(
                "neighbor-all-to-all",
                "Every rank exchanges a block with the rank before it and the one after it",
                Bus::Once,
            )
            .blocks(Pair, All, All),
            Kind::Scan => new(
                "scan",
                "Rank r gets the reduction of the data of ranks 0 to r",
                Bus::Once,
            )
            .reducing(),
            Kind::ExclusiveScan => new(
                "exclusive-scan",
                "Rank r gets the reduction of the data of ranks 0 to r - 1",
                Bus::Once,
            )
            .reducing(),
            Kind::Barrier => new(
                "barrier",
                "Every rank waits for all; there is no data",
                Bus::Nothing,
            )
            .blocks(Nothing, None, None),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.describe().name
    }

    /// Whether there is data, and so a size.
    pub(crate) fn has_data(self) -> bool {
        self.describe().division != Division::Nothing
    }

    /// Whether the collective is defined for a reduction. An average of some of the ranks is not.
    pub(crate) fn allows(self, op: ReduceOp) -> bool {
        op != ReduceOp::Average || !matches!(self, Kind::Scan | Kind::ExclusiveScan)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_have_names_of_their_own() {
        let mut names: Vec<_> = Kind::ALL.into_iter().map(Kind::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
