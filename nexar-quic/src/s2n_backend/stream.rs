//! Streams.

use super::{
    connection::Inner,
    credit::{Credit, Windows},
    error::code,
};
use bytes::{Buf, Bytes};
use nexar_core::transport::{RecvStream, SendStream, StreamError};
use s2n_quic::stream;
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

/// Most bytes that a stream takes in one piece: it may exceed its buffer by this much.
const MAX_CHUNK: usize = 256 << 10;

/// The sending half of an s2n-quic stream.
pub struct S2nQuicSendStream {
    stream: stream::SendStream,
    inner: Arc<Inner>,
    credit: Arc<Credit>,
    /// Bytes that were taken.
    taken: u64,
    /// What [`acked`](SendStream::acked) reports once the stream has come to an end.
    end: Option<Result<(), StreamError>>,
    finished: bool,
}

impl S2nQuicSendStream {
    /// The peer takes `window` bytes of it at first.
    pub(super) fn new(
        stream: stream::SendStream,
        inner: Arc<Inner>,
        window: fn(&Windows) -> u64,
    ) -> Self {
        S2nQuicSendStream {
            credit: inner.link().open_credit(stream.id(), window),
            stream,
            inner,
            taken: 0,
            end: None,
            finished: false,
        }
    }

    /// Nothing more will be sent.
    fn ended(&mut self, end: StreamError) -> StreamError {
        self.credit.discard(&self.inner.link().backlog);
        self.end = Some(Err(end.clone()));
        end
    }

    fn failed(&mut self, error: stream::Error) -> StreamError {
        let end = match error {
            stream::Error::StreamReset { error, .. } => StreamError::Stopped { code: *error },
            other => self.inner.stream_error(other),
        };
        self.ended(end)
    }
}

impl Drop for S2nQuicSendStream {
    fn drop(&mut self) {
        self.inner.link().close_credit(self.stream.id());
    }
}

impl fmt::Debug for S2nQuicSendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S2nQuicSendStream({})", self.stream.id())
    }
}

impl SendStream for S2nQuicSendStream {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>> {
        if let Some(end) = &self.end {
            return Poll::Ready(Err(end.clone().err().unwrap_or(StreamError::Closed)));
        }
        if self.finished {
            return Poll::Ready(Err(StreamError::Closed));
        }
        if data.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = self.inner.link().end() {
            let end = end.clone();
            return Poll::Ready(Err(self.ended(end.into())));
        }
        let Poll::Ready(room) = self.credit.poll_room(cx, self.taken) else {
            // The end wakes who is registered by then.
            if let Some(end) = self.inner.link().end() {
                let end = end.clone();
                return Poll::Ready(Err(self.ended(end.into())));
            }
            // The peer may have stopped the stream instead of reading it.
            return match self.stream.poll_send_ready(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(self.failed(error))),
                _ => Poll::Pending,
            };
        };
        ready!(self.inner.link().backlog.poll_room(cx));
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let len = data.len().min(MAX_CHUNK).min(room);
        let mut chunk = data.slice(..len);
        let backlog = &self.inner.link().backlog;
        self.credit.take(len as u64, backlog);
        match self.stream.poll_send(&mut chunk, cx) {
            Poll::Ready(Ok(())) => {
                data.advance(len);
                self.taken += len as u64;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.failed(error))),
            Poll::Pending => {
                self.credit.give_back(len as u64, backlog);
                Poll::Pending
            }
        }
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        if self.finished || self.end.is_some() {
            return Err(StreamError::Closed);
        }
        self.finished = true;
        if let Err(error) = self.stream.finish() {
            // Reported by the wait for the acknowledgement; s2n-quic says it once.
            self.failed(error);
        }
        Ok(())
    }

    fn poll_acked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        if let Some(end) = &self.end {
            return Poll::Ready(end.clone());
        }
        let end = match self.finished {
            true => ready!(self.stream.poll_close(cx)),
            false => ready!(self.stream.poll_flush(cx)),
        };
        Poll::Ready(match end {
            Ok(()) => {
                if self.finished {
                    self.end = Some(Ok(()));
                }
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        })
    }

    fn reset(&mut self, reset: u64) {
        if self.end.is_none() && self.stream.reset(code(reset)).is_ok() {
            self.ended(StreamError::Closed);
        }
    }

    /// s2n-quic serves all streams in turn.
    fn set_priority(&mut self, _priority: i32) {}
}

