//! What one copy does.

use super::{IN_PLACE, Outcome};
use crate::{
    adapter::{DeviceError, ExecutionQueue},
    testing::{
        Harness,
        tools::{Case, check, filled, pattern, slot},
    },
};
use std::ops::Range;

/// Bytes of the region before and after the longest copy.
const MARGIN: usize = 40;

/// Lengths up to that of a slot, and those around it.
fn lengths(slot_len: usize) -> Vec<usize> {
    let around = (0..20).flat_map(|by| [by, slot_len / 2 + by, slot_len.saturating_sub(by)]);
    let mut lengths: Vec<usize> = around.filter(|len| *len <= slot_len).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Copies of all lengths: where in the region, and from which byte of the slot on.
fn copies(slot_len: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
    let places = [(0, 0), (1, 0), (0, 1), (7, 3), (16, 8), (33, 16), (39, 31)];
    lengths(slot_len).into_iter().flat_map(move |len| {
        let fits = move |(_, at): &(usize, usize)| at + len <= slot_len;
        let copy = move |(start, at)| (start..start + len, at);
        places.into_iter().filter(fits).map(copy)
    })
}

pub async fn copies_out_of_every_length<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let len = case.slot_len() + MARGIN;
    let content = pattern(1, len);
    let memory = case.memory(&content).await;
    let mut queue = case.queue(memory.region());
    assert_eq!(queue.region_len(), len);
    for (range, at) in copies(case.slot_len()) {
        let mut expected = pattern(2, case.slot_len());
        let slot = filled(&mut queue, 0, &expected).await;
        let copied = queue.copy_out(range.clone(), slot, at).await;
        let slot = copied.unwrap_or_else(|error| panic!("{range:?} to {at}: {error}"));
        expected[at..at + range.len()].copy_from_slice(&content[range.clone()]);
        check(slot.as_ref(), &expected, || {
            format!("a slot after the copy of {range:?} to {at}")
        });
    }
    drop(queue);
    check(&case.get(&memory).await, &content, || "the region".into());
    Outcome::Done
}

pub async fn copies_in_of_every_length<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let len = case.slot_len() + MARGIN;
    let memory = case.allocate(len);
    for (range, at) in copies(case.slot_len()) {
        let mut expected = pattern(3, len);
        case.put(&memory, &expected).await;
        let content = pattern(4, case.slot_len());
        let mut queue = case.queue(memory.region());
        let slot = filled(&mut queue, 0, &content).await;
        let copied = queue.copy_in(slot, at, range.clone()).await;
        let slot = copied.unwrap_or_else(|error| panic!("{at} to {range:?}: {error}"));
        check(slot.as_ref(), &content, || "the slot".into());
        drop((slot, queue));
        expected[range.clone()].copy_from_slice(&content[at..at + range.len()]);
        check(&case.get(&memory).await, &expected, || {
            format!("the region after the copy of {at} to {range:?}")
        });
    }
    Outcome::Done
}

/// A region that is a part of an allocation begins where it begins.
pub async fn copies_of_a_part<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let mut expected = pattern(5, 200);
    let memory = case.memory(&expected).await;
    let mut queue = case.queue(memory.part(13..113));
    assert_eq!(queue.region_len(), 100);
    let out = slot(&mut queue).await;
    let out = queue.copy_out(90..100, out, 0).await.expect("copy out");
    assert_eq!(&out.as_ref()[..10], &expected[103..113]);
    drop(out);
    let data = filled(&mut queue, 0, &[1, 2, 3]).await;
    queue.copy_in(data, 0, 97..100).await.expect("copy in");
    let beyond = slot(&mut queue).await;
    let beyond = queue.copy_in(beyond, 0, 100..101).await;
    assert!(beyond.is_err(), "a byte of the allocation, not of the part");
    drop(queue);
    expected[110..113].copy_from_slice(&[1, 2, 3]);
    check(&case.get(&memory).await, &expected, || "all".into());
    Outcome::Done
}

#[allow(clippy::reversed_empty_ranges)]
pub async fn out_of_range_is_an_error_and_frees_the_slot<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let (len, slot_len) = (3 * case.slot_len() / 2, case.slot_len());
    let content = pattern(6, len);
    let memory = case.memory(&content).await;
    let mut queue = case.queue(memory.region());
    let copies = [
        (len - 1..len + 1, 0),
        (len..len + 1, 0),
        (len + 1..len + 1, 0),
        (0..slot_len + 1, 0),
        (0..slot_len, 1),
        (0..2, slot_len - 1),
        (0..1, slot_len),
        (0..1, usize::MAX),
        (0..1, usize::MAX - 1),
        (2..1, 0),
        (0..usize::MAX, 0),
        (usize::MAX - 1..usize::MAX, 0),
        (usize::MAX..usize::MAX, 2),
        (usize::MAX..0, 0),
    ];
    for (range, at) in copies {
        for out in [true, false] {
            let slot = filled(&mut queue, 0, &vec![9; slot_len]).await;
            let copied = match out {
                true => queue.copy_out(range.clone(), slot, at).await,
                false => queue.copy_in(slot, at, range.clone()).await,
            };
            let Err(error) = copied else {
                panic!("{range:?} of {len} bytes and a slot of {slot_len} from {at} on");
            };
            let DeviceError::OutOfRange {
                start,
                end,
                region,
                slot,
            } = error
            else {
                panic!("{error:?}");
            };
            assert_eq!((start..end, region), (range.clone(), len));
            assert_eq!(slot, slot_len.saturating_sub(at), "of the slot are left");
        }
    }
    drop(queue);
    check(&case.get(&memory).await, &content, || "the region".into());
    case.check_slots().await;
    Outcome::Done
}

pub async fn fill_sets_the_bytes<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let mut expected = pattern(7, 1000);
    let memory = case.memory(&expected).await;
    let mut queue = case.queue(memory.region());
    let filled_so = queue.fill(10..20, 5);
    if !case.has(|capabilities| capabilities.fill) {
        assert!(
            matches!(filled_so, Err(DeviceError::Unsupported { .. })),
            "{filled_so:?} without the capability"
        );
        return Outcome::Skipped("it has no fill");
    }
    filled_so.expect("fill");
    // In the order of copies to the device.
    let data = filled(&mut queue, 0, &[1, 2, 3, 4]).await;
    drop(queue.copy_in(data, 0, 8..12));
    queue.fill(11..15, 6).expect("fill");
    queue.fill(500..500, 7).expect("fill nothing");
    for range in [999..1001, 1001..1001, 0..usize::MAX] {
        let error = queue.fill(range.clone(), 8);
        assert!(
            matches!(error, Err(DeviceError::OutOfRange { region: 1000, .. })),
            "{range:?}: {error:?}"
        );
    }
    let last = filled(&mut queue, 0, &[9]).await;
    queue.copy_in(last, 0, 999..1000).await.expect("copy in");
    drop(queue);
    expected[8..11].copy_from_slice(&[1, 2, 3]);
    expected[11..15].fill(6);
    expected[15..20].fill(5);
    expected[999] = 9;
    check(&case.get(&memory).await, &expected, || "the region".into());
    Outcome::Done
}
