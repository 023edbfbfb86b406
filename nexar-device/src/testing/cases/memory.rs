//! Memory spaces, and how memory is allocated.

use super::{IN_PLACE, Outcome};
use crate::{
    adapter::{Access, DeviceAdapter, DeviceError, ExecutionQueue},
    buffer::DeviceBuffer,
    region::Region,
    testing::{
        Harness,
        tools::{Case, check, pattern},
    },
};
use std::{
    ptr, thread,
    time::{Duration, Instant},
};

pub async fn capabilities_do_not_change<H: Harness>(case: Case<H>) -> Outcome {
    let capabilities = case.adapter.capabilities();
    assert!(
        capabilities.slot_len.is_multiple_of(16),
        "{} bytes of a slot are no multiple of 16",
        capabilities.slot_len
    );
    assert_eq!(
        capabilities.slot_len == 0,
        capabilities.slots == 0,
        "slots and their length: {capabilities:?}"
    );
    assert!(!case.staged || capabilities.slots > 0, "{capabilities:?}");
    case.memory(&pattern(1, 100)).await;
    assert_eq!(case.adapter.capabilities(), capabilities, "later");
    assert_eq!(case.adapter.clone().capabilities(), capabilities, "a clone");
    assert_eq!(case.adapter.clone().name(), case.adapter.name());
    assert!(!case.adapter.name().is_empty(), "no name");
    Outcome::Done
}

pub async fn addresses_lie_in_their_space<H: Harness>(case: Case<H>) -> Outcome {
    for len in [1, 2, 100, 100_000] {
        let memory = case.allocate(len);
        assert_eq!(memory.region().space(), case.space);
        for at in [0, len / 2, len - 1] {
            let address = ptr::without_provenance((memory.address() + at as u64) as usize);
            let found = case.adapter.space_of(address);
            assert_eq!(found, Some(case.space), "byte {at} of {len}");
        }
    }
    Outcome::Done
}

pub async fn an_unknown_space_is_an_error<H: Harness>(case: Case<H>) -> Outcome {
    let Some(unknown) = case.harness.unknown_space() else {
        return Outcome::Skipped("it has all spaces");
    };
    for len in [0, 1, 1000] {
        let error = case.adapter.allocate(unknown, len).err();
        let error = error.unwrap_or_else(|| panic!("{len} bytes in {unknown}"));
        assert!(
            matches!(error, DeviceError::Unreachable { space, .. } if space == unknown),
            "{error:?}"
        );
        let memory = case.allocate(len);
        let lie = || {
            let (region, owner) = (memory.region(), memory.region());
            // SAFETY: the bytes are live; that they lie elsewhere is what the adapter finds out.
            unsafe { Region::from_raw(region.address(), len, unknown, 0, owner) }
        };
        assert!(
            case.adapter.open(lie()).is_err(),
            "{len} bytes in {unknown}"
        );
        // SAFETY: as above.
        let buffer = unsafe { DeviceBuffer::<u8, _>::from_region(&case.adapter, lie()) };
        assert!(len == 0 || buffer.is_err(), "{len} bytes in {unknown}");
    }
    Outcome::Done
}

pub async fn new_memory_is_zero<H: Harness>(case: Case<H>) -> Outcome {
    for len in [1, 15, 16, 17, 1000, 4 * case.slot_len() + 3, 100_001] {
        for _ in 0..3 {
            let memory = case.allocate(len);
            let found = case.get(&memory).await;
            check(&found, &vec![0; len], || format!("{len} new bytes"));
            // Whoever gets this memory next must not see it.
            case.put(&memory, &vec![0xA5; len]).await;
        }
    }
    Outcome::Done
}

pub async fn memory_is_aligned<H: Harness>(case: Case<H>) -> Outcome {
    let all: Vec<_> = (1..40).map(|len| case.allocate(len)).collect();
    for memory in &all {
        // That of the largest element.
        assert_eq!(memory.address() % 8, 0, "{} bytes", memory.len());
    }
    Outcome::Done
}

