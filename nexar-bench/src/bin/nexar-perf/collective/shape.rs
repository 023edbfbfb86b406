//! What a size means for each collective, as in nccl-tests.

use super::kind::{Bus, Division, Extent, Kind};
use std::ops::Range;

/// A size, translated to elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    kind: Kind,
    world_size: usize,
    root: usize,
    element: usize,
    /// Elements of all blocks together.
    total: usize,
}

impl Shape {
    /// The largest shape of at most `bytes`.
    pub(crate) fn new(
        kind: Kind,
        bytes: usize,
        element: usize,
        world_size: usize,
        root: usize,
    ) -> Self {
        let elements = bytes / element;
        let total = match kind.describe().division {
            Division::Whole | Division::Uneven => elements,
            Division::Even => elements / world_size * world_size,
            Division::Pair => elements / 2 * 2,
            Division::Nothing => 0,
        };
        Shape {
            kind,
            world_size,
            root,
            element,
            total,
        }
    }

    /// Elements; of one block where all blocks have the same length.
    pub(crate) fn count(&self) -> usize {
        match self.kind.describe().division {
            Division::Whole | Division::Uneven => self.total,
            Division::Even => self.total / self.world_size,
            Division::Pair => self.total / 2,
            Division::Nothing => 0,
        }
    }

    /// The place of a block in the data.
    pub(crate) fn block(&self, block: usize) -> Range<usize> {
        self.border(block)..self.border(block + 1)
    }

    /// Where a block begins.
    fn border(&self, block: usize) -> usize {
        match self.kind.describe().division {
            Division::Uneven => {
                let (n, block) = (self.world_size as u128, block as u128);
                let before = self.total as u128 * (block * (block + 1)) / (n * (n + 1));
                usize::try_from(before).unwrap_or(self.total)
            }
            _ => self.count() * block,
        }
    }

    /// Elements that a rank puts in, in a buffer of their own.
    pub(crate) fn input(&self, rank: usize) -> usize {
        self.extent(self.kind.describe().input, rank)
    }

    /// Elements that a rank gets out.
    pub(crate) fn output(&self, rank: usize) -> usize {
        self.extent(self.kind.describe().output, rank)
    }

    fn extent(&self, extent: Extent, rank: usize) -> usize {
        match extent {
            Extent::None => 0,
            Extent::All => self.total,
            Extent::Own => self.block(rank).len(),
            Extent::OwnOfEach => self.block(rank).len() * self.world_size,
            Extent::AllOnRoot if rank == self.root => self.total,
            Extent::AllOnRoot => 0,
        }
    }

    /// The most elements that a rank puts in, in a buffer of their own or in place.
    pub(crate) fn largest_input(&self) -> usize {
        match self.kind.describe().input {
            // No block is longer than the last one.
            Extent::Own => self.block(self.world_size - 1).len(),
            _ => self.total,
        }
    }

    /// Bytes of all blocks together.
    pub(crate) fn bytes(&self) -> usize {
        self.total * self.element
    }

    /// What to multiply the algorithm bandwidth with to get the bandwidth of the links.
    pub(crate) fn bus_factor(&self) -> f64 {
        let n = self.world_size as f64;
        match self.kind.describe().bus {
            Bus::ThereAndBack => 2.0 * (n - 1.0) / n,
            Bus::ToOthers => (n - 1.0) / n,
            Bus::Once => 1.0,
            Bus::Nothing => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(kind: Kind, bytes: usize, element: usize, world_size: usize) -> (usize, usize) {
        let shape = Shape::new(kind, bytes, element, world_size, 0);
        (shape.count(), shape.bytes())
    }

    #[test]
    fn sizes_are_rounded_down_to_whole_blocks() {
        assert_eq!(sizes(Kind::AllReduce, 13, 4, 5), (3, 12));
        assert_eq!(sizes(Kind::AllGather, 100, 4, 3), (8, 96));
        assert_eq!(sizes(Kind::ReduceScatter, 1000, 8, 5), (25, 1000));
        assert_eq!(sizes(Kind::AllGather, 8, 4, 4), (0, 0));
        assert_eq!(sizes(Kind::NeighborAllToAll, 23, 4, 5), (2, 16));
        assert_eq!(sizes(Kind::AllToAllV, 23, 4, 5), (5, 20));
        assert_eq!(sizes(Kind::Barrier, 64, 4, 5), (0, 0));
    }

    #[test]
    fn blocks_of_different_lengths_make_up_the_whole() {
        let shape = Shape::new(Kind::AllToAllV, 60, 1, 3, 0);
        let blocks: Vec<_> = (0..3).map(|rank| shape.block(rank)).collect();
        assert_eq!(blocks, [0..10, 10..30, 30..60]);
        assert_eq!((shape.input(1), shape.output(1)), (60, 60));
        assert_eq!(shape.output(2), 90);
        let shape = Shape::new(Kind::ScatterV, 7, 1, 3, 1);
        let lengths: Vec<_> = (0..3).map(|rank| shape.output(rank)).collect();
        assert_eq!(lengths, [1, 2, 4]);
        assert_eq!((shape.input(0), shape.input(1)), (0, 7));
        let shape = Shape::new(Kind::GatherV, usize::MAX, 1, 60_000, 1);
        assert_eq!(shape.block(59_999).end, usize::MAX);
    }

    #[test]
    fn the_largest_input_is_that_of_some_rank() {
        for kind in Kind::ALL {
            for world_size in [1, 2, 3, 5] {
                let shape = Shape::new(kind, 4000, 4, world_size, world_size - 1);
                let largest = (0..world_size).map(|rank| match kind.describe().input {
                    Extent::None => shape.output(rank),
                    _ => shape.input(rank),
                });
                assert_eq!(largest.max(), Some(shape.largest_input()), "{kind}");
            }
        }
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        let shape = |kind| Shape::new(kind, 4_000_000, 4, 4, 0);
        for (kind, factor) in [
            (Kind::AllReduce, 1.5),
            (Kind::AllGather, 0.75),
            (Kind::ReduceScatter, 0.75),
            (Kind::Gather, 0.75),
            (Kind::Scatter, 0.75),
            (Kind::AllToAll, 0.75),
            (Kind::Broadcast, 1.0),
            (Kind::Reduce, 1.0),
            (Kind::Barrier, 0.0),
        ] {
            assert_eq!(shape(kind).bus_factor(), factor, "{kind}");
        }
    }
}
