//! What the buffers of an operation hold before it, and have to hold after it.

use crate::schedule::{Link, Operation};
use std::ops::Range;

/// What an element of the output has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Anything,
    /// An element that a rank contributes.
    Element {
        rank: usize,
        element: usize,
    },
    /// The combination of the same element of all ranks before `ranks`.
    Combined {
        ranks: usize,
        element: usize,
    },
}

/// Elements of a rank's input.
pub(super) fn input_len(operation: &Operation, world: usize, rank: usize) -> usize {
    match operation {
        Operation::Barrier => 1,
        Operation::Scan {
            count,
            exclusive: true,
        } if rank == 0 => *count,
        Operation::Broadcast { .. }
        | Operation::AllReduce { .. }
        | Operation::Scan { .. }
        | Operation::AllGather { in_place: true, .. }
        | Operation::ReduceScatter { in_place: true, .. }
        | Operation::AllToAll { in_place: true, .. } => 0,
        Operation::Reduce { root, count } => if_root(rank != *root, *count),
        Operation::AllGather { parts, .. } | Operation::Gather { parts, .. } => {
            parts.get(rank).len()
        }
        Operation::Scatter { root, parts } => if_root(rank == *root, parts.total(world)),
        Operation::ReduceScatter { parts, .. } => parts.total(world),
        Operation::AllToAll { count, .. } => world * count,
        Operation::Exchange { links } => links.iter().map(|link| link.sends).sum(),
    }
}

/// Elements of a rank's output.
pub(super) fn output_len(operation: &Operation, world: usize, rank: usize) -> usize {
    match operation {
        Operation::Barrier => 0,
        Operation::Scan {
            exclusive: true, ..
        } if rank == 0 => 0,
        Operation::Broadcast { count, .. }
        | Operation::AllReduce { count }
        | Operation::Scan { count, .. } => *count,
        Operation::Reduce { root, count } => if_root(rank == *root, *count),
        Operation::AllGather { parts, .. } => parts.total(world),
        Operation::Gather { root, parts } => if_root(rank == *root, parts.total(world)),
        Operation::Scatter { parts, .. } => parts.get(rank).len(),
        Operation::ReduceScatter { parts, in_place } => match in_place {
            true => parts.total(world),
            false => parts.get(rank).len(),
        },
        Operation::AllToAll { count, .. } => world * count,
        Operation::Exchange { links } => links.iter().map(|link| link.expects).sum(),
    }
}

/// The part of a rank's output that holds its contribution at the start, where there is no input.
pub(super) fn in_place(operation: &Operation, world: usize, rank: usize) -> Range<usize> {
    match operation {
        Operation::Broadcast { .. }
        | Operation::AllReduce { .. }
        | Operation::Scan { .. }
        | Operation::Reduce { .. }
        | Operation::ReduceScatter { in_place: true, .. }
        | Operation::AllToAll { in_place: true, .. } => 0..output_len(operation, world, rank),
        Operation::AllGather {
            parts,
            in_place: true,
        } => parts.get(rank),
        _ => 0..0,
    }
}

/// What an element of a rank's output has to be at the end.
pub(super) fn expected(operations: &[Operation], rank: usize, element: usize) -> Expected {
    let world = operations.len();
    let block_of = |parts: &super::super::Parts| {
        let of = (0..world).find(|&of| parts.get(of).contains(&element));
        of.map_or(Expected::Anything, |of| Expected::Element {
            rank: of,
            element: element - parts.get(of).start,
        })
    };
    match &operations[rank] {
        Operation::Barrier => Expected::Anything,
        &Operation::Broadcast { root, .. } => Expected::Element {
            rank: root,
            element,
        },
        Operation::Reduce { .. } | Operation::AllReduce { .. } => Expected::Combined {
            ranks: world,
            element,
        },
        Operation::Scan { exclusive, .. } => Expected::Combined {
            ranks: rank + usize::from(!exclusive),
            element,
        },
        Operation::AllGather { parts, .. } | Operation::Gather { parts, .. } => block_of(parts),
        &Operation::Scatter { root, .. } => {
            let Operation::Scatter { parts, .. } = &operations[root] else {
                return Expected::Anything;
            };
            Expected::Element {
                rank: root,
                element: parts.get(rank).start + element,
            }
        }
        Operation::ReduceScatter { parts, in_place } => {
            let own = parts.get(rank);
            let element = element + if *in_place { 0 } else { own.start };
            match own.contains(&element) {
                true => Expected::Combined {
                    ranks: world,
                    element,
                },
                false => Expected::Anything,
            }
        }
        Operation::AllToAll { count, .. } => Expected::Element {
            rank: element / count,
            element: rank * count + element % count,
        },
        Operation::Exchange { links } => linked(operations, links, rank, element),
    }
}

/// What an element has to be that comes over one of the links.
fn linked(operations: &[Operation], links: &[Link], rank: usize, element: usize) -> Expected {
    let mut start = 0;
    for (i, link) in links.iter().enumerate() {
        if element >= start + link.expects {
            start += link.expects;
            continue;
        }
        let before = links[..i].iter().filter(|other| other.rank == link.rank);
        let Operation::Exchange { links: theirs } = &operations[link.rank] else {
            break;
        };
        let of_this = |&(_, other): &(usize, &Link)| other.rank == rank;
        let theirs_back = theirs
            .iter()
            .enumerate()
            .filter(of_this)
            .nth(before.count());
        let Some((at, _)) = theirs_back else { break };
        let first: usize = theirs[..at].iter().map(|link| link.sends).sum();
        return Expected::Element {
            rank: link.rank,
            element: first + element - start,
        };
    }
    Expected::Anything
}

fn if_root(root: bool, count: usize) -> usize {
    if root { count } else { 0 }
}