pub async fn memory_of_no_bytes<H: Harness>(case: Case<H>) -> Outcome {
    let memory = case.allocate(0);
    assert_eq!(memory.len(), 0);
    match case.adapter.open(memory.region()).expect("open no bytes") {
        Access::Host(view) => assert!(view.as_ref().is_empty()),
        Access::Staged(queue) => assert_eq!(queue.region_len(), 0),
    }
    // SAFETY: a region of no bytes may be anywhere.
    let nowhere = unsafe { Region::from_raw(ptr::null_mut(), 0, case.space, 0, ()) };
    assert!(case.adapter.open(nowhere).is_ok(), "no bytes at address 0");
    assert_eq!(case.get(&memory).await, []);
    let freed = memory.give_up();
    freed.wait(case.harness.limits().case_time);
    Outcome::Done
}

pub async fn a_length_that_no_memory_has_is_an_error<H: Harness>(case: Case<H>) -> Outcome {
    for len in [isize::MAX as usize, isize::MAX as usize + 1, usize::MAX] {
        let allocated = case.adapter.allocate(case.space, len);
        assert!(allocated.is_err(), "{len} bytes");
    }
    for len in [usize::MAX / 8, usize::MAX / 8 + 1, usize::MAX] {
        let buffer = DeviceBuffer::<f64, _>::zeroed(&case.adapter, case.space, len);
        assert!(buffer.is_err(), "{len} elements");
    }
    // It is as before.
    let memory = case.memory(&pattern(2, 10)).await;
    check(&case.get(&memory).await, &pattern(2, 10), || {
        "after an error".into()
    });
    Outcome::Done
}

pub async fn regions_do_not_overlap<H: Harness>(case: Case<H>) -> Outcome {
    let mut all = Vec::new();
    for seed in 0..30 {
        all.push(case.memory(&pattern(seed, 1 + seed * 7)).await);
    }
    for (seed, memory) in all.iter().enumerate() {
        let expected = pattern(seed, memory.len());
        check(&case.get(memory).await, &expected, || {
            format!("region {seed}")
        });
    }
    Outcome::Done
}

pub async fn dropped_memory_is_free<H: Harness>(case: Case<H>) -> Outcome {
    let live = || case.harness.live_bytes(&case.adapter, case.space);
    // The byte by which the case began may be there or not.
    let Some(before) = live() else {
        return Outcome::Skipped("nobody counts the memory");
    };
    let has = |more: usize| live().is_some_and(|live| live + 1 >= before + more);
    let limit = case.harness.limits().case_time;
    let regions: Vec<_> = (1..5).map(|len| case.allocate(len * 1000)).collect();
    assert!(has(10_000), "{:?} bytes after {before}", live());
    drop(regions);
    becomes(limit, "dropped regions are free", || {
        live().is_some_and(|live| live <= before)
    });
    // A part keeps all.
    let memory = case.allocate(1000);
    let part = memory.part(10..20);
    drop(memory);
    assert!(has(1000), "{:?} bytes after {before}", live());
    drop(part);
    becomes(limit, "a dropped part is free", || {
        live().is_some_and(|live| live <= before)
    });
    Outcome::Done
}

/// Waits for what another thread may be doing: a driver may block when it frees memory.
fn becomes(limit: Duration, what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !is() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub async fn a_host_view_is_the_memory<H: Harness>(case: Case<H>) -> Outcome {
    if case.staged {
        return Outcome::Skipped(IN_PLACE.1);
    }
    let memory = case.memory(&pattern(3, 100)).await;
    let Ok(Access::Host(mut view)) = case.adapter.open(memory.part(10..50)) else {
        panic!("a part is reached as the whole is");
    };
    assert_eq!(view.as_ref(), &pattern(3, 100)[10..50]);
    assert_eq!(view.as_ref().as_ptr().addr() as u64, memory.address() + 10);
    view.as_mut().fill(7);
    let mut expected = pattern(3, 100);
    expected[10..50].fill(7);
    check(&case.get(&memory).await, &expected, || "a part".into());
    let freed = memory.give_up();
    assert!(!freed.is_free(), "the view keeps the memory");
    assert_eq!(view.as_ref(), [7; 40]);
    drop(view);
    assert!(freed.is_free(), "nothing keeps the memory");
    Outcome::Done
}
