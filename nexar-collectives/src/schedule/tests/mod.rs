//! Every algorithm through the checker, with the rounds and elements that docs/algorithms.md states.

mod documented;
mod variants;

use super::check::{Report, build_all, check, count, count_symmetric, same};
use super::select::{algorithms, is_single_site};
use super::*;
use documented::{documented, is_bound};
use proptest::prelude::*;
use variants::{Case, edges, exchange, variants};

fn plan(algorithm: Algorithm, segment: usize, lookahead: usize) -> Plan {
    Plan {
        algorithm,
        segment,
        lookahead,
        ordered: false,
    }
}

/// What a plan amounts to: algorithms that cannot do what is asked for have a stand-in.
fn effective(case: &Case, plan: Plan) -> Plan {
    let reduces = matches!(
        case.collective(),
        Collective::AllReduce | Collective::ReduceScatter
    );
    let stand_in = match plan.algorithm {
        Algorithm::Ring => reduces && plan.ordered,
        Algorithm::Binomial => case.is_uneven(),
        _ => false,
    };
    match stand_in {
        true => Plan {
            algorithm: Algorithm::Direct,
            ..plan
        },
        false => plan,
    }
}

/// Proves a case with a plan, and of reductions with the same in the order of the ranks.
fn prove(case: &Case, plan: Plan) {
    let reduces = matches!(
        case.collective(),
        Collective::Reduce | Collective::AllReduce | Collective::ReduceScatter
    );
    for ordered in if reduces { 0..2 } else { 0..1 } {
        let plan = Plan {
            ordered: ordered == 1,
            ..plan
        };
        let context = || format!("{:?}: {plan}", case.operations);
        let schedules = build_all(&case.operations, plan);
        match check(&case.operations, plan.ordered, &schedules) {
            Ok(report) => assert_documented(case, plan, report),
            Err(fault) => panic!("{}: {fault:?}", context()),
        }
        let plan = effective(case, plan);
        if reduces && is_single_site(case.collective(), plan.algorithm, schedules.len()) {
            let claims = |s: &Schedule| s.single_site || s.items.is_empty();
            assert!(schedules.iter().all(claims), "{}", context());
        }
    }
}

fn assert_documented(case: &Case, plan: Plan, mut report: Report) {
    let plan = effective(case, plan);
    let documented = documented(case, plan);
    if is_bound(case, plan) && report.rounds <= documented.rounds {
        report.rounds = documented.rounds;
    }
    assert_eq!(report, documented, "{:?}: {plan}", case.operations);
}

fn prove_all(world: usize, root: usize, count: usize, block: usize, parameters: (usize, usize)) {
    let (segment, lookahead) = parameters;
    for case in variants(world, root, count, block) {
        for &algorithm in algorithms(case.collective()) {
            prove(&case, plan(algorithm, segment, lookahead));
        }
    }
}

#[test]
fn short_vectors_in_small_worlds() {
    for world in 1..=17 {
        for count in [0, 1, world - 1, world, world + 1] {
            prove_all(world, world / 3, count, count, (5, 2));
        }
    }
}

#[test]
fn short_vectors_in_large_worlds() {
    for world in (17..=64).step_by(5) {
        // One of the lengths for each world: all algorithms meet each of them.
        let count = [world + 1, 1, world, world - 1][world % 4];
        prove_all(world, world / 3, count, 1, (5, 2));
    }
}

#[test]
fn many_blocks_in_small_worlds() {
    for world in [1, 2, 3, 5, 8, 9] {
        for (count, segment, lookahead) in [
            (97, 1, 1),
            (97, 2, 2),
            (101, 3, 3),
            (120, 4, 2),
            (64, 7, 40),
            (50, 1000, 2),
        ] {
            prove_all(world, world - 1, count, count / 4, (segment, lookahead));
        }
    }
}

#[test]
fn several_blocks_in_large_worlds() {
    for world in [17, 33, 64] {
        prove_all(world, 1, world + 7, 3, (1, 2));
    }
}

#[test]
fn every_root() {
    for world in [2, 3, 5, 8, 13, 16] {
        for root in 0..world {
            for case in variants(world, root, 23, 4) {
                if case.has_root() {
                    for &algorithm in algorithms(case.collective()) {
                        prove(&case, plan(algorithm, 3, 1));
                    }
                }
            }
        }
    }
}

#[test]
fn selected_plans() {
    for world in [1, 2, 3, 4, 8, 17] {
        for count in [1, 3000, 50_000] {
            let long = variants(world, 0, count, count);
            for (case, long) in variants(world, 0, count.min(300), count.min(90))
                .iter()
                .zip(long)
            {
                // Thousandths of the segments that select gives, to cross all of its rules with short vectors.
                let operation = &long.operations[0];
                for hosts in [Hosts::One, Hosts::Several] {
                    let select =
                        |ordered| select(operation, 1000, world, hosts, None, false, ordered);
                    prove(case, select(false));
                    let plan = select(true);
                    assert_eq!(plan, effective(case, plan));
                    prove(case, plan);
                }
            }
        }
    }
}

