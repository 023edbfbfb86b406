//! Communicators made from others.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{MemoryCommunicator, memory_world, on_all, quic_worlds, share};
use nexar_collectives::{Communicator, Error, Failure, ReduceOp, TimeLimits, transport::Transport};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// The members, by what each gives: all must be in the group, in this order.
async fn expect_members<T: Transport>(comm: &Communicator<T>, own: usize, members: &[usize]) {
    assert_eq!(comm.world_size(), members.len());
    assert_eq!(members[comm.rank()], own);
    let mut all = vec![0u64; members.len()];
    comm.all_gather(&[own as u64], &mut all).await.unwrap();
    let expected: Vec<u64> = members.iter().map(|member| *member as u64).collect();
    assert_eq!(all, expected);
    let mut sum = [own as u64];
    comm.all_reduce(&mut sum, ReduceOp::Sum).await.unwrap();
    assert_eq!(sum[0], expected.iter().sum::<u64>());
}

#[track_caller]
fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> Failure {
    match result.unwrap_err() {
        Error::Operation(error) => error.failure.clone(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn split_by_colour_in_the_order_of_keys() {
    for world in [1, 2, 3, 5, 8] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let rank = comm.rank();
            // Three colours, some of them without ranks in small worlds, backwards.
            let color = [7, 0, u64::MAX][rank % 3];
            let child = comm.split(Some(color), -(rank as i64)).await.unwrap();
            let members: Vec<usize> = (0..world).rev().filter(|r| r % 3 == rank % 3).collect();
            expect_members(&child.unwrap(), rank, &members).await;
            // Equal keys: the order is that of the ranks.
            let child = comm.split(Some(0), 5).await.unwrap().unwrap();
            let members: Vec<usize> = (0..world).collect();
            expect_members(&child, rank, &members).await;
            assert_ne!(child.id(), comm.id());
            // Keys of both signs: the last rank first, then the others.
            let key = if rank == world - 1 {
                i64::MIN
            } else {
                i64::MAX
            };
            let child = comm.split(Some(1), key).await.unwrap().unwrap();
            let members: Vec<usize> = [world - 1].into_iter().chain(0..world - 1).collect();
            expect_members(&child, rank, &members).await;
            // Without a colour, and the colour 0 that stands beside it.
            let color = (rank % 2 == 0).then_some(0);
            let child = comm.split(color, 0).await.unwrap();
            assert_eq!(child.is_some(), rank % 2 == 0);
            if let Some(child) = child {
                let members: Vec<usize> = (0..world).step_by(2).collect();
                expect_members(&child, rank, &members).await;
            }
            assert!(comm.split(None, 3).await.unwrap().is_none());
            comm.barrier().await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn duplicates_and_subgroups() {
    for world in [1, 2, 3, 5, 8] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let rank = comm.rank();
            let all: Vec<usize> = (0..world).collect();
            let copy = comm.duplicate().await.unwrap();
            assert_ne!(copy.id(), comm.id());
            expect_members(&copy, rank, &all).await;
            let lists: Vec<Vec<usize>> = vec![
                vec![],
                vec![world - 1],
                all.iter().rev().copied().collect(),
                all.iter().skip(1).copied().collect(),
                all.iter().rev().step_by(2).copied().collect(),
                all.clone(),
            ];
            for list in lists {
                let child = comm.subgroup(&list).await.unwrap();
                assert_eq!(child.is_some(), list.contains(&rank), "{list:?}");
                if let Some(child) = child {
                    expect_members(&child, rank, &list).await;
                }
            }
            // Groups of groups: their ranks are those of the group that they come from.
            let backwards = comm.split(Some(0), -(rank as i64)).await.unwrap().unwrap();
            let first = backwards.subgroup(&[0]).await.unwrap();
            assert_eq!(first.is_some(), rank == world - 1);
            if let Some(alone) = first {
                expect_members(&alone, rank, &[world - 1]).await;
                alone.shutdown().await.unwrap();
            }
            expect_members(&comm, rank, &all).await;
        })
        .await;
    }
}

/// Halves of halves, down to single ranks, all of them alive and in use at the same time.
#[tokio::test]
async fn nested_splits() {
    let (_network, _, ranks) = memory_world(8, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        let rank = comm.rank();
        let mut levels: Vec<MemoryCommunicator> = Vec::new();
        for _ in 0..3 {
            let parent = levels.last().unwrap_or(&comm);
            let half = parent.rank() * 2 / parent.world_size();
            let child = parent.split(Some(half as u64), 0).await.unwrap().unwrap();
            levels.push(child);
        }
        for (level, child) in levels.iter().enumerate().rev() {
            let size = 4 >> level;
            let start = rank / size * size;
            let members: Vec<usize> = (start..start + size).collect();
            expect_members(child, rank, &members).await;
        }
        expect_members(&comm, rank, &(0..8).collect::<Vec<_>>()).await;
    })
    .await;
}

