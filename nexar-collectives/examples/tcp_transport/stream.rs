//! The two halves of a stream, as the application holds them.
//!
//! A half is changed by the application's calls and by the peer's frames, which the connection's task
//! hands to it; what it has to say goes out as frames. It keeps no wakers: the channel of the frames
//! knows who waits.

use crate::{
    connection::{Held, STREAM_WINDOW},
    frame::{Frame, MAX_BODY, OVERHEAD, StreamId, What},
};
use bytes::Bytes;
use nexar_core::transport::{RecvStream, SendStream, StreamError};
use std::{
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use tokio::sync::mpsc;

/// What both kinds of halves have.
#[derive(Debug)]
struct Half {
    held: Arc<Held>,
    id: StreamId,
    /// What the peer says. It ends with the connection.
    events: mpsc::Receiver<Frame>,
}

impl Half {
    fn new(held: &Arc<Held>, id: StreamId, events: mpsc::Receiver<Frame>) -> Self {
        let held = Arc::clone(held);
        Half { held, id, events }
    }

    fn post(&self, what: What, value: u64, body: Bytes) {
        self.held.post(Frame::new(what, self.id, value, body));
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Open,
    Finished,
    Acked,
    Reset,
    Stopped(u64),
    /// The connection is over.
    Cut,
}

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct TcpSendStream {
    half: Half,
    credit: u64,
    phase: Phase,
}

impl TcpSendStream {
    pub(crate) fn new(held: &Arc<Held>, id: StreamId, events: mpsc::Receiver<Frame>) -> Self {
        TcpSendStream {
            half: Half::new(held, id, events),
            credit: STREAM_WINDOW,
            phase: Phase::Open,
        }
    }

    /// Takes in what the peer has said, and has the task woken when it says more. Then: why nothing more
    /// can be written or acknowledged, if so.
    fn catch_up(&mut self, cx: &mut Context<'_>) -> Result<(), StreamError> {
        while let Poll::Ready(event) = self.half.events.poll_recv(cx) {
            let live = matches!(self.phase, Phase::Open | Phase::Finished);
            let Some(frame) = event else {
                if live {
                    self.phase = Phase::Cut;
                }
                break;
            };
            match frame.what {
                What::Credit => {
                    self.credit = STREAM_WINDOW.min(self.credit.saturating_add(frame.value));
                }
                What::Acked if self.phase == Phase::Finished => self.phase = Phase::Acked,
                What::Stop if live => self.phase = Phase::Stopped(frame.value),
                _ => {}
            }
        }
        match self.phase {
            Phase::Open | Phase::Finished | Phase::Acked => Ok(()),
            Phase::Reset => Err(StreamError::Closed),
            Phase::Stopped(code) => Err(StreamError::Stopped { code }),
            Phase::Cut => Err(self.half.held.error().into()),
        }
    }
}

impl SendStream for TcpSendStream {
    /// Takes a whole frame's worth of `data` or waits.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>> {
        self.catch_up(cx)?;
        let len = data.len().min(MAX_BODY);
        let cost = len as u64 + OVERHEAD;
        if self.phase != Phase::Open {
            Poll::Ready(Err(StreamError::Closed))
        } else if len == 0 {
            Poll::Ready(Ok(()))
        } else if self.credit < cost || !self.half.held.spend(self.half.id, cost) {
            Poll::Pending
        } else {
            self.credit -= cost;
            self.half.post(What::Data, 0, data.split_to(len));
            Poll::Ready(Ok(()))
        }
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.catch_up(&mut Context::from_waker(Waker::noop()))?;
        if self.phase != Phase::Open {
            return Err(StreamError::Closed);
        }
        self.phase = Phase::Finished;
        self.half.post(What::Finish, 0, Bytes::new());
        Ok(())
    }

    fn poll_acked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        self.catch_up(cx)?;
        match self.phase {
            Phase::Acked => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    fn reset(&mut self, code: u64) {
        if matches!(self.phase, Phase::Open | Phase::Finished) {
            self.phase = Phase::Reset;
            self.half.post(What::Reset, code, Bytes::new());
        }
    }

    /// Has no effect.
    fn set_priority(&mut self, _priority: i32) {}
}

impl Drop for TcpSendStream {
    fn drop(&mut self) {
        // A stream that was finished, reset or stopped before needs nothing more.
        let _ = self.finish();
    }
}

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct TcpRecvStream {
    half: Half,
    /// What is left of the frame that is being read, and what the whole frame has cost.
    chunk: Bytes,
    cost: u64,
    /// How the stream has ended on this side.
    end: Option<Result<(), StreamError>>,
}

impl TcpRecvStream {
    pub(crate) fn new(held: &Arc<Held>, id: StreamId, events: mpsc::Receiver<Frame>) -> Self {
        TcpRecvStream {
            half: Half::new(held, id, events),
            chunk: Bytes::new(),
            cost: 0,
            end: None,
        }
    }

    fn end(&mut self, end: Result<(), StreamError>, code: u64) {
        if self.end.is_none() {
            self.end = Some(end);
            self.chunk.clear();
            self.half.events.close();
            while self.half.events.try_recv().is_ok() {}
            self.half.post(What::Stop, code, Bytes::new());
        }
    }
}

impl RecvStream for TcpRecvStream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        while self.end.is_none() && self.chunk.is_empty() {
            let Some(frame) = ready!(self.half.events.poll_recv(cx)) else {
                let error = self.half.held.error();
                self.end(Err(error.into()), 0);
                break;
            };
            match (frame.what, frame.value) {
                (What::Data, _) => (self.cost, self.chunk) = (frame.cost(), frame.body),
                (What::Reset, code) => self.end(Err(StreamError::Reset { code }), 0),
                _ => self.end(Ok(()), 0),
            }
        }
        if let Some(end) = &self.end {
            return Poll::Ready(end.clone().map(|()| None));
        }
        let bytes = self.chunk.split_to(max.clamp(1, self.chunk.len()));
        if self.chunk.is_empty() {
            self.half.post(What::Credit, self.cost, Bytes::new());
        }
        Poll::Ready(Ok(Some(bytes)))
    }

    fn stop(&mut self, code: u64) {
        self.end(Err(StreamError::Closed), code);
    }
}

impl Drop for TcpRecvStream {
    fn drop(&mut self) {
        self.stop(0);
    }
}
