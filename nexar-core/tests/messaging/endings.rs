//! Ranks that die or leave.

use crate::world::{World, body, settle, start, within};
use nexar_core::{
    Error, Failure, TimeLimits,
    messaging::{CREDIT, Messenger, Source, Tag},
    transport::SendStream,
    wire::{LaneKind, message::Frame},
};
use std::{sync::Arc, time::Duration};

/// The failure of an operation.
fn failure<T: std::fmt::Debug>(result: nexar_core::Result<T>) -> Failure {
    match result.unwrap_err() {
        Error::Operation(error) => error.failure,
        error => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_dead_rank_learns_it() {
    let world = World::with_limits(3, TimeLimits::default()).await;
    let [zero, one, _] = &world.ranks[..] else {
        panic!()
    };
    let large = body(1, 1 << 20);
    let kill = async {
        settle().await;
        world.network.kill(world.address(2));
    };
    let mut buffer = vec![0; 10];
    let all = async {
        tokio::join!(
            zero.send(2, 1, large.clone().into()),
            zero.recv(2, 1, 10),
            zero.recv_into(Source::Any, Tag::Any, &mut buffer),
            one.probe(2, 1),
            one.send(2, 2, large.clone().into()),
            kill
        )
    };
    let (a, b, c, d, e, ()) = within(Duration::from_secs(6), all).await;
    let failures = [failure(a), failure(b), failure(c), failure(d), failure(e)];
    for failure in failures {
        assert!(
            matches!(failure, Failure::PeerLost { rank: 2, .. }),
            "{failure}"
        );
    }
    assert!(matches!(
        failure(zero.send(1, 1, body(1, 1).into()).await),
        Failure::PeerLost { .. }
    ));
    assert!(matches!(
        failure(one.recv(0, 1, 1).await),
        Failure::PeerLost { .. }
    ));
    assert!(matches!(
        failure(one.try_probe(0, 1)),
        Failure::PeerLost { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_rank_dies_in_the_middle_of_a_message() {
    let world = World::with_limits(2, TimeLimits::default()).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let (seen, mut saw) = tokio::sync::watch::channel(0);
    let receive = {
        let one = one.clone();
        let visitor = move |chunk: &[u8]| seen.send_modify(|seen| *seen += chunk.len());
        start(async move { one.recv_with(0, 1, visitor).await }).await
    };
    let send = {
        let zero = zero.clone();
        start(async move { zero.send(1, 1, vec![1; 64 << 20].into()).await }).await
    };
    assert!(*saw.wait_for(|seen| *seen > 0).await.unwrap() < 64 << 20);
    world.network.kill(world.address(0));
    let received = within(Duration::from_secs(6), receive).await.unwrap();
    assert!(matches!(
        failure(received),
        Failure::PeerLost { rank: 0, .. }
    ));
    send.abort();
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_leaving_is_received_and_then_the_leave_is_known() {
    let mut world = World::new(3).await;
    let two = world.ranks.pop().unwrap();
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    two.send(0, 1, body(1, 1000).into()).await.unwrap();
    two.send(0, 2, body(2, 60_000).into()).await.unwrap();
    let announced = {
        let (two, large) = (two.clone(), body(3, 1 << 20).into());
        start(async move { two.send(0, 3, large).await }).await
    };
    let never = {
        let one = one.clone();
        start(async move { one.recv(2, Tag::Any, 10).await }).await
    };
    let matched = {
        let zero = zero.clone();
        start(async move { zero.recv(Source::Rank(2), 4, 10).await }).await
    };
    let from_any = {
        let zero = zero.clone();
        start(async move { zero.recv(Source::Any, 77, 10).await }).await
    };
    settle().await;
    announced.abort();
    let _ = announced.await;
    two.drain().await.unwrap();
    assert_eq!(
        failure(two.send(0, 1, body(1, 1).into()).await),
        Failure::ShutDown
    );
    assert_eq!(failure(two.recv(0, 1, 1).await), Failure::ShutDown);
    two.group().leave();
    drop(two);

    let left = Failure::PeerLeft { rank: 2 };
    assert_eq!(
        failure(within(Duration::from_secs(1), never).await.unwrap()),
        left
    );
    assert_eq!(
        failure(within(Duration::from_secs(1), matched).await.unwrap()),
        left
    );
    assert_eq!(zero.recv(2, 1, 1000).await.unwrap().1, body(1, 1000));
    assert_eq!(
        zero.recv(Source::Any, Tag::Any, 60_000).await.unwrap().1,
        body(2, 60_000)
    );
    assert_eq!(failure(zero.recv(2, Tag::Any, 1).await), left);
    assert_eq!(failure(zero.probe(2, 3).await), left);
    assert_eq!(failure(zero.send(2, 1, body(1, 1).into()).await), left);
    // The others go on.
    one.send(0, 77, body(7, 10).into()).await.unwrap();
    assert_eq!(from_any.await.unwrap().unwrap().1, body(7, 10));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_fails_when_its_receiver_leaves() {
    let mut world = World::new(2).await;
    let one = world.ranks.pop().unwrap();
    let zero = &world.ranks[0];
    let send = {
        let (zero, large) = (zero.clone(), body(3, 1 << 20).into());
        start(async move { zero.send(1, 3, large).await }).await
    };
    settle().await;
    one.group().leave();
    drop(one);
    let sent = within(Duration::from_secs(1), send).await.unwrap();
    assert_eq!(failure(sent), Failure::PeerLeft { rank: 1 });
    let alone = within(Duration::from_secs(1), zero.recv(Source::Any, Tag::Any, 1)).await;
    assert_eq!(failure(alone), Failure::PeerLeft { rank: 1 });
}

#[tokio::test]
async fn a_failure_of_the_communicator_ends_every_wait() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let (waiting, sending) = {
        let (zero, one) = (zero.clone(), one.clone());
        let large = body(1, 1 << 20).into();
        (
            start(async move { one.recv(0, 1, 1).await }).await,
            start(async move { zero.send(1, 2, large).await }).await,
        )
    };
    settle().await;
    let reason = Failure::Aborted {
        rank: 0,
        reason: "it had enough".into(),
    };
    zero.group().fail(reason.clone());
    assert_eq!(failure(waiting.await.unwrap()), reason);
    assert_eq!(failure(sending.await.unwrap()), reason);
}

#[tokio::test]
async fn two_hundred_communicators_come_and_go() {
    let world = World::new(3).await;
    for id in 10..210 {
        let ranks = crate::world::ranks(&world.meshes, id);
        let send = async {
            ranks[0].send(1, 1, body(1, 100).into()).await.unwrap();
            ranks[0].send(2, 1, body(2, 100_000).into()).await.unwrap();
        };
        let (_, one, two) =
            tokio::join!(send, ranks[1].recv(0, 1, 100), ranks[2].recv(0, 1, 100_000));
        assert_eq!(one.unwrap().1, body(1, 100));
        assert_eq!(two.unwrap().1, body(2, 100_000));
        let drained = tokio::join!(ranks[0].drain(), ranks[1].drain(), ranks[2].drain());
        drained.0.and(drained.1).and(drained.2).unwrap();
    }
}

#[tokio::test]
async fn a_dropped_mesh_ends_every_wait() {
    let mut world = World::new(2).await;
    let one = world.ranks[1].clone();
    let (receive, send) = {
        let (receiver, sender) = (one.clone(), one.clone());
        let large = body(1, 1 << 20).into();
        (
            start(async move { receiver.recv(0, 1, 10).await }).await,
            start(async move { sender.send(0, 2, large).await }).await,
        )
    };
    settle().await;
    drop(world.meshes.pop());
    assert_eq!(failure(receive.await.unwrap()), Failure::ShutDown);
    assert_eq!(failure(send.await.unwrap()), Failure::ShutDown);
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_fails_the_communicator() {
    let eager = |message, length: u64| Frame::Eager {
        dtype: None,
        tag: 1,
        length,
        message,
    };
    let unasked_credit = Frame::Credit { bytes: 1 };
    let flood: Vec<u8> = (0..)
        .map(|number| [&eager(number, 60_000).encode()[..], &[0; 60_000]].concat())
        .take(CREDIT / 60_000 + 1)
        .flatten()
        .collect();
    let cases: [(&str, Vec<u8>); 6] = [
        ("malformed", vec![0x77; 28]),
        ("above the limit", eager(0, 1 << 20).encode().to_vec()),
        ("out of turn", eager(1, 0).encode().to_vec()),
        ("never got", unasked_credit.encode().to_vec()),
        ("beyond its credit", flood),
        ("half a message", eager(0, 3).encode().to_vec()),
    ];
    for (text, bytes) in cases {
        let world = World::new(2).await;
        let members = vec![0, 1];
        let bad = world.meshes[0].group(9, members.clone()).unwrap();
        let good = Arc::new(world.meshes[1].group(9, members).unwrap());
        let good = Messenger::new(good);
        let send = async {
            let mut lane = bad.open_lane(1, LaneKind::Message, 0).await.unwrap();
            // The other side may stop it before all is written.
            let _ = lane.write_all(bytes.into()).await;
            let _ = lane.finish();
        };
        let (received, ()) = tokio::join!(good.recv(0, 2, 10), send);
        match failure(received) {
            Failure::Protocol { rank: 0, what } => assert!(what.contains(text), "{what}"),
            failure => panic!("{text}: {failure}"),
        }
    }
}
