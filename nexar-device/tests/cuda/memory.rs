//! Allocation, and finding out where memory lies.

use crate::support::{Pinned, benches, eventually, read, small, stub_bench};
use nexar_device::{
    Access, DeviceAdapter, DeviceError, ExecutionQueue, MemorySpace, Region, cuda::CudaBuffer,
};
use std::{ptr, thread};

const DEVICE: MemorySpace = MemorySpace::Device(0);

#[tokio::test]
async fn memory_is_zero_and_freed() {
    for bench in benches(1, |builder| builder) {
        for len in [0, 1, 5, 4099] {
            let buffer = CudaBuffer::<u16>::zeroed(&bench.adapter, DEVICE, len).unwrap();
            assert_eq!((buffer.len(), buffer.space()), (len, DEVICE));
            let mut back = vec![7; len];
            buffer.copy_to(&mut back).await.unwrap();
            assert_eq!(back, vec![0; len]);
            // Its memory is freed wherever it is dropped: this thread has no context.
            thread::spawn(move || drop(buffer)).join().unwrap();
            eventually("freeing", || bench.counter("live_device_buffers") == 0);
        }
        bench.finish();
    }
}

#[tokio::test]
async fn buffers_outlive_the_adapter() {
    for bench in benches(1, |builder| builder) {
        let buffer = CudaBuffer::<i64>::from_slice(&bench.adapter, DEVICE, &[1, -2, 3]).await;
        let buffer = buffer.unwrap();
        let adapter = bench.adapter.clone();
        drop(adapter);
        let mut back = [0; 3];
        buffer.copy_to(&mut back).await.unwrap();
        assert_eq!(back, [1, -2, 3]);
        drop(buffer);
        bench.finish();
    }
}

#[test]
fn unknown_devices_are_out_of_reach() {
    for bench in benches(1, |builder| builder) {
        let space = MemorySpace::Device(bench.adapter.device_count());
        let error = bench.adapter.allocate(space, 16).unwrap_err();
        assert!(matches!(&error, DeviceError::Unreachable { space: s, .. } if *s == space));
        let name = format!("the adapter cuda does not reach 16 bytes in {space}");
        assert_eq!(error.to_string(), name);
        // SAFETY: an empty region needs no memory.
        let region = unsafe { Region::from_raw(ptr::null_mut(), 0, space, 0, ()) };
        let error = bench.adapter.open(region).unwrap_err();
        assert!(matches!(error, DeviceError::Unreachable { .. }));
        bench.finish();
    }
}

#[test]
fn more_memory_than_there_is() {
    for bench in benches(1, |builder| builder) {
        let error = bench.adapter.allocate(DEVICE, 1 << 50).unwrap_err();
        let words =
            "cuda: allocating device memory failed: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)";
        assert!(error.to_string().starts_with(words), "{error}");
        bench.finish();
    }
}

#[tokio::test]
async fn host_memory_is_used_in_place() {
    for bench in benches(1, |builder| builder) {
        let mut buffer = CudaBuffer::<u32>::zeroed(&bench.adapter, MemorySpace::Host, 3).unwrap();
        buffer.copy_from(&[4, 5, 6]).await.unwrap();
        // SAFETY: nobody else uses the buffer.
        match unsafe { buffer.open() }.unwrap() {
            Access::Host(view) => assert_eq!(view.as_ref()[..5], [4, 0, 0, 0, 5]),
            Access::Staged(_) => panic!("host memory needs no copies"),
        }
        drop(buffer);
        bench.finish();
    }
}

#[test]
fn addresses_lie_where_they_do() {
    for bench in benches(1, |builder| builder) {
        let host = 5u8;
        assert_eq!(bench.adapter.space_of(&host), Some(MemorySpace::Host));
        let memory = bench.memory(0, &[1; 100]);
        let address = |at: u64| ptr::without_provenance((memory.address + at) as usize);
        assert_eq!(bench.adapter.space_of(address(0)), Some(DEVICE));
        assert_eq!(bench.adapter.space_of(address(99)), Some(DEVICE));
        let pinned = Pinned::new(&bench.raw, 0, &[1, 2, 3]);
        let address = pinned.address.cast_const().cast();
        assert_eq!(bench.adapter.space_of(address), Some(MemorySpace::Host));
        drop((memory, pinned));
        bench.finish();
    }
}

