//! The steps of a compressed all-reduce for whole worlds, without a network.

use super::{
    Aggregation, BlockQuantization, Compression, CompressionError, Compressor, RandomK, TopK,
    state::Shape,
};
use crate::{Error, ReduceOp};
use proptest::prelude::*;

const WORLDS: [usize; 5] = [1, 2, 3, 5, 8];
const LENGTHS: [usize; 7] = [0, 1, 2, 7, 64, 255, 1001];

type State = Compression<Box<dyn Compressor>>;
type Make = fn() -> Box<dyn Compressor>;

fn compressors() -> Vec<(&'static str, Make)> {
    vec![
        ("top-k", || Box::new(TopK::new(0.1).unwrap())),
        ("random-k", || Box::new(RandomK::new(0.1, 99).unwrap())),
        ("blocks of 16", || {
            Box::new(BlockQuantization::new(16).unwrap())
        }),
        ("blocks of 3", || {
            Box::new(BlockQuantization::new(3).unwrap())
        }),
    ]
}

/// Values with a fraction, different for each rank, round and index.
fn values(rank: usize, round: usize, count: usize) -> Vec<f32> {
    let value = |index: usize| {
        let mixed = (rank * 7919 + round * 104_729 + index * 1_299_709) % 20_011;
        (mixed as f32 - 10_005.0) / 317.0
    };
    (0..count).map(value).collect()
}

/// One all-reduce of a world, step by step.
fn all_reduce(states: &mut [State], data: &mut [Vec<f32>], op: ReduceOp) {
    let world = states.len();
    let shapes: Vec<Shape> = (0..world)
        .map(|rank| {
            states[rank]
                .shape(data[rank].len(), op, rank, world)
                .unwrap()
        })
        .collect();
    for (state, data) in states.iter_mut().zip(data.iter()) {
        state.load(data);
    }
    let each = |states: &mut [State], step: &dyn Fn(&mut State, &Shape)| {
        states.iter_mut().zip(&shapes).for_each(|(s, h)| step(s, h));
    };
    match shapes[0].aggregation {
        Aggregation::Gather => {
            each(states, &|s, h| s.pack(h).unwrap());
            gather(states);
            each(states, &|s, h| s.sum_payloads(h).unwrap());
        }
        Aggregation::ReduceScatter { .. } => {
            each(states, &|s, h| s.pack_pieces(h).unwrap());
            let slot = shapes[0].slot;
            let sent: Vec<Vec<u8>> = states.iter().map(|s| s.outgoing.clone()).collect();
            for (rank, state) in states.iter_mut().enumerate() {
                let from = |sent: &Vec<u8>| sent[rank * slot..(rank + 1) * slot].to_vec();
                state.incoming = sent.iter().flat_map(from).collect();
            }
            each(states, &|s, h| s.reduce_piece(h).unwrap());
            gather(states);
            each(states, &|s, h| s.join_pieces(h).unwrap());
        }
        Aggregation::AllReduce => {
            each(states, &|s, h| s.pack(h).unwrap());
            let mut sum = vec![0.0; shapes[0].slot / 4];
            for state in states.iter() {
                let sent = state.outgoing.as_chunks::<4>().0;
                for (sum, value) in sum.iter_mut().zip(sent) {
                    *sum += f32::from_le_bytes(*value);
                }
            }
            let sum: Vec<u8> = sum.iter().flat_map(|x| x.to_le_bytes()).collect();
            for state in states.iter_mut() {
                state.outgoing.clone_from(&sum);
            }
            each(states, &|s, h| s.unpack_sum(h).unwrap());
        }
    }
    for ((state, shape), data) in states.iter_mut().zip(&shapes).zip(data) {
        state.commit(shape, op, data);
    }
}

fn gather(states: &mut [State]) {
    let all: Vec<u8> = states.iter().flat_map(|s| s.outgoing.clone()).collect();
    for state in states {
        state.incoming.clone_from(&all);
    }
}

fn bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}

fn exact_sum(world: usize, rounds: std::ops::Range<usize>, count: usize) -> Vec<f64> {
    let mut sum = vec![0.0; count];
    for round in rounds {
        for rank in 0..world {
            let all = values(rank, round, count);
            sum.iter_mut()
                .zip(all)
                .for_each(|(s, x)| *s += f64::from(x));
        }
    }
    sum
}

