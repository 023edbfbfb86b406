//! Memory of devices is no memory of the host, and misuse of it shows.

use crate::support::{
    Bench, ILLEGAL_ADDRESS, INVALID_VALUE, LEGACY, NON_BLOCKING, POISON, SUCCESS, value,
};
use std::{
    env,
    ffi::c_void,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
    ptr, thread,
};

#[test]
fn new_memory_is_poisoned() {
    let bench = Bench::new();
    let memory = bench.alloc(100);
    assert_eq!(bench.contents(memory, 100), [POISON; 100]);
    let pinned = value(ptr::null_mut(), |to| bench.raw.host_alloc(to, 50, 1));
    // SAFETY: the driver has allocated so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), 50) };
    assert_eq!(bytes, [POISON; 50]);
}

#[test]
fn addresses_are_never_used_again_and_have_gaps() {
    let bench = Bench::new();
    let mut end = 0;
    for len in [1, 100, 5000, 1, 512, 70_000] {
        let address = bench.alloc(len);
        assert_eq!(address % 512, 0);
        assert!(address >= end + (1 << 16), "{address:x} {end:x}");
        end = address + len as u64;
        assert_eq!(bench.raw.free(address), SUCCESS);
        assert_eq!(bench.raw.free(address), INVALID_VALUE);
    }
}

#[test]
fn a_device_has_so_much_memory() {
    let bench = Bench::new();
    bench.stub.set("memory", 1000);
    let mut address = 0;
    assert_eq!(bench.raw.alloc(&mut address, 0), INVALID_VALUE);
    assert_eq!(bench.raw.alloc(&mut address, 1001), 2);
    let memory = bench.alloc(600);
    assert_eq!(bench.raw.alloc(&mut address, 401), 2);
    let other = bench.alloc(400);
    assert_eq!(bench.count("live_device_bytes"), 1000);
    assert_eq!(bench.raw.free(memory), SUCCESS);
    bench.alloc(600);
    assert_eq!(bench.raw.free(other), SUCCESS);
    assert_eq!(bench.count("live_device_buffers"), 1);
    assert_eq!(bench.count("live_device_bytes"), 600);
}

/// In a process of its own, which dies of it.
#[test]
fn the_host_cannot_read_it() {
    const CHILD: &str = "NEXAR_CUDA_STUB_TEST_READS";
    if env::var_os(CHILD).is_some() {
        let memory = Bench::new().alloc(100);
        let pointer = ptr::with_exposed_provenance::<u8>(memory as usize);
        // SAFETY: it is not: the system ends the process.
        println!("{}", unsafe { pointer.read_volatile() });
        return;
    }
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "memory::the_host_cannot_read_it", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    const SIGSEGV: i32 = 11;
    assert_eq!(child.signal(), Some(SIGSEGV), "{child}");
}

/// A copy that leaves its memory breaks the context when it runs.
#[test]
fn illegal_copies_break_the_context() {
    for (at, len) in [
        (0, 101),
        (100, 1),
        (50, 51),
        (1 << 15, 1),
        (u64::MAX - 10, 5),
    ] {
        let bench = Bench::new();
        let memory = bench.alloc(100);
        let pinned = bench.pinned(&vec![1; len]);
        bench.hold();
        bench.to_device(memory.wrapping_add(at), pinned, LEGACY);
        assert_eq!(bench.count("illegal_accesses"), 0);
        bench.go_on();
        let raw = &bench.raw;
        assert_eq!(raw.synchronize(LEGACY), ILLEGAL_ADDRESS, "{at} {len}");
        assert_eq!(bench.count("illegal_accesses"), 1);
        assert_eq!(raw.alloc(&mut 0, 1), ILLEGAL_ADDRESS);
        assert_eq!(raw.free(memory), ILLEGAL_ADDRESS);
        assert_eq!(raw.retain(&mut 0, 0), ILLEGAL_ADDRESS);
        // The other device works.
        let second = value(0, |to| raw.retain(to, 1));
        assert_eq!(raw.set_current(second), SUCCESS);
        bench.alloc(1);
    }
}

#[test]
fn freed_memory_is_illegal() {
    let bench = Bench::new();
    let (memory, pinned) = (bench.alloc(10), bench.pinned(&[1; 10]));
    assert_eq!(bench.raw.free(memory), SUCCESS);
    assert_eq!(bench.count("freed_in_use"), 0);
    bench.to_host(pinned, memory, LEGACY);
    assert_eq!(bench.raw.synchronize_context(), ILLEGAL_ADDRESS);
    assert_eq!(bench.count("illegal_accesses"), 1);
    assert_eq!(pinned.read(), [1; 10]);
}

/// Freeing what a copy uses waits for it, and is counted.
#[test]
fn freeing_waits_for_copies() {
    let bench = Bench::new();
    let stream = bench.stream(NON_BLOCKING);
    let (memory, input) = (bench.alloc(3), bench.pinned(&[1, 2, 3]));
    let output = bench.pinned(&[0; 3]);
    bench.hold();
    bench.to_device(memory, input, stream);
    bench.to_host(output, memory, stream);
    let input = input.pointer().expose_provenance();
    let raw = &bench.raw;
    thread::scope(|scope| {
        let device = scope.spawn(|| {
            assert_eq!(raw.set_current(bench.context), SUCCESS);
            let code = raw.free(memory);
            (code, bench.count("copies_out"))
        });
        let host = scope.spawn(|| {
            assert_eq!(raw.set_current(bench.context), SUCCESS);
            let code = raw.host_free(ptr::with_exposed_provenance_mut(input));
            (code, bench.count("copies_in"))
        });
        bench.until("freed_in_use", 2);
        assert_eq!(bench.count("live_device_buffers"), 1);
        assert_eq!(bench.count("live_pinned"), 2);
        bench.go_on();
        assert_eq!(device.join().unwrap(), (SUCCESS, 1));
        assert_eq!(host.join().unwrap(), (SUCCESS, 1));
    });
    assert_eq!(output.read(), [1, 2, 3]);
    assert_eq!(bench.count("live_device_buffers"), 0);
    assert_eq!(bench.count("live_pinned"), 1);
}

