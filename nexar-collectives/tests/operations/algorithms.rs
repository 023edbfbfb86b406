//! Every algorithm, and every operation over real QUIC.

use super::{
    common::{available, free_address, on_all, share},
    exchanges::{all_to_all, all_to_all_v, neighbors},
    moves::{all_gather, all_gather_v, rooted, rooted_v},
    reductions::{
        all_reduce, all_reduce_many, all_reduce_scaled, reduce, reduce_scatter, reduce_scatter_v,
    },
    scans::scans,
};
use nexar_collectives::{
    Algorithm, Backend, Builder, Collective, Communicator, Error, Rank, ReduceOp, Reduction,
    Secret, TimeLimits, bf16, f16,
};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// A group over real QUIC in which all ranks ask for the same algorithms.
async fn group(world: usize, backend: Backend, algorithms: &str) -> Vec<Arc<Communicator>> {
    let secret = Secret::random().unwrap();
    let seed = free_address().to_string();
    let mut joins = JoinSet::new();
    for rank in 0..world {
        let limits = TimeLimits::default().with_join(Duration::from_secs(20));
        let builder: Builder = Communicator::builder()
            .world_size(world)
            .rank(Rank::Fixed(rank))
            .seed(&seed)
            .secret(secret.clone())
            .transport(backend)
            .limits(limits)
            .algorithms(algorithms);
        joins.spawn(builder.join());
    }
    let joined = joins.join_all().await.into_iter();
    let mut ranks: Vec<_> = joined.map(Result::unwrap).collect();
    ranks.sort_by_key(Communicator::rank);
    share(ranks)
}

/// The algorithms that a collective knows: those that a group can ask for.
async fn algorithms(collective: Collective) -> Vec<Algorithm> {
    let known = |algorithm: &Algorithm| {
        let setting = format!("{collective}:{algorithm}");
        async move {
            let joined = Communicator::builder().algorithms(setting).join().await;
            !matches!(joined, Err(Error::Config(_)))
        }
    };
    let mut all = Vec::new();
    for algorithm in Algorithm::ALL {
        if known(&algorithm).await {
            all.push(algorithm);
        }
    }
    all
}

/// Settings that force each algorithm of each collective at least once.
async fn settings() -> Vec<String> {
    let mut lists = Vec::new();
    for collective in Collective::ALL {
        lists.push((collective, algorithms(collective).await));
    }
    let rounds = lists.iter().map(|(_, list)| list.len()).max().unwrap();
    let round = |round: usize| {
        let forced = lists.iter().filter(|(_, list)| !list.is_empty());
        let forced = forced.map(|(c, list)| format!("{c}:{}", list[round % list.len()]));
        forced.collect::<Vec<_>>().join(",")
    };
    (0..rounds).map(round).collect()
}

async fn check_reductions(comm: Arc<Communicator>, counts: &[usize]) {
    let world = comm.world_size();
    for &count in counts {
        for op in [ReduceOp::Sum, ReduceOp::Average, ReduceOp::Max] {
            all_reduce::<_, f32>(&comm, count, op).await;
            reduce::<_, f32>(&comm, count, op, &[0, count % world]).await;
            scans::<_, f32>(&comm, count, op).await;
        }
        all_reduce::<_, i16>(&comm, count, ReduceOp::Average).await;
        all_reduce::<_, bf16>(&comm, count, ReduceOp::Sum).await;
        reduce::<_, i64>(&comm, count, ReduceOp::Average, &[world - 1]).await;
        scans::<_, f16>(&comm, count, ReduceOp::Product).await;
        let block = count / world + 1;
        reduce_scatter::<_, f32>(&comm, block, ReduceOp::Sum).await;
        reduce_scatter::<_, f16>(&comm, block, ReduceOp::Average).await;
        let uneven: Vec<usize> = (0..world).map(|rank| rank % 3 * block).collect();
        reduce_scatter_v::<_, u32>(&comm, &uneven, ReduceOp::Sum).await;
        reduce_scatter_v::<_, i8>(&comm, &uneven, ReduceOp::Average).await;
        all_reduce_many::<_, f32>(&comm, &[count, 0, 7], ReduceOp::Sum).await;
        all_reduce_scaled::<_, f32>(&comm, count).await;
    }
}

