//! Remote calls over real QUIC, as programs use them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{on_all, quic_worlds, share};
use nexar_collectives::{
    Communicator, Error, ReduceOp,
    rpc::{CallContext, RpcFailure},
};
use nexar_quic::AnyTransport;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::Notify;

/// A call that counts down by calling back and forth.
async fn bounce(call: CallContext<AnyTransport>, left: u32) -> Result<Vec<usize>, String> {
    let source = call.source();
    if left == 0 {
        return Ok(vec![source]);
    }
    let caller = call.caller().ok_or("this rank shuts down")?;
    let path = caller.call(source, "bounce", &(left - 1)).await;
    let mut path: Vec<usize> = path.map_err(|error| error.to_string())?;
    path.push(source);
    Ok(path)
}

/// A handler that does not answer.
async fn fall(rank: usize) -> Result<(), Infallible> {
    panic!("of rank {rank}")
}

fn cause(error: Error) -> RpcFailure {
    match error {
        Error::Rpc(error) => error.cause,
        other => panic!("{other}"),
    }
}

async fn calls_of_every_kind(comm: Arc<Communicator>) {
    let (rank, other, rpc) = (comm.rank(), 1 - comm.rank(), comm.rpc());
    rpc.register("bounce", bounce).unwrap();
    rpc.register("half", |_, value: u64| async move {
        match value % 2 {
            0 => Ok(value / 2),
            _ => Err(format!("{value} is odd")),
        }
    })
    .unwrap();
    rpc.register("panic", move |_, (): ()| fall(rank)).unwrap();
    rpc.register_raw("reverse", |_, bytes| async move {
        Ok::<_, Infallible>(bytes.iter().rev().copied().collect::<Vec<u8>>().into())
    })
    .unwrap();
    comm.barrier().await.unwrap();

    for to in [other, rank] {
        let half: u64 = rpc.call(to, "half", &84_u64).await.unwrap();
        assert_eq!(half, 42);
        let error = rpc.call::<_, u64>(to, "half", &7_u64).await.unwrap_err();
        assert!(matches!(cause(error), RpcFailure::Handler { message } if message == "7 is odd"));
        let error = rpc.call::<_, ()>(to, "panic", &()).await.unwrap_err();
        assert!(
            matches!(cause(error), RpcFailure::Panicked { message, .. } if message.contains(&to.to_string()))
        );
        let error = rpc.call::<_, ()>(to, "halve", &()).await.unwrap_err();
        assert!(matches!(cause(error), RpcFailure::NoSuchMethod { .. }));
        for length in [0, 1, 65_536, 3_000_000] {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7 + i / 251) as u8).collect();
            let expected: Vec<u8> = bytes.iter().rev().copied().collect();
            let reversed = rpc.call_raw(to, "reverse", bytes.into()).await.unwrap();
            assert_eq!(reversed, expected, "{length} bytes");
        }
    }

    let path: Vec<usize> = rpc.call(other, "bounce", &8_u32).await.unwrap();
    let expected: Vec<usize> = (0..9)
        .map(|hop| if hop % 2 == 0 { rank } else { other })
        .collect();
    assert_eq!(path, expected);
    comm.barrier().await.unwrap();
}

