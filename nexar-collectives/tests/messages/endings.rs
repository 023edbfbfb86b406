//! Messages that do not fit, are given up, take too long, or whose rank leaves.

use crate::{
    LARGE, Ranks,
    common::{memory_world, on_all, share},
    is_done, memory, numbers, quic, quic_with,
};
use nexar_collectives::{
    Communicator, DataType, Error, Failure, MessageError, MessageFailure, Source, Tag, TimeLimits,
    WaitingFor, transport::Transport,
};
use std::{fmt::Debug, sync::Arc, time::Duration};
use tokio::time::Instant;

/// What is wrong with one message.
#[track_caller]
fn refused<R: Debug>(result: Result<R, Error>) -> Box<MessageError> {
    match result.unwrap_err() {
        Error::Message(error) => error,
        other => panic!("{other}"),
    }
}

/// What the documentation warns of.
async fn both_send_first<T: Transport>(ranks: Ranks<T>, limit: Duration) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, other) = (comm.rank(), 1 - comm.rank());
        let outgoing = numbers(rank, LARGE);
        let error = refused(comm.send(&outgoing, other, 1).await);
        assert_eq!((error.operation, error.rank), ("send", rank));
        assert_eq!(
            (error.peer, error.tag),
            (Source::Rank(other), Tag::Value(1))
        );
        let expected = MessageFailure::TimedOut {
            limit,
            waiting_for: WaitingFor::Receive,
        };
        assert_eq!(error.cause, expected);
        comm.barrier().await.unwrap();
        // It is withdrawn, and the communicator goes on.
        let mut incoming = vec![0.0; 10];
        let received = comm
            .send_recv(&outgoing[..10], other, 1, &mut incoming, other, 1)
            .await;
        assert_eq!(received.unwrap().count, 10);
        assert_eq!(incoming, numbers(other, 10));
    };
    on_all(&ranks, work).await;
}

#[tokio::test(start_paused = true)]
async fn ranks_that_both_send_a_large_message_first_wait_until_the_time_limit() {
    let limit = Duration::from_secs(60);
    let limits = TimeLimits::default().with_operation(limit);
    both_send_first(share(memory_world(2, limits).await.2), limit).await;
}

#[tokio::test]
async fn over_quic_they_do_so_too() {
    let limit = Duration::from_secs(2);
    let limits = TimeLimits::default().with_operation(limit);
    both_send_first(quic_with(2, limits).await, limit).await;
}

