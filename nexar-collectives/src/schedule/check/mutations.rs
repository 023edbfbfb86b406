//! The checker finds what is wrong: every schedule that was proven is broken in every way that
//! matters.

use super::*;
use crate::schedule::select::algorithms;
use crate::schedule::{Algorithm, Link, Parts, Store};

pub(super) const WORLD: usize = 7;

/// The rank that is broken. In a recursive doubling among 7 it stands for another rank, too.
pub(super) const RANK: usize = 5;

/// The schedules of all ranks.
#[derive(Clone)]
pub(super) struct Proven {
    operations: Vec<Operation>,
    plan: Plan,
    pub(super) schedules: Vec<Schedule>,
}

impl Proven {
    pub(super) fn new(operations: Vec<Operation>, algorithm: Algorithm, ordered: bool) -> Proven {
        let plan = Plan {
            algorithm,
            segment: 2,
            lookahead: 2,
            ordered,
        };
        let schedules = build_all(&operations, plan);
        let proven = Proven {
            operations,
            plan,
            schedules,
        };
        assert!(proven.check().is_ok());
        proven
    }

    pub(super) fn check(&self) -> Result<Report, Fault> {
        check(&self.operations, self.plan.ordered, &self.schedules)
    }

    fn items(&mut self) -> &mut Vec<Item> {
        &mut self.schedules[RANK].items
    }
}

/// Several blocks of every operation.
fn operations() -> Vec<Vec<Operation>> {
    let count = 23;
    let even = Parts::Even(5);
    let uneven = Parts::uneven(&[3, 5, 0, 4, 2, 6, 1]).unwrap();
    let mut all = vec![
        Operation::Barrier,
        Operation::Broadcast { root: 1, count },
        Operation::Reduce { root: 1, count },
        Operation::Reduce { root: RANK, count },
        Operation::AllReduce { count },
    ];
    for flag in [false, true] {
        all.push(Operation::Scan {
            count,
            exclusive: flag,
        });
        all.push(Operation::AllToAll {
            count: 3,
            in_place: flag,
        });
        for parts in [&even, &uneven] {
            all.push(Operation::AllGather {
                parts: parts.clone(),
                in_place: flag,
            });
            all.push(Operation::ReduceScatter {
                parts: parts.clone(),
                in_place: flag,
            });
        }
    }
    for root in [1, RANK] {
        all.push(Operation::Gather {
            root,
            parts: even.clone(),
        });
        all.push(Operation::Scatter {
            root,
            parts: even.clone(),
        });
    }
    let all = all.iter().map(|operation| same(operation, WORLD));
    all.chain([exchange()]).collect()
}

/// Every rank exchanges with its neighbours, twice with the next one.
fn exchange() -> Vec<Operation> {
    let links = |rank: usize| {
        let (next, previous) = ((rank + 1) % WORLD, (rank + WORLD - 1) % WORLD);
        let link = |rank, sends, expects| Link {
            rank,
            sends,
            expects,
        };
        [
            link(next, 3, 4),
            link(previous, 4, 3),
            link(rank, 2, 2),
            link(next, 5, 1),
            link(previous, 1, 5),
        ]
    };
    let operation = |rank| Operation::Exchange {
        links: links(rank).into(),
    };
    (0..WORLD).map(operation).collect()
}

/// Every operation with every algorithm.
pub(super) fn cases() -> Vec<Proven> {
    let mut cases = Vec::new();
    for operations in operations() {
        for &algorithm in algorithms(operations[0].collective()) {
            cases.push(Proven::new(operations.clone(), algorithm, false));
        }
    }
    cases
}

fn all_reduce(algorithm: Algorithm) -> Proven {
    let operation = Operation::AllReduce { count: 23 };
    Proven::new(same(&operation, WORLD), algorithm, false)
}

/// Applies a change to each item of a rank in turn; it says whether it changed anything.
/// Returns the faults.
fn mutate(mut change: impl FnMut(&mut Vec<Item>, usize) -> bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for proven in cases() {
        for item in 0..proven.schedules[RANK].items.len() {
            let mut mutant = proven.clone();
            if change(mutant.items(), item) {
                match mutant.check() {
                    Err(fault) => faults.push(fault),
                    Ok(_) => panic!(
                        "{:?} {}: item {item} of {:#?}",
                        proven.operations[RANK], proven.plan, mutant.schedules[RANK].items
                    ),
                }
            }
        }
    }
    assert!(faults.len() > 10);
    faults
}

