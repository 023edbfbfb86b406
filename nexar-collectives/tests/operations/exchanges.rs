//! Operations in which each rank sends others different things.

use super::model::{Framed, Modelled, any, same};
use nexar_collectives::{Communicator, transport::Transport};

/// The block that a rank sends another one: `number` tells several of them apart.
fn block<E: Modelled>(from: usize, to: usize, number: usize, count: usize) -> Vec<E> {
    let start = (to * 8 + number) * 1_000_000;
    any(from, start..start + count)
}

/// All-to-all in its forms with blocks of one length.
pub(crate) async fn all_to_all<T: Transport, E: Modelled>(comm: &Communicator<T>, count: usize) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!(
        "all_to_all of {count} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let input: Vec<E> = (0..world)
        .flat_map(|to| block(rank, to, 0, count))
        .collect();
    let expected: Vec<E> = (0..world)
        .flat_map(|from| block(from, rank, 0, count))
        .collect();
    let mut output = Framed::empty(count * world);
    comm.all_to_all(&input, output.slice_mut()).await.unwrap();
    output.expect(&expected, &what);
    let before: Vec<E> = (0..world)
        .flat_map(|to| block(rank, to, 0, count))
        .collect();
    same(&input, &before, &format!("input of {what}"));

    let mut data = Framed::new(&input);
    comm.all_to_all_in_place(data.slice_mut()).await.unwrap();
    data.expect(&expected, &format!("{what}, in place"));
}

/// All-to-all with blocks of different lengths: `count(i, j)` elements from rank i to rank j.
pub(crate) async fn all_to_all_v<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    count: impl Fn(usize, usize) -> usize,
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let sends: Vec<usize> = (0..world).map(|to| count(rank, to)).collect();
    let receives: Vec<usize> = (0..world).map(|from| count(from, rank)).collect();
    let what = format!(
        "all_to_all_v of {sends:?} for {receives:?} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let input: Vec<E> = (0..world)
        .flat_map(|to| block(rank, to, 0, sends[to]))
        .collect();
    let expected: Vec<E> = (0..world)
        .flat_map(|from| block(from, rank, 0, receives[from]))
        .collect();
    let mut output = Framed::empty(expected.len());
    comm.all_to_all_v(&input, &sends, output.slice_mut(), &receives)
        .await
        .unwrap();
    output.expect(&expected, &what);
}

/// Whom each rank of a world exchanges blocks with.
type Topology = fn(rank: usize, world: usize) -> Vec<usize>;

const TOPOLOGIES: [(&str, Topology); 7] = [
    // The same rank twice in a world of two, and this one twice in a world of one.
    ("ring", |rank, world| {
        vec![(rank + world - 1) % world, (rank + 1) % world]
    }),
    ("star", |rank, world| match rank {
        0 => (1..world).collect(),
        _ => vec![0],
    }),
    ("nobody", |_, _| vec![]),
    ("this rank", |rank, _| vec![rank]),
    ("everybody downwards, twice", |_, world| {
        (0..world).rev().chain(0..world).collect()
    }),
    ("pairs, the last one three times", |rank, world| {
        let other = rank ^ 1;
        match other < world {
            true if rank / 2 == (world - 2) / 2 => vec![other, rank, other, other],
            true => vec![other],
            false => vec![],
        }
    }),
    ("the first two", |rank, world| match (rank, world) {
        (0, 2..) => vec![1],
        (1, _) => vec![0],
        _ => vec![],
    }),
];

/// Exchanges with neighbours in several topologies.
pub(crate) async fn neighbors<T: Transport, E: Modelled>(comm: &Communicator<T>, count: usize) {
    for (name, topology) in TOPOLOGIES {
        neighbor_all_to_all::<T, E>(comm, name, topology, |_, _| count, false).await;
        let uneven = move |from: usize, to: usize| (from * 2 + to) % 3 * count;
        neighbor_all_to_all::<T, E>(comm, name, topology, uneven, true).await;
    }
}

async fn neighbor_all_to_all<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    name: &str,
    topology: Topology,
    count: impl Fn(usize, usize) -> usize,
    uneven: bool,
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let neighbors = topology(rank, world);
    let sends: Vec<usize> = neighbors.iter().map(|to| count(rank, *to)).collect();
    let receives: Vec<usize> = neighbors.iter().map(|from| count(*from, rank)).collect();
    let what = format!(
        "exchange with {name} of {sends:?} for {receives:?} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    // The n-th block that one sends another is the n-th that the other receives from it.
    let number = |at: usize| {
        neighbors[..at]
            .iter()
            .filter(|n| **n == neighbors[at])
            .count()
    };
    let numbered = || neighbors.iter().enumerate();
    let input: Vec<E> = numbered()
        .flat_map(|(at, to)| block(rank, *to, number(at), sends[at]))
        .collect();
    let expected: Vec<E> = numbered()
        .flat_map(|(at, from)| block(*from, rank, number(at), receives[at]))
        .collect();
    let mut output = Framed::empty(expected.len());
    if uneven {
        comm.neighbor_all_to_all_v(&neighbors, &input, &sends, output.slice_mut(), &receives)
            .await
            .unwrap();
    } else {
        comm.neighbor_all_to_all(&neighbors, &input, output.slice_mut())
            .await
            .unwrap();
    }
    output.expect(&expected, &what);
}
