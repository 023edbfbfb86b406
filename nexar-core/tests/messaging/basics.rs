//! Values, order and matching.

use crate::world::{World, body, ranks, settle, start};
use bytes::Bytes;
use nexar_core::{
    Error,
    messaging::{MessageFailure, Source, Tag},
};

const LENGTHS: [usize; 8] = [0, 1, 100, 5000, 65_536, 65_537, 300_000, 3_000_000];

#[tokio::test]
async fn every_length_arrives_in_every_way() {
    for size in [1, 2, 3, 5, 8] {
        let world = World::new(size).await;
        for (from, to) in [(0, size - 1), (size - 1, 0)] {
            for (tag, length) in LENGTHS.into_iter().enumerate() {
                let (sender, receiver) = (&world.ranks[from], &world.ranks[to]);
                let tag = tag as u64;
                let expected = body(length + from, length);
                let mut buffer = vec![0xaa; length + 3];
                let (sent, received) = tokio::join!(
                    sender.send(to, tag, expected.clone().into()),
                    receiver.recv_into(from, tag, &mut buffer)
                );
                sent.unwrap();
                let received = received.unwrap();
                assert_eq!(
                    (received.source, received.tag, received.length),
                    (from, tag, length)
                );
                assert_eq!(buffer[..length], expected);
                assert_eq!(buffer[length..], [0xaa; 3]);

                let (left, right) = expected.split_at(length / 3);
                let parts = [left, &[], right];
                let (sent, received) = tokio::join!(
                    sender.send_parts(to, tag, &parts),
                    receiver.recv(from, tag, length)
                );
                sent.unwrap();
                assert_eq!(received.unwrap().1, expected);

                let mut seen = Vec::new();
                let (sent, received) = tokio::join!(
                    sender.send(to, tag, expected.clone().into()),
                    receiver.recv_with(from, tag, |chunk| seen.extend_from_slice(chunk))
                );
                sent.unwrap();
                assert_eq!(received.unwrap().length, length);
                assert_eq!(seen, expected);

                let mut pieces = [vec![0; length / 2], vec![], vec![0; length - length / 2]];
                let [a, b, c] = &mut pieces;
                let mut into: [&mut [u8]; 3] = [a, b, c];
                let (sent, received) = tokio::join!(
                    sender.send(to, tag, expected.clone().into()),
                    receiver.recv_parts(from, tag, &mut into)
                );
                sent.unwrap();
                received.unwrap();
                assert_eq!(pieces.concat(), expected);
            }
        }
        for rank in &world.ranks {
            let stats = rank.stats();
            assert_eq!((stats.unexpected_messages, stats.operations), (0, 0));
        }
    }
}

#[tokio::test]
async fn messages_of_a_tag_keep_their_order_whatever_their_length() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let lengths = [70_000, 1, 0, 65_536, 65_537, 2, 200_000, 3];
    let mut sends = Vec::new();
    for (number, length) in lengths.into_iter().enumerate() {
        let zero = zero.clone();
        let message: Bytes = body(number, length).into();
        sends.push(start(async move { zero.send(1, 5, message).await }).await);
    }
    for (number, length) in lengths.into_iter().enumerate() {
        let (received, bytes) = one.recv(0, 5, 1 << 20).await.unwrap();
        assert_eq!(received.length, length);
        assert_eq!(bytes, body(number, length));
    }
    for send in sends {
        send.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn receives_are_served_in_the_order_of_their_posting() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let patterns: [(Source, Tag); 4] = [
        (Source::Any, 9.into()),
        (0.into(), Tag::Any),
        (0.into(), 9.into()),
        (Source::Any, Tag::Any),
    ];
    let mut receives = Vec::new();
    for (source, tag) in patterns {
        let one = one.clone();
        receives.push(start(async move { one.recv(source, tag, 100).await.unwrap() }).await);
    }
    for number in 0..4 {
        zero.send(1, 9, body(number, 10).into()).await.unwrap();
    }
    for (number, receive) in receives.into_iter().enumerate() {
        assert_eq!(receive.await.unwrap().1, body(number, 10));
    }
}

