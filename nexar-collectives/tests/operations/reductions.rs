//! Reductions whose result is on all ranks, on one, or divided among them.

use super::model::{Framed, Modelled, reduced, same, values};
use nexar_collectives::{Communicator, ReduceOp, transport::Transport};

/// All-reduce in its forms.
pub(crate) async fn all_reduce<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    count: usize,
    op: ReduceOp,
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!(
        "all_reduce {op} of {count} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let input = Framed::new(&values::<E>(rank, 0..count));
    let expected = reduced(op, 0..world, 0..count);

    let mut data = Framed::new(input.slice());
    comm.all_reduce(data.slice_mut(), op).await.unwrap();
    data.expect(&expected, &what);

    let mut output = Framed::empty(count);
    comm.all_reduce_into(input.slice(), output.slice_mut(), op)
        .await
        .unwrap();
    output.expect(&expected, &format!("{what}, into"));
    input.expect(
        &values::<E>(rank, 0..count),
        &format!("input of {what}, into"),
    );
}

/// Reduce to some of the ranks.
pub(crate) async fn reduce<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    count: usize,
    op: ReduceOp,
    roots: &[usize],
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let input = values::<E>(rank, 0..count);
    let expected = reduced(op, 0..world, 0..count);
    for &root in roots {
        let what = format!(
            "reduce {op} to {root} of {count} x {} on {rank} of {world}",
            E::DATA_TYPE
        );
        let mut data = Framed::new(&input);
        comm.reduce(data.slice_mut(), op, root).await.unwrap();
        data.expect(if rank == root { &expected } else { &input }, &what);

        // Elsewhere the output may have any length.
        let length = if rank == root { count } else { rank * 2 };
        let mut output = Framed::empty(length);
        comm.reduce_into(&input, output.slice_mut(), op, root)
            .await
            .unwrap();
        if rank == root {
            output.expect(&expected, &format!("{what}, into"));
        } else {
            output.expect_untouched(&format!("{what}, into"));
        }
        same(
            &input,
            &values::<E>(rank, 0..count),
            &format!("input of {what}"),
        );
    }
}

/// Reduce-scatter in its forms.
pub(crate) async fn reduce_scatter<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    count: usize,
    op: ReduceOp,
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!(
        "reduce_scatter {op} of {count} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let input = values::<E>(rank, 0..count * world);
    let mine = rank * count..(rank + 1) * count;
    let expected = reduced(op, 0..world, mine.clone());

    let mut block = Framed::empty(count);
    comm.reduce_scatter(&input, block.slice_mut(), op)
        .await
        .unwrap();
    block.expect(&expected, &what);
    same(
        &input,
        &values::<E>(rank, 0..count * world),
        &format!("input of {what}"),
    );

    // The other blocks are unspecified afterwards.
    let mut data = Framed::new(&input);
    comm.reduce_scatter_in_place(data.slice_mut(), op)
        .await
        .unwrap();
    let what = format!("{what}, in place");
    let mut whole = data.slice().to_vec();
    whole[mine].copy_from_slice(&expected);
    data.expect(&whole, &what);
}

/// Reduce-scatter with blocks of different lengths, some of them empty.
pub(crate) async fn reduce_scatter_v<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    counts: &[usize],
    op: ReduceOp,
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!(
        "reduce_scatter_v {op} of {counts:?} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let total = counts.iter().sum();
    let start: usize = counts[..rank].iter().sum();
    let input = values::<E>(rank, 0..total);
    let mut block = Framed::empty(counts[rank]);
    comm.reduce_scatter_v(&input, block.slice_mut(), counts, op)
        .await
        .unwrap();
    block.expect(&reduced(op, 0..world, start..start + counts[rank]), &what);
    same(
        &input,
        &values::<E>(rank, 0..total),
        &format!("input of {what}"),
    );
}

/// All-reduce of several buffers.
pub(crate) async fn all_reduce_many<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    lengths: &[usize],
    op: ReduceOp,
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let starts = lengths.iter().scan(0, |start, length| {
        let own = *start;
        *start += length;
        Some(own..own + length)
    });
    let ranges: Vec<_> = starts.collect();
    let frame = |range: &std::ops::Range<usize>| Framed::new(&values::<E>(rank, range.clone()));
    let mut buffers: Vec<Framed<E>> = ranges.iter().map(frame).collect();
    let mut slices: Vec<&mut [E]> = buffers.iter_mut().map(Framed::slice_mut).collect();
    comm.all_reduce_many(&mut slices, op).await.unwrap();
    for (buffer, range) in buffers.iter().zip(ranges) {
        let what = format!(
            "all_reduce_many {op} of {lengths:?} x {}, elements {range:?} on {rank} of {world}",
            E::DATA_TYPE
        );
        buffer.expect(&reduced(op, 0..world, range), &what);
    }
}

/// Sums to which each rank contributes with a factor of its own.
pub(crate) async fn all_reduce_scaled<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    count: usize,
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!(
        "all_reduce_scaled of {count} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let factor = |rank| E::value(rank + 3, 5);
    let scaled =
        |rank, index| E::reduced(ReduceOp::Product, &[E::value(rank, index), factor(rank)]);
    let expected: Vec<E> = (0..count)
        .map(|index| {
            let all: Vec<E> = (0..world).map(|rank| scaled(rank, index)).collect();
            E::reduced(ReduceOp::Sum, &all)
        })
        .collect();
    let mut data = Framed::new(&values::<E>(rank, 0..count));
    comm.all_reduce_scaled(data.slice_mut(), factor(rank))
        .await
        .unwrap();
    data.expect(&expected, &what);
}
