//! Streamed replies.

use crate::world::{World, body, cause, failure, settle, within};
use nexar_core::{
    Failure,
    rpc::{ItemError, ItemSender, RpcFailure, STREAM_WINDOW},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// `count` items that tell their number and have so many bytes.
type Wanted = (usize, usize);

fn register(world: &World) -> Arc<AtomicUsize> {
    let given = Arc::new(AtomicUsize::new(0));
    for rpc in &world.ranks {
        let given = given.clone();
        rpc.register_stream(
            "items",
            move |_, (count, bytes): Wanted, items: ItemSender<(usize, Vec<u8>)>| {
                let given = given.clone();
                async move {
                    for number in 0..count {
                        items.send(&(number, body(number, bytes))).await?;
                        given.fetch_add(1, Ordering::SeqCst);
                    }
                    match count % 10 {
                        7 => Err(ItemError::Encode {
                            what: "seven".into(),
                        }),
                        _ => Ok(()),
                    }
                }
            },
        )
        .unwrap();
    }
    given
}

#[tokio::test(start_paused = true)]
async fn items_come_in_order_and_then_the_end() {
    let world = World::new(2).await;
    register(&world);
    for callee in [0, 1] {
        for (count, bytes) in [
            (0, 0),
            (1, 10),
            (1000, 0),
            (500, 1000),
            (20, 100_000),
            (3, 2 << 20),
        ] {
            let mut stream = world.ranks[0]
                .call_stream::<_, (usize, Vec<u8>)>(callee, "items", &(count, bytes))
                .await
                .unwrap();
            for number in 0..count {
                let item = within(Duration::from_secs(5), stream.next()).await.unwrap();
                assert!(item == Some((number, body(number, bytes))), "{number}");
            }
            assert_eq!(stream.next().await.unwrap(), None);
            assert_eq!(stream.next().await.unwrap(), None);
        }
    }
    settle().await;
    assert!(
        world
            .ranks
            .iter()
            .all(|rpc| rpc.stats() == Default::default())
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_comes_after_the_items_before_it() {
    let world = World::new(2).await;
    register(&world);
    for callee in [0, 1] {
        let mut stream = world.ranks[0]
            .call_stream::<_, (usize, Vec<u8>)>(callee, "items", &(7_usize, 100_usize))
            .await
            .unwrap();
        for number in 0..7 {
            assert_eq!(
                stream.next().await.unwrap(),
                Some((number, body(number, 100)))
            );
        }
        let message = "an item could not be encoded: seven".to_owned();
        assert_eq!(cause(stream.next().await), RpcFailure::Handler { message });
        assert_eq!(stream.next().await.unwrap(), None);
        let missing = world.ranks[0]
            .call_stream::<_, u8>(callee, "item", &())
            .await;
        let similar = vec!["items".to_owned()];
        let failed = cause(missing.unwrap().next().await);
        assert_eq!(failed, RpcFailure::NoSuchMethod { similar });
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_waits_for_a_caller_that_does_not_take() {
    let world = World::new(2).await;
    let given = register(&world);
    let (count, bytes) = (1000, 10_000);
    for callee in [0, 1] {
        given.store(0, Ordering::SeqCst);
        let mut stream = world.ranks[0]
            .call_stream::<_, (usize, Vec<u8>)>(callee, "items", &(count, bytes))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let ahead = given.load(Ordering::SeqCst);
        assert!(ahead.abs_diff(STREAM_WINDOW / bytes) < 3, "{ahead}");
        // Others are not in its way.
        let mut other = world.ranks[0]
            .call_stream::<_, (usize, Vec<u8>)>(callee, "items", &(300_usize, 5_usize))
            .await
            .unwrap();
        let mut seen = 0;
        while within(Duration::from_secs(1), other.next())
            .await
            .unwrap()
            .is_some()
        {
            seen += 1;
        }
        assert_eq!(seen, 300);
        for number in 0..count {
            let item = within(Duration::from_secs(1), stream.next()).await.unwrap();
            assert!(item == Some((number, body(number, bytes))), "{number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_ends_its_handler() {
    let world = World::new(2).await;
    let given = register(&world);
    for callee in [0, 1] {
        for taken in [0, 1, 50] {
            let mut stream = world.ranks[0]
                .call_stream::<_, (usize, Vec<u8>)>(callee, "items", &(1_000_000_usize, 1000_usize))
                .await
                .unwrap();
            for _ in 0..taken {
                stream.next().await.unwrap();
            }
            drop(stream);
            tokio::time::sleep(Duration::from_millis(1)).await;
            settle().await;
            let before = given.load(Ordering::SeqCst);
            settle().await;
            assert_eq!(given.load(Ordering::SeqCst), before);
            assert!(
                world
                    .ranks
                    .iter()
                    .all(|rpc| rpc.stats() == Default::default())
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_is_for_the_whole_stream() {
    let world = World::new(2).await;
    world.ranks[1]
        .register_stream("slow", |_, (): (), items: ItemSender<u32>| async move {
            for number in 0.. {
                tokio::time::sleep(Duration::from_millis(30)).await;
                items.send(&number).await?;
            }
            Ok::<_, ItemError>(())
        })
        .unwrap();
    let limit = Duration::from_millis(100);
    let begun = Instant::now();
    let caller = world.ranks[0].within(limit);
    let mut stream = caller.call_stream::<_, u32>(1, "slow", &()).await.unwrap();
    for number in 0..3 {
        assert_eq!(stream.next().await.unwrap(), Some(number));
    }
    assert_eq!(cause(stream.next().await), RpcFailure::TimedOut { limit });
    assert_eq!(begun.elapsed().as_millis(), 100);
    drop(stream);
    settle().await;
    assert!(
        world
            .ranks
            .iter()
            .all(|rpc| rpc.stats() == Default::default())
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_rank_that_dies_fails() {
    let world = World::with_limits(2, nexar_core::TimeLimits::default()).await;
    register(&world);
    let mut stream = world.ranks[0]
        .call_stream::<_, (usize, Vec<u8>)>(1, "items", &(1_000_000_usize, 1000_usize))
        .await
        .unwrap();
    assert!(stream.next().await.unwrap().is_some());
    world.network.kill(world.address(1));
    let end = async {
        loop {
            if let Err(error) = stream.next().await {
                break Err::<(), _>(error);
            }
        }
    };
    let failed = failure(within(Duration::from_secs(6), end).await);
    assert!(
        matches!(failed, Failure::PeerLost { rank: 1, .. }),
        "{failed}"
    );
}
