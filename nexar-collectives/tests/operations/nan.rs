//! A NaN on any rank.

use super::{
    common::{memory_world, on_all, share},
    model::Modelled,
};
use nexar_collectives::{Communicator, ReduceOp, TimeLimits, bf16, f16, transport::Transport};

trait Float: Modelled {
    const ONE: Self;
    /// A NaN that tells ranks apart.
    fn nan(rank: usize) -> Self;
    fn is_nan(self) -> bool;
}

macro_rules! floats {
    ($($t:ty: $bits:ty, $one:expr, $nan:literal);*) => {$(
        impl Float for $t {
            const ONE: Self = $one;

            fn nan(rank: usize) -> $t {
                <$t>::from_bits($nan + rank as $bits)
            }

            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
        }
    )*};
}

floats!(
    f32: u32, 1.0, 0x7fc1_2345;
    f64: u64, 1.0, 0x7ff8_0001_2345_6789;
    f16: u16, f16::ONE, 0x7e11;
    bf16: u16, bf16::ONE, 0xffc3
);

const OPS: [ReduceOp; 5] = [
    ReduceOp::Max,
    ReduceOp::Min,
    ReduceOp::Sum,
    ReduceOp::Product,
    ReduceOp::Average,
];

/// Each rank has a NaN at a place of its own, and all have one at the last place. The bits of what all ranks
/// got.
async fn check<T: Transport, E: Float>(comm: &Communicator<T>, count: usize) -> Vec<u64> {
    let (world, rank) = (comm.world_size(), comm.rank());
    let data = |rank: usize| {
        let mut data = vec![E::ONE; count];
        data[rank] = E::nan(rank);
        data[count - 1] = E::nan(rank);
        data
    };
    let mut bits = Vec::new();
    for op in OPS {
        let what = format!("{op} of {count} x {} on {rank} of {world}", E::DATA_TYPE);
        let expect = |found: &[E], nans: std::ops::Range<usize>| {
            for (index, value) in found.iter().enumerate() {
                let expected = !nans.is_empty() && (nans.contains(&index) || index == count - 1);
                assert_eq!(
                    value.is_nan(),
                    expected,
                    "{what}, element {index}: {value:?}"
                );
            }
        };
        let mut reduced = data(rank);
        comm.all_reduce(&mut reduced, op).await.unwrap();
        expect(&reduced, 0..world);
        bits.extend(reduced.iter().map(|x| x.bits()));

        let root = count % world;
        let mut reduced = data(rank);
        comm.reduce(&mut reduced, op, root).await.unwrap();
        if rank == root {
            expect(&reduced, 0..world);
        }
        let input = vec![data(rank); world].concat();
        comm.reduce_scatter(&input, &mut reduced, op).await.unwrap();
        expect(&reduced, 0..world);
        if op != ReduceOp::Average {
            let mut reduced = data(rank);
            comm.scan(&mut reduced, op).await.unwrap();
            expect(&reduced, 0..rank + 1);
            let mut reduced = data(rank);
            comm.exclusive_scan(&mut reduced, op).await.unwrap();
            if rank > 0 {
                expect(&reduced, 0..rank);
            }
        }
    }
    bits
}

#[tokio::test]
async fn a_nan_on_any_rank_reaches_every_rank_with_the_same_bits() {
    for world in [2, 3, 5, 8] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        let bits = on_all(&share(ranks), |comm| async move {
            let mut bits = Vec::new();
            for count in [9, 20_001] {
                bits.extend(check::<_, f32>(&comm, count).await);
                bits.extend(check::<_, f64>(&comm, count).await);
                bits.extend(check::<_, f16>(&comm, count).await);
                bits.extend(check::<_, bf16>(&comm, count).await);
            }
            bits
        })
        .await;
        assert!(bits.iter().all(|rank| *rank == bits[0]), "{world} ranks");
    }
}
