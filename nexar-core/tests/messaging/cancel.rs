//! Operations that are dropped before they are done.

use crate::world::{World, at_most, body, settle, start};
use bytes::Bytes;
use nexar_core::{
    Error,
    messaging::{MessageFailure, Source, Tag},
};

#[tokio::test]
async fn a_receive_dropped_at_any_point_consumes_nothing() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    for length in [10, 65_537, 5 << 20] {
        let message = Bytes::from(body(length, length));
        for polls in 0..30 {
            let send = {
                let (zero, message) = (zero.clone(), message.clone());
                start(async move { zero.send(1, 1, message).await.unwrap() }).await
            };
            let mut buffer = vec![0; length];
            let first = at_most(polls, one.recv_into(0, 1, &mut buffer)).await;
            if first.is_none() {
                let mut seen = Vec::new();
                let visitor = |chunk: &[u8]| seen.extend_from_slice(chunk);
                if at_most(polls, one.recv_with(Source::Any, 1, visitor))
                    .await
                    .is_none()
                {
                    let (_, bytes) = one.recv(0, Tag::Any, length).await.unwrap();
                    assert!(bytes == message);
                } else {
                    assert!(seen == message);
                }
            } else {
                assert!(buffer == message);
            }
            send.await.unwrap();
            assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
        }
    }
}

#[tokio::test]
async fn a_dropped_receive_leaves_its_message_to_the_next_and_in_its_place() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    for length in [10, 100_000] {
        let mut first = Box::pin(one.recv(0, 1, length));
        assert!(at_most(1, first.as_mut()).await.is_none());
        let second = {
            let one = one.clone();
            start(async move { one.recv(Source::Any, 1, length).await.unwrap().1 }).await
        };
        let mut sends = Vec::new();
        for number in 0..3 {
            let (zero, message) = (zero.clone(), body(number, length).into());
            sends.push(start(async move { zero.send(1, 1, message).await.unwrap() }).await);
        }
        settle().await;
        // By now the first message is the first receive's, which never saw it. The second receive may
        // have the second message already; if not, it gets the first one.
        drop(first);
        let mut numbers = vec![second.await.unwrap()];
        for _ in 0..2 {
            numbers.push(one.recv(0, 1, length).await.unwrap().1);
        }
        let expected: Vec<_> = if numbers[0] == body(0, length) {
            vec![0, 1, 2]
        } else {
            vec![1, 0, 2]
        };
        let expected: Vec<_> = expected.into_iter().map(|n| body(n, length)).collect();
        assert!(numbers == expected);
        for send in sends {
            send.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_send_dropped_at_any_point_is_received_as_a_whole_or_not_at_all() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let mut whole = 0;
    for length in [10, 65_537, 5 << 20] {
        for polls in 0..40 {
            let receive = {
                let one = one.clone();
                start(async move { one.recv(0, 1, length.max(50)).await.unwrap().1 }).await
            };
            let first = Bytes::from(body(1, length));
            let done = at_most(polls, zero.send(1, 1, first.clone()))
                .await
                .is_some();
            // The next message of the tag is intact.
            let second = Bytes::from(body(2, 50));
            zero.send(1, 1, second.clone()).await.unwrap();
            let received = receive.await.unwrap();
            if received == first {
                whole += 1;
                assert_eq!(one.recv(0, 1, 50).await.unwrap().1, second);
            } else {
                assert!(!done);
                assert_eq!(received, second);
            }
            assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
        }
    }
    assert!(whole > 0);
}

#[tokio::test]
async fn a_visitor_that_has_seen_a_part_of_a_withdrawn_message_is_told() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let length = 20 << 20;
    let (seen, saw) = tokio::sync::watch::channel(0);
    let receive = {
        let one = one.clone();
        start(async move {
            one.recv_with(0, 1, |chunk| seen.send_modify(|seen| *seen += chunk.len()))
                .await
        })
        .await
    };
    let mut saw_some = saw.clone();
    let large = vec![1; length];
    tokio::select! {
        sent = zero.send_from(1, 1, &large) => panic!("{sent:?}"),
        some = saw_some.wait_for(|seen| *seen > 0) => assert!(*some.unwrap() > 0),
    }
    let Error::Message(error) = receive.await.unwrap().unwrap_err() else {
        panic!()
    };
    assert_eq!(error.cause, MessageFailure::Withdrawn { source: 0, tag: 1 });
    assert!(*saw.borrow() < length);
    zero.send(1, 1, body(1, 10).into()).await.unwrap();
    assert_eq!(one.recv(0, 1, 10).await.unwrap().1, body(1, 10));
}

#[tokio::test]
async fn thousands_of_half_read_messages_that_are_given_up_cost_nothing_later() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let message = Bytes::from(body(5, 1 << 20));
    for number in 0..2000 {
        let (zero, message) = (zero.clone(), message.clone());
        let send = start(async move { zero.send(1, 1, message).await }).await;
        let mut buffer = vec![0; 1 << 20];
        let _ = at_most(number % 6, one.recv_into(0, 1, &mut buffer)).await;
        send.abort();
        let _ = send.await;
    }
    settle().await;
    assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
    let stats = one.stats();
    assert_eq!(
        (stats.unexpected_messages, stats.incoming_transfers),
        (0, 0)
    );
    let (sent, received) = tokio::join!(zero.send(1, 1, message.clone()), one.recv(0, 1, 1 << 20));
    sent.unwrap();
    assert!(received.unwrap().1 == message);
}