#[test]
fn memory_in_stream_order() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let [stream, other] = std::array::from_fn(|_| bench.stream(NON_BLOCKING));
    let memory = value(0, |to| raw.alloc_async(to, 4, stream));
    let (input, output) = (bench.pinned(&[1, 2, 3, 4]), bench.pinned(&[0; 4]));
    bench.to_device(memory, input, stream);
    bench.to_host(output, memory, stream);
    assert_eq!(raw.free_async(memory, stream), SUCCESS);
    bench.synchronize(stream);
    assert_eq!(output.read(), [1, 2, 3, 4]);
    assert_eq!(bench.count("live_device_buffers"), 0);
    assert_eq!(bench.count("freed_in_use"), 0);
    assert_eq!(raw.free_async(memory, stream), INVALID_VALUE);

    // Another stream that does not wait comes too early.
    let blocker = bench.alloc(1);
    bench.stub.set("delay_us", 60_000_000);
    bench.fill(blocker, 0, 1, stream);
    bench.stub.set("delay_us", 0);
    let memory = value(0, |to| raw.alloc_async(to, 4, stream));
    assert_eq!(bench.count("live_device_bytes"), 5);
    bench.fill(memory, 0, 4, other);
    assert_eq!(raw.synchronize(other), ILLEGAL_ADDRESS);
    assert_eq!(bench.count("illegal_accesses"), 1);
}

#[test]
fn pinned_memory_is_counted() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let [portable, combined] =
        [1, 4].map(|flags| value(ptr::null_mut(), |to| raw.host_alloc(to, 100, flags)));
    let mut none = ptr::null_mut();
    assert_eq!(raw.host_alloc(&mut none, 100, 8), INVALID_VALUE);
    assert_eq!(raw.host_alloc(&mut none, 0, 1), INVALID_VALUE);
    assert_eq!(bench.count("live_pinned"), 2);
    assert_eq!(bench.count("live_pinned_bytes"), 200);
    assert_eq!(bench.count("write_combined"), 1);
    assert_eq!(raw.host_free(portable.wrapping_byte_add(1)), INVALID_VALUE);
    assert_eq!(raw.unregister(portable), 713);
    assert_eq!(raw.host_free(portable), SUCCESS);
    assert_eq!(raw.host_free(combined), SUCCESS);
    assert_eq!(bench.count("live_pinned_bytes"), 0);
    assert_eq!(bench.count("write_combined"), 1);
}

/// Context, memory type, pointer for devices, device, start and length.
fn attributes(bench: &Bench, address: u64) -> (u64, u32, u64, i32, u64, u64) {
    let (mut context, mut pointer, mut start, mut len) = (1u64, 1u64, 1u64, 1u64);
    let (mut kind, mut device) = (9u32, 9i32);
    let values: [*mut c_void; 6] = [
        (&raw mut context).cast(),
        (&raw mut kind).cast(),
        (&raw mut pointer).cast(),
        (&raw mut device).cast(),
        (&raw mut start).cast(),
        (&raw mut len).cast(),
    ];
    let wanted = [1, 2, 3, 9, 11, 12];
    let code = bench
        .raw
        .attributes(6, wanted.as_ptr(), values.as_ptr(), address);
    assert_eq!(code, SUCCESS);
    (context, kind, pointer, device, start, len)
}

#[test]
fn pointers_have_attributes() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let second = value(0, |to| raw.retain(to, 1));
    assert_eq!(raw.set_current(second), SUCCESS);
    let (memory, pinned) = (bench.alloc(100), bench.pinned(&[0; 60]));
    let pinned = pinned.pointer().addr() as u64;
    let context = second as u64;
    let found = attributes(&bench, memory + 99);
    assert_eq!(found, (context, 2, memory + 99, 1, memory, 100));
    let found = attributes(&bench, pinned + 5);
    assert_eq!(found, (context, 1, pinned + 5, 1, pinned, 60));
    for unknown in [memory + 100, memory - 1, pinned + 60, 0, u64::MAX] {
        assert_eq!(attributes(&bench, unknown), (0, 0, 0, -2, 0, 0));
    }

    let mut kind = 0u32;
    let to = (&raw mut kind).cast();
    assert_eq!(raw.attribute(to, 2, memory), SUCCESS);
    assert_eq!(kind, 2);
    assert_eq!(raw.attribute(to, 2, memory + 100), INVALID_VALUE);
    assert_eq!(raw.attribute(to, 99, memory), INVALID_VALUE);
    let (mut start, mut len) = (0, 0);
    assert_eq!(raw.range(&mut start, &mut len, memory + 70), SUCCESS);
    assert_eq!((start, len), (memory, 100));
    assert_eq!(raw.range(ptr::null_mut(), &mut len, memory), SUCCESS);
    assert_eq!(raw.range(&mut start, &mut len, memory + 100), 500);
}
