//! Messages from one rank to another.

use super::Communicator;
use nexar_core::{
    Element, Result,
    messaging::{Received, Source, Tag},
    transport::Transport,
};
use nexar_device::DeviceAdapter;

#[doc = include_str!("../../docs/links.txt")]
#[doc = include_str!("../../docs/messages.md")]
impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    /// Sends `data` to a rank, which may be this one.
    ///
    /// Cost: the latency of the network, and for more than 64 KiB one round trip more; data is copied once, a chunk at
    /// a time.
    ///
    /// # Errors
    ///
    /// [`MessageFailure::TimedOut`](crate::MessageFailure::TimedOut) when nobody received it within the time limit for
    /// operations; [`MessageFailure::OutOfMemory`](crate::MessageFailure::OutOfMemory) for a message to the own rank
    /// that cannot be copied.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the message is received as a whole or not at all.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// let ranks = nexar_collectives::Communicator::local(2).await?;
    /// let mut loss = [0.0_f32; 3];
    /// ranks[0].send(&[0.5_f32, 0.25], 1, 7).await?;
    /// let received = ranks[1].recv(&mut loss, 0, 7).await?;
    /// assert_eq!((received.count, loss), (2, [0.5, 0.25, 0.0]));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send<E: Element>(&self, data: &[E], to: usize, tag: u64) -> Result<()> {
        self.shared.messages.send_elements(to, tag, data).await
    }

    /// Sends slices, one after the other, as one message: rows of a matrix, say, without packing them. The receiver
    /// sees no borders. The same slice may occur several times, and the message may be longer than memory.
    ///
    /// Cost: that of [`send`](Self::send), and 16 bytes of memory for each slice.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send); [`Error::InvalidArgument`](crate::Error::InvalidArgument) where the slices
    /// together have more bytes than a `usize` can say.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the message is received as a whole or not at all.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// let ranks = nexar_collectives::Communicator::local(2).await?;
    /// let matrix = [1_i32, 2, 3, 4, 5, 6, 7, 8, 9];
    /// let column: Vec<&[i32]> = matrix.chunks(3).map(|row| &row[1..2]).collect();
    /// ranks[0].send_parts(&column, 1, 0).await?;
    /// assert_eq!(ranks[1].recv_vec::<i32>(0, 0, 10).await?.1, [2, 5, 8]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_parts<E: Element>(&self, parts: &[&[E]], to: usize, tag: u64) -> Result<()> {
        self.shared
            .messages
            .send_element_parts(to, tag, parts)
            .await
    }

    /// Receives a message into `buffer`, whose first elements it becomes: as many as
    /// [`count`](Received::count) says. The rest stays as it is. The source is a rank or [`Source::Any`], the tag a
    /// number or [`Tag::Any`].
    ///
    /// Cost: data is copied once, from the network's memory into the buffer.
    ///
    /// # Errors
    ///
    /// - [`MessageFailure::Truncated`](crate::MessageFailure::Truncated): the message is longer than the buffer. The
    ///   error says how long, [`probe`](Self::probe) does so beforehand.
    /// - [`MessageFailure::WrongType`](crate::MessageFailure::WrongType): it has another element type.
    /// - [`MessageFailure::TimedOut`](crate::MessageFailure::TimedOut): none came within the time limit for
    ///   operations.
    ///
    /// After the first two the message is gone, its send has succeeded, and the next message of the tag is intact.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed: another receive gets it as a whole. The buffer may have been
    /// overwritten in part, then and after an error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// use nexar_collectives::{Communicator, Source, Tag};
    /// let ranks = Communicator::local(3).await?;
    /// ranks[2].send(&[true], 0, 5).await?;
    /// let mut done = [false];
    /// let received = ranks[0].recv(&mut done, Source::Any, Tag::Any).await?;
    /// assert_eq!((received.source, received.tag, done), (2, 5, [true]));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recv<E: Element>(
        &self,
        buffer: &mut [E],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Received> {
        self.shared
            .messages
            .recv_elements(source, tag, buffer)
            .await
    }

    /// Receives a message into several slices, which are filled one after the other, whatever its sender had. Otherwise
    /// like [`recv`](Self::recv).
    ///
    /// # Errors
    ///
    /// Those of [`recv`](Self::recv).
    ///
    /// # Cancel safety
    ///
    /// That of [`recv`](Self::recv).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// let ranks = nexar_collectives::Communicator::local(2).await?;
    /// ranks[0].send(&[1_u8, 2, 3], 1, 0).await?;
    /// let (mut first, mut rest) = ([0_u8], [0_u8; 2]);
    /// ranks[1].recv_parts(&mut [&mut first, &mut rest], 0, 0).await?;
    /// assert_eq!((first, rest), ([1], [2, 3]));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recv_parts<E: Element>(
        &self,
        buffers: &mut [&mut [E]],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Received> {
        self.shared
            .messages
            .recv_element_parts(source, tag, buffers)
            .await
    }

    /// Receives a message of at most `max` elements into a vector of its length. Memory for it is allocated when its
    /// announcement has come: `max` bounds what another rank can make this one allocate.
    ///
    /// # Errors
    ///
    /// Those of [`recv`](Self::recv), with `max` for the length of the buffer; and
    /// [`MessageFailure::OutOfMemory`](crate::MessageFailure::OutOfMemory), after which the message can be received
    /// again.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// let ranks = nexar_collectives::Communicator::local(2).await?;
    /// ranks[0].send(&[3_u64, 1, 4], 1, 0).await?;
    /// let (received, digits) = ranks[1].recv_vec::<u64>(0, 0, 1 << 20).await?;
    /// assert_eq!((received.source, digits), (0, vec![3, 1, 4]));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recv_vec<E: Element>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        max: usize,
    ) -> Result<(Received, Vec<E>)> {
        self.shared.messages.recv_vec(source, tag, max).await
    }

    /// Sends `data` and receives into `buffer` at the same time, so that ranks which exchange messages of any length
    /// never wait for each other in a circle. The two may have different ranks, tags, lengths and element types.
    ///
    /// Cost: that of the longer of the two.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send) and [`recv`](Self::recv). Where one half fails, the other is carried out all the
    /// same; where both do, the error is that of the send.
    ///
    /// # Cancel safety
    ///
    /// Not safe: if it is dropped, either half may have been carried out, and a message that had been received by then
    /// is lost. The communicator goes on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// // Each rank hands a large block to the next one and gets that of the previous one.
    /// let ranks = nexar_collectives::Communicator::local(3).await?;
    /// let tasks = ranks.into_iter().map(|comm| tokio::spawn(async move {
    ///     let (rank, size) = (comm.rank(), comm.world_size());
    ///     let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    ///     let own = vec![rank as f32; 100_000];
    ///     let mut theirs = vec![0.0; 100_000];
    ///     comm.send_recv(&own, next, 0, &mut theirs, previous, 0).await?;
    ///     assert_eq!(theirs, vec![previous as f32; 100_000]);
    ///     comm.shutdown().await
    /// }));
    /// # let tasks: Vec<_> = tasks.collect();
    /// # for task in tasks { task.await.unwrap()?; }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_recv<S: Element, R: Element>(
        &self,
        data: &[S],
        to: usize,
        send_tag: u64,
        buffer: &mut [R],
        source: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Received> {
        let (outgoing, incoming) = ((to, send_tag), (source, recv_tag));
        self.shared
            .messages
            .send_recv(outgoing, data, incoming, buffer)
            .await
    }

    /// Waits for a message that a receive with the same source and tag would get, and says what it is: source, tag,
    /// element type and number of elements. The message stays where it is; another task may receive it first.
    ///
    /// # Errors
    ///
    /// [`MessageFailure::TimedOut`](crate::MessageFailure::TimedOut): none came within the time limit for operations.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// use nexar_collectives::{Communicator, DataType, Source};
    /// let ranks = Communicator::local(2).await?;
    /// ranks[0].send(&[1.0_f64, 2.0], 1, 0).await?;
    /// let found = ranks[1].probe(Source::Any, 0).await?;
    /// assert_eq!(found.dtype, Some(DataType::F64));
    /// let mut buffer = vec![0.0_f64; found.count];
    /// ranks[1].recv(&mut buffer, found.source, found.tag).await?;
    /// # assert_eq!(buffer, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Received> {
        self.shared.messages.probe(source, tag).await
    }

    /// The message that a receive with the same source and tag would get now, if there is one. Otherwise like
    /// [`probe`](Self::probe).
    ///
    /// # Errors
    ///
    /// Only those of the communicator and of arguments.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// use nexar_collectives::{Communicator, Source, Tag};
    /// let ranks = Communicator::local(1).await?;
    /// assert_eq!(ranks[0].try_probe(Source::Any, Tag::Any)?, None);
    /// ranks[0].send(&[1_u8], 0, 9).await?;
    /// let found = ranks[0].try_probe(0, Tag::Any)?;
    /// assert_eq!(found.map(|message| message.tag), Some(9));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_probe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Received>> {
        self.shared.messages.try_probe(source, tag)
    }
}
