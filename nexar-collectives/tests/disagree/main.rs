//! Ranks that call different things: a typed error that names both, on every rank, never a value.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod variants;

use calls::{CALLS, Call, Work, all, blocks, call};
use common::{MemoryCommunicator, memory_world, on_all, share};
use nexar_collectives::{Collective, Error, Failure, ReduceOp, TimeLimits};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use variants::VARIANTS;

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

/// What came of calls that differ: for each rank the call's result, and that of a barrier after it.
///
/// The calls are made on a communicator of their own, and the one from which it comes is usable afterwards.
async fn differ(
    ranks: &[Arc<MemoryCommunicator>],
    which: impl Fn(usize) -> Call,
    what: &str,
) -> (Vec<Result<(), Error>>, Vec<Result<(), Error>>) {
    let started = Instant::now();
    let results = on_all(ranks, |comm| {
        let call = which(comm.rank());
        async move {
            let child = Arc::new(comm.duplicate().await.unwrap());
            let result = call(Arc::clone(&child)).await;
            // The communicator stays failed, at once and for the same reason.
            let again = child.barrier().await;
            drop(child);
            let mut data = [comm.rank() as i64; 3];
            comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
            let world = comm.world_size() as i64;
            assert_eq!(data, [world * (world - 1) / 2; 3]);
            (result, again)
        }
    })
    .await;
    assert!(started.elapsed() < Duration::from_secs(2), "{what}");
    results.into_iter().unzip()
}

/// Every pair of different calls between two ranks; time is simulated.
#[tokio::test(start_paused = true)]
async fn any_two_different_calls_of_two_ranks() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    let ranks = share(ranks);
    for (i, (first_name, first)) in CALLS.into_iter().enumerate() {
        for (j, (second_name, second)) in CALLS.into_iter().enumerate() {
            if i == j {
                continue;
            }
            let what = format!("{first_name} against {second_name}");
            let (results, again) = differ(&ranks, |rank| [first, second][rank], &what).await;
            assert_mismatch(&results, &what);
            assert_mismatch(&again, &what);
        }
    }
}

/// The same operation with different arguments.
#[tokio::test(start_paused = true)]
async fn different_arguments() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    let ranks = share(ranks);
    for (what, one, other) in VARIANTS {
        for calls in [[one, other], [other, one]] {
            let (results, again) = differ(&ranks, |rank| calls[rank], what).await;
            assert_mismatch(&results, what);
            assert_mismatch(&again, what);
        }
    }
}

/// One rank of three makes another call. The call is complete on a rank that exchanges data only with ranks
/// that agree with it; what comes next fails there, too.
async fn one_of_three_differs(common: Call, other: Call, what: &str) {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let ranks = share(ranks);
    for odd in 0..3 {
        let what = format!("{what}, rank {odd}");
        let which = |rank| if rank == odd { other } else { common };
        let (results, again) = differ(&ranks, which, &what).await;
        let failed = results.iter().filter(|result| result.is_err()).count();
        assert!(failed >= 2 && results[odd].is_err(), "{what}: {results:?}");
        assert_mismatch(&again, &what);
        let verdicts: Vec<_> = (results.into_iter().zip(again))
            .map(|(first, then)| if first.is_ok() { then } else { first })
            .collect();
        assert_mismatch(&verdicts, &what);
    }
}

#[tokio::test(start_paused = true)]
async fn one_rank_of_three_has_other_arguments() {
    for (what, common, other) in VARIANTS {
        one_of_three_differs(common, other, what).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_rank_of_three_calls_something_else() {
    for (i, (common_name, common)) in CALLS.into_iter().enumerate() {
        for step in [1, 5, 17] {
            let (other_name, other) = CALLS[(i + step) % CALLS.len()];
            let what = format!("{common_name} against {other_name}");
            one_of_three_differs(common, other, &what).await;
        }
    }
}

/// A rank that exchanges nothing with anybody has nothing to wait for: its next call shows that it is alone with
/// its list.
#[tokio::test(start_paused = true)]
async fn a_rank_without_neighbours_learns_of_it_with_its_next_call() {
    let nobody: Call = call!(c => c.neighbor_all_to_all::<f32>(&[], &[], &mut []));
    let exchange: Call =
        call!(c => c.neighbor_all_to_all(&all(&c), &blocks(&c, 4), &mut blocks(&c, 4)));
    let barrier: Call = call!(c => c.barrier());
    for world in [2, 3] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        let ranks = share(ranks);
        for (what, others) in [("exchange", exchange), ("barrier", barrier)] {
            for alone in 0..world {
                let which = |rank| if rank == alone { nobody } else { others };
                let (mut results, again) = differ(&ranks, which, what).await;
                assert!(results[alone].is_ok(), "{what}: {results:?}");
                results[alone] = again[alone].clone();
                assert_mismatch(&results, what);
                assert_mismatch(&again, what);
            }
        }
    }
}

/// If it makes no other call, the others ask it where it is.
#[tokio::test(start_paused = true)]
async fn a_rank_without_neighbours_that_makes_no_other_call() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let ranks = share(ranks);
    let started = Instant::now();
    let mut results = on_all(&ranks, |comm| async move {
        match comm.rank() {
            1 => comm.neighbor_all_to_all::<f32>(&[], &[], &mut []).await,
            _ => comm.barrier().await,
        }
    })
    .await;
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(results[1].is_ok());
    results[1] = ranks[1].barrier().await;
    assert_mismatch(&results, "a barrier on the others");
}

/// Blocks of 1, 0 and 4 elements.
#[tokio::test(start_paused = true)]
async fn different_lengths_are_for_all_gather_v() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let ranks = share(ranks);
    let results = on_all(&ranks, |comm| async move {
        let counts = [1, 0, 4];
        let input: Vec<u16> = (0..counts[comm.rank()])
            .map(|index| comm.rank() as u16 * 10 + index)
            .collect();
        let counts = counts.map(usize::from);
        let mut output = [9; 5];
        comm.all_gather_v(&input, &mut output, &counts)
            .await
            .unwrap();
        assert_eq!(output, [0, 20, 21, 22, 23]);
        let mut output = vec![9; input.len() * 3];
        comm.all_gather(&input, &mut output).await
    })
    .await;
    assert_mismatch(&results, "all_gather of 1, 0 and 4 elements");
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
