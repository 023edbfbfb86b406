//! Operations that go on by themselves.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{MemoryCommunicator, memory_world, on_all, quic_worlds, share};
use nexar_collectives::{
    Communicator, Error, Failure, ReduceOp, Started, TimeLimits, transport::Transport,
};
use std::{future::Future, pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{Barrier, Notify},
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

const SUM: ReduceOp = ReduceOp::Sum;

/// All of them are started before any is waited for.
async fn every_operation<T: Transport>(comm: Arc<Communicator<T>>) {
    let (n, rank) = (comm.world_size(), comm.rank());
    let r = rank as i64;
    let sum = (n * (n - 1) / 2) as i64;
    let range = |start: i64, count: usize| (start..start + count as i64).collect::<Vec<i64>>();
    let counts: Vec<usize> = (0..n).collect();
    let all_counts: usize = counts.iter().sum();
    let (left, right) = ((rank + n - 1) % n, (rank + 1) % n);

    let barrier = comm.start_barrier();
    let broadcast = comm.start_broadcast(vec![r; 5], n - 1);
    let reduce = comm.start_reduce(vec![r + 1; 3], SUM, 0);
    let all_reduce = comm.start_all_reduce(vec![r; 4], SUM);
    let scan = comm.start_scan(vec![r; 4], ReduceOp::Max);
    let exclusive = comm.start_exclusive_scan(vec![r; 4], SUM);
    let all_gather = comm.start_all_gather(range(r * 10, 2));
    let all_gather_v = comm.start_all_gather_v(vec![r; rank], counts.clone());
    let gather = comm.start_gather(vec![r, -r], n / 2);
    let gather_v = comm.start_gather_v(vec![r; rank], counts.clone(), 0);
    let scatter = comm.start_scatter(if rank == 0 { range(0, n * 2) } else { vec![] }, 2, 0);
    let scatter_v = comm.start_scatter_v(range(0, all_counts), counts.clone(), rank, n - 1);
    let reduce_scatter = comm.start_reduce_scatter(range(r, n * 2), SUM);
    let reduce_scatter_v = comm.start_reduce_scatter_v(vec![r; all_counts], counts.clone(), SUM);
    let all_to_all = comm.start_all_to_all(vec![r; n]);
    let all_to_all_v = comm.start_all_to_all_v(vec![r; all_counts], counts.clone(), vec![rank; n]);
    let neighbors = comm.start_neighbor_all_to_all(vec![left, right], vec![r; 2]);
    let neighbors_v =
        comm.start_neighbor_all_to_all_v(vec![left, right], vec![r; 6], vec![3; 2], vec![3; 2]);
    let many = comm.start_all_reduce_many(vec![vec![r], vec![], vec![1, 2]], SUM);

    // Out of order.
    assert_eq!(
        many.await.unwrap(),
        [vec![sum], vec![], vec![n as i64, 2 * n as i64]]
    );
    barrier.await.unwrap();
    assert_eq!(broadcast.await.unwrap(), [n as i64 - 1; 5]);
    let expected = if rank == 0 { sum + n as i64 } else { r + 1 };
    assert_eq!(reduce.await.unwrap(), [expected; 3]);
    assert_eq!(all_reduce.await.unwrap(), [sum; 4]);
    assert_eq!(scan.await.unwrap(), [r; 4]);
    assert_eq!(exclusive.await.unwrap(), [r * (r - 1) / 2; 4]);
    let blocks =
        |block: &dyn Fn(i64) -> Vec<i64>| (0..n as i64).flat_map(block).collect::<Vec<_>>();
    assert_eq!(all_gather.await.unwrap(), blocks(&|r| range(r * 10, 2)));
    let uneven = blocks(&|r| vec![r; r as usize]);
    assert_eq!(all_gather_v.await.unwrap(), uneven);
    let at_root = |root, blocks| if rank == root { blocks } else { vec![] };
    assert_eq!(
        gather.await.unwrap(),
        at_root(n / 2, blocks(&|r| vec![r, -r]))
    );
    assert_eq!(gather_v.await.unwrap(), at_root(0, uneven));
    assert_eq!(scatter.await.unwrap(), range(r * 2, 2));
    assert_eq!(scatter_v.await.unwrap(), range(r * (r - 1) / 2, rank));
    let first = n as i64 * r * 2 + sum;
    assert_eq!(reduce_scatter.await.unwrap(), [first, first + n as i64]);
    assert_eq!(reduce_scatter_v.await.unwrap(), vec![sum; rank]);
    assert_eq!(all_to_all.await.unwrap(), range(0, n));
    assert_eq!(
        all_to_all_v.await.unwrap(),
        blocks(&|from| vec![from; rank])
    );
    let (left, right) = (left as i64, right as i64);
    assert_eq!(neighbors.await.unwrap(), [left, right]);
    let expected = [[left; 3], [right; 3]].concat();
    assert_eq!(neighbors_v.await.unwrap(), expected);
}

#[tokio::test]
async fn every_operation_gives_its_result() {
    for world in [1, 2, 3, 5, 8] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), every_operation).await;
    }
    for ranks in quic_worlds(3).await {
        on_all(&share(ranks), every_operation).await;
    }
}