#[test]
fn every_rank_gets_the_same_bits_and_again_on_a_second_run() {
    for (name, make) in compressors() {
        for world in WORLDS {
            for count in LENGTHS {
                let run = || {
                    let mut states: Vec<State> =
                        (0..world).map(|_| Compression::new(make())).collect();
                    (0..3)
                        .map(|round| {
                            let mut data: Vec<_> =
                                (0..world).map(|rank| values(rank, round, count)).collect();
                            all_reduce(&mut states, &mut data, ReduceOp::Average);
                            let first = bits(&data[0]);
                            assert!(
                                data.iter().all(|d| bits(d) == first),
                                "{name} {world} {count}"
                            );
                            first
                        })
                        .collect::<Vec<_>>()
                };
                assert_eq!(run(), run(), "{name} {world} {count}");
            }
        }
    }
}

#[test]
fn sparse_compressors_that_keep_all_give_the_sum_in_rank_order() {
    let all: [Make; 2] = [
        || Box::new(TopK::new(1.0).unwrap()),
        || Box::new(RandomK::new(1.0, 3).unwrap()),
    ];
    for make in all {
        for world in WORLDS {
            for count in LENGTHS {
                let mut states: Vec<State> = (0..world).map(|_| Compression::new(make())).collect();
                let mut data: Vec<_> = (0..world).map(|rank| values(rank, 0, count)).collect();
                let plain = |index: usize| data.iter().fold(0.0, |sum, d| sum + d[index]);
                let plain: Vec<f32> = (0..count).map(plain).collect();
                all_reduce(&mut states, &mut data, ReduceOp::Sum);
                assert_eq!(data[0], plain);
                assert!(states[0].residual().iter().all(|x| *x == 0.0));
            }
        }
    }
}

#[test]
fn quantised_sums_stay_within_half_a_step_for_each_stage() {
    let block = 16;
    for world in WORLDS {
        for count in LENGTHS {
            let make = || Box::new(BlockQuantization::new(block).unwrap()) as Box<dyn Compressor>;
            let mut states: Vec<State> = (0..world)
                .map(|_| Compression::without_feedback(make()))
                .collect();
            let mut data: Vec<_> = (0..world).map(|rank| values(rank, 0, count)).collect();
            let inputs = data.clone();
            all_reduce(&mut states, &mut data, ReduceOp::Sum);
            let owned = states[0].shape(count, ReduceOp::Sum, 0, world).unwrap();
            let exact = exact_sum(world, 0..1, count);
            for (index, sum) in exact.iter().enumerate() {
                let start = index / block * block;
                let end = (start + block).min(count);
                let scale = |x: &[f32]| x.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 127.0;
                let owner = (0..world).find(|rank| owned.piece(*rank).contains(&index));
                let others = (0..world).filter(|rank| Some(*rank) != owner);
                let first: f32 = others.map(|rank| scale(&inputs[rank][start..end])).sum();
                let second = scale(&data[0][start..end]);
                let bound = f64::from(first + second) * 0.5001 + 1e-4;
                let error = (f64::from(data[0][index]) - sum).abs();
                assert!(
                    error <= bound,
                    "{world} {count} [{index}]: {error} > {bound}"
                );
            }
            assert!(states.iter().all(|state| state.residual().is_empty()));
        }
    }
}

#[test]
fn results_and_residuals_add_up_to_the_inputs() {
    let rounds = 40;
    for (name, make) in compressors() {
        for world in WORLDS {
            let count = 257;
            let mut states: Vec<State> = (0..world).map(|_| Compression::new(make())).collect();
            let mut total = vec![0.0f64; count];
            for round in 0..rounds {
                let mut data: Vec<_> = (0..world).map(|rank| values(rank, round, count)).collect();
                all_reduce(&mut states, &mut data, ReduceOp::Sum);
                total
                    .iter_mut()
                    .zip(&data[0])
                    .for_each(|(t, x)| *t += f64::from(*x));
            }
            let exact = exact_sum(world, 0..rounds, count);
            for index in 0..count {
                let residual: f64 = states
                    .iter()
                    .map(|state| f64::from(state.residual()[index]))
                    .sum();
                let missing = exact[index] - total[index] - residual;
                assert!(missing.abs() < 0.02, "{name} {world} [{index}]: {missing}");
            }
        }
    }
}