/// A reduction whose arguments must be in order: affine maps, one after the other.
async fn check_ordered(comm: Arc<Communicator>, counts: &[usize]) {
    type Map = [u64; 2];
    let value = |rank: usize, index: usize| -> Map { [rank as u64 * 2 + 3, index as u64 + 1] };
    let then = |a: &Map, b: &Map| {
        [
            a[0].wrapping_mul(b[0]),
            a[1].wrapping_mul(b[0]).wrapping_add(b[1]),
        ]
    };
    let reduced = |ranks: usize, index: usize| {
        let all = (0..ranks).map(|rank| value(rank, index));
        all.reduce(|a, b| then(&a, &b)).unwrap()
    };
    let (world, rank) = (comm.world_size(), comm.rank());
    let own = Reduction::ordered("affine maps", then);
    for &count in counts {
        let of = |range: std::ops::Range<usize>| -> Vec<Map> {
            range.map(|index| value(rank, index)).collect()
        };
        let all: Vec<Map> = (0..count * world)
            .map(|index| reduced(world, index))
            .collect();
        let mut data = of(0..count);
        comm.all_reduce_with(&mut data, &own).await.unwrap();
        assert!(data == all[..count], "all_reduce_with, {count}");
        let mut data = of(0..count);
        comm.reduce_with(&mut data, &own, world / 2).await.unwrap();
        assert!(
            rank != world / 2 || data == all[..count],
            "reduce_with, {count}"
        );
        let mut data = of(0..count);
        let input = of(0..count * world);
        comm.reduce_scatter_with(&input, &mut data, &own)
            .await
            .unwrap();
        let mine = &all[rank * count..(rank + 1) * count];
        assert!(data == mine, "reduce_scatter_with, {count}");
        let mut data = of(0..count);
        comm.scan_with(&mut data, &own).await.unwrap();
        let upto = |ranks| (0..count).map(move |index| reduced(ranks, index));
        assert!(upto(rank + 1).eq(data), "scan_with, {count}");
        let mut data = of(0..count);
        comm.exclusive_scan_with(&mut data, &own).await.unwrap();
        assert!(
            rank == 0 || upto(rank).eq(data),
            "exclusive_scan_with, {count}"
        );
    }
}

async fn check_moves(comm: Arc<Communicator>, counts: &[usize]) {
    let world = comm.world_size();
    for &count in counts {
        rooted::<_, u16>(&comm, count, &[0, world - 1]).await;
        let block = count / world + 1;
        all_gather::<_, u32>(&comm, block).await;
        all_to_all::<_, u32>(&comm, block).await;
        for first in 0..2 {
            let uneven: Vec<usize> = (0..world).map(|rank| (rank + first) % 3 * block).collect();
            rooted_v::<_, bool>(&comm, &uneven, &[first % world]).await;
            all_gather_v::<_, u8>(&comm, &uneven).await;
        }
        all_to_all_v::<_, u64>(&comm, |from, to| (from * 2 + to) % 4 * block).await;
        neighbors::<_, u32>(&comm, block).await;
    }
    comm.barrier().await.unwrap();
}

/// From one element to more than one segment of a message.
const COUNTS: [usize; 4] = [0, 1, 1_027, 17_001];

async fn every_algorithm(world: usize) {
    let settings = settings().await;
    assert!(settings.len() >= 3, "{settings:?}");
    for setting in &settings {
        let ranks = group(world, available()[0], setting).await;
        on_all(&ranks, |comm| async move {
            check_reductions(Arc::clone(&comm), &COUNTS).await;
            check_moves(Arc::clone(&comm), &COUNTS).await;
            check_ordered(Arc::clone(&comm), &[0, 1, 7, 5_001]).await;
            // The algorithms are those of communicators that are made of this one, too.
            let child = Arc::new(comm.duplicate().await.unwrap());
            check_reductions(child, &[5]).await;
        })
        .await;
    }
}

#[tokio::test]
async fn every_algorithm_between_two() {
    every_algorithm(2).await;
}

#[tokio::test]
async fn every_algorithm_among_five() {
    every_algorithm(5).await;
}

#[tokio::test]
async fn every_algorithm_among_eight() {
    every_algorithm(8).await;
}

/// Ranks that ask for different algorithms are told so.
#[tokio::test]
async fn different_algorithms_are_a_mismatch() {
    use nexar_collectives::Failure;
    let seed = free_address().to_string();
    let secret = Secret::random().unwrap();
    let mut joins = JoinSet::new();
    for (rank, algorithms) in ["all_reduce:ring", "all_reduce:direct"]
        .into_iter()
        .enumerate()
    {
        let builder = Communicator::builder()
            .world_size(2)
            .rank(Rank::Fixed(rank))
            .seed(&seed)
            .secret(secret.clone())
            .algorithms(algorithms);
        joins.spawn(builder.join());
    }
    let joined = joins.join_all().await.into_iter();
    let ranks = share(joined.map(Result::unwrap).collect());
    let errors = on_all(&ranks, |comm| async move {
        let mut data = [1f32; 9];
        comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap_err()
    })
    .await;
    for error in errors {
        let text = error.to_string();
        let Error::Operation(error) = error else {
            panic!("{text}");
        };
        assert!(matches!(error.failure, Failure::Mismatch { .. }), "{text}");
        assert!(text.contains("ring") && text.contains("direct"), "{text}");
    }
}

#[tokio::test]
async fn every_operation_on_every_backend() {
    for backend in available() {
        for world in [1, 2, 3, 5] {
            let ranks = group(world, backend, "").await;
            on_all(&ranks, |comm| async move {
                check_reductions(Arc::clone(&comm), &COUNTS).await;
                check_moves(comm, &COUNTS).await;
            })
            .await;
        }
    }
}
