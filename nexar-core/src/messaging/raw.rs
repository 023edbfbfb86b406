//! Messages of bytes.

use super::{
    BodyReader, BodyWriter, Messenger, Received, Source, Tag,
    outgoing::Content,
    sink::{IntoBytes, IntoParts, IntoVisitor},
};
use crate::{DataType, Result, transport::Transport};
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

    /// Sends a message that is read when it is needed, of elements of `dtype` or of bare bytes. Errors call the operation
    /// `send`.
    ///
    /// A message that goes out at once, and one to the own rank, is read into memory as a whole first; others of its tag
    /// that are sent to the same rank meanwhile wait behind it, those of other tags do not. Any other is read chunk by chunk, of 256 KiB at most, once a receive takes it, and
    /// again if that receive is dropped before it has everything. Otherwise like [`send`](Self::send).
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send), those of `body`, and [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the length is not a whole number
    /// of elements.
    pub async fn send_body(
        &self,
        to: usize,
        tag: u64,
        dtype: Option<DataType>,
        body: &mut dyn BodyReader,
    ) -> Result<()> {
        self.send_any("send", to, tag, dtype, Content::Reader(body))
            .await
    }

    /// Receives a message to wherever `body` puts it. Errors call the operation `recv`. Otherwise like
    /// [`recv_into`](Self::recv_into).
    ///
    /// # Errors
    ///
    /// Those of [`recv_elements`](Self::recv_elements), and those of `body`.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed. `body` may have been given a part.
    pub async fn recv_body(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        body: &mut dyn BodyWriter,
    ) -> Result<Received> {
        self.recv_any("recv", source.into(), tag.into(), body).await
    }

    /// Sends and receives at the same time: [`send_recv`](Self::send_recv) with
    /// [`send_body`](Self::send_body) and [`recv_body`](Self::recv_body).
    ///
    /// # Errors
    ///
    /// Those of the two; where both fail, that of the send.
    ///
    /// # Cancel safety
    ///
    /// Not safe: if it is dropped, either half may have been carried out, and a message that was received is then lost.
    pub async fn send_recv_body(
        &self,
        (to, send_tag, dtype): (usize, u64, Option<DataType>),
        body: &mut dyn BodyReader,
        (source, recv_tag): (impl Into<Source>, impl Into<Tag>),
        into: &mut dyn BodyWriter,
    ) -> Result<Received> {
        let (outgoing, incoming) = ((to, send_tag, dtype), (source.into(), recv_tag.into()));
        self.exchange(outgoing, Content::Reader(body), incoming, into)
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
