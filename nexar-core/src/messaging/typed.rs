//! Messages of elements.

use super::{
    Messenger, Received, Source, Tag,
    outgoing::Content,
    sink::{IntoParts, IntoVec},
};
use crate::{Element, Result, transport::Transport};

/// Elements. The receives take messages of their own element type only. Errors name the operations `send`,
/// `send_parts`, `recv`, `recv_parts`, `recv_vec` and `send_recv`.
impl<T: Transport> Messenger<T> {
    /// Sends elements, whose type travels with them. Otherwise like [`send_from`](Self::send_from).
    pub async fn send_elements<E: Element>(
        &self,
        to: usize,
        tag: u64,
        elements: &[E],
    ) -> Result<()> {
        let body = Content::Slice(E::as_bytes(elements));
        self.send_any("send", to, tag, Some(E::DATA_TYPE), body)
            .await
    }

    /// Sends slices as one message; the receiver sees no borders. A list of the slices is allocated, of 16 bytes for
    /// each. Otherwise like [`send_elements`](Self::send_elements).
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send), and [`Error::InvalidArgument`](crate::Error::InvalidArgument) where the slices
    /// together are longer than a `usize` can say, since a slice may occur more than once.
    pub async fn send_element_parts<E: Element>(
        &self,
        to: usize,
        tag: u64,
        parts: &[&[E]],
    ) -> Result<()> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| E::as_bytes(part)).collect();
        let body = Content::Parts(&parts);
        self.send_any("send_parts", to, tag, Some(E::DATA_TYPE), body)
            .await
    }

    /// Receives elements into `buffer`, whose first ones they become: as many as
    /// [`count`](Received::count) says.
    ///
    /// # Errors
    ///
    /// Those of [`recv_into`](Self::recv_into), and [`Error::Message`](crate::Error::Message) with
    /// [`MessageFailure::WrongType`](super::MessageFailure::WrongType) where the message has another element type or
    /// none; it is then discarded.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed. The buffer may have been overwritten in part, then and after an error;
    /// its elements are valid whatever the sender sent: of a `bool`, anything but 0 is stored as `true`.
    pub async fn recv_elements<E: Element>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: &mut [E],
    ) -> Result<Received> {
        let mut buffers = [buffer];
        let mut sink = IntoParts::new(&mut buffers);
        self.recv_any("recv", source.into(), tag.into(), &mut sink)
            .await
    }

    /// Receives elements into several slices, which are filled one after the other. Otherwise like
    /// [`recv_elements`](Self::recv_elements).
    pub async fn recv_element_parts<E: Element>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffers: &mut [&mut [E]],
    ) -> Result<Received> {
        let mut sink = IntoParts::new(buffers);
        self.recv_any("recv_parts", source.into(), tag.into(), &mut sink)
            .await
    }

    /// Receives a message of at most `max` elements into a vector of its length.
    ///
    /// # Errors
    ///
    /// Those of [`recv_elements`](Self::recv_elements), and
    /// [`MessageFailure::OutOfMemory`](super::MessageFailure::OutOfMemory).
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed.
    pub async fn recv_vec<E: Element>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        max: usize,
    ) -> Result<(Received, Vec<E>)> {
        let mut sink = IntoVec::new(max);
        let received = self
            .recv_any("recv_vec", source.into(), tag.into(), &mut sink)
            .await?;
        Ok((received, sink.into_elements()))
    }

    /// Sends and receives at the same time, so that ranks which exchange messages of any length do not wait for each
    /// other in a circle. Either rank may be this one.
    ///
    /// Where one of the two fails, the other one is carried out all the same.
    ///
    /// # Errors
    ///
    /// Those of [`send_elements`](Self::send_elements) and [`recv_elements`](Self::recv_elements); where both fail, that
    /// of the send.
    ///
    /// # Cancel safety
    ///
    /// Not safe: if it is dropped, either half may have been carried out, and a message that was received is then lost.
    pub async fn send_recv<S: Element, R: Element>(
        &self,
        (to, send_tag): (usize, u64),
        elements: &[S],
        (source, recv_tag): (impl Into<Source>, impl Into<Tag>),
        buffer: &mut [R],
    ) -> Result<Received> {
        let outgoing = (to, send_tag, Some(S::DATA_TYPE));
        let body = Content::Slice(S::as_bytes(elements));
        let incoming = (source.into(), recv_tag.into());
        let mut buffers = [buffer];
        let mut sink = IntoParts::new(&mut buffers);
        self.exchange(outgoing, body, incoming, &mut sink).await
    }
}
