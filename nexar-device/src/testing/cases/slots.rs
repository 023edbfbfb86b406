//! The slots that all queues share.

use super::{IN_PLACE, Outcome};
use crate::{
    adapter::ExecutionQueue,
    testing::{
        Harness,
        tools::{Case, Slot, Task, check, filled, pattern, slot, try_slot},
    },
};
use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Instant};

pub async fn slots_are_as_long_and_as_many_as_they_say<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let mut queue = case.queue(case.allocate(10).region());
    let mut all = Vec::new();
    for number in 0..case.slots() {
        let mut slot = slot(&mut queue).await;
        assert_eq!(slot.as_ref().len(), case.slot_len());
        let content = pattern(number, case.slot_len());
        slot.as_mut().copy_from_slice(&content);
        all.push(slot);
    }
    assert!(try_slot(&mut queue).await.is_none(), "one too many");
    for (number, slot) in all.iter().enumerate() {
        let content = pattern(number, case.slot_len());
        check(slot.as_ref(), &content, || format!("slot {number}"));
    }
    drop(all);
    drop(queue);
    case.check_slots().await;
    Outcome::Done
}

pub async fn the_first_slot_comes_at_once<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let memory = case.memory(&pattern(1, 10)).await;
    // One has all; the others have one each, and all of them work.
    let mut rich = case.queue(case.allocate(10).region());
    let mut all = Vec::new();
    for _ in 0..case.slots() {
        all.push(slot(&mut rich).await);
    }
    let mut others = Vec::new();
    for number in 0..2 * case.slots() + 3 {
        let mut queue = case.queue(memory.region());
        let Some(slot) = try_slot(&mut queue).await else {
            panic!("queue {number} waits for its first slot");
        };
        let slot = queue.copy_out(0..10, slot, 0).await.expect("copy out");
        assert_eq!(&slot.as_ref()[..10], &pattern(1, 10));
        assert!(try_slot(&mut queue).await.is_none(), "queue {number}");
        others.push((queue, slot));
    }
    drop(others);
    // Again, for one that has had slots.
    all.clear();
    let mut poor = case.queue(case.allocate(10).region());
    let mut own = Vec::new();
    while own.len() < case.slots() {
        own.push(slot(&mut poor).await);
    }
    let first = try_slot(&mut rich).await;
    assert!(first.is_some(), "it has none any more");
    drop((rich, first, poor, own));
    case.check_slots().await;
    Outcome::Done
}

pub async fn slots_are_lent_again_and_again<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let memory = case.memory(&pattern(2, 64)).await;
    for round in 0..case.harness.limits().rounds * case.slots() {
        let mut queue = case.queue(memory.region());
        let slot = filled(&mut queue, 0, &pattern(2, 64)).await;
        match round % 4 {
            // Unused; by a copy that is awaited; by one that is not; by one that fails.
            0 => drop(slot),
            1 => drop(queue.copy_out(0..64, slot, 0).await),
            2 => drop(queue.copy_in(slot, 0, 0..64)),
            _ => drop(queue.copy_in(slot, 0, 0..65)),
        }
    }
    case.check_slots().await;
    check(&case.get(&memory).await, &pattern(2, 64), || "all".into());
    Outcome::Done
}

pub async fn the_last_task_that_polled_is_woken<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let deadline = Instant::now() + case.harness.limits().case_time;
    let memory = case.memory(&pattern(3, 10)).await;
    let mut queue = case.queue(memory.region());
    let mut all = Vec::new();
    for _ in 0..case.slots() {
        all.push(slot(&mut queue).await);
    }
    let (first, last) = (Task::new(), Task::new());
    assert!(first.poll(|cx| queue.poll_slot(cx)).is_pending());
    assert!(last.poll(|cx| queue.poll_slot(cx)).is_pending());
    all.pop();
    assert!(last.wait(deadline), "a slot is free and nobody is told");
    let free = slot(&mut queue).await;

    // A transfer in the same way.
    let paused = case.harness.pause(&case.adapter);
    let mut copy = queue.copy_out(0..10, free, 0);
    let mut over = |task: &Arc<Task>| task.poll(|cx| Pin::new(&mut copy).poll(cx));
    let mut outcome = over(&first);
    if outcome.is_pending() {
        outcome = over(&last);
    }
    drop(paused);
    while outcome.is_pending() {
        assert!(last.wait(deadline), "a copy is over and nobody is told");
        outcome = over(&last);
    }
    let Poll::Ready(Ok(free)) = outcome else {
        panic!("copy out");
    };
    check(&free.as_ref()[..10], &pattern(3, 10), || "the slot".into());
    Outcome::Done
}

