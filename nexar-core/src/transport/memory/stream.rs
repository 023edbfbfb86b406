//! The two halves of a stream.

use super::{
    connection::Held,
    state::{Core, MAX_IN_FLIGHT, Message, StreamId},
};
use crate::transport::{RecvStream, SendStream, StreamError};
use bytes::{Bytes, BytesMut};
use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// Neighbouring chunks up to this size together are merged, so that the memory for many small writes
/// stays in proportion to the window.
const MERGED: usize = 4096;

/// What the sending side knows of a stream.
#[derive(Debug)]
pub(super) struct SendHalf {
    credit: usize,
    finished: bool,
    acked: bool,
    reset: bool,
    stopped: Option<u64>,
    /// The handle is gone; the entry goes with the acknowledgement.
    orphaned: bool,
    /// Listed among the side's blocked streams.
    pub(super) blocked: bool,
    pub(super) waker: Option<Waker>,
    /// Arrival of the last message, which the next one must not overtake.
    pub(super) last_due: Option<Instant>,
}

impl SendHalf {
    pub(super) fn new(credit: usize) -> Self {
        SendHalf {
            credit,
            finished: false,
            acked: false,
            reset: false,
            stopped: None,
            orphaned: false,
            blocked: false,
            waker: None,
            last_due: None,
        }
    }

    /// Nothing that could still happen to it matters.
    fn settled(&self) -> bool {
        self.acked || self.reset || self.stopped.is_some()
    }
}

/// What the receiving side knows of a stream.
#[derive(Debug, Default)]
pub(super) struct RecvHalf {
    chunks: VecDeque<Bytes>,
    /// The sender has finished, and everything has arrived.
    complete: bool,
    reset: Option<u64>,
    stopped: bool,
    /// Read to its end, reset or stopped.
    done: bool,
    consumed: usize,
    credit_in_flight: bool,
    pub(super) waker: Option<Waker>,
}

impl RecvHalf {
    /// Forgets what has arrived; returns how many bytes that was.
    pub(super) fn discard(&mut self) -> usize {
        self.complete = false;
        std::mem::take(&mut self.chunks)
            .iter()
            .map(Bytes::len)
            .sum()
    }

    fn push(&mut self, bytes: Bytes) {
        match self.chunks.back_mut() {
            Some(last) if last.len() + bytes.len() <= MERGED => {
                let mut merged = std::mem::take(last)
                    .try_into_mut()
                    .unwrap_or_else(|shared| {
                        let mut copy = BytesMut::with_capacity(MERGED);
                        copy.extend_from_slice(&shared);
                        copy
                    });
                merged.extend_from_slice(&bytes);
                *last = merged.freeze();
            }
            _ => self.chunks.push_back(bytes),
        }
    }
}

/// Remembers who is waiting. Whoever waited before has handed the stream over and need not be woken.
pub(super) fn remember(slot: &mut Option<Waker>, cx: &Context<'_>, stale: &mut Vec<Waker>) {
    if !slot
        .as_ref()
        .is_some_and(|waker| waker.will_wake(cx.waker()))
    {
        stale.extend(slot.replace(cx.waker().clone()));
    }
}

