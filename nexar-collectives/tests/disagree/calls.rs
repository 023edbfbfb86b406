//! Calls of every operation.

use super::common::MemoryCommunicator;
use nexar_collectives::{
    Error, ReduceOp, Reduction,
    compression::{Compression, TopK},
};
use std::{future::Future, pin::Pin, sync::Arc};

pub(crate) type Work = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
pub(crate) type Call = fn(Arc<MemoryCommunicator>) -> Work;

pub(crate) const SUM: ReduceOp = ReduceOp::Sum;

macro_rules! call {
    ($comm:ident => $future:expr) => {
        |$comm: Arc<MemoryCommunicator>| -> Work {
            Box::pin(async move { $future.await.map(drop) })
        }
    };
}

pub(crate) use call;

/// As many elements as `count` for each rank.
pub(crate) fn blocks(comm: &MemoryCommunicator, count: usize) -> Vec<f32> {
    vec![1.0; count * comm.world_size()]
}

pub(crate) fn counts(comm: &MemoryCommunicator, count: usize) -> Vec<usize> {
    vec![count; comm.world_size()]
}

pub(crate) fn all(comm: &MemoryCommunicator) -> Vec<usize> {
    (0..comm.world_size()).collect()
}

pub(crate) fn named(name: &str) -> Reduction<f32> {
    Reduction::commutative(name, |a: &f32, b: &f32| a + b)
}

/// Calls that all differ from each other: every operation, with the same number of elements where that is
/// possible, and some without elements or with many.
pub(crate) const CALLS: [(&str, Call); 37] = [
    ("barrier", call!(c => c.barrier())),
    (
        "broadcast 4 from 0",
        call!(c => c.broadcast(&mut [1f32; 4], 0)),
    ),
    (
        "broadcast 4 from 1",
        call!(c => c.broadcast(&mut [1f32; 4], 1)),
    ),
    (
        "broadcast 300000 from 1",
        call!(c => c.broadcast(&mut vec![1f32; 300_000], 1)),
    ),
    (
        "reduce 4 to 0",
        call!(c => c.reduce(&mut [1f32; 4], SUM, 0)),
    ),
    (
        "reduce 300000 to 1",
        call!(c => c.reduce(&mut vec![1f32; 300_000], SUM, 1)),
    ),
    (
        "all_reduce 4",
        call!(c => c.all_reduce(&mut [1f32; 4], SUM)),
    ),
    (
        "all_reduce 0",
        call!(c => c.all_reduce::<f32>(&mut [], SUM)),
    ),
    (
        "all_reduce 300000",
        call!(c => c.all_reduce(&mut vec![1f32; 300_000], SUM)),
    ),
    (
        "all_reduce_many 4",
        call!(c => c.all_reduce_many(&mut [&mut [1f32; 4]], SUM)),
    ),
    (
        "all_reduce_with 4",
        call!(c => c.all_reduce_with(&mut [1f32; 4], &named("own"))),
    ),
    (
        "reduce_with 4",
        call!(c => c.reduce_with(&mut [1f32; 4], &named("own"), 0)),
    ),
    (
        "reduce_scatter_with 4",
        call!(c => c.reduce_scatter_with(&blocks(&c, 4), &mut [1f32; 4], &named("own"))),
    ),
    (
        "scan_with 4",
        call!(c => c.scan_with(&mut [1f32; 4], &named("own"))),
    ),
    (
        "exclusive_scan_with 4",
        call!(c => c.exclusive_scan_with(&mut [1f32; 4], &named("own"))),
    ),
    (
        "all_gather 4",
        call!(c => c.all_gather(&[1f32; 4], &mut blocks(&c, 4))),
    ),
    (
        "all_gather_v 4",
        call!(c => c.all_gather_v(&[1f32; 4], &mut blocks(&c, 4), &counts(&c, 4))),
    ),
    (
        "gather 4 to 0",
        call!(c => c.gather(&[1f32; 4], &mut blocks(&c, 4), 0)),
    ),
    (
        "gather 200000 to 1",
        call!(c => c.gather(&vec![1f32; 200_000], &mut blocks(&c, 200_000), 1)),
    ),
    (
        "gather_v 4 to 0",
        call!(c => c.gather_v(&[1f32; 4], &mut blocks(&c, 4), &counts(&c, 4), 0)),
    ),
    (
        "scatter 4 from 0",
        call!(c => c.scatter(&blocks(&c, 4), &mut [1f32; 4], 0)),
    ),
    (
        "scatter 200000 from 1",
        call!(c => c.scatter(&blocks(&c, 200_000), &mut vec![1f32; 200_000], 1)),
    ),
    (
        "scatter_v 4 from 0",
        call!(c => c.scatter_v(&blocks(&c, 4), &counts(&c, 4), &mut [1f32; 4], 0)),
    ),
    (
        "reduce_scatter 4",
        call!(c => c.reduce_scatter(&blocks(&c, 4), &mut [1f32; 4], SUM)),
    ),
    (
        "reduce_scatter_v 4",
        call!(c => c.reduce_scatter_v(&blocks(&c, 4), &mut [1f32; 4], &counts(&c, 4), SUM)),
    ),
    (
        "all_to_all 4",
        call!(c => c.all_to_all(&blocks(&c, 4), &mut blocks(&c, 4))),
    ),
    (
        "all_to_all 100000",
        call!(c => c.all_to_all(&blocks(&c, 100_000), &mut blocks(&c, 100_000))),
    ),
    (
        "all_to_all_v 4",
        call!(c => c.all_to_all_v(
            &blocks(&c, 4),
            &counts(&c, 4),
            &mut blocks(&c, 4),
            &counts(&c, 4),
        )),
    ),
    (
        "neighbor_all_to_all 4",
        call!(c => c.neighbor_all_to_all(&all(&c), &blocks(&c, 4), &mut blocks(&c, 4))),
    ),
    (
        "neighbor_all_to_all_v 4",
        call!(c => c.neighbor_all_to_all_v(
            &all(&c),
            &blocks(&c, 4),
            &counts(&c, 4),
            &mut blocks(&c, 4),
            &counts(&c, 4),
        )),
    ),
    ("scan 4", call!(c => c.scan(&mut [1f32; 4], SUM))),
    (
        "exclusive_scan 4",
        call!(c => c.exclusive_scan(&mut [1f32; 4], SUM)),
    ),
    (
        "all_reduce_min_location 4",
        call!(c => c.all_reduce_min_location(&mut [1f32; 4], &mut [0; 4])),
    ),
    (
        "all_reduce_compressed 4",
        call!(c => c.all_reduce_compressed(
            &mut [1f32; 4],
            SUM,
            &mut Compression::new(TopK::new(0.5).unwrap()),
        )),
    ),
    ("split", call!(c => c.split(Some(1), 0))),
    ("duplicate", call!(c => c.duplicate())),
    ("subgroup", call!(c => c.subgroup(&[0]))),
];
