//! What comes after what.

use crate::support::{Pinned, Stream, benches, read, slot, small, write};
use nexar_device::{ExecutionQueue, MemorySpace, cuda::CudaBuffer};

/// The copies come after work that is still under way on the program's stream.
#[tokio::test]
async fn copies_come_after_the_work_on_the_stream() {
    for bench in benches(1, small) {
        let memory = bench.memory(0, &[1; 100]);
        let pinned = Pinned::new(&bench.raw, 0, &[2; 100]);
        let stream = Stream::new(&bench.raw, 0);
        bench.set("delay_us", 20_000);
        stream.write(memory.address, pinned.address, 100);
        let mut queue = bench.queue(memory.region(stream.number, ()));
        bench.set("delay_us", 0);
        let copy = slot(&mut queue).await;
        let copy = queue.copy_out(0..10, copy, 0);
        write(&mut queue, 90, &[3; 10]).await.unwrap();
        assert_eq!(copy.await.unwrap().as_ref()[..10], [2; 10]);
        let mut expected = vec![2; 90];
        expected.extend([3; 10]);
        assert_eq!(memory.contents(), expected);
        drop((queue, stream, pinned, memory));
        bench.finish();
    }
}

/// Work that is enqueued on the stream later is not waited for: the stream is not kept.
#[tokio::test]
async fn the_stream_may_go_once_the_queue_is_open() {
    for bench in benches(1, small) {
        let memory = bench.memory(0, &[1; 100]);
        let stream = Stream::new(&bench.raw, 0);
        let mut queue = bench.queue(memory.region(stream.number, ()));
        drop(stream);
        write(&mut queue, 0, &[5; 20]).await.unwrap();
        assert_eq!(read(&mut queue, 19, 2).await.unwrap(), [5, 1]);
        drop((queue, memory));
        bench.finish();
    }
}

#[tokio::test]
async fn every_default_stream_is_a_stream() {
    for bench in benches(1, small) {
        let memory = bench.memory(0, &[1; 100]);
        for stream in [0, 1, 2] {
            let mut queue = bench.queue(memory.region(stream, ()));
            let byte = stream as u8 + 10;
            write(&mut queue, 0, &[byte; 20]).await.unwrap();
            assert_eq!(read(&mut queue, 19, 2).await.unwrap(), [byte, 1]);
        }
        drop(memory);
        bench.finish();
    }
}

/// A queue comes after the copies of those that were dropped before it, whether anybody waits for them or not.
#[tokio::test]
async fn queues_of_the_same_memory_follow_each_other() {
    for bench in benches(1, |builder| builder.slot_len(64).slots(16)) {
        let memory = bench.memory(0, &[0; 64]);
        for round in 1..=30 {
            bench.set("delay_us", 2000);
            let mut queue = bench.queue(memory.region(0, ()));
            let mut first = slot(&mut queue).await;
            first.as_mut().fill(round);
            let copy = queue.copy_in(first, 0, 0..64);
            drop((copy, queue));

            // Faster than the copy before.
            bench.set("delay_us", 0);
            let mut queue = bench.queue(memory.region(0, ()));
            assert_eq!(read(&mut queue, 0, 64).await.unwrap(), [round; 64]);
            let reading = slot(&mut queue).await;
            bench.set("delay_us", 2000);
            let reading = queue.copy_out(0..64, reading, 0);
            drop(queue);

            bench.set("delay_us", 0);
            let mut queue = bench.queue(memory.region(0, ()));
            queue.fill(0..64, 0).unwrap();
            drop(queue);
            assert_eq!(reading.await.unwrap().as_ref(), [round; 64]);
            let mut queue = bench.queue(memory.region(0, ()));
            assert_eq!(read(&mut queue, 0, 64).await.unwrap(), [0; 64]);
        }
        drop(memory);
        bench.finish();
    }
}

/// What is complete is there for any stream.
#[tokio::test]
async fn work_of_ones_own_comes_after_what_is_complete() {
    for bench in benches(1, small) {
        let space = MemorySpace::Device(0);
        let mut buffer = CudaBuffer::<u8>::zeroed(&bench.adapter, space, 100).unwrap();
        buffer.copy_from(&[6; 100]).await.unwrap();
        let pinned = Pinned::new(&bench.raw, 0, &[7; 50]);
        let stream = Stream::new(&bench.raw, 0);
        bench.set("delay_us", 5000);
        stream.write(buffer.address(), pinned.address, 50);
        // SAFETY: the stream exists while the buffer is used.
        let buffer = unsafe { buffer.on_stream(stream.number) };
        let mut back = [0; 100];
        buffer.copy_to(&mut back).await.unwrap();
        assert_eq!(
            (back[..50].to_vec(), back[50..].to_vec()),
            (vec![7; 50], vec![6; 50])
        );
        drop((buffer, stream, pinned));
        bench.finish();
    }
}
