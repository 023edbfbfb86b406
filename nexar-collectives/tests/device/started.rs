//! Operations on device memory that go on by themselves, and those by address.

use super::{Devices, operations::Rank, simulated};
use crate::common::{memory_world_with, on_all, share};
use nexar_collectives::{
    Communicator, DataType, DeviceAdapter, DeviceBuffer, MemorySpace, RawSlice, RawSliceMut,
    ReduceOp, TimeLimits,
    compression::{Compression, TopK},
    transport::Transport,
};

async fn contents<D: DeviceAdapter>(buffer: &DeviceBuffer<i32, D>) -> Vec<i32> {
    let mut host = vec![0; buffer.len()];
    buffer.copy_to(&mut host).await.unwrap();
    host
}

/// All at once, in the order in which they were started.
async fn start_everything<T: Transport, D: DeviceAdapter>(
    comm: &Communicator<T, D>,
    devices: Devices<D>,
) {
    let rank = Rank { comm, devices };
    let (world, own, device) = (comm.world_size(), comm.rank() as i32, comm.on_device());
    let count = 50;
    let block: Vec<i32> = (0..count).map(|index| own * 1000 + index).collect();
    let long: Vec<i32> = (0..count * world as i32)
        .map(|index| own * 10_000 + index)
        .collect();
    let block_of = |rank: usize| (0..count).map(move |index| rank as i32 * 1000 + index);
    let counts = vec![count as usize; world];
    let empty = vec![-1; count as usize];
    let long_empty = vec![-1; count as usize * world];

    let broadcast = device.start_broadcast(rank.buffer(&block).await, world - 1);
    let reduce = device.start_reduce(rank.buffer(&block).await, ReduceOp::Sum, 0);
    let all_reduce = device.start_all_reduce(rank.buffer(&block).await, ReduceOp::Max);
    let scan = device.start_scan(rank.buffer(&block).await, ReduceOp::Max);
    let exclusive = device.start_exclusive_scan(rank.buffer(&block).await, ReduceOp::Max);
    let (input, output) = (rank.buffer(&block).await, rank.buffer(&long_empty).await);
    let all_gather = device.start_all_gather(input, output);
    let (input, output) = (rank.buffer(&block).await, rank.buffer(&long_empty).await);
    let all_gather_v = device.start_all_gather_v(input, output, counts.clone());
    let (input, output) = (rank.buffer(&block).await, rank.buffer(&long_empty).await);
    let gather = device.start_gather(input, output, 0);
    let (input, output) = (rank.buffer(&block).await, rank.buffer(&long_empty).await);
    let gather_v = device.start_gather_v(input, output, counts.clone(), 0);
    let (input, output) = (rank.buffer(&long).await, rank.buffer(&empty).await);
    let scatter = device.start_scatter(input, output, 0);
    let (input, output) = (rank.buffer(&long).await, rank.buffer(&empty).await);
    let scatter_v = device.start_scatter_v(input, counts.clone(), output, 0);
    let (input, output) = (rank.buffer(&long).await, rank.buffer(&empty).await);
    let reduce_scatter = device.start_reduce_scatter(input, output, ReduceOp::Max);
    let (input, output) = (rank.buffer(&long).await, rank.buffer(&empty).await);
    let reduce_scatter_v =
        device.start_reduce_scatter_v(input, output, counts.clone(), ReduceOp::Max);
    let (input, output) = (rank.buffer(&long).await, rank.buffer(&long_empty).await);
    let all_to_all = device.start_all_to_all(input, output);
    let (input, output) = (rank.buffer(&long).await, rank.buffer(&long_empty).await);
    let all_to_all_v = device.start_all_to_all_v(input, counts.clone(), output, counts.clone());
    let everybody: Vec<usize> = (0..world).collect();
    let (input, output) = (rank.buffer(&long).await, rank.buffer(&long_empty).await);
    let neighbors = device.start_neighbor_all_to_all(everybody.clone(), input, output);
    let (input, output) = (rank.buffer(&long).await, rank.buffer(&long_empty).await);
    let neighbors_v = device.start_neighbor_all_to_all_v(
        everybody,
        input,
        counts.clone(),
        output,
        counts.clone(),
    );
    let many = vec![rank.buffer(&block).await, rank.buffer(&long).await];
    let many = device.start_all_reduce_many(many, ReduceOp::Max);
    let ones = rank.buffer(&[1.0f32; 8]).await;
    let compression = Compression::new(TopK::new(1.0).unwrap());
    let compressed = device.start_all_reduce_compressed(ones, ReduceOp::Sum, compression);

    let all: Vec<i32> = (0..world).flat_map(block_of).collect();
    let top: Vec<i32> = block_of(world - 1).collect();
    let is_root = comm.rank() == 0;
    let at_root = |expected: &[i32], otherwise: &[i32]| match is_root {
        true => expected.to_vec(),
        false => otherwise.to_vec(),
    };
    assert_eq!(contents(&broadcast.await.unwrap()).await, top);
    let sums: Vec<i32> = (0..count)
        .map(|index| (0..world as i32).map(|rank| rank * 1000 + index).sum())
        .collect();
    let reduced = contents(&reduce.await.unwrap()).await;
    assert_eq!(reduced, at_root(&sums, &block));
    assert_eq!(contents(&all_reduce.await.unwrap()).await, top);
    assert_eq!(contents(&scan.await.unwrap()).await, block);
    let below: Vec<i32> = block_of(comm.rank().saturating_sub(1)).collect();
    assert_eq!(contents(&exclusive.await.unwrap()).await, below);
    for gathered in [all_gather, all_gather_v] {
        let (input, output) = gathered.await.unwrap();
        assert_eq!(
            (contents(&input).await, contents(&output).await),
            (block.clone(), all.clone())
        );
    }
    for gathered in [gather, gather_v] {
        let (_, output) = gathered.await.unwrap();
        assert_eq!(contents(&output).await, at_root(&all, &long_empty));
    }
    let first = comm.rank() as i32 * count;
    for scattered in [scatter, scatter_v] {
        let (_, output) = scattered.await.unwrap();
        assert_eq!(
            contents(&output).await,
            (first..first + count).collect::<Vec<_>>()
        );
    }
    let highest = (world as i32 - 1) * 10_000 + first;
    for reduced in [reduce_scatter, reduce_scatter_v] {
        let (_, output) = reduced.await.unwrap();
        assert_eq!(
            contents(&output).await,
            (highest..highest + count).collect::<Vec<_>>()
        );
    }
    let exchanged: Vec<i32> = (0..world as i32)
        .flat_map(|rank| (first..first + count).map(move |index| rank * 10_000 + index))
        .collect();
    for exchange in [all_to_all, all_to_all_v, neighbors, neighbors_v] {
        let (_, output) = exchange.await.unwrap();
        assert_eq!(contents(&output).await, exchanged);
    }
    let many = many.await.unwrap();
    assert_eq!(contents(&many[0]).await, top);
    assert_eq!(many[1].len(), long.len());
    let (summed, _) = compressed.await.unwrap();
    let mut host = [0.0; 8];
    summed.copy_to(&mut host).await.unwrap();
    assert_eq!(host, [world as f32; 8]);
}

