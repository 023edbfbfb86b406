//! Ranks that die, stall, give up or leave.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{memory_world, on_all, share};
use nexar_collectives::{Communicator, Error, Failure, ReduceOp, TimeLimits};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

#[track_caller]
fn failure(result: Result<(), Error>) -> Failure {
    match result.unwrap_err() {
        Error::Operation(error) => error.failure.clone(),
        other => panic!("{other}"),
    }
}

/// A crashed process: nothing is heard from it any more, and nobody is told.
#[tokio::test(start_paused = true)]
async fn a_dead_rank_fails_the_operation_on_every_survivor() {
    for world in [2, 3, 5, 8] {
        for dead in [0, world - 1] {
            let (network, addresses, ranks) = memory_world(world, TimeLimits::default()).await;
            let mut ranks = share(ranks);
            on_all(&ranks, |comm| async move {
                comm.all_reduce(&mut vec![1u64; 100_000], ReduceOp::Sum)
                    .await
                    .unwrap();
            })
            .await;
            assert!(network.kill(addresses[dead]));
            ranks.remove(dead);
            let started = Instant::now();
            let results = on_all(&ranks, |comm| async move {
                let mut data = vec![1u64; 2_000_000];
                let first = comm.all_reduce(&mut data, ReduceOp::Sum).await;
                let detected = Instant::now();
                let second = comm.barrier().await;
                assert_eq!(
                    detected.elapsed(),
                    Duration::ZERO,
                    "the next call fails at once"
                );
                (first, second)
            })
            .await;
            assert!(
                started.elapsed() < Duration::from_secs(5),
                "{:?}",
                started.elapsed()
            );
            for (first, second) in results {
                let error = first.unwrap_err();
                assert!(error.is_peer_failure(), "{error}");
                assert_eq!(error.failed_ranks(), [dead], "{error}");
                assert_eq!(second.unwrap_err().failed_ranks(), [dead]);
            }
        }
    }
}

