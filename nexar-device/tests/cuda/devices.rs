//! Several devices.

use crate::support::{benches, read, small, write};
use nexar_device::{DeviceAdapter, DeviceError, MemorySpace, Region, cuda::CudaBuffer};
use std::ptr;

#[tokio::test]
async fn each_device_has_its_memory() {
    for bench in benches(3, small) {
        let mut buffers = Vec::new();
        for device in 0..3 {
            let space = MemorySpace::Device(device);
            let data = vec![device as u64 + 10; 50];
            let buffer = CudaBuffer::from_slice(&bench.adapter, space, &data)
                .await
                .unwrap();
            let address = ptr::without_provenance(buffer.address() as usize);
            assert_eq!(bench.adapter.space_of(address), Some(space));
            buffers.push(buffer);
        }
        for (device, buffer) in buffers.iter().enumerate() {
            let mut back = vec![0; 50];
            buffer.copy_to(&mut back).await.unwrap();
            assert_eq!(back, vec![device as u64 + 10; 50]);
        }
        drop(buffers);
        bench.finish();
    }
}

/// A device that nothing is done with gets no context.
#[test]
fn devices_are_set_up_when_they_are_used() {
    for bench in benches(3, small) {
        if bench.stub.is_some() {
            assert_eq!(bench.counter("retained_contexts"), 0);
        }
        let region = bench.adapter.allocate(MemorySpace::Device(2), 10).unwrap();
        if bench.stub.is_some() {
            assert_eq!(bench.counter("retained_contexts"), 1);
        }
        drop(region);
        bench.finish();
    }
}

#[tokio::test]
async fn memory_of_another_device_is_refused() {
    for bench in benches(2, small) {
        let memory = bench.memory(1, &[1; 100]);
        let address = ptr::without_provenance_mut(memory.address as usize);
        // SAFETY: it is refused.
        let region = unsafe { Region::from_raw(address, 100, MemorySpace::Device(0), 0, ()) };
        let error = bench.adapter.open(region).unwrap_err();
        assert!(matches!(
            error,
            DeviceError::Unreachable {
                space: MemorySpace::Device(0),
                ..
            }
        ));
        let mut queue = bench.queue(memory.region(0, ()));
        write(&mut queue, 5, &[2; 5]).await.unwrap();
        assert_eq!(read(&mut queue, 4, 7).await.unwrap(), [1, 2, 2, 2, 2, 2, 1]);
        drop((queue, memory));
        bench.finish();
    }
}

/// A slot of one device serves another.
#[tokio::test]
async fn slots_are_portable() {
    use crate::support::slot;
    use nexar_device::ExecutionQueue;

    for bench in benches(2, small) {
        let (a, b) = (bench.memory(0, &[3; 64]), bench.memory(1, &[4; 64]));
        let mut from = bench.queue(a.region(0, ()));
        let mut to = bench.queue(b.region(0, ()));
        let slot = slot(&mut from).await;
        let slot = from.copy_out(0..64, slot, 0).await.unwrap();
        drop(to.copy_in(slot, 0, 0..64).await.unwrap());
        assert_eq!(b.contents(), [3; 64]);
        drop((from, to, a, b));
        bench.finish();
    }
}
