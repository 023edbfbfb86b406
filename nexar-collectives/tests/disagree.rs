//! Ranks that call different things: a typed error that names both, on every rank, never a value.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{MemoryCommunicator, memory_world, on_all, share};
use nexar_collectives::{Collective, Error, Failure, ReduceOp, Reduction, TimeLimits};
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::time::Instant;

type Work = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
type Call = fn(Arc<MemoryCommunicator>) -> Work;

const SUM: ReduceOp = ReduceOp::Sum;

macro_rules! call {
    ($comm:ident => $future:expr) => {
        |$comm: Arc<MemoryCommunicator>| -> Work {
            Box::pin(async move { $future.await.map(drop) })
        }
    };
}

/// As many elements as `count` for each rank.
fn blocks(comm: &MemoryCommunicator, count: usize) -> Vec<f32> {
    vec![1.0; count * comm.world_size()]
}

fn counts(comm: &MemoryCommunicator, count: usize) -> Vec<usize> {
    vec![count; comm.world_size()]
}

fn all(comm: &MemoryCommunicator) -> Vec<usize> {
    (0..comm.world_size()).collect()
}

fn named(name: &str) -> Reduction<f32> {
    Reduction::commutative(name, |a: &f32, b: &f32| a + b)
}

/// Calls that all differ from each other: every operation, with the same number of elements where that is
/// possible, and some without elements or with many.
const CALLS: [(&str, Call); 35] = [
    ("barrier", call!(c => c.barrier())),
    (
        "broadcast 4 from 0",
        call!(c => c.broadcast(&mut [1f32; 4], 0)),
    ),
    (
        "broadcast 4 from 1",
        call!(c => c.broadcast(&mut [1f32; 4], 1)),
    ),
    (
        "broadcast 300000 from 1",
        call!(c => c.broadcast(&mut vec![1f32; 300_000], 1)),
    ),
    (
        "reduce 4 to 0",
        call!(c => c.reduce(&mut [1f32; 4], SUM, 0)),
    ),
    (
        "reduce 300000 to 1",
        call!(c => c.reduce(&mut vec![1f32; 300_000], SUM, 1)),
    ),
    (
        "all_reduce 4",
        call!(c => c.all_reduce(&mut [1f32; 4], SUM)),
    ),
    (
        "all_reduce 0",
        call!(c => c.all_reduce::<f32>(&mut [], SUM)),
    ),
    (
        "all_reduce 300000",
        call!(c => c.all_reduce(&mut vec![1f32; 300_000], SUM)),
    ),
    (
        "all_reduce_many 4",
        call!(c => c.all_reduce_many(&mut [&mut [1f32; 4]], SUM)),
    ),
    (
        "all_reduce_with 4",
        call!(c => c.all_reduce_with(&mut [1f32; 4], &named("own"))),
    ),
    (
        "reduce_with 4",
        call!(c => c.reduce_with(&mut [1f32; 4], &named("own"), 0)),
    ),
    (
        "reduce_scatter_with 4",
        call!(c => c.reduce_scatter_with(&blocks(&c, 4), &mut [1f32; 4], &named("own"))),
    ),
    (
        "scan_with 4",
        call!(c => c.scan_with(&mut [1f32; 4], &named("own"))),
    ),
    (
        "exclusive_scan_with 4",
        call!(c => c.exclusive_scan_with(&mut [1f32; 4], &named("own"))),
    ),
    (
        "all_gather 4",
        call!(c => c.all_gather(&[1f32; 4], &mut blocks(&c, 4))),
    ),
    (
        "all_gather_v 4",
        call!(c => c.all_gather_v(&[1f32; 4], &mut blocks(&c, 4), &counts(&c, 4))),
    ),
    (
        "gather 4 to 0",
        call!(c => c.gather(&[1f32; 4], &mut blocks(&c, 4), 0)),
    ),
    (
        "gather 200000 to 1",
        call!(c => c.gather(&vec![1f32; 200_000], &mut blocks(&c, 200_000), 1)),
    ),
    (
        "gather_v 4 to 0",
        call!(c => c.gather_v(&[1f32; 4], &mut blocks(&c, 4), &counts(&c, 4), 0)),
    ),
    (
        "scatter 4 from 0",
        call!(c => c.scatter(&blocks(&c, 4), &mut [1f32; 4], 0)),
    ),
    (
        "scatter 200000 from 1",
        call!(c => c.scatter(&blocks(&c, 200_000), &mut vec![1f32; 200_000], 1)),
    ),
    (
        "scatter_v 4 from 0",
        call!(c => c.scatter_v(&blocks(&c, 4), &counts(&c, 4), &mut [1f32; 4], 0)),
    ),
    (
        "reduce_scatter 4",
        call!(c => c.reduce_scatter(&blocks(&c, 4), &mut [1f32; 4], SUM)),
    ),
    (
        "reduce_scatter_v 4",
        call!(c => c.reduce_scatter_v(&blocks(&c, 4), &mut [1f32; 4], &counts(&c, 4), SUM)),
    ),
    (
        "all_to_all 4",
        call!(c => c.all_to_all(&blocks(&c, 4), &mut blocks(&c, 4))),
    ),
    (
        "all_to_all 100000",
        call!(c => c.all_to_all(&blocks(&c, 100_000), &mut blocks(&c, 100_000))),
    ),
    (
        "all_to_all_v 4",
        call!(c => c.all_to_all_v(
            &blocks(&c, 4),
            &counts(&c, 4),
            &mut blocks(&c, 4),
            &counts(&c, 4),
        )),
    ),
    (
        "neighbor_all_to_all 4",
        call!(c => c.neighbor_all_to_all(&all(&c), &blocks(&c, 4), &mut blocks(&c, 4))),
    ),
    (
        "neighbor_all_to_all_v 4",
        call!(c => c.neighbor_all_to_all_v(
            &all(&c),
            &blocks(&c, 4),
            &counts(&c, 4),
            &mut blocks(&c, 4),
            &counts(&c, 4),
        )),
    ),
    ("scan 4", call!(c => c.scan(&mut [1f32; 4], SUM))),
    (
        "exclusive_scan 4",
        call!(c => c.exclusive_scan(&mut [1f32; 4], SUM)),
    ),
    ("split", call!(c => c.split(Some(1), 0))),
    ("duplicate", call!(c => c.duplicate())),
    ("subgroup", call!(c => c.subgroup(&[0]))),
];