#[test]
fn every_dependency_is_needed() {
    for slot in 0..2 {
        mutate_dependencies(slot);
    }
}

fn mutate_dependencies(slot: usize) {
    let mut dropped = 0;
    for proven in cases() {
        for item in 0..proven.schedules[RANK].items.len() {
            let mut mutant = proven.clone();
            if mutant.items()[item].after[slot].take().is_none() {
                continue;
            }
            dropped += 1;
            let context = || format!("{:?} {}: {item}", proven.operations[RANK], proven.plan);
            let fault = match mutant.check() {
                Err(fault) => fault,
                Ok(_) if may_be_implied(&proven, item) || keeps_pace(&proven, item) => continue,
                Ok(_) => panic!("{}: a dependency that is not needed", context()),
            };
            assert!(
                matches!(
                    fault,
                    Fault::Race { .. }
                        | Fault::Undefined { .. }
                        | Fault::Combination { .. }
                        | Fault::Flag { .. }
                        | Fault::Result { .. }
                        | Fault::SingleSite { .. }
                        | Fault::Order { .. }
                        | Fault::Disagreement { .. }
                        | Fault::Barrier { .. }
                ),
                "{}: {fault:?}",
                context()
            );
        }
    }
    assert!(dropped > 0);
}

/// What comes in an in-place all-to-all may have gone around, and know that the own block has left.
fn may_be_implied(proven: &Proven, item: usize) -> bool {
    let in_place = matches!(
        proven.operations[RANK],
        Operation::AllToAll { in_place: true, .. }
    );
    let bruck = proven.plan.algorithm == Algorithm::Bruck;
    let to_output = matches!(
        proven.schedules[RANK].items[item].action,
        Action::Copy { to, .. } if to.buffer == Buffer::Output
    );
    in_place && bruck && to_output
}

/// A send that waits only so that the rank does not run ahead.
fn keeps_pace(proven: &Proven, item: usize) -> bool {
    let in_step = match proven.operations[RANK] {
        Operation::AllGather { .. } | Operation::ReduceScatter { .. } => true,
        Operation::AllToAll { in_place, .. } => !in_place,
        _ => false,
    };
    let action = proven.schedules[RANK].items[item].action;
    in_step && proven.plan.algorithm == Algorithm::Direct && matches!(action, Action::Send { .. })
}

#[test]
fn every_item_is_needed() {
    mutate(|items, item| {
        items.remove(item);
        for other in &mut items[item..] {
            for after in &mut other.after {
                *after = after.filter(|&d| d as usize != item);
                *after = after.map(|d| if d as usize > item { d - 1 } else { d });
            }
        }
        true
    });
}

#[test]
fn lengths_must_match() {
    let faults = mutate(|items, item| match &mut items[item].action {
        Action::Send { span, .. } | Action::Recv { span, .. } if span.len > 1 => {
            span.len -= 1;
            true
        }
        _ => false,
    });
    assert!(
        faults
            .iter()
            .all(|fault| matches!(fault, Fault::Length { .. }))
    );
}

#[test]
fn spans_must_be_the_right_ones() {
    mutate(|items, item| match &mut items[item].action {
        Action::Send { span, .. } | Action::Recv { span, .. } if span.len > 1 => {
            span.start += 1;
            true
        }
        _ => false,
    });
}

#[test]
fn sends_and_receives_must_keep_their_order() {
    // Exchanges the spans of an item and of the next one in the same direction with the same peer.
    mutate(|items, item| {
        let (peer, span, sends) = match message(&items[item].action) {
            Some(message) => message,
            None => return false,
        };
        let later = (item + 1..items.len()).find_map(|later| {
            let (later_peer, later_span, later_sends) = message(&items[later].action)?;
            let same = later_peer == peer && later_sends == sends && later_span != span;
            same.then_some((later, later_span))
        });
        let Some((later, later_span)) = later else {
            return false;
        };
        for (item, new) in [(item, later_span), (later, span)] {
            match &mut items[item].action {
                Action::Send { span, .. } | Action::Recv { span, .. } => *span = new,
                Action::Copy { .. } => {}
            }
        }
        true
    });
}

