//! Results that have to be rounded.

use super::{
    common::{memory_world, on_all, share},
    model::Framed,
};
use nexar_collectives::{
    Communicator, Element, ReduceOp, TimeLimits, bf16, f16, transport::Transport,
};
use std::time::Duration;

/// Counts for algorithms for few and for many bytes, of elements of 2 bytes.
const COUNTS: [usize; 4] = [1, 7, 3001, 40_001];

/// 16-bit floats, by way of f32.
trait Half: Element + super::model::Modelled {
    /// Integers up to this one are represented.
    const EXACT: f32;
    fn rounded(value: f32) -> Self;
    fn wide(self) -> f32;
}

impl Half for f16 {
    const EXACT: f32 = 2048.0;

    fn rounded(value: f32) -> f16 {
        f16::from_f32(value)
    }

    fn wide(self) -> f32 {
        self.to_f32()
    }
}

impl Half for bf16 {
    const EXACT: f32 = 256.0;

    fn rounded(value: f32) -> bf16 {
        bf16::from_f32(value)
    }

    fn wide(self) -> f32 {
        self.to_f32()
    }
}

/// Each partial sum of these would have to be rounded in 16 bits, and none has to be in 32.
fn term<E: Half>(rank: usize, index: usize) -> E {
    match rank {
        0 => E::rounded(E::EXACT),
        _ => E::rounded(1.0 + ((rank + index) % 3) as f32 * 2.0),
    }
}

/// Factors close to 1 on three ranks, and powers of two on the others, for the same reason.
fn factor<E: Half>(rank: usize, index: usize) -> E {
    match rank {
        0..=1 => E::rounded(1.0 + (index % 7 * 2 + 1) as f32 / E::EXACT * 2.0),
        2 if E::EXACT < 1000.0 => E::rounded(1.0 + 2.0 / E::EXACT),
        _ => E::rounded([0.5, 2.0][(rank + index) % 2]),
    }
}

async fn halves_are_rounded_once<T: Transport, E: Half>(comm: &Communicator<T>) {
    let (world, rank) = (comm.world_size(), comm.rank());
    for count in COUNTS {
        let what = format!("{count} x {} on {rank} of {world}", E::DATA_TYPE);
        let all = |value: fn(usize, usize) -> E, op: fn(f32, f32) -> f32, ranks: usize| {
            let in_one = |index| {
                let values = (0..ranks).map(|rank| value(rank, index).wide());
                values.reduce(op).unwrap()
            };
            (0..count).map(in_one).collect::<Vec<f32>>()
        };
        let add: fn(f32, f32) -> f32 = |a, b| a + b;
        let sums = all(term::<E>, add, world);
        let average = sums.iter().map(|sum| E::rounded(sum / world as f32));
        let prefix = all(term::<E>, add, rank + 1);
        let products = all(factor::<E>, |a, b| a * b, world);
        let round = |wide: Vec<f32>| -> Vec<E> { wide.into_iter().map(E::rounded).collect() };

        let terms: Vec<E> = (0..count).map(|index| term(rank, index)).collect();
        let mut data = Framed::new(&terms);
        comm.all_reduce(data.slice_mut(), ReduceOp::Average)
            .await
            .unwrap();
        data.expect(&average.collect::<Vec<E>>(), &format!("average {what}"));
        let mut data = Framed::new(&terms);
        comm.all_reduce(data.slice_mut(), ReduceOp::Sum)
            .await
            .unwrap();
        data.expect(&round(sums.clone()), &format!("sum {what}"));
        let mut data = Framed::new(&terms);
        comm.reduce(data.slice_mut(), ReduceOp::Sum, world - 1)
            .await
            .unwrap();
        if rank == world - 1 {
            data.expect(&round(sums), &format!("reduce {what}"));
        }
        let mut data = Framed::new(&terms);
        comm.scan(data.slice_mut(), ReduceOp::Sum).await.unwrap();
        data.expect(&round(prefix), &format!("scan {what}"));

        let factors: Vec<E> = (0..count).map(|index| factor(rank, index)).collect();
        let mut data = Framed::new(&factors);
        comm.all_reduce(data.slice_mut(), ReduceOp::Product)
            .await
            .unwrap();
        data.expect(&round(products.clone()), &format!("product {what}"));
        let input = vec![factors; world].concat();
        let mut block = Framed::empty(count);
        comm.reduce_scatter(&input, block.slice_mut(), ReduceOp::Product)
            .await
            .unwrap();
        block.expect(&round(products), &format!("reduce_scatter {what}"));
    }
}