#[test]
fn regions_that_lie_elsewhere_are_refused() {
    for bench in benches(1, |builder| builder) {
        let memory = bench.memory(0, &[1; 100]);
        let device = ptr::without_provenance_mut::<u8>(memory.address as usize);
        let mut host = [0u8; 8];
        let refused = |address: *mut u8, len: usize, space: MemorySpace| {
            // SAFETY: it is not used, since it is refused.
            let region = unsafe { Region::from_raw(address, len, space, 0, ()) };
            let error = bench.adapter.open(region).unwrap_err();
            assert!(
                matches!(
                    error,
                    DeviceError::Unreachable {
                        adapter: "cuda",
                        ..
                    }
                ),
                "{error:?}"
            );
            // SAFETY: as above.
            unsafe { Region::from_raw(address, len, space, 0, ()) }
        };
        refused(device, 100, MemorySpace::Host);
        refused(host.as_mut_ptr(), 8, DEVICE);
        for region in [
            refused(device, 8, MemorySpace::Device(1 << 20)),
            refused(host.as_mut_ptr(), 8, DEVICE),
        ] {
            // SAFETY: it is refused.
            let buffer = unsafe { CudaBuffer::<u8>::from_region(&bench.adapter, region) };
            assert!(matches!(buffer, Err(DeviceError::Unreachable { .. })));
        }
        drop(memory);
        bench.finish();
    }
}

/// The real driver packs small allocations, so that it does not notice this; the stub does.
#[test]
fn regions_beyond_their_allocation_are_refused() {
    let bench = stub_bench(1, small);
    let memory = bench.memory(0, &[1; 100]);
    for (at, len, fits) in [
        (0, 100, true),
        (0, 101, false),
        (60, 40, true),
        (60, 41, false),
    ] {
        let address = ptr::without_provenance_mut(memory.address as usize + at);
        // SAFETY: it lies in the memory or is refused.
        let region = unsafe { Region::from_raw(address, len, DEVICE, 0, ()) };
        match bench.adapter.open(region) {
            Ok(_) => assert!(fits),
            Err(DeviceError::Unreachable { what, .. }) => {
                assert!(!fits && what.contains("allocation of 100 bytes"), "{what}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    let address = memory.address;
    drop(memory);
    let address = ptr::without_provenance_mut(address as usize);
    // SAFETY: it is refused.
    let region = unsafe { Region::from_raw(address, 10, DEVICE, 0, ()) };
    let freed = bench.adapter.open(region);
    assert!(matches!(freed, Err(DeviceError::Unreachable { .. })));
    bench.finish();
}

#[tokio::test]
async fn empty_regions_have_queues() {
    for bench in benches(1, small) {
        let region = bench.adapter.allocate(DEVICE, 0).unwrap();
        let mut queue = bench.queue(region);
        assert_eq!(queue.region_len(), 0);
        assert_eq!(read(&mut queue, 0, 0).await.unwrap(), []);
        queue.fill(0..0, 1).unwrap();
        drop(queue);
        bench.finish();
    }
}

/// The calling thread has the context afterwards that it had before.
#[tokio::test]
async fn the_threads_context_stays() {
    for bench in benches(1, small) {
        assert_eq!(bench.raw.current(), 0);
        let mut buffer = CudaBuffer::<u8>::zeroed(&bench.adapter, DEVICE, 200).unwrap();
        buffer.copy_from(&[3; 200]).await.unwrap();
        assert_eq!(bench.raw.current(), 0);
        drop(buffer);
        bench.finish();
    }
}
