//! Faults that are not a single broken item: what ranks must tell each other, deadlocks, malformed items.

use super::mutations::{Proven, RANK, WORLD, cases};
use super::*;
use crate::schedule::{Algorithm, Parts, Store};

#[test]
fn ranks_must_hear_of_each_other() {
    for proven in cases() {
        for i in 0..proven.schedules[RANK].told.len() {
            let mut mutant = proven.clone();
            let other = mutant.schedules[RANK].told.remove(i);
            let told = Fault::Told {
                rank: other,
                other: RANK,
            };
            assert_eq!(mutant.check().unwrap_err(), told);
            mutant.schedules[RANK].told.extend([other; 2]);
            assert!(matches!(mutant.check(), Err(Fault::Told { .. })));
        }
        let mut mutant = proven.clone();
        mutant.schedules[RANK].told.push(RANK);
        assert!(matches!(mutant.check(), Err(Fault::Told { .. })));
    }
    // Its block is empty, and so are all others.
    let operation = Operation::AllGather {
        parts: Parts::uneven(&[0; WORLD]).unwrap(),
        in_place: false,
    };
    let mut proven = Proven::new(same(&operation, WORLD), Algorithm::Direct, false);
    for schedule in &mut proven.schedules {
        schedule.told.clear();
    }
    assert_eq!(proven.check(), Err(Fault::Alone { rank: 0 }));
}

#[test]
fn copies_are_made_in_the_order_of_the_list() {
    let span = |buffer, start| Span {
        buffer,
        start,
        len: 1,
    };
    let item = |action, after| Item {
        action,
        after: [after, None],
    };
    let recv = |from| Action::Recv {
        from,
        span: span(Buffer::Scratch, 0),
        store: Store::Copy,
    };
    let copy = |from, to| Action::Copy {
        from: span(Buffer::Input, from),
        to: span(Buffer::Scratch, to),
    };
    // The send waits for the second copy, which waits for the first, which waits for the answer.
    let first = vec![
        item(recv(1), None),
        item(copy(0, 1), Some(0)),
        item(copy(0, 2), None),
        item(
            Action::Send {
                to: 1,
                span: span(Buffer::Scratch, 2),
            },
            Some(2),
        ),
    ];
    let second = vec![
        item(recv(0), None),
        item(
            Action::Send {
                to: 0,
                span: span(Buffer::Scratch, 0),
            },
            Some(0),
        ),
    ];
    let schedules = [first, second].map(|items| Schedule {
        items,
        scratch: 3,
        ..Schedule::default()
    });
    let fault = check(&same(&Operation::Barrier, 2), false, &schedules).unwrap_err();
    assert!(
        matches!(fault, Fault::Deadlock { rank: 0, .. }),
        "{fault:?}"
    );
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
    let operations = same(&Operation::AllReduce { count: 1 }, 2);
    let fault = check(&operations, false, &schedules).unwrap_err();
    assert_eq!(fault, Fault::Deadlock { rank: 0, item: 0 });
}

#[test]
fn malformed_items_are_named() {
    let operation = Operation::AllGather {
        parts: Parts::Even(2),
        in_place: false,
    };
    let proven = Proven::new(same(&operation, 2), Algorithm::Direct, false);
    let break_it = |change: &dyn Fn(&mut Item)| {
        let mut mutant = proven.clone();
        change(&mut mutant.schedules[1].items[0]);
        match mutant.check().unwrap_err() {
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
