//! Which streams wait for each other.

use crate::support::{
    BLOCKING, Bench, Handle, INVALID_HANDLE, INVALID_VALUE, LEGACY, NON_BLOCKING, NOT_READY,
    PER_THREAD, SUCCESS, value,
};
use std::thread;

/// Whether an empty stream `second` waits for work in `first`.
fn waits(bench: &Bench, first: Handle, second: Handle) -> bool {
    let (event, memory) = (bench.event(), bench.alloc(1));
    bench.hold();
    bench.fill(memory, 1, 1, first);
    bench.record(event, second);
    let waits = bench.raw.query(event) == NOT_READY;
    bench.go_on();
    assert_eq!(bench.raw.synchronize_context(), SUCCESS);
    assert_eq!(bench.raw.query(event), SUCCESS);
    waits
}

#[test]
fn the_legacy_stream_and_blocking_ones_wait_for_each_other() {
    let bench = Bench::new();
    let blocking = [bench.stream(BLOCKING), bench.stream(BLOCKING), PER_THREAD];
    let non_blocking = [bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING)];
    for legacy in [LEGACY, 1] {
        for stream in blocking {
            assert!(waits(&bench, legacy, stream), "{stream}");
            assert!(waits(&bench, stream, legacy), "{stream}");
            assert!(waits(&bench, stream, stream));
        }
        for stream in non_blocking {
            assert!(!waits(&bench, legacy, stream));
            assert!(!waits(&bench, stream, legacy));
            assert!(waits(&bench, stream, stream));
        }
    }
    for (first, second) in [
        (blocking[0], blocking[1]),
        (blocking[2], blocking[0]),
        (non_blocking[0], non_blocking[1]),
        (blocking[0], non_blocking[0]),
        (non_blocking[0], blocking[0]),
    ] {
        assert!(!waits(&bench, first, second));
    }
    assert!(waits(&bench, LEGACY, 1));
}

/// Work of the legacy stream comes after blocking ones, and what follows on blocking ones after it.
#[test]
fn the_legacy_stream_is_a_barrier() {
    let bench = Bench::new();
    let [first, second] = std::array::from_fn(|_| bench.stream(BLOCKING));
    let (event, memory) = (bench.event(), bench.alloc(1));
    bench.hold();
    bench.fill(memory, 1, 1, first);
    bench.record(bench.event(), LEGACY);
    bench.record(event, second);
    assert_eq!(bench.raw.query(event), NOT_READY);
    bench.go_on();
    assert_eq!(bench.raw.synchronize_event(event), SUCCESS);
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let bench = Bench::new();
    let (event, memory) = (bench.event(), bench.alloc(1));
    bench.hold();
    bench.fill(memory, 1, 1, PER_THREAD);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(bench.raw.set_current(bench.context), SUCCESS);
            bench.record(event, PER_THREAD);
            assert_eq!(bench.raw.query(event), SUCCESS);
        });
    });
    bench.record(event, PER_THREAD);
    assert_eq!(bench.raw.query(event), NOT_READY);
    bench.go_on();
    bench.synchronize(PER_THREAD);
    assert_eq!(bench.count("live_streams"), 0);
}

#[test]
fn a_stream_runs_in_order() {
    let bench = Bench::new();
    bench.stub.set("delay_max_us", 100);
    let stream = bench.stream(NON_BLOCKING);
    let memory = bench.alloc(1);
    let outputs: Vec<_> = (0..200u8).map(|_| bench.pinned(&[0])).collect();
    for (byte, output) in (1..).zip(&outputs) {
        bench.fill(memory, byte, 1, stream);
        bench.to_host(*output, memory, stream);
    }
    bench.synchronize(stream);
    let found: Vec<u8> = outputs.iter().map(|output| output.read()[0]).collect();
    assert_eq!(found, (1..=200).collect::<Vec<u8>>());
}

#[test]
fn the_work_of_a_destroyed_stream_goes_on() {
    let bench = Bench::new();
    let (stream, event) = (bench.stream(BLOCKING), bench.event());
    let memory = bench.alloc(2);
    bench.hold();
    bench.fill(memory, 8, 2, stream);
    assert_eq!(bench.raw.stream_destroy(stream), SUCCESS);
    assert_eq!(bench.count("live_streams"), 0);
    assert_eq!(bench.raw.stream_destroy(stream), INVALID_HANDLE);
    assert_eq!(bench.raw.record(event, stream), INVALID_HANDLE);
    let another = bench.stream(BLOCKING);
    assert_ne!(another, stream);
    bench.record(event, LEGACY);
    assert_eq!(bench.raw.query(event), NOT_READY);
    bench.go_on();
    assert_eq!(bench.contents(memory, 2), [8; 2]);
}

#[test]
fn flags_and_handles_are_checked() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let mut made = 0;
    assert_eq!(raw.stream_create(&mut made, 2), INVALID_VALUE);
    assert_eq!(
        raw.stream_create_with_priority(&mut made, 3, -1),
        INVALID_VALUE
    );
    let stream = value(0, |to| raw.stream_create_with_priority(to, 1, -1));
    assert_eq!(bench.count("live_streams"), 1);
    for wrong in [LEGACY, 1, PER_THREAD, bench.event(), bench.context] {
        assert_eq!(raw.stream_destroy(wrong), INVALID_HANDLE);
    }
    assert_eq!(raw.stream_destroy(stream), SUCCESS);
}