pub async fn a_queue_that_has_given_its_slots_back_is_woken<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let deadline = Instant::now() + case.harness.limits().case_time;
    let mut rich = case.queue(case.allocate(10).region());
    let mut poor = case.queue(case.allocate(10).region());
    let own = slot(&mut poor).await;
    let mut all = Vec::new();
    for _ in 0..case.slots().max(2) - 1 {
        all.push(slot(&mut rich).await);
    }
    let task = Task::new();
    assert!(task.poll(|cx| poor.poll_slot(cx)).is_pending());
    drop(own);
    assert!(task.wait(deadline), "it has none now, and nobody is told");
    assert!(task.poll(|cx| poor.poll_slot(cx)).is_ready());
    Outcome::Done
}

/// Where there are enough, one queue has two slots and two have one each; all slots are taken.
async fn three<H: Harness>(case: &Case<H>) -> Option<[(super::Queue<H>, Vec<Slot<H>>); 3]> {
    if case.slots() < 4 {
        return None;
    }
    let queue = || (case.queue(case.allocate(10).region()), Vec::new());
    let (mut rich, mut first, mut second) = (queue(), queue(), queue());
    first.1.push(slot(&mut first.0).await);
    second.1.push(slot(&mut second.0).await);
    for _ in 0..case.slots() - 2 {
        rich.1.push(slot(&mut rich.0).await);
    }
    Some([rich, first, second])
}

pub async fn waiting_queues_take_turns<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let deadline = Instant::now() + case.harness.limits().case_time;
    let Some([mut rich, mut first, mut second]) = three(&case).await else {
        return Outcome::Skipped("it has fewer than four slots");
    };
    for round in 0..case.harness.limits().rounds {
        let (one, other) = (Task::new(), Task::new());
        assert!(one.poll(|cx| first.0.poll_slot(cx)).is_pending());
        assert!(other.poll(|cx| second.0.poll_slot(cx)).is_pending());
        // The one that had more does not overtake those that wait.
        rich.1.pop();
        let own = try_slot(&mut rich.0).await;
        assert!(own.is_none(), "it takes what the others wait for ({round})");
        assert!(one.wait(deadline), "the first is not told ({round})");
        let turn = other.poll(|cx| second.0.poll_slot(cx));
        assert!(turn.is_pending(), "it is the turn of the first ({round})");
        let turn = one.poll(|cx| first.0.poll_slot(cx));
        let Poll::Ready(Ok(slot)) = turn else {
            panic!("it is the turn of the first ({round})");
        };
        drop(slot);
        assert!(other.wait(deadline), "the second is not told ({round})");
        let turn = other.poll(|cx| second.0.poll_slot(cx));
        assert!(turn.is_ready(), "it is the turn of the second ({round})");
        drop(turn);
        rich.1.push(super::slot(&mut rich.0).await);
        std::mem::swap(&mut first, &mut second);
    }
    Outcome::Done
}

pub async fn a_dropped_queue_passes_its_turn_on<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let deadline = Instant::now() + case.harness.limits().case_time;
    for told in [true, false] {
        let Some([mut rich, mut gone, mut second]) = three(&case).await else {
            return Outcome::Skipped("it has fewer than four slots");
        };
        let (one, other) = (Task::new(), Task::new());
        assert!(one.poll(|cx| gone.0.poll_slot(cx)).is_pending());
        assert!(other.poll(|cx| second.0.poll_slot(cx)).is_pending());
        // It is dropped before it is its turn, and when it knows that it is.
        if told {
            rich.1.pop();
            assert!(one.wait(deadline), "the first is not told");
            drop(gone.0);
        } else {
            drop(gone.0);
            rich.1.pop();
        }
        assert!(other.wait(deadline), "nobody is told (told first: {told})");
        let turn = other.poll(|cx| second.0.poll_slot(cx));
        assert!(turn.is_ready(), "it is the turn of the second");
    }
    case.check_slots().await;
    Outcome::Done
}
