//! Events: what they were recorded as, and who waits for them.

use crate::support::{
    Bench, INVALID_HANDLE, INVALID_VALUE, LEGACY, NON_BLOCKING, NOT_READY, SUCCESS, eventually,
};

#[test]
fn an_event_is_ready_when_what_it_was_recorded_after_is_done() {
    let bench = Bench::new();
    let (stream, event) = (bench.stream(NON_BLOCKING), bench.event());
    let memory = bench.alloc(4);
    assert_eq!(bench.raw.query(event), SUCCESS, "never recorded");
    bench.hold();
    bench.fill(memory, 1, 4, stream);
    assert_eq!(bench.raw.query(event), SUCCESS, "not recorded yet");
    bench.record(event, stream);
    assert_eq!(bench.raw.query(event), NOT_READY);
    bench.go_on();
    eventually(|| bench.raw.query(event) == SUCCESS);
    bench.hold();
    bench.fill(memory, 2, 4, stream);
    assert_eq!(
        bench.raw.query(event),
        SUCCESS,
        "what came later does not count"
    );
    bench.record(event, stream);
    assert_eq!(bench.raw.query(event), NOT_READY, "recorded again");
    bench.go_on();
    assert_eq!(bench.raw.synchronize_event(event), SUCCESS);
    assert_eq!(bench.raw.query(event), SUCCESS);
    assert_eq!(bench.contents(memory, 4), [2; 4]);
}

#[test]
fn who_waits_waits_for_the_record_of_that_time() {
    let bench = Bench::new();
    let [first, second, waiter] = std::array::from_fn(|_| bench.stream(NON_BLOCKING));
    let [event, passed] = std::array::from_fn(|_| bench.event());
    let memory = bench.alloc(1);
    bench.hold();
    // Of the idle stream: the waiter waits for nothing.
    bench.record(event, first);
    bench.wait_event(waiter, event);
    bench.fill(memory, 1, 1, second);
    bench.record(event, second);
    bench.record(passed, waiter);
    assert_eq!(bench.raw.query(passed), SUCCESS);
    // And now for the fill, whatever the event is recorded as later.
    bench.wait_event(waiter, event);
    bench.record(event, first);
    assert_eq!(bench.raw.query(event), SUCCESS);
    bench.record(passed, waiter);
    assert_eq!(bench.raw.query(passed), NOT_READY);
    bench.go_on();
    assert_eq!(bench.raw.synchronize_event(passed), SUCCESS);
}

#[test]
fn waiting_orders_streams() {
    let bench = Bench::new();
    let [out, into] = std::array::from_fn(|_| bench.stream(NON_BLOCKING));
    let memory = bench.alloc(64);
    let output = bench.pinned(&[0; 64]);
    bench.stub.set("delay_max_us", 200);
    for round in 1..=100 {
        let input = bench.pinned(&[round; 64]);
        let [there, back] = std::array::from_fn(|_| bench.event());
        bench.to_device(memory, input, into);
        bench.record(there, into);
        bench.wait_event(out, there);
        bench.to_host(output, memory, out);
        bench.record(back, out);
        bench.wait_event(into, back);
        // The next copy comes later, whatever the stream is.
        bench.fill(memory, 0, 64, into);
        assert_eq!(bench.raw.event_destroy(there), SUCCESS);
        bench.synchronize(out);
        assert_eq!(output.read(), [round; 64]);
        assert_eq!(bench.raw.event_destroy(back), SUCCESS);
        bench.synchronize(into);
    }
    assert_eq!(bench.count("live_events"), 0);
}

#[test]
fn an_event_that_is_destroyed_still_counts_for_who_waits() {
    let bench = Bench::new();
    let [first, second] = std::array::from_fn(|_| bench.stream(NON_BLOCKING));
    let (event, memory) = (bench.event(), bench.alloc(4));
    let (input, output) = (bench.pinned(&[1, 2, 3, 4]), bench.pinned(&[0; 4]));
    bench.hold();
    bench.to_device(memory, input, first);
    bench.record(event, first);
    bench.wait_event(second, event);
    assert_eq!(bench.raw.event_destroy(event), SUCCESS);
    bench.to_host(output, memory, second);
    assert_eq!(bench.raw.query(event), INVALID_HANDLE);
    bench.go_on();
    bench.synchronize(second);
    assert_eq!(output.read(), [1, 2, 3, 4]);
}

#[test]
fn flags_and_handles_are_checked() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let (stream, event) = (bench.stream(NON_BLOCKING), bench.event());
    let mut made = 0;
    for (flags, code) in [(0, SUCCESS), (3, SUCCESS), (6, SUCCESS), (4, 1), (8, 1)] {
        assert_eq!(raw.event_create(&mut made, flags), code, "{flags}");
    }
    assert_eq!(raw.event_create(std::ptr::null_mut(), 2), INVALID_VALUE);
    assert_eq!(bench.count("live_events"), 4);
    assert_eq!(raw.wait_event(stream, event, 2), INVALID_VALUE);
    assert_eq!(raw.record(stream, LEGACY), INVALID_HANDLE);
    assert_eq!(raw.record(event, event), INVALID_HANDLE);
    assert_eq!(raw.event_destroy(stream), INVALID_HANDLE);
}
