//! Slots are few, and shared fairly.

use crate::support::{Bench, Memory, benches, eventually, slot, small, stub_bench};
use nexar_device::{
    DeviceAdapter, ExecutionQueue,
    cuda::{CudaQueue, CudaSlot, CudaTransfer},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counter {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll(queue: &mut CudaQueue, counter: &Arc<Counter>) -> Option<CudaSlot> {
    let waker = Waker::from(Arc::clone(counter));
    match queue.poll_slot(&mut Context::from_waker(&waker)) {
        Poll::Ready(slot) => Some(slot.unwrap()),
        Poll::Pending => None,
    }
}

fn queues<const N: usize>(bench: &Bench) -> (Memory, [CudaQueue; N]) {
    let memory = bench.memory(0, &[1; 100]);
    let queues = std::array::from_fn(|_| bench.queue(memory.region(0, ())));
    (memory, queues)
}

#[test]
fn the_adapter_says_what_there_is() {
    for bench in benches(1, |builder| builder) {
        let capabilities = bench.adapter.capabilities();
        assert_eq!((capabilities.slot_len, capabilities.slots), (512 << 10, 8));
        assert!(capabilities.fill && !capabilities.reduce);
        bench.finish();
    }
}

/// A queue that has none gets one even when all are taken; what is there is then reused.
#[tokio::test]
async fn the_first_slot_of_a_queue_is_there_at_once() {
    for bench in benches(1, small) {
        let (memory, [mut a, mut b, mut c]) = queues(&bench);
        let none = Arc::default();
        assert_eq!(bench.counter("live_pinned"), 0);
        let taken = [slot(&mut a).await, slot(&mut a).await, slot(&mut a).await];
        assert!(poll(&mut a, &none).is_none());
        let first = (slot(&mut b).await, slot(&mut c).await);
        assert!(poll(&mut b, &none).is_none());
        if bench.stub.is_some() {
            assert_eq!(bench.counter("live_pinned"), 5);
        }
        // Those that wait keep their places while they exist.
        drop((taken, first, a, b));
        let again: Vec<_> = [slot(&mut c).await, slot(&mut c).await, slot(&mut c).await].into();
        if bench.stub.is_some() {
            assert_eq!(bench.counter("live_pinned"), 5);
        }
        drop((c, again, memory));
        bench.finish();
    }
}

#[tokio::test]
async fn who_waits_first_is_served_first() {
    for bench in benches(1, small) {
        let (memory, [mut a, mut b, mut c]) = queues(&bench);
        let mut taken = vec![slot(&mut a).await, slot(&mut b).await, slot(&mut c).await];
        let [of_a, of_b, of_c]: [Arc<Counter>; 3] = Default::default();
        assert!(poll(&mut b, &of_b).is_none());
        assert!(poll(&mut a, &of_a).is_none());
        assert!(poll(&mut c, &of_c).is_none());
        taken.pop();
        assert_eq!(of_b.count(), 1);
        assert_eq!(of_a.count(), 0);
        assert_eq!(of_c.count(), 1, "it has none in use any more");
        assert!(poll(&mut a, &of_a).is_none(), "b comes first");
        let second = poll(&mut b, &of_b).unwrap();
        drop(second);
        assert_eq!(of_a.count(), 1);
        assert!(poll(&mut b, &of_b).is_none(), "a comes first");
        assert!(poll(&mut a, &of_a).is_some());
        drop((a, b, c, taken, memory));
        bench.finish();
    }
}

/// The waker of the last poll counts.
#[tokio::test]
async fn the_last_task_that_has_polled_is_woken() {
    for bench in benches(1, small) {
        let (memory, [mut a]) = queues(&bench);
        let mut taken = vec![slot(&mut a).await, slot(&mut a).await, slot(&mut a).await];
        let [first, last]: [Arc<Counter>; 2] = Default::default();
        assert!(poll(&mut a, &first).is_none());
        assert!(poll(&mut a, &last).is_none());
        taken.pop();
        assert_eq!((first.count(), last.count()), (0, 1));
        assert!(poll(&mut a, &last).is_some());
        drop((a, taken, memory));
        bench.finish();
    }
}

#[tokio::test]
async fn a_queue_that_is_dropped_waits_no_more() {
    for bench in benches(1, small) {
        let (memory, [mut a, mut b]) = queues(&bench);
        let mut taken = vec![slot(&mut b).await, slot(&mut a).await, slot(&mut a).await];
        let [of_a, of_b]: [Arc<Counter>; 2] = Default::default();
        assert!(poll(&mut a, &of_a).is_none());
        assert!(poll(&mut b, &of_b).is_none());
        taken.pop();
        assert_eq!((of_a.count(), of_b.count()), (1, 0));
        // It has been woken, but never takes the slot.
        drop(a);
        assert_eq!(of_b.count(), 1);
        assert!(poll(&mut b, &of_b).is_some());
        drop((b, taken, memory));
        bench.finish();
    }
}

/// A copy has its slot until it is over, and whoever waits for the slot is woken then.
#[tokio::test]
async fn slots_of_dropped_copies_come_back_by_themselves() {
    for bench in benches(1, small) {
        let (memory, [mut a]) = queues(&bench);
        let taken = [slot(&mut a).await, slot(&mut a).await];
        let last = slot(&mut a).await;
        bench.set("hold", 1);
        drop(a.copy_in(last, 0, 0..64));
        let woken = Arc::default();
        let mut slot = poll(&mut a, &woken);
        assert!(slot.is_none() || bench.stub.is_none());
        bench.set("hold", 0);
        if slot.is_none() {
            eventually("waking", || woken.count() == 1);
            slot = poll(&mut a, &woken);
        }
        assert!(slot.is_some());
        drop((a, slot, taken, memory));
        bench.finish();
    }
}

/// Many queues that want more slots than there are: none waits for ever.
#[tokio::test]
async fn queues_never_wait_for_each_other() {
    let bench = stub_bench(1, small);
    bench.set("delay_us", 100);
    let work = (0..8).map(|_| {
        let memory = Arc::new(bench.memory(0, &[1; 640]));
        // The last copies are dropped while they run.
        let mut queue = bench.queue(memory.region(0, Arc::clone(&memory)));
        async move {
            let none = Arc::default();
            for _ in 0..5 {
                let mut held: Vec<CudaTransfer> = Vec::new();
                for piece in 0..3 {
                    // Holding some, it takes one more or gives one up; it waits only while it holds none.
                    let slot = loop {
                        match poll(&mut queue, &none) {
                            Some(slot) => break slot,
                            None if held.is_empty() => break slot(&mut queue).await,
                            None => drop(held.remove(0).await.unwrap()),
                        }
                    };
                    held.push(queue.copy_out(piece * 64..piece * 64 + 64, slot, 0));
                    if held.len() == 2 {
                        drop(held.remove(0).await.unwrap());
                    }
                }
            }
        }
    });
    all(work.collect()).await;
    bench.finish();
}

/// Polls all of them until all are done.
async fn all(work: Vec<impl Future<Output = ()>>) {
    let mut work: Vec<_> = work.into_iter().map(|work| Some(Box::pin(work))).collect();
    std::future::poll_fn(|cx| {
        for entry in &mut work {
            if entry
                .as_mut()
                .is_some_and(|work| work.as_mut().poll(cx).is_ready())
            {
                *entry = None;
            }
        }
        match work.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// However often queues come and go, there are no more slots than configured and one for each that is open.
#[tokio::test]
async fn queues_one_after_the_other_do_not_add_up_to_more_slots() {
    let bench = stub_bench(1, |builder| builder.slot_len(64).slots(1));
    let (memory, [mut long]) = queues(&bench);
    let none = Arc::default();
    let mut taken = vec![slot(&mut long).await];
    for _ in 0..10 {
        let mut short = bench.queue(memory.region(0, ()));
        drop(slot(&mut short).await);
        drop(short);
        taken.extend(poll(&mut long, &none));
    }
    assert!(taken.len() <= 2, "{} slots of one queue", taken.len());
    assert!(bench.counter("live_pinned") <= 2);
    drop((long, taken, memory));
    bench.finish();
}
