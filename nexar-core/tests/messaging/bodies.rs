//! Bodies that are read and written piece by piece, by something that takes its time.

use crate::world::{World, at_most, body, settle, start};
use bytes::Bytes;
use nexar_core::{
    DataType, Error, TimeLimits,
    messaging::{BodyReader, BodyWriter, MessageFailure, Source, Tag, WaitingFor},
};
use std::{
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
    let (at, ready) = (usize::MAX, false);
    Slow { bytes, at, ready }
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
        let waiting_for = WaitingFor::Body;
        assert_eq!(error.cause, MessageFailure::TimedOut { limit, waiting_for });
    }
}