/// A rank that is late but within the limit is waited for.
#[tokio::test(start_paused = true)]
async fn a_late_rank_is_waited_for() {
    let limits = TimeLimits::default().with_operation(Duration::from_secs(60));
    let (_network, _, ranks) = memory_world(3, limits).await;
    on_all(&share(ranks), |comm| async move {
        if comm.rank() == 1 {
            sleep(Duration::from_secs(40)).await;
        }
        let mut data = [comm.rank() as u16 + 1; 5];
        comm.all_reduce(&mut data, ReduceOp::Product).await.unwrap();
        assert_eq!(data, [6; 5]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_aborts_the_operation_everywhere() {
    for world in [2, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        let results = on_all(&share(ranks), |comm| async move {
            let mut data = vec![1f64; 1_000_000];
            if comm.rank() == 1 {
                let limit = Duration::from_millis(100);
                // The others are not there yet, so that it cannot complete.
                let dropped = timeout(limit, comm.all_reduce(&mut data, ReduceOp::Sum)).await;
                assert!(dropped.is_err());
                return comm.barrier().await;
            }
            sleep(Duration::from_millis(500)).await;
            comm.all_reduce(&mut data, ReduceOp::Sum).await
        })
        .await;
        for result in results {
            let failure = failure(result);
            assert!(
                matches!(failure, Failure::Aborted { rank: 1, .. }),
                "{failure}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_ranks_that_cannot_reach_each_other_fail_everywhere() {
    let (network, addresses, ranks) = memory_world(5, TimeLimits::default()).await;
    let ranks = share(ranks);
    network.partition(addresses[1], addresses[3]);
    let started = Instant::now();
    let results = on_all(&ranks, |comm| async move {
        comm.all_reduce(&mut vec![1f32; 1_000_000], ReduceOp::Sum)
            .await
    })
    .await;
    assert!(started.elapsed() < Duration::from_secs(6));
    for result in results {
        let ranks = result.unwrap_err().failed_ranks();
        assert!(ranks == [1] || ranks == [3], "{ranks:?}");
    }
}

/// A program that panics, or forgets to shut down, has not left well.
#[tokio::test]
async fn a_communicator_that_is_dropped_has_failed() {
    for panics in [false, true] {
        let mut ranks = Communicator::local(3).await.unwrap();
        let dropped = ranks.remove(1);
        let program = tokio::spawn(async move {
            assert!(!panics, "a panic on purpose");
            drop(dropped);
        });
        let ranks = share(ranks);
        let results = on_all(&ranks, |comm| async move { comm.barrier().await }).await;
        for result in results {
            match failure(result) {
                Failure::PeerLost { rank: 1, reason } => {
                    assert!(reason.contains("without a shutdown"), "{reason}");
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(program.await.is_err(), panics);
    }
}

/// A rank that has just died is waited for, but not for as long as it takes to declare it dead.
#[tokio::test(start_paused = true)]
async fn shutting_down_beside_a_dead_rank_takes_little_time() {
    for used in [false, true] {
        let (network, addresses, mut ranks) = memory_world(3, TimeLimits::default()).await;
        if used {
            let [zero, one, two] = &ranks[..] else {
                panic!("three ranks")
            };
            tokio::try_join!(zero.barrier(), one.barrier(), two.barrier()).unwrap();
        }
        assert!(network.kill(addresses[2]));
        let started = Instant::now();
        let error = ranks.remove(0).shutdown().await.unwrap_err();
        assert!(
            started.elapsed() < Duration::from_millis(2_500),
            "{:?}",
            started.elapsed()
        );
        assert!(matches!(error, Error::NotConfirmed { .. }), "{error}");
        assert_eq!(error.failed_ranks(), [2]);
    }
}

/// Joining, one barrier, leaving, over and over, with nobody left behind.
#[tokio::test]
async fn clean_exits_over_quic() {
    for round in 0..20 {
        let mut tasks = JoinSet::new();
        for comm in Communicator::local(3).await.unwrap() {
            tasks.spawn(async move {
                comm.barrier().await.unwrap();
                comm.shutdown().await
            });
        }
        for result in tasks.join_all().await {
            result.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
}

/// A root that has sent its data may leave before the others have asked for it.
#[tokio::test]
async fn what_was_sent_before_leaving_arrives() {
    let mut ranks = Communicator::local(2).await.unwrap();
    let receiver = ranks.pop().unwrap();
    let root = ranks.pop().unwrap();
    let (gone, wait) = tokio::sync::oneshot::channel();
    let sending = tokio::spawn(async move {
        root.broadcast(&mut [7u32; 1000], 0).await.unwrap();
        root.shutdown().await.unwrap();
        gone.send(()).unwrap();
    });
    let mut data = [0u32; 1000];
    receiver.broadcast(&mut data, 0).await.unwrap();
    assert_eq!(data, [7; 1000]);
    wait.await.unwrap();
    sending.await.unwrap();
    let error = receiver.barrier().await.unwrap_err();
    assert_eq!(error.failed_ranks(), [0]);
    receiver.shutdown().await.unwrap();
}

/// Works without any tokio runtime on the caller's side.
#[test]
fn any_executor_will_do() {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Wake, Waker},
        thread::{self, Thread},
    };
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    fn block_on<F: Future>(future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }
    let ranks = block_on(Communicator::local(2)).unwrap();
    let threads: Vec<_> = ranks
        .into_iter()
        .map(|comm| {
            thread::spawn(move || {
                block_on(async {
                    let mut data = vec![comm.rank() as f32; 100_000];
                    comm.all_reduce(&mut data, ReduceOp::Max).await.unwrap();
                    assert!(data.iter().all(|x| *x == 1.0));
                    comm.shutdown().await.unwrap();
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// One communicator used by several tasks at once: the calls run one after the other.
#[tokio::test]
async fn concurrent_calls_keep_their_order() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        let (mut first, mut second, mut third) = ([1i32; 9], vec![2i64; 70_000], [3u8; 3]);
        let (a, b, c) = tokio::join!(
            comm.all_reduce(&mut first, ReduceOp::Sum),
            comm.all_reduce(&mut second, ReduceOp::Sum),
            comm.all_reduce(&mut third, ReduceOp::Sum),
        );
        a.and(b).and(c).unwrap();
        assert_eq!((first, third), ([3; 9], [9; 3]));
        assert!(second.iter().all(|x| *x == 6));
    })
    .await;
}
