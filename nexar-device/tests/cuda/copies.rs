//! Bytes arrive as they are.

use crate::support::{Random, benches, slot, small};
use nexar_device::{DeviceError, ExecutionQueue, MemorySpace, cuda::CudaBuffer};
use std::collections::VecDeque;

#[tokio::test]
async fn buffers_of_all_lengths() {
    for bench in benches(1, small) {
        let mut random = Random(1);
        for len in [0, 1, 63, 64, 65, 191, 192, 193, 1000, 5003] {
            let data = random.bytes(len);
            let space = MemorySpace::Device(0);
            let buffer = CudaBuffer::from_slice(&bench.adapter, space, &data)
                .await
                .unwrap();
            let mut back = vec![0; len];
            buffer.copy_to(&mut back).await.unwrap();
            assert_eq!(back, data);
        }
        bench.finish();
    }
}

/// Pieces of random length at random places, several under way, with random delays.
#[tokio::test]
async fn pieces_of_all_lengths() {
    for bench in benches(1, small) {
        let mut random = Random(2);
        let mut expected = random.bytes(700);
        let memory = bench.memory(0, &expected);
        let mut queue = bench.queue(memory.region(0, ()));
        let mut under_way = VecDeque::new();
        for _ in 0..200 {
            bench.set("delay_us", random.below(60) as u64);
            if under_way.len() == 3 {
                let (at, part, copy): (usize, Vec<u8>, nexar_device::cuda::CudaTransfer) =
                    under_way.pop_front().unwrap();
                let slot = copy.await.unwrap();
                assert_eq!(slot.as_ref()[at..at + part.len()], part);
            }
            let at = random.below(64);
            let len = random.below(64 - at + 1);
            let start = random.below(700 - len + 1);
            let mut slot = slot(&mut queue).await;
            if random.below(2) == 0 {
                let part = random.bytes(len);
                slot.as_mut()[at..at + len].copy_from_slice(&part);
                expected[start..start + len].copy_from_slice(&part);
                under_way.push_back((at, part, queue.copy_in(slot, at, start..start + len)));
            } else {
                // Opposite directions may overlap: what is read must have been written.
                for (_, _, copy) in under_way.drain(..) {
                    copy.await.unwrap();
                }
                let part = expected[start..start + len].to_vec();
                let copy = queue.copy_out(start..start + len, slot, at);
                let slot = copy.await.unwrap();
                assert_eq!(slot.as_ref()[at..at + len], part);
            }
        }
        for (_, _, copy) in under_way {
            copy.await.unwrap();
        }
        assert_eq!(memory.contents(), expected);
        drop((queue, memory));
        bench.finish();
    }
}

/// A result is given once; there is no hanging afterwards.
#[tokio::test]
async fn a_transfer_gives_its_slot_once() {
    for bench in benches(1, small) {
        let memory = bench.memory(0, &[1; 100]);
        let mut queue = bench.queue(memory.region(0, ()));
        let slot = slot(&mut queue).await;
        let mut copy = queue.copy_out(0..10, slot, 0);
        assert_eq!((&mut copy).await.unwrap().as_ref()[..10], [1; 10]);
        let error = copy.await.unwrap_err();
        assert!(error.to_string().contains("given its result"), "{error}");
        drop((queue, memory));
        bench.finish();
    }
}

#[tokio::test]
async fn fills_come_in_the_order_of_copies() {
    for bench in benches(1, small) {
        let memory = bench.memory(0, &[1; 100]);
        let mut queue = bench.queue(memory.region(0, ()));
        bench.set("delay_us", 300);
        let mut first = slot(&mut queue).await;
        first.as_mut().fill(2);
        let first = queue.copy_in(first, 0, 0..60);
        queue.fill(40..80, 3).unwrap();
        let mut last = slot(&mut queue).await;
        last.as_mut().fill(4);
        let last = queue.copy_in(last, 0, 70..75);
        drop(first);
        drop(last.await.unwrap());
        let mut expected = vec![2; 40];
        expected.extend([3; 30].iter().chain(&[4; 5]).chain(&[3; 5]).chain(&[1; 20]));
        assert_eq!(memory.contents(), expected);
        let error = queue.fill(90..101, 0).unwrap_err();
        assert!(matches!(
            error,
            DeviceError::OutOfRange {
                start: 90,
                end: 101,
                region: 100,
                ..
            }
        ));
        drop((queue, memory));
        bench.finish();
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_frees_the_slot() {
    for bench in benches(1, small) {
        let memory = bench.memory(0, &[1; 100]);
        let mut queue = bench.queue(memory.region(0, ()));
        #[expect(clippy::reversed_empty_ranges)]
        let cases = [
            (99..101, 0, 64),
            (0..65, 0, 64),
            (0..2, 63, 1),
            (0..1, 64, 0),
            (0..1, usize::MAX, 0),
            (5..4, 0, 64),
            (0..usize::MAX, 0, 64),
        ];
        for (range, at, left) in cases {
            for out in [false, true] {
                let slot = slot(&mut queue).await;
                let copy = match out {
                    true => queue.copy_out(range.clone(), slot, at),
                    false => queue.copy_in(slot, at, range.clone()),
                };
                let error = copy.await.unwrap_err();
                assert!(
                    matches!(error, DeviceError::OutOfRange { start, end, region: 100, slot }
                        if (start, end, slot) == (range.start, range.end, left)),
                    "{error:?}"
                );
            }
        }
        let all = [
            slot(&mut queue).await,
            slot(&mut queue).await,
            slot(&mut queue).await,
        ];
        assert_eq!(memory.contents(), [1; 100]);
        drop((all, queue, memory));
        bench.finish();
    }
}