/// What the application of one side does.
impl Core<'_> {
    fn poll_write(
        &mut self,
        side: usize,
        id: StreamId,
        cx: &Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>> {
        let room = self.state.sides[1 - side].wire.len() < MAX_IN_FLIGHT;
        let stale = &mut self.state.stale;
        let state = &mut self.state.sides[side];
        let Some(half) = state.sending.get_mut(&id) else {
            return Poll::Ready(Err(StreamError::Closed));
        };
        if half.finished || half.reset {
            return Poll::Ready(Err(StreamError::Closed));
        }
        if let Some(code) = half.stopped {
            return Poll::Ready(Err(StreamError::Stopped { code }));
        }
        if let Some(error) = &state.over {
            return Poll::Ready(Err(error.clone().into()));
        }
        if data.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let most = half.credit.min(state.send_credit);
        if most == 0 || !room {
            remember(&mut half.waker, cx, stale);
            if half.credit > 0 && !std::mem::replace(&mut half.blocked, true) {
                state.blocked.push(id);
            }
            return Poll::Pending;
        }
        let bytes = data.split_to(most.min(data.len()));
        half.credit -= bytes.len();
        state.send_credit -= bytes.len();
        self.count_write(side, bytes.len());
        self.post(side, Message::Data { id, bytes });
        Poll::Ready(Ok(()))
    }

    fn finish(&mut self, side: usize, id: StreamId) -> Result<(), StreamError> {
        let state = &mut self.state.sides[side];
        let half = state.sending.get_mut(&id).ok_or(StreamError::Closed)?;
        if half.finished || half.reset {
            return Err(StreamError::Closed);
        }
        if let Some(code) = half.stopped {
            return Err(StreamError::Stopped { code });
        }
        if let Some(error) = &state.over {
            return Err(error.clone().into());
        }
        half.finished = true;
        self.post(side, Message::Finish { id });
        Ok(())
    }

    fn poll_acked(
        &mut self,
        side: usize,
        id: StreamId,
        cx: &Context<'_>,
    ) -> Poll<Result<(), StreamError>> {
        let stale = &mut self.state.stale;
        let state = &mut self.state.sides[side];
        let Some(half) = state.sending.get_mut(&id).filter(|half| !half.reset) else {
            return Poll::Ready(Err(StreamError::Closed));
        };
        if half.acked {
            return Poll::Ready(Ok(()));
        }
        if let Some(code) = half.stopped {
            return Poll::Ready(Err(StreamError::Stopped { code }));
        }
        if let Some(error) = &state.over {
            return Poll::Ready(Err(error.clone().into()));
        }
        remember(&mut half.waker, cx, stale);
        Poll::Pending
    }

    fn reset(&mut self, side: usize, id: StreamId, code: u64) {
        if let Some(half) = self.state.sides[side].sending.get_mut(&id)
            && !half.settled()
        {
            half.reset = true;
            self.post(side, Message::Reset { id, code });
            self.half_done(side, id);
        }
    }

    /// The handle of a sending half is gone.
    fn drop_send(&mut self, side: usize, id: StreamId) {
        // A stream that was finished, reset or stopped before needs nothing more.
        let _ = self.finish(side, id);
        let state = &mut self.state.sides[side];
        if let Some(half) = state.sending.get_mut(&id) {
            half.orphaned = true;
            let waker = half.waker.take();
            if std::mem::take(&mut half.blocked) {
                state.blocked.retain(|blocked| *blocked != id);
            }
            if half.settled() || state.over.is_some() {
                state.sending.remove(&id);
            }
            self.wake(waker);
        }
    }

    fn poll_read(
        &mut self,
        side: usize,
        id: StreamId,
        cx: &Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        let stale = &mut self.state.stale;
        let state = &mut self.state.sides[side];
        let Some(half) = state.receiving.get_mut(&id).filter(|half| !half.stopped) else {
            return Poll::Ready(Err(StreamError::Closed));
        };
        if let Some(code) = half.reset {
            return Poll::Ready(Err(StreamError::Reset { code }));
        }
        if let Some(front) = half.chunks.front_mut() {
            let bytes = front.split_to(front.len().min(max.max(1)));
            if front.is_empty() {
                half.chunks.pop_front();
            }
            self.give_stream_credit(side, id, bytes.len());
            self.give_credit(side, bytes.len());
            return Poll::Ready(Ok(Some(bytes)));
        }
        if half.complete {
            if !std::mem::replace(&mut half.done, true) {
                self.half_done(side, id);
            }
            return Poll::Ready(Ok(None));
        }
        if let Some(error) = &state.over {
            return Poll::Ready(Err(error.clone().into()));
        }
        remember(&mut half.waker, cx, stale);
        Poll::Pending
    }

    fn stop(&mut self, side: usize, id: StreamId, code: u64) {
        let Some(half) = self.state.sides[side].receiving.get_mut(&id) else {
            return;
        };
        if half.stopped || half.done {
            return;
        }
        half.stopped = true;
        half.done = true;
        let complete = half.complete;
        let discarded = half.discard();
        self.give_credit(side, discarded);
        if !complete {
            self.post(side, Message::Stop { id, code });
        }
        self.half_done(side, id);
    }

    /// The handle of a receiving half is gone.
    fn drop_recv(&mut self, side: usize, id: StreamId) {
        self.stop(side, id, 0);
        let half = self.state.sides[side].receiving.remove(&id);
        self.wake(half.and_then(|half| half.waker));
    }

    /// Tells the sender of `id` that it may send `bytes` more. At most one such message is in flight.
    fn give_stream_credit(&mut self, side: usize, id: StreamId, bytes: usize) {
        let Some(half) = self.state.sides[side].receiving.get_mut(&id) else {
            return;
        };
        half.consumed += bytes;
        if half.consumed > 0 && !half.credit_in_flight && !half.complete {
            half.credit_in_flight = true;
            let bytes = std::mem::take(&mut half.consumed);
            self.post(side, Message::StreamCredit { id, bytes });
        }
    }
}

