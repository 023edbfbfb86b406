//! Point-to-point messages between the ranks of a group: sends, receives by source and tag, probes.
//!
//! ```
//! use nexar_core::{DataType, messaging::{Messenger, Source, Tag}};
//! # use nexar_core::membership::{JoinRequest, SeedRoute, join};
//! # use nexar_core::transport::{PeerId, Transport, memory::MemoryNetwork};
//! # use std::sync::Arc;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let network = MemoryNetwork::new(1);
//! # let a = Arc::new(network.bind(None, PeerId::new("a"))?);
//! # let b = Arc::new(network.bind(None, PeerId::new("b"))?);
//! # let seed = a.local_addr();
//! # let request = |rank| JoinRequest::new("job", 2).with_rank(Some(rank));
//! # let dial = SeedRoute::Dial(vec![(b, seed)]);
//! # let (first, second) = (request(0), request(1));
//! # let (a, b) = tokio::try_join!(join(SeedRoute::Here(a), &first), join(dial, &second))?;
//! // On each rank, from its mesh:
//! let zero = Messenger::new(Arc::new(a.group(7, vec![0, 1])?));
//! let one = Messenger::new(Arc::new(b.group(7, vec![0, 1])?));
//!
//! zero.send(1, 42, "hello".into()).await?;
//! let (received, bytes) = one.recv(Source::Any, Tag::Any, 1 << 20).await?;
//! assert_eq!((received.source, received.tag, &bytes[..]), (0, 42, &b"hello"[..]));
//!
//! // A large message goes straight from one buffer into the other.
//! let (from, mut to) = (vec![5; 1 << 20], vec![0; 1 << 20]);
//! tokio::try_join!(zero.send_from(1, 43, &from), one.recv_into(0, 43, &mut to))?;
//! assert_eq!(from, to);
//!
//! // Elements bring their type.
//! zero.send_elements(1, 44, &[0.5_f32, -2.0]).await?;
//! assert_eq!(one.probe(0, 44).await?.dtype, Some(DataType::F32));
//! let (received, values) = one.recv_vec::<f32>(0, 44, 1000).await?;
//! assert_eq!((received.count, values), (2, vec![0.5, -2.0]));
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! A message is of bare bytes or of elements of one type, which travels with it. A receive of elements
//! ([`recv_elements`](Messenger::recv_elements) and the like) gets messages of its own type only: another one, bare
//! bytes included, is discarded with a [`MessageFailure::WrongType`]. The type takes no part in the matching, which
//! goes by source and tag alone. The receives of bytes take messages of any type, as they lie in memory
//! (little-endian); [`Received::dtype`] says which it was, and a probe says it beforehand. A message whose length
//! is not a whole number of its elements breaks the protocol. Of a `bool`, any byte but 0 is stored as `true`.
//!
//! # Bodies elsewhere
//!
//! [`send_body`](Messenger::send_body) and [`recv_body`](Messenger::recv_body) take bodies that are read and written piece by
//! piece, by a [`BodyReader`] and a [`BodyWriter`] that may take their time, such as those of the memory of a device.
//!
//! # Order
//!
//! Messages from one rank to another are received in the order in which their sends were first polled, as
//! far as the same receives match them. Of several receives that match a message, the one that was first
//! polled first gets it. A receive from any source gets what arrived first. Traffic of collectives is
//! never seen. A body elsewhere that has to be read before it can go out keeps its place among the messages of
//! its tag, while those of other tags may overtake it.
//!
//! # When a send is done
//!
//! A message of up to [`EAGER_LIMIT`] bytes goes out at once, and its send is done when it is handed to
//! the lane, whether or not a receive waits. A larger message waits at the sender until a receive asks for
//! it, and its send is done when that receive has all of it. The same holds for a small message when the
//! receiver already keeps [`CREDIT`] bytes of this sender's that no receive has taken. Small messages that
//! are sent in a row without a wait in between go out together, from the transport's background runtime or
//! with the next wait. Two ranks that both send a large message and only then receive wait for each other
//! until the time limit: receive at the same time, as with `tokio::join!`. A message to the own rank is
//! kept without a network, and its send is done at once while such messages hold no more than
//! [`OWN_LIMIT`] bytes, or there is no other.
//!
//! # Cancel safety
//!
//! A receive that is dropped before it is done consumes nothing: its message can be received again, in its
//! old place. Of a large message that had begun to come, the sender sends the body again. A send that is
//! dropped is either received as a whole or not at all, and never holds up others; only a
//! [`recv_with`](Messenger::recv_with) that has seen a part of it fails.
//!
//! # Bounds
//!
//! What a communicator holds for each of its peers is at most:
//!
//! - received and not yet taken: [`CREDIT`] bytes of small messages, which are 32,768 of them at most;
//!   [`MAX_ANNOUNCED`] announcements; about 200 bytes for each of either to keep it;
//! - one message of [`EAGER_LIMIT`] bytes of which a part has come;
//! - to be sent: [`SEND_QUEUE`] bytes and one small message more, and 28 bytes for each announcement
//!   withdrawn or answered. A send that finds this much, or [`MAX_ANNOUNCED`] messages announced and not
//!   taken, waits, and those after it to the same peer wait behind it.
//!
//! Bodies of large messages are never kept; at most [`MAX_TRANSFERS`] come from a peer at a time, and the
//! others stay at the sender. Of the bodies elsewhere that are read before they go out, or written when they are here,
//! [`MAX_BODIES`] are at a time in a communicator. Message lanes are always read, so that they do not use up the connection's
//! flow control; a message without a receive costs the others nothing but its announcement.
//!
//! # Failures
//!
//! When the communicator fails, all its sends and receives fail with that [`Failure`](crate::Failure) at
//! once. When a rank leaves, sends to it fail, and receives from it once everything that it sent before
//! has been received. Any other error concerns one operation only and is an [`Error::Message`].

