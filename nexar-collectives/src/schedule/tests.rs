//! Every algorithm through the checker, with the rounds and elements that docs/algorithms.md states.

use super::check::{Report, build_all, check, count, count_symmetric};
use super::select::is_single_site;
use super::*;
use proptest::prelude::*;

fn plan(algorithm: Algorithm, segment: usize, lookahead: usize) -> Plan {
    Plan {
        algorithm,
        segment,
        lookahead,
    }
}

/// Every operation with every algorithm.
fn variants(root: usize, count: usize) -> Vec<(Operation, Algorithm)> {
    let operations = [
        Operation::Barrier,
        Operation::Broadcast { root, count },
        Operation::AllReduce { count },
        Operation::AllGather { count },
        Operation::ReduceScatter { count },
    ];
    let known = |operation: Operation| select::algorithms(operation.collective()).iter();
    operations
        .into_iter()
        .flat_map(|operation| known(operation).map(move |&algorithm| (operation, algorithm)))
        .collect()
}

/// Elements of piece `i` of all blocks, if blocks of `parts * segment` are divided into `parts` pieces.
fn piece(count: usize, parts: usize, segment: usize, i: usize) -> usize {
    let tail = count % (parts * segment);
    count / (parts * segment) * segment + tail / parts + usize::from(i < tail % parts)
}

fn ceil_log2(n: usize) -> usize {
    n.next_power_of_two().ilog2() as usize
}

/// The table of docs/algorithms.md. For a ring reduce-scatter of several groups of segments, the rounds
/// are an upper bound.
fn documented(operation: Operation, n: usize, plan: Plan) -> Report {
    let c = operation.count();
    if n == 1 || c == 0 {
        return Report {
            rounds: 0,
            sent: vec![0; n],
        };
    }
    let steps = n.ilog2() as usize;
    let folded = n - (1 << steps);
    let own = |rank: usize| piece(c, n, plan.segment, rank % n);
    let number = |rank: usize, root: usize| (rank + n - root) % n;
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
    let ranks = 0..n;
    let (rounds, sent): (usize, Vec<usize>) = match (operation, plan.algorithm) {
        (Operation::Barrier, _) => (ceil_log2(n), vec![ceil_log2(n); n]),
        (Operation::Broadcast { root, .. }, Algorithm::Binomial) => (
            steps,
            ranks.map(|rank| children(number(rank, root)) * c).collect(),
        ),
        (Operation::Broadcast { root, .. }, Algorithm::Chain) => {
            let sent = |rank| if number(rank, root) == n - 1 { 0 } else { c };
            (n - 1, ranks.map(sent).collect())
        }
        (Operation::Broadcast { root, .. }, _) => {
            let sent = |rank| match number(rank, root) {
                0 => c,
                number => (n - 2) * piece(c, n - 1, plan.segment, number - 1),
            };
            (if n == 2 { 1 } else { 2 }, ranks.map(sent).collect())
        }
        (Operation::AllReduce { .. }, Algorithm::RecursiveDoubling) => {
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
            (steps + fold, ranks.map(sent).collect())
        }
        (Operation::AllReduce { .. }, Algorithm::Ring) => (
            2 * (n - 1),
            ranks
                .map(|rank| 2 * c - own(rank) - own(rank + 1))
                .collect(),
        ),
        (Operation::AllReduce { .. }, _) => (
            2,
            ranks
                .map(|rank| c - own(rank) + (n - 1) * own(rank))
                .collect(),
        ),
        (Operation::ReduceScatter { .. }, Algorithm::Ring) => {
            let groups = c.div_ceil(plan.segment).div_ceil(plan.lookahead);
            (groups * (n - 1), vec![(n - 1) * c; n])
        }
        (_, Algorithm::Ring) => (n - 1, vec![(n - 1) * c; n]),
        (_, _) => (1, vec![(n - 1) * c; n]),
    };
    Report { rounds, sent }
}

/// Whether the documented rounds are an upper bound.
fn is_bound(operation: Operation, plan: Plan) -> bool {
    matches!(operation, Operation::ReduceScatter { count }
        if plan.algorithm == Algorithm::Ring && count > plan.segment * plan.lookahead)
}

fn prove(operation: Operation, world: usize, plan: Plan) {
    let schedules = build_all(operation, world, plan);
    match check(operation, &schedules) {
        Ok(mut report) => {
            let documented = documented(operation, world, plan);
            if is_bound(operation, plan) && report.rounds <= documented.rounds {
                report.rounds = documented.rounds;
            }
            assert_eq!(report, documented, "{operation:?} {world} {plan}");
        }
        Err(fault) => panic!("{operation:?} {world} {plan}: {fault:?}"),
    }
    let reduces = matches!(
        operation.collective(),
        Collective::AllReduce | Collective::ReduceScatter
    );
    if reduces && is_single_site(plan.algorithm, world) {
        assert!(
            schedules
                .iter()
                .all(|s| s.single_site || s.items.is_empty())
        );
    }
}