/// Operations on a communicator and on two made from it, at the same time and in another order on each rank.
async fn isolated<T: Transport>(ranks: Vec<Communicator<T>>) {
    on_all(&share(ranks), |comm| async move {
        let (world, rank) = (comm.world_size() as u64, comm.rank() as u64);
        let first = Arc::new(comm.duplicate().await.unwrap());
        let second = Arc::new(comm.duplicate().await.unwrap());
        let mut comms = vec![Arc::clone(&comm), first, second];
        comms.rotate_left(comm.rank() % 3);
        let mut tasks = tokio::task::JoinSet::new();
        for comm in comms {
            tasks.spawn(async move {
                for round in 0..30 {
                    let count = [1, 5_000, 60_000][round % 3];
                    let factor = (round as u64).wrapping_mul(comm.id());
                    let mut data = vec![factor.wrapping_add(rank); count];
                    comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                    let sum = factor
                        .wrapping_mul(world)
                        .wrapping_add(world * (world - 1) / 2);
                    assert!(data.iter().all(|x| *x == sum));
                }
            });
        }
        tasks.join_all().await;
        comm.barrier().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn communicators_do_not_wait_for_each_other() {
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        isolated(ranks).await;
    }
    for ranks in quic_worlds(3).await {
        isolated(ranks).await;
    }
}

/// One rank makes its calls on the child first, the other on the parent: each call awaits the other rank in
/// another task.
#[tokio::test(start_paused = true)]
async fn opposite_orders_on_parent_and_child() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        let child = comm.duplicate().await.unwrap();
        for _ in 0..20 {
            let (parent, own) = (comm.barrier(), child.barrier());
            if comm.rank() == 0 {
                let (a, b) = tokio::join!(parent, own);
                a.and(b).unwrap();
            } else {
                let (a, b) = tokio::join!(own, parent);
                a.and(b).unwrap();
            }
        }
    })
    .await;
}

/// What fails on one communicator leaves the others alone.
#[tokio::test(start_paused = true)]
async fn failures_stay_where_they_are() {
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let (child, sibling) = (
                comm.duplicate().await.unwrap(),
                comm.duplicate().await.unwrap(),
            );
            let grandchild = child.duplicate().await.unwrap();
            let all: Vec<usize> = (0..world).collect();
            // A mismatch on the child.
            let mut data = vec![1u8; 3 + comm.rank() % 2];
            let result = child.all_reduce(&mut data, ReduceOp::Sum).await;
            assert!(matches!(failure(result), Failure::Mismatch { .. }));
            assert!(matches!(
                failure(child.barrier().await),
                Failure::Mismatch { .. }
            ));
            assert!(matches!(
                failure(child.duplicate().await),
                Failure::Mismatch { .. }
            ));
            drop(child);
            expect_members(&comm, comm.rank(), &all).await;
            expect_members(&sibling, comm.rank(), &all).await;
            expect_members(&grandchild, comm.rank(), &all).await;
            // The parent is aborted by a future that is dropped.
            if comm.rank() == 0 {
                let dropped = timeout(Duration::from_millis(10), comm.barrier()).await;
                assert!(dropped.is_err());
            }
            let result = match comm.rank() {
                0 => comm.barrier().await,
                _ => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    comm.barrier().await
                }
            };
            assert!(matches!(failure(result), Failure::Aborted { rank: 0, .. }));
            expect_members(&sibling, comm.rank(), &all).await;
            expect_members(&grandchild, comm.rank(), &all).await;
            let more = sibling.split(Some(0), 0).await.unwrap().unwrap();
            expect_members(&more, comm.rank(), &all).await;
        })
        .await;
    }
}