async fn what_does_not_fit<T: Transport>(ranks: Ranks<T>) {
    let [zero, one] = &ranks[..] else {
        panic!("two ranks")
    };
    for count in [8, 100_000] {
        let doubles: Vec<f64> = numbers(1, count).into_iter().map(f64::from).collect();
        let send = async {
            for _ in 0..3 {
                zero.send(&doubles, 1, 5).await.unwrap();
            }
            zero.send(&numbers(2, count), 1, 5).await.unwrap();
        };
        let receive = async {
            let mut buffer = vec![-1.0_f32; count];
            let error = refused(one.recv(&mut buffer, 0, 5).await);
            let wrong = MessageFailure::WrongType {
                source: 0,
                tag: 5,
                sent: Some(DataType::F64),
                expected: DataType::F32,
            };
            assert_eq!((error.operation, error.cause), ("recv", wrong));
            let error = refused(one.recv_vec::<f64>(Source::Any, 5, count - 1).await);
            let truncated = MessageFailure::Truncated {
                source: 0,
                tag: 5,
                dtype: Some(DataType::F64),
                length: count * 8,
                capacity: (count - 1) * 8,
            };
            assert_eq!((error.operation, error.cause), ("recv_vec", truncated));
            let found = one.probe(0, Tag::Any).await.unwrap();
            assert_eq!((found.dtype, found.count), (Some(DataType::F64), count));
            let mut enough = vec![0.0_f64; found.count];
            one.recv(&mut enough, found.source, found.tag)
                .await
                .unwrap();
            assert!(enough == doubles);
            one.recv(&mut buffer, 0, 5).await.unwrap();
            assert!(buffer == numbers(2, count));
        };
        tokio::join!(send, receive);
    }
    for error in [
        zero.send(&[1_u8], 2, 0).await.unwrap_err(),
        zero.recv(&mut [1_u8], 2, 0).await.unwrap_err(),
        zero.try_probe(2, 0).unwrap_err(),
    ] {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_message_that_does_not_fit_is_discarded_and_the_next_one_is_intact() {
    what_does_not_fit(memory(2).await).await;
    what_does_not_fit(quic(2).await).await;
}

/// A receive is dropped after so many polls, and made again. Whether a part of its message had come by then.
async fn give_up<T: Transport>(ranks: &Ranks<T>, outgoing: &Arc<Vec<f32>>, polls: usize) -> bool {
    let (zero, one) = (&ranks[0], &ranks[1]);
    let send = {
        let (zero, outgoing) = (Arc::clone(zero), Arc::clone(outgoing));
        tokio::spawn(async move { zero.send(&outgoing, 1, 1).await })
    };
    let mut incoming = vec![-1.0; outgoing.len()];
    one.probe(0, 1).await.unwrap();
    let mut receive = Box::pin(one.recv(&mut incoming, 0, 1));
    let mut done = false;
    for _ in 0..polls {
        done = is_done(receive.as_mut()).await;
        if done {
            break;
        }
        tokio::task::yield_now().await;
    }
    drop(receive);
    let began = incoming[0] != -1.0;
    if !done {
        let (some, rest) = incoming.split_at_mut(1000);
        let mut parts = [some, rest];
        let received = one.recv_parts(&mut parts, Source::Any, Tag::Any).await;
        assert_eq!(received.unwrap().count, outgoing.len());
    }
    assert!(incoming == **outgoing);
    send.await.unwrap().unwrap();
    assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
    began && !done
}

async fn given_up<T: Transport>(ranks: Ranks<T>) {
    let outgoing = Arc::new(numbers(3, LARGE / 4));
    let mut in_the_middle = 0;
    for attempt in 0.. {
        in_the_middle += usize::from(give_up(&ranks, &outgoing, attempt * 3 % 200).await);
        if in_the_middle == 3 {
            return;
        }
    }
}

#[tokio::test]
async fn a_receive_that_is_dropped_leaves_its_message_to_the_next() {
    given_up(memory(2).await).await;
    given_up(quic(2).await).await;
}

#[track_caller]
fn left<R: Debug>(result: Result<R, Error>, by: usize) {
    match result.unwrap_err() {
        Error::Operation(error) => assert_eq!(error.failure, Failure::PeerLeft { rank: by }),
        other => panic!("{other}"),
    }
}

/// Rank 1 waits for rank 0, which leaves.
async fn waits_for_one_that_leaves<T: Transport>(mut ranks: Vec<Communicator<T>>) {
    let one = ranks.pop().unwrap();
    let zero = ranks.pop().unwrap();
    zero.send(&[1_u8, 2, 3], 1, 1).await.unwrap();
    let (mut exact, mut any, mut back) = ([0_u8; 3], [0_u8; 3], [0_u8; 3]);
    let large = numbers(1, 100_000);
    let pending = async {
        tokio::join!(
            one.recv(&mut exact, 0, 2),
            one.recv(&mut any, Source::Any, 3),
            one.recv_vec::<f64>(0, 4, 10),
            one.probe(0, 5),
            one.send(&large, 0, 6),
            one.send_recv(&[1_u8], 1, 7, &mut back, 0, 8),
        )
    };
    let mut pending = Box::pin(pending);
    assert!(!is_done(pending.as_mut()).await);
    let (results, shut_down) = tokio::join!(pending, zero.shutdown());
    shut_down.unwrap();
    let (a, b, c, d, e, f) = results;
    [
        a.map(drop),
        b.map(drop),
        c.map(drop),
        d.map(drop),
        e,
        f.map(drop),
    ]
    .into_iter()
    .for_each(|result| left(result, 0));
    // What was sent before is still there.
    one.recv(&mut exact, 0, 1).await.unwrap();
    assert_eq!(exact, [1, 2, 3]);
    left(one.send(&[1_u8], 0, 1).await, 0);
    one.recv(&mut back, 1, 7).await.unwrap();
    one.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_waits_for_it() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    let started = Instant::now();
    waits_for_one_that_leaves(ranks).await;
    assert!(
        started.elapsed() < Duration::from_millis(100),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_shutdown_over_quic_ends_what_waits_for_it() {
    waits_for_one_that_leaves(Communicator::local(2).await.unwrap()).await;
}
