//! Calls that fail while their communicator goes on.

use crate::world::{World, cause, rpc_error};
use bytes::Bytes;
use nexar_core::rpc::{RpcFailure, RpcOptions};
use std::convert::Infallible;

async fn world() -> World {
    let world = World::with_options(2, RpcOptions::default().with_max_body(1000)).await;
    for rpc in &world.ranks {
        rpc.register("half", |_, number: u32| async move {
            match number % 2 {
                0 => Ok(number / 2),
                _ => Err(format!("{number} is odd")),
            }
        })
        .unwrap();
        rpc.register("halve", |_, number: u32| async move {
            Ok::<_, Infallible>(number / 2)
        })
        .unwrap();
        rpc.register("panics", |_, text: String| async move {
            match text.is_empty() {
                true => std::panic::panic_any(7),
                false => panic!("said {text}"),
            }
            #[allow(unreachable_code)]
            Ok::<_, Infallible>(())
        })
        .unwrap();
        rpc.register_raw("bytes", |_, length: Bytes| async move {
            Ok::<_, Infallible>(vec![1; 10 * length.len()].into())
        })
        .unwrap();
    }
    world
}

#[tokio::test(start_paused = true)]
async fn a_missing_method_is_named_with_similar_ones() {
    let world = world().await;
    for callee in [0, 1] {
        let call = world.ranks[0].call::<_, u32>(callee, "halv", &4_u32);
        let error = rpc_error(call.await);
        let similar = vec!["half".to_owned(), "halve".to_owned()];
        assert_eq!(error.cause, RpcFailure::NoSuchMethod { similar });
        let (rank, communicator) = (error.rank, error.communicator);
        assert_eq!(
            (&*error.method, error.callee, rank, communicator),
            ("halv", callee, 0, 1)
        );
        assert_eq!(
            error.to_string(),
            format!(
                "call of 'halv' on rank {callee} (communicator 1, rank 0): there is no such method; \
                 similar: half, halve"
            )
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_handler_arrives_with_its_text() {
    let world = world().await;
    for callee in [0, 1] {
        let failed = cause(world.ranks[0].call::<_, u32>(callee, "half", &7_u32).await);
        let message = "7 is odd".to_owned();
        assert_eq!(failed, RpcFailure::Handler { message });
        assert_eq!(
            world.ranks[0]
                .call::<_, u32>(callee, "half", &8_u32)
                .await
                .unwrap(),
            4
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_fails_its_call_only() {
    let world = world().await;
    for callee in [0, 1] {
        for (text, expected) in [("so", "said so"), ("", "without a message")] {
            let call = world.ranks[0].call::<_, ()>(callee, "panics", text);
            let message = expected.to_owned();
            assert_eq!(cause(call.await), RpcFailure::Panicked { message });
        }
        assert_eq!(
            world.ranks[0]
                .call::<_, u32>(callee, "half", &6_u32)
                .await
                .unwrap(),
            3
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_text_is_cut_and_a_panic_while_dropping_is_caught() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let world = world().await;
    world.ranks[1]
        .register("long", |_, (): ()| async {
            Err::<(), _>("ä".repeat(5000))
        })
        .unwrap();
    world.ranks[1]
        .register("bomb", |_, (): ()| async move {
            let _bomb = Bomb;
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(())
        })
        .unwrap();
    let failed = cause(world.ranks[0].call::<_, ()>(1, "long", &()).await);
    let message = "ä".repeat(2048);
    assert_eq!(failed, RpcFailure::Handler { message });
    let failed = cause(world.ranks[0].call::<_, ()>(1, "bomb", &()).await);
    let message = "dropped".to_owned();
    assert_eq!(failed, RpcFailure::Panicked { message });
}

#[tokio::test(start_paused = true)]
async fn other_types_than_meant_do_not_decode() {
    let world = world().await;
    for callee in [0, 1] {
        let rpc = &world.ranks[0];
        let request = cause(rpc.call::<_, u32>(callee, "half", "a text").await);
        let RpcFailure::Decode { what } = request else {
            panic!("{request}");
        };
        assert_eq!(what, "6 bytes are left over");
        let reply = cause(rpc.call::<_, (u32, u32)>(callee, "half", &4_u32).await);
        assert!(matches!(reply, RpcFailure::Decode { .. }), "{reply}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_above_the_limit_is_refused_on_either_side() {
    let world = world().await;
    for callee in [0, 1] {
        let rpc = &world.ranks[0];
        let call = |length: usize| rpc.call_raw(callee, "bytes", vec![0; length].into());
        assert_eq!(call(100).await.unwrap(), vec![1; 1000]);
        let request = cause(call(1001).await);
        let reply = cause(call(101).await);
        let limit = 1000;
        assert_eq!(
            request,
            RpcFailure::TooLarge {
                length: 1001,
                limit
            }
        );
        assert_eq!(
            reply,
            RpcFailure::TooLarge {
                length: 1010,
                limit
            }
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_is_called_as_what_it_is() {
    let world = world().await;
    world.ranks[1]
        .register_stream(
            "stream",
            |_, (): (), items: nexar_core::rpc::ItemSender<u8>| async move { items.send(&1).await },
        )
        .unwrap();
    let rpc = &world.ranks[0];
    let whole = cause(rpc.call::<_, u8>(1, "stream", &()).await);
    assert_eq!(whole, RpcFailure::OtherKind { streams: true });
    let mut stream = rpc.call_stream::<_, u32>(1, "half", &2_u32).await.unwrap();
    let streamed = cause(stream.next().await);
    assert_eq!(streamed, RpcFailure::OtherKind { streams: false });
    assert_eq!(stream.next().await.unwrap(), None);
}
