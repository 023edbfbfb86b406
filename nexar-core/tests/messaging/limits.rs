//! What is bounded, and what happens at the bounds.

use crate::world::{World, body, settle, start};
use bytes::Bytes;
use nexar_core::{
    Error, TimeLimits,
    messaging::{
        CREDIT, MAX_TRANSFERS, MESSAGE_COST, MessageFailure, OWN_LIMIT, Source, Tag, WaitingFor,
    },
};
use std::time::Duration;

#[tokio::test]
async fn a_tag_that_is_never_received_holds_up_no_other() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let large = Bytes::from(body(1, 1 << 20));
    let mut stalled = Vec::new();
    for _ in 0..1000 {
        let (zero, large) = (zero.clone(), large.clone());
        stalled.push(start(async move { zero.send(1, 100, large).await }).await);
    }
    for length in [10, 1 << 20] {
        let message = body(2, length);
        let (sent, received) = tokio::join!(
            zero.send(1, 200, message.clone().into()),
            one.recv(0, 200, length)
        );
        sent.unwrap();
        assert_eq!(received.unwrap().1, message);
    }
    let stats = one.stats();
    assert_eq!(
        (stats.unexpected_messages, stats.unexpected_bytes),
        (1000, 0)
    );
    for send in stalled {
        send.abort();
    }
    settle().await;
    assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
    assert_eq!(one.stats().unexpected_messages, 0);
}

#[tokio::test]
async fn small_messages_that_nobody_receives_are_bounded_by_the_credit() {
    for length in [0, 64, 60_000] {
        let world = World::new(2).await;
        let [zero, one] = &world.ranks[..] else {
            panic!()
        };
        let many = CREDIT / (length + MESSAGE_COST);
        for number in 0..many {
            zero.send(1, 1, body(number, length).into()).await.unwrap();
        }
        let last = {
            let (zero, message) = (zero.clone(), body(many, length).into());
            start(async move { zero.send(1, 1, message).await }).await
        };
        settle().await;
        assert!(!last.is_finished(), "it waits for a receive");
        let stats = one.stats();
        assert_eq!(stats.unexpected_messages, many + 1);
        assert_eq!(stats.unexpected_bytes, many * length);
        for number in 0..=many {
            let (_, bytes) = one.recv(0, 1, length).await.unwrap();
            assert_eq!(bytes, body(number, length));
        }
        last.await.unwrap().unwrap();
        settle().await;
        // Less than a batch of the credit is still to be given back; no message waits for it.
        let batch = CREDIT / 4 / (length + MESSAGE_COST);
        for number in 0..batch {
            zero.send(1, 1, body(number, length).into()).await.unwrap();
            one.recv(0, 1, length).await.unwrap();
        }
    }
}

#[tokio::test]
async fn many_small_messages_leave_nothing_behind() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let many = 100_000;
    let send = async {
        for number in 0..many {
            zero.send(1, number % 7, Bytes::copy_from_slice(&[number as u8; 64]))
                .await
                .unwrap();
        }
    };
    let receive = async {
        let mut most = 0;
        for number in 0..many {
            let (_, bytes) = one.recv(0, number % 7, 64).await.unwrap();
            assert_eq!(bytes, [number as u8; 64]);
            most = most.max(one.stats().unexpected_bytes);
        }
        assert!(most <= CREDIT, "{most} bytes");
    };
    tokio::join!(send, receive);
    settle().await;
    for rank in [zero, one] {
        let stats = rank.stats();
        assert_eq!((stats.unexpected_messages, stats.unexpected_bytes), (0, 0));
        assert_eq!(
            (
                stats.operations,
                stats.queued_bytes,
                stats.incoming_transfers
            ),
            (0, 0, 0)
        );
    }
}

#[tokio::test]
async fn small_messages_arrive_where_nobody_waits() {
    // The lanes are written and read even if no rank is in an operation.
    let world = World::new(2).await;
    for number in 0..20 {
        let message = body(number, 100).into();
        world.ranks[0].send(1, 1, message).await.unwrap();
    }
    settle().await;
    assert_eq!(world.ranks[1].stats().unexpected_bytes, 2000);
}

