//! Devices that fail, and operations that are dropped.

use super::{Devices, operations::Rank, simulated};
use crate::common::{memory_world, memory_world_with, on_all, share};
use nexar_collectives::{
    DataType, DeviceBuffer, DeviceError, Error, Failure, MemorySpace, RawSliceMut, ReduceOp,
    TimeLimits, transport::memory::MemoryTransport,
};
use nexar_device::testing::MemoryDevice;
use std::{future::Future, pin::pin, sync::Arc, task::Context};

type World = (
    Vec<Devices<MemoryDevice>>,
    Vec<Arc<nexar_collectives::Communicator<MemoryTransport, MemoryDevice>>>,
    nexar_collectives::transport::memory::MemoryNetwork,
);

async fn world(devices: Vec<Devices<MemoryDevice>>) -> World {
    let adapters: Vec<_> = devices
        .iter()
        .map(|devices| devices.adapter.clone())
        .collect();
    let (network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
    (devices, share(ranks), network)
}

/// The other ranks learn of it at once, whichever copy fails, and nothing is presented as a result.
#[tokio::test]
async fn a_copy_that_fails_aborts_the_operation_on_all_ranks() {
    for nth in 0..8 {
        // The first seven bring the data to the device.
        let mut devices: Vec<_> = (0..3).map(|rank| simulated(rank, 2, 64)).collect();
        devices[1].adapter = MemoryDevice::builder()
            .slots(2)
            .slot_len(64)
            .fail_after(7 + nth)
            .build();
        let (devices, ranks, _network) = world(devices).await;
        let failures = on_all(&ranks, |comm| {
            let devices = devices[comm.rank()].clone();
            async move {
                let rank = Rank {
                    comm: &comm,
                    devices,
                };
                let mut buffer = rank.buffer(&[1.5f32; 100]).await;
                let result = comm
                    .on_device()
                    .all_reduce(&mut buffer, ReduceOp::Sum)
                    .await;
                let Err(Error::Operation(error)) = result else {
                    panic!("copy {nth}: {result:?}");
                };
                error.failure
            }
        })
        .await;
        for failure in failures {
            assert!(
                matches!(&failure, Failure::Aborted { rank: 1, reason } if reason.contains("told to fail")),
                "copy {nth}: {failure:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_dropped_operation_aborts_the_others_and_leaves_nothing_behind() {
    for polls in 0..12 {
        let (devices, ranks, _network) =
            world((0..3).map(|rank| simulated(rank, 2, 64)).collect()).await;
        on_all(&ranks, |comm| {
            let devices = devices[comm.rank()].clone();
            async move {
                let rank = Rank {
                    comm: &comm,
                    devices: devices.clone(),
                };
                let mut buffer = rank.buffer(&[2i64; 500]).await;
                let on_device = comm.on_device();
                if comm.rank() != 2 {
                    let result = on_device.all_reduce(&mut buffer, ReduceOp::Sum).await;
                    assert!(
                        matches!(result, Err(Error::Operation(_))),
                        "{polls}: {result:?}"
                    );
                    return;
                }
                {
                    let mut operation = pin!(on_device.all_reduce(&mut buffer, ReduceOp::Sum));
                    for _ in 0..=polls {
                        let waker = std::task::Waker::noop();
                        let mut cx = Context::from_waker(waker);
                        assert!(operation.as_mut().poll(&mut cx).is_pending());
                    }
                }
                // The buffer is free to be used, and comes after whatever is still under way.
                buffer.copy_from(&[7; 500]).await.unwrap();
                let mut host = [0; 500];
                buffer.copy_to(&mut host).await.unwrap();
                assert_eq!(host, [7; 500]);
            }
        })
        .await;
        for devices in devices {
            loop {
                let usage = devices.adapter.usage();
                if (usage.live_regions, usage.slots_in_use) == (0, 0) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_an_error_before_anything_is_sent() {
    let (devices, ranks, _network) =
        world((0..2).map(|rank| simulated(rank, 2, 64)).collect()).await;
    let device = &devices[0];
    let rank = Rank {
        comm: &*ranks[0],
        devices: device.clone(),
    };
    let buffer = rank.buffer(&[3u8; 40]).await;
    let nowhere = RawSliceMut {
        pointer: std::ptr::without_provenance_mut(buffer.address() as usize),
        count: 41,
        dtype: DataType::U8,
        space: device.space,
        stream: 0,
    };
    let space = MemorySpace::Device(7);
    for wrong in [
        nowhere,
        RawSliceMut {
            space,
            count: 40,
            ..nowhere
        },
    ] {
        // SAFETY: it is refused.
        let result = unsafe { ranks[0].all_reduce_raw(wrong, ReduceOp::Sum) }.await;
        let Err(Error::Device { operation, source }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(operation, "all_reduce");
        assert!(source.downcast_ref::<DeviceError>().is_some());
    }
    on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
}

/// Lengths, roots and reductions are checked as for slices, and the group lives on.
#[tokio::test]
async fn wrong_arguments_are_refused() {
    let (devices, ranks, _network) =
        world((0..2).map(|rank| simulated(rank, 2, 64)).collect()).await;
    let comm = &ranks[0];
    let rank = Rank {
        comm: &**comm,
        devices: devices[0].clone(),
    };
    let (short, mut long) = (rank.buffer(&[1u32; 3]).await, rank.buffer(&[2u32; 7]).await);
    let device = comm.on_device();
    for result in [
        device.all_gather(&short, &mut long).await,
        device.broadcast(&mut long, 2).await,
        device
            .all_reduce_into(&short, &mut long, ReduceOp::Sum)
            .await,
        device.scan(&mut long, ReduceOp::Average).await,
        device
            .reduce_scatter_in_place(&mut long, ReduceOp::Sum)
            .await,
    ] {
        assert!(
            matches!(result, Err(Error::InvalidArgument { .. })),
            "{result:?}"
        );
    }
    let mut floats = rank.buffer(&[1.0f32; 4]).await;
    let result = device.all_reduce(&mut floats, ReduceOp::BitXor).await;
    assert!(matches!(result, Err(Error::Unsupported(_))), "{result:?}");
    let result = device.start_all_gather(short, long).await;
    assert!(
        matches!(result, Err(Error::InvalidArgument { .. })),
        "{result:?}"
    );
    let result = device
        .start_all_reduce_many(vec![floats], ReduceOp::BitXor)
        .await;
    assert!(matches!(result, Err(Error::Unsupported(_))), "{result:?}");
    on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
}

/// Host memory on some ranks and device memory on others are the same call.
#[tokio::test]
async fn ranks_with_host_and_device_memory_in_one_group() {
    let (_devices, ranks, _network) =
        world((0..4).map(|rank| simulated(rank, 2, 64)).collect()).await;
    on_all(&ranks, |comm| async move {
        let own: Vec<f32> = (0..333)
            .map(|index| (index * (comm.rank() + 1)) as f32)
            .collect();
        let expected: Vec<f32> = (0..333).map(|index| (index * 10) as f32).collect();
        let mut found = own.clone();
        if comm.rank() % 2 == 0 {
            comm.all_reduce(&mut found, ReduceOp::Sum).await.unwrap();
        } else {
            let (adapter, space) = (comm.device(), MemorySpace::Device(0));
            let mut buffer = DeviceBuffer::from_slice(adapter, space, &own)
                .await
                .unwrap();
            comm.on_device()
                .all_reduce(&mut buffer, ReduceOp::Sum)
                .await
                .unwrap();
            buffer.copy_to(&mut found).await.unwrap();
        }
        assert_eq!(found, expected);
    })
    .await;
}

/// The adapter for host memory knows no other: its buffers take the same way as slices.
#[tokio::test]
async fn buffers_in_host_memory() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        assert_eq!(comm.transport_name(), "memory");
        let (adapter, host) = (comm.device(), MemorySpace::Host);
        assert!(DeviceBuffer::<u8, _>::zeroed(adapter, MemorySpace::Device(0), 1).is_err());
        let own = [comm.rank() as u64 + 1; 9];
        let input = DeviceBuffer::from_slice(adapter, host, &own).await.unwrap();
        let mut output = DeviceBuffer::zeroed(adapter, host, 9).unwrap();
        let device = comm.on_device();
        device
            .all_reduce_into(&input, &mut output, ReduceOp::Product)
            .await
            .unwrap();
        let mut found = [0; 9];
        output.copy_to(&mut found).await.unwrap();
        assert_eq!(found, [6; 9]);
        device.all_reduce_scaled(&mut output, 2).await.unwrap();
        output.copy_to(&mut found).await.unwrap();
        assert_eq!(found, [36; 9]);
    })
    .await;
}
