//! Where the bodies of messages come from and go to, piece by piece.

use super::error::{Cause, MessageFailure, WaitingFor};
use crate::DataType;
use bytes::Bytes;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
};

/// The body of a message to be sent, read when it is needed: from the memory of a device, say. See
/// [`Messenger::send_body`](super::Messenger::send_body).
pub trait BodyReader: Send {
    /// Its length in bytes, which does not change.
    fn length(&self) -> usize;

    /// It is read from its first byte on: for the first time, or again, since a receive that had begun was dropped.
    fn begin(&mut self);

    /// The next bytes, from 1 to `limit`. Called until all were read.
    ///
    /// # Errors
    ///
    /// Fails the send, usually a [`MessageFailure::Device`].
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<Result<Bytes, MessageFailure>>;

    /// Nothing is read until it [begins](Self::begin) again, which may be never: the receive has everything, or was
    /// dropped. What was taken for reading ahead is to be given up.
    fn pause(&mut self) {}

    /// Goes on with what can be done ahead, while what was read last is on its way.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// Where the body of a message goes that is received, such as the memory of a device. See
/// [`Messenger::recv_body`](super::Messenger::recv_body).
///
/// Errors of its methods fail the receive; the message can then be received again.
pub trait BodyWriter: Send {
    /// The element type that it takes; `None` for whatever comes.
    fn expected(&self) -> Option<DataType> {
        None
    }

    /// The longest message that it takes, in bytes.
    fn capacity(&self) -> usize;

    /// A message of this length begins, which is at most the capacity and a whole number of elements. It may begin
    /// more than once: what came of the earlier one is void.
    ///
    /// # Errors
    ///
    /// Usually a [`MessageFailure::OutOfMemory`].
    fn begin(&mut self, length: usize) -> Result<(), MessageFailure>;

    /// The next bytes of the message, which may end within an element.
    fn put(&mut self, chunk: &[u8]);

    /// The whole message, instead of pieces; never called if [`waits`](Self::waits).
    fn put_whole(&mut self, message: Bytes) {
        self.put(&message);
    }

    /// Whether what it was given can still be taken back.
    fn may_begin_again(&self) -> bool {
        true
    }

    /// Whether [`poll_room`](Self::poll_room) and [`poll_done`](Self::poll_done) have a meaning.
    fn waits(&self) -> bool {
        false
    }

    /// How many bytes the next [`put`](Self::put) may have, at least one.
    ///
    /// # Errors
    ///
    /// Usually a [`MessageFailure::Device`].
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, MessageFailure>> {
        let _ = cx;
        Poll::Ready(Ok(usize::MAX))
    }

    /// Ready when everything that was put is where it belongs.
    ///
    /// # Errors
    ///
    /// Usually a [`MessageFailure::Device`].
    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), MessageFailure>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }
}

/// Whether an operation waits for the memory of its body.
#[derive(Default)]
pub(super) struct MemoryWait(AtomicBool);

impl MemoryWait {
    /// Notes what came of a request to the memory.
    pub(super) fn note<R>(&self, poll: Poll<R>) -> Poll<R> {
        self.0.store(poll.is_pending(), Ordering::Relaxed);
        poll
    }

    /// The cause, with what was waited for.
    pub(super) fn explain(&self, cause: Cause) -> Cause {
        match cause {
            Cause::TimedOut(WaitingFor::Body) if self.0.load(Ordering::Relaxed) => {
                Cause::TimedOut(WaitingFor::Device)
            }
            cause => cause,
        }
    }
}
