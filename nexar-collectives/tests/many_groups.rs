//! More communicators at a time than most programs have.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{MemoryCommunicator, memory_world, on_all, share};
use nexar_collectives::{Error, Failure, TimeLimits};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, timeout},
};

/// Enough that what the ranks tell each other of all at once would not fit into a short queue.
const MANY: usize = 1500;

async fn duplicates(comm: &MemoryCommunicator, number: usize) -> Vec<MemoryCommunicator> {
    let mut all = Vec::new();
    for _ in 0..number {
        all.push(comm.duplicate().await.unwrap());
    }
    all
}

#[tokio::test]
async fn many_are_dropped_at_once() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        let mut all = duplicates(&comm, MANY).await;
        let last = all.pop().unwrap();
        drop(all);
        last.barrier().await.unwrap();
        comm.barrier().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn many_end_with_the_first() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    let all_there = Arc::new(Barrier::new(2));
    let mut tasks = JoinSet::new();
    for comm in ranks {
        let all_there = Arc::clone(&all_there);
        tasks.spawn(async move {
            let all = duplicates(&comm, MANY).await;
            all_there.wait().await;
            comm.shutdown().await.unwrap();
            all[7].barrier().await.unwrap_err();
        });
    }
    tasks.join_all().await;
}

/// The survivors stay connected, though each of many communicators fails.
#[tokio::test]
async fn a_lost_rank_of_many() {
    let (network, addresses, ranks) = memory_world(3, TimeLimits::default()).await;
    let all_there = Arc::new(Barrier::new(3));
    let network = Arc::new(network);
    let dead = addresses[2];
    on_all(&share(ranks), |comm| {
        let (all_there, network) = (Arc::clone(&all_there), Arc::clone(&network));
        async move {
            let all = duplicates(&comm, MANY).await;
            let pair = comm.subgroup(&[0, 1]).await.unwrap();
            all_there.wait().await;
            let Some(pair) = pair else {
                assert!(network.kill(dead));
                return;
            };
            for comm in [&comm, &all[7]] {
                let error = comm.barrier().await.unwrap_err();
                assert_eq!(error.failed_ranks(), [2], "{error}");
            }
            drop(all);
            pair.barrier().await.unwrap();
        }
    })
    .await;
}

/// A transport has no stream for each of them: the time limit holds all the same.
#[tokio::test(start_paused = true)]
async fn a_lane_that_cannot_be_opened_is_not_waited_for_beyond_the_time_limit() {
    let limit = Duration::from_secs(20);
    let limits = TimeLimits::default().with_operation(limit);
    let (_network, _, ranks) = memory_world(2, limits).await;
    on_all(&share(ranks), |comm| async move {
        let mut all = Vec::new();
        let failure = loop {
            let child = comm.duplicate().await.unwrap();
            let started = Instant::now();
            let done = timeout(2 * limit, child.barrier()).await;
            match done.unwrap() {
                Ok(()) => all.push(child),
                Err(Error::Operation(error)) => {
                    assert!(started.elapsed() < limit + Duration::from_secs(2));
                    break error.failure.clone();
                }
                Err(other) => panic!("{other}"),
            }
            assert!(all.len() < 3000, "the transport has no limit of streams");
        };
        assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
        // Those that have their lanes go on, and lanes of those that are dropped can be used by others.
        all[3].barrier().await.unwrap();
        all.truncate(5);
        let child = comm.duplicate().await.unwrap();
        child.barrier().await.unwrap();
    })
    .await;
}

/// Messages that come when their communicator is dropped already do not use up the streams of the others.
#[tokio::test(start_paused = true)]
async fn messages_of_dropped_groups_hold_no_streams() {
    let limits = TimeLimits::default();
    let (_network, _, ranks) = memory_world(2, limits).await;
    let started = Instant::now();
    on_all(&share(ranks), |comm| async move {
        for _ in 0..MANY {
            let child = comm.duplicate().await.unwrap();
            drop(child.start_send(vec![1u8; 3000], 1 - comm.rank(), 0));
        }
        comm.duplicate().await.unwrap().barrier().await.unwrap();
    })
    .await;
    assert!(started.elapsed() < limits.operation);
}
