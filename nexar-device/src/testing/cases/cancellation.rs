//! What is dropped before it is done.

use super::{IN_PLACE, Outcome};
use crate::{
    adapter::ExecutionQueue,
    buffer::DeviceBuffer,
    testing::{
        Harness,
        tools::{Case, Task, check, filled, increment, pattern, poll_once, slot},
    },
};
use std::{future::Future, pin::pin, task::Poll, time::Instant};

const LEN: usize = 100;

pub async fn a_dropped_transfer_is_carried_out<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let memory = case.memory(&pattern(0, LEN)).await;
    for round in 1..=case.harness.limits().rounds {
        let paused = case.harness.pause(&case.adapter);
        let mut queue = case.queue(memory.region());
        let slot = filled(&mut queue, 0, &pattern(round, LEN)).await;
        let mut copy = queue.copy_in(slot, 0, 0..LEN);
        // Before and after it was polled; with and without the queue.
        if round % 2 == 0 {
            drop(poll_once(&mut copy).await);
        }
        drop(copy);
        let queue = (round % 3 == 0).then_some(queue);
        drop(paused);
        if let Some(mut queue) = queue {
            let slot = filled(&mut queue, 0, &[]).await;
            drop(queue.copy_in(slot, 0, 0..0).await.expect("copy in"));
        }
        check(&case.get_after(&memory).await, &pattern(round, LEN), || {
            format!("round {round}")
        });
    }
    case.check_slots().await;
    Outcome::Done
}

pub async fn a_dropped_queue_keeps_the_region_until_its_copies_are_over<H: Harness>(
    case: Case<H>,
) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    for round in 0..case.harness.limits().rounds {
        let out = round % 2 == 0;
        let content = pattern(round, LEN);
        let memory = case.memory(&content).await;
        let paused = case.harness.pause(&case.adapter);
        let mut queue = case.queue(memory.region());
        let slot = filled(&mut queue, 0, &[0; LEN]).await;
        let copy = match out {
            true => queue.copy_out(0..LEN, slot, 0),
            false => queue.copy_in(slot, 0, 0..LEN),
        };
        let freed = memory.give_up();
        let copy = (round % 4 < 2).then_some(copy);
        drop(queue);
        if paused.is_some() {
            assert!(!freed.is_free(), "round {round}: the copy is not over");
        }
        drop(paused);
        if let Some(copy) = copy {
            let slot = copy.await.expect("a copy");
            let expected = if out { content } else { vec![0; LEN] };
            check(&slot.as_ref()[..LEN], &expected, || {
                format!("round {round}")
            });
        }
        freed.wait(case.harness.limits().case_time);
    }
    case.check_slots().await;
    Outcome::Done
}

/// A slot that a copy has is not lent to another.
pub async fn a_dropped_transfer_keeps_its_slot_until_it_is_over<H: Harness>(
    case: Case<H>,
) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let memory = case.allocate(LEN * case.slots());
    for round in 0..case.harness.limits().rounds {
        let expected = pattern(round, memory.len());
        // Zeroing memory may be work that is kept from beginning.
        let free = case.allocate(LEN);
        let paused = case.harness.pause(&case.adapter);
        let mut queue = case.queue(memory.region());
        for (number, content) in expected.chunks(LEN).enumerate() {
            let slot = filled(&mut queue, 0, content).await;
            let start = number * LEN;
            drop(queue.copy_in(slot, 0, start..start + LEN));
        }
        drop(queue);
        // Whoever gets a slot now writes to it.
        let mut other = case.queue(free.region());
        let slot = filled(&mut other, 0, &[0xFF; LEN]).await;
        drop(paused);
        check(&case.get_after(&memory).await, &expected, || {
            format!("round {round}")
        });
        drop((slot, other));
        case.check_slots().await;
    }
    Outcome::Done
}

pub async fn a_queue_that_is_dropped_unused_frees_the_region<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    for with_slot in [false, true] {
        let memory = case.allocate(LEN);
        let mut queue = case.queue(memory.region());
        let slot = match with_slot {
            true => Some(slot(&mut queue).await),
            false => None,
        };
        let freed = memory.give_up();
        assert!(!freed.is_free(), "the queue keeps it");
        drop(queue);
        freed.wait(case.harness.limits().case_time);
        drop(slot);
    }
    case.check_slots().await;
    Outcome::Done
}

/// Polls the future at most so often, whenever it asks for it, then drops it.
fn poll_times<F: Future>(future: F, polls: usize, deadline: Instant) -> Poll<F::Output> {
    let mut future = pin!(future);
    let task = Task::new();
    for poll in 0..polls {
        if poll > 0 {
            assert!(task.wait(deadline), "nobody tells it to go on");
        }
        if let Poll::Ready(output) = task.poll(|cx| future.as_mut().poll(cx)) {
            return Poll::Ready(output);
        }
    }
    Poll::Pending
}

pub async fn an_operation_that_is_dropped_anywhere_loses_nothing<H: Harness>(
    case: Case<H>,
) -> Outcome {
    let limit = case.harness.limits().case_time;
    let deadline = Instant::now() + limit;
    let (piece, len) = (97, 97 * (case.slots().clamp(2, 8) + 3) + 5);
    for polls in 0.. {
        let before = pattern(polls, len);
        let memory = case.memory(&before).await;
        let operation = increment(&case.adapter, memory.region(), piece);
        let over = poll_times(operation, polls, deadline);
        let after = case.get_after(&memory).await;
        for (number, (old, new)) in before.chunks(piece).zip(after.chunks(piece)).enumerate() {
            let done: Vec<u8> = old.iter().map(|byte| byte.wrapping_add(1)).collect();
            assert!(
                new == done || new == old && over.is_pending(),
                "piece {number} after {polls} polls is neither new nor old"
            );
        }
        memory.give_up().wait(limit);
        if case.staged {
            case.check_slots().await;
        }
        if over.is_ready() {
            return Outcome::Done;
        }
    }
    Outcome::Done
}

pub async fn a_dropped_buffer_keeps_the_memory_until_its_copies_are_over<H: Harness>(
    case: Case<H>,
) -> Outcome {
    let limit = case.harness.limits().case_time;
    let deadline = Instant::now() + limit;
    let len = case.slot_len() + 1000;
    let (content, mut target) = (pattern(1, len), vec![0; len]);
    for round in 0..case.harness.limits().rounds {
        let memory = case.allocate(len);
        // SAFETY: the memory is used through the buffer only.
        let buffer = unsafe { DeviceBuffer::<u8, _>::from_region(&case.adapter, memory.region()) };
        let mut buffer = buffer.expect("a buffer");
        let freed = memory.give_up();
        let paused = case.harness.pause(&case.adapter).filter(|_| case.staged);
        // What is paused asks to be polled again only later.
        let polls = if paused.is_some() { 1 } else { round / 2 % 3 };
        drop(match round % 2 {
            0 => poll_times(buffer.copy_from(&content), polls, deadline),
            _ => poll_times(buffer.copy_to(&mut target), polls, deadline),
        });
        assert!(!freed.is_free(), "the buffer keeps it");
        drop(buffer);
        if paused.is_some() {
            assert!(!freed.is_free(), "round {round}: a copy is not over");
        }
        drop(paused);
        freed.wait(limit);
    }
    if case.staged {
        case.check_slots().await;
    }
    Outcome::Done
}
