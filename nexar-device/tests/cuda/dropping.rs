//! Everything may be dropped at any moment.

use crate::support::{Bench, LONG, Random, benches, eventually, slot, small, stub_bench};
use nexar_device::{ExecutionQueue, cuda::CudaTransfer};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
};

/// Says when it is dropped.
struct Alive(Arc<AtomicBool>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn alive() -> (Alive, Arc<AtomicBool>) {
    let dropped = Arc::new(AtomicBool::new(false));
    (Alive(Arc::clone(&dropped)), dropped)
}

/// Whether it is done.
fn poll_once(copy: &mut CudaTransfer) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(copy).poll(&mut cx) {
        Poll::Ready(slot) => slot.map(drop).is_ok(),
        Poll::Pending => false,
    }
}

/// All slots are free again.
async fn all_slots(bench: &Bench) {
    let memory = bench.memory(0, &[0; 1]);
    let mut queue = bench.queue(memory.region(0, ()));
    let slots = async {
        [
            slot(&mut queue).await,
            slot(&mut queue).await,
            slot(&mut queue).await,
        ]
    };
    tokio::time::timeout(LONG, slots)
        .await
        .expect("a slot is lost");
}

#[tokio::test]
async fn the_region_stays_until_its_last_copy_is_over() {
    for polled in [false, true] {
        for bench in benches(1, small) {
            let memory = bench.memory(0, &[1; 100]);
            let (keep, dropped) = alive();
            let mut queue = bench.queue(memory.region(0, keep));
            bench.set("hold", 1);
            let mut slot = slot(&mut queue).await;
            slot.as_mut().fill(2);
            let mut copy = queue.copy_in(slot, 0, 0..64);
            if polled {
                poll_once(&mut copy);
            }
            drop(queue);
            assert!(!dropped.load(Ordering::SeqCst));
            drop(copy);
            if bench.stub.is_some() {
                assert!(!dropped.load(Ordering::SeqCst), "a copy is under way");
            }
            bench.set("hold", 0);
            eventually("dropping the region", || dropped.load(Ordering::SeqCst));
            assert_eq!(memory.contents()[..64], [2; 64]);
            all_slots(&bench).await;
            drop(memory);
            bench.finish();
        }
    }
}

#[tokio::test]
async fn a_queue_without_copies_drops_its_region_at_once() {
    for bench in benches(1, small) {
        let memory = bench.memory(0, &[1; 100]);
        let (keep, dropped) = alive();
        drop(bench.queue(memory.region(0, keep)));
        assert!(dropped.load(Ordering::SeqCst));
        drop(memory);
        bench.finish();
    }
}

#[tokio::test]
async fn fills_keep_the_region() {
    let bench = stub_bench(1, small);
    let memory = bench.memory(0, &[1; 100]);
    let (keep, dropped) = alive();
    let mut queue = bench.queue(memory.region(0, keep));
    bench.set("hold", 1);
    queue.fill(0..100, 9).unwrap();
    drop(queue);
    assert!(!dropped.load(Ordering::SeqCst));
    bench.set("hold", 0);
    eventually("dropping the region", || dropped.load(Ordering::SeqCst));
    assert_eq!(memory.contents(), [9; 100]);
    drop(memory);
    bench.finish();
}

/// What keeps a region alive may block, and may panic.
#[tokio::test]
async fn a_destructor_that_panics_harms_nobody() {
    struct Angry;
    impl Drop for Angry {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("this destructor panics, as the test wants");
            }
        }
    }
    let bench = stub_bench(1, small);
    let memory = bench.memory(0, &[1; 100]);
    let mut queue = bench.queue(memory.region(0, Angry));
    let slot = slot(&mut queue).await;
    bench.set("hold", 1);
    let copy = queue.copy_out(0..10, slot, 0);
    drop((queue, copy));
    bench.set("hold", 0);
    all_slots(&bench).await;
    drop(memory);
    bench.finish();
}

/// Queues, copies and buffers that are dropped at random, by several threads at once.
#[test]
fn drops_at_random() {
    for bench in benches(1, small) {
        thread::scope(|scope| {
            for seed in 1..=3 {
                let bench = &bench;
                scope.spawn(move || {
                    block_on(random_drops(bench, seed));
                });
            }
        });
        bench.set("delay_us", 0);
        block_on(all_slots(&bench));
        bench.finish();
    }
}

fn block_on(work: impl Future) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work);
}

async fn random_drops(bench: &Bench, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..150 {
        bench.set("delay_us", random.below(200) as u64);
        let memory = Arc::new(bench.memory(0, &[1; 200]));
        // The region keeps the memory: the stub notices if it is freed too early.
        let mut queue = bench.queue(memory.region(0, Arc::clone(&memory)));
        drop(memory);
        let mut copies = Vec::new();
        for _ in 0..random.below(5) {
            // Whoever holds slots must not wait for more without polling his copies.
            let first = copies.is_empty();
            let slot = poll_fn(|cx| match queue.poll_slot(cx) {
                Poll::Pending if !first => Poll::Ready(None),
                slot => slot.map(Some),
            });
            let slot = slot.await;
            let Some(Ok(slot)) = slot else { continue };
            let start = random.below(136);
            copies.push(match random.below(2) {
                0 => queue.copy_in(slot, 0, start..start + 64),
                _ => queue.copy_out(start..start + 64, slot, 0),
            });
        }
        let mut queue = Some(queue);
        while !copies.is_empty() || queue.is_some() {
            match random.below(4) {
                0 => drop(queue.take()),
                _ if copies.is_empty() => {}
                1 => drop(copies.swap_remove(random.below(copies.len()))),
                2 if poll_once(&mut copies[0]) => drop(copies.swap_remove(0)),
                2 => {}
                _ => drop(copies.swap_remove(0).await),
            }
        }
    }
}