#[tokio::test]
async fn halves_are_accumulated_wide_and_rounded_once() {
    for world in [1, 2, 3, 5, 8] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            halves_are_rounded_once::<_, f16>(&comm).await;
            halves_are_rounded_once::<_, bf16>(&comm).await;
        })
        .await;
    }
}

/// Averages of the largest and smallest integers do not overflow on the way, and are rounded toward zero.
#[tokio::test]
async fn averages_of_extreme_integers() {
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let first = comm.rank() == 0;
            for count in [2, 20_000] {
                let mut high = vec![u64::MAX; count];
                let mut low = vec![if first { i64::MIN + 1 } else { i64::MIN }; count];
                let mut narrow = vec![if first { -128i8 } else { -127 }; count];
                let mut small = vec![if first { -1i32 } else { 0 }; count];
                comm.all_reduce(&mut high, ReduceOp::Average).await.unwrap();
                comm.all_reduce(&mut low, ReduceOp::Average).await.unwrap();
                comm.all_reduce(&mut narrow, ReduceOp::Average)
                    .await
                    .unwrap();
                comm.all_reduce(&mut small, ReduceOp::Average)
                    .await
                    .unwrap();
                assert!(high.iter().all(|x| *x == u64::MAX));
                assert!(low.iter().all(|x| *x == i64::MIN + 1));
                assert!(narrow.iter().all(|x| *x == -127));
                assert!(small.iter().all(|x| *x == 0));
            }
        })
        .await;
    }
}

#[tokio::test]
async fn extremes_compare_by_their_sign() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        let all = [[u64::MAX, 1], [(1 << 63) - 1, u64::MAX], [0, 1 << 63]];
        let mut data = all[comm.rank()];
        comm.all_reduce(&mut data, ReduceOp::Max).await.unwrap();
        assert_eq!(data, [u64::MAX, u64::MAX]);
        let mut data = all[comm.rank()];
        comm.all_reduce(&mut data, ReduceOp::Min).await.unwrap();
        assert_eq!(data, [0, 1]);
        let mut data = all[comm.rank()].map(|x| x as i64);
        comm.all_reduce(&mut data, ReduceOp::Max).await.unwrap();
        assert_eq!(data, [i64::MAX, 1]);
        let mut data = all[comm.rank()].map(|x| x as i64);
        comm.scan(&mut data, ReduceOp::Min).await.unwrap();
        assert_eq!(data, [[-1, 1], [-1, -1], [-1, i64::MIN]][comm.rank()]);
    })
    .await;
}

/// Sums that depend on the order of the operands give the same bits on every rank and in every run.
#[tokio::test]
async fn sums_that_round_are_the_same_everywhere_and_again() {
    for world in [3, 4, 7] {
        let mut first: Option<Vec<Vec<u32>>> = None;
        for run in 0..3 {
            let (network, _, ranks) = memory_world(world, TimeLimits::default()).await;
            // Arrivals in another order must not matter.
            let jitter = Duration::from_micros(100 * run);
            network.set_delay(Duration::ZERO, jitter);
            let results = on_all(&share(ranks), |comm| async move {
                let (world, rank) = (comm.world_size(), comm.rank());
                let spread = [1e8f32, 1.0, -1e8, 0.3][rank % 4];
                let (mut all, mut own) = (Vec::new(), Vec::new());
                for count in [4, 1000, 30_000] {
                    let input: Vec<f32> = (0..count * world)
                        .map(|i| spread * (1.0 + (i % 17) as f32 * 1e-3))
                        .collect();
                    let mut data = input[..count].to_vec();
                    comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                    all.extend(data.iter().map(|x| x.to_bits()));
                    comm.reduce(&mut data, ReduceOp::Average, 1).await.unwrap();
                    own.extend(data.iter().map(|x| x.to_bits()));
                    comm.scan(&mut data, ReduceOp::Product).await.unwrap();
                    own.extend(data.iter().map(|x| x.to_bits()));
                    comm.reduce_scatter(&input, &mut data, ReduceOp::Sum)
                        .await
                        .unwrap();
                    own.extend(data.iter().map(|x| x.to_bits()));
                }
                (all, own)
            })
            .await;
            let (all, own): (Vec<_>, Vec<_>) = results.into_iter().unzip();
            assert!(all.iter().all(|bits| *bits == all[0]), "{world} ranks");
            let found = [all, own].concat();
            assert!(
                *first.get_or_insert_with(|| found.clone()) == found,
                "{world} ranks"
            );
        }
    }
}