#[tokio::test]
async fn any_source_gets_what_came_first_and_any_tag_too() {
    let world = World::new(3).await;
    let two = &world.ranks[2];
    let order = [(1, 8), (0, 3), (1, 3), (0, 8), (2, 5)];
    let mut sends = Vec::new();
    for (number, (from, tag)) in order.into_iter().enumerate() {
        let sender = world.ranks[from].clone();
        // Every other one is too long to go at once.
        let message: Bytes = body(number, 10 + number % 2 * 100_000).into();
        sends.push(start(async move { sender.send(2, tag, message).await.unwrap() }).await);
        settle().await;
        two.try_probe(Source::Any, Tag::Any).unwrap();
    }
    assert_eq!(two.probe(Source::Any, 3).await.unwrap().source, 0);
    assert_eq!(two.probe(1, Tag::Any).await.unwrap().tag, 8);
    let (received, bytes) = two.recv(Source::Any, 3, 1 << 20).await.unwrap();
    assert_eq!((received.source, bytes), (0, body(1, 100_010)));
    for number in [0, 2, 3, 4] {
        let (received, bytes) = two.recv(Source::Any, Tag::Any, 1 << 20).await.unwrap();
        assert_eq!((received.source, received.tag), order[number]);
        assert_eq!(bytes, body(number, 10 + number % 2 * 100_000));
    }
    assert_eq!(two.try_probe(Source::Any, Tag::Any).unwrap(), None);
    for send in sends {
        send.await.unwrap();
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_is_discarded_and_the_next_one_is_intact() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    for to in [0, 1] {
        for (first, second) in [(100, 60), (100_000, 60), (100, 70_000), (70_000, 100_000)] {
            let receiver = &world.ranks[to];
            let receive = async {
                let capacity = first.min(second) - 1;
                let mut buffer = vec![0xaa; capacity];
                let error = receiver.recv_into(0, 4, &mut buffer).await.unwrap_err();
                let Error::Message(error) = error else {
                    panic!("{error}")
                };
                let expected = MessageFailure::Truncated {
                    dtype: None,
                    source: 0,
                    tag: 4,
                    length: first,
                    capacity,
                };
                assert_eq!(error.cause, expected);
                assert!(
                    error.to_string().contains(&format!("{first} bytes")),
                    "{error}"
                );
                assert!(buffer.iter().all(|byte| *byte == 0xaa));
                let (_, bytes) = receiver.recv(0, 4, second).await.unwrap();
                assert_eq!(bytes, body(8, second));
            };
            let send = async {
                zero.send(to, 4, body(7, first).into()).await.unwrap();
                zero.send(to, 4, body(8, second).into()).await.unwrap();
            };
            tokio::join!(receive, send);
            assert_eq!(one.stats().unexpected_messages, 0);
        }
    }
}

#[tokio::test]
async fn both_ranks_send_a_large_message_while_they_receive() {
    let world = World::new(2).await;
    let length = 64 << 20;
    let exchange = |rank: usize| {
        let messenger = world.ranks[rank].clone();
        async move {
            let outgoing = body(rank, length);
            let mut incoming = vec![0; length];
            let (sent, received) = tokio::join!(
                messenger.send_from(1 - rank, 1, &outgoing),
                messenger.recv_into(1 - rank, 1, &mut incoming)
            );
            sent.unwrap();
            received.unwrap();
            assert!(incoming == body(1 - rank, length));
        }
    };
    tokio::join!(exchange(0), exchange(1));
}

#[tokio::test]
async fn a_rank_sends_to_itself_before_it_receives() {
    let world = World::new(2).await;
    let one = &world.ranks[1];
    for (number, length) in [10, 0, 70_000, 64 << 20].into_iter().enumerate() {
        one.send(1, 6, body(number, length).into()).await.unwrap();
    }
    for (number, length) in [10, 0, 70_000, 64 << 20].into_iter().enumerate() {
        let (received, bytes) = one.recv(Source::Any, 6, length).await.unwrap();
        assert_eq!((received.source, received.length), (1, length));
        assert!(bytes == body(number, length));
    }
    assert_eq!(one.stats().unexpected_bytes, 0);
}

#[tokio::test]
async fn communicators_do_not_see_each_other() {
    let world = World::new(3).await;
    let others = ranks(&world.meshes, 2);
    for (number, ranks) in [&world.ranks, &others].into_iter().enumerate() {
        ranks[0].send(2, 1, body(number, 20).into()).await.unwrap();
    }
    for (number, ranks) in [&world.ranks, &others].into_iter().enumerate().rev() {
        let (_, bytes) = ranks[2].recv(Source::Any, Tag::Any, 20).await.unwrap();
        assert_eq!(bytes, body(number, 20));
        assert_eq!(ranks[2].try_probe(Source::Any, Tag::Any).unwrap(), None);
    }
}

#[tokio::test]
async fn a_rank_that_does_not_exist_is_refused() {
    let world = World::new(2).await;
    let zero = &world.ranks[0];
    let errors = [
        zero.send(2, 1, Bytes::new()).await.unwrap_err(),
        zero.recv(2, 1, 10).await.unwrap_err(),
        zero.probe(2, 1).await.unwrap_err(),
        zero.try_probe(2, 1).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
}
