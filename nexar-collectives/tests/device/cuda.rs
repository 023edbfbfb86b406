//! The collectives on CUDA: on a stand-in for the driver, and on the real one where there is a GPU.

#[path = "../../../nexar-device/tests/cuda/support.rs"]
#[allow(dead_code, reason = "it is also that of other tests")]
mod support;

use super::{
    Devices,
    messages::messages_of_every_length,
    operations::{Rank, every_operation},
};
use crate::common::{memory_world_with, on_all, share};
use nexar_collectives::{
    DeviceBuffer, Failure, MemorySpace, ReduceOp, Region, TimeLimits,
    cuda::{CudaAdapter, CudaAdapterBuilder, CudaBuffer},
};
use nexar_core::messaging::MAX_BODIES;
use std::sync::Arc;
use support::{Bench, Pinned, Stream, benches, stub_bench};

/// The ranks take the devices of a driver in turn.
fn devices(adapter: &CudaAdapter, rank: usize) -> Devices<CudaAdapter> {
    Devices {
        adapter: adapter.clone(),
        space: MemorySpace::Device(rank as u32 % adapter.device_count()),
    }
}

fn small(builder: CudaAdapterBuilder) -> CudaAdapterBuilder {
    builder.slot_len(256).slots(4)
}

#[tokio::test]
async fn every_operation_on_cuda() {
    for bench in benches(1, small) {
        bench.set("delay_max_us", 60);
        every_operation(|rank| devices(&bench.adapter, rank), 64).await;
        bench.finish();
    }
}

#[tokio::test]
async fn messages_on_cuda() {
    for bench in benches(1, small) {
        bench.set("delay_max_us", 60);
        messages_of_every_length(|rank| devices(&bench.adapter, rank)).await;
        bench.finish();
    }
}

/// A message is what the work on the buffer's stream leaves.
#[tokio::test]
async fn a_send_comes_after_the_work_on_the_stream() {
    for bench in benches(1, |builder| builder.slot_len(4096).slots(4)) {
        for len in [2_000, 100_000] {
            let adapters = [bench.adapter.clone(), bench.adapter.clone()];
            let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
            let memory = bench.memory(0, &vec![0; 4 * len]);
            let region = memory.region(0, ());
            // SAFETY: the memory outlives the buffer.
            let buffer = unsafe { CudaBuffer::<u32>::from_region(&bench.adapter, region) }.unwrap();
            let work = Stream::new(&bench.raw, 0);
            let expected: Vec<u32> = (1..=len as u32).collect();
            let bytes: Vec<u8> = expected.iter().flat_map(|n| n.to_le_bytes()).collect();
            let pinned = Pinned::new(&bench.raw, 0, &bytes);
            bench.set("delay_us", 50_000);
            work.write(memory.address, pinned.address, bytes.len());
            bench.set("delay_us", 0);
            // SAFETY: the stream exists until the message is sent.
            let buffer = unsafe { buffer.on_stream(work.number) };
            let sent = ranks[0].on_device().start_send(buffer, 1, 0);
            let (_, found) = ranks[1].recv_vec::<u32>(0, 0, len).await.unwrap();
            assert!(found == expected);
            sent.await.unwrap();
            work.wait();
            drop((ranks, pinned, work, memory));
        }
        bench.finish();
    }
}

/// However many are started: what they wait for holds neither slots nor streams.
#[tokio::test]
async fn a_thousand_messages_at_a_time_take_few_slots() {
    let bench = stub_bench(2, |builder| builder.slot_len(4096).slots(2));
    bench.set("delay_us", 500);
    let adapters = [bench.adapter.clone(), bench.adapter.clone()];
    let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        let (device, own, other) = (comm.on_device(), comm.rank(), 1 - comm.rank());
        let space = MemorySpace::Device(own as u32);
        let mut buffers = Vec::new();
        for tag in 0..500 {
            let data = [own as u64 * 1000 + tag; 30];
            let sent = DeviceBuffer::from_slice(comm.device(), space, &data).await;
            let into = DeviceBuffer::<u64, _>::zeroed(comm.device(), space, 30).unwrap();
            buffers.push((tag, sent.unwrap(), into));
        }
        let mut started = Vec::new();
        for (tag, sent, into) in buffers {
            let send = device.start_send(sent, other, tag);
            started.push((tag, send, device.start_recv(into, other, tag)));
        }
        for (tag, send, receive) in started {
            send.await.unwrap();
            let (_, found) = receive.await.unwrap();
            let mut host = [0; 30];
            found.copy_to(&mut host).await.unwrap();
            assert_eq!(host, [other as u64 * 1000 + tag; 30]);
        }
    })
    .await;
    let stub = bench.stub.as_ref().unwrap();
    // Two of each device, one for each message in the making, sent or received, and those of this test.
    let most = 2 * (2 + 2 * MAX_BODIES as u64 + 1);
    for (what, most) in [("live_pinned", most), ("live_streams", 2 * most)] {
        let found = stub.counter(what);
        assert!(found <= most, "{found} {what}");
    }
    drop(adapters);
    bench.finish();
}