/// The receiving half of an s2n-quic stream.
pub struct S2nQuicRecvStream {
    half: Arc<Mutex<RecvHalf>>,
    inner: Arc<Inner>,
    id: u64,
}

impl S2nQuicRecvStream {
    pub(super) fn new(half: RecvHalf, inner: Arc<Inner>) -> Self {
        let id = half.stream.id();
        let half = Arc::new(Mutex::new(half));
        inner.register(id, &half);
        S2nQuicRecvStream { half, inner, id }
    }

    fn half(&self) -> MutexGuard<'_, RecvHalf> {
        self.half.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for S2nQuicRecvStream {
    fn drop(&mut self) {
        self.inner.unregister(self.id);
    }
}

impl fmt::Debug for S2nQuicRecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S2nQuicRecvStream({})", self.id)
    }
}

impl RecvStream for S2nQuicRecvStream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        let mut half = self.half();
        match ready!(half.poll_read(cx, max.max(1))) {
            Ok(bytes) => Poll::Ready(Ok(bytes)),
            Err(error) => {
                let error = match error {
                    RecvError::Reset(code) => StreamError::Reset { code },
                    RecvError::Stopped => StreamError::Closed,
                    RecvError::Other(error) => self.inner.stream_error(error),
                };
                Poll::Ready(Err(error))
            }
        }
    }

    fn stop(&mut self, stop: u64) {
        self.half().stop(code(stop));
    }
}

/// What a reader and the event loop share: when the peer closes the connection, the loop takes over what
/// has arrived.
pub(super) struct RecvHalf {
    stream: stream::ReceiveStream,
    /// Read and not yet asked for: at most one chunk, or what was there when the connection ended.
    ready: VecDeque<Bytes>,
    /// What comes after that, once the stream has come to an end.
    end: Option<Result<(), RecvError>>,
    reader: Option<Waker>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum RecvError {
    Reset(u64),
    Stopped,
    Other(stream::Error),
}

impl From<stream::Error> for RecvError {
    fn from(error: stream::Error) -> Self {
        match error {
            stream::Error::StreamReset { error, .. } => RecvError::Reset(*error),
            other => RecvError::Other(other),
        }
    }
}

impl RecvHalf {
    pub(super) fn new(stream: stream::ReceiveStream) -> Self {
        RecvHalf {
            stream,
            ready: VecDeque::new(),
            end: None,
            reader: None,
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, RecvError>> {
        if self.ready.is_empty() && self.poll_fill(cx).is_pending() {
            if !self
                .reader
                .as_ref()
                .is_some_and(|reader| reader.will_wake(cx.waker()))
            {
                self.reader = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        let Some(mut first) = self.ready.pop_front() else {
            let end = self.end.unwrap_or(Ok(()));
            return Poll::Ready(end.map(|()| None));
        };
        if first.len() > max {
            let rest = first.split_off(max);
            self.ready.push_front(rest);
        }
        Poll::Ready(Ok(Some(first)))
    }

    /// Ready when there is another chunk, or the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.end.is_none() {
            match ready!(self.stream.poll_receive(cx)) {
                Ok(Some(bytes)) => self.ready.push_back(bytes),
                Ok(None) => self.end = Some(Ok(())),
                Err(error) => self.end = Some(Err(error.into())),
            }
        }
        Poll::Ready(())
    }

    fn stop(&mut self, code: s2n_quic::application::Error) {
        if self.end.is_none() && self.stream.stop_sending(code).is_ok() {
            // If the peer has reset the stream, s2n-quic keeps it until that was read.
            let mut cx = Context::from_waker(Waker::noop());
            let _ = self.stream.poll_receive(&mut cx);
            self.ready.clear();
            self.end = Some(Err(RecvError::Stopped));
        }
    }

    /// Takes everything that has arrived in order. The connection is about to be closed.
    pub(super) fn salvage(&mut self) -> Option<Waker> {
        let mut cx = Context::from_waker(Waker::noop());
        while self.end.is_none() && self.poll_fill(&mut cx).is_ready() {}
        self.reader.take()
    }
}

impl Drop for RecvHalf {
    fn drop(&mut self) {
        self.stop(code(0));
    }
}
