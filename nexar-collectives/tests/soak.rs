//! Long runs: many operations, many groups, many bytes. What they need of memory does not grow.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{memory_world, on_all, quic_worlds, share};
use nexar_collectives::{Communicator, ReduceOp, TimeLimits, transport::Transport};
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

/// One run at a time: they measure the memory of the process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// By how much the memory of the process may grow after the first part of a run.
const MAX_GROWTH: usize = 20 << 20;

async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// The resident memory of this process in bytes; 0 where it cannot be read.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.map_or(0, |kib: usize| kib << 10)
}

#[track_caller]
fn assert_flat(before: usize, what: &str) {
    let after = resident();
    let grown = after.saturating_sub(before);
    assert!(grown <= MAX_GROWTH, "{what}: {before} bytes became {after}");
}

/// More operations than 16 bits can count, of 8 bytes each; every one of them is checked.
async fn many_operations<T: Transport>(ranks: Vec<Communicator<T>>, operations: u64) {
    let results = on_all(&share(ranks), |comm| async move {
        let (world, rank) = (comm.world_size() as u64, comm.rank() as u64);
        let mut before = 0;
        for step in 0..operations {
            if step == operations / 8 {
                before = resident();
            }
            let mut data = [step * 3 + rank];
            match step % 4 {
                0 | 1 => {
                    comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                    assert_eq!(data, [step * 3 * world + world * (world - 1) / 2]);
                }
                2 => {
                    comm.broadcast(&mut data, 1).await.unwrap();
                    assert_eq!(data, [step * 3 + 1]);
                }
                _ => {
                    comm.scan(&mut data, ReduceOp::Sum).await.unwrap();
                    assert_eq!(data, [step * 3 * (rank + 1) + rank * (rank + 1) / 2]);
                }
            }
        }
        before
    })
    .await;
    assert_flat(results[0], "operations");
}

const OPERATIONS: u64 = 65_537;

#[tokio::test]
async fn many_operations_in_memory() {
    let _alone = alone().await;
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    many_operations(ranks, OPERATIONS).await;
}

#[tokio::test]
async fn many_operations_over_quic() {
    let _alone = alone().await;
    for ranks in quic_worlds(2).await {
        many_operations(ranks, OPERATIONS).await;
    }
}

/// Groups that are made, used once, and dropped.
async fn many_groups<T: Transport>(ranks: Vec<Communicator<T>>, groups: usize) {
    let results = on_all(&share(ranks), |comm| async move {
        let (world, rank) = (comm.world_size(), comm.rank());
        let all: Vec<usize> = (0..world).collect();
        let mut before = 0;
        for number in 0..groups {
            if number == groups / 8 {
                before = resident();
            }
            let child = match number % 3 {
                0 => comm.split(Some(number as u64), 0).await.unwrap().unwrap(),
                1 => comm.duplicate().await.unwrap(),
                _ => comm.subgroup(&all).await.unwrap().unwrap(),
            };
            // Some are never used.
            if number % 4 > 0 {
                let mut data = [(rank + number) as u64];
                child.all_reduce(&mut data, ReduceOp::Max).await.unwrap();
                assert_eq!(data, [(world - 1 + number) as u64]);
            }
        }
        before
    })
    .await;
    assert_flat(results[0], "groups");
}

#[tokio::test]
async fn many_groups_in_memory() {
    let _alone = alone().await;
    for world in [2, 3] {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        many_groups(ranks, 10_000).await;
    }
}

#[tokio::test]
async fn many_groups_over_quic() {
    let _alone = alone().await;
    for ranks in quic_worlds(2).await {
        many_groups(ranks, 2_000).await;
    }
}

/// Started operations whose handles are dropped.
#[tokio::test]
async fn many_started_operations() {
    let _alone = alone().await;
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    let results = on_all(&share(ranks), |comm| async move {
        let mut before = 0;
        for round in 0..500u64 {
            if round == 50 {
                before = resident();
            }
            for _ in 0..20 {
                drop(comm.start_all_reduce(vec![1u64; 100], ReduceOp::Sum));
            }
            let mut data = [round];
            comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
            assert_eq!(data, [2 * round]);
        }
        before
    })
    .await;
    assert_flat(results[0], "started operations");
}

/// More bytes than 32 bits can count, in one operation. It takes 9 GiB of memory:
///
/// `cargo test --release -p nexar-collectives --test soak -- --ignored more_than_4_gib`
#[tokio::test]
#[ignore = "takes 9 GiB of memory"]
async fn more_than_4_gib() {
    const COUNT: usize = (1 << 32) + 5;
    let _alone = alone().await;
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    on_all(&share(ranks), |comm: Arc<Communicator<_>>| async move {
        let mut data = vec![0u8; COUNT];
        let marks = [
            0,
            1 << 16,
            (1 << 31) - 1,
            1 << 31,
            (1 << 32) - 1,
            1 << 32,
            COUNT - 1,
        ];
        if comm.rank() == 1 {
            for (number, mark) in marks.into_iter().enumerate() {
                data[mark] = number as u8 + 1;
            }
        }
        comm.broadcast(&mut data, 1).await.unwrap();
        for (number, mark) in marks.into_iter().enumerate() {
            assert_eq!(data[mark], number as u8 + 1);
        }
        let others = data.iter().filter(|x| **x != 0).count();
        assert_eq!(others, marks.len());
        // In place, each rank the half that the other does not have.
        data.push(0);
        let half = data.len() / 2;
        let own = comm.rank() * half;
        data.fill(9);
        data[own..own + half].fill(comm.rank() as u8 + 1);
        comm.all_gather_in_place(&mut data).await.unwrap();
        assert!(data[..half].iter().all(|x| *x == 1) && data[half..].iter().all(|x| *x == 2));
        comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
        assert!(data[..half].iter().all(|x| *x == 2) && data[half..].iter().all(|x| *x == 4));
    })
    .await;
}
