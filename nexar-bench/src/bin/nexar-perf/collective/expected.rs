//! What has to be in the output of a rank.

use super::{kind::Kind, shape::Shape};
use std::ops::Range;

/// Where values come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// What a rank put in.
    Input(usize),
    /// The reduction of what these ranks put in.
    Reduced(Range<usize>),
}

/// A part of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) at: Range<usize>,
    pub(crate) source: Source,
    /// Where it begins in the source.
    pub(crate) from: usize,
}

/// The rank before this one and the one after it, in a ring.
pub(crate) fn neighbors(rank: usize, world_size: usize) -> [usize; 2] {
    [
        (rank + world_size - 1) % world_size,
        (rank + 1) % world_size,
    ]
}

/// The whole output of `rank`, in pieces that follow each other.
pub(crate) fn expected(
    kind: Kind,
    shape: &Shape,
    rank: usize,
    world_size: usize,
    root: usize,
) -> Vec<Piece> {
    let (own, everyone) = (shape.block(rank), 0..world_size);
    let all = |source, from| {
        vec![Piece {
            at: 0..shape.output(rank),
            source,
            from,
        }]
    };
    match kind {
        Kind::AllReduce | Kind::AllReduceMany => all(Source::Reduced(everyone), 0),
        Kind::Reduce if rank == root => all(Source::Reduced(everyone), 0),
        Kind::Reduce => all(Source::Input(rank), 0),
        Kind::Broadcast => all(Source::Input(root), 0),
        Kind::Scan => all(Source::Reduced(0..rank + 1), 0),
        Kind::ExclusiveScan if rank == 0 => all(Source::Input(rank), 0),
        Kind::ExclusiveScan => all(Source::Reduced(0..rank), 0),
        Kind::ReduceScatter | Kind::ReduceScatterV => all(Source::Reduced(everyone), own.start),
        Kind::Scatter | Kind::ScatterV => all(Source::Input(root), own.start),
        Kind::Gather | Kind::GatherV if rank != root => Vec::new(),
        Kind::AllGather | Kind::AllGatherV | Kind::Gather | Kind::GatherV => everyone
            .map(|other| Piece {
                at: shape.block(other),
                source: Source::Input(other),
                from: 0,
            })
            .collect(),
        Kind::AllToAll | Kind::AllToAllV => everyone
            .map(|other| Piece {
                at: other * own.len()..(other + 1) * own.len(),
                source: Source::Input(other),
                from: own.start,
            })
            .collect(),
        Kind::NeighborAllToAll => {
            let neighbors = neighbors(rank, world_size);
            let from_neighbor = |at: usize| Piece {
                at: shape.block(at),
                source: Source::Input(neighbors[at]),
                // The rank before this one sends here what goes to the rank after it. One that is listed
                // twice sends its blocks in their order.
                from: shape.block(if world_size > 2 { 1 - at } else { at }).start,
            };
            (0..2).map(from_neighbor).collect()
        }
        Kind::Barrier => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_make_up_the_output() {
        for kind in Kind::ALL {
            for world_size in [1, 2, 3, 5] {
                for rank in 0..world_size {
                    let root = world_size - 1;
                    let shape = Shape::new(kind, 1000, 1, world_size, root);
                    let mut end = 0;
                    for piece in expected(kind, &shape, rank, world_size, root) {
                        assert_eq!(piece.at.start, end, "{kind}");
                        end = piece.at.end;
                    }
                    assert_eq!(end, shape.output(rank), "{kind}");
                }
            }
        }
    }

    #[test]
    fn neighbors_send_what_goes_the_other_way() {
        let shape = Shape::new(Kind::NeighborAllToAll, 8, 1, 3, 0);
        let pieces = expected(Kind::NeighborAllToAll, &shape, 1, 3, 0);
        let piece = |at, rank, from| Piece {
            at,
            source: Source::Input(rank),
            from,
        };
        assert_eq!(pieces, [piece(0..4, 0, 4), piece(4..8, 2, 0)]);
    }
}