/// What is on the buffer's stream comes first. That it would show otherwise is shown by naming another stream.
#[tokio::test]
async fn operations_come_after_the_work_on_the_stream() {
    for bench in benches(1, |builder| builder.slot_len(4096).slots(4)) {
        let len = 2_000;
        for named in [true, false] {
            if !named && bench.stub.is_none() {
                println!("skipped: a stream that is not named, on a real driver");
                continue;
            }
            bench.set("delay_us", 0);
            let adapters = [bench.adapter.clone(), bench.adapter.clone()];
            let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
            let raw = Arc::clone(&bench.raw);
            let memory = bench.memory(0, &vec![0; 4 * len]);
            let region = memory.region(0, ());
            // SAFETY: the memory outlives the buffer.
            let buffer = unsafe { CudaBuffer::<u32>::from_region(&bench.adapter, region) }.unwrap();
            let zeros =
                CudaBuffer::<u32>::zeroed(&bench.adapter, MemorySpace::Device(0), len).unwrap();
            let (work, other) = (Stream::new(&raw, 0), Stream::new(&raw, 0));
            let data: Vec<u8> = (1..=len as u32).flat_map(u32::to_le_bytes).collect();
            let pinned = Pinned::new(&raw, 0, &data);
            // The work takes its time; the copies of the operation would be faster.
            bench.set("delay_us", 100_000);
            work.write(memory.address, pinned.address, data.len());
            bench.set("delay_us", 0);
            let stream = if named { &work } else { &other };
            // SAFETY: both streams exist until the operation is done.
            let buffer = unsafe { buffer.on_stream(stream.number) };
            let sums = [
                ranks[0].on_device().start_all_reduce(buffer, ReduceOp::Sum),
                ranks[1].on_device().start_all_reduce(zeros, ReduceOp::Sum),
            ];
            let mut results = Vec::new();
            for sum in sums {
                let buffer = sum.await.unwrap();
                let mut host = vec![0; len];
                buffer.copy_to(&mut host).await.unwrap();
                results.push(host);
            }
            let expected: Vec<u32> = (1..=len as u32).collect();
            assert_eq!(results[1] == expected, named, "with the stream: {named}");
            work.wait();
            drop((ranks, pinned, work, other, memory));
        }
        bench.finish();
    }
}

/// The calls that wait for the device, but for those that allocate and free its memory, once for each buffer, and wait
/// until it is zero.
const WAITING: [&str; 5] = [
    "cuCtxSynchronize",
    "cuEventSynchronize",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
];

/// Once the slots are there, an operation makes no call that waits for the device, and nothing is left of it.
#[tokio::test]
async fn ten_thousand_operations_leave_nothing_behind_and_never_wait_for_the_device() {
    let bench: Bench = stub_bench(2, |builder| builder.slot_len(64).slots(3));
    let adapters = [bench.adapter.clone(), bench.adapter.clone()];
    let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
    let ranks = share(ranks);
    let run = async |rounds: usize| {
        on_all(&ranks, |comm| {
            let devices = devices(comm.device(), comm.rank());
            async move {
                let rank = Rank {
                    comm: &comm,
                    devices,
                };
                let mut buffer: DeviceBuffer<f32, _> = rank.buffer(&[0.5; 40]).await;
                for _ in 0..rounds {
                    comm.on_device()
                        .all_reduce(&mut buffer, ReduceOp::Average)
                        .await
                        .unwrap();
                }
                let mut host = [0.0; 40];
                buffer.copy_to(&mut host).await.unwrap();
                assert_eq!(host, [0.5; 40]);
            }
        })
        .await;
    };
    let stub = bench.stub.as_ref().unwrap();
    let live = || ["live_pinned", "live_streams", "live_events"].map(|name| stub.counter(name));
    let calls = || WAITING.map(|name| stub.counter(&format!("calls:{name}")));
    run(50).await;
    let (warm, before) = (live(), calls());
    let waited = stub.counter("calls:cuStreamSynchronize");
    run(5_000).await;
    let (after, calls) = (live(), calls());
    assert_eq!(calls, before);
    let streams = stub.counter("calls:cuStreamSynchronize") - waited;
    assert_eq!(streams, 2, "once for each of the two buffers");
    assert_eq!(after[..2], warm[..2]);
    // Events are kept for use again: as many as there were copies at a time.
    assert!(after[2] < 40, "{} events", after[2]);
    drop((ranks, adapters));
    bench.finish();
}

