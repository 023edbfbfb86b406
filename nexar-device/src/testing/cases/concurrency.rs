//! Many operations at once.

use super::{IN_PLACE, Outcome};
use crate::{
    adapter::ExecutionQueue,
    buffer::DeviceBuffer,
    testing::{
        Harness,
        tools::{Case, block_on, check, filled, increment, join_all, pattern, slot},
    },
};
use std::thread;

/// What `times` increments make of the bytes.
fn incremented(bytes: &[u8], times: usize) -> Vec<u8> {
    bytes
        .iter()
        .map(|byte| byte.wrapping_add(times as u8))
        .collect()
}

pub async fn opposite_directions_at_once<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    // The even pieces are read while the odd ones are written.
    let (piece, pieces) = (case.slot_len().min(1000), 16);
    let before = pattern(1, piece * pieces);
    let memory = case.memory(&before).await;
    let written = pattern(2, piece * pieces);
    let mut queue = case.queue(memory.region());
    for pair in 0..pieces / 2 {
        let (start, middle, end) = (
            2 * pair * piece,
            (2 * pair + 1) * piece,
            (2 * pair + 2) * piece,
        );
        let data = filled(&mut queue, 0, &written[middle..end]).await;
        // Where there is only one slot, one after the other.
        let copy_in = queue.copy_in(data, 0, middle..end);
        let copy_in = match case.slots() {
            1 => {
                drop(copy_in.await.expect("copy in"));
                None
            }
            _ => Some(copy_in),
        };
        let out = slot(&mut queue).await;
        let out = queue.copy_out(start..middle, out, 0).await;
        let out = out.expect("copy out");
        check(&out.as_ref()[..piece], &before[start..middle], || {
            format!("pair {pair}")
        });
        if let Some(copy_in) = copy_in {
            copy_in.await.expect("copy in");
        }
    }
    drop(queue);
    let mut expected = before;
    for odd in (1..pieces).step_by(2) {
        let range = odd * piece..(odd + 1) * piece;
        expected[range.clone()].copy_from_slice(&written[range]);
    }
    check(&case.get(&memory).await, &expected, || "the region".into());
    Outcome::Done
}

pub async fn many_queues_on_one_thread<H: Harness>(case: Case<H>) -> Outcome {
    let mut all = Vec::new();
    for number in 0..3 * case.slots().max(2) {
        all.push(case.memory(&pattern(number, 10 * (number + 1) * 7)).await);
    }
    let rounds = case.harness.limits().rounds.min(10);
    join_all(all.iter().map(async |memory| {
        for _ in 0..rounds {
            increment(&case.adapter, memory.region(), 61).await;
        }
    }))
    .await;
    for (number, memory) in all.iter().enumerate() {
        let expected = incremented(&pattern(number, memory.len()), rounds);
        check(&case.get(memory).await, &expected, || {
            format!("queue {number}")
        });
    }
    if case.staged {
        case.check_slots().await;
    }
    Outcome::Done
}

pub async fn parts_of_one_region_by_many_threads<H: Harness>(case: Case<H>) -> Outcome {
    let limits = case.harness.limits();
    let len = 3 * case.slot_len().max(1000) + 17;
    let before = pattern(1, len * limits.threads);
    let memory = case.memory(&before).await;
    thread::scope(|scope| {
        for number in 0..limits.threads {
            let (adapter, limits, memory) = (case.adapter.clone(), &limits, &memory);
            scope.spawn(move || {
                let work = async {
                    for _ in 0..limits.rounds {
                        let part = memory.part(number * len..(number + 1) * len);
                        // Boundaries between pieces at other places in each thread.
                        increment(&adapter, part, 500 + 100 * number).await;
                    }
                };
                let done = block_on(work, limits.case_time);
                assert!(done.is_some(), "thread {number} hangs");
            });
        }
    });
    let expected = incremented(&before, limits.rounds);
    check(&case.get(&memory).await, &expected, || "the region".into());
    if case.staged {
        case.check_slots().await;
    }
    Outcome::Done
}

pub async fn buffers_by_many_threads<H: Harness>(case: Case<H>) -> Outcome {
    let limits = case.harness.limits();
    thread::scope(|scope| {
        for number in 0..limits.threads {
            let (adapter, space, limits) = (case.adapter.clone(), case.space, &limits);
            scope.spawn(move || {
                let work = async {
                    for round in 0..limits.rounds {
                        let len = 1 + round * 997 + number;
                        let data: Vec<u32> = (0..len)
                            .map(|at| (at * 31 + number * 7 + round) as u32)
                            .collect();
                        let buffer = DeviceBuffer::from_slice(&adapter, space, &data).await;
                        let mut back = vec![0; len];
                        buffer
                            .expect("a buffer")
                            .copy_to(&mut back)
                            .await
                            .expect("copy");
                        assert!(back == data, "round {round} of thread {number}");
                    }
                };
                let done = block_on(work, limits.case_time);
                assert!(done.is_some(), "thread {number} hangs");
            });
        }
    });
    if case.staged {
        case.check_slots().await;
    }
    Outcome::Done
}
