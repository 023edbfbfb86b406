//! Streams.

use super::{credit::Credit, error};
use bytes::Bytes;
use nexar_core::transport::{RecvStream, SendStream, StreamError};
use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

type Stopped =
    Pin<Box<dyn Future<Output = Result<Option<quinn::VarInt>, quinn::StoppedError>> + Send + Sync>>;

/// The sending half of a quinn stream.
pub struct QuinnSendStream {
    stream: quinn::SendStream,
    /// The wait for the acknowledgement, once somebody has asked.
    acked: Option<Stopped>,
    reset: bool,
}

impl QuinnSendStream {
    pub(super) fn new(stream: quinn::SendStream) -> Self {
        QuinnSendStream {
            stream,
            acked: None,
            reset: false,
        }
    }
}

impl fmt::Debug for QuinnSendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuinnSendStream({})", self.stream.id())
    }
}

impl SendStream for QuinnSendStream {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let written = pin!(self.stream.write_chunks(std::slice::from_mut(data))).poll(cx);
        written.map(|result| result.map(drop).map_err(error::write))
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.stream.finish().map_err(|_| StreamError::Closed)
    }

    fn poll_acked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        if self.reset {
            return Poll::Ready(Err(StreamError::Closed));
        }
        let stream = &self.stream;
        let acked = self.acked.get_or_insert_with(|| Box::pin(stream.stopped()));
        let result = ready!(acked.as_mut().poll(cx));
        self.acked = None;
        Poll::Ready(match result {
            Ok(None) => Ok(()),
            Ok(Some(code)) => Err(StreamError::Stopped {
                code: code.into_inner(),
            }),
            Err(cause) => Err(error::stopped(cause)),
        })
    }

    fn reset(&mut self, code: u64) {
        // Fails only if the stream is already closed, which leaves nothing to abandon.
        self.reset |= self.stream.reset(error::code(code)).is_ok();
    }

    fn set_priority(&mut self, priority: i32) {
        // Fails only if the stream is already closed, which leaves nothing to order.
        let _ = self.stream.set_priority(priority);
    }
}

/// The receiving half of a quinn stream.
pub struct QuinnRecvStream {
    stream: quinn::RecvStream,
    credit: Arc<Credit>,
    /// What every further read reports, once the stream has come to an end.
    end: Option<Result<(), StreamError>>,
}

impl QuinnRecvStream {
    pub(super) fn new(stream: quinn::RecvStream, credit: Arc<Credit>) -> Self {
        QuinnRecvStream {
            stream,
            credit,
            end: None,
        }
    }
}

impl fmt::Debug for QuinnRecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuinnRecvStream({})", self.stream.id())
    }
}

impl RecvStream for QuinnRecvStream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        if let Some(end) = &self.end {
            return Poll::Ready(end.clone().map(|()| None));
        }
        let Poll::Ready(chunk) = pin!(self.stream.read_chunk(max.max(1), true)).poll(cx) else {
            self.credit.reader_waits();
            return Poll::Pending;
        };
        Poll::Ready(match chunk {
            Ok(Some(chunk)) => {
                self.credit.freed();
                Ok(Some(chunk.bytes))
            }
            Ok(None) => {
                self.end = Some(Ok(()));
                Ok(None)
            }
            Err(cause) => {
                let cause = error::read(cause);
                self.end = Some(Err(cause.clone()));
                Err(cause)
            }
        })
    }

    fn stop(&mut self, code: u64) {
        // Fails only if the stream is already closed, which leaves nothing to stop.
        if self.stream.stop(error::code(code)).is_ok() {
            self.credit.freed();
            self.end = Some(Err(StreamError::Closed));
        }
    }
}

impl Drop for QuinnRecvStream {
    fn drop(&mut self) {
        // Unread data is discarded with the stream.
        self.credit.freed();
    }
}