/// Two devices of one process in one operation.
#[tokio::test]
async fn several_devices_in_one_process() {
    for bench in benches(2, small) {
        let adapters = [bench.adapter.clone(), bench.adapter.clone()];
        let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let other = MemorySpace::Device(1 - comm.rank() as u32);
            let own = MemorySpace::Device(comm.rank() as u32);
            let data: Vec<u16> = (0..999).map(|index| index + comm.rank() as u16).collect();
            let input = DeviceBuffer::from_slice(comm.device(), own, &data)
                .await
                .unwrap();
            let mut output = DeviceBuffer::zeroed(comm.device(), other, 999).unwrap();
            comm.on_device()
                .all_reduce_into(&input, &mut output, ReduceOp::Max)
                .await
                .unwrap();
            let mut found = vec![0; 999];
            output.copy_to(&mut found).await.unwrap();
            assert_eq!(found, (1..1000).collect::<Vec<u16>>());
        })
        .await;
        drop(adapters);
        bench.finish();
    }
}

/// A region of another owner is kept until the operation has ended.
#[tokio::test]
async fn memory_of_another_library() {
    for bench in benches(1, small) {
        let adapters = [bench.adapter.clone()];
        let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
        let memory = bench.memory(0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let owner = Arc::new(());
        let region: Region = memory.region(0, Arc::clone(&owner));
        // SAFETY: the memory outlives the buffer.
        let buffer = unsafe { CudaBuffer::<u8>::from_region(&bench.adapter, region) }.unwrap();
        let buffer = ranks[0]
            .on_device()
            .start_all_reduce(buffer, ReduceOp::Sum)
            .await
            .unwrap();
        assert_eq!(memory.contents(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(buffer);
        support::eventually("the owner is dropped", || Arc::strong_count(&owner) == 1);
        drop((ranks, memory, adapters));
        bench.finish();
    }
}

/// A device that is broken when an operation is called: the other rank learns of it, too.
#[tokio::test]
async fn a_driver_that_fails_at_the_call_fails_it_on_all_ranks() {
    for form in 0..3 {
        let benches = [stub_bench(1, small), stub_bench(1, small)];
        let adapters = benches.each_ref().map(|bench| bench.adapter.clone());
        let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
        let space = MemorySpace::Device(0);
        let mut buffers = Vec::new();
        for adapter in &adapters {
            buffers.push(
                CudaBuffer::from_slice(adapter, space, &[1.0f32; 99])
                    .await
                    .unwrap(),
            );
        }
        let stub = benches[1].stub.as_ref().unwrap();
        stub.fail("cuEventRecord", 1, 999);
        let mut pairs = ranks
            .iter()
            .zip(buffers)
            .map(|(comm, mut buffer)| async move {
                let device = comm.on_device();
                match form {
                    0 => device.all_reduce(&mut buffer, ReduceOp::Sum).await,
                    1 => device
                        .start_all_reduce(buffer, ReduceOp::Sum)
                        .await
                        .map(drop),
                    _ => device.all_reduce_scaled(&mut buffer, 2.0).await,
                }
            });
        let (first, second) = (pairs.next().unwrap(), pairs.next().unwrap());
        let (first, second) = tokio::join!(first, second);
        for result in [first, second] {
            let error = result.unwrap_err();
            let Some(Failure::Aborted { rank: 1, reason }) = error.failure() else {
                panic!("form {form}: {error}");
            };
            assert!(reason.contains("cuEventRecord"), "{reason}");
        }
    }
}
