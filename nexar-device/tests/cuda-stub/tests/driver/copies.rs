//! Copies move their bytes late, at the pace that is set.

use crate::support::{Bench, INVALID_VALUE, LEGACY, NON_BLOCKING, PER_THREAD, SUCCESS, value};
use std::thread;

#[test]
fn bytes_arrive_only_when_the_copy_is_done() {
    let bench = Bench::new();
    let (memory, input) = (bench.alloc(3), bench.pinned(&[1, 2, 3]));
    let output = bench.pinned(&[7, 7, 7]);
    bench.hold();
    bench.to_device(memory, input, LEGACY);
    bench.to_host(output, memory, LEGACY);
    assert_eq!(output.read(), [7, 7, 7]);
    bench.go_on();
    bench.synchronize(LEGACY);
    assert_eq!(output.read(), [1, 2, 3]);
}

#[test]
fn pinned_bytes_are_read_only_when_the_copy_is_done() {
    let bench = Bench::new();
    let (memory, input) = (bench.alloc(3), bench.pinned(&[1, 2, 3]));
    bench.hold();
    bench.to_device(memory, input, LEGACY);
    input.write(&[4, 5, 6]);
    bench.go_on();
    assert_eq!(bench.contents(memory, 3), [4, 5, 6]);
}

#[test]
fn delays_and_bandwidth_change_no_bytes() {
    let bench = Bench::new();
    for (key, setting) in [
        ("delay_us", 20),
        ("delay_max_us", 300),
        ("seed", 5),
        ("bandwidth_in", 300_000_000),
        ("bandwidth_out", 200_000_000),
    ] {
        bench.stub.set(key, setting);
    }
    let streams = [
        LEGACY,
        PER_THREAD,
        bench.stream(0),
        bench.stream(NON_BLOCKING),
    ];
    for round in 0..40u8 {
        let stream = streams[usize::from(round) % 4];
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 / 3) as u8 ^ round).collect();
        let (memory, other) = (bench.alloc(6000), bench.alloc(6000));
        let (input, output) = (bench.pinned(&bytes), bench.pinned(&[0; 5000]));
        bench.to_device(memory + 1000, input, stream);
        let code = bench.raw.within(other + 17, memory + 1000, 5000, stream);
        assert_eq!(code, SUCCESS);
        bench.to_host(output, other + 17, stream);
        bench.synchronize(stream);
        assert_eq!(output.read(), bytes, "round {round}");
    }
    assert_eq!(bench.count("copies_in"), 40);
    assert_eq!(bench.count("copies_out"), 40);
    assert_eq!(bench.count("bytes_in"), 200_000);
    assert_eq!(bench.count("bytes_out"), 200_000);
    assert_eq!(bench.count("pageable_copies"), 0);
}

/// Short pageable memory is staged when the copy is called; the copy itself comes later.
#[test]
fn short_pageable_memory_is_read_at_once() {
    let bench = Bench::new();
    let memory = bench.alloc(3);
    let mut bytes = [1u8, 2, 3];
    bench.hold();
    let synchronizing = bench.count("synchronizing_calls");
    let code = bench
        .raw
        .to_device(memory, bytes.as_ptr().cast(), 3, LEGACY);
    assert_eq!(code, SUCCESS);
    bytes.fill(9);
    assert_eq!(bench.count("copies_in"), 0);
    assert_eq!(bench.count("pageable_copies"), 1);
    assert_eq!(bench.count("synchronizing_calls"), synchronizing + 1);
    bench.go_on();
    assert_eq!(bench.contents(memory, 3), [1, 2, 3]);
    assert_eq!(bench.count("pageable_copies"), 2);
    assert_eq!(bytes, [9; 3]);
}

#[test]
fn other_pageable_copies_return_when_they_are_done() {
    let bench = Bench::new();
    let len = (64 << 10) + 1;
    let memory = bench.alloc(len);
    bench.hold();
    let (there, back) = thread::scope(|scope| {
        let copies = scope.spawn(|| {
            assert_eq!(bench.raw.set_current(bench.context), SUCCESS);
            let (bytes, mut back) = (vec![3u8; len], vec![0u8; len]);
            let code = bench
                .raw
                .to_device(memory, bytes.as_ptr().cast(), len, LEGACY);
            assert_eq!((code, bench.count("copies_in")), (SUCCESS, 1));
            let code = bench
                .raw
                .to_host(back.as_mut_ptr().cast(), memory, len, LEGACY);
            assert_eq!((code, bench.count("copies_out")), (SUCCESS, 1));
            (bytes, back)
        });
        bench.until("pageable_copies", 1);
        assert_eq!(bench.count("copies_in"), 0);
        bench.go_on();
        copies.join().unwrap()
    });
    assert_eq!(there, back);
}

#[test]
fn registered_memory_is_pinned() {
    let bench = Bench::new();
    let memory = bench.alloc(8);
    let mut bytes = vec![5u8; 8];
    let start = bytes.as_mut_ptr().cast();
    assert_eq!(bench.raw.register(start, 8, 1), SUCCESS);
    assert_eq!(bench.raw.register(start, 4, 1), 712);
    assert_eq!(bench.count("live_pinned_bytes"), 8);
    assert_eq!(bench.raw.to_device(memory, start, 8, LEGACY), SUCCESS);
    bench.synchronize(LEGACY);
    assert_eq!(bench.count("pageable_copies"), 0);
    assert_eq!(bench.raw.host_free(start), INVALID_VALUE);
    assert_eq!(bench.raw.unregister(start), SUCCESS);
    assert_eq!(bench.raw.unregister(start), 713);
    assert_eq!(bench.count("live_pinned"), 0);
    assert_eq!(bench.contents(memory, 8), [5; 8]);
}

#[test]
fn copies_between_devices() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let memory = bench.alloc(4);
    bench.fill(memory, 6, 4, LEGACY);
    let second = value(0, |to| raw.retain(to, 1));
    assert_eq!(raw.set_current(second), SUCCESS);
    let other = bench.alloc(4);
    assert_eq!(raw.set_current(bench.context), SUCCESS);
    let code = raw.peer(other, second, memory, bench.context, 4, LEGACY);
    assert_eq!(code, SUCCESS);
    bench.synchronize(LEGACY);
    assert_eq!(raw.within(other, memory, 4, LEGACY), INVALID_VALUE);
    assert_eq!(raw.set_current(second), SUCCESS);
    assert_eq!(bench.contents(other, 4), [6; 4]);
}

#[test]
fn nothing_is_copied_of_no_bytes() {
    let bench = Bench::new();
    let (memory, pinned) = (bench.alloc(1), bench.pinned(&[1]));
    let raw = &bench.raw;
    assert_eq!(raw.to_device(memory, pinned.pointer(), 0, LEGACY), SUCCESS);
    assert_eq!(raw.to_host(pinned.pointer(), memory, 0, LEGACY), SUCCESS);
    assert_eq!(raw.fill(memory, 0, 0, LEGACY), SUCCESS);
    bench.synchronize(LEGACY);
    assert_eq!(bench.count("copies_in") + bench.count("copies_out"), 0);
}
