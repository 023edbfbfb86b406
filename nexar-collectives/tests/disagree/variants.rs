//! Calls of one operation with different arguments.

use super::{
    calls::{Call, SUM, Work, all, blocks, call, counts, named},
    common::MemoryCommunicator,
};
use nexar_collectives::{
    ReduceOp, Reduction,
    compression::{Compression, TopK},
};
use std::sync::Arc;

/// Calls of one operation with different arguments: on all ranks but one, and on that one.
pub(crate) const VARIANTS: [(&str, Call, Call); 35] = [
    (
        "counts of a broadcast",
        call!(c => c.broadcast(&mut [1f32; 4], 0)),
        call!(c => c.broadcast(&mut [1f32; 5], 0)),
    ),
    (
        "types of one size",
        call!(c => c.all_reduce(&mut [1f32; 4], SUM)),
        call!(c => c.all_reduce(&mut [1i32; 4], SUM)),
    ),
    (
        "types of different sizes with as many bytes",
        call!(c => c.all_gather(&[1u16; 4], &mut vec![0; 4 * c.world_size()])),
        call!(c => c.all_gather(&[1u32; 2], &mut vec![0; 2 * c.world_size()])),
    ),
    (
        "types of moves",
        call!(c => c.all_to_all(&blocks(&c, 1), &mut blocks(&c, 1))),
        call!(c => c.all_to_all(&vec![1u32; c.world_size()], &mut vec![1; c.world_size()])),
    ),
    (
        "reductions",
        call!(c => c.all_reduce(&mut [1f32; 4], SUM)),
        call!(c => c.all_reduce(&mut [1f32; 4], ReduceOp::Max)),
    ),
    (
        "reductions of a reduce",
        call!(c => c.reduce(&mut [1f32; 4], SUM, 0)),
        call!(c => c.reduce(&mut [1f32; 4], ReduceOp::Average, 0)),
    ),
    (
        "reductions of a scan",
        call!(c => c.scan(&mut [1f32; 4], SUM)),
        call!(c => c.scan(&mut [1f32; 4], ReduceOp::Min)),
    ),
    (
        "roots of a broadcast",
        call!(c => c.broadcast(&mut [1f32; 4], 0)),
        call!(c => c.broadcast(&mut [1f32; 4], 1)),
    ),
    (
        "roots of a reduce",
        call!(c => c.reduce(&mut [1f32; 4], SUM, 0)),
        call!(c => c.reduce(&mut [1f32; 4], SUM, 1)),
    ),
    (
        "roots of a gather",
        call!(c => c.gather(&[1f32; 4], &mut blocks(&c, 4), 0)),
        call!(c => c.gather(&[1f32; 4], &mut blocks(&c, 4), 1)),
    ),
    (
        "roots of a scatter",
        call!(c => c.scatter(&blocks(&c, 4), &mut [1f32; 4], 0)),
        call!(c => c.scatter(&blocks(&c, 4), &mut [1f32; 4], 1)),
    ),
    (
        "roots of a gather without elements",
        call!(c => c.gather::<f32>(&[], &mut [], 0)),
        call!(c => c.gather::<f32>(&[], &mut [], 1)),
    ),
    (
        "counts of a gather",
        call!(c => c.gather(&[1f32; 4], &mut blocks(&c, 4), 0)),
        call!(c => c.gather(&[1f32; 5], &mut blocks(&c, 5), 0)),
    ),
    (
        "counts of a scatter",
        call!(c => c.scatter(&blocks(&c, 4), &mut [1f32; 4], 0)),
        call!(c => c.scatter(&blocks(&c, 3), &mut [1f32; 3], 0)),
    ),
    (
        "counts of an all_gather",
        call!(c => c.all_gather(&[1f32; 4], &mut blocks(&c, 4))),
        call!(c => c.all_gather::<f32>(&[], &mut [])),
    ),
    (
        "counts of a reduce_scatter",
        call!(c => c.reduce_scatter(&blocks(&c, 4), &mut [1f32; 4], SUM)),
        call!(c => c.reduce_scatter(&blocks(&c, 5), &mut [1f32; 5], SUM)),
    ),
    (
        "counts of an all_to_all",
        call!(c => c.all_to_all(&blocks(&c, 4), &mut blocks(&c, 4))),
        call!(c => c.all_to_all(&blocks(&c, 5), &mut blocks(&c, 5))),
    ),
    (
        "counts of a scan",
        call!(c => c.scan(&mut [1f32; 4], SUM)),
        call!(c => c.scan(&mut [1f32; 5], SUM)),
    ),
    (
        "lists of an all_gather_v",
        call!(c => {
            let mut counts = counts(&c, 4);
            (counts[0], counts[1]) = (5, 3);
            let own = counts[c.rank()];
            let c = c;
            async move { c.all_gather_v(&vec![1f32; own], &mut blocks(&c, 4), &counts).await }
        }),
        call!(c => {
            let mut counts = counts(&c, 4);
            (counts[0], counts[1]) = (3, 5);
            let own = counts[c.rank()];
            let c = c;
            async move { c.all_gather_v(&vec![1f32; own], &mut blocks(&c, 4), &counts).await }
        }),
    ),
    (
        "lists of a reduce_scatter_v with the same own blocks",
        call!(c => {
            let mut counts = counts(&c, 4);
            counts[(c.rank() + 1) % c.world_size()] = 5;
            let total: usize = counts.iter().sum();
            let c = c;
            async move {
                let input = vec![1f32; total];
                c.reduce_scatter_v(&input, &mut [1f32; 4], &counts, SUM).await
            }
        }),
        call!(c => c.reduce_scatter_v(&blocks(&c, 4), &mut [1f32; 4], &counts(&c, 4), SUM)),
    ),
    (
        "a block of a gather_v that is longer than the root expects",
        call!(c => c.gather_v(&[1f32; 4], &mut blocks(&c, 4), &counts(&c, 4), 0)),
        call!(c => c.gather_v(&[1f32; 5], &mut blocks(&c, 5), &counts(&c, 5), 0)),
    ),
    (
        "a block of a gather_v that is empty",
        call!(c => c.gather_v(&[1f32; 4], &mut blocks(&c, 4), &counts(&c, 4), 0)),
        call!(c => c.gather_v::<f32>(&[], &mut [], &counts(&c, 0), 0)),
    ),
    (
        "a block of a scatter_v that is shorter than the root sends",
        call!(c => c.scatter_v(&blocks(&c, 4), &counts(&c, 4), &mut [1f32; 4], 0)),
        call!(c => c.scatter_v(&blocks(&c, 3), &counts(&c, 3), &mut [1f32; 3], 0)),
    ),
    (
        "a block of a scatter_v that is not expected",
        call!(c => c.scatter_v(&blocks(&c, 4), &counts(&c, 4), &mut [1f32; 4], 0)),
        call!(c => c.scatter_v::<f32>(&[], &counts(&c, 0), &mut [], 0)),
    ),
    (
        "counts of an all_to_all_v",
        call!(c => c.all_to_all_v(
            &blocks(&c, 4), &counts(&c, 4), &mut blocks(&c, 4), &counts(&c, 4))),
        call!(c => c.all_to_all_v(
            &blocks(&c, 5), &counts(&c, 5), &mut blocks(&c, 4), &counts(&c, 4))),
    ),
    (
        "an all_to_all_v that expects nothing",
        call!(c => c.all_to_all_v(
            &blocks(&c, 4), &counts(&c, 4), &mut blocks(&c, 4), &counts(&c, 4))),
        call!(c => c.all_to_all_v(&blocks(&c, 4), &counts(&c, 4), &mut [], &counts(&c, 0))),
    ),
    (
        "a neighbour that is listed more often, with as many elements",
        call!(c => c.neighbor_all_to_all(&all(&c), &blocks(&c, 4), &mut blocks(&c, 4))),
        call!(c => {
            let twice = [all(&c), all(&c)].concat();
            let c = c;
            async move {
                let mut output = blocks(&c, 4);
                c.neighbor_all_to_all(&twice, &blocks(&c, 4), &mut output).await
            }
        }),
    ),
    (
        "lengths of an all_reduce_many with the same sum",
        call!(c => c.all_reduce_many(&mut [&mut [1f32; 4][..], &mut [1f32; 2]], SUM)),
        call!(c => c.all_reduce_many(&mut [&mut [1f32; 3], &mut [1f32; 3]], SUM)),
    ),
    (
        "empty buffers of an all_reduce_many",
        call!(c => c.all_reduce_many(&mut [[0f32; 0]; 0], SUM)),
        call!(c => c.all_reduce_many(&mut [[0f32; 0]], SUM)),
    ),
    (
        "names of reductions",
        call!(c => c.all_reduce_with(&mut [1f32; 4], &named("one"))),
        call!(c => c.all_reduce_with(&mut [1f32; 4], &named("other"))),
    ),
    (
        "elements of reductions of one name",
        call!(c => c.all_reduce_with(&mut [1f32; 4], &named("own"))),
        call!(c => c.all_reduce_with(
            &mut [1f64; 4],
            &Reduction::commutative("own", |a: &f64, b: &f64| a + b),
        )),
    ),
    (
        "the smallest and the largest value with its location",
        call!(c => c.all_reduce_min_location(&mut [1f32; 4], &mut [0; 4])),
        call!(c => c.all_reduce_max_location(&mut [1f32; 4], &mut [0; 4])),
    ),
    (
        "settings of a compression",
        call!(c => c.all_reduce_compressed(
            &mut [1f32; 4],
            SUM,
            &mut Compression::new(TopK::new(0.5).unwrap()),
        )),
        call!(c => c.all_reduce_compressed(
            &mut [1f32; 4],
            SUM,
            &mut Compression::new(TopK::new(0.25).unwrap()),
        )),
    ),
    (
        "lists of a subgroup",
        call!(c => c.subgroup(&[0, 1])),
        call!(c => c.subgroup(&[1, 0])),
    ),
    (
        "lists of a subgroup that one rank is not in",
        call!(c => c.subgroup(&[0])),
        call!(c => c.subgroup(&[1])),
    ),
];
