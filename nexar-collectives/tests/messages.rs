//! Messages between ranks, over real QUIC and over the in-memory network.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{WORLDS, memory_world, on_all, share};
use nexar_collectives::{
    Backend, Communicator, CpuAdapter, DataType, Element, Error, Failure, MessageError,
    MessageFailure, ReduceOp, Secret, Source, Tag, TimeLimits, WaitingFor, bf16,
    membership::{JoinRequest, SeedRoute},
    transport::Transport,
};
use nexar_quic::{AnyTransport, Config, Identity};
use std::{
    fmt::Debug,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};

type Ranks<T> = Vec<Arc<Communicator<T>>>;

/// Elements of 64 MiB.
const LARGE: usize = 16 << 20;

async fn quic(world: usize) -> Ranks<AnyTransport> {
    share(Communicator::local(world).await.unwrap())
}

/// Over real QUIC, with time limits.
async fn quic_with(world: usize, limits: TimeLimits) -> Ranks<AnyTransport> {
    let secret = Secret::random().unwrap();
    let bind = |_| {
        let identity = Identity::from_secret(&secret, "messages").unwrap();
        let config = Config::new(identity, "127.0.0.1:0".parse().unwrap());
        Arc::new(AnyTransport::bind(Backend::default(), config).unwrap())
    };
    let transports: Vec<_> = (0..world).map(bind).collect();
    let seed = transports[0].local_addr();
    let mut joins = JoinSet::new();
    for (rank, transport) in transports.into_iter().enumerate() {
        let request = JoinRequest::new("messages", world)
            .with_rank(Some(rank))
            .with_limits(limits);
        let route = match rank {
            0 => SeedRoute::Here(transport),
            _ => SeedRoute::Dial(vec![(transport, seed)]),
        };
        joins.spawn(Communicator::join(route, request, CpuAdapter));
    }
    let mut ranks: Vec<_> = joins
        .join_all()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    ranks.sort_by_key(Communicator::rank);
    share(ranks)
}

async fn memory(world: usize) -> Ranks<impl Transport> {
    share(memory_world(world, TimeLimits::default()).await.2)
}

/// What is wrong with one message.
#[track_caller]
fn refused<R: Debug>(result: Result<R, Error>) -> Box<MessageError> {
    match result.unwrap_err() {
        Error::Message(error) => error,
        other => panic!("{other}"),
    }
}

/// Numbers that no other seed has, and not at the same places.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let first = seed * 1_000_003;
    (first..first + count)
        .map(|n| (n % 16_777_213) as f32)
        .collect()
}

/// Whether a future is done when it is polled once.
async fn is_done(future: impl Future + Unpin) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// One message from every rank to every rank, itself included, of a length that depends on both.
async fn all_to_all<T: Transport, E: Element>(
    ranks: &Ranks<T>,
    count: usize,
    make: fn(usize) -> E,
) {
    let values = move |from: usize, to: usize| -> Vec<E> {
        let length = count + 3 * from + to;
        (0..length).map(|i| make(i * 31 + from * 7 + to)).collect()
    };
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, size) = (comm.rank(), comm.world_size());
        let mut sends = JoinSet::new();
        for to in 0..size {
            let comm = Arc::clone(&comm);
            let tag = (100 * rank + to) as u64;
            sends.spawn(async move { comm.send(&values(rank, to), to, tag).await });
        }
        for from in (0..size).rev() {
            let expected = values(from, rank);
            let tag = (100 * from + rank) as u64;
            let mut buffer = vec![make(1); expected.len() + 1];
            let received = if from % 2 == 0 {
                comm.recv(&mut buffer, from, tag).await.unwrap()
            } else {
                let (first, rest) = buffer.split_at_mut(from);
                let mut parts = [first, rest];
                comm.recv_parts(&mut parts, Source::Any, tag).await.unwrap()
            };
            assert_eq!((received.source, received.tag), (from, tag));
            assert_eq!(received.dtype, Some(E::DATA_TYPE));
            assert_eq!(received.count, expected.len());
            assert!(buffer[..received.count] == expected);
            assert_eq!(buffer[received.count], make(1));
        }
        sends.join_all().await.into_iter().for_each(Result::unwrap);
        assert_eq!(comm.try_probe(Source::Any, Tag::Any).unwrap(), None);
    };
    on_all(ranks, work).await;
}