#[tokio::test]
async fn every_started_operation() {
    for world in [1, 3, 4] {
        let devices: Vec<_> = (0..world).map(|rank| simulated(rank, 3, 64)).collect();
        let adapters: Vec<_> = devices
            .iter()
            .map(|devices| devices.adapter.clone())
            .collect();
        let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| {
            let devices = devices[comm.rank()].clone();
            async move { start_everything(&comm, devices).await }
        })
        .await;
    }
}

/// Several communicators share the slots of one adapter.
#[tokio::test]
async fn operations_of_several_communicators_at_a_time() {
    let devices: Vec<_> = (0..3).map(|rank| simulated(rank, 2, 64)).collect();
    let adapters: Vec<_> = devices
        .iter()
        .map(|devices| devices.adapter.clone())
        .collect();
    let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| {
        let devices = devices[comm.rank()].clone();
        async move {
            let mut others = Vec::new();
            for _ in 0..6 {
                others.push(comm.duplicate().await.unwrap());
            }
            let rank = Rank {
                comm: &comm,
                devices,
            };
            let mut started = Vec::new();
            let mut order: Vec<usize> = (0..others.len()).collect();
            order.rotate_left(2 * comm.rank());
            for at in order {
                let buffer = rank.buffer(&vec![at as i32 + 1; 5_000]).await;
                started.push((
                    at,
                    others[at]
                        .on_device()
                        .start_all_reduce(buffer, ReduceOp::Sum),
                ));
            }
            for (at, started) in started {
                let sums = contents(&started.await.unwrap()).await;
                assert!(sums.iter().all(|sum| *sum == 3 * (at as i32 + 1)));
            }
        }
    })
    .await;
}

fn raw<D: DeviceAdapter>(buffer: &DeviceBuffer<i32, D>, space: MemorySpace) -> RawSliceMut {
    RawSliceMut {
        pointer: std::ptr::without_provenance_mut(buffer.address() as usize),
        count: buffer.len(),
        dtype: DataType::I32,
        space,
        stream: buffer.stream(),
    }
}

fn input<D: DeviceAdapter>(buffer: &DeviceBuffer<i32, D>, space: MemorySpace) -> RawSlice {
    let RawSliceMut {
        pointer,
        count,
        dtype,
        space,
        stream,
    } = raw(buffer, space);
    RawSlice {
        pointer,
        count,
        dtype,
        space,
        stream,
    }
}

#[tokio::test]
async fn memory_by_its_address() {
    let devices: Vec<_> = (0..3).map(|rank| simulated(rank, 2, 64)).collect();
    let adapters: Vec<_> = devices
        .iter()
        .map(|devices| devices.adapter.clone())
        .collect();
    let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| {
        let devices = devices[comm.rank()].clone();
        async move {
            let space = devices.space;
            let rank = Rank {
                comm: &comm,
                devices,
            };
            let buffer = rank.buffer(&[comm.rank() as i32 + 1; 100]).await;
            let all = rank.buffer(&[0i32; 300]).await;
            // SAFETY: the buffer lives until the call is done, and is not used meanwhile.
            unsafe { comm.all_reduce_raw(raw(&buffer, space), ReduceOp::Product) }
                .await
                .unwrap();
            assert_eq!(contents(&buffer).await, [6; 100]);
            // SAFETY: as above.
            unsafe { comm.all_gather_raw(input(&buffer, space), raw(&all, space)) }
                .await
                .unwrap();
            assert_eq!(contents(&all).await, [6; 300]);
        }
    })
    .await;
}