#[test]
fn plans_agree_where_ranks_know_different_lengths() {
    for world in 1..9 {
        for case in variants(world, world / 2, 40, 7) {
            for forced in [None, Some(Algorithm::Binomial)] {
                let plan =
                    |operation| select(operation, 4, world, Hosts::Several, forced, false, false);
                let plans: Vec<_> = case.operations.iter().map(plan).collect();
                assert!(plans.iter().all(|plan| *plan == plans[0]), "{case:?}");
            }
        }
    }
}

#[test]
fn rounds_and_elements_of_1024_ranks() {
    const WORLD: usize = 1024;
    // Two blocks, with a piece of one element for each rank in each; otherwise short vectors.
    let all_reduce = |case: &Case| case.collective() == Collective::AllReduce;
    let cases = variants(WORLD, 1000, 2 * WORLD, 2).into_iter();
    let short = variants(WORLD, 1000, 20, 2).into_iter();
    let cases = cases.filter(all_reduce);
    for case in cases.chain(short.filter(|case| !all_reduce(case))) {
        for &algorithm in algorithms(case.collective()) {
            let plan = plan(algorithm, 1, 2);
            let operation = &case.operations[0];
            let with_all = matches!(algorithm, Algorithm::Direct | Algorithm::Ring);
            let report = match operation {
                Operation::AllReduce { .. } if with_all => count_symmetric(operation, WORLD, plan),
                // The schedules of all ranks would be millions of items.
                Operation::AllGather { .. } | Operation::ReduceScatter { .. }
                    if with_all && case.is_uneven() =>
                {
                    continue;
                }
                Operation::AllGather { .. } | Operation::ReduceScatter { .. } if with_all => {
                    count_symmetric(operation, WORLD, plan)
                }
                Operation::AllToAll { in_place: true, .. } if with_all => continue,
                Operation::AllToAll { .. } => count_symmetric(operation, WORLD, plan),
                _ => count(&case.operations, plan),
            };
            let report = report.unwrap_or_else(|fault| panic!("{operation:?}: {fault:?}"));
            assert_documented(&case, plan, report);
        }
    }
}

#[test]
fn nothing_to_do_is_an_empty_schedule() {
    for case in variants(3, 0, 0, 0) {
        for &algorithm in algorithms(case.collective()) {
            let schedules = build_all(&case.operations, plan(algorithm, 4, 2));
            let idle = |s: &Schedule| s.items.is_empty();
            let barrier = case.operations[0] == Operation::Barrier;
            assert!(barrier || schedules.iter().all(idle), "{case:?}");
            let told = |s: &Schedule| !s.told.is_empty();
            let alone = !schedules.iter().all(told);
            assert_eq!(alone, barrier || case.operations[0].is_empty(), "{case:?}");
        }
    }
}

#[test]
fn a_rank_alone_only_copies() {
    for case in variants(1, 0, 9, 9) {
        for &algorithm in algorithms(case.collective()) {
            let alone = &build_all(&case.operations, plan(algorithm, 4, 2))[0];
            let copies = |item: &Item| matches!(item.action, Action::Copy { .. });
            assert!(alone.items.iter().all(copies), "{case:?}");
            assert_eq!((alone.scratch, &alone.told), (0, &vec![]), "{case:?}");
        }
    }
}

#[test]
fn foreign_algorithms_and_zero_parameters_do_no_harm() {
    for algorithm in Algorithm::ALL {
        for case in variants(4, 2, 11, 5) {
            let schedules = build_all(&case.operations, plan(algorithm, 0, 0));
            let proof = check(&case.operations, false, &schedules);
            assert!(proof.is_ok(), "{case:?} {algorithm}: {proof:?}");
        }
    }
}

#[test]
fn an_exchange_of_different_lengths_is_found() {
    let link = |rank, sends, expects| Link {
        rank,
        sends,
        expects,
    };
    let links = [vec![link(1, 3, 2)], vec![link(0, 2, 4)]];
    let operations = links.map(|links| Operation::Exchange {
        links: links.into(),
    });
    let schedules = build_all(&operations, plan(Algorithm::Direct, 9, 1));
    let fault = check(&operations, false, &schedules).unwrap_err();
    assert!(matches!(fault, check::Fault::Length { .. }), "{fault:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_parameters(
        world in 1usize..24,
        count in 0usize..160,
        segment in 1usize..40,
        lookahead in 1usize..6,
        root in 0usize..24,
        which in any::<prop::sample::Index>(),
    ) {
        let cases = variants(world, root % world, count, count / 4);
        let case = which.get(&cases);
        for &algorithm in algorithms(case.collective()) {
            prove(case, plan(algorithm, segment, lookahead));
        }
    }

    #[test]
    fn any_lengths(
        counts in prop::collection::vec(prop_oneof![Just(0usize), 1usize..30], 1..18),
        in_place in any::<bool>(),
        segment in 1usize..20,
        lookahead in 1usize..4,
        root in 0usize..18,
    ) {
        let world = counts.len();
        for case in variants::uneven(root % world, &counts, in_place) {
            for &algorithm in algorithms(case.collective()) {
                prove(&case, plan(algorithm, segment, lookahead));
            }
        }
    }

    #[test]
    fn any_links(
        world in 1usize..12,
        links in prop::collection::vec((0usize..12, 0usize..12, 0usize..9, 0usize..9), 0..40),
        segment in 1usize..9,
    ) {
        let links = edges(world, &links);
        prove(&exchange(links), plan(Algorithm::Direct, segment, 1));
    }
}