/// The peer and the span of a message, and whether it is sent.
fn message(action: &Action) -> Option<(usize, Span, bool)> {
    match *action {
        Action::Send { to, span } => Some((to, span, true)),
        Action::Recv { from, span, .. } => Some((from, span, false)),
        Action::Copy { .. } => None,
    }
}

#[test]
fn flags_must_be_true() {
    for wrong in ["first", "last"] {
        let faults = mutate(|items, item| match &mut items[item].action {
            Action::Recv {
                store: Store::Reduce { first, last, .. },
                ..
            } => {
                let flag = if wrong == "first" { first } else { last };
                *flag = !*flag;
                true
            }
            _ => false,
        });
        let right = |fault: &Fault| matches!(fault, Fault::Flag { flag, .. } if *flag == wrong);
        assert!(faults.iter().all(right), "{faults:?}");
    }
}

#[test]
fn a_reduction_cannot_be_a_copy() {
    mutate(|items, item| match &mut items[item].action {
        Action::Recv { store, .. } if *store != Store::Copy => {
            *store = Store::Copy;
            true
        }
        _ => false,
    });
}

#[test]
fn both_partners_must_evaluate_the_same_expression() {
    let mut proven = all_reduce(Algorithm::RecursiveDoubling);
    for item in proven.items() {
        if let Action::Recv {
            store: Store::Reduce { incoming_first, .. },
            ..
        } = &mut item.action
        {
            *incoming_first = !*incoming_first;
        }
    }
    let fault = proven.check().unwrap_err();
    assert!(matches!(fault, Fault::Disagreement { .. }), "{fault:?}");
}

#[test]
fn the_order_of_arrival_must_not_show() {
    let mut proven = all_reduce(Algorithm::Direct);
    let between = |action| {
        matches!(
            action,
            Action::Recv {
                store: Store::Reduce {
                    first: false,
                    last: false,
                    ..
                },
                ..
            }
        )
    };
    for item in proven.items() {
        if between(item.action) {
            item.after = [None, None];
        }
    }
    assert!(proven.check().is_err());
}

#[test]
fn single_site_must_be_true() {
    for algorithm in [Algorithm::RecursiveDoubling, Algorithm::Ring] {
        let mut proven = all_reduce(algorithm);
        for schedule in &mut proven.schedules {
            schedule.single_site = true;
        }
        let fault = proven.check().unwrap_err();
        assert!(matches!(fault, Fault::SingleSite { .. }), "{fault:?}");
    }
}

#[test]
fn the_order_of_the_ranks_is_proven() {
    let count = 23;
    let reduce_scatter = Operation::ReduceScatter {
        parts: Parts::Even(5),
        in_place: true,
    };
    let reductions = [
        Operation::AllReduce { count },
        Operation::Reduce { root: 3, count },
        Operation::Scan {
            count,
            exclusive: false,
        },
        Operation::Scan {
            count,
            exclusive: true,
        },
        reduce_scatter.clone(),
    ];
    for operation in reductions {
        for &algorithm in algorithms(operation.collective()) {
            let proven = Proven::new(same(&operation, WORLD), algorithm, true);
            for item in 0..proven.schedules[RANK].items.len() {
                let mut mutant = proven.clone();
                let Action::Recv {
                    store: Store::Reduce { incoming_first, .. },
                    ..
                } = &mut mutant.items()[item].action
                else {
                    continue;
                };
                *incoming_first = !*incoming_first;
                let fault = mutant.check().unwrap_err();
                assert!(
                    matches!(fault, Fault::Order { .. }),
                    "{operation:?} {fault:?}"
                );
            }
        }
    }
    for algorithm in [Algorithm::Direct, Algorithm::Ring] {
        let mut proven = Proven::new(same(&reduce_scatter, WORLD), algorithm, false);
        proven.plan.ordered = true;
        let fault = proven.check().unwrap_err();
        assert!(matches!(fault, Fault::Order { .. }), "{fault:?}");
    }
}