mod body;
mod error;
mod flow;
mod inbox;
mod matching;
mod operation;
mod outgoing;
mod peer;
mod raw;
mod recv;
mod send;
mod sink;
mod state;
mod typed;

pub use body::{BodyReader, BodyWriter};
pub use error::{MessageError, MessageFailure, WaitingFor};
pub use inbox::{Source, Tag};

use crate::{
    DataType, Error, OperationError, Result,
    lane::OutLane,
    mesh::{Group, Listening},
    transport::{SendStream, Transport},
};
use error::Cause;
use inbox::Pattern;
use operation::Kind;
use outgoing::{Content, Outgoing};
use state::Inner;
use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::Poll,
};

/// Longest message, in bytes, that is sent without waiting for a receive.
pub const EAGER_LIMIT: usize = 64 << 10;

/// Bytes of small messages, [`MESSAGE_COST`] for each included, that a receiver keeps for each sender.
pub const CREDIT: usize = 4 << 20;

/// What a small message costs of the credit beyond its length: about what it takes to keep it.
pub const MESSAGE_COST: usize = 128;

/// Credit is given back when so much has been taken.
const RETURN_CREDIT: usize = CREDIT / 4;

/// Messages to one rank that are announced and not taken.
pub const MAX_ANNOUNCED: usize = 1 << 16;

/// Large messages that come from one rank at a time.
pub const MAX_TRANSFERS: usize = 16;

/// Messages that go out at once, and messages that are here, of which a [`BodyReader`] or [`BodyWriter`] reads or writes the
/// body at a time. Others wait for their turn.
pub const MAX_BODIES: usize = 16;

/// Bytes that wait to be written to one rank before sends wait.
pub const SEND_QUEUE: usize = 1 << 20;

/// Bytes of messages to the own rank that are kept while their sends are done.
pub const OWN_LIMIT: usize = 256 << 20;

/// After so many small messages without a wait in between, the next ones go out together.
const BURST: usize = 4;

/// Bytes of small messages that go out together.
const BATCH: usize = 16 << 10;

/// Longest chunk that is handed to a stream at once.
const MAX_CHUNK: usize = 256 << 10;

/// Longest chunk that is read at once.
const MAX_READ: usize = 256 << 10;

/// Reads from one stream in a row, so that the others get their turn.
const READS_IN_A_ROW: usize = 8;

/// Bytes of one large message that are read in a row: a read may give as little as a datagram.
const BYTES_IN_A_ROW: usize = 1 << 20;

/// Priority of large messages where the transport knows priorities: below everything else.
const BULK_PRIORITY: i32 = -10;

/// A message that was received or probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Received {
    /// Who sent it: a rank of the communicator.
    pub source: usize,
    /// Its tag.
    pub tag: u64,
    /// Its element type; `None` where it was sent as bare bytes.
    pub dtype: Option<DataType>,
    /// How many elements it has; of bare bytes, how many bytes.
    pub count: usize,
    /// Its length in bytes.
    pub length: usize,
}