/// A lost rank fails the groups that it belongs to, and no other.
#[tokio::test(start_paused = true)]
async fn a_lost_rank_fails_its_own_groups() {
    let (network, addresses, ranks) = memory_world(4, TimeLimits::default()).await;
    let mut ranks = share(ranks);
    let children = on_all(&ranks, |comm| async move {
        let color = comm.rank() as u64 / 2;
        Arc::new(comm.split(Some(color), 0).await.unwrap().unwrap())
    })
    .await;
    assert!(network.kill(addresses[3]));
    let mut children: Vec<_> = children.into_iter().collect();
    children.truncate(3);
    ranks.truncate(3);
    let started = Instant::now();
    let results = on_all(&ranks, |comm| {
        let child = Arc::clone(&children[comm.rank()]);
        async move {
            if comm.rank() < 2 {
                expect_members(&child, comm.rank(), &[0, 1]).await;
            } else {
                let error = child.barrier().await.unwrap_err();
                // Numbered in the group of the operation.
                assert_eq!(error.failed_ranks(), [1], "{error}");
            }
            let result = comm.barrier().await;
            if comm.rank() < 2 {
                expect_members(&child, comm.rank(), &[0, 1]).await;
            }
            result
        }
    })
    .await;
    for result in results {
        assert_eq!(result.unwrap_err().failed_ranks(), [3]);
    }
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// Dropping a group after the own last operation on it leaves those alone that are still in it.
async fn dropped_early<T: Transport>(ranks: Vec<Communicator<T>>, rounds: usize) {
    on_all(&share(ranks), |comm| async move {
        let (world, rank) = (comm.world_size(), comm.rank());
        for round in 0..rounds {
            let child = comm.duplicate().await.unwrap();
            let root = round % world;
            let mut data = vec![rank as u32; [1, 3_000, 150_000][round % 3]];
            match round % 4 {
                0 => {
                    child.broadcast(&mut data, root).await.unwrap();
                    drop(child);
                    assert!(data.iter().all(|x| *x == root as u32));
                }
                1 => {
                    child.reduce(&mut data, ReduceOp::Max, root).await.unwrap();
                    drop(child);
                    let expected = if rank == root { world - 1 } else { rank };
                    assert!(data.iter().all(|x| *x == expected as u32));
                }
                2 => {
                    let mut output = vec![0; if rank == root { data.len() * world } else { 0 }];
                    child.gather(&data, &mut output, root).await.unwrap();
                    drop(child);
                    let blocks = output.chunks(data.len()).enumerate();
                    assert!(
                        blocks
                            .into_iter()
                            .all(|(r, b)| b.iter().all(|x| *x == r as u32))
                    );
                }
                _ => {
                    child.scan(&mut data, ReduceOp::Sum).await.unwrap();
                    drop(child);
                    let sum = (rank * (rank + 1) / 2) as u32;
                    assert!(data.iter().all(|x| *x == sum));
                }
            }
        }
        comm.barrier().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn groups_are_dropped_while_others_are_still_in_them() {
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        dropped_early(ranks, 48).await;
    }
}

#[tokio::test]
async fn groups_over_quic_are_dropped_while_others_are_still_in_them() {
    for (world, rounds) in [(2, 48), (4, 24)] {
        for ranks in quic_worlds(world).await {
            dropped_early(ranks, rounds).await;
        }
    }
}

/// A message that is on its way arrives though its sender has dropped the group.
async fn messages_arrive<T: Transport>(ranks: Vec<Communicator<T>>) {
    on_all(&share(ranks), |comm| async move {
        let (world, rank) = (comm.world_size(), comm.rank());
        for round in 0..20u64 {
            let child = comm.duplicate().await.unwrap();
            if rank == 0 {
                for to in 1..world {
                    child.send(&vec![round; 3_000], to, 7).await.unwrap();
                    child.send(&[round + 1], to, 8).await.unwrap();
                }
                drop(child);
            } else {
                let (mut long, mut short) = (vec![0u64; 3_000], [0u64]);
                child.recv(&mut short, 0, 8).await.unwrap();
                child.recv(&mut long, 0, 7).await.unwrap();
                assert!(long.iter().all(|x| *x == round) && short == [round + 1]);
            }
        }
        comm.barrier().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn messages_arrive_though_the_group_is_dropped() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    messages_arrive(ranks).await;
    for ranks in quic_worlds(2).await {
        messages_arrive(ranks).await;
    }
}

/// Splits from several tasks, with other calls between them, take turns as wholes.
#[tokio::test]
async fn concurrent_splits_take_turns() {
    for world in [2, 3, 5] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| async move {
            let rank = comm.rank();
            for _ in 0..20 {
                let mut sum = [rank as i32];
                let (halves, copy, reduced, all) = tokio::join!(
                    comm.split(Some(rank as u64 % 2), 0),
                    comm.duplicate(),
                    comm.all_reduce(&mut sum, ReduceOp::Sum),
                    comm.split(Some(3), -(rank as i64)),
                );
                reduced.unwrap();
                assert_eq!(sum, [(world * (world - 1) / 2) as i32]);
                let members: Vec<usize> = (0..world).filter(|r| r % 2 == rank % 2).collect();
                expect_members(&halves.unwrap().unwrap(), rank, &members).await;
                let members: Vec<usize> = (0..world).rev().collect();
                expect_members(&all.unwrap().unwrap(), rank, &members).await;
                let members: Vec<usize> = (0..world).collect();
                expect_members(&copy.unwrap(), rank, &members).await;
            }
        })
        .await;
    }
}

/// Shutting down the first communicator ends those that were made of it; shutting down one of those ends no other.
#[tokio::test]
async fn shutdowns() {
    let ranks = Communicator::local(3).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for comm in ranks {
        tasks.spawn(async move {
            let (one, other) = (
                comm.duplicate().await.unwrap(),
                comm.duplicate().await.unwrap(),
            );
            let rank = comm.rank();
            expect_members(&one, rank, &[0, 1, 2]).await;
            one.shutdown().await.unwrap();
            expect_members(&comm, rank, &[0, 1, 2]).await;
            expect_members(&other, rank, &[0, 1, 2]).await;
            comm.shutdown().await.unwrap();
            let error = other.barrier().await.unwrap_err();
            assert!(matches!(error, Error::Operation(_)), "{error}");
        });
    }
    tasks.join_all().await;
}

/// Two tasks split the same communicator, in another order on each rank: the ranks cannot know which calls belong
/// together, but nobody waits for ever.
#[tokio::test(start_paused = true)]
async fn splits_in_opposite_orders_do_not_hang() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        for _ in 0..20 {
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..2 {
                let (comm, color) = (Arc::clone(&comm), (number + comm.rank() as u64) % 2);
                tasks.spawn(async move { comm.split(Some(color), 0).await.unwrap().unwrap() });
            }
            for child in tasks.join_all().await {
                child.barrier().await.unwrap();
            }
        }
    })
    .await;
}

