//! Bounds.

use crate::world::{World, body, cause, failure, settle, start, within};
use bytes::Bytes;
use nexar_core::{
    Failure,
    rpc::{INLINE_LIMIT, MAX_CALLS, MAX_REQUESTS, RpcFailure, RpcOptions},
    transport::SendStream,
    wire::{LaneKind, rpc::Frame},
};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Semaphore, task::JoinSet};

/// Counts how many handlers run at a time.
#[derive(Default)]
struct Running {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[tokio::test(start_paused = true)]
async fn a_thousand_calls_take_their_turns_with_four_handlers() {
    let world = World::with_options(3, RpcOptions::default().with_max_handlers(4)).await;
    let running = Arc::new(Running::default());
    let counted = running.clone();
    world.ranks[2]
        .register("slow", move |_, number: u64| {
            let running = counted.clone();
            async move {
                let now = running.now.fetch_add(1, Ordering::SeqCst) + 1;
                running.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1 + number % 3)).await;
                running.now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Infallible>(number + 7)
            }
        })
        .unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..1000 {
        let rpc = world.ranks[number % 3].clone();
        let number = number as u64;
        tasks.spawn(async move {
            assert_eq!(
                rpc.call::<_, u64>(2, "slow", &number).await.unwrap(),
                number + 7
            );
        });
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(5), all).await;
    assert_eq!(running.most.load(Ordering::SeqCst), 4);
    assert_eq!(world.ranks[2].stats(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_flood_waits_at_the_caller() {
    let world = World::with_options(2, RpcOptions::default().with_max_handlers(2)).await;
    let gate = Arc::new(Semaphore::new(0));
    let closed = gate.clone();
    world.ranks[1]
        .register_raw("gate", move |_, request: Bytes| {
            let gate = closed.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(request.slice(..1))
            }
        })
        .unwrap();
    let calls = 3 * MAX_CALLS / 2;
    let mut tasks = JoinSet::new();
    let flood = |tasks: &mut JoinSet<()>, calls: usize, length: usize| {
        for number in 0..calls {
            let rpc = world.ranks[0].clone();
            tasks.spawn(async move {
                let request = vec![number as u8; length];
                let reply = rpc.call_raw(1, "gate", request.into()).await.unwrap();
                assert_eq!(&reply[..], [number as u8]);
            });
        }
    };
    flood(&mut tasks, calls, 10);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(world.ranks[0].stats().calls, calls);
    let stats = world.ranks[1].stats();
    assert_eq!((stats.handlers, stats.waiting), (2, MAX_CALLS - 2));
    gate.add_permits(calls);
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(5), all).await;

    flood(&mut tasks, 200, INLINE_LIMIT);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let stats = world.ranks[1].stats();
    assert_eq!(stats.handlers + stats.waiting, MAX_REQUESTS / INLINE_LIMIT);
    gate.add_permits(200);
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(5), all).await;
    assert_eq!(world.ranks[1].stats(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_room_times_out_and_lets_the_others_pass() {
    let world = World::with_options(2, RpcOptions::default().with_max_handlers(1)).await;
    let gate = Arc::new(Semaphore::new(0));
    let closed = gate.clone();
    world.ranks[1]
        .register_raw("gate", move |_, _| {
            let gate = closed.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Bytes::new())
            }
        })
        .unwrap();
    let rpc = &world.ranks[0];
    let fill = MAX_REQUESTS / INLINE_LIMIT;
    let mut tasks = Vec::new();
    for number in 0..fill {
        let (rpc, request) = (rpc.clone(), body(number, INLINE_LIMIT));
        tasks.push(start(async move { rpc.call_raw(1, "gate", request.into()).await }).await);
    }
    let limit = Duration::from_millis(20);
    let late = {
        let caller = rpc.within(limit);
        start(async move { caller.call_raw(1, "gate", body(0, 100).into()).await }).await
    };
    let next = {
        let rpc = rpc.clone();
        start(async move { rpc.call_raw(1, "gate", body(1, 100).into()).await }).await
    };
    let late = within(Duration::from_millis(25), late).await.unwrap();
    assert_eq!(cause(late), RpcFailure::TimedOut { limit });
    gate.add_permits(fill + 1);
    for task in tasks {
        assert!(
            within(Duration::from_secs(1), task)
                .await
                .unwrap()
                .unwrap()
                .is_empty()
        );
    }
    assert!(
        within(Duration::from_secs(1), next)
            .await
            .unwrap()
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_not_read_hold_back_further_handlers() {
    let world = World::with_options(2, RpcOptions::default().with_max_handlers(8)).await;
    world.ranks[1]
        .register_raw("large", |_, _| async {
            Ok::<_, Infallible>(vec![3; INLINE_LIMIT].into())
        })
        .unwrap();
    // Rank 0's lane is opened, and then nothing reaches it any more.
    world.ranks[0]
        .call_raw(1, "large", Bytes::new())
        .await
        .unwrap();
    let (zero, one) = (world.address(0), world.address(1));
    world
        .network
        .set_link_delay(one, zero, Duration::from_millis(500), Duration::ZERO);
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let rpc = world.ranks[0].clone();
        tasks.spawn(async move {
            assert_eq!(
                rpc.call_raw(1, "large", Bytes::new()).await.unwrap(),
                vec![3; INLINE_LIMIT]
            );
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stats = world.ranks[1].stats();
    assert!(
        stats.queued_bytes < 2 * nexar_core::rpc::SEND_QUEUE,
        "{stats:?}"
    );
    assert!(stats.waiting > 100, "{stats:?}");
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(60), all).await;
    assert_eq!(world.ranks[1].stats(), Default::default());
}

/// What a rank that breaks the protocol brings about at the one that notices.
async fn broken(lane: impl AsRef<[u8]>) -> String {
    let world = World::new(2).await;
    let bad = world.meshes[1].group(2, vec![0, 1]).unwrap();
    let good = world.meshes[0].group(2, vec![0, 1]).unwrap();
    let rpc = nexar_core::rpc::Rpc::new(Arc::new(good), RpcOptions::default().with_max_handlers(1));
    rpc.register_raw("never", |_, _| {
        std::future::pending::<Result<_, Infallible>>()
    })
    .unwrap();
    let mut stream = bad.open_lane(0, LaneKind::Rpc, 0).await.unwrap();
    stream
        .write_all(Bytes::copy_from_slice(lane.as_ref()))
        .await
        .unwrap();
    settle().await;
    match failure(rpc.call::<_, ()>(1, "never", &()).await) {
        Failure::Protocol { rank: 1, what } => what,
        failure => panic!("{failure}"),
    }
}

fn request(call: u64, length: u64) -> Frame {
    Frame::Request {
        call,
        streamed: false,
        large: length > INLINE_LIMIT as u64,
        depth: 0,
        name: 5,
        budget: 60_000,
        length,
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_breaks_the_protocol_is_named() {
    let mut flood = Vec::new();
    for call in 0..=MAX_CALLS as u64 {
        flood.extend_from_slice(&request(call, 0).encode());
        flood.extend_from_slice(b"never");
    }
    assert_eq!(broken(flood).await, "more calls than it may have");
    let mut heavy = Vec::new();
    for call in 0..=(MAX_REQUESTS / INLINE_LIMIT) as u64 {
        heavy.extend_from_slice(&request(call, INLINE_LIMIT as u64).encode());
        heavy.extend_from_slice(b"never");
        heavy.resize(heavy.len() + INLINE_LIMIT, 0);
    }
    assert_eq!(broken(heavy).await, "more calls than it may have");
    let twice = [&request(4, 0).encode()[..], b"never"].concat().repeat(2);
    assert_eq!(broken(twice).await, "a call out of turn");
    let reply = Frame::Reply {
        call: 0,
        large: false,
        length: 0,
    };
    assert_eq!(broken(reply.encode()).await, "an answer to no call");
    assert_eq!(broken([7; 24]).await, "malformed frame of a call");
}