/// What a side learns from its peer.
impl Core<'_> {
    pub(super) fn on_data(&mut self, side: usize, id: StreamId, bytes: Bytes) {
        self.make_visible(side, id);
        let state = &mut self.state.sides[side];
        state.received_bytes += bytes.len() as u64;
        match state.receiving.get_mut(&id) {
            Some(half) if !half.done => {
                half.push(bytes);
                let waker = half.waker.take();
                self.wake(waker);
            }
            _ => self.give_credit(side, bytes.len()),
        }
    }

    pub(super) fn on_finish(&mut self, side: usize, id: StreamId) {
        self.make_visible(side, id);
        if let Some(half) = self.state.sides[side].receiving.get_mut(&id)
            && !half.done
        {
            half.complete = true;
            let waker = half.waker.take();
            self.wake(waker);
        }
        self.post(side, Message::Acked { id });
    }

    pub(super) fn on_reset(&mut self, side: usize, id: StreamId, code: u64) {
        self.make_visible(side, id);
        let Some(half) = self.state.sides[side].receiving.get_mut(&id) else {
            return;
        };
        if half.done || half.complete {
            return;
        }
        half.done = true;
        half.reset = Some(code);
        let discarded = half.discard();
        let waker = half.waker.take();
        self.wake(waker);
        self.give_credit(side, discarded);
        self.half_done(side, id);
    }

    pub(super) fn on_stop(&mut self, side: usize, id: StreamId, code: u64) {
        self.settle(side, id, |half| half.stopped = Some(code));
    }

    pub(super) fn on_acked(&mut self, side: usize, id: StreamId) {
        self.settle(side, id, |half| half.acked = true);
    }

    fn settle(&mut self, side: usize, id: StreamId, how: impl FnOnce(&mut SendHalf)) {
        let state = &mut self.state.sides[side];
        let Some(half) = state.sending.get_mut(&id).filter(|half| !half.settled()) else {
            return;
        };
        how(half);
        let waker = half.waker.take();
        if half.orphaned {
            state.sending.remove(&id);
        }
        self.wake(waker);
        self.half_done(side, id);
    }

    pub(super) fn on_stream_credit(&mut self, side: usize, id: StreamId, bytes: usize) {
        if let Some(half) = self.state.sides[side].sending.get_mut(&id) {
            half.credit += bytes;
            let waker = half.waker.take();
            self.wake(waker);
        }
        if let Some(half) = self.state.sides[1 - side].receiving.get_mut(&id) {
            half.credit_in_flight = false;
            self.give_stream_credit(1 - side, id, 0);
        }
    }
}

/// The sending half of a stream on a [`MemoryNetwork`](super::MemoryNetwork).
pub struct MemorySendStream {
    held: Arc<Held>,
    id: StreamId,
}

impl MemorySendStream {
    pub(super) fn new(held: Arc<Held>, id: StreamId) -> Self {
        MemorySendStream { held, id }
    }
}

impl SendStream for MemorySendStream {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>> {
        let Held { shared, side } = &*self.held;
        shared.with(|core| core.poll_write(*side, self.id, cx, data))
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.held
            .shared
            .with(|core| core.finish(self.held.side, self.id))
    }

    fn poll_acked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        self.held
            .shared
            .with(|core| core.poll_acked(self.held.side, self.id, cx))
    }

    fn reset(&mut self, code: u64) {
        self.held
            .shared
            .with(|core| core.reset(self.held.side, self.id, code));
    }

    fn set_priority(&mut self, _priority: i32) {}
}

impl Drop for MemorySendStream {
    fn drop(&mut self) {
        self.held
            .shared
            .with(|core| core.drop_send(self.held.side, self.id));
    }
}

impl fmt::Debug for MemorySendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemorySendStream").field(&self.id).finish()
    }
}

/// The receiving half of a stream on a [`MemoryNetwork`](super::MemoryNetwork).
pub struct MemoryRecvStream {
    held: Arc<Held>,
    id: StreamId,
}

impl MemoryRecvStream {
    pub(super) fn new(held: Arc<Held>, id: StreamId) -> Self {
        MemoryRecvStream { held, id }
    }
}

impl RecvStream for MemoryRecvStream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        self.held
            .shared
            .with(|core| core.poll_read(self.held.side, self.id, cx, max))
    }

    fn stop(&mut self, code: u64) {
        self.held
            .shared
            .with(|core| core.stop(self.held.side, self.id, code));
    }
}

impl Drop for MemoryRecvStream {
    fn drop(&mut self) {
        self.held
            .shared
            .with(|core| core.drop_recv(self.held.side, self.id));
    }
}

impl fmt::Debug for MemoryRecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryRecvStream").field(&self.id).finish()
    }
}
