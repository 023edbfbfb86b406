//! Typed buffers over the adapter.

use super::Outcome;
use crate::{
    adapter::{DeviceAdapter, DeviceError},
    buffer::DeviceBuffer,
    testing::{
        Harness,
        tools::{Case, pattern},
    },
};
use nexar_core::{Element, as_bytes_mut, bf16, f16};

/// Elements of these bytes; for types of which all bytes are valid.
fn elements<E: Element>(seed: usize, len: usize) -> Vec<E> {
    let mut elements = vec![E::default(); len];
    // SAFETY: every pattern of bits is a value of the type, which is no bool.
    let bytes = unsafe { as_bytes_mut(&mut elements) };
    bytes.copy_from_slice(&pattern(seed, bytes.len()));
    elements
}

async fn round_trips<H: Harness, E: Element>(case: &Case<H>) {
    let slot = case.slot_len() / size_of::<E>();
    for len in [0, 1, 2, 33, slot, slot + 1, 3 * slot + 5] {
        round_trip(case, &elements::<E>(len, len), &elements::<E>(len + 1, len)).await;
    }
}

async fn round_trip<H: Harness, E: Element>(case: &Case<H>, first: &[E], second: &[E]) {
    let what = format!("{} elements of {}", first.len(), E::DATA_TYPE);
    let buffer = DeviceBuffer::from_slice(&case.adapter, case.space, first).await;
    let mut buffer = buffer.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((buffer.len(), buffer.space()), (first.len(), case.space));
    assert_eq!(buffer.is_empty(), first.is_empty());
    for content in [first, second] {
        buffer.copy_from(content).await.expect("copy to the buffer");
        let mut back = vec![E::default(); content.len()];
        buffer
            .copy_to(&mut back)
            .await
            .expect("copy from the buffer");
        // As bytes: a NaN is not equal to itself.
        assert!(E::as_bytes(&back) == E::as_bytes(content), "{what}");
    }
}

pub async fn buffers_of_every_type<H: Harness>(case: Case<H>) -> Outcome {
    round_trips::<H, f32>(&case).await;
    round_trips::<H, f64>(&case).await;
    round_trips::<H, f16>(&case).await;
    round_trips::<H, bf16>(&case).await;
    round_trips::<H, i8>(&case).await;
    round_trips::<H, i16>(&case).await;
    round_trips::<H, i32>(&case).await;
    round_trips::<H, i64>(&case).await;
    round_trips::<H, u8>(&case).await;
    round_trips::<H, u16>(&case).await;
    round_trips::<H, u32>(&case).await;
    round_trips::<H, u64>(&case).await;
    let bools = |seed| {
        pattern(seed, 1001)
            .iter()
            .map(|byte| byte % 3 == 0)
            .collect::<Vec<_>>()
    };
    round_trip(&case, &bools(1), &bools(2)).await;
    Outcome::Done
}

pub async fn bools_are_valid_whatever_the_memory_holds<H: Harness>(case: Case<H>) -> Outcome {
    let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let memory = case.memory(&content).await;
    // SAFETY: the memory is used through the buffer only.
    let buffer = unsafe { DeviceBuffer::<bool, _>::from_region(&case.adapter, memory.region()) };
    let mut back = vec![false; content.len()];
    let buffer = buffer.expect("a buffer");
    buffer
        .copy_to(&mut back)
        .await
        .expect("copy from the buffer");
    let expected: Vec<u8> = content.iter().map(|byte| u8::from(*byte != 0)).collect();
    assert!(bool::as_bytes(&back) == expected, "not 0 or 1, or wrong");
    Outcome::Done
}

pub async fn new_buffers_are_zero<H: Harness>(case: Case<H>) -> Outcome {
    let buffer = DeviceBuffer::<i64, _>::zeroed(&case.adapter, case.space, 1000);
    let mut back = vec![1; 1000];
    let buffer = buffer.expect("a buffer");
    buffer
        .copy_to(&mut back)
        .await
        .expect("copy from the buffer");
    assert!(back == [0; 1000], "elements that are not 0");
    Outcome::Done
}

pub async fn buffers_are_split<H: Harness>(case: Case<H>) -> Outcome {
    let data: Vec<i32> = elements(1, 1000);
    for mid in [0, 1, 333, 999, 1000] {
        let buffer = DeviceBuffer::from_slice(&case.adapter, case.space, &data).await;
        let buffer = buffer
            .expect("a buffer")
            .split_at(1001)
            .expect_err("too far");
        let Ok((mut left, right)) = buffer.split_at(mid) else {
            panic!("{mid} of 1000");
        };
        assert_eq!((left.len(), right.len()), (mid, 1000 - mid));
        assert!(mid == 1000 || right.address() == left.address() + 4 * mid as u64);
        left.copy_from(&elements(2, mid))
            .await
            .expect("copy to a part");
        let mut back = vec![0; mid];
        left.copy_to(&mut back).await.expect("copy from a part");
        assert!(back == elements::<i32>(2, mid), "the first {mid}");
        // The rest is as it was, and outlives the first part.
        drop(left);
        let mut back = vec![0; 1000 - mid];
        right.copy_to(&mut back).await.expect("copy from a part");
        assert!(back == data[mid..], "all but the first {mid}");
    }
    Outcome::Done
}

pub async fn buffers_check_lengths<H: Harness>(case: Case<H>) -> Outcome {
    let data: Vec<u16> = elements(1, 100);
    let buffer = DeviceBuffer::from_slice(&case.adapter, case.space, &data).await;
    let mut buffer = buffer.expect("a buffer");
    for len in [0, 99, 101] {
        let error = buffer.copy_from(&vec![7; len]).await;
        assert!(
            matches!(error, Err(DeviceError::Length { .. })),
            "{error:?}"
        );
        let error = buffer.copy_to(&mut vec![7; len]).await;
        assert!(
            matches!(error, Err(DeviceError::Length { .. })),
            "{error:?}"
        );
    }
    let mut back = vec![0; 100];
    buffer
        .copy_to(&mut back)
        .await
        .expect("copy from the buffer");
    assert!(back == data, "after the errors");
    let memory = case.allocate(15);
    // SAFETY: the memory is used through the buffer only, which there is not to be.
    let part = unsafe { DeviceBuffer::<u16, _>::from_region(&case.adapter, memory.region()) };
    assert!(
        matches!(part, Err(DeviceError::Length { bytes: 15, .. })),
        "half an element"
    );
    assert_eq!(buffer.adapter().name(), case.adapter.name());
    Outcome::Done
}
