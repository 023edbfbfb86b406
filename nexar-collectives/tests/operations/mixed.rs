//! Ranks that make the same call in different forms, and ranks that take no part.

use super::{
    common::{WORLDS, memory_world, on_all, share},
    exchanges::{all_to_all_v, neighbors},
    model::{any, reduced, same, values},
};
use nexar_collectives::{Communicator, ReduceOp, TimeLimits, transport::Transport};

/// Half of the ranks use the form in place, the others that with two buffers.
async fn forms<T: Transport>(comm: &Communicator<T>, count: usize, first: usize) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!("{count} on {rank} of {world}");
    let in_place = (rank + first).is_multiple_of(2);
    let sum = ReduceOp::Sum;

    let mut data = values::<u32>(rank, 0..count);
    let input = data.clone();
    match in_place {
        true => comm.all_reduce(&mut data, sum).await.unwrap(),
        false => comm.all_reduce_into(&input, &mut data, sum).await.unwrap(),
    }
    same(
        &data,
        &reduced(sum, 0..world, 0..count),
        &format!("all_reduce {what}"),
    );

    let root = count % world;
    let mut data = input.clone();
    match in_place {
        true => comm.reduce(&mut data, sum, root).await.unwrap(),
        false => comm
            .reduce_into(&input, &mut data, sum, root)
            .await
            .unwrap(),
    }
    if rank == root {
        same(
            &data,
            &reduced(sum, 0..world, 0..count),
            &format!("reduce {what}"),
        );
    }

    let mut data = input.clone();
    match in_place {
        true => comm.scan(&mut data, sum).await.unwrap(),
        false => comm.scan_into(&input, &mut data, sum).await.unwrap(),
    }
    same(
        &data,
        &reduced(sum, 0..rank + 1, 0..count),
        &format!("scan {what}"),
    );

    let mut data = input.clone();
    match in_place {
        true => comm.exclusive_scan(&mut data, sum).await.unwrap(),
        false => comm
            .exclusive_scan_into(&input, &mut data, sum)
            .await
            .unwrap(),
    }
    if rank > 0 {
        same(
            &data,
            &reduced(sum, 0..rank, 0..count),
            &format!("exclusive_scan {what}"),
        );
    }

    let mine = rank * count..(rank + 1) * count;
    let mut data = values::<u32>(9, 0..count * world);
    data[mine.clone()].copy_from_slice(&input);
    match in_place {
        true => comm.all_gather_in_place(&mut data).await.unwrap(),
        false => comm.all_gather(&input, &mut data).await.unwrap(),
    }
    let all: Vec<u32> = (0..world)
        .flat_map(|r| values::<u32>(r, 0..count))
        .collect();
    same(&data, &all, &format!("all_gather {what}"));

    let mut data = values::<u32>(rank, 0..count * world);
    let mut block = vec![0; count];
    match in_place {
        true => {
            comm.reduce_scatter_in_place(&mut data, sum).await.unwrap();
            block.copy_from_slice(&data[mine.clone()]);
        }
        false => comm.reduce_scatter(&data, &mut block, sum).await.unwrap(),
    }
    same(
        &block,
        &reduced(sum, 0..world, mine.clone()),
        &format!("reduce_scatter {what}"),
    );

    let mut data = any::<u32>(rank, 0..count * world);
    let input = data.clone();
    match in_place {
        true => comm.all_to_all_in_place(&mut data).await.unwrap(),
        false => comm.all_to_all(&input, &mut data).await.unwrap(),
    }
    let all: Vec<u32> = (0..world)
        .flat_map(|r| any::<u32>(r, mine.clone()))
        .collect();
    same(&data, &all, &format!("all_to_all {what}"));
}

#[tokio::test]
async fn forms_of_one_operation_are_the_same_call() {
    for world in WORLDS {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            for count in [0, 1, 7, 1_025, 20_001] {
                for first in 0..2 {
                    forms(&comm, count, first).await;
                }
            }
        })
        .await;
    }
}

/// Ranks that send nothing, receive nothing or neither; what comes next is right.
#[tokio::test]
async fn ranks_that_take_no_part() {
    for world in WORLDS {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let rank = comm.rank();
            let after = async || {
                let mut data = values::<i64>(rank, 0..9);
                comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                same(
                    &data,
                    &reduced(ReduceOp::Sum, 0..world, 0..9),
                    "all_reduce after",
                );
            };
            for odd in 0..world {
                let silent = |from, _| if from == odd { 0 } else { 3 };
                all_to_all_v::<_, u16>(&comm, silent).await;
                after().await;
                let deaf = |_, to| if to == odd { 0 } else { 3 };
                all_to_all_v::<_, u16>(&comm, deaf).await;
                after().await;
                let neither = |from, to| if from == odd || to == odd { 0 } else { 3 };
                all_to_all_v::<_, u16>(&comm, neither).await;
                after().await;
                all_to_all_v::<_, u16>(&comm, |_, _| 0).await;
                after().await;
                let mut counts = vec![0; world];
                counts[odd] = 5;
                super::moves::all_gather_v::<_, u8>(&comm, &counts).await;
                after().await;
                super::moves::rooted_v::<_, u8>(&comm, &counts, &[0, odd]).await;
                after().await;
                super::reductions::reduce_scatter_v::<_, u8>(&comm, &counts, ReduceOp::Max).await;
                after().await;
            }
            neighbors::<_, u16>(&comm, 1).await;
            after().await;
        })
        .await;
    }
}
