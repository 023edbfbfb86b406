//! Every operation, element type and reduction against a serial model, exactly.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{MemoryCommunicator, WORLDS, memory_world, on_all, share};
use nexar_collectives::{Communicator, Element, Error, ReduceOp, TimeLimits, bf16, f16};
use std::sync::Arc;

/// An element type with test values and a model of the reductions.
trait Modelled: Element {
    /// A value for a rank and index, different between neighbours in both.
    fn value(rank: usize, index: usize) -> Self;
    /// The reduction of the ranks' values in one place.
    fn reduced(op: ReduceOp, values: &[Self]) -> Self;
    /// Bits, so that comparisons are exact.
    fn bits(self) -> u64;
}

macro_rules! modelled_integers {
    ($($t:ty),*) => {$(
        impl Modelled for $t {
            fn value(rank: usize, index: usize) -> $t {
                // Spread over the whole range, so that sums wrap.
                (rank as u64 + 1)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .wrapping_add((index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03))
                    .rotate_left(23) as $t
            }

            fn reduced(op: ReduceOp, values: &[$t]) -> $t {
                let truth = |x: $t| x != 0;
                let fold = |f: fn($t, $t) -> $t| values.iter().copied().reduce(f).unwrap();
                match op {
                    ReduceOp::Sum => fold(<$t>::wrapping_add),
                    ReduceOp::Product => fold(<$t>::wrapping_mul),
                    ReduceOp::Min => fold(<$t>::min),
                    ReduceOp::Max => fold(<$t>::max),
                    ReduceOp::Average => {
                        let sum: i128 = values.iter().map(|x| *x as i128).sum();
                        (sum / values.len() as i128) as $t
                    }
                    ReduceOp::BitAnd => fold(|a, b| a & b),
                    ReduceOp::BitOr => fold(|a, b| a | b),
                    ReduceOp::BitXor => fold(|a, b| a ^ b),
                    ReduceOp::LogicalAnd => values.iter().all(|x| truth(*x)) as $t,
                    ReduceOp::LogicalOr => values.iter().any(|x| truth(*x)) as $t,
                    ReduceOp::LogicalXor => {
                        (values.iter().filter(|x| truth(**x)).count() % 2) as $t
                    }
                    _ => unreachable!(),
                }
            }

            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}

modelled_integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! modelled_floats {
    ($($t:ty: $wide:ty, $narrow:expr, $widen:expr);*) => {$(
        impl Modelled for $t {
            fn value(rank: usize, index: usize) -> $t {
                // Sums and products of these over a few ranks are exact in every float type.
                const VALUES: [$wide; 7] = [1.0, -2.0, 0.5, 3.0, -1.0, 2.0, -0.5];
                ($narrow)(VALUES[(rank * 3 + index) % 7])
            }

            fn reduced(op: ReduceOp, values: &[$t]) -> $t {
                let wide = values.iter().copied().map($widen);
                let count = values.len() as $wide;
                ($narrow)(match op {
                    ReduceOp::Sum => wide.sum::<$wide>(),
                    ReduceOp::Product => wide.product::<$wide>(),
                    ReduceOp::Min => wide.reduce(<$wide>::min).unwrap(),
                    ReduceOp::Max => wide.reduce(<$wide>::max).unwrap(),
                    ReduceOp::Average => wide.sum::<$wide>() / count,
                    _ => unreachable!(),
                })
            }

            fn bits(self) -> u64 {
                self.to_bits() as u64
            }
        }
    )*};
}

modelled_floats!(
    f32: f32, |x: f32| x, |x: f32| x;
    f64: f64, |x: f64| x, |x: f64| x;
    f16: f32, f16::from_f32, f16::to_f32;
    bf16: f32, bf16::from_f32, bf16::to_f32
);

impl Modelled for bool {
    fn value(rank: usize, index: usize) -> bool {
        (rank * 5 + index * 3) % 4 != 1
    }

    fn reduced(op: ReduceOp, values: &[bool]) -> bool {
        match op {
            ReduceOp::Min | ReduceOp::BitAnd | ReduceOp::LogicalAnd => values.iter().all(|x| *x),
            ReduceOp::Max | ReduceOp::BitOr | ReduceOp::LogicalOr => values.iter().any(|x| *x),
            ReduceOp::BitXor | ReduceOp::LogicalXor => {
                values.iter().filter(|x| **x).count() % 2 == 1
            }
            _ => unreachable!(),
        }
    }

    fn bits(self) -> u64 {
        self as u64
    }
}

fn values<E: Modelled>(rank: usize, range: std::ops::Range<usize>) -> Vec<E> {
    range.map(|index| E::value(rank, index)).collect()
}

fn expected<E: Modelled>(op: ReduceOp, world: usize, range: std::ops::Range<usize>) -> Vec<E> {
    range
        .map(|index| {
            let all: Vec<E> = (0..world).map(|rank| E::value(rank, index)).collect();
            // A single rank gets back what it gave, a truth value other than 0 and 1 too.
            if world == 1 {
                all[0]
            } else {
                E::reduced(op, &all)
            }
        })
        .collect()
}

#[track_caller]
fn assert_bits<E: Modelled>(found: &[E], expected: &[E], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert_eq!(
            a.bits(),
            b.bits(),
            "{what}, element {index}: {a:?} instead of {b:?}"
        );
    }
}

async fn check_reductions<E: Modelled>(comm: &MemoryCommunicator, count: usize) {
    let (world, rank) = (comm.world_size(), comm.rank());
    for op in ReduceOp::ALL {
        let what = format!(
            "{op} of {count} x {} on rank {rank} of {world}",
            E::DATA_TYPE
        );
        let mut data = values::<E>(rank, 0..count);
        if !op.supports(E::DATA_TYPE) {
            let before = data.clone();
            let refused = comm.all_reduce(&mut data, op).await.unwrap_err();
            assert!(
                matches!(refused, Error::Unsupported(_)),
                "{what}: {refused}"
            );
            assert_bits(&data, &before, &what);
            continue;
        }
        comm.all_reduce(&mut data, op).await.unwrap();
        assert_bits(
            &data,
            &expected(op, world, 0..count),
            &format!("all_reduce {what}"),
        );

        let input = values::<E>(rank, 0..count * world);
        let mut block = vec![E::value(9, 9); count];
        comm.reduce_scatter(&input, &mut block, op).await.unwrap();
        let mine = rank * count..(rank + 1) * count;
        assert_bits(
            &block,
            &expected(op, world, mine),
            &format!("reduce_scatter {what}"),
        );
        assert_bits(
            &input,
            &values::<E>(rank, 0..count * world),
            "the input is unchanged",
        );
    }
}

async fn check_copies<E: Modelled>(comm: &MemoryCommunicator, count: usize) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!("{count} x {} on rank {rank} of {world}", E::DATA_TYPE);
    for root in 0..world {
        let mut data = values::<E>(rank, 0..count);
        comm.broadcast(&mut data, root).await.unwrap();
        assert_bits(
            &data,
            &values::<E>(root, 0..count),
            &format!("broadcast from {root}, {what}"),
        );
    }
    let input = values::<E>(rank, 0..count);
    let mut output = vec![E::value(9, 9); count * world];
    comm.all_gather(&input, &mut output).await.unwrap();
    let all: Vec<E> = (0..world).flat_map(|r| values::<E>(r, 0..count)).collect();
    assert_bits(&output, &all, &format!("all_gather {what}"));
    assert_bits(
        &input,
        &values::<E>(rank, 0..count),
        "the input is unchanged",
    );
}

async fn check_type<E: Modelled>(comm: &MemoryCommunicator) {
    for count in [0, 1, 2, 4, 9, 67] {
        check_reductions::<E>(comm, count).await;
        check_copies::<E>(comm, count).await;
    }
}

async fn check_all_types(comm: Arc<MemoryCommunicator>) {
    check_type::<f32>(&comm).await;
    check_type::<f64>(&comm).await;
    check_type::<f16>(&comm).await;
    check_type::<bf16>(&comm).await;
    check_type::<i8>(&comm).await;
    check_type::<i16>(&comm).await;
    check_type::<i32>(&comm).await;
    check_type::<i64>(&comm).await;
    check_type::<u8>(&comm).await;
    check_type::<u16>(&comm).await;
    check_type::<u32>(&comm).await;
    check_type::<u64>(&comm).await;
    check_type::<bool>(&comm).await;
    comm.barrier().await.unwrap();
}

#[tokio::test]
async fn every_type_and_reduction_in_every_world() {
    for world in WORLDS {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), check_all_types).await;
    }
}

