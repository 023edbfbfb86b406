//! The checker finds what is wrong: every schedule that was proven is broken in every way that
//! matters.

use super::*;
use crate::schedule::select::algorithms;
use crate::schedule::{Algorithm, Item, Store};

const WORLD: usize = 7;

/// The rank that is broken. In a recursive doubling among 7 it stands for another rank, too.
const RANK: usize = 5;

/// Several blocks of every algorithm.
fn cases() -> Vec<(Operation, Vec<Schedule>)> {
    let operations = [
        Operation::Barrier,
        Operation::Broadcast { root: 1, count: 23 },
        Operation::AllReduce { count: 23 },
        Operation::AllGather { count: 5 },
        Operation::ReduceScatter { count: 13 },
    ];
    let mut cases = Vec::new();
    for operation in operations {
        for &algorithm in algorithms(operation.collective()) {
            let schedules = build_all(
                operation,
                WORLD,
                Plan {
                    algorithm,
                    segment: 2,
                    lookahead: 2,
                },
            );
            assert!(check(operation, &schedules).is_ok());
            cases.push((operation, schedules));
        }
    }
    cases
}

fn all_reduce(algorithm: Algorithm) -> (Operation, Vec<Schedule>) {
    let operation = Operation::AllReduce { count: 23 };
    (
        operation,
        build_all(
            operation,
            WORLD,
            Plan {
                algorithm,
                segment: 2,
                lookahead: 2,
            },
        ),
    )
}

/// Applies a change to each item of a rank in turn; it says whether it changed anything.
/// Returns the faults.
fn mutate(mut change: impl FnMut(&mut Vec<Item>, usize) -> bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (operation, schedules) in cases() {
        for item in 0..schedules[RANK].items.len() {
            let mut mutant = schedules.clone();
            if change(&mut mutant[RANK].items, item) {
                match check(operation, &mutant) {
                    Err(fault) => faults.push(fault),
                    Ok(_) => panic!("{operation:?}: item {item} of {:#?}", mutant[RANK].items),
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
    for (operation, schedules) in cases() {
        for item in 0..schedules[RANK].items.len() {
            let mut mutant = schedules.clone();
            if mutant[RANK].items[item].after[slot].take().is_none() {
                continue;
            }
            dropped += 1;
            let fault = check(operation, &mutant).expect_err("a dependency that is not needed");
            assert!(
                matches!(
                    fault,
                    Fault::Race { .. }
                        | Fault::Undefined { .. }
                        | Fault::Combination { .. }
                        | Fault::Flag { .. }
                        | Fault::Result { .. }
                        | Fault::SingleSite { .. }
                        | Fault::Disagreement { .. }
                        | Fault::Barrier { .. }
                ),
                "{operation:?} item {item}: {fault:?}"
            );
        }
    }
    assert!(dropped > 0);
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
    let (operation, mut schedules) = all_reduce(Algorithm::RecursiveDoubling);
    for item in &mut schedules[RANK].items {
        if let Action::Recv {
            store: Store::Reduce { incoming_first, .. },
            ..
        } = &mut item.action
        {
            *incoming_first = !*incoming_first;
        }
    }
    let fault = check(operation, &schedules).unwrap_err();
    assert!(matches!(fault, Fault::Disagreement { .. }), "{fault:?}");
}

#[test]
fn the_order_of_arrival_must_not_show() {
    let (operation, mut schedules) = all_reduce(Algorithm::Direct);
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
    for item in schedules[RANK]
        .items
        .iter_mut()
        .filter(|item| between(item.action))
    {
        item.after = [None, None];
    }
    assert!(check(operation, &schedules).is_err());
}

#[test]
fn single_site_must_be_true() {
    for algorithm in [Algorithm::RecursiveDoubling, Algorithm::Ring] {
        let (operation, mut schedules) = all_reduce(algorithm);
        schedules
            .iter_mut()
            .for_each(|schedule| schedule.single_site = true);
        let fault = check(operation, &schedules).unwrap_err();
        assert!(matches!(fault, Fault::SingleSite { .. }), "{fault:?}");
    }
}

#[test]
fn waiting_for_the_own_send_before_receiving_is_a_deadlock() {
    let item = |action, after| Item { action, after };
    let span = Span {
        buffer: Buffer::Output,
        start: 0,
        len: 1,
    };
    let store = Store::Reduce {
        incoming_first: false,
        first: true,
        last: true,
    };
    let schedules: Vec<_> = (0..2)
        .map(|rank| Schedule {
            items: vec![
                item(Action::Send { to: 1 - rank, span }, [None, None]),
                item(
                    Action::Recv {
                        from: 1 - rank,
                        span,
                        store,
                    },
                    [Some(0), None],
                ),
            ],
            ..Schedule::default()
        })
        .collect();
    let fault = check(Operation::AllReduce { count: 1 }, &schedules).unwrap_err();
    assert_eq!(fault, Fault::Deadlock { rank: 0, item: 0 });
}

#[test]
fn malformed_items_are_named() {
    let operation = Operation::AllGather { count: 2 };
    let plan = Plan {
        algorithm: Algorithm::Direct,
        segment: 2,
        lookahead: 1,
    };
    let break_it = |change: &dyn Fn(&mut Item)| {
        let mut schedules = build_all(operation, 2, plan);
        change(&mut schedules[1].items[0]);
        match check(operation, &schedules).unwrap_err() {
            Fault::Malformed {
                rank: 1,
                item: 0,
                rule,
            } => rule,
            other => panic!("{other:?}"),
        }
    };
    let span = Span {
        buffer: Buffer::Input,
        start: 0,
        len: 2,
    };
    let store = Store::Copy;
    let own = |len| Span {
        buffer: Buffer::Output,
        start: 0,
        len,
    };
    let rules = [
        break_it(&|item| {
            item.action = Action::Send {
                to: 0,
                span: Span { start: 1, ..span },
            }
        }),
        break_it(&|item| {
            item.action = Action::Recv {
                from: 0,
                span,
                store,
            }
        }),
        break_it(&|item| item.action = Action::Send { to: 1, span }),
        break_it(&|item| item.action = Action::Send { to: 2, span }),
        break_it(&|item| {
            item.action = Action::Send {
                to: 0,
                span: Span { len: 0, ..span },
            }
        }),
        break_it(&|item| item.after = [Some(0), None]),
        break_it(&|item| {
            item.action = Action::Copy {
                from: span,
                to: own(1),
            }
        }),
        break_it(&|item| {
            item.action = Action::Copy {
                from: own(2),
                to: own(2),
            }
        }),
    ];
    assert_eq!(
        rules,
        [
            "a span lies in its buffer",
            "the input is not written",
            "a rank sends itself nothing",
            "a peer is in the world",
            "a span is not empty",
            "items depend on items before them",
            "a copy keeps the length",
            "a copy does not overlap",
        ]
    );
}
