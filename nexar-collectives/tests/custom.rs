//! Reductions of one's own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use bytemuck::Pod;
use common::{MemoryCommunicator, memory_world, on_all, share};
use nexar_collectives::{Communicator, Error, Failure, Reduction, TimeLimits};
use std::{ops::Range, sync::Arc};

const WORLDS: [usize; 6] = [1, 2, 3, 5, 8, 16];

/// An associative reduction with a value for each rank and index. The arguments are in order.
trait Modelled: Pod + PartialEq + std::fmt::Debug + Send + Sync {
    fn value(rank: usize, index: usize) -> Self;
    fn combine(a: &Self, b: &Self) -> Self;
    fn reduction() -> Reduction<Self>;

    fn values(rank: usize, range: Range<usize>) -> Vec<Self> {
        range.map(|index| Self::value(rank, index)).collect()
    }

    fn reduced(ranks: Range<usize>, range: Range<usize>) -> Vec<Self> {
        let combined = |index| {
            let values = ranks.clone().map(|rank| Self::value(rank, index));
            values.reduce(|a, b| Self::combine(&a, &b)).unwrap()
        };
        range.map(combined).collect()
    }
}

/// A 2 x 2 matrix of wrapping integers: 16 bytes, and the product depends on the order.
type Matrix = [u32; 4];

impl Modelled for Matrix {
    fn value(rank: usize, index: usize) -> Matrix {
        let (rank, index) = (rank as u32, index as u32);
        [rank + 2, index + 1, 2 * rank + index, 3 * index + 5]
    }

    fn combine(a: &Matrix, b: &Matrix) -> Matrix {
        let cell = |row: usize, column: usize| {
            let left = a[row * 2].wrapping_mul(b[column]);
            left.wrapping_add(a[row * 2 + 1].wrapping_mul(b[2 + column]))
        };
        [cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)]
    }

    fn reduction() -> Reduction<Matrix> {
        Reduction::ordered("matrix product", Self::combine)
    }
}

/// A list of ranks in a fixed place, with its length first: concatenation records the order. 17 bytes, which
/// divide no chunk.
type Ranks = [u8; 17];

impl Modelled for Ranks {
    fn value(rank: usize, index: usize) -> Ranks {
        let mut list = [0; 17];
        (list[0], list[1]) = (1, (rank * 16 + index % 16) as u8);
        list
    }

    fn combine(a: &Ranks, b: &Ranks) -> Ranks {
        let (left, right) = (usize::from(a[0]), usize::from(b[0]));
        let mut list = *a;
        list[0] += b[0];
        list[1 + left..][..right].copy_from_slice(&b[1..][..right]);
        list
    }

    fn reduction() -> Reduction<Ranks> {
        Reduction::ordered("concatenation", Self::combine)
    }
}

/// The longest element: larger than what a chunk has left beside the header.
type Page = [u64; 512];

impl Modelled for Page {
    fn value(rank: usize, index: usize) -> Page {
        std::array::from_fn(|at| (rank * 1_000_003 + index * 513 + at) as u64)
    }

    fn combine(a: &Page, b: &Page) -> Page {
        std::array::from_fn(|at| a[at].wrapping_mul(31).wrapping_add(b[at]))
    }

    fn reduction() -> Reduction<Page> {
        // Not associative, but with ordered operands of two ranks it need not be; see `pages`.
        Reduction::ordered("pages", Self::combine)
    }
}

/// A sum that may be applied in any order.
type Pair = [i64; 2];

impl Modelled for Pair {
    fn value(rank: usize, index: usize) -> Pair {
        [(rank * 7 + index) as i64, i64::MAX - (rank * index) as i64]
    }

    fn combine(a: &Pair, b: &Pair) -> Pair {
        [a[0].wrapping_add(b[0]), a[1].min(b[1])]
    }

    fn reduction() -> Reduction<Pair> {
        Reduction::commutative("sum and minimum", Self::combine)
    }
}

#[track_caller]
fn same<E: Modelled>(found: &[E], expected: &[E], what: &str) {
    let wrong = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(found.len() == expected.len(), "{what}: length");
    if let Some(at) = wrong {
        panic!(
            "{what}, element {at}: {:?} instead of {:?}",
            found[at], expected[at]
        );
    }
}

async fn check<E: Modelled>(comm: &MemoryCommunicator, count: usize, roots: &[usize]) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let own = E::reduction();
    let what = |operation: &str| {
        let name = std::any::type_name::<E>();
        format!("{operation} of {count} x {name} on {rank} of {world}")
    };
    let input = E::values(rank, 0..count);
    let all = E::reduced(0..world, 0..count);
    let mut data = input.clone();
    comm.all_reduce_with(&mut data, &own).await.unwrap();
    same(&data, &all, &what("all_reduce_with"));
    for &root in roots {
        let mut data = input.clone();
        comm.reduce_with(&mut data, &own, root).await.unwrap();
        let expected = if rank == root { &all } else { &input };
        same(&data, expected, &what("reduce_with"));
    }
    let long = E::values(rank, 0..count * world);
    let mut block = input.clone();
    comm.reduce_scatter_with(&long, &mut block, &own)
        .await
        .unwrap();
    let mine = rank * count..(rank + 1) * count;
    same(
        &block,
        &E::reduced(0..world, mine),
        &what("reduce_scatter_with"),
    );
    let mut data = input.clone();
    comm.scan_with(&mut data, &own).await.unwrap();
    same(
        &data,
        &E::reduced(0..rank + 1, 0..count),
        &what("scan_with"),
    );
    let mut data = input.clone();
    comm.exclusive_scan_with(&mut data, &own).await.unwrap();
    let expected = match rank {
        0 => input,
        _ => E::reduced(0..rank, 0..count),
    };
    same(&data, &expected, &what("exclusive_scan_with"));
}