/// Sizes on both sides of every switch of algorithm, and of the segment and block lengths.
#[tokio::test]
async fn counts_around_the_switches() {
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            for count in [1023, 1024, 1025, 16_383, 16_385, 65_537, 200_003] {
                let (world, rank) = (comm.world_size(), comm.rank());
                let what = format!("{count} on rank {rank} of {world}");
                let mut data = values::<f32>(rank, 0..count);
                comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                assert_bits(&data, &expected(ReduceOp::Sum, world, 0..count), &what);
                let mut data = values::<bf16>(rank, 0..count);
                comm.all_reduce(&mut data, ReduceOp::Average).await.unwrap();
                assert_bits(&data, &expected(ReduceOp::Average, world, 0..count), &what);
                let mut data = values::<i64>(rank, 0..count);
                comm.all_reduce(&mut data, ReduceOp::Average).await.unwrap();
                assert_bits(&data, &expected(ReduceOp::Average, world, 0..count), &what);
                check_copies::<u16>(&comm, count).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_part_of_a_buffer_leaves_the_rest_alone() {
    for world in WORLDS {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let (world, rank) = (comm.world_size(), comm.rank());
            let canary = -77i32;
            let mut data = [canary; 16];
            data[3..8].copy_from_slice(&values::<i32>(rank, 0..5));
            comm.all_reduce(&mut data[3..8], ReduceOp::Sum)
                .await
                .unwrap();
            assert_bits(
                &data[3..8],
                &expected(ReduceOp::Sum, world, 0..5),
                "all_reduce",
            );
            comm.broadcast(&mut data[3..8], world - 1).await.unwrap();
            comm.reduce_scatter(
                &values::<i32>(rank, 0..5 * world),
                &mut data[3..8],
                ReduceOp::Max,
            )
            .await
            .unwrap();
            let mine = rank * 5..(rank + 1) * 5;
            assert_bits(
                &data[3..8],
                &expected(ReduceOp::Max, world, mine),
                "reduce_scatter",
            );
            assert!(data[..3].iter().chain(&data[8..]).all(|x| *x == canary));
            let mut gathered = vec![canary; 5 * world + 4];
            comm.all_gather(&values::<i32>(rank, 0..5), &mut gathered[2..5 * world + 2])
                .await
                .unwrap();
            assert_eq!(gathered[..2], [canary; 2]);
            assert_eq!(gathered[5 * world + 2..], [canary; 2]);
        })
        .await;
    }
}

