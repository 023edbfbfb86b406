//! Large bodies.

use crate::world::{World, body, cause, settle, start, within};
use bytes::Bytes;
use nexar_core::{
    TimeLimits,
    rpc::{INLINE_LIMIT, RpcFailure, RpcOptions},
    transport::memory::{MemoryConfig, MemoryNetwork},
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet};

/// Every rank answers with so many bytes as the request begins with, and with the request's sum.
fn register(world: &World) {
    for rpc in &world.ranks {
        rpc.register_raw("sum", |_, request: Bytes| async move {
            let length = u64::from_le_bytes(*request.first_chunk().unwrap()) as usize;
            let sum = request.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            Ok::<_, Infallible>(body(sum as usize % 1000, length).into())
        })
        .unwrap();
    }
}

fn request(seed: usize, length: usize, reply: usize) -> (Bytes, Vec<u8>) {
    let mut request = body(seed, length.max(8));
    request[..8].copy_from_slice(&(reply as u64).to_le_bytes());
    let sum = request.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    (request.into(), body(sum as usize % 1000, reply))
}

#[tokio::test(start_paused = true)]
async fn large_bodies_go_both_ways() {
    let world = World::new(2).await;
    register(&world);
    let lengths = [8, INLINE_LIMIT, INLINE_LIMIT + 1, (3 << 20) + 3];
    for (i, length) in lengths.into_iter().enumerate() {
        for (j, reply) in lengths.into_iter().enumerate() {
            for to in [0, 1] {
                let (sent, expected) = request(10 * i + j, length, reply);
                let got = world.ranks[0].call_raw(to, "sum", sent).await.unwrap();
                assert!(got == expected, "{length} to {to}, {reply} back");
            }
        }
    }
    assert!(
        world
            .ranks
            .iter()
            .all(|rpc| rpc.stats() == Default::default())
    );
}

#[tokio::test(start_paused = true)]
async fn many_large_bodies_at_a_time() {
    let mut config = MemoryConfig::default();
    config.max_streams = 24;
    let network = MemoryNetwork::with_config(3, config);
    let limits = TimeLimits::default();
    let options = RpcOptions::default().with_max_handlers(20);
    let world = World::on(network, 3, limits, options).await;
    register(&world);
    let mut tasks = JoinSet::new();
    for (from, rpc) in world.ranks.iter().enumerate() {
        for number in 0..60 {
            let rpc = rpc.clone();
            tasks.spawn(async move {
                let (sent, expected) = request(number, 70_000 + 1000 * number, 100_000 - number);
                let got = rpc
                    .call_raw((from + number) % 3, "sum", sent)
                    .await
                    .unwrap();
                assert!(got == expected, "{number}");
            });
        }
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(30), all).await;
    assert!(
        world
            .ranks
            .iter()
            .all(|rpc| rpc.stats() == Default::default())
    );
}

#[tokio::test(start_paused = true)]
async fn small_calls_overtake_large_ones() {
    let world = World::new(2).await;
    register(&world);
    world.ranks[1]
        .register("echo", |_, number: u64| async move {
            Ok::<_, Infallible>(number)
        })
        .unwrap();
    let (zero, one) = (world.address(0), world.address(1));
    let pause = Duration::from_millis(10);
    world
        .network
        .set_link_delay(zero, one, pause, Duration::ZERO);
    let large = {
        let rpc = world.ranks[0].clone();
        let (sent, expected) = request(1, 24 << 20, 8);
        start(async move { assert_eq!(rpc.call_raw(1, "sum", sent).await.unwrap(), expected) })
            .await
    };
    for number in 0..5 {
        let call = world.ranks[0].call::<_, u64>(1, "echo", &number);
        assert_eq!(
            within(Duration::from_millis(25), call).await.unwrap(),
            number
        );
        assert!(!large.is_finished());
    }
    within(Duration::from_secs(60), large).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_large_body_above_the_limit_of_the_other_side_is_not_sent() {
    let world = World::new(2).await;
    let zero = Arc::new(world.meshes[0].group(2, vec![0, 1]).unwrap());
    let one = Arc::new(world.meshes[1].group(2, vec![0, 1]).unwrap());
    let generous = nexar_core::rpc::Rpc::new(zero, RpcOptions::default());
    let strict = nexar_core::rpc::Rpc::new(one, RpcOptions::default().with_max_body(200_000));
    for rpc in [&generous, &strict] {
        rpc.register_raw("double", |_, request: Bytes| async move {
            Ok::<_, Infallible>([&request[..], &request[..]].concat().into())
        })
        .unwrap();
    }
    let limit = 200_000;
    let before = world.network.total_stats().bytes;
    let request = cause(
        generous
            .call_raw(1, "double", body(1, 200_001).into())
            .await,
    );
    assert_eq!(
        request,
        RpcFailure::TooLarge {
            length: 200_001,
            limit
        }
    );
    assert!(world.network.total_stats().bytes - before < 10_000);
    // The callee's own reply is too large for it, or that of the other for the caller.
    for reply in [
        generous
            .call_raw(1, "double", body(1, 150_000).into())
            .await,
        strict.call_raw(0, "double", body(1, 150_000).into()).await,
    ] {
        assert_eq!(
            cause(reply),
            RpcFailure::TooLarge {
                length: 300_000,
                limit
            }
        );
    }
    assert_eq!(
        generous
            .call_raw(1, "double", body(1, 90_000).into())
            .await
            .unwrap()
            .len(),
        180_000
    );
    settle().await;
    assert_eq!((generous.stats(), strict.stats()), Default::default());
}

#[tokio::test(start_paused = true)]
async fn large_calls_that_are_dropped_hold_nothing_up() {
    let world = World::with_options(2, RpcOptions::default().with_max_handlers(3)).await;
    register(&world);
    let (zero, one) = (world.address(0), world.address(1));
    for link in [(zero, one), (one, zero)] {
        let delay = Duration::from_millis(5);
        world
            .network
            .set_link_delay(link.0, link.1, delay, Duration::ZERO);
    }
    for round in 0..40_u64 {
        let rpc = world.ranks[0].clone();
        let (sent, _) = request(1, 3 << 20, 3 << 20);
        let call = start(async move { rpc.call_raw(1, "sum", sent).await }).await;
        tokio::time::sleep(Duration::from_millis(round)).await;
        call.abort();
    }
    let (sent, expected) = request(2, 1 << 20, 1 << 20);
    let call = world.ranks[0].call_raw(1, "sum", sent);
    assert!(within(Duration::from_secs(5), call).await.unwrap() == expected);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        world
            .ranks
            .iter()
            .all(|rpc| rpc.stats() == Default::default())
    );
}

#[tokio::test(start_paused = true)]
async fn large_requests_wait_at_the_caller_for_their_handlers() {
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
    let mut tasks = JoinSet::new();
    for number in 0..30 {
        let rpc = world.ranks[0].clone();
        tasks.spawn(async move {
            let request = vec![number; 1 << 20];
            assert_eq!(
                &rpc.call_raw(1, "gate", request.into()).await.unwrap()[..],
                [number]
            );
        });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let link = world.network.link_stats(world.address(0), world.address(1));
    assert!(link.bytes < 3 << 20, "{}", link.bytes);
    gate.add_permits(30);
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(5), all).await;
}
