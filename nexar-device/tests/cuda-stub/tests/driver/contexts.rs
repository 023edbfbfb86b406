//! Devices, contexts, and what wants which.

use crate::support::{
    Bench, Handle, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, LEGACY, Raw, SUCCESS, value,
};
use nexar_cuda_stub::Stub;
use std::{
    ffi::{CStr, c_char, c_int},
    ptr, thread,
};

#[test]
fn nothing_works_before_it_is_initialised() {
    let stub = Stub::new();
    let raw = Raw::load(stub.path());
    assert_eq!(value(0, |to| raw.version(to)), 12_000);
    let (mut number, mut handle, mut address) = (0, 0, 0);
    for code in [
        raw.device_count(&mut number),
        raw.retain(&mut handle, 0),
        raw.get_current(&mut handle),
        raw.alloc(&mut address, 1),
        raw.synchronize_context(),
    ] {
        assert_eq!(code, 3);
    }
    assert_eq!(raw.init(1), INVALID_VALUE);
    assert_eq!(raw.init(0), SUCCESS);
    assert_eq!(raw.init(0), SUCCESS);
    assert_eq!(value(0, |to| raw.device_count(to)), 2);
}

fn text(call: impl FnOnce(*mut c_char, c_int) -> c_int) -> String {
    let mut bytes = [1u8; 32];
    assert_eq!(call(bytes.as_mut_ptr().cast(), 32), SUCCESS);
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

#[test]
fn devices_have_names_and_numbers() {
    let stub = Stub::new();
    stub.set("devices", 3);
    let raw = Raw::load(stub.path());
    assert_eq!(raw.init(0), SUCCESS);
    assert_eq!(value(0, |to| raw.device_count(to)), 3);
    for ordinal in 0..3 {
        let device = value(-1, |to| raw.device(to, ordinal));
        assert_eq!(device, ordinal);
        let name = text(|to, len| raw.device_name(to, len, device));
        assert_eq!(name, format!("Stub GPU {ordinal}"));
        let id = text(|to, len| raw.device_bus_id(to, len, device));
        assert_eq!(id, format!("0000:0{}:00.0", ordinal + 1));
        assert_eq!(
            value(0, |to| raw.device_attribute(to, 33, device)),
            ordinal + 1
        );
    }
    let mut short = [1u8; 5];
    assert_eq!(raw.device_name(short.as_mut_ptr().cast(), 5, 0), SUCCESS);
    assert_eq!(&short, b"Stub\0");
    for wrong in [-1, 3] {
        let mut device = 0;
        assert_eq!(raw.device(&mut device, wrong), 101);
        assert_eq!(raw.retain(&mut 0, wrong), 101);
    }
}

#[test]
fn without_a_device_there_is_no_driver() {
    let stub = Stub::new();
    stub.set("devices", 0);
    assert_eq!(Raw::load(stub.path()).init(0), 100);
}

#[test]
fn codes_have_names() {
    let stub = Stub::new();
    let raw = Raw::load(stub.path());
    // SAFETY: the stub gives strings that stay.
    let said = |pointer| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap();
    let name = value(ptr::null(), |to| raw.error_name(700, to));
    assert_eq!(said(name), "CUDA_ERROR_ILLEGAL_ADDRESS");
    let words = value(ptr::null(), |to| raw.error_string(700, to));
    assert_eq!(said(words), "the device accessed an illegal address");
    let mut none = name;
    assert_eq!(raw.error_name(12345, &mut none), INVALID_VALUE);
    assert!(none.is_null());
}

/// The first codes of calls that need a context.
fn codes(bench: &Bench, stream: Handle, event: Handle, memory: u64) -> Vec<c_int> {
    let raw = &bench.raw;
    let (mut address, mut handle) = (0, 0);
    let mut pinned = ptr::null_mut();
    let word = bench as *const Bench;
    vec![
        raw.synchronize_context(),
        raw.alloc(&mut address, 8),
        raw.free(memory),
        raw.host_alloc(&mut pinned, 8, 0),
        raw.to_device(memory, word.cast(), 8, LEGACY),
        raw.fill(memory, 1, 8, stream),
        raw.within(memory, memory, 8, stream),
        raw.stream_create(&mut handle, 0),
        raw.synchronize(stream),
        raw.wait_event(stream, event, 0),
        raw.record(event, stream),
        raw.query(event),
        raw.synchronize_event(event),
        raw.event_create(&mut handle, 0),
        raw.event_destroy(event),
        raw.stream_destroy(stream),
        raw.range(&mut address, &mut 0, memory),
    ]
}

#[test]
fn calls_want_a_context() {
    let bench = Bench::new();
    let (stream, event, memory) = (bench.stream(0), bench.event(), bench.alloc(8));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(value(7, |to| bench.raw.get_current(to)), 0);
            let codes = codes(&bench, stream, event, memory);
            assert_eq!(codes, vec![INVALID_CONTEXT; codes.len()]);
        });
    });
    assert_eq!(bench.raw.set_current(LEGACY), SUCCESS);
    assert_eq!(bench.raw.synchronize(stream), INVALID_CONTEXT);
    assert_eq!(bench.raw.set_current(stream), INVALID_CONTEXT);
    assert_eq!(bench.raw.set_current(bench.context), SUCCESS);
    assert_eq!(value(0, |to| bench.raw.get_current(to)), bench.context);
    assert_eq!(bench.raw.synchronize(stream), SUCCESS);
}

#[test]
fn primary_contexts_are_counted() {
    let bench = Bench::new();
    let raw = &bench.raw;
    assert_eq!(value(0, |to| raw.retain(to, 0)), bench.context);
    let second = value(0, |to| raw.retain(to, 1));
    assert_ne!(second, bench.context);
    assert_eq!(bench.count("retained_contexts"), 3);
    let (stream, event, memory) = (bench.stream(0), bench.event(), bench.alloc(8));
    assert_eq!(raw.release(0), SUCCESS);
    assert_eq!(raw.synchronize(stream), SUCCESS);
    assert_eq!(raw.release(0), SUCCESS);
    let codes = codes(&bench, stream, event, memory);
    assert_eq!(codes, vec![709; codes.len()]);
    assert_eq!(raw.release(0), INVALID_CONTEXT);
    assert_eq!(raw.set_current(bench.context), INVALID_CONTEXT);
    assert_eq!(bench.count("retained_contexts"), 1);
    // It is new then.
    assert_eq!(value(0, |to| raw.retain(to, 0)), bench.context);
    assert_eq!(raw.synchronize(stream), INVALID_HANDLE);
    assert_eq!(raw.free(memory), INVALID_VALUE);
    assert_eq!(bench.count("live_device_buffers"), 1, "a leak");
}

#[test]
fn what_belongs_to_another_context_is_refused() {
    let bench = Bench::new();
    let raw = &bench.raw;
    let (stream, event, memory) = (bench.stream(0), bench.event(), bench.alloc(8));
    let second = value(0, |to| raw.retain(to, 1));
    assert_eq!(raw.set_current(second), SUCCESS);
    assert_eq!(raw.record(event, LEGACY), INVALID_HANDLE);
    assert_eq!(raw.fill(memory, 0, 8, LEGACY), INVALID_VALUE);
    assert_eq!(raw.fill(memory, 0, 8, stream), INVALID_HANDLE);
    assert_eq!(raw.free(memory), INVALID_VALUE);
    // These do not care.
    assert_eq!(raw.query(event), SUCCESS);
    assert_eq!(raw.wait_event(LEGACY, event, 0), SUCCESS);
    assert_eq!(raw.synchronize(stream), SUCCESS);
}