#[tokio::test]
async fn unsigned_extremes_compare_unsigned() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        let all = [[u64::MAX, 1], [(1 << 63) - 1, u64::MAX], [0, 1 << 63]];
        let mut data = all[comm.rank()];
        comm.all_reduce(&mut data, ReduceOp::Max).await.unwrap();
        assert_eq!(data, [u64::MAX, u64::MAX]);
        let mut data = all[comm.rank()];
        comm.all_reduce(&mut data, ReduceOp::Min).await.unwrap();
        assert_eq!(data, [0, 1]);
    })
    .await;
}

#[tokio::test]
async fn a_nan_on_any_rank_reaches_every_rank_with_the_same_bits() {
    let payload = f32::from_bits(0x7fc1_2345);
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        let ranks = share(ranks);
        for (op, count) in [
            ReduceOp::Max,
            ReduceOp::Min,
            ReduceOp::Sum,
            ReduceOp::Average,
        ]
        .into_iter()
        .flat_map(|op| [(op, 5), (op, 40_000)])
        {
            let results = on_all(&ranks, move |comm| async move {
                let mut data = vec![comm.rank() as f32; count];
                // Every rank has one at a place of its own, and all have one at the last place.
                data[comm.rank() % (count - 1)] = payload;
                data[count - 1] = f32::from_bits(0x7fc0_0000 + comm.rank() as u32);
                comm.all_reduce(&mut data, op).await.unwrap();
                let half: Vec<f16> = (0..count)
                    .map(|i| if i == comm.rank() { f16::NAN } else { f16::ONE })
                    .collect();
                let mut half = half;
                comm.all_reduce(&mut half, op).await.unwrap();
                let bits: Vec<u32> = data.iter().map(|x| x.to_bits()).collect();
                let half_bits: Vec<u16> = half.iter().map(|x| x.to_bits()).collect();
                (bits, half_bits, data, half)
            })
            .await;
            for (bits, half_bits, data, half) in &results {
                assert_eq!(
                    (bits, half_bits),
                    (&results[0].0, &results[0].1),
                    "{op} {count}"
                );
                for rank in 0..world {
                    assert!(data[rank % (count - 1)].is_nan(), "{op} {count}");
                    assert!(half[rank % count].is_nan() || rank >= count, "{op} {count}");
                }
                assert!(data[count - 1].is_nan());
            }
        }
    }
}

