//! The rounds and elements that docs/algorithms.md states.

use super::Case;
use crate::schedule::check::Report;
use crate::schedule::{Algorithm, Collective, Operation, Parts, Plan};

/// Elements of piece `i` of all blocks, if blocks of `parts * segment` are divided into `parts` pieces.
fn piece(count: usize, parts: usize, segment: usize, i: usize) -> usize {
    let tail = count % (parts * segment);
    count / (parts * segment) * segment + tail / parts + usize::from(i < tail % parts)
}

fn ceil_log2(n: usize) -> usize {
    n.next_power_of_two().ilog2() as usize
}

/// The table of docs/algorithms.md.
pub(super) fn documented(case: &Case, plan: Plan) -> Report {
    let n = case.operations.len();
    let idle = Report {
        rounds: 0,
        sent: vec![0; n],
    };
    if n == 1 || case.operations[0].is_empty() {
        return idle;
    }
    let ranks = 0..n;
    let (rounds, sent): (usize, Vec<usize>) = match &case.operations[case.root] {
        Operation::Barrier => match plan.algorithm {
            Algorithm::RecursiveDoubling => all_reduce(n, 1, plan),
            _ => (ceil_log2(n), vec![ceil_log2(n); n]),
        },
        &Operation::Broadcast { root, count } => broadcast(n, root, count, plan),
        &Operation::Reduce { root, count } => reduce(n, root, count, plan),
        &Operation::AllReduce { count } => all_reduce(n, count, plan),
        &Operation::Scan { count, exclusive } => scan(n, count, exclusive, plan),
        Operation::AllGather { parts, .. } => all_gather(n, parts, plan),
        Operation::Gather { root, parts } => {
            let sent = |rank| match rank == *root {
                true => 0,
                false => collected(n, rank, *root, parts, plan),
            };
            (rooted_rounds(n, *root, plan), ranks.map(sent).collect())
        }
        Operation::Scatter { root, parts } => {
            let sent = |rank| match rank == *root {
                true => parts.total(n) - parts.get(rank).len(),
                false => collected(n, rank, *root, parts, plan) - parts.get(rank).len(),
            };
            (rooted_rounds(n, *root, plan), ranks.map(sent).collect())
        }
        Operation::ReduceScatter { parts, .. } => {
            let sent = ranks.map(|rank| parts.total(n) - parts.get(rank).len());
            let groups = parts
                .longest(n)
                .div_ceil(plan.segment)
                .div_ceil(plan.lookahead);
            let rounds = match plan.algorithm {
                Algorithm::Ring => groups * (n - 1),
                _ => paced(parts.longest(n), plan),
            };
            (rounds, sent.collect())
        }
        &Operation::AllToAll { count, in_place } => match plan.algorithm {
            Algorithm::Bruck => {
                let hops: u32 = ranks.map(usize::count_ones).sum();
                (bruck_rounds(n), vec![hops as usize * count; n])
            }
            _ if in_place => (1, vec![(n - 1) * count; n]),
            _ => (paced(count, plan), vec![(n - 1) * count; n]),
        },
        Operation::Exchange { .. } => {
            let sent = |(rank, operation): (usize, &Operation)| match operation {
                Operation::Exchange { links } => {
                    let others = links.iter().filter(|link| link.rank != rank);
                    others.map(|link| link.sends).sum()
                }
                _ => 0,
            };
            let sent: Vec<usize> = case.operations.iter().enumerate().map(sent).collect();
            (usize::from(sent.iter().any(|&sent| sent > 0)), sent)
        }
    };
    Report { rounds, sent }
}

/// Whether the documented rounds are an upper bound.
pub(super) fn is_bound(case: &Case, plan: Plan) -> bool {
    match &case.operations[case.root] {
        Operation::AllGather { parts, .. } | Operation::ReduceScatter { parts, .. } => {
            let many = parts.longest(1) > plan.segment * plan.lookahead;
            let groups = plan.algorithm == Algorithm::Ring && many;
            matches!(parts, Parts::Uneven(_))
                || (groups && case.collective() == Collective::ReduceScatter)
        }
        Operation::Gather { parts, .. } | Operation::Scatter { parts, .. } => {
            matches!(parts, Parts::Uneven(_)) || *parts == Parts::Even(0)
        }
        // The only piece may be on the root.
        Operation::Reduce { count, .. } => *count == 1 && plan.algorithm == Algorithm::Direct,
        _ => false,
    }
}

/// Of direct exchanges, in which ranks keep in step.
fn paced(count: usize, plan: Plan) -> usize {
    count.div_ceil(plan.segment).div_ceil(plan.lookahead)
}