#[tokio::test]
async fn every_root_and_world() {
    for world in WORLDS {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let roots: Vec<usize> = (0..comm.world_size()).collect();
            for count in [0, 1, 5, 19] {
                check::<Matrix>(&comm, count, &roots).await;
                check::<Ranks>(&comm, count, &roots).await;
                check::<Pair>(&comm, count, &roots).await;
            }
        })
        .await;
    }
}

/// Around 4, 64 and 128 KiB, for elements of 16 and 17 bytes.
#[tokio::test]
async fn counts_around_the_switches() {
    for world in WORLDS {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let last = comm.world_size() - 1;
            for count in [256, 257, 4_097, 8_193] {
                check::<Matrix>(&comm, count, &[last]).await;
                check::<Ranks>(&comm, count, &[last / 2]).await;
            }
            check::<Pair>(&comm, 4_097, &[0]).await;
        })
        .await;
    }
}

/// Elements of 4096 bytes are divided among the chunks in which they arrive.
#[tokio::test]
async fn pages() {
    for world in [1, 2] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            for count in [1, 3, 16, 17, 70] {
                check::<Page>(&comm, count, &[0]).await;
            }
        })
        .await;
    }
}

/// As [`pages`], through the packets of real QUIC.
#[tokio::test]
async fn long_elements_over_quic() {
    /// Longer than a datagram, and a sum, which is associative.
    const LENGTH: usize = 256;
    let value = |rank: usize, index: usize| -> [u64; LENGTH] {
        std::array::from_fn(|at| (rank * 1_000_003 + index * 513 + at) as u64)
    };
    for world in [2, 3, 5] {
        let ranks = share(Communicator::local(world).await.unwrap());
        on_all(&ranks, |comm| async move {
            let add =
                |a: &[u64; LENGTH], b: &[u64; LENGTH]| std::array::from_fn(|at| a[at] + b[at]);
            let own = Reduction::ordered("sum", add);
            for count in [1, 70] {
                let (world, rank) = (comm.world_size(), comm.rank());
                let mut data: Vec<_> = (0..count).map(|index| value(rank, index)).collect();
                comm.all_reduce_with(&mut data, &own).await.unwrap();
                for (index, sum) in data.iter().enumerate() {
                    let all = (0..world).map(|rank| value(rank, index));
                    assert_eq!(*sum, all.reduce(|a, b| add(&a, &b)).unwrap());
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn elements_of_no_or_too_many_bytes_are_refused() {
    async fn refused<E: Pod + Send + Sync>(comm: &MemoryCommunicator) {
        let own = Reduction::commutative("first", |a: &E, _: &E| *a);
        let mut data = vec![E::zeroed(); 3];
        let input = data.clone();
        for result in [
            comm.all_reduce_with(&mut data, &own).await,
            comm.reduce_with(&mut data, &own, 0).await,
            comm.reduce_scatter_with(&input, &mut data[..1], &own).await,
            comm.scan_with(&mut data, &own).await,
            comm.exclusive_scan_with(&mut data, &own).await,
        ] {
            assert!(
                matches!(result, Err(Error::InvalidArgument { .. })),
                "{result:?}"
            );
        }
    }
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        // One rank alone: nothing is sent.
        if comm.rank() == 0 {
            refused::<[u8; 0]>(&comm).await;
            refused::<()>(&comm).await;
            refused::<[u64; 1024]>(&comm).await;
            refused::<[[u8; 4096]; 2]>(&comm).await;
        }
        let own = Reduction::<u8>::commutative("sum", |a, b| a + b);
        let root = comm.reduce_with(&mut [1], &own, 3).await;
        assert!(matches!(root, Err(Error::InvalidArgument { .. })));
        comm.barrier().await.unwrap();
    })
    .await;
}

/// A function that panics on one rank aborts the operation on all that need its result, and what comes next on
/// the others.
#[tokio::test(start_paused = true)]
async fn a_panic_aborts_everywhere() {
    for (world, count) in [(2, 9), (2, 50_000), (3, 9), (3, 50_000), (5, 50_000)] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        let results = on_all(&share(ranks), |comm| async move {
            let rank = comm.rank();
            let own = Reduction::commutative("sum", move |a: &u64, b: &u64| {
                assert!(rank != 1, "a panic on purpose");
                a + b
            });
            let task = tokio::spawn({
                let comm = Arc::clone(&comm);
                async move {
                    let mut data = vec![1u64; count];
                    let result = comm.all_reduce_with(&mut data, &own).await;
                    result.inspect(|()| assert!(data.iter().all(|x| *x == world as u64)))
                }
            });
            let result = task.await.ok();
            (result, comm.barrier().await)
        })
        .await;
        for (rank, (result, again)) in results.into_iter().enumerate() {
            // The panic is the caller's own on rank 1.
            assert_eq!(result.is_none(), rank == 1, "{result:?}");
            // Long vectors are combined in part by each rank, for all.
            let complete = result.as_ref().is_some_and(Result::is_ok);
            assert!(!complete || count < 50_000, "{world} ranks, {count}");
            assert!(again.is_err());
            for error in result.into_iter().chain([again]).filter_map(Result::err) {
                let Error::Operation(error) = error else {
                    panic!("{error}");
                };
                assert!(
                    matches!(error.failure, Failure::Aborted { rank: 1, .. }),
                    "{error}"
                );
            }
        }
    }
}
