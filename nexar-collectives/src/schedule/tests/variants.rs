//! Operations to prove.

use super::same;
use crate::schedule::{Collective, Link, Operation, Parts};

/// What the ranks do together.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The operation of each rank, with what it knows.
    pub(super) operations: Vec<Operation>,
    /// The rank that knows all lengths, where only one does.
    pub(super) root: usize,
}

impl Case {
    fn same(operation: Operation, world: usize) -> Case {
        Case {
            operations: same(&operation, world),
            root: 0,
        }
    }

    pub(super) fn collective(&self) -> Collective {
        self.operations[0].collective()
    }

    /// Whether blocks differ in length.
    pub(super) fn is_uneven(&self) -> bool {
        matches!(
            &self.operations[0],
            Operation::AllGather {
                parts: Parts::Uneven(_),
                ..
            } | Operation::ReduceScatter {
                parts: Parts::Uneven(_),
                ..
            } | Operation::Gather {
                parts: Parts::Uneven(_),
                ..
            } | Operation::Scatter {
                parts: Parts::Uneven(_),
                ..
            }
        )
    }

    pub(super) fn has_root(&self) -> bool {
        matches!(
            self.collective(),
            Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter
        )
    }
}

/// Every operation: on vectors of `count` elements, or on blocks of about `block`.
pub(super) fn variants(world: usize, root: usize, count: usize, block: usize) -> Vec<Case> {
    let mut operations = vec![
        Operation::Barrier,
        Operation::Broadcast { root, count },
        Operation::Reduce { root, count },
        Operation::AllReduce { count },
    ];
    for exclusive in [false, true] {
        operations.push(Operation::Scan { count, exclusive });
    }
    let parts = Parts::Even(block);
    operations.push(Operation::Gather {
        root,
        parts: parts.clone(),
    });
    operations.push(Operation::Scatter {
        root,
        parts: parts.clone(),
    });
    for in_place in [false, true] {
        operations.push(Operation::AllToAll {
            count: block,
            in_place,
        });
        operations.push(all_gather(parts.clone(), in_place));
        operations.push(reduce_scatter(parts.clone(), in_place));
    }
    let operations = operations.into_iter();
    let mut cases: Vec<Case> = operations.map(|o| Case::same(o, world)).collect();

    // Blocks of 0, about a half, and so on up to twice the length.
    let counts: Vec<usize> = (0..world).map(|i| (i * 7 + 3) % 5 * block / 2).collect();
    for in_place in [false, true] {
        cases.extend(uneven(root, &counts, in_place));
    }
    if world <= 64 {
        let among = |a: usize| (a..world).map(move |b| (a, b, (a * 3 + b) % 4, (a + b * 3) % 3));
        let scale = |(a, b, there, back)| (a, b, there * block / 2, back * block);
        let all: Vec<_> = (0..world).flat_map(among).map(scale).collect();
        cases.push(exchange(edges(world, &all)));
    }
    let next = |a: usize| (a, (a + 1) % world, block, block * (1 + a % 2));
    let ring: Vec<_> = (0..world).map(next).collect();
    cases.push(exchange(edges(world, &ring)));
    cases
}

/// Every operation on blocks of these lengths.
pub(super) fn uneven(root: usize, counts: &[usize], in_place: bool) -> Vec<Case> {
    let world = counts.len();
    let parts = Parts::uneven(counts).unwrap();
    let mut cases = vec![
        Case::same(all_gather(parts.clone(), in_place), world),
        Case::same(reduce_scatter(parts.clone(), in_place), world),
    ];
    // Ranks other than the root know their own length alone.
    let known = |rank: usize| {
        let own = |i| if i == rank { counts[i] } else { 0 };
        match rank == root {
            true => parts.clone(),
            false => Parts::uneven(&(0..world).map(own).collect::<Vec<_>>()).unwrap(),
        }
    };
    let gather = |rank| Operation::Gather {
        root,
        parts: known(rank),
    };
    let scatter = |rank| Operation::Scatter {
        root,
        parts: known(rank),
    };
    for operations in [
        (0..world).map(gather).collect(),
        (0..world).map(scatter).collect(),
    ] {
        cases.push(Case { operations, root });
    }
    cases
}

fn all_gather(parts: Parts, in_place: bool) -> Operation {
    Operation::AllGather { parts, in_place }
}

fn reduce_scatter(parts: Parts, in_place: bool) -> Operation {
    Operation::ReduceScatter { parts, in_place }
}

/// The links of each rank, from pairs of ranks with what goes there and what comes back. Each rank has
/// its links in an order of its own, but those to one rank in the order of the list.
pub(super) fn edges(world: usize, pairs: &[(usize, usize, usize, usize)]) -> Vec<Vec<Link>> {
    let mut links = vec![Vec::new(); world];
    for &(a, b, sends, expects) in pairs {
        let (a, b) = (a % world, b % world);
        let expects = if a == b { sends } else { expects };
        let link = |rank, sends, expects| Link {
            rank,
            sends,
            expects,
        };
        links[a].push(link(b, sends, expects));
        if a != b {
            links[b].push(link(a, expects, sends));
        }
    }
    for (rank, links) in links.iter_mut().enumerate() {
        links.sort_by_key(|link| (link.rank * 7 + rank * 3) % world);
    }
    links
}

pub(super) fn exchange(links: Vec<Vec<Link>>) -> Case {
    let exchange = |links: Vec<Link>| Operation::Exchange {
        links: links.into(),
    };
    Case {
        operations: links.into_iter().map(exchange).collect(),
        root: 0,
    }
}
