//! What comes after what.

use super::{IN_PLACE, Outcome};
use crate::{
    adapter::ExecutionQueue,
    testing::{
        Harness,
        tools::{Case, check, filled, pattern, poll_once, slot},
    },
};

const LEN: usize = 100;

pub async fn copies_in_keep_their_order<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let memory = case.allocate(LEN);
    for round in 0..case.harness.limits().rounds {
        let mut queue = case.queue(memory.region());
        let mut expected = case.get(&memory).await;
        let mut copies = Vec::new();
        // Each overwrites a part of what the one before has written.
        for number in 0..case.slots() {
            let range = number % 7 * 3..LEN - number % 5;
            let content = pattern(round * 16 + number, range.len());
            expected[range.clone()].copy_from_slice(&content);
            let slot = filled(&mut queue, 0, &content).await;
            copies.push(queue.copy_in(slot, 0, range));
        }
        // The last one's end is that of all.
        let last = copies.pop().expect("at least one");
        last.await.expect("copy in");
        check(&case.get(&memory).await, &expected, || {
            format!("round {round}")
        });
    }
    Outcome::Done
}

pub async fn a_complete_copy_is_there_for_the_next<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let memory = case.allocate(LEN);
    let mut queue = case.queue(memory.region());
    for round in 0..case.harness.limits().rounds {
        let content = pattern(round, LEN);
        let slot = filled(&mut queue, 0, &content).await;
        let mut slot = queue.copy_in(slot, 0, 0..LEN).await.expect("copy in");
        slot.as_mut().fill(0);
        let slot = queue.copy_out(0..LEN, slot, 0).await.expect("copy out");
        check(&slot.as_ref()[..LEN], &content, || format!("round {round}"));
        drop(slot);
        check(&case.get(&memory).await, &content, || {
            format!("round {round}, by another queue")
        });
    }
    Outcome::Done
}

pub async fn copies_out_come_after_the_work_of_the_stream<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    for round in 0..case.harness.limits().rounds {
        let memory = case.memory(&pattern(round, LEN)).await;
        let (space, address) = (case.space, memory.address());
        let content = pattern(round + 1, LEN);
        let work = (case.harness).enqueue_write(&case.adapter, space, address, &content);
        let Some(work) = work else {
            return Outcome::Skipped("it has no streams");
        };
        let mut queue = case.queue(memory.on(work.stream));
        let out = slot(&mut queue).await;
        let mut copy = queue.copy_out(0..LEN, out, 0);
        // Whether or not it is over by now, it must not have been too early.
        if let Some(early) = poll_once(&mut copy).await {
            let early = early.expect("copy out");
            check(&early.as_ref()[..LEN], &content, || {
                format!("round {round}, early")
            });
            continue;
        }
        drop(work.hold);
        let slot = copy.await.expect("copy out");
        check(&slot.as_ref()[..LEN], &content, || format!("round {round}"));
    }
    Outcome::Done
}

pub async fn copies_in_come_after_the_work_of_the_stream<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    for round in 0..case.harness.limits().rounds {
        let memory = case.memory(&pattern(round, LEN)).await;
        let (space, address) = (case.space, memory.address());
        let content = pattern(round + 1, LEN);
        let work = (case.harness).enqueue_write(&case.adapter, space, address, &content);
        let Some(work) = work else {
            return Outcome::Skipped("it has no streams");
        };
        let mut queue = case.queue(memory.on(work.stream));
        let mut expected = content.clone();
        expected[20..40].copy_from_slice(&pattern(round + 2, 20));
        let data = filled(&mut queue, 0, &expected[20..40]).await;
        let copy = queue.copy_in(data, 0, 20..40);
        drop(queue);
        // The next queue on the stream comes after both.
        let mut next = case.queue(memory.on(work.stream));
        let out = slot(&mut next).await;
        let look = next.copy_out(0..LEN, out, 0);
        drop(work.hold);
        copy.await.expect("copy in");
        let slot = look.await.expect("copy out");
        check(&slot.as_ref()[..LEN], &expected, || {
            format!("round {round}")
        });
        drop((slot, next));
        check(&case.get(&memory).await, &expected, || {
            format!("round {round}, later")
        });
    }
    Outcome::Done
}

pub async fn copies_come_after_those_of_dropped_queues<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let mut expected = pattern(0, LEN);
    let memory = case.memory(&expected).await;
    for round in 1..=case.harness.limits().rounds {
        let paused = case.harness.pause(&case.adapter);
        // Out, in, out, in, each by a queue of its own.
        let mut old = case.queue(memory.region());
        let out = slot(&mut old).await;
        let before = old.copy_out(0..LEN, out, 0);
        drop(old);
        let mut writer = case.queue(memory.region());
        let data = filled(&mut writer, 0, &pattern(round, 50)).await;
        drop(writer.copy_in(data, 0, 10..60));
        drop(writer);
        let mut reader = case.queue(memory.region());
        let out = slot(&mut reader).await;
        let between = reader.copy_out(0..LEN, out, 0);
        drop(reader);
        let mut last = case.queue(memory.part(50..LEN));
        let data = filled(&mut last, 0, &pattern(round + 1, 30)).await;
        let after = last.copy_in(data, 0, 0..30);
        drop(paused);
        let before = before.await.expect("copy out");
        check(&before.as_ref()[..LEN], &expected, || {
            format!("round {round}, before")
        });
        expected[10..60].copy_from_slice(&pattern(round, 50));
        let between = between.await.expect("copy out");
        check(&between.as_ref()[..LEN], &expected, || {
            format!("round {round}, between")
        });
        after.await.expect("copy in");
        expected[50..80].copy_from_slice(&pattern(round + 1, 30));
        drop((before, between, last));
        check(&case.get(&memory).await, &expected, || {
            format!("round {round}, after")
        });
    }
    Outcome::Done
}