/// With a shorter vector if every rank contributes as many elements for each rank.
fn at_most_per_rank(operation: Operation, limit: usize) -> Operation {
    match operation {
        Operation::AllGather { count } => Operation::AllGather {
            count: count.min(limit),
        },
        Operation::ReduceScatter { count } => Operation::ReduceScatter {
            count: count.min(limit),
        },
        other => other,
    }
}

#[test]
fn short_vectors_in_small_worlds() {
    for world in 1..=16 {
        for count in [0, 1, world - 1, world, world + 1] {
            for (operation, algorithm) in variants(world / 3, count) {
                prove(operation, world, plan(algorithm, 5, 2));
            }
        }
    }
}

#[test]
fn short_vectors_in_large_worlds() {
    for world in 17..=64 {
        // One of the lengths for each world: all algorithms meet each of them.
        let count = [world + 1, 1, world, world - 1][world % 4];
        for (operation, algorithm) in variants(world / 3, count) {
            prove(at_most_per_rank(operation, 1), world, plan(algorithm, 5, 2));
        }
    }
}

#[test]
fn many_blocks_in_small_worlds() {
    for world in 1..=9 {
        for (count, segment, lookahead) in [
            (97, 1, 1),
            (97, 2, 2),
            (101, 3, 3),
            (120, 4, 2),
            (64, 7, 40),
            (50, 1000, 2),
        ] {
            for (operation, algorithm) in variants(world - 1, count) {
                prove(operation, world, plan(algorithm, segment, lookahead));
            }
        }
    }
}

#[test]
fn several_blocks_in_large_worlds() {
    for world in [17, 31, 32, 33, 63, 64] {
        for (operation, algorithm) in variants(1, world + 7) {
            prove(at_most_per_rank(operation, 3), world, plan(algorithm, 1, 2));
        }
    }
}

#[test]
fn every_root() {
    for world in [2, 3, 5, 8] {
        for root in 0..world {
            for &algorithm in select::algorithms(Collective::Broadcast) {
                let operation = Operation::Broadcast { root, count: 23 };
                prove(operation, world, plan(algorithm, 3, 1));
            }
        }
    }
}

#[test]
fn selected_plans() {
    for world in [1, 2, 3, 4, 8, 17] {
        for count in [1, 3000, 50_000] {
            for (operation, _) in variants(0, count) {
                // Thousandths of the segments that select gives, to cross all of its rules with short vectors.
                let plan = select(operation, 1000, world, None, false);
                let short = match operation {
                    Operation::Barrier => operation,
                    Operation::Broadcast { root, count } => Operation::Broadcast {
                        root,
                        count: count.min(300),
                    },
                    Operation::AllReduce { count } => Operation::AllReduce {
                        count: count.min(300),
                    },
                    other => at_most_per_rank(other, 90),
                };
                prove(short, world, plan);
            }
        }
    }
}

#[test]
fn rounds_and_elements_of_1024_ranks() {
    const WORLD: usize = 1024;
    for (operation, algorithm) in variants(1000, 2 * WORLD) {
        // Two blocks, with a piece of one element for each rank in each.
        let plan = plan(algorithm, 1, 2);
        let (operation, report) = match (algorithm, operation) {
            (Algorithm::Direct | Algorithm::Ring, _) => {
                let operation = at_most_per_rank(operation, 2);
                (operation, count_symmetric(operation, WORLD, plan))
            }
            (_, Operation::Broadcast { root, .. }) => {
                let operation = Operation::Broadcast { root, count: 100 };
                (operation, count(operation, WORLD, plan))
            }
            _ => (operation, count(operation, WORLD, plan)),
        };
        assert_eq!(
            report,
            Ok(documented(operation, WORLD, plan)),
            "{operation:?} {plan}"
        );
    }
}

#[test]
fn nothing_to_do_is_an_empty_schedule() {
    for (operation, algorithm) in variants(0, 0) {
        if operation != Operation::Barrier {
            assert_eq!(
                build(operation, 3, 1, plan(algorithm, 4, 2)).items,
                [],
                "{operation:?}"
            );
        }
    }
    for (operation, algorithm) in variants(0, 9) {
        let alone = build(operation, 1, 0, plan(algorithm, 4, 2));
        let copies = |item: &Item| matches!(item.action, Action::Copy { .. });
        assert!(alone.items.iter().all(copies), "{operation:?}");
        assert_eq!(alone.scratch, 0, "{operation:?}");
    }
}

#[test]
fn foreign_algorithms_and_zero_parameters_do_no_harm() {
    for algorithm in Algorithm::ALL {
        for (operation, _) in variants(2, 11) {
            let schedules = build_all(operation, 4, plan(algorithm, 0, 0));
            assert!(
                check(operation, &schedules).is_ok(),
                "{operation:?} {algorithm}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_parameters(
        world in 1usize..24,
        count in 0usize..160,
        segment in 1usize..40,
        lookahead in 1usize..6,
        root in 0usize..24,
    ) {
        for (operation, algorithm) in variants(root % world, count) {
            let operation = at_most_per_rank(operation, count / 4);
            prove(operation, world, plan(algorithm, segment, lookahead));
        }
    }
}