/// They run in the order in which they were started, also with regard to calls that are awaited: otherwise the
/// ranks would make different calls.
#[tokio::test]
async fn started_and_awaited_calls_keep_their_order() {
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let n = world as u64;
            for round in 0..20 {
                let long = comm.start_all_reduce(vec![1u64; 70_000], SUM);
                let other = comm.start_all_reduce(vec![2u32; 3], SUM);
                let mut data = [round as u8; 5];
                comm.all_reduce(&mut data, ReduceOp::Max).await.unwrap();
                assert_eq!(data, [round as u8; 5]);
                let last = comm.start_broadcast(vec![comm.rank() as u16], 1);
                let copy = comm.duplicate().await.unwrap();
                assert_eq!(last.wait().await.unwrap(), [1]);
                assert!(long.await.unwrap().iter().all(|x| *x == n));
                assert_eq!(other.await.unwrap(), [2 * n as u32; 3]);
                copy.barrier().await.unwrap();
            }
        })
        .await;
    }
}

#[tokio::test]
async fn several_communicators_in_another_order_on_each_rank() {
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let mut comms = Vec::new();
            for number in 0..4u64 {
                comms.push((number, comm.duplicate().await.unwrap()));
            }
            comms.rotate_left(comm.rank() % 4);
            if comm.rank() % 2 == 1 {
                comms.reverse();
            }
            let start = |(number, comm): &(u64, MemoryCommunicator)| {
                let data = vec![number * 10 + 1; 20_000];
                (*number, comm.start_all_reduce(data, SUM))
            };
            let started: Vec<(u64, Started<Vec<u64>>)> = comms.iter().map(start).collect();
            for (number, operation) in started {
                let sum = (number * 10 + 1) * world as u64;
                assert!(operation.await.unwrap().iter().all(|x| *x == sum));
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_dropped_handle_lets_the_operation_go_on() {
    for world in [2, 3] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            for round in 0..20u64 {
                // Dropped before, during or after the operation, as it comes; on one rank it is waited for.
                let operation = comm.start_all_reduce(vec![round; 30_000], SUM);
                match comm.rank() {
                    0 => drop(operation),
                    1 => {
                        let mut operation = operation;
                        for _ in 0..round {
                            let _ = futures_once(&mut operation).await;
                        }
                    }
                    _ => {
                        let sum = round * world as u64;
                        assert!(operation.await.unwrap().iter().all(|x| *x == sum));
                    }
                }
                let mut data = [round + 1];
                comm.all_reduce(&mut data, SUM).await.unwrap();
                assert_eq!(data, [(round + 1) * world as u64]);
            }
        })
        .await;
    }
}

/// Polls a future once if it is not done, and lets others run.
async fn futures_once<O>(operation: &mut Started<O>) {
    if !operation.is_finished() {
        let _ = timeout(Duration::ZERO, &mut *operation).await;
        yield_now().await;
    }
}

#[tokio::test]
async fn a_result_is_given_once() {
    let (_network, _, ranks) = memory_world(1, TimeLimits::default()).await;
    let mut barrier = ranks[0].start_barrier();
    (&mut barrier).await.unwrap();
    assert!(barrier.is_finished());
    let error = barrier.await.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn waiting_can_be_given_up_and_taken_up_again() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        if comm.rank() == 1 {
            sleep(Duration::from_secs(1)).await;
        }
        let mut operation = comm.start_all_reduce(vec![comm.rank() as i8 + 1; 3], SUM);
        if comm.rank() == 0 {
            for _ in 0..3 {
                let waited = timeout(Duration::from_millis(100), &mut operation).await;
                assert!(waited.is_err() && !operation.is_finished());
            }
        }
        assert_eq!((&mut operation).await.unwrap(), [3; 3]);
        assert!(operation.is_finished());
    })
    .await;
}

