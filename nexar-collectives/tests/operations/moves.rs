//! Operations that move data from, to or between all ranks.

use super::model::{Framed, Modelled, any, same};
use nexar_collectives::{Communicator, transport::Transport};

/// Broadcast, gather and scatter from and to some of the ranks.
pub(crate) async fn rooted<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    count: usize,
    roots: &[usize],
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let input = any::<E>(rank, 0..count);
    for &root in roots {
        let what = format!("{root}, {count} x {} on {rank} of {world}", E::DATA_TYPE);
        let mut data = Framed::new(&input);
        comm.broadcast(data.slice_mut(), root).await.unwrap();
        data.expect(&any::<E>(root, 0..count), &format!("broadcast from {what}"));

        // What does not matter may have any length.
        let length = if rank == root { count * world } else { rank };
        let mut gathered = Framed::empty(length);
        comm.gather(&input, gathered.slice_mut(), root)
            .await
            .unwrap();
        if rank == root {
            let all: Vec<E> = (0..world).flat_map(|r| any::<E>(r, 0..count)).collect();
            gathered.expect(&all, &format!("gather to {what}"));
        } else {
            gathered.expect_untouched(&format!("gather to {what}"));
        }
        same(
            &input,
            &any::<E>(rank, 0..count),
            &format!("input of gather to {what}"),
        );

        let source = any::<E>(rank, 0..length);
        let mut block = Framed::empty(count);
        comm.scatter(&source, block.slice_mut(), root)
            .await
            .unwrap();
        block.expect(
            &any::<E>(root, rank * count..(rank + 1) * count),
            &format!("scatter from {what}"),
        );
        same(
            &source,
            &any::<E>(rank, 0..length),
            &format!("input of scatter from {what}"),
        );
    }
}

/// Gather and scatter with blocks of different lengths, some of them empty.
pub(crate) async fn rooted_v<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    counts: &[usize],
    roots: &[usize],
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let total: usize = counts.iter().sum();
    let start: usize = counts[..rank].iter().sum();
    let input = any::<E>(rank, 0..counts[rank]);
    for &root in roots {
        let what = format!("{root}, {counts:?} x {} on {rank} of {world}", E::DATA_TYPE);
        let is_root = rank == root;
        // What does not matter may be anything.
        let length = if is_root { total } else { rank };
        let known = if is_root { counts } else { &counts[..rank / 2] };
        let mut gathered = Framed::empty(length);
        comm.gather_v(&input, gathered.slice_mut(), known, root)
            .await
            .unwrap();
        if is_root {
            let blocks = counts.iter().enumerate();
            let all: Vec<E> = blocks.flat_map(|(r, n)| any::<E>(r, 0..*n)).collect();
            gathered.expect(&all, &format!("gather_v to {what}"));
        } else {
            gathered.expect_untouched(&format!("gather_v to {what}"));
        }

        let source = any::<E>(rank, 0..length);
        let mut block = Framed::empty(counts[rank]);
        comm.scatter_v(&source, known, block.slice_mut(), root)
            .await
            .unwrap();
        block.expect(
            &any::<E>(root, start..start + counts[rank]),
            &format!("scatter_v from {what}"),
        );
    }
}

/// All-gather in its forms with blocks of one length.
pub(crate) async fn all_gather<T: Transport, E: Modelled>(comm: &Communicator<T>, count: usize) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!(
        "all_gather of {count} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let input = any::<E>(rank, 0..count);
    let all: Vec<E> = (0..world).flat_map(|r| any::<E>(r, 0..count)).collect();
    let mut output = Framed::empty(count * world);
    comm.all_gather(&input, output.slice_mut()).await.unwrap();
    output.expect(&all, &what);
    same(
        &input,
        &any::<E>(rank, 0..count),
        &format!("input of {what}"),
    );

    let mut data = Framed::empty(count * world);
    data.slice_mut()[rank * count..(rank + 1) * count].copy_from_slice(&input);
    comm.all_gather_in_place(data.slice_mut()).await.unwrap();
    data.expect(&all, &format!("{what}, in place"));
}

/// All-gather of blocks of different lengths, some of them empty.
pub(crate) async fn all_gather_v<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    counts: &[usize],
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!(
        "all_gather_v of {counts:?} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let input = any::<E>(rank, 0..counts[rank]);
    let blocks = counts.iter().enumerate();
    let all: Vec<E> = blocks.flat_map(|(r, n)| any::<E>(r, 0..*n)).collect();
    let mut output = Framed::empty(all.len());
    comm.all_gather_v(&input, output.slice_mut(), counts)
        .await
        .unwrap();
    output.expect(&all, &what);
    same(
        &input,
        &any::<E>(rank, 0..counts[rank]),
        &format!("input of {what}"),
    );
}
