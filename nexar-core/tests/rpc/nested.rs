//! Handlers that call.

use crate::world::{World, cause, ranks, within};
use nexar_core::rpc::{Rpc, RpcFailure, RpcOptions};
use std::{
    convert::Infallible,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::task::JoinSet;

/// Every handler calls back until nothing is left to do: with its context's caller, or with the calls
/// themselves.
async fn world(size: usize, handlers: usize) -> World {
    let world = World::with_options(size, RpcOptions::default().with_max_handlers(handlers)).await;
    for (rank, rpc) in world.ranks.iter().enumerate() {
        rpc.register("back", move |call, left: u8| async move {
            let mut path = vec![rank];
            if left > 0 {
                let caller = call.caller().ok_or("shut down")?;
                let left = left - 1;
                let next = caller.call::<_, Vec<usize>>(call.source(), "back", &left);
                path.extend(next.await.map_err(|_| "failed")?);
            }
            Ok::<_, &str>(path)
        })
        .unwrap();
        let weak: Weak<Rpc<_>> = Arc::downgrade(rpc);
        rpc.register("around", move |call, left: u8| {
            let rpc = weak.upgrade();
            async move {
                let (rpc, depth) = (rpc.ok_or("gone")?, call.depth());
                if left == 0 {
                    return Ok::<u8, &str>(depth);
                }
                let next = (rank + 1) % size;
                rpc.call(next, "around", &(left - 1))
                    .await
                    .map_err(|_| "failed")
            }
        })
        .unwrap();
    }
    world
}

#[tokio::test(start_paused = true)]
async fn handlers_call_back_and_back_again() {
    let world = world(2, 1).await;
    for depth in [0_u8, 1, 4, 9, 40] {
        for callee in [0, 1] {
            let call = world.ranks[0].call::<_, Vec<usize>>(callee, "back", &depth);
            let path = within(Duration::from_secs(1), call).await.unwrap();
            let expected: Vec<usize> = (0..=usize::from(depth))
                .map(|i| (callee + i * callee) % 2)
                .collect();
            assert_eq!(path, expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_by_handlers_go_around_and_are_known_as_such() {
    for size in [1, 2, 3, 5] {
        let world = world(size, 1).await;
        let call = world.ranks[0].call::<_, u8>(size - 1, "around", &12_u8);
        assert_eq!(within(Duration::from_secs(1), call).await.unwrap(), 12);
    }
}

#[tokio::test(start_paused = true)]
async fn many_call_backs_at_a_time_do_not_wait_for_each_other() {
    let world = world(3, 2).await;
    let mut tasks = JoinSet::new();
    for rpc in &world.ranks {
        for number in 0..200 {
            let rpc = rpc.clone();
            tasks.spawn(async move {
                let path: Vec<usize> = rpc.call(number % 3, "back", &5_u8).await.unwrap();
                assert_eq!(path.len(), 6);
                assert_eq!(
                    rpc.call::<_, u8>(number % 3, "around", &5_u8)
                        .await
                        .unwrap(),
                    5
                );
            });
        }
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(5), all).await;
}

#[tokio::test(start_paused = true)]
async fn the_time_that_is_left_is_handed_on() {
    let world = World::new(2).await;
    world.ranks[0]
        .register("left", |call, (): ()| async move {
            Ok::<_, Infallible>(call.remaining())
        })
        .unwrap();
    world.ranks[1]
        .register("asks", |call, (): ()| async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let caller = call.caller().ok_or("shut down")?;
            let left: Duration = caller.call(0, "left", &()).await.map_err(|_| "failed")?;
            Ok::<_, &str>(left)
        })
        .unwrap();
    let caller = world.ranks[0].within(Duration::from_secs(1));
    let left: Duration = caller.call(1, "asks", &()).await.unwrap();
    assert_eq!(left, Duration::from_millis(700));
}

#[tokio::test(start_paused = true)]
async fn a_limit_ends_the_whole_chain() {
    let world = world(2, 4).await;
    for rpc in &world.ranks {
        rpc.register("never", |_, (): ()| {
            std::future::pending::<Result<(), Infallible>>()
        })
        .unwrap();
        rpc.register("chain", |call, (): ()| async move {
            let caller = call.caller().ok_or("shut down")?;
            let next = caller.call::<_, ()>(call.source(), "never", &()).await;
            next.map_err(|_| "failed")
        })
        .unwrap();
    }
    let limit = Duration::from_millis(40);
    let call = world.ranks[0]
        .within(limit)
        .call::<_, ()>(1, "chain", &())
        .await;
    // The callee's clock starts later, so that it may not have been the first to notice.
    assert_eq!(cause(call), RpcFailure::TimedOut { limit });
    tokio::time::sleep(Duration::from_millis(1)).await;
    crate::world::settle().await;
    for rpc in &world.ranks {
        assert_eq!(rpc.stats(), Default::default());
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_use_other_communicators() {
    let world = World::new(3).await;
    let others = ranks(&world.meshes, 2, &RpcOptions::default());
    for (rank, rpc) in others.iter().enumerate() {
        rpc.register(
            "rank",
            move |_, (): ()| async move { Ok::<_, Infallible>(rank) },
        )
        .unwrap();
    }
    let other = others[1].clone();
    world.ranks[1]
        .register("ask", move |_, whom: usize| {
            let other = other.clone();
            async move { other.call::<_, usize>(whom, "rank", &()).await }
        })
        .unwrap();
    for whom in [0, 1, 2] {
        assert_eq!(
            world.ranks[0]
                .call::<_, usize>(1, "ask", &whom)
                .await
                .unwrap(),
            whom
        );
    }
}
