//! Receiving.

use super::{
    BYTES_IN_A_ROW, MAX_READ, Received,
    body::{BodyWriter, MemoryWait},
    error::{Cause, MessageFailure},
    inbox::{Body, Entry, Pattern},
    operation::{Kind, Receiving, TransferPhase},
    state::{Core, Inner},
};
use crate::{
    DataType, Failure,
    membership::RecvOf,
    transport::{RecvStream, StreamError, Transport},
};
use bytes::Bytes;
use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
};

/// A receive in progress. Dropping it gives back what it was given.
struct ReceiveOperation<'a, T: Transport> {
    inner: &'a Inner<T>,
    id: u64,
    memory: MemoryWait,
}

impl<T: Transport> Drop for ReceiveOperation<'_, T> {
    fn drop(&mut self) {
        self.inner.with(|core| core.drop_receive(self.id));
    }
}

/// The message that a receive was given.
struct Match {
    received: Received,
    arrival: u64,
    /// Its body is still at the sender.
    remote: bool,
}

pub(super) async fn receive<T: Transport>(
    inner: &Inner<T>,
    pattern: Pattern,
    sink: &mut dyn BodyWriter,
) -> Result<Received, Cause> {
    // What it says first counts: it is foreign code, and may say something else the next time.
    let (capacity, expected, waits) = (sink.capacity(), sink.expected(), sink.waits());
    let id = inner.begin(Kind::Receive(Receiving {
        pattern,
        capacity,
        expected,
        posted: false,
        matched: None,
    }));
    let operation = ReceiveOperation {
        inner,
        id,
        memory: MemoryWait::default(),
    };
    loop {
        let found = poll_fn(|cx| inner.poll(id, cx, |core| core.matched(id))).await?;
        if let Err(refused) = fits(&found.received, capacity, expected) {
            if operation.finish(&found).is_none() {
                continue;
            }
            return Err(Cause::Message(refused));
        }
        let Received {
            source,
            tag,
            length,
            ..
        } = found.received;
        sink.begin(length).map_err(Cause::Message)?;
        if !found.remote && !waits {
            let Some(bytes) = operation.finish(&found) else {
                continue;
            };
            sink.put_whole(bytes);
            return Ok(found.received);
        }
        let complete = match found.remote {
            true if length == 0 => Ok(true),
            true => operation.transfer(&found, sink).await,
            false => operation.copy(&found, sink).await,
        };
        let complete = complete.map_err(|cause| operation.memory.explain(cause))?;
        if complete {
            // Even if it was withdrawn at the last moment.
            operation.finish(&found);
            return Ok(found.received);
        }
        if !sink.may_begin_again() {
            return Err(Cause::Message(MessageFailure::Withdrawn { source, tag }));
        }
    }
}

/// Whether a receive can have a message.
fn fits(
    message: &Received,
    capacity: usize,
    expected: Option<DataType>,
) -> Result<(), MessageFailure> {
    let Received {
        source,
        tag,
        dtype,
        length,
        ..
    } = *message;
    match expected {
        Some(expected) if dtype != Some(expected) => Err(MessageFailure::WrongType {
            source,
            tag,
            sent: dtype,
            expected,
        }),
        _ if length > capacity => Err(MessageFailure::Truncated {
            source,
            tag,
            dtype,
            length,
            capacity,
        }),
        _ => Ok(()),
    }
}

/// Waits for a message without taking it.
pub(super) async fn probe<T: Transport>(
    inner: &Inner<T>,
    pattern: Pattern,
) -> Result<Received, Cause> {
    struct ProbeOperation<'a, T: Transport>(&'a Inner<T>, u64);
    impl<T: Transport> Drop for ProbeOperation<'_, T> {
        fn drop(&mut self) {
            self.0.with(|core| core.end(self.1));
        }
    }
    let id = inner.begin(Kind::Probe(pattern));
    let _operation = ProbeOperation(inner, id);
    let look = |core: &mut Core<'_, T>| match core.look(&pattern) {
        Some(found) => Poll::Ready(Ok(found)),
        None => match core.unreachable(pattern.source) {
            Err(cause) => Poll::Ready(Err(cause)),
            Ok(()) => Poll::Pending,
        },
    };
    poll_fn(|cx| inner.poll(id, cx, look)).await
}

