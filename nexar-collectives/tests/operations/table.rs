//! The tables: which operation is checked with which types, reductions, counts and worlds.

use super::{
    common::{WORLDS, memory_world, on_all, share},
    exchanges::{all_to_all, all_to_all_v, neighbors},
    model::Modelled,
    moves::{all_gather, all_gather_v, rooted, rooted_v},
    reductions::{
        all_reduce, all_reduce_many, all_reduce_scaled, reduce, reduce_scatter, reduce_scatter_v,
    },
    scans::scans,
};
use nexar_collectives::{
    Communicator, Element, ReduceOp, TimeLimits, bf16, f16,
    transport::{Transport, memory::MemoryTransport},
};
use std::{future::Future, sync::Arc};

/// One await of `$check::<_, E>($arguments)` for each type E.
macro_rules! every_type {
    ($check:ident $arguments:tt) => {
        every_type!(@ $check $arguments f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool)
    };
    (@ $check:ident $arguments:tt $($t:ident)*) => {
        $($check::<_, $t> $arguments.await;)*
    };
}

/// Runs `work` on all ranks of each world, over the in-memory network.
async fn in_worlds<F>(worlds: &[usize], work: impl Fn(Arc<Communicator<MemoryTransport>>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for world in worlds {
        let (_network, _, ranks) = memory_world(*world, TimeLimits::default()).await;
        on_all(&share(ranks), &work).await;
    }
}

/// Counts of blocks of different lengths with the given average: some are empty, the first or the last of them
/// too.
fn uneven(world: usize, average: usize, first: usize) -> Vec<usize> {
    (0..world)
        .map(|rank| (rank + first) % 3 * average)
        .collect()
}

/// Every reduction that the type supports.
fn supported<E: Modelled>() -> impl Iterator<Item = ReduceOp> {
    let all = ReduceOp::ALL.into_iter();
    all.filter(|op| op.supports(E::DATA_TYPE))
}

async fn every_reduction<T: Transport, E: Modelled>(comm: &Communicator<T>) {
    let world = comm.world_size();
    for op in supported::<E>() {
        for count in [0, 1, 4, 9] {
            all_reduce::<T, E>(comm, count, op).await;
            reduce_scatter::<T, E>(comm, count, op).await;
            scans::<T, E>(comm, count, op).await;
            reduce::<T, E>(comm, count, op, &[count % world]).await;
        }
        reduce_scatter_v::<T, E>(comm, &uneven(world, 3, 1), op).await;
        all_reduce_many::<T, E>(comm, &[2, 0, 5], op).await;
    }
    if E::DATA_TYPE != bool::DATA_TYPE {
        all_reduce_scaled::<T, E>(comm, 1027).await;
    }
}

/// Reductions of each element type with each operation.
#[tokio::test]
async fn every_type_and_reduction() {
    in_worlds(&WORLDS, |comm| async move {
        every_type!(every_reduction(&comm));
    })
    .await;
}

async fn every_move<T: Transport, E: Modelled>(comm: &Communicator<T>) {
    let world = comm.world_size();
    for count in [0, 1, 4, 9] {
        rooted::<T, E>(comm, count, &[count % world]).await;
        all_gather::<T, E>(comm, count).await;
        all_to_all::<T, E>(comm, count).await;
    }
    for first in 0..3 {
        let counts = uneven(world, 3, first);
        rooted_v::<T, E>(comm, &counts, &[first % world]).await;
        all_gather_v::<T, E>(comm, &counts).await;
        all_to_all_v::<T, E>(comm, |from, to| (from * 2 + to + first) % 4).await;
    }
    neighbors::<T, E>(comm, 3).await;
}

/// Moves of each element type.
#[tokio::test]
async fn every_type_is_moved() {
    in_worlds(&WORLDS, |comm| async move {
        every_type!(every_move(&comm));
    })
    .await;
}

/// All worlds with odd, prime and round numbers of ranks, and every root.
#[tokio::test]
async fn every_world_and_root() {
    in_worlds(&[1, 2, 3, 4, 5, 7, 8, 16], |comm| async move {
        let world = comm.world_size();
        let roots: Vec<usize> = (0..world).collect();
        for count in [0, 1, 13] {
            for op in [ReduceOp::Sum, ReduceOp::Average] {
                all_reduce::<_, i32>(&comm, count, op).await;
                reduce_scatter::<_, i32>(&comm, count, op).await;
                reduce::<_, i32>(&comm, count, op, &roots).await;
                scans::<_, i32>(&comm, count, op).await;
                all_reduce::<_, f16>(&comm, count, op).await;
            }
            rooted::<_, u16>(&comm, count, &roots).await;
            rooted_v::<_, u16>(&comm, &uneven(world, count, 2), &roots).await;
            all_gather::<_, u16>(&comm, count).await;
            all_to_all::<_, u16>(&comm, count).await;
            all_to_all_v::<_, u16>(&comm, |from, to| (from + to) % 3 * count).await;
            neighbors::<_, u16>(&comm, count).await;
        }
        for first in 0..3 {
            all_gather_v::<_, u8>(&comm, &uneven(world, 5, first)).await;
            reduce_scatter_v::<_, u8>(&comm, &uneven(world, 5, first), ReduceOp::Sum).await;
        }
        comm.barrier().await.unwrap();
    })
    .await;
}

/// Sizes on both sides of the switches between algorithms, and of the lengths of segments and blocks: 4, 64 and
/// 128 KiB, for elements of 2, 4 and 8 bytes.
#[tokio::test]
async fn counts_around_the_switches_of_reductions() {
    in_worlds(&[2, 3, 7, 16], |comm| async move {
        let world = comm.world_size();
        let counts: &[usize] = match world {
            16 => &[1025, 16_385],
            3 => &[1023, 1024, 1025, 16_384, 16_385, 32_769, 65_537],
            _ => &[1024, 1025, 16_385, 32_769],
        };
        for &count in counts {
            all_reduce::<_, f32>(&comm, count, ReduceOp::Sum).await;
            all_reduce::<_, bf16>(&comm, count, ReduceOp::Average).await;
            all_reduce::<_, i64>(&comm, count / 2, ReduceOp::Average).await;
            scans::<_, u32>(&comm, count, ReduceOp::Sum).await;
            scans::<_, f16>(&comm, count, ReduceOp::Sum).await;
            reduce::<_, f32>(&comm, count, ReduceOp::Max, &[count % world]).await;
            reduce::<_, i16>(&comm, count, ReduceOp::Average, &[world - 1]).await;
            reduce_scatter::<_, u32>(&comm, count, ReduceOp::Sum).await;
        }
        reduce_scatter::<_, f16>(&comm, 16_385, ReduceOp::Sum).await;
        reduce_scatter_v::<_, u32>(&comm, &uneven(world, 20_001, 0), ReduceOp::Sum).await;
        // More than a bucket together, and one that is alone in a bucket.
        let many = [3, 0, 1_100_000, 5, 700_000, 1];
        if world <= 3 {
            all_reduce_many::<_, u32>(&comm, &many, ReduceOp::Sum).await;
        }
    })
    .await;
}

#[tokio::test]
async fn counts_around_the_switches_of_moves() {
    in_worlds(&[2, 3, 7, 16], |comm| async move {
        let world = comm.world_size();
        let counts: &[usize] = match world {
            16 => &[256, 257, 1025, 16_385],
            3 => &[256, 257, 1023, 1024, 1025, 16_384, 16_385, 32_769, 65_537],
            _ => &[256, 257, 1024, 1025, 16_385, 32_769],
        };
        for &count in counts {
            rooted::<_, u32>(&comm, count, &[0, count % world]).await;
            all_gather::<_, u32>(&comm, count).await;
            all_to_all::<_, u32>(&comm, count).await;
        }
        for first in 0..3 {
            let counts = uneven(world, 20_001, first);
            rooted_v::<_, u32>(&comm, &counts, &[first % world]).await;
            all_gather_v::<_, u32>(&comm, &counts).await;
        }
        all_to_all_v::<_, u64>(&comm, |from, to| (from * 2 + to) % 4 * 9_001).await;
        neighbors::<_, u32>(&comm, 20_001).await;
    })
    .await;
}

/// More than 16 ranks have other algorithms, around 4, 64 and 256 KiB.
#[tokio::test]
async fn a_world_of_seventeen() {
    in_worlds(&[17], |comm| async move {
        let world = comm.world_size();
        for count in [0, 3, 1_025, 16_385] {
            let roots = [0, count % world, world - 1];
            all_reduce::<_, i32>(&comm, count, ReduceOp::Sum).await;
            all_reduce::<_, f16>(&comm, count, ReduceOp::Average).await;
            scans::<_, u32>(&comm, count, ReduceOp::Sum).await;
            reduce::<_, f32>(&comm, count, ReduceOp::Max, &roots).await;
            rooted::<_, u16>(&comm, count, &roots[..2]).await;
        }
        all_reduce::<_, i32>(&comm, 66_001, ReduceOp::Sum).await;
        scans::<_, u8>(&comm, 66_001, ReduceOp::Sum).await;
        for count in [1, 257, 1_025] {
            reduce_scatter::<_, i64>(&comm, count, ReduceOp::Average).await;
            all_gather::<_, u32>(&comm, count).await;
            all_to_all::<_, u32>(&comm, count).await;
            rooted_v::<_, u8>(&comm, &uneven(world, count, 1), &[3]).await;
            all_gather_v::<_, u8>(&comm, &uneven(world, count, 2)).await;
            reduce_scatter_v::<_, u16>(&comm, &uneven(world, count, 0), ReduceOp::Sum).await;
        }
        all_gather::<_, u64>(&comm, 8_300).await;
        reduce_scatter::<_, u64>(&comm, 8_300, ReduceOp::Sum).await;
        neighbors::<_, u32>(&comm, 5).await;
    })
    .await;
}

/// A part of a buffer, and parts of one buffer for both sides of a call.
#[tokio::test]
async fn a_part_of_a_buffer_leaves_the_rest_alone() {
    in_worlds(&WORLDS, |comm| async move {
        let rank = comm.rank() as i32;
        let mut data = [-77; 16];
        data[3..8].fill(rank + 1);
        comm.all_reduce(&mut data[3..8], ReduceOp::Max)
            .await
            .unwrap();
        let mut expected = [-77; 16];
        expected[3..8].fill(comm.world_size() as i32);
        assert_eq!(data, expected);
        let (input, output) = data.split_at_mut(8);
        comm.scan_into(&input[4..7], &mut output[1..4], ReduceOp::Sum)
            .await
            .unwrap();
        expected[9..12].fill((rank + 1) * comm.world_size() as i32);
        assert_eq!(data, expected);
    })
    .await;
}