fn broadcast(n: usize, root: usize, c: usize, plan: Plan) -> (usize, Vec<usize>) {
    let number = |rank: usize| (rank + n - root) % n;
    let children = |number: usize| {
        let subtree = if number == 0 {
            n
        } else {
            number & number.wrapping_neg()
        };
        (0..usize::BITS)
            .filter(|bit| 1 << bit < subtree && number + (1 << bit) < n)
            .count()
    };
    match plan.algorithm {
        Algorithm::Binomial => (
            n.ilog2() as usize,
            (0..n).map(|rank| children(number(rank)) * c).collect(),
        ),
        Algorithm::Chain => {
            let sent = |rank| if number(rank) == n - 1 { 0 } else { c };
            (n - 1, (0..n).map(sent).collect())
        }
        _ => {
            let sent = |rank| match number(rank) {
                0 => c,
                number => (n - 2) * piece(c, n - 1, plan.segment, number - 1),
            };
            (if n == 2 { 1 } else { 2 }, (0..n).map(sent).collect())
        }
    }
}

fn reduce(n: usize, root: usize, c: usize, plan: Plan) -> (usize, Vec<usize>) {
    let of_root = match plan.algorithm {
        Algorithm::Binomial => 0,
        _ => c - piece(c, n, plan.segment, root),
    };
    let sent = |rank| if rank == root { of_root } else { c };
    let rounds = match plan.algorithm {
        Algorithm::Binomial => depth(n, root),
        _ => 2,
    };
    (rounds, (0..n).map(sent).collect())
}

/// The depth of the tree of consecutive ranks.
fn depth(n: usize, root: usize) -> usize {
    let steps = n.ilog2() as usize;
    steps + usize::from(root >= 1 << steps)
}

fn rooted_rounds(n: usize, root: usize, plan: Plan) -> usize {
    match plan.algorithm {
        Algorithm::Binomial => depth(n, root),
        _ => 1,
    }
}

/// The elements of the blocks of a rank and of those below it in the tree; it is not the root.
fn collected(n: usize, rank: usize, root: usize, parts: &Parts, plan: Plan) -> usize {
    let Algorithm::Binomial = plan.algorithm else {
        return parts.get(rank).len();
    };
    let size = 1 << rank.trailing_zeros().min((rank ^ root).ilog2());
    (rank..n.min(rank + size))
        .map(|rank| parts.get(rank).len())
        .sum()
}

fn all_reduce(n: usize, c: usize, plan: Plan) -> (usize, Vec<usize>) {
    let own = |rank: usize| piece(c, n, plan.segment, rank % n);
    let steps = n.ilog2() as usize;
    let folded = n - (1 << steps);
    match plan.algorithm {
        Algorithm::RecursiveDoubling => {
            let sent = |rank| match rank {
                rank if rank >= 2 * folded => steps * c,
                rank if rank % 2 == 0 => c,
                _ => (steps + 1) * c,
            };
            let fold = match folded {
                0 => 0,
                _ if 2 * folded <= 1 << steps => 1,
                _ => 2,
            };
            (steps + fold, (0..n).map(sent).collect())
        }
        Algorithm::Ring => {
            let sent = |rank| 2 * c - own(rank) - own(rank + 1);
            (2 * (n - 1), (0..n).map(sent).collect())
        }
        _ => {
            let sent = |rank| c - own(rank) + (n - 1) * own(rank);
            (2, (0..n).map(sent).collect())
        }
    }
}

fn scan(n: usize, c: usize, exclusive: bool, plan: Plan) -> (usize, Vec<usize>) {
    let doubling = plan.algorithm == Algorithm::RecursiveDoubling;
    let sent = |rank: usize| {
        let shift = usize::from(exclusive && rank + 1 < n);
        let partial = match doubling {
            true => ceil_log2(n - rank),
            false => usize::from(rank + 1 < n),
        };
        match exclusive && rank == 0 {
            true => c,
            false => (shift + partial) * c,
        }
    };
    let rounds = match (doubling, exclusive) {
        (true, false) => n.ilog2() as usize,
        (true, true) => 1 + (n - 1).ilog2() as usize,
        (false, _) => n - 1,
    };
    (rounds, (0..n).map(sent).collect())
}

fn all_gather(n: usize, parts: &Parts, plan: Plan) -> (usize, Vec<usize>) {
    let len = |rank: usize| parts.get(rank % n).len();
    match plan.algorithm {
        Algorithm::Ring => {
            let sent = |rank| parts.total(n) - len(rank + 1);
            (n - 1, (0..n).map(sent).collect())
        }
        Algorithm::Bruck => {
            let sent = |rank: usize| {
                let distances = (0..ceil_log2(n)).map(|round| 1 << round);
                let blocks = distances.flat_map(|distance: usize| 0..distance.min(n - distance));
                blocks.map(|above| len(rank + above)).sum()
            };
            (bruck_rounds(n), (0..n).map(sent).collect())
        }
        _ => {
            let sent = |rank| (n - 1) * len(rank);
            let rounds = paced(parts.longest(n), plan);
            (rounds, (0..n).map(sent).collect())
        }
    }
}

/// The last round passes on what is missing to a power of two; if that is little, it need not wait for
/// the round before.
fn bruck_rounds(n: usize) -> usize {
    let steps = ceil_log2(n) - 1;
    steps.max(1 + ceil_log2(n - (1 << steps)))
}