async fn all_types<T: Transport>(ranks: Ranks<T>) {
    for count in [0, 20_000] {
        all_to_all(&ranks, count, |n| n as f32).await;
        all_to_all(&ranks, count, |n| n as f64).await;
        all_to_all(&ranks, count, |n| bf16::from_f32((n % 256) as f32)).await;
        all_to_all(&ranks, count, |n| n as i8).await;
        all_to_all(&ranks, count, |n| n as u16).await;
        all_to_all(&ranks, count, |n| n as i64).await;
        all_to_all(&ranks, count, |n| n % 3 == 0).await;
    }
}

#[tokio::test]
async fn every_rank_sends_to_every_rank() {
    for world in WORLDS {
        all_types(memory(world).await).await;
        all_types(quic(world).await).await;
    }
}

async fn exchange<T: Transport>(ranks: Ranks<T>, both_in_one_call: bool) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let other = 1 - comm.rank();
        let outgoing = numbers(comm.rank(), LARGE);
        let mut incoming = vec![-1.0; LARGE];
        let received = if both_in_one_call {
            comm.send_recv(&outgoing, other, 4, &mut incoming, other, 4)
                .await
        } else {
            let (send, receive) = (
                comm.send(&outgoing, other, 4),
                comm.recv(&mut incoming, other, 4),
            );
            let (sent, received) = tokio::join!(send, receive);
            sent.and(received)
        };
        assert_eq!(received.unwrap().count, LARGE);
        assert!(incoming == numbers(other, LARGE));
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn large_messages_cross_each_other() {
    for both_in_one_call in [true, false] {
        exchange(memory(2).await, both_in_one_call).await;
        exchange(quic(2).await, both_in_one_call).await;
    }
}

