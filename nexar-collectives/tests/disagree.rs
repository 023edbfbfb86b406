//! Ranks that call different things: a typed error that names both, on every rank, never a value.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{MemoryCommunicator, memory_world, on_all, share};
use nexar_collectives::{Collective, Error, Failure, ReduceOp, TimeLimits};
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::time::Instant;

type Work = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
type Call = fn(Arc<MemoryCommunicator>) -> Work;

/// Calls that all differ from each other.
const CALLS: [(&str, Call); 12] = [
    ("barrier", |comm| {
        Box::pin(async move { comm.barrier().await })
    }),
    ("all_reduce 4 f32 sum", |comm| {
        Box::pin(async move { comm.all_reduce(&mut [1f32; 4], ReduceOp::Sum).await })
    }),
    ("all_reduce 5 f32 sum", |comm| {
        Box::pin(async move { comm.all_reduce(&mut [1f32; 5], ReduceOp::Sum).await })
    }),
    ("all_reduce 0 f32 sum", |comm| {
        Box::pin(async move { comm.all_reduce::<f32>(&mut [], ReduceOp::Sum).await })
    }),
    ("all_reduce 300000 f32 sum", |comm| {
        Box::pin(async move {
            comm.all_reduce(&mut vec![1f32; 300_000], ReduceOp::Sum)
                .await
        })
    }),
    ("all_reduce 4 i32 sum", |comm| {
        Box::pin(async move { comm.all_reduce(&mut [1i32; 4], ReduceOp::Sum).await })
    }),
    ("all_reduce 4 f32 max", |comm| {
        Box::pin(async move { comm.all_reduce(&mut [1f32; 4], ReduceOp::Max).await })
    }),
    ("broadcast 4 f32 from 0", |comm| {
        Box::pin(async move { comm.broadcast(&mut [1f32; 4], 0).await })
    }),
    ("broadcast 4 f32 from 1", |comm| {
        Box::pin(async move { comm.broadcast(&mut [1f32; 4], 1).await })
    }),
    ("broadcast 300000 f32 from 1", |comm| {
        Box::pin(async move { comm.broadcast(&mut vec![1f32; 300_000], 1).await })
    }),
    ("all_gather 4 f32", |comm| {
        Box::pin(async move {
            let mut output = vec![0.0; 4 * comm.world_size()];
            comm.all_gather(&[1f32; 4], &mut output).await
        })
    }),
    ("reduce_scatter 4 f32", |comm| {
        Box::pin(async move {
            let input = vec![1.0; 4 * comm.world_size()];
            comm.reduce_scatter(&input, &mut [0f32; 4], ReduceOp::Sum)
                .await
        })
    }),
];

#[track_caller]
fn assert_mismatch(results: &[Result<(), Error>], what: &str) {
    for (rank, result) in results.iter().enumerate() {
        let Err(Error::Operation(error)) = result else {
            panic!("{what}: rank {rank} got {result:?}");
        };
        assert_eq!(error.rank, rank, "{what}");
        let Failure::Mismatch { first, second } = &error.failure else {
            panic!("{what}: rank {rank} got {error}");
        };
        assert_ne!(first.1, second.1, "{what}");
        let text = error.to_string();
        for named in [first.0, second.0] {
            assert!(text.contains(&format!("rank {named}")), "{what}: {text}");
        }
        assert!(!results[rank].as_ref().unwrap_err().is_retryable());
    }
}

/// Every pair of different calls between two ranks; time is simulated.
#[tokio::test(start_paused = true)]
async fn any_two_different_calls_of_two_ranks() {
    for (i, (first_name, first)) in CALLS.into_iter().enumerate() {
        for (second_name, second) in CALLS.into_iter().skip(i + 1) {
            let what = format!("{first_name} against {second_name}");
            let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
            let ranks = share(ranks);
            let started = Instant::now();
            let results = on_all(&ranks, |comm| {
                if comm.rank() == 0 {
                    first(comm)
                } else {
                    second(comm)
                }
            })
            .await;
            assert_mismatch(&results, &what);
            assert!(started.elapsed() < Duration::from_secs(2), "{what}");
            // The communicator stays failed, at once and for the same reason.
            let again = on_all(&ranks, |comm| async move { comm.barrier().await }).await;
            assert_mismatch(&again, &what);
        }
    }
}

