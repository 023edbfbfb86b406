//! What the driver refuses becomes an error of the operation, and nothing hangs or leaks.

use crate::support::{Bench, LONG, Memory, driver_error, eventually, slot, small, stub_bench};
use nexar_device::{DeviceAdapter, DeviceError, ExecutionQueue, MemorySpace};
use std::{
    future::{Future, poll_fn},
    sync::{Arc, OnceLock},
};

const CODE: i32 = 999;
const ILLEGAL_ADDRESS: i32 = 700;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.expect("it hangs")
}

/// Allocation, both directions and a fill, as far as it gets.
async fn everything(bench: &Bench) -> Result<(), DeviceError> {
    let region = bench.adapter.allocate(MemorySpace::Device(0), 100)?;
    let mut queue = match bench.adapter.open(region)? {
        nexar_device::Access::Staged(queue) => queue,
        nexar_device::Access::Host(_) => panic!("device memory is staged"),
    };
    let first = poll_fn(|cx| queue.poll_slot(cx)).await?;
    drop(queue.copy_in(first, 0, 0..64).await?);
    queue.fill(10..20, 5)?;
    let second = poll_fn(|cx| queue.poll_slot(cx)).await?;
    queue.copy_out(0..64, second, 0).await.map(drop)
}

/// Each call, refused once at its first, second and third time.
#[tokio::test]
async fn a_call_that_is_refused_once() {
    let calls = [
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemsetD8Async",
        "cuStreamCreate",
        "cuStreamSynchronize",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventQuery",
        "cuPointerGetAttributes",
        "cuMemGetAddressRange_v2",
    ];
    for call in calls {
        for nth in 1..=3 {
            // What a failing test prints.
            println!("{call}, call {nth}");
            let bench = stub_bench(1, small);
            bench.stub.as_ref().unwrap().fail(call, nth, CODE);
            if let Err(error) = soon(everything(&bench)).await {
                assert_eq!(driver_error(&error), (call, CODE), "{error}");
                let words = error.to_string();
                assert!(
                    words.starts_with("cuda: ") && words.contains("(999)"),
                    "{words}"
                );
            }
            // It is over with that.
            let mut again = soon(everything(&bench)).await;
            if again.is_err() {
                again = soon(everything(&bench)).await;
            }
            again.unwrap_or_else(|error| panic!("{call} {nth}: {error}"));
            bench.finish();
        }
    }
}

/// Cleaning up goes on when the driver refuses a part of it.
#[tokio::test]
async fn a_refused_release_harms_nothing_else() {
    let calls = [
        "cuMemFree_v2",
        "cuMemFreeHost",
        "cuEventDestroy_v2",
        "cuStreamDestroy_v2",
    ];
    for call in calls {
        let bench = stub_bench(1, small);
        soon(everything(&bench)).await.unwrap();
        bench.stub.as_ref().unwrap().fail(call, 1, CODE);
        let Bench { adapter, stub, raw } = bench;
        drop((adapter, raw));
        let stub = stub.unwrap();
        eventually("releasing", || stub.counter("retained_contexts") == 0);
    }
}

/// The copy may still be under way when the driver refuses to tell: its slot and region stay until it is over.
#[tokio::test]
async fn a_query_that_fails_frees_nothing_too_early() {
    let bench = stub_bench(1, small);
    let memory = Arc::new(bench.memory(0, &[1; 100]));
    let mut queue = bench.queue(memory.region(0, Arc::clone(&memory)));
    let slot = slot(&mut queue).await;
    bench.set("hold", 1);
    let copy = queue.copy_out(0..64, slot, 0);
    bench.stub.as_ref().unwrap().fail("cuEventQuery", 1, CODE);
    let error = soon(copy).await.unwrap_err();
    assert_eq!(driver_error(&error), ("cuEventQuery", CODE));
    drop(queue);
    assert_eq!(Arc::strong_count(&memory), 2, "the copy is under way");
    bench.set("hold", 0);
    eventually("the end of the copy", || Arc::strong_count(&memory) == 1);
    drop(memory);
    bench.finish();
}

/// The copy is under way, but there is no event that tells when it is over.
#[tokio::test]
async fn an_event_that_is_not_recorded_frees_nothing_too_early() {
    let bench = stub_bench(1, small);
    let memory = Arc::new(bench.memory(0, &[1; 100]));
    let mut queue = bench.queue(memory.region(0, Arc::clone(&memory)));
    let mut first = slot(&mut queue).await;
    first.as_mut().fill(2);
    bench.set("hold", 1);
    bench.stub.as_ref().unwrap().fail("cuEventRecord", 1, CODE);
    let error = soon(queue.copy_in(first, 0, 0..64)).await.unwrap_err();
    assert_eq!(driver_error(&error), ("cuEventRecord", CODE));
    drop(queue);
    assert_eq!(Arc::strong_count(&memory), 2, "the copy is under way");
    bench.set("hold", 0);
    eventually("the end of the copy", || Arc::strong_count(&memory) == 1);
    assert_eq!(memory.contents()[..64], [2; 64]);
    drop(memory);
    bench.finish();
}

/// The context breaks while a copy runs: everything fails from then on, and everything ends.
#[tokio::test]
async fn a_broken_context_fails_everything_and_hangs_nothing() {
    let bench = stub_bench(1, small);
    // It can no longer be freed then. It stays in reach, so that it is no leak.
    static MEMORY: OnceLock<Memory> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| bench.memory(0, &[1; 100]));
    let mut queue = bench.queue(memory.region(0, ()));
    let mut other = bench.queue(memory.region(0, ()));
    let slots = [slot(&mut queue).await, slot(&mut queue).await];
    let (third, fourth) = (slot(&mut queue).await, slot(&mut other).await);
    bench.set("hold", 1);
    let stub = bench.stub.as_ref().unwrap();
    let [first, second] = slots;
    let copy = queue.copy_out(0..64, first, 0);
    let dropped = queue.copy_in(second, 0, 0..64);
    stub.fail_async(ILLEGAL_ADDRESS);
    bench.set("hold", 0);
    let error = soon(copy).await.unwrap_err();
    assert_eq!(driver_error(&error).1, ILLEGAL_ADDRESS);
    drop(dropped);
    let errors = [
        soon(poll_fn(|cx| queue.poll_slot(cx)))
            .await
            .map(drop)
            .unwrap_err(),
        soon(queue.copy_out(0..5, third, 0))
            .await
            .map(drop)
            .unwrap_err(),
        soon(other.copy_in(fourth, 0, 0..5))
            .await
            .map(drop)
            .unwrap_err(),
        queue.fill(0..5, 1).unwrap_err(),
        bench
            .adapter
            .allocate(MemorySpace::Device(0), 5)
            .unwrap_err(),
        bench
            .adapter
            .open(memory.region(0, ()))
            .map(drop)
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(driver_error(&error).1, ILLEGAL_ADDRESS, "{error}");
    }
    // Its threads end: they have let everything go.
    let Bench { adapter, stub, raw } = bench;
    drop((queue, other, adapter, raw));
    let stub = stub.unwrap();
    // One is that of `memory`.
    eventually("releasing the context", || {
        stub.counter("retained_contexts") == 1
    });
}