#[tokio::test]
async fn every_kind_of_call_on_a_current_thread_runtime() {
    for ranks in quic_worlds(2).await {
        on_all(&share(ranks), calls_of_every_kind).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_call_on_a_multi_thread_runtime() {
    for ranks in quic_worlds(2).await {
        on_all(&share(ranks), calls_of_every_kind).await;
    }
}

/// A handler of one communicator takes part in a collective of another.
#[tokio::test]
async fn handlers_use_collectives_of_another_communicator() {
    for ranks in quic_worlds(3).await {
        let results = on_all(&share(ranks), |comm| async move {
            let other = Arc::new(comm.duplicate().await.unwrap());
            let inside = Arc::clone(&other);
            comm.rpc()
                .register("sum", move |_, value: u32| {
                    let inside = Arc::clone(&inside);
                    async move {
                        let mut sum = [value + inside.rank() as u32];
                        inside.all_reduce(&mut sum, ReduceOp::Sum).await?;
                        Ok::<_, Error>(sum[0])
                    }
                })
                .unwrap();
            comm.barrier().await.unwrap();
            let mut sums = Vec::new();
            if comm.rank() == 0 {
                let rpc = comm.rpc();
                let (a, b, c) = tokio::try_join!(
                    rpc.call::<_, u32>(0, "sum", &10_u32),
                    rpc.call::<_, u32>(1, "sum", &20_u32),
                    rpc.call::<_, u32>(2, "sum", &40_u32),
                )
                .unwrap();
                sums = vec![a, b, c];
            }
            comm.barrier().await.unwrap();
            comm.rpc().unregister("sum");
            sums
        })
        .await;
        assert_eq!(results[0], [73, 73, 73]);
    }
}

#[tokio::test]
async fn the_callee_learns_of_a_time_limit_and_of_a_caller_that_gives_up() {
    for ranks in quic_worlds(2).await {
        let ranks = share(ranks);
        let (begun, cancelled) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (at_begin, at_end) = (Arc::clone(&begun), Arc::clone(&cancelled));
        ranks[1]
            .rpc()
            .register("wait", move |call, (): ()| {
                let (begun, cancelled) = (Arc::clone(&at_begin), Arc::clone(&at_end));
                let cancellation = call.cancellation();
                tokio::spawn(async move {
                    cancellation.cancelled().await;
                    cancelled.notify_one();
                });
                async move {
                    begun.notify_one();
                    std::future::pending::<Result<(), Infallible>>().await
                }
            })
            .unwrap();
        let quick = ranks[0].rpc().within(Duration::from_millis(200));
        let error = quick.call::<_, ()>(1, "wait", &()).await.unwrap_err();
        assert!(matches!(cause(error), RpcFailure::TimedOut { .. }));
        begun.notified().await;
        cancelled.notified().await;

        tokio::select! {
            _ = ranks[0].rpc().call::<_, ()>(1, "wait", &()) => panic!("nobody answers"),
            () = begun.notified() => {}
        }
        cancelled.notified().await;
    }
}

#[tokio::test]
async fn replies_stream_and_a_rank_that_leaves_ends_the_calls_to_it() {
    for ranks in quic_worlds(2).await {
        let mut ranks = ranks.into_iter();
        let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
        one.rpc()
            .register_stream("squares", |_, to: u64, items| async move {
                for number in 0..to {
                    items.send(&(number * number)).await?;
                }
                Ok::<_, nexar_collectives::rpc::ItemError>(())
            })
            .unwrap();
        let mut squares = zero
            .rpc()
            .call_stream(1, "squares", &20_000_u64)
            .await
            .unwrap();
        let mut expected = 0..20_000_u64;
        while let Some(square) = squares.next().await.unwrap() {
            let square: u64 = square;
            assert_eq!(Some(square), expected.next().map(|number| number * number));
        }
        assert_eq!(expected.next(), None);

        let begun = Arc::new(Notify::new());
        let at_begin = Arc::clone(&begun);
        one.rpc()
            .register("forever", move |_, (): ()| {
                at_begin.notify_one();
                std::future::pending::<Result<(), Infallible>>()
            })
            .unwrap();
        let pending = zero.rpc().call::<_, ()>(1, "forever", &());
        let leaving = async {
            begun.notified().await;
            one.shutdown().await
        };
        let (answer, left) = tokio::join!(pending, leaving);
        left.unwrap();
        assert!(answer.is_err());
        let error = zero
            .rpc()
            .call::<_, u64>(1, "squares", &1_u64)
            .await
            .unwrap_err();
        assert!(error.is_peer_failure(), "{error}");
    }
}
