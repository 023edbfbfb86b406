//! Ranks that die or leave, and calls that are shut down.

use crate::world::{World, cause, failure, ranks, settle, start, within};
use nexar_core::{
    Failure, TimeLimits,
    rpc::{RpcFailure, RpcOptions},
};
use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

async fn world(size: usize) -> World {
    let world = World::with_limits(size, TimeLimits::default()).await;
    for rpc in &world.ranks {
        rpc.register("never", |_, (): ()| pending::<Result<(), Infallible>>())
            .unwrap();
        rpc.register("wait", |_, limit: Duration| async move {
            tokio::time::sleep(limit).await;
            Ok::<_, Infallible>(limit)
        })
        .unwrap();
    }
    world
}

#[tokio::test(start_paused = true)]
async fn calls_to_a_rank_that_dies_fail_when_that_is_known() {
    let world = world(3).await;
    let mut calls = Vec::new();
    for _ in 0..100 {
        let rpc = world.ranks[0].clone();
        calls.push(start(async move { rpc.call::<_, ()>(2, "never", &()).await }).await);
    }
    settle().await;
    world.network.kill(world.address(2));
    for call in calls {
        let failed = failure(within(Duration::from_secs(6), call).await.unwrap());
        assert!(
            matches!(failed, Failure::PeerLost { rank: 2, .. }),
            "{failed}"
        );
    }
    let later = failure(world.ranks[0].call::<_, ()>(1, "never", &()).await);
    assert!(
        matches!(later, Failure::PeerLost { rank: 2, .. }),
        "{later}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_dies_leaves_the_callee_unharmed() {
    let world = world(3).await;
    let others: Vec<_> = world.meshes[..2]
        .iter()
        .map(|mesh| Arc::new(mesh.group(9, vec![0, 1]).unwrap()))
        .map(|group| nexar_core::rpc::Rpc::new(group, RpcOptions::default()))
        .collect();
    others[1]
        .register("echo", |_, number: u64| async move {
            Ok::<_, Infallible>(number)
        })
        .unwrap();
    let rpc = world.ranks[2].clone();
    let call = start(async move { rpc.call::<_, ()>(1, "never", &()).await }).await;
    settle().await;
    assert_eq!(world.ranks[1].stats().handlers, 1);
    world.network.kill(world.address(2));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(world.ranks[1].stats().handlers, 0);
    assert_eq!(
        others[0].call::<_, u64>(1, "echo", &3_u64).await.unwrap(),
        3
    );
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn a_rank_that_leaves_fails_calls_to_it_only() {
    let mut world = world(3).await;
    let second = Duration::from_secs(1);
    let call = |to: usize, limit: Duration| {
        let rpc = world.ranks[0].clone();
        start(async move { rpc.call::<_, Duration>(to, "wait", &limit).await })
    };
    let quick = call(2, Duration::from_millis(300)).await;
    let slow = call(2, 100 * second).await;
    let other = call(1, second).await;
    let its_own = {
        let rpc = world.ranks[2].clone();
        start(async move { rpc.call::<_, ()>(1, "never", &()).await }).await
    };
    settle().await;
    let two = world.ranks.pop().unwrap();
    let begun = Instant::now();
    within(second, two.drain()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(500));
    assert_eq!(failure(its_own.await.unwrap()), Failure::ShutDown);
    assert_eq!(
        failure(two.call::<_, ()>(1, "never", &()).await),
        Failure::ShutDown
    );
    // What had time to end was answered; what was cancelled says so.
    assert_eq!(quick.await.unwrap().unwrap(), Duration::from_millis(300));
    let cancelled = cause(slow.await.unwrap());
    assert!(
        matches!(cancelled, RpcFailure::NotServed { .. }),
        "{cancelled}"
    );
    two.group().leave();
    drop(two);
    settle().await;
    let gone = failure(world.ranks[0].call::<_, ()>(2, "never", &()).await);
    assert_eq!(gone, Failure::PeerLeft { rank: 2 });
    assert_eq!(world.ranks[1].stats().handlers, 1);
    assert_eq!(other.await.unwrap().unwrap(), second);
    settle().await;
    assert_eq!(world.ranks[1].stats(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_rank_that_leaves_without_answers_fails_calls_at_once() {
    let mut world = world(2).await;
    let rpc = world.ranks[0].clone();
    let call = start(async move { rpc.call::<_, ()>(1, "never", &()).await }).await;
    settle().await;
    let one = world.ranks.pop().unwrap();
    one.group().leave();
    drop(one);
    let failed = failure(within(Duration::from_secs(1), call).await.unwrap());
    assert_eq!(failed, Failure::PeerLeft { rank: 1 });
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_everything_soon() {
    let world = world(3).await;
    let mut calls = Vec::new();
    for (from, to) in [(0, 1), (0, 2), (0, 0), (1, 0)] {
        let rpc = world.ranks[from].clone();
        calls.push(start(async move { rpc.call::<_, ()>(to, "never", &()).await }).await);
    }
    settle().await;
    world.network.kill(world.address(2));
    let last = calls.pop().unwrap();
    world.meshes[0].prepare_leave();
    let drain = {
        let rpc = world.ranks[0].clone();
        start(async move { rpc.drain().await }).await
    };
    for call in calls {
        let ended = within(Duration::from_millis(1), call).await.unwrap();
        assert_eq!(failure(ended), Failure::ShutDown);
    }
    let refused = within(Duration::from_secs(1), last).await.unwrap();
    assert!(matches!(cause(refused), RpcFailure::NotServed { .. }));
    within(Duration::from_secs(3), drain)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rank_that_shuts_down_says_so_to_new_calls() {
    let world = world(2).await;
    let call = |limit| {
        let rpc = world.ranks[0].clone();
        start(async move { rpc.call::<_, Duration>(1, "wait", &limit).await })
    };
    let first = call(Duration::from_millis(400)).await;
    settle().await;
    let rpc = world.ranks[1].clone();
    let drain = start(async move { rpc.drain().await }).await;
    let refused = call(Duration::from_millis(1)).await;
    let refused = within(Duration::from_millis(1), refused).await.unwrap();
    let reason = "it is shutting down".into();
    assert_eq!(cause(refused), RpcFailure::NotServed { reason });
    assert!(first.await.unwrap().is_ok());
    within(Duration::from_millis(1), drain)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_cancels_calls_in_both_directions() {
    struct Count(Arc<AtomicUsize>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let world = world(2).await;
    let mut others = ranks(&world.meshes, 2, &RpcOptions::default());
    let dropped = Arc::new(AtomicUsize::new(0));
    for rpc in &others {
        let dropped = dropped.clone();
        rpc.register("holds", move |call, (): ()| {
            let count = Count(dropped.clone());
            async move {
                let _held = (count, call.caller());
                pending::<Result<(), Infallible>>().await
            }
        })
        .unwrap();
    }
    let caller = others[0].within(Duration::from_secs(60));
    let calls = [(0, 0), (0, 1), (1, 0)];
    let mut tasks = Vec::new();
    for (from, to) in calls {
        let caller = others[from].within(Duration::from_secs(60));
        tasks.push(start(async move { caller.call::<_, ()>(to, "holds", &()).await }).await);
    }
    settle().await;
    assert_eq!(others[0].stats().handlers, 2);
    drop(others.remove(0));
    settle().await;
    assert_eq!(dropped.load(Ordering::SeqCst), 3);
    assert_eq!(
        failure(caller.call::<_, ()>(1, "holds", &()).await),
        Failure::ShutDown
    );
    for task in tasks.drain(..2) {
        assert_eq!(failure(task.await.unwrap()), Failure::ShutDown);
    }
    tasks[0].abort();
}

#[test]
fn a_runtime_that_ends_fails_its_handlers_calls() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let handlers = tokio::runtime::Runtime::new().unwrap();
    let options = RpcOptions::default().with_runtime(handlers.handle().clone());
    let world = runtime.block_on(World::with_options(1, options));
    let rpc = &world.ranks[0];
    rpc.register("never", |_, (): ()| pending::<Result<(), Infallible>>())
        .unwrap();
    runtime.block_on(async {
        let mut calls = Vec::new();
        for _ in 0..10 {
            let rpc = rpc.clone();
            calls.push(tokio::spawn(async move {
                rpc.call::<_, ()>(0, "never", &()).await
            }));
        }
        while rpc.stats().handlers < 10 {
            tokio::task::yield_now().await;
        }
        handlers.shutdown_background();
        for call in calls {
            let failed = cause(call.await.unwrap());
            assert!(matches!(failed, RpcFailure::NotServed { .. }), "{failed}");
        }
        let failed = cause(rpc.call::<_, ()>(0, "never", &()).await);
        assert!(matches!(failed, RpcFailure::NotServed { .. }), "{failed}");
    });
}
