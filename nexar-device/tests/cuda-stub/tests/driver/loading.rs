//! Stubs are independent of each other, and say what they do not know.

use crate::support::{Bench, Raw, SUCCESS, value};
use nexar_cuda_stub::Stub;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn each_stub_has_a_state_of_its_own() {
    let (first, second) = (Bench::new(), Bench::new());
    // The thread has a current context in each.
    let memory = first.alloc(8);
    assert_eq!(second.raw.free(memory), 1);
    assert_eq!(first.count("live_device_buffers"), 1);
    assert_eq!(second.count("live_device_buffers"), 0);
    assert_ne!(first.stub.path(), second.stub.path());
}

#[test]
fn who_loads_the_file_again_shares_its_state() {
    let bench = Bench::new();
    let again = Raw::load(bench.stub.path());
    assert_eq!(value(0, |to| again.get_current(to)), bench.context);
    assert_eq!(
        value(0, |to| again.alloc(to, 8)),
        bench.alloc(8) - (1 << 16) - 512
    );
    assert_eq!(bench.count("calls:cuMemAlloc_v2"), 2);
}

#[test]
fn the_file_goes_with_the_stub() {
    let Bench { stub, raw, .. } = Bench::new();
    let path = stub.path().to_owned();
    assert!(path.exists());
    drop(stub);
    assert!(!path.exists());
    assert_eq!(raw.synchronize_context(), SUCCESS);
}

#[test]
fn unknown_names_are_refused() {
    let stub = Stub::new();
    let said = |run: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    let setting = said(&|| stub.set("device", 1));
    assert!(
        setting.contains("\"device\"") && setting.contains("bandwidth_out"),
        "{setting}"
    );
    let counter = said(&|| assert_eq!(stub.counter("calls:cuMemAlloc"), 0));
    assert!(
        counter.contains("live_device_buffers") && counter.contains("calls:"),
        "{counter}"
    );
    let call = said(&|| stub.fail("cuMemAlloc", 1, 2));
    assert!(call.contains("cuMemAlloc_v2"), "{call}");
    assert!(said(&|| stub.fail("cuInit", 0, 2)).contains("from 1 on"));
}
