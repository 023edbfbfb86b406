//! Copies move their bytes late.

use crate::support::{Bench, LONG, POISON, SUCCESS};
use std::ptr;

const LEGACY: crate::support::Handle = ptr::null_mut();

#[test]
fn bytes_arrive_only_when_the_copy_is_done() {
    let bench = Bench::new();
    let (memory, input) = (bench.alloc(3), bench.pinned(&[1, 2, 3]));
    let output = bench.pinned(&[7, 7, 7]);
    bench.stub.set("delay_us", LONG);
    bench.to_device(memory, input, LEGACY);
    bench.to_host(output, memory, LEGACY);
    assert_eq!(output.read(), [7, 7, 7]);
    assert_eq!(bench.raw.synchronize(LEGACY), SUCCESS);
    assert_eq!(output.read(), [1, 2, 3]);
}

#[test]
fn bytes_are_read_only_when_the_copy_is_done() {
    let bench = Bench::new();
    let (memory, input) = (bench.alloc(3), bench.pinned(&[1, 2, 3]));
    bench.stub.set("delay_us", LONG);
    bench.to_device(memory, input, LEGACY);
    input.write(&[4, 5, 6]);
    bench.stub.set("delay_us", 0);
    assert_eq!(bench.contents(memory, 3), [4, 5, 6]);
}

#[test]
fn new_memory_is_poisoned() {
    let bench = Bench::new();
    let memory = bench.alloc(100);
    assert_eq!(bench.contents(memory, 100), [POISON; 100]);
}