/// What is wrong with the arguments comes out when the operation is waited for; nothing was sent.
#[tokio::test]
async fn wrong_arguments_come_out_at_the_wait() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let ranks = share(ranks);
    // One rank alone.
    let comm = &ranks[1];
    let huge = vec![usize::MAX, 1, usize::MAX];
    let results = [
        comm.start_broadcast(vec![1u8; 3], 3).await,
        comm.start_reduce(vec![1; 3], SUM, usize::MAX).await,
        comm.start_scan(vec![1; 3], ReduceOp::Average).await,
        comm.start_exclusive_scan(vec![1; 3], ReduceOp::Average)
            .await,
        comm.start_all_gather_v(vec![1; 3], vec![3; 2]).await,
        comm.start_all_gather_v(vec![1; 3], vec![3, 2, 3]).await,
        comm.start_all_gather_v(vec![1], huge.clone()).await,
        comm.start_gather(vec![1; 3], 3).await,
        comm.start_gather_v(vec![1; 3], vec![3, 2, 3], 1).await,
        comm.start_gather_v(vec![1], huge.clone(), 1).await,
        comm.start_scatter(vec![1; 7], 2, 1).await,
        comm.start_scatter(vec![1; 6], usize::MAX, 1).await,
        comm.start_scatter_v(vec![1; 6], vec![2; 3], 1, 1).await,
        comm.start_reduce_scatter(vec![1; 7], SUM).await,
        comm.start_reduce_scatter_v(vec![1; 7], vec![2; 3], SUM)
            .await,
        comm.start_reduce_scatter_v(vec![1; 7], vec![7], SUM).await,
        comm.start_all_to_all(vec![1; 7]).await,
        comm.start_all_to_all_v(vec![1; 6], vec![2; 3], huge).await,
        comm.start_neighbor_all_to_all(vec![0, 2], vec![1; 3]).await,
        comm.start_neighbor_all_to_all(vec![0, 3], vec![1; 2]).await,
        comm.start_neighbor_all_to_all_v(vec![0], vec![1; 2], vec![2], vec![])
            .await,
    ];
    for (at, result) in results.into_iter().enumerate() {
        assert!(
            matches!(result, Err(Error::InvalidArgument { .. })),
            "call {at}: {result:?}"
        );
    }
    let and = ReduceOp::BitAnd;
    let refused = comm.start_all_reduce(vec![1f32], and).await;
    assert!(matches!(refused, Err(Error::Unsupported(_))));
    let refused = comm.start_all_reduce_many(vec![vec![1f32]], and).await;
    assert!(matches!(refused, Err(Error::Unsupported(_))));
    on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
}

