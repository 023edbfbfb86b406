//! Messages of bytes.

use super::{
    Messenger, Received, Source, Tag,
    send::Content,
    sink::{IntoBytes, IntoParts, IntoVisitor},
};
use crate::{Result, transport::Transport};
use bytes::Bytes;

/// Bytes. The receives take messages of any element type, as the bytes that they are.
impl<T: Transport> Messenger<T> {
    /// Sends a message to a rank of the communicator, which may be this one. No bytes are copied but of
    /// small messages. See [the module](super) for when it is done.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rank that does not exist,
    /// [`Error::Message`](crate::Error::Message) when the time limit has passed or there is no memory for a copy to
    /// the own rank, [`Error::Operation`](crate::Error::Operation) when the communicator has failed or the rank has
    /// left.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the message is received as a whole or not at all.
    pub async fn send(&self, to: usize, tag: u64, message: Bytes) -> Result<()> {
        self.send_any("send", to, tag, None, Content::Owned(message))
            .await
    }

    /// Sends a borrowed message. A large one is copied a chunk at a time. Otherwise like
    /// [`send`](Self::send).
    pub async fn send_from(&self, to: usize, tag: u64, message: &[u8]) -> Result<()> {
        self.send_any("send_from", to, tag, None, Content::Slice(message))
            .await
    }

    /// Sends borrowed pieces as one message; the receiver sees no borders. Otherwise like
    /// [`send_from`](Self::send_from), and [`Error::InvalidArgument`](crate::Error::InvalidArgument) where the pieces
    /// together are longer than a `usize` can say, since a piece may occur more than once.
    pub async fn send_parts(&self, to: usize, tag: u64, parts: &[&[u8]]) -> Result<()> {
        self.send_any("send_parts", to, tag, None, Content::Parts(parts))
            .await
    }

    /// Receives a message into `buffer`, whose first bytes it becomes.
    ///
    /// # Errors
    ///
    /// [`Error::Message`](crate::Error::Message) with
    /// [`MessageFailure::Truncated`](super::MessageFailure::Truncated) where the buffer is shorter than the
    /// message, which is then discarded; with [`MessageFailure::TimedOut`](super::MessageFailure::TimedOut) when
    /// the time limit has passed. [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rank that does
    /// not exist, [`Error::Operation`](crate::Error::Operation) when the communicator has failed or the source has
    /// left. The buffer may then have been overwritten in part.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed. The buffer may have been overwritten in part; nothing is
    /// written to it afterwards.
    pub async fn recv_into(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: &mut [u8],
    ) -> Result<Received> {
        let mut buffers = [buffer];
        let mut sink = IntoParts::of_any_type(&mut buffers);
        self.recv_any("recv_into", source.into(), tag.into(), &mut sink)
            .await
    }

    /// Receives a message into several buffers, which are filled one after the other. Otherwise like
    /// [`recv_into`](Self::recv_into).
    pub async fn recv_parts(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffers: &mut [&mut [u8]],
    ) -> Result<Received> {
        let mut sink = IntoParts::of_any_type(buffers);
        self.recv_any("recv_parts", source.into(), tag.into(), &mut sink)
            .await
    }

    /// Receives a message of at most `max` bytes into a vector of its length.
    ///
    /// # Errors
    ///
    /// Those of [`recv_into`](Self::recv_into), and
    /// [`MessageFailure::OutOfMemory`](super::MessageFailure::OutOfMemory).
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed.
    pub async fn recv(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        max: usize,
    ) -> Result<(Received, Vec<u8>)> {
        let bytes = Vec::new();
        let mut sink = IntoBytes { max, bytes };
        let received = self
            .recv_any("recv", source.into(), tag.into(), &mut sink)
            .await?;
        Ok((received, sink.bytes))
    }

    /// Receives a message piece by piece, without a buffer in between: `visitor` is called with each piece
    /// as it arrives, in order. The pieces have any length.
    ///
    /// # Errors
    ///
    /// Those of [`recv_into`](Self::recv_into) but for truncation, and
    /// [`MessageFailure::Withdrawn`](super::MessageFailure::Withdrawn) where the sender gave up in the middle.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed, though the visitor may have seen a part.
    pub async fn recv_with(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        visitor: impl FnMut(&[u8]) + Send,
    ) -> Result<Received> {
        let mut sink = IntoVisitor::new(visitor);
        self.recv_any("recv_with", source.into(), tag.into(), &mut sink)
            .await
    }
}