#[tokio::test]
async fn a_receive_that_is_not_polled_any_more_does_not_hold_up_others() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let mut first = Box::pin(one.recv(0, 1, 10));
    let waits = {
        let one = one.clone();
        start(async move { one.recv(0, 2, 10).await.unwrap().1 }).await
    };
    // The one that was polled last, which wake-ups go to.
    let polled =
        std::future::poll_fn(|cx| std::task::Poll::Ready(first.as_mut().poll(cx).is_ready())).await;
    assert!(!polled);
    zero.send(1, 2, body(2, 10).into()).await.unwrap();
    assert_eq!(waits.await.unwrap(), body(2, 10));
    zero.send(1, 1, body(1, 10).into()).await.unwrap();
    assert_eq!(first.await.unwrap().1, body(1, 10));
}

#[tokio::test]
async fn large_messages_come_a_few_at_a_time() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let length = 1 << 20;
    let many = MAX_TRANSFERS * 3;
    let mut receives = Vec::new();
    for number in 0..many {
        let one = one.clone();
        receives.push(start(async move { one.recv(0, number as u64, length).await }).await);
    }
    let mut sends = Vec::new();
    for number in 0..many {
        let (zero, message) = (zero.clone(), body(number, length).into());
        sends.push(start(async move { zero.send(1, number as u64, message).await }).await);
    }
    for _ in 0..20 {
        tokio::task::yield_now().await;
        assert!(one.stats().incoming_transfers <= MAX_TRANSFERS);
    }
    for (number, receive) in receives.into_iter().enumerate() {
        assert!(receive.await.unwrap().unwrap().1 == body(number, length));
    }
    for send in sends {
        send.await.unwrap().unwrap();
    }
    assert_eq!(one.stats().incoming_transfers, 0);
}

#[tokio::test]
async fn messages_to_the_own_rank_are_bounded() {
    let world = World::new(1).await;
    let zero = &world.ranks[0];
    let half = Bytes::from(vec![1; OWN_LIMIT / 2]);
    zero.send(0, 1, half.clone()).await.unwrap();
    let second = {
        let (zero, half) = (zero.clone(), half.clone());
        start(async move { zero.send(0, 1, half).await }).await
    };
    settle().await;
    assert!(!second.is_finished());
    for _ in 0..2 {
        let mut length = 0;
        zero.recv_with(0, 1, |chunk| length += chunk.len())
            .await
            .unwrap();
        assert_eq!(length, OWN_LIMIT / 2);
    }
    second.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn time_limits_say_what_was_waited_for() {
    let limit = Duration::from_secs(2);
    let world = World::with_limits(3, TimeLimits::default().with_operation(limit)).await;
    let [zero, one, _] = &world.ranks[..] else {
        panic!()
    };
    let (send, receive, probe) = tokio::join!(
        zero.send(1, 7, body(1, 100_000).into()),
        one.recv(2, 8, 10),
        one.probe(Source::Any, Tag::Any),
    );
    // The announcement is a message, too.
    assert_eq!(probe.unwrap().length, 100_000);
    let cases = [
        (
            send.unwrap_err(),
            WaitingFor::Receive,
            "no receive was posted by rank 1 for tag 7 within 2 s",
        ),
        (
            receive.unwrap_err(),
            WaitingFor::Message,
            "no message of tag 8 arrived from rank 2 within 2 s",
        ),
    ];
    for (error, expected, text) in cases {
        assert!(error.to_string().ends_with(text), "{error}");
        let Error::Message(error) = error else {
            panic!("{error}")
        };
        let cause = MessageFailure::TimedOut {
            limit,
            waiting_for: expected,
        };
        assert_eq!(error.cause, cause);
    }
    // Neither has left anything behind.
    settle().await;
    assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
    let (sent, received) = tokio::join!(
        zero.send(1, 7, body(2, 100_000).into()),
        one.recv(0, 7, 1 << 20)
    );
    sent.unwrap();
    assert_eq!(received.unwrap().1, body(2, 100_000));
}