/// Calls of one operation with different arguments: on all ranks but one, and on that one.
const VARIANTS: [(&str, Call, Call); 33] = [
    (
        "counts of a broadcast",
        call!(c => c.broadcast(&mut [1f32; 4], 0)),
        call!(c => c.broadcast(&mut [1f32; 5], 0)),
    ),
    (
        "types of one size",
        call!(c => c.all_reduce(&mut [1f32; 4], SUM)),
        call!(c => c.all_reduce(&mut [1i32; 4], SUM)),
    ),
    (
        "types of different sizes with as many bytes",
        call!(c => c.all_gather(&[1u16; 4], &mut vec![0; 4 * c.world_size()])),
        call!(c => c.all_gather(&[1u32; 2], &mut vec![0; 2 * c.world_size()])),
    ),
    (
        "types of moves",
        call!(c => c.all_to_all(&blocks(&c, 1), &mut blocks(&c, 1))),
        call!(c => c.all_to_all(&vec![1u32; c.world_size()], &mut vec![1; c.world_size()])),
    ),
    (
        "reductions",
        call!(c => c.all_reduce(&mut [1f32; 4], SUM)),
        call!(c => c.all_reduce(&mut [1f32; 4], ReduceOp::Max)),
    ),
    (
        "reductions of a reduce",
        call!(c => c.reduce(&mut [1f32; 4], SUM, 0)),
        call!(c => c.reduce(&mut [1f32; 4], ReduceOp::Average, 0)),
    ),
    (
        "reductions of a scan",
        call!(c => c.scan(&mut [1f32; 4], SUM)),
        call!(c => c.scan(&mut [1f32; 4], ReduceOp::Min)),
    ),
    (
        "roots of a broadcast",
        call!(c => c.broadcast(&mut [1f32; 4], 0)),
        call!(c => c.broadcast(&mut [1f32; 4], 1)),
    ),
    (
        "roots of a reduce",
        call!(c => c.reduce(&mut [1f32; 4], SUM, 0)),
        call!(c => c.reduce(&mut [1f32; 4], SUM, 1)),
    ),
    (
        "roots of a gather",
        call!(c => c.gather(&[1f32; 4], &mut blocks(&c, 4), 0)),
        call!(c => c.gather(&[1f32; 4], &mut blocks(&c, 4), 1)),
    ),
    (
        "roots of a scatter",
        call!(c => c.scatter(&blocks(&c, 4), &mut [1f32; 4], 0)),
        call!(c => c.scatter(&blocks(&c, 4), &mut [1f32; 4], 1)),
    ),
    (
        "roots of a gather without elements",
        call!(c => c.gather::<f32>(&[], &mut [], 0)),
        call!(c => c.gather::<f32>(&[], &mut [], 1)),
    ),
    (
        "counts of a gather",
        call!(c => c.gather(&[1f32; 4], &mut blocks(&c, 4), 0)),
        call!(c => c.gather(&[1f32; 5], &mut blocks(&c, 5), 0)),
    ),
    (
        "counts of a scatter",
        call!(c => c.scatter(&blocks(&c, 4), &mut [1f32; 4], 0)),
        call!(c => c.scatter(&blocks(&c, 3), &mut [1f32; 3], 0)),
    ),
    (
        "counts of an all_gather",
        call!(c => c.all_gather(&[1f32; 4], &mut blocks(&c, 4))),
        call!(c => c.all_gather::<f32>(&[], &mut [])),
    ),
    (
        "counts of a reduce_scatter",
        call!(c => c.reduce_scatter(&blocks(&c, 4), &mut [1f32; 4], SUM)),
        call!(c => c.reduce_scatter(&blocks(&c, 5), &mut [1f32; 5], SUM)),
    ),
    (
        "counts of an all_to_all",
        call!(c => c.all_to_all(&blocks(&c, 4), &mut blocks(&c, 4))),
        call!(c => c.all_to_all(&blocks(&c, 5), &mut blocks(&c, 5))),
    ),
    (
        "counts of a scan",
        call!(c => c.scan(&mut [1f32; 4], SUM)),
        call!(c => c.scan(&mut [1f32; 5], SUM)),
    ),
    (
        "lists of an all_gather_v",
        call!(c => {
            let mut counts = counts(&c, 4);
            (counts[0], counts[1]) = (5, 3);
            let own = counts[c.rank()];
            let c = c;
            async move { c.all_gather_v(&vec![1f32; own], &mut blocks(&c, 4), &counts).await }
        }),
        call!(c => {
            let mut counts = counts(&c, 4);
            (counts[0], counts[1]) = (3, 5);
            let own = counts[c.rank()];
            let c = c;
            async move { c.all_gather_v(&vec![1f32; own], &mut blocks(&c, 4), &counts).await }
        }),
    ),
    (
        "lists of a reduce_scatter_v with the same own blocks",
        call!(c => {
            let mut counts = counts(&c, 4);
            counts[(c.rank() + 1) % c.world_size()] = 5;
            let total: usize = counts.iter().sum();
            let c = c;
            async move {
                let input = vec![1f32; total];
                c.reduce_scatter_v(&input, &mut [1f32; 4], &counts, SUM).await
            }
        }),
        call!(c => c.reduce_scatter_v(&blocks(&c, 4), &mut [1f32; 4], &counts(&c, 4), SUM)),
    ),
    (
        "a block of a gather_v that is longer than the root expects",
        call!(c => c.gather_v(&[1f32; 4], &mut blocks(&c, 4), &counts(&c, 4), 0)),
        call!(c => c.gather_v(&[1f32; 5], &mut blocks(&c, 5), &counts(&c, 5), 0)),
    ),
    (
        "a block of a gather_v that is empty",
        call!(c => c.gather_v(&[1f32; 4], &mut blocks(&c, 4), &counts(&c, 4), 0)),
        call!(c => c.gather_v::<f32>(&[], &mut [], &counts(&c, 0), 0)),
    ),
    (
        "a block of a scatter_v that is shorter than the root sends",
        call!(c => c.scatter_v(&blocks(&c, 4), &counts(&c, 4), &mut [1f32; 4], 0)),
        call!(c => c.scatter_v(&blocks(&c, 3), &counts(&c, 3), &mut [1f32; 3], 0)),
    ),
    (
        "a block of a scatter_v that is not expected",
        call!(c => c.scatter_v(&blocks(&c, 4), &counts(&c, 4), &mut [1f32; 4], 0)),
        call!(c => c.scatter_v::<f32>(&[], &counts(&c, 0), &mut [], 0)),
    ),
    (
        "counts of an all_to_all_v",
        call!(c => c.all_to_all_v(
            &blocks(&c, 4), &counts(&c, 4), &mut blocks(&c, 4), &counts(&c, 4))),
        call!(c => c.all_to_all_v(
            &blocks(&c, 5), &counts(&c, 5), &mut blocks(&c, 4), &counts(&c, 4))),
    ),
    (
        "an all_to_all_v that expects nothing",
        call!(c => c.all_to_all_v(
            &blocks(&c, 4), &counts(&c, 4), &mut blocks(&c, 4), &counts(&c, 4))),
        call!(c => c.all_to_all_v(&blocks(&c, 4), &counts(&c, 4), &mut [], &counts(&c, 0))),
    ),
    (
        "a neighbour that is listed more often, with as many elements",
        call!(c => c.neighbor_all_to_all(&all(&c), &blocks(&c, 4), &mut blocks(&c, 4))),
        call!(c => {
            let twice = [all(&c), all(&c)].concat();
            let c = c;
            async move {
                let mut output = blocks(&c, 4);
                c.neighbor_all_to_all(&twice, &blocks(&c, 4), &mut output).await
            }
        }),
    ),
    (
        "lengths of an all_reduce_many with the same sum",
        call!(c => c.all_reduce_many(&mut [&mut [1f32; 4], &mut [1f32; 2]], SUM)),
        call!(c => c.all_reduce_many(&mut [&mut [1f32; 3], &mut [1f32; 3]], SUM)),
    ),
    (
        "empty buffers of an all_reduce_many",
        call!(c => c.all_reduce_many::<f32>(&mut [], SUM)),
        call!(c => c.all_reduce_many::<f32>(&mut [&mut []], SUM)),
    ),
    (
        "names of reductions",
        call!(c => c.all_reduce_with(&mut [1f32; 4], &named("one"))),
        call!(c => c.all_reduce_with(&mut [1f32; 4], &named("other"))),
    ),
    (
        "elements of reductions of one name",
        call!(c => c.all_reduce_with(&mut [1f32; 4], &named("own"))),
        call!(c => c.all_reduce_with(
            &mut [1f64; 4],
            &Reduction::commutative("own", |a: &f64, b: &f64| a + b),
        )),
    ),
    (
        "lists of a subgroup",
        call!(c => c.subgroup(&[0, 1])),
        call!(c => c.subgroup(&[1, 0])),
    ),
    (
        "lists of a subgroup that one rank is not in",
        call!(c => c.subgroup(&[0])),
        call!(c => c.subgroup(&[1])),
    ),
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