/// Sums that depend on the order of the operands give the same bits on every rank and in every run.
#[tokio::test]
async fn results_are_bit_identical_and_repeatable() {
    let mut first: Option<Vec<Vec<u32>>> = None;
    for _ in 0..3 {
        let (network, _, ranks) = memory_world(4, TimeLimits::default()).await;
        // Arrivals in another order must not matter.
        network.set_delay(
            std::time::Duration::ZERO,
            std::time::Duration::from_micros(200),
        );
        let results = on_all(&share(ranks), |comm| async move {
            let mut all = Vec::new();
            for count in [4, 1000, 30_000] {
                let spread = [1e8f32, 1.0, -1e8, 1.0][comm.rank()];
                let mut data: Vec<f32> = (0..count)
                    .map(|i| spread * (1.0 + (i % 17) as f32 * 1e-3))
                    .collect();
                comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                all.extend(data.iter().map(|x| x.to_bits()));
            }
            all
        })
        .await;
        assert!(results.iter().all(|bits| *bits == results[0]));
        assert_eq!(first.get_or_insert_with(|| results.clone()), &results);
    }
}

#[tokio::test]
async fn lengths_are_checked_before_any_traffic() {
    let (network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let ranks = share(ranks);
    on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
    let comm: &Communicator<_> = &ranks[0];
    let writes = network.total_stats().bytes;
    let invalid = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::InvalidArgument { .. })));
    };
    invalid(comm.all_gather(&[1u8; 4], &mut [0; 11]).await);
    invalid(
        comm.reduce_scatter(&[1u8; 11], &mut [0; 4], ReduceOp::Sum)
            .await,
    );
    invalid(comm.broadcast(&mut [1u8; 4], 3).await);
    // Heartbeats may have been sent meanwhile; a collective would be far longer.
    assert!(network.total_stats().bytes - writes < 64);
    on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
}

#[tokio::test]
async fn real_quic_carries_the_same_values() {
    for world in [1, 2, 3, 5] {
        let ranks = share(Communicator::local(world).await.unwrap());
        on_all(&ranks, |comm| async move {
            let (world, rank) = (comm.world_size(), comm.rank());
            for count in [0, 1, 3, 1000, 300_001] {
                let what = format!("{count} on rank {rank} of {world}");
                let mut data = values::<f32>(rank, 0..count);
                comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                assert_bits(&data, &expected(ReduceOp::Sum, world, 0..count), &what);
                let mut data = values::<f16>(rank, 0..count);
                comm.broadcast(&mut data, world / 2).await.unwrap();
                assert_bits(&data, &values::<f16>(world / 2, 0..count), &what);
                let mut all = vec![0u8; count * world];
                comm.all_gather(&values::<u8>(rank, 0..count), &mut all)
                    .await
                    .unwrap();
                let gathered: Vec<u8> =
                    (0..world).flat_map(|r| values::<u8>(r, 0..count)).collect();
                assert_bits(&all, &gathered, &what);
                let mut block = vec![0i32; count];
                comm.reduce_scatter(
                    &values::<i32>(rank, 0..count * world),
                    &mut block,
                    ReduceOp::Sum,
                )
                .await
                .unwrap();
                let mine = rank * count..(rank + 1) * count;
                assert_bits(&block, &expected(ReduceOp::Sum, world, mine), &what);
            }
            comm.barrier().await.unwrap();
        })
        .await;
    }
}
