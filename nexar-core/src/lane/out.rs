//! The sending side of a lane: what waits to be written.

use crate::transport::{SendStream, StreamError};
use bytes::{Bytes, BytesMut};
use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

/// Bodies up to this length are copied behind their header, so that many small messages make few writes.
const MERGED: usize = 4096;

/// Frames in the order in which they go out. Whole frames are queued, so that an operation that is dropped
/// never leaves half a frame.
#[derive(Debug, Default)]
pub(crate) struct OutQueue {
    parts: VecDeque<Bytes>,
    /// Small frames behind all parts.
    tail: BytesMut,
    bytes: usize,
}

impl OutQueue {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a frame.
    pub(crate) fn push(&mut self, header: &[u8], body: Bytes) {
        self.push_named(header, &[], body);
    }

    /// Queues a frame with a name between its header and its body.
    pub(crate) fn push_named(&mut self, header: &[u8], name: &[u8], body: Bytes) {
        self.bytes += name.len();
        self.bytes += header.len() + body.len();
        self.tail.extend_from_slice(header);
        self.tail.extend_from_slice(name);
        if body.len() <= MERGED {
            self.tail.extend_from_slice(&body);
        } else {
            self.close_tail();
            self.parts.push_back(body);
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push_back(self.tail.split().freeze());
        }
    }

    /// Writes until everything is written or the stream takes no more.
    pub(crate) fn write<S: SendStream>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Result<(), StreamError> {
        self.close_tail();
        while let Some(part) = self.parts.front_mut() {
            let before = part.len();
            match stream.poll_write(cx, part) {
                Poll::Ready(result) => result?,
                Poll::Pending => break,
            }
            self.bytes -= before - part.len();
            if part.is_empty() {
                self.parts.pop_front();
            }
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        *self = OutQueue::default();
    }
}

/// The stream of a lane to a member.
pub(crate) enum OutLane<S> {
    /// Nothing was ever sent.
    Closed,
    /// Being opened by a background task.
    Opening(tokio::task::AbortHandle),
    Open(S),
    /// Broken, or ended.
    Over,
}
