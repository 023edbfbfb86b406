//! The conformance suite finds an adapter that misbehaves, by the right cases.
#![allow(clippy::expect_used)]

mod adapter;

use adapter::{Broken, Lie};
use nexar_device::{
    DeviceBuffer, MemorySpace,
    testing::{CASES, Harness, Limits, MemoryDevice, Work, run_case},
};
use std::{any::Any, panic::catch_unwind, time::Duration};

struct BrokenHarness(Lie);

impl Harness for BrokenHarness {
    type Adapter = Broken;

    fn adapter(&self) -> Broken {
        let mut device = MemoryDevice::builder()
            .slot_len(512)
            .fill(true)
            .reduce(true);
        if self.0 == Lie::CompletesEarly {
            // Slow, so that what is early does not happen to be on time.
            device = device.bandwidth(200_000, 200_000);
        }
        Broken::new(device.build(), self.0)
    }

    fn spaces(&self) -> Vec<MemorySpace> {
        vec![MemorySpace::Device(0)]
    }

    fn write(&self, broken: &Broken, _: MemorySpace, address: u64, data: &[u8]) -> bool {
        broken.device.write(address, data).is_ok()
    }

    fn read(&self, broken: &Broken, _: MemorySpace, address: u64, target: &mut [u8]) -> bool {
        broken.device.read(address, target).is_ok()
    }

    fn enqueue_write(
        &self,
        broken: &Broken,
        _: MemorySpace,
        address: u64,
        data: &[u8],
    ) -> Option<Work> {
        let stream = broken.device.stream();
        let hold = Box::new(broken.device.hold(stream).ok()?);
        let enqueued = broken
            .device
            .enqueue_write_bytes(stream, address, data, Duration::ZERO);
        enqueued.ok()?;
        Some(Work { stream, hold })
    }

    fn pause(&self, broken: &Broken) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(broken.device.pause()))
    }

    fn live_bytes(&self, broken: &Broken, _: MemorySpace) -> Option<usize> {
        Some(broken.device.usage().live_bytes)
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        // Where a lie makes a case hang.
        limits.case_time = Duration::from_millis(match self.0 {
            Lie::LosesSlots | Lie::NoFirstSlot | Lie::ForgetsWakers => 300,
            _ => 30_000,
        });
        limits
    }
}

/// The cases that fail with this lie.
fn failing(lie: Lie) -> Vec<&'static str> {
    let fails = |case: &&&str| catch_unwind(|| run_case(case, BrokenHarness(lie))).is_err();
    CASES.iter().filter(fails).copied().collect()
}

/// These cases fail; others may, for with this lie much is a matter of chance.
#[track_caller]
fn assert_among_failing(lie: Lie, sure: &[&str]) {
    let failing = failing(lie);
    let passed = sure.iter().filter(|case| !failing.contains(case));
    let passed: Vec<_> = passed.collect();
    assert!(passed.is_empty(), "{passed:?} did not find that it {lie:?}");
}

#[test]
fn the_wrapper_without_a_lie_passes() {
    assert_eq!(failing(Lie::None), [""; 0]);
}

#[test]
fn the_end_of_a_region_is_found() {
    let expected = [
        "copies_of_a_part",
        "out_of_range_is_an_error_and_frees_the_slot",
        "fill_sets_the_bytes",
        "reductions_on_the_device",
    ];
    assert_eq!(failing(Lie::IgnoresLength), expected);
}

#[test]
fn ignored_places_in_the_slot_are_found() {
    let expected = [
        "copies_out_of_every_length",
        "copies_in_of_every_length",
        "out_of_range_is_an_error_and_frees_the_slot",
    ];
    assert_eq!(failing(Lie::IgnoresAt), expected);
}

#[test]
fn memory_that_is_freed_early_is_found() {
    let expected = [
        "a_dropped_queue_keeps_the_region_until_its_copies_are_over",
        "a_dropped_buffer_keeps_the_memory_until_its_copies_are_over",
    ];
    assert_eq!(failing(Lie::FreesEarly), expected);
}

#[test]
fn forgotten_copies_are_found() {
    let expected = [
        "fill_sets_the_bytes",
        "reductions_on_the_device",
        "copies_in_keep_their_order",
        "copies_come_after_those_of_dropped_queues",
        "a_dropped_transfer_is_carried_out",
        "a_dropped_queue_keeps_the_region_until_its_copies_are_over",
        "a_dropped_transfer_keeps_its_slot_until_it_is_over",
    ];
    assert_eq!(failing(Lie::ForgetsDropped), expected);
}

