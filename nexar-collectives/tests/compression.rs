//! Compressed all-reduce between ranks: values, bytes on the wire, disagreement and failure.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{WORLDS, memory_world, on_all, share};
use nexar_collectives::{
    Error, Failure, ReduceOp, TimeLimits,
    compression::{
        Aggregation, BlockQuantization, Compression, CompressionError, Compressor, RandomK, TopK,
    },
};
use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::Poll,
};
use tokio::sync::Barrier;

type State = Compression<Box<dyn Compressor>>;
type Make = fn() -> Box<dyn Compressor>;

const COMPRESSORS: [(&str, Make); 3] = [
    ("top-k", || Box::new(TopK::new(0.05).unwrap())),
    ("random-k", || Box::new(RandomK::new(0.05, 11).unwrap())),
    ("blocks", || Box::new(BlockQuantization::new(32).unwrap())),
];

/// Values with a fraction, different for each rank, round and index.
fn values(rank: usize, round: usize, count: usize) -> Vec<f32> {
    let value = |index: usize| {
        let mixed = (rank * 7919 + round * 104_729 + index * 1_299_709) % 20_011;
        (mixed as f32 - 10_005.0) / 317.0
    };
    (0..count).map(value).collect()
}

fn bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}

/// What every rank gets in some rounds of some lengths, by round; the residuals, by rank and length.
async fn rounds(world: usize, make: Make, rounds: usize) -> Vec<(Vec<Vec<f32>>, Vec<f32>)> {
    let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
    let ranks = share(ranks);
    let mut all = Vec::new();
    for count in [0, 1, 2, 7, 257, 3001] {
        let results = on_all(&ranks, |comm| async move {
            let mut state = State::new(make());
            let mut results = Vec::new();
            for round in 0..rounds {
                let mut data = values(comm.rank(), round, count);
                comm.all_reduce_compressed(&mut data, ReduceOp::Sum, &mut state)
                    .await
                    .unwrap();
                results.push(data);
            }
            assert_eq!(state.round(), rounds as u64);
            (results, state.residual().to_vec())
        })
        .await;
        for (results_of_rank, _) in &results {
            for (first, other) in results[0].0.iter().zip(results_of_rank) {
                assert_eq!(bits(first), bits(other), "world {world}, {count} elements");
            }
        }
        // All that went in has come out, or is in the residuals.
        let mut missing = vec![0f64; count];
        let mut add = |data: &[f32], sign: f64| {
            let pairs = missing.iter_mut().zip(data);
            pairs.for_each(|(sum, value)| *sum += sign * f64::from(*value));
        };
        for (rank, (_, residual)) in results.iter().enumerate() {
            (0..rounds).for_each(|round| add(&values(rank, round, count), 1.0));
            add(residual, -1.0);
        }
        results[0].0.iter().for_each(|result| add(result, -1.0));
        let most = missing.iter().fold(0.0, |most, x| x.abs().max(most));
        assert!(most < 0.01, "world {world}, {count} elements: {most}");
        all.extend(results.into_iter().take(1));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn same_bits_everywhere_and_again_and_nothing_is_lost() {
    for (name, make) in COMPRESSORS {
        for world in WORLDS {
            let first = rounds(world, make, 3).await;
            let second = rounds(world, make, 3).await;
            for ((a, _), (b, _)) in first.iter().zip(&second) {
                let all = |x: &[Vec<f32>]| x.iter().map(|x| bits(x)).collect::<Vec<_>>();
                assert_eq!(all(a), all(b), "{name}, world {world}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn keeping_everything_gives_the_plain_sum() {
    for world in WORLDS {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        let results = on_all(&share(ranks), |comm| async move {
            let mut top_k = Compression::new(TopK::new(1.0).unwrap());
            let mut random_k = Compression::new(RandomK::new(1.0, 5).unwrap());
            let mut all = [(); 3].map(|()| values(comm.rank(), 0, 1001));
            let [gathered, summed, plain] = &mut all;
            comm.all_reduce_compressed(gathered, ReduceOp::Average, &mut top_k)
                .await
                .unwrap();
            comm.all_reduce_compressed(summed, ReduceOp::Sum, &mut random_k)
                .await
                .unwrap();
            comm.all_reduce(plain, ReduceOp::Sum).await.unwrap();
            all
        })
        .await;
        let in_rank_order = |index: usize| {
            let values = (0..world).map(|rank| values(rank, 0, 1001)[index]);
            values.fold(0.0, |sum, value| sum + value) / world as f32
        };
        let in_rank_order: Vec<f32> = (0..1001).map(in_rank_order).collect();
        for [gathered, summed, plain] in results {
            assert_eq!(gathered, in_rank_order);
            assert_eq!(bits(&summed), bits(&plain));
        }
    }
}

/// The most bytes that one of the ranks sends in a call.
async fn bytes_sent<F>(
    world: usize,
    work: impl Fn(Arc<common::MemoryCommunicator>) -> F + Copy,
) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let (network, addresses, ranks) = memory_world(world, TimeLimits::default()).await;
    let ranks = share(ranks);
    let sent = |from: &SocketAddr| -> u64 {
        let to = addresses.iter().filter(|to| *to != from);
        to.map(|to| network.link_stats(*from, *to).bytes).sum()
    };
    // The first call opens the lanes.
    on_all(&ranks, work).await;
    let before: Vec<u64> = addresses.iter().map(sent).collect();
    on_all(&ranks, work).await;
    let after = addresses.iter().map(sent);
    after.zip(before).map(|(a, b)| a - b).max().unwrap() as f64
}

async fn compressed_bytes(world: usize, count: usize, make: Make) -> f64 {
    bytes_sent(world, |comm| async move {
        let mut state = State::new(make());
        let mut data = vec![1.0; count];
        comm.all_reduce_compressed(&mut data, ReduceOp::Sum, &mut state)
            .await
            .unwrap();
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn bytes_on_the_wire_follow_the_formulas() {
    const COUNT: usize = 1 << 17;
    for world in [2, 4] {
        let n = world as f64;
        let plain = bytes_sent(world, |comm| async move {
            let mut data = vec![1f32; COUNT];
            comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
        })
        .await;
        let quantised = compressed_bytes(world, COUNT, || {
            Box::new(BlockQuantization::new(256).unwrap())
        })
        .await;
        let top = compressed_bytes(world, COUNT, || Box::new(TopK::new(0.01).unwrap())).await;
        let random =
            compressed_bytes(world, COUNT, || Box::new(RandomK::new(0.01, 1).unwrap())).await;
        let count = COUNT as f64;
        let near = |actual: f64, formula: f64| {
            // Headers and control frames come on top.
            assert!(
                actual >= formula && actual < formula * 1.01 + 2000.0,
                "{actual}, {formula}"
            );
        };
        near(plain, 8.0 * count * (n - 1.0) / n);
        near(quantised, 2.0 * (1.0 + 4.0 / 256.0) * count * (n - 1.0) / n);
        near(top, 8.0 * (count * 0.01).ceil() * (n - 1.0));
        assert!((0.25..0.26).contains(&(quantised / plain)));
        assert!(random < 0.02 * plain);
    }
}

#[tokio::test(start_paused = true)]
async fn ranks_with_other_settings_are_a_mismatch_on_both() {
    fn state(case: usize, rank: usize) -> (State, usize, ReduceOp) {
        let odd = rank as f64;
        let compressor: Box<dyn Compressor> = match (case, rank) {
            (0, _) => Box::new(TopK::new(0.1 + 0.01 * odd).unwrap()),
            (1, _) => Box::new(RandomK::new(0.1, rank as u64).unwrap()),
            (2, _) => Box::new(BlockQuantization::new(64 + rank).unwrap()),
            (3, 0) => Box::new(RandomK::new(0.2, 1).unwrap()),
            (5, _) => Box::new(RandomK::new(0.1, 1).unwrap()),
            _ => Box::new(TopK::new(0.1).unwrap()),
        };
        let mut state = State::new(compressor);
        if case == 5 {
            state.restore(Vec::new(), rank as u64);
        }
        let count = if case == 4 { 1000 + rank } else { 1000 };
        let op = match (case, rank) {
            (6, 1) => ReduceOp::Average,
            _ => ReduceOp::Sum,
        };
        (state, count, op)
    }
    for case in 0..7 {
        let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
        let results = on_all(&share(ranks), |comm| async move {
            let (mut state, count, op) = state(case, comm.rank());
            let mut data = vec![1.5; count];
            let result = comm.all_reduce_compressed(&mut data, op, &mut state).await;
            assert_eq!(data, vec![1.5; count]);
            result
        })
        .await;
        for result in results {
            let error = result.unwrap_err();
            let Error::Operation(operation) = &error else {
                panic!("case {case}: {error}");
            };
            let mismatch = matches!(operation.failure, Failure::Mismatch { .. });
            assert!(mismatch, "case {case}: {error}");
            assert!(
                error.to_string().contains("all_reduce_compressed"),
                "{error}"
            );
        }
    }
}

/// Claims to be `TopK`, and sends bytes that no `TopK` makes.
struct Liar(TopK);

impl Compressor for Liar {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn digest(&self, round: u64) -> u64 {
        self.0.digest(round)
    }

    fn aggregation(&self) -> Aggregation {
        self.0.aggregation()
    }

    fn compressed_len(&self, count: usize) -> Result<usize, CompressionError> {
        self.0.compressed_len(count)
    }

    fn compress(&self, _: &mut [f32], _: u64, payload: &mut [u8]) -> Result<(), CompressionError> {
        payload.fill(0xff);
        Ok(())
    }

    fn decompress_add(&self, _: &[u8], _: u64, _: &mut [f32]) -> Result<(), CompressionError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_makes_no_sense_names_its_sender_and_changes_nothing() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let ranks = share(ranks);
    let results = on_all(&ranks, |comm| async move {
        let top_k = TopK::new(0.1).unwrap();
        let compressor: Box<dyn Compressor> = match comm.rank() {
            2 => Box::new(Liar(top_k)),
            _ => Box::new(top_k),
        };
        let mut state = State::new(compressor);
        let mut data = values(comm.rank(), 0, 100);
        let result = comm
            .all_reduce_compressed(&mut data, ReduceOp::Sum, &mut state)
            .await;
        if comm.rank() != 2 {
            assert_eq!(data, values(comm.rank(), 0, 100));
            assert_eq!((state.round(), state.residual()), (0, &[][..]));
        }
        result
    })
    .await;
    for result in &results[..2] {
        let error = result.as_ref().unwrap_err();
        assert_eq!(error.failed_ranks(), [2], "{error}");
        assert!(error.to_string().contains("element 4294967295"), "{error}");
    }
    // The liar hears of it at the next call.
    let error = ranks[2].barrier().await.unwrap_err();
    assert_eq!(error.failed_ranks(), [2], "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_changes_neither_data_nor_residual() {
    for (name, make) in COMPRESSORS {
        let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
        let failed = Arc::new(Barrier::new(2));
        let results = on_all(&share(ranks), |comm| {
            let failed = Arc::clone(&failed);
            async move {
                let mut state = State::new(make());
                let mut data = values(comm.rank(), 0, 500);
                comm.all_reduce_compressed(&mut data, ReduceOp::Sum, &mut state)
                    .await
                    .unwrap();
                let residual = state.residual().to_vec();
                let mut data = values(comm.rank(), 1, 500);
                // Rank 2 comes when it is too late, so that rank 1 gives up in the middle and rank 0 waits.
                if comm.rank() == 2 {
                    failed.wait().await;
                }
                let call = comm.all_reduce_compressed(&mut data, ReduceOp::Sum, &mut state);
                let result = match comm.rank() {
                    1 => {
                        assert!(poll_once(call).await.is_pending());
                        None
                    }
                    _ => Some(call.await.unwrap_err()),
                };
                if comm.rank() == 0 {
                    failed.wait().await;
                }
                assert_eq!(data, values(comm.rank(), 1, 500));
                assert_eq!((state.round(), state.residual()), (1, &residual[..]));
                result
            }
        })
        .await;
        for error in results.into_iter().flatten() {
            assert_eq!(error.failed_ranks(), [1], "{name}: {error}");
        }
    }
}

async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[tokio::test]
async fn started_calls_give_back_data_and_compression() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let results = on_all(&share(ranks), |comm| async move {
        let mut awaited = (values(comm.rank(), 0, 100), State::new(COMPRESSORS[2].1()));
        let (data, state) = &mut awaited;
        comm.all_reduce_compressed(data, ReduceOp::Sum, state)
            .await
            .unwrap();
        let (data, state) = (values(comm.rank(), 0, 100), State::new(COMPRESSORS[2].1()));
        let started = comm.start_all_reduce_compressed(data, ReduceOp::Sum, state);
        (awaited, started.await.unwrap())
    })
    .await;
    for ((data, state), (started_data, started_state)) in results {
        assert_eq!(bits(&data), bits(&started_data));
        assert_eq!(bits(state.residual()), bits(started_state.residual()));
        assert_eq!(started_state.round(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_are_checked_before_any_traffic() {
    let (_network, _, mut ranks) = memory_world(1, TimeLimits::default()).await;
    let comm = ranks.remove(0);
    let mut state = Compression::new(TopK::new(0.5).unwrap());
    let error = comm
        .all_reduce_compressed(&mut [1.0], ReduceOp::Max, &mut state)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("only sum and average"),
        "{error}"
    );
    comm.all_reduce_compressed(&mut [1.0; 4], ReduceOp::Sum, &mut state)
        .await
        .unwrap();
    let error = comm
        .all_reduce_compressed(&mut [1.0; 5], ReduceOp::Sum, &mut state)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    let error: Error = TopK::new(2.0).unwrap_err().into();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
}