async fn circle<T: Transport>(ranks: Ranks<T>) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, size) = (comm.rank(), comm.world_size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let outgoing = numbers(rank, 100_000 + rank);
        let mut incoming = vec![0.0; 100_010];
        let received = comm
            .send_recv(
                &outgoing,
                next,
                rank as u64,
                &mut incoming,
                previous,
                Tag::Any,
            )
            .await
            .unwrap();
        assert_eq!((received.source, received.tag), (previous, previous as u64));
        assert!(incoming[..received.count] == numbers(previous, 100_000 + previous));
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn blocks_go_round_in_a_circle() {
    for world in WORLDS {
        circle(memory(world).await).await;
        circle(quic(world).await).await;
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

async fn to_itself<T: Transport>(ranks: Ranks<T>) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let rank = comm.rank();
        let counts = [5, 0, 20_000, LARGE];
        for (number, count) in counts.into_iter().enumerate() {
            comm.send(&numbers(number, count), rank, 2).await.unwrap();
        }
        for (number, count) in counts.into_iter().enumerate() {
            let received = comm.recv_vec::<f32>(Source::Any, 2, count).await;
            let (received, values) = received.unwrap();
            assert_eq!((received.source, received.count), (rank, count));
            assert!(values == numbers(number, count));
        }
        let mut back = vec![0.0; 30_000];
        comm.send_recv(&numbers(rank, 30_000), rank, 3, &mut back, rank, 3)
            .await
            .unwrap();
        assert!(back == numbers(rank, 30_000));
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn a_rank_sends_to_itself_before_it_receives() {
    to_itself(memory(1).await).await;
    to_itself(memory(2).await).await;
    to_itself(quic(2).await).await;
}

/// Rank 0 tells the others one by one to send.
async fn in_turn<T: Transport>(ranks: Ranks<T>) {
    const GO: u64 = 1;
    const TURNS: u64 = 100;
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, size) = (comm.rank(), comm.world_size());
        let turns: Vec<usize> = (0..size * 3).map(|turn| turn * 5 % size).collect();
        // Every other one is too long to go at once.
        let message = |turn: usize| numbers(turn, 10 + turn % 2 * 20_000);
        let send = |turn: usize| {
            let (comm, message) = (Arc::clone(&comm), message(turn));
            async move { comm.send(&message, 0, TURNS + turn as u64).await }
        };
        let mut sends = JoinSet::new();
        for (turn, from) in turns.iter().copied().enumerate() {
            if rank == from {
                let mut go = [turn];
                if rank > 0 {
                    let mut number = [0_u64];
                    comm.recv(&mut number, 0, GO).await.unwrap();
                    go = [number[0] as usize];
                }
                sends.spawn(send(go[0]));
            }
            if rank == 0 {
                if from > 0 {
                    comm.send(&[turn as u64], from, GO).await.unwrap();
                }
                comm.probe(from, TURNS + turn as u64).await.unwrap();
            }
        }
        if rank == 0 {
            for (turn, from) in turns.into_iter().enumerate() {
                let received = comm.recv_vec::<f32>(Source::Any, Tag::Any, LARGE).await;
                let (received, values) = received.unwrap();
                let expected = (from, TURNS + turn as u64);
                assert_eq!((received.source, received.tag), expected);
                assert!(values == message(turn));
            }
        }
        sends.join_all().await.into_iter().for_each(Result::unwrap);
    };
    on_all(&ranks, work).await;
}

/// All at once with one tag: what comes from each keeps its order.
async fn all_at_once<T: Transport>(ranks: Ranks<T>) {
    const MANY: u32 = 200;
    let work = |comm: Arc<Communicator<T>>| async move {
        let send = async {
            for number in 0..MANY {
                let message = vec![number; 1 + number as usize % 7 * 3000];
                comm.send(&message, 0, 7).await.unwrap();
            }
        };
        let receive = async {
            let mut next = vec![0; comm.world_size()];
            for _ in 0..MANY as usize * next.len() {
                let found = comm.recv_vec::<u32>(Source::Any, 7, 20_000).await;
                let (received, values) = found.unwrap();
                let number = &mut next[received.source];
                assert_eq!(values.len(), 1 + *number as usize % 7 * 3000);
                assert!(values.iter().all(|value| value == number));
                *number += 1;
            }
        };
        if comm.rank() == 0 {
            tokio::join!(send, receive);
        } else {
            send.await;
        }
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn any_source_gets_what_came_first() {
    for world in WORLDS {
        in_turn(memory(world).await).await;
        in_turn(quic(world).await).await;
        all_at_once(memory(world).await).await;
        all_at_once(quic(world).await).await;
    }
}

async fn beside_collectives<T: Transport>(ranks: Ranks<T>) {
    let work = |comm: Arc<Communicator<T>>| async move {
        let (rank, size) = (comm.rank(), comm.world_size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut one = [0_u8; 1];
        // It waits all the time for what is sent at the end.
        let mut waits = Box::pin(comm.recv(&mut one, Source::Any, Tag::Any));
        assert!(!is_done(waits.as_mut()).await);
        let collectives = async {
            for round in 0..30 {
                let count = [1, 1000, 200_000][round % 3];
                let mut data = vec![rank as u64; count];
                comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
                assert_eq!(data, vec![(size * (size - 1) / 2) as u64; count]);
                comm.barrier().await.unwrap();
            }
            comm.send(&[rank as u8 + 1], next, 9).await.unwrap();
        };
        let (received, ()) = tokio::join!(waits, collectives);
        let received = received.unwrap();
        assert_eq!((received.source, received.tag), (previous, 9));
        assert_eq!(one, [previous as u8 + 1]);
        comm.barrier().await.unwrap();

        // Messages and collectives at the same time.
        let messages = async {
            for number in 0..60 {
                let count = [3, 30_000][number % 2];
                let outgoing = numbers(number + rank, count);
                let mut incoming = vec![0.0; count];
                let exchange = comm.send_recv(
                    &outgoing,
                    next,
                    number as u64,
                    &mut incoming,
                    Source::Any,
                    Tag::Any,
                );
                let received = exchange.await.unwrap();
                assert_eq!((received.source, received.tag), (previous, number as u64));
                assert!(incoming == numbers(number + previous, count));
            }
        };
        let collectives = async {
            for round in 0..30 {
                let mut data = vec![(rank + round) as i32; 5000];
                comm.all_reduce(&mut data, ReduceOp::Max).await.unwrap();
                assert_eq!(data, vec![(size - 1 + round) as i32; 5000]);
            }
        };
        tokio::join!(messages, collectives);
        assert_eq!(comm.try_probe(Source::Any, Tag::Any).unwrap(), None);
    };
    on_all(&ranks, work).await;
}

#[tokio::test]
async fn messages_and_collectives_do_not_see_each_other() {
    for world in WORLDS {
        beside_collectives(memory(world).await).await;
        beside_collectives(quic(world).await).await;
    }
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