impl<T: Transport> ReceiveOperation<'_, T> {
    /// Takes the message for good: its body, if it was here. None if it was withdrawn in the meantime.
    fn finish(&self, found: &Match) -> Option<Bytes> {
        let finish = |core: &mut Core<'_, T>| core.finish_receive(self.id, found.arrival);
        Some(match self.inner.with(finish)?.body {
            Body::Eager { bytes, .. } | Body::Own { bytes, .. } => bytes,
            Body::Announced { .. } => Bytes::new(),
        })
    }

    /// Copies a body that is here; false if its sender, this rank, has withdrawn the message.
    async fn copy(&self, found: &Match, sink: &mut dyn BodyWriter) -> Result<bool, Cause> {
        let kept = |core: &mut Core<'_, T>| core.kept(self.id, found.arrival);
        let Some(mut bytes) = self.inner.with(kept) else {
            return Ok(false);
        };
        let write = async {
            let _turn = self.inner.bodies.acquire().await;
            while !bytes.is_empty() {
                let room = poll_fn(|cx| self.memory.note(sink.poll_room(cx)))
                    .await?
                    .max(1);
                sink.put(&bytes.split_to(room.min(bytes.len())));
            }
            poll_fn(|cx| self.memory.note(sink.poll_done(cx))).await?;
            Ok(true)
        };
        let withdrawn = |core: &mut Core<'_, T>| {
            let withdrawn = core.withdrawn(self.id, found.arrival, &mut None);
            withdrawn.map_ok(|()| false)
        };
        self.inner.unless(self.id, withdrawn, write).await
    }

    /// Reads the body; false if its sender has withdrawn the message.
    async fn transfer(&self, found: &Match, sink: &mut dyn BodyWriter) -> Result<bool, Cause> {
        let mut lane = None;
        let mut left = found.received.length;
        poll_fn(|cx| {
            let withdrawn =
                |core: &mut Core<'_, T>| core.withdrawn(self.id, found.arrival, &mut lane);
            if self.inner.poll(self.id, cx, withdrawn)?.is_ready() {
                return Poll::Ready(Ok(false));
            }
            if left > 0 {
                ready!(self.read(cx, found.received.source, &mut lane, &mut left, sink))?;
            }
            ready!(self.memory.note(sink.poll_done(cx))).map_err(Cause::Message)?;
            Poll::Ready(Ok(true))
        })
        .await
    }

    /// Reads as much as has come; ready once that is everything.
    fn read(
        &self,
        cx: &mut Context<'_>,
        source: usize,
        lane: &mut Option<RecvOf<T>>,
        left: &mut usize,
        sink: &mut dyn BodyWriter,
    ) -> Poll<Result<(), Cause>> {
        let Some(stream) = lane else {
            return Poll::Pending;
        };
        let begin = *left;
        while begin - *left < BYTES_IN_A_ROW {
            let room = self.memory.note(sink.poll_room(cx));
            let room = ready!(room).map_err(Cause::Message)?.max(1);
            match ready!(stream.poll_read(cx, MAX_READ.min(*left).min(room))) {
                Ok(Some(chunk)) => {
                    sink.put(&chunk);
                    *left = left.saturating_sub(chunk.len());
                    if *left == 0 {
                        // The end of the stream has usually come, too; taking it spares the peer a word.
                        let _ = stream.poll_read(cx, 1);
                        return Poll::Ready(Ok(()));
                    }
                }
                Ok(None) => {
                    let failure = Failure::Protocol {
                        rank: source,
                        what: "the lane of a large message ended before its end".into(),
                    };
                    let failure = self.inner.group.fail(failure);
                    return Poll::Ready(Err(Cause::Failed(failure)));
                }
                // The message lane says that the message is withdrawn, or the control stream
                // that the sender is gone.
                Err(error) => {
                    if matches!(error, StreamError::Connection(_)) {
                        self.inner.with(|core| core.broke(source, &error));
                    }
                    *lane = None;
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<T: Transport> Core<'_, T> {
    /// The message of a receive, which waits for one if it has none.
    fn matched(&mut self, id: u64) -> Poll<Result<Match, Cause>> {
        let waits = |r: &Receiving<_>| !r.posted && r.matched.is_none();
        if self.receiving(id).is_some_and(|r| waits(r)) {
            self.post(id);
        }
        let Some(receiving) = self.receiving(id) else {
            return Poll::Pending;
        };
        let source = receiving.pattern.source;
        match &receiving.matched {
            Some(matched) => {
                let entry = &matched.entry;
                Poll::Ready(Ok(Match {
                    received: entry.received(),
                    arrival: entry.arrival,
                    remote: matches!(entry.body, Body::Announced { .. }),
                }))
            }
            None => match self.unreachable(source) {
                Err(cause) => Poll::Ready(Err(cause)),
                Ok(()) => Poll::Pending,
            },
        }
    }

    /// The body of the message of that arrival, which is here, if the receive has it still.
    fn kept(&mut self, id: u64, arrival: u64) -> Option<Bytes> {
        let matched = self.receiving(id)?.matched.as_ref()?;
        match &matched.entry.body {
            Body::Eager { bytes, .. } | Body::Own { bytes, .. }
                if matched.entry.arrival == arrival =>
            {
                Some(bytes.clone())
            }
            _ => None,
        }
    }

    /// Ready once a receive does not have the message of that arrival any more. Moves the lane of the body
    /// into `lane` when it has come.
    fn withdrawn(
        &mut self,
        id: u64,
        arrival: u64,
        lane: &mut Option<RecvOf<T>>,
    ) -> Poll<Result<(), Cause>> {
        let matched = self.receiving(id).and_then(|r| r.matched.as_mut());
        match matched.filter(|matched| matched.entry.arrival == arrival) {
            None => Poll::Ready(Ok(())),
            Some(matched) => {
                if let TransferPhase::Asked { lane: came, .. } = &mut matched.transfer
                    && came.is_some()
                {
                    *lane = came.take();
                }
                Poll::Pending
            }
        }
    }

    /// The first message that matches and that no receive has.
    pub(super) fn look(&self, pattern: &Pattern) -> Option<Received> {
        self.state.inbox.peek(pattern).map(Entry::received)
    }
}