/// A group goes on though the communicator that it was made from is dropped.
#[tokio::test]
async fn a_group_whose_origin_is_dropped() {
    let ranks = Communicator::local(2).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for comm in ranks {
        tasks.spawn(async move {
            let rank = comm.rank();
            let child = comm.duplicate().await.unwrap();
            // The others have made it, too.
            child.barrier().await.unwrap();
            drop(comm);
            expect_members(&child, rank, &[0, 1]).await;
            child.shutdown().await.unwrap();
        });
    }
    tasks.join_all().await;
}

/// A rank that leaves a group early, by dropping it or by a panic, is named to the others; the communicator from
/// which the group comes goes on.
#[tokio::test(start_paused = true)]
async fn ranks_that_leave_a_group_early_are_named() {
    for world in [2, 3, 5] {
        for panics in [false, true] {
            let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
            on_all(&share(ranks), |comm| async move {
                let child = comm.duplicate().await.unwrap();
                child.barrier().await.unwrap();
                if comm.rank() == 1 {
                    let program = tokio::spawn(async move {
                        assert!(!panics, "a panic on purpose");
                        drop(child);
                    });
                    assert_eq!(program.await.is_err(), panics);
                } else {
                    match (failure(child.barrier().await), panics) {
                        (Failure::PeerLeft { rank: 1 }, false) => {}
                        (Failure::PeerLost { rank: 1, .. }, true) => {}
                        (other, _) => panic!("{other}"),
                    }
                }
                let all: Vec<usize> = (0..world).collect();
                expect_members(&comm, comm.rank(), &all).await;
            })
            .await;
        }
    }
}
