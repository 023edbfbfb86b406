//! Time limits and calls that are dropped.

use crate::world::{World, cause, settle, start, within};
use nexar_core::rpc::{Cancellation, RpcFailure};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::mpsc, time::Instant};

/// What a handler tells of itself.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Begun(Duration),
    Dropped,
}

struct Tell(mpsc::UnboundedSender<News>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send(News::Dropped);
    }
}

/// Rank 1 never answers, and tells what becomes of its handlers.
async fn world() -> (
    World,
    mpsc::UnboundedReceiver<News>,
    Arc<Mutex<Option<Cancellation>>>,
) {
    let world = World::new(2).await;
    let (tell, told) = mpsc::unbounded_channel();
    let signal = Arc::new(Mutex::new(None));
    for rpc in &world.ranks {
        let (tell, signal) = (tell.clone(), signal.clone());
        rpc.register("never", move |call, (): ()| {
            let tell = Tell(tell.clone());
            *signal.lock().unwrap() = Some(call.cancellation());
            async move {
                let _ = tell.0.send(News::Begun(call.remaining()));
                std::future::pending::<()>().await;
                Ok::<_, Infallible>(())
            }
        })
        .unwrap();
    }
    (world, told, signal)
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_reaches_the_callee() {
    let (world, mut told, signal) = world().await;
    for callee in [0, 1] {
        for limit in [Duration::from_millis(30), Duration::from_secs(5)] {
            let begun = Instant::now();
            let caller = world.ranks[0].within(limit);
            assert_eq!(caller.limit(), limit);
            let failed = cause(caller.call::<_, ()>(callee, "never", &()).await);
            assert_eq!(failed, RpcFailure::TimedOut { limit });
            let took = begun.elapsed();
            let precise = limit + Duration::from_millis(if limit.as_secs() > 0 { 100 } else { 1 });
            assert!(took >= limit && took <= precise, "{took:?}");
            assert_eq!(told.recv().await, Some(News::Begun(limit)));
            assert_eq!(told.recv().await, Some(News::Dropped));
            let signal = signal.lock().unwrap().take().unwrap();
            assert!(signal.is_cancelled());
            within(Duration::ZERO, signal.cancelled()).await;
        }
    }
    settle().await;
    assert_eq!(world.ranks[0].stats(), Default::default());
    assert_eq!(world.ranks[1].stats(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_cancelled_at_the_callee() {
    let (world, mut told, signal) = world().await;
    for callee in [0, 1] {
        let rpc = world.ranks[0].clone();
        let call = start(async move { rpc.call::<_, ()>(callee, "never", &()).await }).await;
        let begun = told.recv().await.unwrap();
        assert!(matches!(begun, News::Begun(_)));
        let signal = signal.lock().unwrap().take().unwrap();
        assert!(!signal.is_cancelled());
        call.abort();
        let now = Instant::now();
        assert_eq!(told.recv().await, Some(News::Dropped));
        signal.cancelled().await;
        assert_eq!(now.elapsed(), Duration::ZERO);
        settle().await;
        assert_eq!(world.ranks[0].stats(), Default::default());
        assert_eq!(world.ranks[callee].stats(), Default::default());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_its_handler_begins_is_answered() {
    let (world, mut told, _) = world().await;
    let rpc = world.ranks[0].clone();
    let calls = 50;
    for _ in 0..calls {
        let rpc = rpc.clone();
        let call = start(async move { rpc.call::<_, ()>(1, "never", &()).await }).await;
        call.abort();
    }
    settle().await;
    assert_eq!(rpc.stats(), Default::default());
    assert_eq!(world.ranks[1].stats(), Default::default());
    while let Ok(news) = told.try_recv() {
        assert!(matches!(news, News::Begun(_) | News::Dropped));
    }
}

#[tokio::test(start_paused = true)]
async fn the_signal_reaches_work_that_the_handler_left_to_others() {
    let world = World::new(2).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    world.ranks[1]
        .register("leaves", move |call, (): ()| {
            let tell = tell.clone();
            async move {
                tokio::spawn(async move {
                    call.cancellation().cancelled().await;
                    let _ = tell.send(());
                });
                std::future::pending::<Result<(), Infallible>>().await
            }
        })
        .unwrap();
    let limit = Duration::from_millis(10);
    let call = world.ranks[0]
        .within(limit)
        .call::<_, ()>(1, "leaves", &())
        .await;
    assert_eq!(cause(call), RpcFailure::TimedOut { limit });
    assert_eq!(told.recv().await, Some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_harms_its_own_call_only() {
    let world = World::new(2).await;
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Mutex::new(Some(blocked));
    world.ranks[1]
        .register("blocks", move |_, (): ()| {
            let blocked = blocked.lock().unwrap().take();
            async move {
                if let Some(blocked) = blocked {
                    let _ = blocked.recv();
                }
                Ok::<_, Infallible>(())
            }
        })
        .unwrap();
    world.ranks[1]
        .register("echo", |_, number: u64| async move {
            Ok::<_, Infallible>(number)
        })
        .unwrap();
    let limit = Duration::from_millis(50);
    let call = world.ranks[0]
        .within(limit)
        .call::<_, ()>(1, "blocks", &())
        .await;
    assert_eq!(cause(call), RpcFailure::TimedOut { limit });
    assert_eq!(
        world.ranks[0]
            .call::<_, u64>(1, "echo", &5_u64)
            .await
            .unwrap(),
        5
    );
    release.send(()).unwrap();
}