/// What a messenger keeps at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MessengerStats {
    /// Messages that no receive has taken, announced ones included.
    pub unexpected_messages: usize,
    /// Bytes of their bodies in memory.
    pub unexpected_bytes: usize,
    /// Bytes that wait to be written.
    pub queued_bytes: usize,
    /// Large messages that are coming.
    pub incoming_transfers: usize,
    /// Sends, receives and probes in progress.
    pub operations: usize,
}

/// The messages of one communicator. All its methods may be called from any number of tasks at a time.
///
/// Each group has one messenger at most. Drop it together with the group, [`drain`](Messenger::drain)
/// before.
pub struct Messenger<T: Transport> {
    inner: Arc<Inner<T>>,
}

impl<T: Transport> Messenger<T> {
    /// The messenger of a group.
    pub fn new(group: Arc<Group<T>>) -> Self {
        let inner = Inner::new(Arc::clone(&group));
        group.listen(Listening::Messages, Some(inner.hub.clone()));
        // Something may have come before.
        crate::mesh::GroupListener::changed(&*inner.hub);
        Messenger { inner }
    }

    /// The group.
    pub fn group(&self) -> &Arc<Group<T>> {
        &self.inner.group
    }

    /// Waits until there is a message that a receive with the same arguments would get. Another task may
    /// receive it first.
    ///
    /// # Errors
    ///
    /// Those of [`recv_into`](Self::recv_into) but for truncation.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Received> {
        let (source, tag) = (source.into(), tag.into());
        self.check_rank("probe", source)?;
        let pattern = Pattern { source, tag };
        let probe = recv::probe(&self.inner, pattern);
        let found = self.drive(true, probe).await;
        found.map_err(|cause| self.error("probe", source, tag, cause))
    }

    /// The message that a receive with the same arguments would get now, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a rank that does not exist, [`Error::Operation`] when the
    /// communicator has failed.
    pub fn try_probe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Received>> {
        let (source, tag) = (source.into(), tag.into());
        self.check_rank("probe", source)?;
        let look = self.inner.with(|core| {
            core.pump();
            match &core.state.failure {
                Some(failure) => Err(Cause::Failed(failure.clone())),
                None => Ok(core.look(&Pattern { source, tag })),
            }
        });
        look.map_err(|cause| self.error("probe", source, tag, cause))
    }

    fn outgoing<'a>(
        &self,
        operation: &'static str,
        to: usize,
        tag: u64,
        dtype: Option<DataType>,
        body: Content<'a>,
    ) -> Result<Outgoing<'a>> {
        self.check_rank(operation, to.into())?;
        let too_long = || Error::InvalidArgument {
            operation,
            reason: "the length of all parts together exceeds the address space".into(),
        };
        let message = Outgoing::new(to, tag, dtype, body).ok_or_else(too_long)?;
        let length = message.length;
        match dtype {
            Some(dtype) if !length.is_multiple_of(dtype.size()) => Err(Error::InvalidArgument {
                operation,
                reason: format!("{length} bytes are not a whole number of elements of {dtype}"),
            }),
            _ => Ok(message),
        }
    }

    async fn send_any(
        &self,
        operation: &'static str,
        to: usize,
        tag: u64,
        dtype: Option<DataType>,
        body: Content<'_>,
    ) -> Result<()> {
        let message = self.outgoing(operation, to, tag, dtype, body)?;
        // The transport sends at the end of driving, which is not wanted while messages are gathered.
        let gathers =
            message.length < BATCH / 4 && self.inner.burst.load(Ordering::Relaxed) >= BURST;
        let send = send::send(&self.inner, message);
        let sent = self.drive(gathers, send).await;
        sent.map_err(|cause| self.error(operation, to.into(), tag.into(), cause))
    }

    async fn recv_any(
        &self,
        operation: &'static str,
        source: Source,
        tag: Tag,
        sink: &mut dyn BodyWriter,
    ) -> Result<Received> {
        self.check_rank(operation, source)?;
        let pattern = Pattern { source, tag };
        let receive = recv::receive(&self.inner, pattern, sink);
        let received = self.drive(true, receive).await;
        received.map_err(|cause| self.error(operation, source, tag, cause))
    }

    /// Sends and receives at the same time.
    async fn exchange(
        &self,
        (to, send_tag, dtype): (usize, u64, Option<DataType>),
        body: Content<'_>,
        (source, tag): (Source, Tag),
        sink: &mut dyn BodyWriter,
    ) -> Result<Received> {
        let operation = "send_recv";
        let message = self.outgoing(operation, to, send_tag, dtype, body)?;
        self.check_rank(operation, source)?;
        let receive = recv::receive(&self.inner, Pattern { source, tag }, sink);
        let send = send::send(&self.inner, message);
        let both = async { tokio::join!(send, receive) };
        // What was sent goes out at the end of driving.
        let (sent, received) = self.drive(false, both).await;
        sent.map_err(|cause| self.error(operation, to.into(), send_tag.into(), cause))?;
        received.map_err(|cause| self.error(operation, source, tag, cause))
    }

    /// Waits for an operation in such a way that the transport moves data; with `look_first`, only if it
    /// has to wait.
    async fn drive<F: Future + Send>(&self, look_first: bool, operation: F) -> F::Output {
        let mut operation = pin!(operation);
        if look_first {
            let once = poll_fn(|cx| Poll::Ready(operation.as_mut().poll(cx)));
            if let Poll::Ready(output) = once.await {
                return output;
            }
        }
        self.inner.group.transport().drive(operation).await
    }

    /// Ends the lanes and waits until the other ranks' transports have everything that was sent. Sends and
    /// receives that are not done fail, and so do later ones. Ranks that cannot be reached are passed
    /// over.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] when the communicator has failed, [`Error::Message`] when the time limit has
    /// passed.
    ///
    /// # Cancel safety
    ///
    /// It can be called again.
    pub async fn drain(&self) -> Result<()> {
        let transport = self.inner.group.transport();
        let drained = transport.drive(self.drain_lanes()).await;
        drained.map_err(|cause| self.error("drain", Source::Any, Tag::Any, cause))
    }

    async fn drain_lanes(&self) -> Result<(), Cause> {
        struct DrainOperation<'a, T: Transport>(&'a Inner<T>, u64);
        impl<T: Transport> Drop for DrainOperation<'_, T> {
            fn drop(&mut self) {
                self.0.with(|core| core.end(self.1));
            }
        }
        let id = self.inner.begin(Kind::Drain);
        let operation = DrainOperation(&self.inner, id);
        self.inner.with(|core| core.stop());
        poll_fn(|cx| {
            self.inner.poll(id, cx, |core| match core.is_flushed() {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            })
        })
        .await?;
        drop(operation);
        let mut lanes = self.inner.with(|core| core.close());
        for lane in &mut lanes {
            if let OutLane::Open(stream) = lane {
                // A lane that broke has nothing to wait for.
                let _ = stream.finish();
            }
        }
        for lane in &mut lanes {
            if let OutLane::Open(stream) = lane {
                let _ = stream.acked().await;
            }
        }
        Ok(())
    }

    /// What is kept at the moment.
    pub fn stats(&self) -> MessengerStats {
        self.inner.with(|core| {
            let state = &core.state;
            MessengerStats {
                unexpected_messages: state.inbox.messages(),
                unexpected_bytes: state.inbox.bytes(),
                queued_bytes: state.peers.iter().map(|peer| peer.queue.bytes()).sum(),
                incoming_transfers: state.transfers.len(),
                operations: state.operations.len(),
            }
        })
    }

    fn check_rank(&self, operation: &'static str, source: Source) -> Result<()> {
        let size = self.inner.group.size();
        match source {
            Source::Rank(rank) if rank >= size => Err(Error::InvalidArgument {
                operation,
                reason: format!("rank {rank} does not exist in a communicator of {size}"),
            }),
            _ => Ok(()),
        }
    }

    fn error(&self, operation: &'static str, peer: Source, tag: Tag, cause: Cause) -> Error {
        let (communicator, rank) = (self.inner.group.id(), self.inner.group.rank());
        let cause = match cause {
            Cause::Failed(failure) => {
                return Box::new(OperationError::new(
                    operation,
                    None,
                    communicator,
                    rank,
                    failure,
                ))
                .into();
            }
            Cause::Message(cause) => cause,
            Cause::TimedOut(waiting_for) => MessageFailure::TimedOut {
                limit: self.inner.limit,
                waiting_for,
            },
        };
        Box::new(MessageError {
            operation,
            communicator,
            rank,
            peer,
            tag,
            cause,
        })
        .into()
    }
}

impl<T: Transport> Drop for Messenger<T> {
    fn drop(&mut self) {
        self.inner.group.listen(Listening::Messages, None);
        // Dropping a lane ends it.
        drop(self.inner.with(|core| core.close()));
    }
}

impl<T: Transport> fmt::Debug for Messenger<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messenger")
            .field("group", &self.inner.group)
            .field("stats", &self.stats())
            .finish()
    }
}
