//! What arrives, between all ranks and in every way.

use crate::{
    LARGE, Ranks,
    common::{WORLDS, on_all},
    memory, numbers, quic,
};
use nexar_collectives::{Communicator, Element, Source, Tag, bf16, transport::Transport};
use std::sync::Arc;
use tokio::task::JoinSet;

/// One message from every rank to every rank, itself included, of a length that depends on both.
async fn all_to_all<T: Transport, E: Element>(
    ranks: &Ranks<T>,
    count: usize,
    make: fn(usize) -> E,
) {
    let values = move |from: usize, to: usize| -> Vec<E> {
        let length = count + 3 * from + to;
        (0..length).map(|i| make(i * 31 + from * 7 + to)).collect()
    };
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, size) = (comm.rank(), comm.world_size());
        let mut sends = JoinSet::new();
        for to in 0..size {
            let comm = Arc::clone(&comm);
            let tag = (100 * rank + to) as u64;
            sends.spawn(async move { comm.send(&values(rank, to), to, tag).await });
        }
        for from in (0..size).rev() {
            let expected = values(from, rank);
            let tag = (100 * from + rank) as u64;
            let mut buffer = vec![make(1); expected.len() + 1];
            let received = if from % 2 == 0 {
                comm.recv(&mut buffer, from, tag).await.unwrap()
            } else {
                let (first, rest) = buffer.split_at_mut(from);
                let mut parts = [first, rest];
                comm.recv_parts(&mut parts, Source::Any, tag).await.unwrap()
            };
            assert_eq!((received.source, received.tag), (from, tag));
            assert_eq!(received.dtype, Some(E::DATA_TYPE));
            assert_eq!(received.count, expected.len());
            assert!(buffer[..received.count] == expected);
            assert_eq!(buffer[received.count], make(1));
        }
        sends.join_all().await.into_iter().for_each(Result::unwrap);
        assert_eq!(comm.try_probe(Source::Any, Tag::Any).unwrap(), None);
    };
    on_all(ranks, work).await;
}

async fn all_types<T: Transport>(ranks: Ranks<T>) {
    for count in [0, 20_000] {
        all_to_all(&ranks, count, |n| n as f32).await;
        all_to_all(&ranks, count, |n| n as f64).await;
        all_to_all(&ranks, count, |n| bf16::from_f32((n % 256) as f32)).await;
        all_to_all(&ranks, count, |n| n as i8).await;
        all_to_all(&ranks, count, |n| n as u16).await;
        all_to_all(&ranks, count, |n| n as i64).await;
        all_to_all(&ranks, count, |n| n % 3 == 0).await;
    }
}

#[tokio::test]
async fn every_rank_sends_to_every_rank() {
    for world in WORLDS {
        all_types(memory(world).await).await;
        all_types(quic(world).await).await;
    }
}

async fn exchange<T: Transport>(ranks: Ranks<T>, both_in_one_call: bool) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let other = 1 - comm.rank();
        let outgoing = numbers(comm.rank(), LARGE);
        let mut incoming = vec![-1.0; LARGE];
        let received = if both_in_one_call {
            comm.send_recv(&outgoing, other, 4, &mut incoming, other, 4)
                .await
        } else {
            let (send, receive) = (
                comm.send(&outgoing, other, 4),
                comm.recv(&mut incoming, other, 4),
            );
            let (sent, received) = tokio::join!(send, receive);
            sent.and(received)
        };
        assert_eq!(received.unwrap().count, LARGE);
        assert!(incoming == numbers(other, LARGE));
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn large_messages_cross_each_other() {
    for both_in_one_call in [true, false] {
        exchange(memory(2).await, both_in_one_call).await;
        exchange(quic(2).await, both_in_one_call).await;
    }
}

async fn circle<T: Transport>(ranks: Ranks<T>) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, size) = (comm.rank(), comm.world_size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let outgoing = numbers(rank, 100_000 + rank);
        let mut incoming = vec![0.0; 100_010];
        let received = comm
            .send_recv(
                &outgoing,
                next,
                rank as u64,
                &mut incoming,
                previous,
                Tag::Any,
            )
            .await
            .unwrap();
        assert_eq!((received.source, received.tag), (previous, previous as u64));
        assert!(incoming[..received.count] == numbers(previous, 100_000 + previous));
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn blocks_go_round_in_a_circle() {
    for world in WORLDS {
        circle(memory(world).await).await;
        circle(quic(world).await).await;
    }
}

async fn to_itself<T: Transport>(ranks: Ranks<T>) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let rank = comm.rank();
        let counts = [5, 0, 20_000, LARGE];
        for (number, count) in counts.into_iter().enumerate() {
            comm.send(&numbers(number, count), rank, 2).await.unwrap();
        }
        for (number, count) in counts.into_iter().enumerate() {
            let received = comm.recv_vec::<f32>(Source::Any, 2, count).await;
            let (received, values) = received.unwrap();
            assert_eq!((received.source, received.count), (rank, count));
            assert!(values == numbers(number, count));
        }
        let mut back = vec![0.0; 30_000];
        comm.send_recv(&numbers(rank, 30_000), rank, 3, &mut back, rank, 3)
            .await
            .unwrap();
        assert!(back == numbers(rank, 30_000));
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn a_rank_sends_to_itself_before_it_receives() {
    to_itself(memory(1).await).await;
    to_itself(memory(2).await).await;
    to_itself(quic(2).await).await;
}
