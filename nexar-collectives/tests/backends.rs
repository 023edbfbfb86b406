//! The operations over every backend that is compiled in, and in groups that mix them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{available, on_all, quic_world, share};
use nexar_collectives::{Backend, Communicator, Element, Error, ReduceOp};
use std::{
    fmt::Debug,
    ops::{Add, Range},
    process::Command,
    sync::Arc,
};

/// From one element to more than one segment of a message.
const COUNTS: [usize; 4] = [1, 7, 1_025, 70_001];

/// A group over real QUIC whose ranks take the backends in turn.
async fn group(world: usize, backends: &[Backend]) -> Vec<Arc<Communicator>> {
    let ranks = quic_world(world, backends).await;
    for (rank, comm) in ranks.iter().enumerate() {
        let backend = backends[rank % backends.len()];
        assert_eq!(comm.transport_name(), backend.name());
    }
    share(ranks)
}

/// An element type with values that differ between neighbouring ranks and indices, and add up exactly.
trait Numbered: Element + Add<Output = Self> + PartialEq + Debug {
    fn value(rank: usize, index: usize) -> Self;
    fn bits(self) -> u64;
}

impl Numbered for i64 {
    fn value(rank: usize, index: usize) -> i64 {
        (index as i64 - 500) * 1_000_003 + ((rank as i64) << 40)
    }

    fn bits(self) -> u64 {
        self as u64
    }
}

impl Numbered for f32 {
    fn value(rank: usize, index: usize) -> f32 {
        (index % 4_099) as f32 - (rank * 8_192) as f32
    }

    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

fn values<E: Numbered>(rank: usize, range: Range<usize>) -> Vec<E> {
    range.map(|index| E::value(rank, index)).collect()
}

fn sums<E: Numbered>(world: usize, range: Range<usize>) -> Vec<E> {
    let sum = |index| {
        let values = (0..world).map(|rank| E::value(rank, index));
        values.reduce(E::add).unwrap()
    };
    range.map(sum).collect()
}

/// Checks the operations on `count` elements against the model; the bits of all results.
async fn checked<E: Numbered>(comm: &Communicator, count: usize) -> Vec<u64> {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!("{count} x {} on rank {rank} of {world}", E::DATA_TYPE);
    let mine = rank * count..(rank + 1) * count;

    let mut reduced = values::<E>(rank, 0..count);
    comm.all_reduce(&mut reduced, ReduceOp::Sum).await.unwrap();
    assert!(reduced == sums(world, 0..count), "all_reduce {what}");

    let mut block = vec![E::value(9, 9); count];
    let input = values::<E>(rank, 0..count * world);
    comm.reduce_scatter(&input, &mut block, ReduceOp::Sum)
        .await
        .unwrap();
    assert!(block == sums(world, mine), "reduce_scatter {what}");

    let mut gathered = vec![E::value(9, 9); count * world];
    comm.all_gather(&input[..count], &mut gathered)
        .await
        .unwrap();
    let all: Vec<E> = (0..world).flat_map(|r| values(r, 0..count)).collect();
    assert!(gathered == all, "all_gather {what}");

    let mut results = [reduced, block, gathered].concat();
    for root in [0, world - 1] {
        let mut data = values::<E>(rank, 0..count);
        comm.broadcast(&mut data, root).await.unwrap();
        assert!(
            data == values(root, 0..count),
            "broadcast from {root}, {what}"
        );
        results.append(&mut data);
    }
    comm.barrier().await.unwrap();
    results.into_iter().map(E::bits).collect()
}

/// Sums that round, so that their bits depend on the order of the additions.
async fn rounded(comm: &Communicator, count: usize) -> Vec<u64> {
    let (world, rank) = (comm.world_size(), comm.rank());
    let inexact = |index| 1.0 / (1 + index * (rank + 2)) as f32;
    let input: Vec<f32> = (0..count * world).map(inexact).collect();
    let mut reduced = input[..count].to_vec();
    comm.all_reduce(&mut reduced, ReduceOp::Sum).await.unwrap();
    let mut block = vec![0.0; count];
    comm.reduce_scatter(&input, &mut block, ReduceOp::Average)
        .await
        .unwrap();
    let results = reduced.into_iter().chain(block);
    results.map(f32::bits).collect()
}

/// The results of every operation on every rank.
async fn results(world: usize, backends: &[Backend]) -> Vec<Vec<u64>> {
    let ranks = group(world, backends).await;
    on_all(&ranks, |comm| async move {
        let mut bits = Vec::new();
        for count in COUNTS {
            bits.extend(checked::<i64>(&comm, count).await);
            bits.extend(checked::<f32>(&comm, count).await);
            bits.extend(rounded(&comm, count).await);
        }
        comm.barrier().await.unwrap();
        bits
    })
    .await
}

/// The same bits from every backend alone, and from groups in which each dials and accepts the other.
async fn all_agree(world: usize) {
    let available = available();
    let mut groups: Vec<Vec<Backend>> = available.iter().map(|backend| vec![*backend]).collect();
    if available.len() > 1 {
        groups.push(available.clone());
        groups.push(available.iter().rev().copied().collect());
    } else {
        eprintln!("skipped the mixed groups: only {available:?} is part of this build");
    }
    let mut first = None;
    for backends in groups {
        let found = results(world, &backends).await;
        let first = first.get_or_insert_with(|| found.clone());
        assert!(*first == found, "{world} ranks on {backends:?} differ");
    }
}

#[tokio::test]
async fn one_rank() {
    all_agree(1).await;
}

#[tokio::test]
async fn two_ranks() {
    all_agree(2).await;
}

#[tokio::test]
async fn three_ranks() {
    all_agree(3).await;
}

#[tokio::test]
async fn five_ranks() {
    all_agree(5).await;
}

#[tokio::test]
async fn the_builder_takes_the_backend_it_is_told() {
    for backend in Backend::ALL {
        let joined = Communicator::builder().transport(backend).join().await;
        expect_backend(joined, backend, "transport");
    }
}

/// The transport asked for, or an error that names the setting and the feature to enable.
#[track_caller]
fn expect_backend(joined: Result<Communicator, Error>, backend: Backend, setting: &str) {
    match joined {
        Ok(comm) => {
            assert!(backend.is_available());
            assert_eq!(comm.transport_name(), backend.name());
        }
        Err(error) => {
            assert!(!backend.is_available(), "{error}");
            assert!(matches!(error, Error::Config(_)), "{error}");
            let text = error.to_string();
            let remedy = format!("enable the feature `{backend}`");
            assert!(text.contains(setting) && text.contains(&remedy), "{text}");
        }
    }
}

const VARIABLE: &str = "NEXAR_TRANSPORT";

#[test]
fn the_environment_chooses_the_backend() {
    for backend in Backend::ALL {
        // A process of its own: the environment of this one belongs to all its tests.
        let mut child = Command::new(std::env::current_exe().unwrap());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("NEXAR_") {
                child.env_remove(name);
            }
        }
        child.args(["--exact", "--ignored", "joins_from_the_environment"]);
        let output = child.env(VARIABLE, backend.name()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{backend}: {said}");
        assert!(said.contains("1 passed"), "{backend}: {said}");
    }
}

#[tokio::test]
#[ignore = "the_environment_chooses_the_backend starts it with an environment"]
async fn joins_from_the_environment() {
    let backend = std::env::var(VARIABLE).unwrap().parse().unwrap();
    expect_backend(Communicator::from_env().await, backend, VARIABLE);
}
