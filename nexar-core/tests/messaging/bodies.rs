//! Bodies that are read and written piece by piece, by something that takes its time.

use crate::world::{World, at_most, body, settle, start};
use bytes::Bytes;
use nexar_core::{
    DataType, Error, TimeLimits,
    messaging::{
        BodyReader, BodyWriter, CREDIT, MAX_BODIES, MAX_TRANSFERS, MessageFailure, OWN_LIMIT,
        Source, Tag, WaitingFor,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

/// Lengths around those at which a message goes out at once, and of several chunks.
const LENGTHS: [usize; 6] = [0, 1, 1000, 65_536, 65_537, 1 << 20];

/// Every other poll is in vain.
#[derive(Default)]
struct Slow {
    bytes: Vec<u8>,
    at: usize,
    ready: bool,
    paused: usize,
}

impl Slow {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ready = !self.ready;
        if self.ready {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl BodyReader for Slow {
    fn length(&self) -> usize {
        self.bytes.len()
    }

    fn begin(&mut self) {
        self.at = 0;
    }

    fn pause(&mut self) {
        self.paused += 1;
        self.at = usize::MAX;
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<Result<Bytes, MessageFailure>> {
        self.poll(cx).map(|()| {
            let end = self.bytes.len().min(self.at + limit.min(30_011));
            let chunk = Bytes::copy_from_slice(&self.bytes[self.at..end]);
            self.at = end;
            Ok(chunk)
        })
    }
}

impl BodyWriter for Slow {
    fn capacity(&self) -> usize {
        2 << 20
    }

    fn begin(&mut self, _length: usize) -> Result<(), MessageFailure> {
        self.bytes.clear();
        Ok(())
    }

    fn put(&mut self, chunk: &[u8]) {
        assert!(chunk.len() <= 20_011);
        self.bytes.extend_from_slice(chunk);
    }

    fn put_whole(&mut self, _: Bytes) {
        panic!("it waits");
    }

    fn waits(&self) -> bool {
        true
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, MessageFailure>> {
        self.poll(cx).map(|()| Ok(20_011))
    }

    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), MessageFailure>> {
        self.poll(cx).map(Ok)
    }
}

fn slow(bytes: Vec<u8>) -> Slow {
    Slow {
        bytes,
        at: usize::MAX,
        ..Slow::default()
    }
}

#[tokio::test]
async fn slow_bodies_arrive_exactly() {
    let world = World::new(2).await;
    for length in LENGTHS {
        for to in [1, 0] {
            let (mut from, mut into) = (slow(body(length, length)), Slow::default());
            let send = world.ranks[0].send_body(to, 5, Some(DataType::U8), &mut from);
            let recv = world.ranks[to].recv_body(0, Tag::Any, &mut into);
            let (sent, received) = tokio::join!(send, recv);
            sent.unwrap();
            let received = received.unwrap();
            assert_eq!(
                (received.source, received.dtype, received.count),
                (0, Some(DataType::U8), length)
            );
            assert!(into.bytes == from.bytes, "{length} to {to}");
        }
    }
    // Both ways at once.
    let (mut first, mut second) = (slow(body(1, 1 << 20)), slow(body(2, 1000)));
    let (mut at_zero, mut at_one) = (Slow::default(), Slow::default());
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let exchanged = tokio::try_join!(
        zero.send_recv_body((1, 0, None), &mut first, (1, 0), &mut at_zero),
        one.send_recv_body((0, 0, None), &mut second, (0, 0), &mut at_one),
    );
    exchanged.unwrap();
    assert!(at_zero.bytes == second.bytes && at_one.bytes == first.bytes);
}

#[tokio::test]
async fn slow_bodies_can_be_dropped_at_any_point() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    for length in [1000, 300_000] {
        for polls in 0..40 {
            let message = body(polls, length);
            let send = {
                let (zero, mut from) = (zero.clone(), slow(message.clone()));
                start(async move { zero.send_body(1, 1, None, &mut from).await }).await
            };
            let mut into = Slow::default();
            let first = at_most(polls, one.recv_body(0, 1, &mut into)).await;
            if first.is_none() {
                one.recv_body(0, 1, &mut into).await.unwrap();
            }
            assert!(into.bytes == message);
            send.await.unwrap().unwrap();

            let mut from = slow(message.clone());
            let receive = {
                let one = one.clone();
                start(async move {
                    let mut into = Slow::default();
                    let received = one.recv_body(0, Tag::Any, &mut into).await.unwrap();
                    (received.tag, into.bytes)
                })
                .await
            };
            let sent = at_most(polls, zero.send_body(1, 2, None, &mut from)).await;
            zero.send(1, 3, "next".into()).await.unwrap();
            let (tag, found) = receive.await.unwrap();
            match tag {
                2 => {
                    assert!(found == message);
                    one.recv(0, 3, 4).await.unwrap();
                }
                _ => {
                    assert!(sent.is_none());
                    assert_eq!(found, b"next");
                }
            }
            settle().await;
            assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
        }
    }
}

/// A reader that is slow does not lose its place to messages of the same tag, and those of other tags do not wait for it.
#[tokio::test]
async fn messages_of_one_tag_keep_their_order() {
    let world = World::new(2).await;
    let zero = &world.ranks[0];
    for to in [1, 0] {
        for (first, second) in [(1000, 1), (65_536, 65_537), (5, 100_000), (100_000, 5)] {
            let (mut a, mut c) = (slow(body(1, first)), slow(body(3, second)));
            let b = body(2, second);
            let mut at_end = Vec::new();
            let sends = async {
                tokio::join!(
                    async { zero.send_body(to, 5, None, &mut a).await.unwrap() },
                    async { zero.send_from(to, 5, &b).await.unwrap() },
                    async { zero.send_body(to, 5, None, &mut c).await.unwrap() },
                    async { zero.send(to, 5, "fourth".into()).await.unwrap() },
                    async { zero.send(to, 6, "other tag".into()).await.unwrap() },
                )
            };
            let receives = async {
                for _ in 0..4 {
                    let received = world.ranks[to].recv(0, 5, 1 << 20).await.unwrap();
                    at_end.push(received.1);
                }
            };
            tokio::join!(sends, receives);
            let expected = [body(1, first), b, body(3, second), b"fourth".to_vec()];
            assert!(at_end == expected, "{first}, {second} to {to}");
            world.ranks[to].recv(0, 6, 100).await.unwrap();
        }
    }
}

/// Whatever becomes of those before it, a send has its turn.
#[tokio::test]
async fn sends_behind_one_that_ends_have_their_turn() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let never = || Wrong {
        length: 10,
        chunk: Poll::Pending,
    };
    let mut silent = [never(), never(), never()];
    let [first, second, third] = &mut silent;
    let mut first = Box::pin(zero.send_body(1, 5, None, first));
    assert!(at_most(1, first.as_mut()).await.is_none());
    let mut behind = Box::pin(zero.send(1, 5, "dropped".into()));
    assert!(at_most(3, behind.as_mut()).await.is_none());
    let sent = {
        let zero = zero.clone();
        start(async move { zero.send(1, 5, "sent".into()).await }).await
    };
    let mut second = Box::pin(zero.send_body(1, 5, None, second));
    assert!(at_most(3, second.as_mut()).await.is_none());
    let mut third = Box::pin(zero.send_body(1, 6, None, third));
    assert!(at_most(3, third.as_mut()).await.is_none());
    drop(behind);
    settle().await;
    assert_eq!(one.try_probe(0, Tag::Any).unwrap(), None);
    drop(first);
    assert_eq!(one.recv(0, Tag::Any, 10).await.unwrap().1, b"sent");
    sent.await.unwrap().unwrap();
    drop((second, third));
    zero.send(1, 5, "last".into()).await.unwrap();
    assert_eq!(one.recv(0, Tag::Any, 10).await.unwrap().1, b"last");
    assert_eq!(zero.stats().operations, 0);
}

#[tokio::test]
async fn a_reader_pauses_when_its_receive_is_dropped() {
    let world = World::new(2).await;
    let one = &world.ranks[1];
    let (message, mut from) = (body(4, 300_000), slow(body(4, 300_000)));
    let send = {
        let zero = world.ranks[0].clone();
        start(async move {
            zero.send_body(1, 1, None, &mut from).await.unwrap();
            from
        })
        .await
    };
    let mut into = Slow::default();
    for _ in 0..2 {
        let dropped = at_most(8, one.recv_body(0, 1, &mut into)).await;
        assert!(dropped.is_none() && !into.bytes.is_empty());
        settle().await;
    }
    one.recv_body(0, 1, &mut into).await.unwrap();
    assert!(into.bytes == message);
    assert_eq!(send.await.unwrap().paused, 3);
}

/// A body of 100,000 bytes, or as many as said, that reads what it should not, or nothing.
struct Wrong {
    length: usize,
    chunk: Poll<Result<usize, &'static str>>,
}

impl BodyReader for Wrong {
    fn length(&self) -> usize {
        self.length
    }

    fn begin(&mut self) {}

    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        limit: usize,
    ) -> Poll<Result<Bytes, MessageFailure>> {
        self.chunk.map(|chunk| match chunk {
            Ok(length) => Ok(vec![0; length.min(limit + 1)].into()),
            Err(reason) => Err(MessageFailure::Device {
                reason: reason.into(),
            }),
        })
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_not_sent() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    for length in [10, 100_000] {
        for (chunk, says) in [
            (Ok(0), "0 bytes were read instead of 1"),
            (Ok(usize::MAX), "bytes were read instead of 1"),
            (Err("it is broken"), "it is broken"),
        ] {
            let mut wrong = Wrong {
                length,
                chunk: Poll::Ready(chunk),
            };
            let sender = async {
                let failed = zero.send_body(1, 1, None, &mut wrong).await;
                zero.send(1, 2, "next".into()).await.unwrap();
                failed
            };
            let (failed, received) = tokio::join!(sender, one.recv(0, Tag::Any, 200_000));
            assert_eq!(received.unwrap().1, b"next");
            let error = failed.unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("rank 1, tag 1") && text.contains(says),
                "{text}"
            );
            let Error::Message(error) = error else {
                panic!("{text}")
            };
            assert!(matches!(error.cause, MessageFailure::Device { .. }));
        }
    }
    let odd = &mut slow(vec![0; 7]);
    let odd = zero.send_body(1, 1, Some(DataType::F32), odd).await;
    assert!(matches!(odd, Err(Error::InvalidArgument { .. })), "{odd:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_a_time_out() {
    let limit = Duration::from_secs(2);
    let world = World::with_limits(2, TimeLimits::default().with_operation(limit)).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    for length in [10, 100_000] {
        let mut silent = Wrong {
            length,
            chunk: Poll::Pending,
        };
        let (sent, received) = tokio::join!(
            zero.send_body(1, 1, None, &mut silent),
            one.recv(0, 1, 1 << 20)
        );
        assert!(received.is_err());
        let Err(Error::Message(error)) = sent else {
            panic!("{sent:?}")
        };
        let waiting_for = WaitingFor::Device;
        assert_eq!(error.cause, MessageFailure::TimedOut { limit, waiting_for });
    }
}

/// Says something else each time: its capacity, its type, whether it waits, by which of them `fickle` is.
struct Fickle {
    bytes: Vec<u8>,
    fickle: usize,
    calls: AtomicUsize,
}

impl Fickle {
    fn is_first(&self, which: usize) -> bool {
        which != self.fickle || self.calls.fetch_add(1, Ordering::Relaxed) == 0
    }
}

impl BodyWriter for Fickle {
    fn expected(&self) -> Option<DataType> {
        let wrong = self.fickle == 1 && self.is_first(1);
        Some(if wrong { DataType::U8 } else { DataType::U16 })
    }

    fn capacity(&self) -> usize {
        let short = self.fickle == 0 && self.is_first(0);
        if short { 10 } else { 1 << 20 }
    }

    fn begin(&mut self, _length: usize) -> Result<(), MessageFailure> {
        self.bytes.clear();
        Ok(())
    }

    fn put(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    fn waits(&self) -> bool {
        self.fickle == 2 && self.is_first(2)
    }
}

/// What it says first counts, so that nobody waits for what does not come.
#[tokio::test(start_paused = true)]
async fn a_writer_that_contradicts_itself_is_an_error_or_gets_everything_once() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    for length in [1000, 200_000] {
        for fickle in 0..3 {
            let message = vec![7_u16; length / 2];
            let (bytes, calls) = (Vec::new(), AtomicUsize::new(0));
            let mut into = Fickle {
                bytes,
                fickle,
                calls,
            };
            let (sent, received) = tokio::join!(
                zero.send_elements(1, 5, &message),
                one.recv_body(0, 5, &mut into)
            );
            sent.unwrap();
            match (fickle, received) {
                (0, Err(Error::Message(error))) => {
                    assert!(matches!(
                        error.cause,
                        MessageFailure::Truncated { capacity: 10, .. }
                    ));
                }
                (1, Err(Error::Message(error))) => {
                    assert!(matches!(error.cause, MessageFailure::WrongType { .. }));
                }
                (2, Ok(_)) => assert_eq!(into.bytes.len(), length),
                (_, other) => panic!("{fickle}, {length}: {other:?}"),
            }
        }
    }
}

/// It waits for room, and cannot begin again.
struct Once(Vec<u8>);

impl BodyWriter for Once {
    fn capacity(&self) -> usize {
        usize::MAX
    }

    fn begin(&mut self, _length: usize) -> Result<(), MessageFailure> {
        assert!(self.0.is_empty(), "it begins once");
        Ok(())
    }

    fn put(&mut self, chunk: &[u8]) {
        self.0.extend_from_slice(chunk);
    }

    fn may_begin_again(&self) -> bool {
        self.0.is_empty()
    }

    fn waits(&self) -> bool {
        true
    }

    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<Result<usize, MessageFailure>> {
        match self.0.len() {
            0 => Poll::Ready(Ok(10)),
            _ => Poll::Pending,
        }
    }
}

/// The same for a message of another rank and of this one.
#[tokio::test]
async fn a_message_withdrawn_halfway_does_not_begin_again_where_it_cannot() {
    let world = World::new(2).await;
    for from in [0, 1] {
        let (sender, receiver) = (&world.ranks[from], &world.ranks[1]);
        if from == 1 {
            // Beside it, a message to the own rank waits until it is taken.
            let first = vec![0; OWN_LIMIT].into();
            sender.send(1, 9, first).await.unwrap();
        }
        let message = vec![1; 100_000];
        let mut send = Box::pin(sender.send_from(1, 5, &message[..]));
        assert!(at_most(1, send.as_mut()).await.is_none());
        let receive = {
            let receiver = receiver.clone();
            start(async move { receiver.recv_body(from, 5, &mut Once(Vec::new())).await }).await
        };
        at_most(20, send.as_mut()).await;
        drop(send);
        let Err(Error::Message(error)) = receive.await.unwrap() else {
            panic!("it is withdrawn")
        };
        let (source, tag) = (from, 5);
        assert_eq!(error.cause, MessageFailure::Withdrawn { source, tag });
    }
}

/// How many are being read or written, and how many at most.
#[derive(Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Counted {
    slow: Slow,
    under_way: Arc<Count>,
    counts: bool,
}

impl Counted {
    fn new(bytes: Vec<u8>, under_way: &Arc<Count>) -> Self {
        Counted {
            slow: slow(bytes),
            under_way: Arc::clone(under_way),
            counts: false,
        }
    }

    fn enter(&mut self) {
        if !std::mem::replace(&mut self.counts, true) {
            let now = self.under_way.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.under_way.most.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn leave(&mut self) {
        if std::mem::replace(&mut self.counts, false) {
            self.under_way.now.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl BodyReader for Counted {
    fn length(&self) -> usize {
        self.slow.length()
    }

    fn begin(&mut self) {
        BodyReader::begin(&mut self.slow);
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<Result<Bytes, MessageFailure>> {
        self.enter();
        let read = self.slow.poll_read(cx, limit);
        if self.slow.at == self.slow.bytes.len() {
            self.leave();
        }
        read
    }
}

impl BodyWriter for Counted {
    fn capacity(&self) -> usize {
        self.slow.capacity()
    }

    fn begin(&mut self, length: usize) -> Result<(), MessageFailure> {
        BodyWriter::begin(&mut self.slow, length)
    }

    fn put(&mut self, chunk: &[u8]) {
        self.slow.put(chunk);
    }

    fn waits(&self) -> bool {
        true
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, MessageFailure>> {
        self.enter();
        self.slow.poll_room(cx)
    }

    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), MessageFailure>> {
        let done = self.slow.poll_done(cx);
        if done.is_ready() {
            self.leave();
        }
        done
    }
}

/// Each may hold something scarce, such as a staging slot.
#[tokio::test]
async fn only_some_small_bodies_are_read_or_written_at_a_time() {
    const MANY: usize = 200;
    let world = World::new(2).await;
    let (sending, receiving): (Arc<Count>, Arc<Count>) = Default::default();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..MANY {
        let (zero, mut from) = (
            world.ranks[0].clone(),
            Counted::new(body(number, 50_000), &sending),
        );
        tasks.spawn(async move { zero.send_body(1, number as u64, None, &mut from).await });
    }
    // Those that found no credit wait for a receive.
    while world.ranks[1].stats().unexpected_bytes < CREDIT / 2 {
        settle().await;
    }
    let mut receives = tokio::task::JoinSet::new();
    for number in 0..MANY {
        let (one, mut into) = (world.ranks[1].clone(), Counted::new(Vec::new(), &receiving));
        receives.spawn(async move {
            let received = one.recv_body(0, number as u64, &mut into).await;
            received.unwrap();
            assert!(into.slow.bytes == body(number, 50_000), "{number}");
        });
    }
    for sent in tasks.join_all().await {
        sent.unwrap();
    }
    receives.join_all().await;
    // Bodies that come piece by piece are bounded by themselves.
    for (count, most) in [
        (sending, MAX_BODIES),
        (receiving, MAX_BODIES + MAX_TRANSFERS),
    ] {
        let found = count.most.load(Ordering::Relaxed);
        assert!(found > 1 && found <= most, "{found} of {most} at a time");
    }
}