/// A failure comes out of all operations in flight.
#[tokio::test(start_paused = true)]
async fn a_mismatch_fails_everything_in_flight() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        let length = if comm.rank() == 2 { 4 } else { 3 };
        let all = [
            comm.start_all_reduce(vec![1u8; length], SUM),
            comm.start_all_reduce(vec![1u8; 7], SUM),
            comm.start_broadcast(vec![1u8; 7], 0),
        ];
        for operation in all {
            match operation.await {
                Err(Error::Operation(error)) => {
                    assert!(matches!(error.failure, Failure::Mismatch { .. }), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
}

/// A shutdown waits for what was started before.
async fn shut_down_in_flight<T: Transport>(ranks: Vec<Communicator<T>>) {
    let mut tasks = JoinSet::new();
    for comm in ranks {
        tasks.spawn(async move {
            let world = comm.world_size() as u64;
            let first = comm.start_all_reduce(vec![1u64; 100_000], SUM);
            let last = comm.start_all_reduce(vec![2u64; 3], SUM);
            comm.shutdown().await.unwrap();
            assert!(first.await.unwrap().iter().all(|x| *x == world));
            assert_eq!(last.await.unwrap(), [2 * world; 3]);
        });
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn a_shutdown_waits_for_started_operations() {
    for world in [1, 2, 3] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        shut_down_in_flight(ranks).await;
        for ranks in quic_worlds(world).await {
            shut_down_in_flight(ranks).await;
        }
    }
}

/// Of two communicators without their first one, the last closes the connections, when both have everything.
#[tokio::test]
async fn a_shutdown_does_not_end_another_that_waits() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    let meet = Arc::new(Barrier::new(2));
    let mut tasks = JoinSet::new();
    for comm in ranks {
        let meet = Arc::clone(&meet);
        tasks.spawn(async move {
            let (one, other) = (
                comm.duplicate().await.unwrap(),
                comm.duplicate().await.unwrap(),
            );
            meet.wait().await;
            drop(comm);
            if one.rank() == 1 {
                meet.wait().await;
                one.all_reduce(&mut [1u32], SUM).await.unwrap();
                drop(other);
                return one.shutdown().await.unwrap();
            }
            let sum = one.start_all_reduce(vec![1u32], SUM);
            let mut waiting = pin!(one.shutdown());
            let begun = timeout(Duration::ZERO, &mut waiting).await;
            assert!(begun.is_err());
            other.shutdown().await.unwrap();
            meet.wait().await;
            assert_eq!(sum.await.unwrap(), [2]);
            waiting.await.unwrap();
        });
    }
    tasks.join_all().await;
}

/// A communicator that was made from another can be dropped or shut down while operations are in flight on it.
async fn child_in_flight<T: Transport>(ranks: Vec<Communicator<T>>) {
    on_all(&share(ranks), |comm| async move {
        let world = comm.world_size() as u64;
        for round in 0..20 {
            let child = comm.duplicate().await.unwrap();
            let first = child.start_all_reduce(vec![round; 20_000], SUM);
            let last = child.start_scan(vec![1u64; 3], SUM);
            match (comm.rank() as u64 + round) % 3 {
                0 => drop(child),
                1 => child.shutdown().await.unwrap(),
                _ => {}
            }
            assert!(first.await.unwrap().iter().all(|x| *x == round * world));
            assert_eq!(last.await.unwrap(), [comm.rank() as u64 + 1; 3]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_dropped_group_completes_what_is_in_flight() {
    for world in [2, 3] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        child_in_flight(ranks).await;
    }
    for ranks in quic_worlds(2).await {
        child_in_flight(ranks).await;
    }
}

/// Dropping the first communicator is a failure of this rank, in flight or not: a typed error, or the result.
#[tokio::test]
async fn a_dropped_world_does_not_hang() {
    for _ in 0..5 {
        let ranks = Communicator::local(2).await.unwrap();
        let mut tasks = JoinSet::new();
        for comm in ranks {
            tasks.spawn(async move {
                let rank = comm.rank();
                let operation = comm.start_all_reduce(vec![1u64; 300_000], SUM);
                if rank == 0 {
                    drop(comm);
                }
                let limit = Duration::from_secs(20);
                match timeout(limit, operation).await.unwrap() {
                    Ok(data) => assert!(data.iter().all(|x| *x == 2)),
                    Err(Error::Operation(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            });
        }
        tasks.join_all().await;
    }
}

/// A borrowed buffer is its owner's again once the future is dropped: nothing writes to it any more, and the
/// operation fails on all ranks.
#[tokio::test]
async fn a_dropped_future_lets_go_of_the_buffer() {
    for polls in [1, 2, 5, 20] {
        let (network, _, ranks) = memory_world(3, TimeLimits::default()).await;
        network.set_delay(Duration::from_micros(300), Duration::ZERO);
        let dropped = Arc::new(Notify::new());
        let results = on_all(&share(ranks), |comm| {
            let dropped = Arc::clone(&dropped);
            async move {
                let mut data = vec![comm.rank() as u64 + 1; 200_000];
                if comm.rank() != 1 {
                    // Not all ranks come, so that it cannot be complete.
                    if comm.rank() == 2 {
                        dropped.notified().await;
                    }
                    return comm.all_reduce(&mut data, SUM).await;
                }
                {
                    let mut operation = pin!(comm.all_reduce(&mut data, SUM));
                    for _ in 0..polls {
                        let polled = std::future::poll_fn(|cx| {
                            std::task::Poll::Ready(operation.as_mut().poll(cx).is_ready())
                        });
                        assert!(!polled.await);
                        sleep(Duration::from_micros(100)).await;
                    }
                }
                let after: Vec<u64> = data.clone();
                dropped.notify_one();
                sleep(Duration::from_millis(50)).await;
                assert!(data == after);
                comm.barrier().await
            }
        })
        .await;
        for result in results {
            match result {
                Err(Error::Operation(error)) => assert!(
                    matches!(error.failure, Failure::Aborted { rank: 1, .. }),
                    "{error}"
                ),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A call that is dropped while it waits for another one is one that the other ranks make in vain.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_its_turn_fails_everywhere() {
    for world in [2, 3] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        let results = on_all(&share(ranks), |comm| async move {
            if comm.rank() == 0 {
                let first = comm.start_barrier();
                // The others are not there yet.
                let dropped = timeout(Duration::from_millis(1), comm.barrier()).await;
                assert!(dropped.is_err());
                return first.await.and(comm.barrier().await);
            }
            sleep(Duration::from_millis(100)).await;
            // Complete, or aborted with the other.
            let _ = comm.barrier().await;
            comm.barrier().await
        })
        .await;
        for result in results {
            match result {
                Err(Error::Operation(error)) => assert!(
                    matches!(error.failure, Failure::Aborted { rank: 0, .. }),
                    "{error}"
                ),
                other => panic!("{other:?}"),
            }
        }
    }
}