/// One rank of many differs, wherever it is.
#[tokio::test(start_paused = true)]
async fn one_rank_of_many_differs() {
    for world in [3, 5, 8] {
        for odd in 0..world {
            for (common, other) in [
                (1, 2),
                (1, 4),
                (4, 1),
                (7, 8),
                (8, 7),
                (0, 1),
                (3, 1),
                (10, 11),
            ] {
                let what = format!(
                    "{} on rank {odd} of {world}, {} on the others",
                    CALLS[other].0, CALLS[common].0
                );
                let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
                let ranks = share(ranks);
                let started = Instant::now();
                let results = on_all(&ranks, |comm| {
                    let which = if comm.rank() == odd { other } else { common };
                    CALLS[which].1(comm)
                })
                .await;
                assert!(started.elapsed() < Duration::from_secs(2), "{what}");
                // A broadcast is complete on a rank that got its data from a rank that agrees with it;
                // what comes next fails there too.
                let broadcasts = CALLS[common].0.starts_with("broadcast");
                let done = |rank: usize| broadcasts && rank != odd && results[rank].is_ok();
                assert!(
                    (0..world).filter(|rank| done(*rank)).count() < world - 1,
                    "{what}"
                );
                let again = on_all(&ranks, |comm| async move { comm.barrier().await }).await;
                let verdicts: Vec<_> = results
                    .iter()
                    .zip(again)
                    .enumerate()
                    .map(|(rank, (first, second))| if done(rank) { second } else { first.clone() })
                    .collect();
                assert_mismatch(&verdicts, &what);
            }
        }
    }
}

/// Over real QUIC, with buffers that would be overrun if lengths were believed.
#[tokio::test]
async fn different_lengths_over_quic_leave_the_buffers_alone() {
    let ranks = share(nexar_collectives::Communicator::local(2).await.unwrap());
    let results = on_all(&ranks, |comm| async move {
        let count = if comm.rank() == 0 { 256_000 } else { 512_000 };
        let mut data = vec![1f32; 512_010];
        let result = comm
            .all_reduce(&mut data[5..count + 5], ReduceOp::Sum)
            .await;
        assert!(
            data[..5]
                .iter()
                .chain(&data[count + 5..])
                .all(|x| *x == 1.0)
        );
        result
    })
    .await;
    assert_mismatch(&results, "256000 against 512000");
}

/// Two ranks make 11 steps, the third makes 10 and leaves.
#[tokio::test(start_paused = true)]
async fn a_rank_that_leaves_early_is_named_at_once() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for comm in ranks {
        tasks.spawn(async move {
            let steps = if comm.rank() == 2 { 10 } else { 11 };
            for step in 0..steps {
                let started = Instant::now();
                let mut data = [comm.rank() as i32 + step; 3];
                let result = comm.all_reduce(&mut data, ReduceOp::Sum).await;
                if step < 10 {
                    result.unwrap();
                    assert_eq!(data, [3 + 3 * step; 3]);
                    continue;
                }
                let error = result.unwrap_err();
                assert!(error.is_peer_failure(), "{error}");
                assert_eq!(error.failed_ranks(), [2], "{error}");
                assert!(started.elapsed() < Duration::from_secs(1));
            }
            comm.shutdown().await.unwrap();
        });
    }
    tasks.join_all().await;
}

/// Two ranks make 11 steps, the third makes 10 and sits idle: the time limit names it.
#[tokio::test(start_paused = true)]
async fn a_rank_that_sits_idle_is_named_at_the_time_limit() {
    let limits = TimeLimits::default().with_operation(Duration::from_secs(20));
    let (_network, _, ranks) = memory_world(3, limits).await;
    let ranks = share(ranks);
    let results = on_all(&ranks, |comm| async move {
        for _ in 0..10 {
            comm.barrier().await.unwrap();
        }
        if comm.rank() == 2 {
            return None;
        }
        let started = Instant::now();
        Some((comm.barrier().await.unwrap_err(), started.elapsed()))
    })
    .await;
    for (error, elapsed) in results.into_iter().flatten() {
        let Error::Operation(error) = error else {
            panic!("{error}")
        };
        assert!(matches!(error.failure, Failure::TimedOut { .. }), "{error}");
        assert_eq!(error.failure.ranks(), [2], "{error}");
        assert_eq!(
            (error.operation, error.sequence),
            (Collective::Barrier.name(), Some(10))
        );
        assert!(elapsed >= Duration::from_secs(20) && elapsed < Duration::from_secs(21));
    }
}