#[test]
fn overtaken_streams_are_found() {
    let expected = [
        "copies_out_come_after_the_work_of_the_stream",
        "copies_in_come_after_the_work_of_the_stream",
    ];
    assert_eq!(failing(Lie::IgnoresStream), expected);
}

#[test]
fn memory_that_is_not_zero_is_found() {
    let expected = ["new_memory_is_zero", "new_buffers_are_zero"];
    assert_eq!(failing(Lie::DirtyMemory), expected);
}

#[test]
fn fills_with_other_bytes_are_found() {
    let expected = ["fill_sets_the_bytes"];
    assert_eq!(failing(Lie::FillsZero), expected);
}

#[test]
fn early_completion_is_found() {
    let sure = [
        "copies_out_of_every_length",
        "copies_in_of_every_length",
        "copies_of_a_part",
        "reductions_on_the_device",
        "the_first_slot_comes_at_once",
        "the_last_task_that_polled_is_woken",
        "copies_in_keep_their_order",
        "a_complete_copy_is_there_for_the_next",
        "copies_out_come_after_the_work_of_the_stream",
        "copies_in_come_after_the_work_of_the_stream",
        "copies_come_after_those_of_dropped_queues",
        "a_dropped_transfer_is_carried_out",
        "a_dropped_queue_keeps_the_region_until_its_copies_are_over",
        "a_dropped_transfer_keeps_its_slot_until_it_is_over",
        "an_operation_that_is_dropped_anywhere_loses_nothing",
        "opposite_directions_at_once",
        "many_queues_on_one_thread",
        "parts_of_one_region_by_many_threads",
        "buffers_by_many_threads",
        "buffers_of_every_type",
        "bools_are_valid_whatever_the_memory_holds",
        "buffers_are_split",
    ];
    assert_among_failing(Lie::CompletesEarly, &sure);
}

#[test]
fn lost_slots_are_found() {
    let sure = [
        "copies_out_of_every_length",
        "copies_in_of_every_length",
        "slots_are_lent_again_and_again",
        "waiting_queues_take_turns",
        "copies_in_keep_their_order",
        "a_dropped_transfer_keeps_its_slot_until_it_is_over",
        "an_operation_that_is_dropped_anywhere_loses_nothing",
        "many_queues_on_one_thread",
        "parts_of_one_region_by_many_threads",
        "buffers_by_many_threads",
        "buffers_of_every_type",
    ];
    assert_among_failing(Lie::LosesSlots, &sure);
}

#[test]
fn first_slots_that_wait_are_found() {
    let sure = [
        "the_first_slot_comes_at_once",
        "the_last_task_that_polled_is_woken",
        "a_queue_that_has_given_its_slots_back_is_woken",
        "waiting_queues_take_turns",
        "a_dropped_queue_passes_its_turn_on",
        "a_dropped_transfer_keeps_its_slot_until_it_is_over",
    ];
    assert_among_failing(Lie::NoFirstSlot, &sure);
}

#[test]
fn forgotten_wakers_are_found() {
    let sure = [
        "the_last_task_that_polled_is_woken",
        "a_queue_that_has_given_its_slots_back_is_woken",
        "waiting_queues_take_turns",
        "a_dropped_queue_passes_its_turn_on",
    ];
    assert_among_failing(Lie::ForgetsWakers, &sure);
}

#[test]
fn overtaken_queues_are_found() {
    let sure = ["copies_come_after_those_of_dropped_queues"];
    assert_among_failing(Lie::IgnoresDroppedQueues, &sure);
}

/// It is an error, or the data is right: no panic, and no wait without end.
#[tokio::test]
async fn buffers_survive_a_queue_of_another_length() {
    let space = MemorySpace::Device(0);
    let data: Vec<u8> = (0..100).collect();
    for more in [0, -1, -100, 1, 1000] {
        let device = MemoryDevice::builder().slot_len(16).build();
        let broken = Broken::new(device.clone(), Lie::OtherLength(more));
        let mut buffer = DeviceBuffer::<u8, _>::zeroed(&broken, space, 100).expect("memory");
        let mut found = vec![0; 100];
        match buffer.copy_from(&data).await {
            Ok(()) => {
                device.read(buffer.address(), &mut found).expect("memory");
                assert!(more >= 0 && found == data, "{more}");
            }
            Err(error) => assert!(more < 0, "{more}: {error}"),
        }
        device.write(buffer.address(), &data).expect("memory");
        match buffer.copy_to(&mut found).await {
            Ok(()) => assert!(more >= 0 && found == data, "{more}"),
            Err(error) => assert!(more != 0, "{error}"),
        }
    }
}