#[test]
fn the_residual_of_top_k_stays_below_its_bound() {
    let (count, ratio) = (200, 0.1);
    let make = || Box::new(TopK::new(ratio).unwrap()) as Box<dyn Compressor>;
    let mut states: Vec<State> = vec![Compression::new(make())];
    let mut largest: f64 = 0.0;
    for round in 0..300 {
        let mut data = vec![values(0, round, count)];
        largest = largest.max(norm(&data[0]));
        all_reduce(&mut states, &mut data, ReduceOp::Sum);
        let q = (1.0 - ratio).sqrt();
        assert!(norm(states[0].residual()) <= largest * q / (1.0 - q));
    }
}

fn norm(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn nan_reaches_every_rank_and_does_not_stay() {
    for (name, make) in compressors()
        .into_iter()
        .filter(|(name, _)| *name != "random-k")
    {
        for world in WORLDS {
            for bad in [f32::NAN, f32::INFINITY] {
                let mut states: Vec<State> = (0..world).map(|_| Compression::new(make())).collect();
                let mut data: Vec<_> = (0..world).map(|rank| values(rank, 0, 100)).collect();
                data[world - 1][41] = bad;
                all_reduce(&mut states, &mut data, ReduceOp::Sum);
                assert!(!data[0][41].is_finite(), "{name} {world}");
                assert!(data.iter().all(|d| bits(d) == bits(&data[0])));
                let mut data: Vec<_> = (0..world).map(|rank| values(rank, 1, 100)).collect();
                all_reduce(&mut states, &mut data, ReduceOp::Sum);
                assert!(data[0].iter().all(|x| x.is_finite()), "{name} {world}");
            }
        }
    }
}

#[test]
fn other_reductions_and_other_lengths_are_refused() {
    let mut states = vec![Compression::new(compressors()[0].1())];
    for op in ReduceOp::ALL {
        let refused = states[0].shape(8, op, 0, 1).is_err();
        assert_eq!(refused, !matches!(op, ReduceOp::Sum | ReduceOp::Average));
    }
    all_reduce(&mut states, &mut [vec![1.0; 8]], ReduceOp::Sum);
    let error = states[0].shape(9, ReduceOp::Sum, 0, 1).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    states[0].restore(Vec::new(), 5);
    assert!(states[0].shape(9, ReduceOp::Sum, 0, 1).is_ok());
    assert_eq!(states[0].round(), 5);
    let mut forgetful = Compression::without_feedback(compressors()[0].1());
    forgetful.restore(vec![1.0; 8], 5);
    assert_eq!((forgetful.round(), forgetful.residual()), (5, &[][..]));
}

#[test]
fn digests_differ_with_everything_that_must_agree() {
    let digest = |compressor: Box<dyn Compressor>, round, count, op| {
        let mut state = Compression::new(compressor);
        state.restore(Vec::new(), round);
        state.digest(count, op)
    };
    let top_k = |ratio| Box::new(TopK::new(ratio).unwrap()) as Box<dyn Compressor>;
    let random = |seed| Box::new(RandomK::new(0.1, seed).unwrap()) as Box<dyn Compressor>;
    let blocks = |block| Box::new(BlockQuantization::new(block).unwrap()) as Box<dyn Compressor>;
    let (sum, average) = (ReduceOp::Sum, ReduceOp::Average);
    let digests = [
        digest(top_k(0.1), 0, 10, sum),
        digest(top_k(0.2), 0, 10, sum),
        digest(top_k(0.1), 0, 11, sum),
        digest(top_k(0.1), 0, 10, average),
        digest(random(1), 0, 10, sum),
        digest(random(2), 0, 10, sum),
        digest(random(1), 1, 10, sum),
        digest(blocks(64), 0, 10, sum),
        digest(blocks(65), 0, 10, sum),
    ];
    for (i, first) in digests.iter().enumerate() {
        assert!(digests[..i].iter().all(|second| second != first), "{i}");
    }
    assert_eq!(digests[0], digest(top_k(0.1), 7, 10, sum));
}

/// Finite values of all magnitudes.
fn finite() -> impl Strategy<Value = f32> {
    any::<f32>().prop_filter("finite", |x| x.is_finite())
}

fn compress(compressor: &dyn Compressor, round: u64, input: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let mut payload = vec![0xee; compressor.compressed_len(input.len()).unwrap()];
    let mut rest = input.to_vec();
    compressor.compress(&mut rest, round, &mut payload).unwrap();
    let mut decoded = vec![0.0; input.len()];
    compressor
        .decompress_add(&payload, round, &mut decoded)
        .unwrap();
    (decoded, rest)
}

proptest! {
    #[test]
    fn sparse_payloads_and_rests_share_the_elements(
        input in prop::collection::vec(finite(), 0..300),
        ratio in 0.001..1.0f64,
        round in any::<u64>(),
    ) {
        let both: [Box<dyn Compressor>; 2] =
            [Box::new(TopK::new(ratio).unwrap()), Box::new(RandomK::new(ratio, 5).unwrap())];
        for compressor in both {
            let (decoded, rest) = compress(&*compressor, round, &input);
            for ((x, kept), rest) in input.iter().zip(&decoded).zip(&rest) {
                prop_assert!((kept == x && *rest == 0.0) || (*kept == 0.0 && rest == x));
            }
        }
    }

    #[test]
    fn top_k_leaves_out_no_more_than_its_share(
        input in prop::collection::vec(finite(), 1..300),
        ratio in 0.001..1.0f64,
    ) {
        let top_k = TopK::new(ratio).unwrap();
        let k = top_k.compressed_len(input.len()).unwrap() / 8;
        let (decoded, rest) = compress(&top_k, 0, &input);
        let share = 1.0 - k as f64 / input.len() as f64;
        prop_assert!(norm(&rest).powi(2) <= share * norm(&input).powi(2) * (1.0 + 1e-12));
        // No element that was left out is larger than one that was kept.
        let mut magnitudes: Vec<f32> = input.iter().map(|x| x.abs()).collect();
        magnitudes.sort_by(|a, b| b.total_cmp(a));
        prop_assert!(rest.iter().all(|x| x.abs() <= magnitudes[k - 1]));
        prop_assert!(decoded.iter().all(|x| *x == 0.0 || x.abs() >= magnitudes[k - 1]));
    }

    #[test]
    fn quantisation_errs_by_at_most_half_a_step(
        input in prop::collection::vec(finite(), 1..300),
        block in 1..80usize,
    ) {
        let quantization = BlockQuantization::new(block).unwrap();
        let (decoded, rest) = compress(&quantization, 0, &input);
        let blocks = input.chunks(block).zip(decoded.chunks(block)).zip(rest.chunks(block));
        for ((input, decoded), rest) in blocks {
            let largest = input.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let step = f64::from(largest) / 127.0;
            let bound = step / 2.0 + step / 32768.0;
            let bound = if largest < 1.5e-36 { f64::from(largest) } else { bound };
            for ((x, y), rest) in input.iter().zip(decoded).zip(rest) {
                let error = f64::from(*x) - f64::from(*y);
                prop_assert!(error.abs() <= bound, "{x} became {y}, off by more than {bound}");
                prop_assert!((error - f64::from(*rest)).abs() <= step / 32768.0 + 1e-44);
            }
        }
    }

    #[test]
    fn hostile_payloads_give_a_value_or_an_error(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        count in 0..200usize,
        round in any::<u64>(),
    ) {
        for (_, make) in compressors() {
            let compressor = make();
            let mut sum = vec![0.0; count];
            let taken = compressor.decompress_add(&payload, round, &mut sum);
            if compressor.compressed_len(count) != Ok(payload.len()) {
                let refused = matches!(taken, Err(CompressionError::Length { .. }));
                prop_assert!(refused);
            }
            // And with the length that is expected.
            let mut exact = payload.clone();
            exact.resize(compressor.compressed_len(count).unwrap(), 0xff);
            let _ = compressor.decompress_add(&exact, round, &mut sum);
        }
    }
}
