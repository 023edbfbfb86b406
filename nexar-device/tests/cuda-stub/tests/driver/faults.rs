//! Faults that a test asks for.

use crate::support::{Bench, ILLEGAL_ADDRESS, LEGACY, NON_BLOCKING, SUCCESS};

#[test]
fn the_nth_call_fails_and_does_nothing() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let mut address = 0;
    bench.stub.fail("cuMemAlloc_v2", 2, 2);
    bench.stub.fail("cuMemAlloc_v2", 3, 999);
    let codes: [i32; 4] = std::array::from_fn(|_| raw.alloc(&mut address, 8));
    assert_eq!(codes, [SUCCESS, 2, 999, SUCCESS]);
    assert_eq!(bench.count("live_device_buffers"), 2);
    assert_eq!(bench.count("calls:cuMemAlloc_v2"), 4);
    assert_eq!(bench.count("synchronizing_calls"), 4);
}

#[test]
fn codes_that_break_a_context_stay() {
    let bench = Bench::new();
    let event = bench.event();
    bench.stub.fail("cuEventQuery", 1, 719);
    let raw = &bench.raw;
    assert_eq!(raw.query(event), 719);
    assert_eq!(raw.query(event), 719);
    assert_eq!(raw.alloc(&mut 0, 1), 719);
    assert_eq!(raw.release(0), SUCCESS);
    assert_eq!(bench.count("retained_contexts"), 0);
}

/// Copies that are under way fail too, and those that come after them end.
#[test]
fn a_copy_fails_while_it_runs() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let stream = bench.stream(NON_BLOCKING);
    let (memory, event) = (bench.alloc(2), bench.event());
    let (first, second) = (bench.pinned(&[1, 1]), bench.pinned(&[2, 2]));
    bench.hold();
    bench.to_host(first, memory, stream);
    bench.to_host(second, memory, stream);
    bench.record(event, stream);
    bench.stub.fail_async(ILLEGAL_ADDRESS);
    bench.go_on();
    assert_eq!(raw.synchronize_event(event), ILLEGAL_ADDRESS);
    assert_eq!(raw.query(event), ILLEGAL_ADDRESS);
    assert_eq!(
        raw.to_host(first.pointer(), memory, 2, LEGACY),
        ILLEGAL_ADDRESS
    );
    assert_eq!((first.read(), second.read()), (vec![1; 2], vec![2; 2]));
    assert_eq!(bench.count("copies_out"), 0);
    assert_eq!(bench.count("illegal_accesses"), 0);
}
