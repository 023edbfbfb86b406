//! What copies cost the driver: nothing synchronises, nothing is pageable, nothing is left over.

use crate::support::{Random, benches, read, write};
use nexar_device::{MemorySpace, cuda::CudaBuffer};

#[tokio::test]
async fn ten_thousand_operations_leave_nothing() {
    for bench in benches(1, |builder| builder.slot_len(256).slots(4)) {
        let mut random = Random(7);
        let memory = bench.memory(0, &[0; 1000]);
        let mut expected = vec![0; 1000];
        let run = async |count: usize, random: &mut Random, expected: &mut Vec<u8>| {
            for _ in 0..count {
                let mut queue = bench.queue(memory.region(0, ()));
                let len = random.below(257);
                let at = random.below(1000 - len + 1);
                let part = random.bytes(len);
                write(&mut queue, at, &part).await.unwrap();
                expected[at..at + len].copy_from_slice(&part);
                let (at, len) = (random.below(800), 200);
                let found = read(&mut queue, at, len).await.unwrap();
                assert_eq!(found, expected[at..at + len]);
            }
        };
        run(100, &mut random, &mut expected).await;
        let names = [
            "live_events",
            "live_streams",
            "live_pinned",
            "live_device_buffers",
        ];
        let before = names.map(|name| bench.counter(name));
        let synchronizing = bench.counter("synchronizing_calls");
        run(4900, &mut random, &mut expected).await;
        for (name, before) in names.into_iter().zip(before) {
            // How many events are in use at a time varies a little.
            let more = bench.counter(name).saturating_sub(before);
            assert!(more <= 8, "{more} more {name}");
        }
        assert_eq!(bench.counter("synchronizing_calls"), synchronizing);
        drop(memory);
        bench.finish();
    }
}

#[tokio::test]
async fn buffers_are_copied_without_waiting_for_the_device() {
    for bench in benches(1, |builder| builder.slot_len(4096)) {
        let space = MemorySpace::Device(0);
        let mut buffer = CudaBuffer::<u8>::zeroed(&bench.adapter, space, 100_000).unwrap();
        let data = Random(9).bytes(100_000);
        let mut back = vec![0; 100_000];
        // As many slots as a copy takes are allocated: none of its pieces is done before the last slot is needed.
        bench.set("delay_us", 20_000);
        buffer.copy_from(&data).await.unwrap();
        bench.set("delay_us", 0);
        let synchronizing = bench.counter("synchronizing_calls");
        for _ in 0..10 {
            buffer.copy_from(&data).await.unwrap();
            buffer.copy_to(&mut back).await.unwrap();
        }
        assert_eq!(back, data);
        assert_eq!(bench.counter("synchronizing_calls"), synchronizing);
        drop(buffer);
        bench.finish();
    }
}

/// Streams are never given up, and operations may wait for their turn for long.
#[tokio::test]
async fn a_queue_that_waits_for_its_turn_takes_no_streams() {
    for bench in benches(1, |builder| builder.slot_len(256)) {
        let memory = bench.memory(0, &[5; 64]);
        let queues: Vec<_> = (0..300)
            .map(|_| bench.queue(memory.region(0, ())))
            .collect();
        assert_eq!(bench.counter("live_streams"), 0);
        for mut queue in queues {
            assert_eq!(read(&mut queue, 0, 64).await.unwrap(), [5; 64]);
        }
        assert!(bench.counter("live_streams") <= 4);
        drop(memory);
        bench.finish();
    }
}
