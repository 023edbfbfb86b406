//! Which message a receive gets, and that collectives do not come between.

use crate::{
    LARGE, Ranks,
    common::{WORLDS, on_all},
    is_done, memory, numbers, quic,
};
use nexar_collectives::{Communicator, ReduceOp, Source, Tag, transport::Transport};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Rank 0 tells the others one by one to send.
async fn in_turn<T: Transport>(ranks: Ranks<T>) {
    const GO: u64 = 1;
    const TURNS: u64 = 100;
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, size) = (comm.rank(), comm.world_size());
        let turns: Vec<usize> = (0..size * 3).map(|turn| turn * 5 % size).collect();
        // Every other one is too long to go at once.
        let message = |turn: usize| numbers(turn, 10 + turn % 2 * 20_000);
        let send = |turn: usize| {
            let (comm, message) = (Arc::clone(&comm), message(turn));
            async move { comm.send(&message, 0, TURNS + turn as u64).await }
        };
        let mut sends = JoinSet::new();
        for (turn, from) in turns.iter().copied().enumerate() {
            if rank == from {
                let mut go = [turn];
                if rank > 0 {
                    let mut number = [0_u64];
                    comm.recv(&mut number, 0, GO).await.unwrap();
                    go = [number[0] as usize];
                }
                sends.spawn(send(go[0]));
            }
            if rank == 0 {
                if from > 0 {
                    comm.send(&[turn as u64], from, GO).await.unwrap();
                }
                comm.probe(from, TURNS + turn as u64).await.unwrap();
            }
        }
        if rank == 0 {
            for (turn, from) in turns.into_iter().enumerate() {
                let received = comm.recv_vec::<f32>(Source::Any, Tag::Any, LARGE).await;
                let (received, values) = received.unwrap();
                let expected = (from, TURNS + turn as u64);
                assert_eq!((received.source, received.tag), expected);
                assert!(values == message(turn));
            }
        }
        sends.join_all().await.into_iter().for_each(Result::unwrap);
    };
    on_all(&ranks, work).await;
}

/// All at once with one tag: what comes from each keeps its order.
async fn all_at_once<T: Transport>(ranks: Ranks<T>) {
    const MANY: u32 = 200;
    let work = |comm: Arc<Communicator<T>>| async move {
        let send = async {
            for number in 0..MANY {
                let message = vec![number; 1 + number as usize % 7 * 3000];
                comm.send(&message, 0, 7).await.unwrap();
            }
        };
        let receive = async {
            let mut next = vec![0; comm.world_size()];
            for _ in 0..MANY as usize * next.len() {
                let found = comm.recv_vec::<u32>(Source::Any, 7, 20_000).await;
                let (received, values) = found.unwrap();
                let number = &mut next[received.source];
                assert_eq!(values.len(), 1 + *number as usize % 7 * 3000);
                assert!(values.iter().all(|value| value == number));
                *number += 1;
            }
        };
        if comm.rank() == 0 {
            tokio::join!(send, receive);
        } else {
            send.await;
        }
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn any_source_gets_what_came_first() {
    for world in WORLDS {
        in_turn(memory(world).await).await;
        in_turn(quic(world).await).await;
        all_at_once(memory(world).await).await;
        all_at_once(quic(world).await).await;
    }
}

async fn beside_collectives<T: Transport>(ranks: Ranks<T>) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, size) = (comm.rank(), comm.world_size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut one = [0_u8; 1];
        // It waits all the time for what is sent at the end.
        let mut waits = Box::pin(comm.recv(&mut one, Source::Any, Tag::Any));
        assert!(!is_done(waits.as_mut()).await);
        let collectives = async {
            for round in 0..30 {
                let count = [1, 1000, 200_000][round % 3];
                let mut data = vec![rank as u64; count];
                comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                assert_eq!(data, vec![(size * (size - 1) / 2) as u64; count]);
                comm.barrier().await.unwrap();
            }
            comm.send(&[rank as u8 + 1], next, 9).await.unwrap();
        };
        let (received, ()) = tokio::join!(waits, collectives);
        let received = received.unwrap();
        assert_eq!((received.source, received.tag), (previous, 9));
        assert_eq!(one, [previous as u8 + 1]);
        comm.barrier().await.unwrap();

        // Messages and collectives at the same time.
        let messages = async {
            for number in 0..60 {
                let count = [3, 30_000][number % 2];
                let outgoing = numbers(number + rank, count);
                let mut incoming = vec![0.0; count];
                let exchange = comm.send_recv(
                    &outgoing,
                    next,
                    number as u64,
                    &mut incoming,
                    Source::Any,
                    Tag::Any,
                );
                let received = exchange.await.unwrap();
                assert_eq!((received.source, received.tag), (previous, number as u64));
                assert!(incoming == numbers(number + previous, count));
            }
        };
        let collectives = async {
            for round in 0..30 {
                let mut data = vec![(rank + round) as i32; 5000];
                comm.all_reduce(&mut data, ReduceOp::Max).await.unwrap();
                assert_eq!(data, vec![(size - 1 + round) as i32; 5000]);
            }
        };
        tokio::join!(messages, collectives);
        assert_eq!(comm.try_probe(Source::Any, Tag::Any).unwrap(), None);
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn messages_and_collectives_do_not_see_each_other() {
    for world in WORLDS {
        beside_collectives(memory(world).await).await;
        beside_collectives(quic(world).await).await;
    }
}
