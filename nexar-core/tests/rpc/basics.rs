//! Calls that succeed.

use crate::world::{World, body, cause, ranks, within};
use bytes::Bytes;
use nexar_core::{
    Error,
    rpc::{INLINE_LIMIT, RpcFailure, RpcOptions},
};
use serde::{Deserialize, Serialize};
use std::{convert::Infallible, time::Duration};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Question {
    words: Vec<String>,
    weight: Option<f64>,
}

#[tokio::test(start_paused = true)]
async fn every_rank_calls_every_rank_itself_included() {
    for size in [1, 2, 3, 5, 8] {
        let world = World::new(size).await;
        for (rank, rpc) in world.ranks.iter().enumerate() {
            rpc.register("where", move |call, number: u64| async move {
                Ok::<_, Infallible>((rank, call.source(), call.depth(), number + 1))
            })
            .unwrap();
        }
        for (from, rpc) in world.ranks.iter().enumerate() {
            for to in 0..size {
                let number = (10 * from + to) as u64;
                let reply: (usize, usize, u8, u64) = rpc.call(to, "where", &number).await.unwrap();
                assert_eq!(reply, (to, from, 0, number + 1));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn types_arrive_as_they_were() {
    let world = World::new(2).await;
    let asked = Question {
        words: vec!["how".into(), "many".into()],
        weight: Some(-0.25),
    };
    world.ranks[1]
        .register("ask", |_, mut question: Question| async move {
            question.words.push("?".into());
            Ok::<_, Infallible>((question, ()))
        })
        .unwrap();
    let mut expected = asked.clone();
    expected.words.push("?".into());
    let answer: (Question, ()) = world.ranks[0].call(1, "ask", &asked).await.unwrap();
    assert_eq!(answer, (expected, ()));
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_as_they_were() {
    let world = World::new(2).await;
    for (rank, rpc) in world.ranks.iter().enumerate() {
        rpc.register_raw("turn", move |_, request: Bytes| async move {
            let mut reply = request.to_vec();
            reply.reverse();
            reply.push(rank as u8);
            Ok::<_, Infallible>(reply.into())
        })
        .unwrap();
    }
    let lengths = [0, 1, 27, 4096, 4097, INLINE_LIMIT - 1, INLINE_LIMIT];
    for (i, length) in lengths.into_iter().enumerate() {
        for to in [0, 1] {
            let sent = body(i, length);
            let mut expected = sent.clone();
            expected.reverse();
            expected.push(to as u8);
            let reply = world.ranks[0].call_raw(to, "turn", sent.into()).await;
            assert_eq!(reply.unwrap(), expected, "{length} bytes to {to}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_calls_at_a_time_get_their_own_answers() {
    let world = World::new(3).await;
    for (rank, rpc) in world.ranks.iter().enumerate() {
        rpc.register("times", move |call, number: u64| async move {
            if number.is_multiple_of(3) {
                tokio::time::sleep(Duration::from_millis(number % 7)).await;
            }
            Ok::<_, Infallible>(number * 10 + (rank * 3 + call.source()) as u64)
        })
        .unwrap();
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (from, rpc) in world.ranks.iter().enumerate() {
        for number in 0..300 {
            let rpc = rpc.clone();
            tasks.spawn(async move {
                let to = number as usize % 3;
                let reply: u64 = rpc.call(to, "times", &number).await.unwrap();
                assert_eq!(reply, number * 10 + (to * 3 + from) as u64);
            });
        }
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(5), all).await;
    assert!(
        world
            .ranks
            .iter()
            .all(|rpc| rpc.stats() == Default::default())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_calls_on_several_threads() {
    let world = World::new(2).await;
    for rpc in &world.ranks {
        rpc.register("echo", |_, number: u64| async move {
            Ok::<_, Infallible>(number)
        })
        .unwrap();
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (from, rpc) in world.ranks.iter().enumerate() {
        for task in 0..40 {
            let rpc = rpc.clone();
            tasks.spawn(async move {
                for number in 0..100 {
                    let number = task * 1000 + number;
                    let reply: u64 = rpc.call(1 - from, "echo", &number).await.unwrap();
                    assert_eq!(reply, number);
                }
            });
        }
    }
    while tasks.join_next().await.transpose().unwrap().is_some() {}
}

#[test]
fn without_a_runtime_handlers_have_a_thread_of_their_own() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(World::new(1));
    let group = std::sync::Arc::new(world.meshes[0].group(5, vec![0]).unwrap());
    let rpc = nexar_core::rpc::Rpc::new(group, RpcOptions::default());
    rpc.register("thread", |_, (): ()| async {
        let thread = std::thread::current();
        Ok::<_, Infallible>(thread.name().unwrap_or_default().to_owned())
    })
    .unwrap();
    let name: String = runtime.block_on(rpc.call(0, "thread", &())).unwrap();
    assert_eq!(name, "nexar-rpc");
}

#[tokio::test(start_paused = true)]
async fn communicators_have_handlers_of_their_own() {
    let world = World::new(2).await;
    let others = ranks(&world.meshes, 2, &RpcOptions::default());
    for (number, rpc) in [(1_u32, &world.ranks[1]), (2, &others[1])] {
        rpc.register("which", move |_, (): ()| async move {
            Ok::<_, Infallible>(number)
        })
        .unwrap();
    }
    assert_eq!(
        world.ranks[0]
            .call::<_, u32>(1, "which", &())
            .await
            .unwrap(),
        1
    );
    assert_eq!(others[0].call::<_, u32>(1, "which", &()).await.unwrap(), 2);
    assert!(others[1].unregister("which"));
    assert!(!others[1].unregister("which"));
    let gone = cause(others[0].call::<_, u32>(1, "which", &()).await);
    assert!(matches!(gone, RpcFailure::NoSuchMethod { .. }), "{gone}");
    assert_eq!(
        world.ranks[0]
            .call::<_, u32>(1, "which", &())
            .await
            .unwrap(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused() {
    let world = World::new(2).await;
    let rpc = &world.ranks[0];
    let echo = |_, number: u64| async move { Ok::<_, Infallible>(number) };
    let invalid = |result: nexar_core::Result<()>| match result.unwrap_err() {
        Error::InvalidArgument { operation, reason } => format!("{operation}: {reason}"),
        error => panic!("{error}"),
    };
    rpc.register("echo", echo).unwrap();
    assert_eq!(
        invalid(rpc.register("echo", echo)),
        "register: method 'echo' exists already"
    );
    assert!(invalid(rpc.register("", echo)).contains("1 to 255 bytes, not 0"));
    assert!(invalid(rpc.register(&"x".repeat(256), echo)).contains("not 256"));
    rpc.register(&"x".repeat(255), echo).unwrap();
    let call = |rank, name| async move { rpc.call::<_, u64>(rank, name, &1_u64).await.map(drop) };
    assert_eq!(
        invalid(call(2, "echo").await),
        "call: rank 2 does not exist in a communicator of 2"
    );
    assert!(invalid(call(0, "").await).contains("not 0"));
}
