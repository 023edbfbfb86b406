//! The traits that a transport implements, at the level of QUIC streams.
//!
//! A [`Transport`] is one local endpoint. It makes and accepts [`Connection`]s, each to one peer whose
//! identity the transport has verified, and a connection carries any number of reliable, ordered byte
//! streams. Everything above (messages, membership, collectives) is written against these traits.
//!
//! The hot methods of the streams are poll-based, so that one task can drive many streams without an
//! allocation per call; each has an `async` convenience beside it.

mod error;
mod identity;
pub mod memory;

pub use error::{ConnectionError, StreamError};
pub use identity::PeerId;

use bytes::Bytes;
use std::{
    fmt,
    future::{Future, poll_fn},
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

/// What a transport can do beyond the minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// [`SendStream::set_priority`] has an effect.
    pub stream_priorities: bool,
    /// Traffic is encrypted and the peer's identity is proven by a certificate.
    pub authenticated: bool,
}

impl Capabilities {
    /// The given capabilities.
    pub const fn new(stream_priorities: bool, authenticated: bool) -> Self {
        Capabilities {
            stream_priorities,
            authenticated,
        }
    }
}

/// Counters of one connection, for tools and logs. A transport leaves at zero what it cannot know.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Bytes sent in datagrams, overhead included.
    pub sent_bytes: u64,
    /// Bytes received in datagrams, overhead included.
    pub received_bytes: u64,
    /// Size of the largest datagram that the path is known to take.
    pub mtu: u16,
}

/// A connection that has just been made, with the acceptors of its incoming streams.
///
/// The acceptors are separate owned values because some QUIC stacks need exclusive access to them.
#[derive(Debug)]
pub struct NewConnection<C: Connection> {
    /// The connection.
    pub connection: C,
    /// Yields the unidirectional streams that the peer opens.
    pub uni: C::UniAcceptor,
    /// Yields the bidirectional streams that the peer opens.
    pub bi: C::BiAcceptor,
}

/// One local endpoint, able to dial and to be dialled.
///
/// Whoever awaits a method may be on another runtime, or on none: what a method needs of a runtime (sockets,
/// timers, tasks) belongs to [`background`](Self::background).
///
/// Dropping a transport stops it without waiting: it accepts and dials nobody any more, and its address
/// becomes free. Its connections may be closed with it, with code 0; [`close`](Self::close) is what closes
/// them, and says why.
pub trait Transport: Send + Sync + 'static {
    /// The connections of this transport.
    type Connection: Connection;

    /// A short name for tables and logs, such as `quinn`.
    fn name(&self) -> &str;

    /// What this transport can do.
    fn capabilities(&self) -> Capabilities;

    /// Who this endpoint proves to be.
    fn identity(&self) -> &PeerId;

    /// The address on which this endpoint is reached, with the port that was really bound.
    fn local_addr(&self) -> SocketAddr;

    /// Dials `address`. With `expected`, a peer that proves to be somebody else is an error
    /// ([`ConnectionError::WrongPeer`]) and no byte is sent to it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the attempt.
    fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&PeerId>,
    ) -> impl Future<Output = Result<NewConnection<Self::Connection>, ConnectionError>> + Send;

    /// Waits for the next connection whose handshake has succeeded; `None` once the endpoint is closed.
    /// Connections come in the order in which their handshakes have succeeded: of two dials, the second of
    /// which begins when the first has returned, the first is accepted first.
    ///
    /// Handshakes proceed concurrently in the background, a bounded number at a time, so that a peer
    /// that stalls holds nobody up. Strangers are refused there and logged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no connection.
    fn accept(&self) -> impl Future<Output = Option<NewConnection<Self::Connection>>> + Send;

    /// Closes the endpoint and all its connections at once with `code` and `reason`, and waits until
    /// the peers have been told, for a bounded time. Data that has not been acknowledged is lost.
    ///
    /// It may end the runtime of [`background`](Self::background), so it is awaited elsewhere.
    fn close(&self, code: u64, reason: &str) -> impl Future<Output = ()> + Send;

    /// The runtime on which this transport runs its own background work. Code above spawns its
    /// background tasks (heartbeats, acceptors) there too, so that they run even while the
    /// application blocks all of its own workers.
    fn background(&self) -> &tokio::runtime::Handle;

    /// Wraps the future of somebody who is waiting for an operation, so that the waiting task can
    /// drive the transport's I/O itself instead of being woken by another thread.
    ///
    /// The default does nothing.
    fn drive<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send {
        future
    }
}

/// A connection to one verified peer. Clones are handles to the same connection.
///
/// Its acceptors and streams keep it open as well. When a side drops the last of all of these, that side closes
/// the connection with code 0, and data that was not acknowledged may be lost.
pub trait Connection: Clone + Send + Sync + fmt::Debug + 'static {
    /// The sending half of a stream.
    type SendStream: SendStream;
    /// The receiving half of a stream.
    type RecvStream: RecvStream;
    /// See [`NewConnection::uni`].
    type UniAcceptor: UniAcceptor<RecvStream = Self::RecvStream>;
    /// See [`NewConnection::bi`].
    type BiAcceptor: BiAcceptor<SendStream = Self::SendStream, RecvStream = Self::RecvStream>;

    /// Opens a unidirectional stream. Waits while the peer's limit on concurrent streams is reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future opens nothing.
    fn open_uni(&self) -> impl Future<Output = Result<Self::SendStream, ConnectionError>> + Send;

    /// Opens a bidirectional stream. Waits while the peer's limit on concurrent streams is reached.
    /// The peer sees the stream with the first byte that is written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future opens nothing.
    fn open_bi(
        &self,
    ) -> impl Future<Output = Result<(Self::SendStream, Self::RecvStream), ConnectionError>> + Send;

    /// Who the peer has proven to be.
    fn peer_identity(&self) -> &PeerId;

    /// The address at which the peer's endpoint can be dialled, as this side sees it now; not that of a socket
    /// of its own that the peer may have dialled from.
    fn remote_addr(&self) -> SocketAddr;

    /// Closes the connection at once. Data that the peer has not acknowledged may be lost: finish the
    /// streams and wait for [`SendStream::poll_acked`] first.
    fn close(&self, code: u64, reason: &str);

    /// Waits until the connection is closed, by whichever side, and says why.
    ///
    /// # Cancel safety
    ///
    /// Safe; every call gives the same answer.
    fn closed(&self) -> impl Future<Output = ConnectionError> + Send;

    /// Counters.
    fn stats(&self) -> ConnectionStats;
}

/// Yields the unidirectional streams that a peer opens.
pub trait UniAcceptor: Send + fmt::Debug + 'static {
    /// The streams.
    type RecvStream: RecvStream;

    /// Waits for the next stream, in the order in which the peer opened them.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream.
    fn accept(&mut self) -> impl Future<Output = Result<Self::RecvStream, ConnectionError>> + Send;
}

/// Yields the bidirectional streams that a peer opens.
pub trait BiAcceptor: Send + fmt::Debug + 'static {
    /// The sending halves.
    type SendStream: SendStream;
    /// The receiving halves.
    type RecvStream: RecvStream;

    /// Waits for the next stream, in the order in which the peer opened them.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream.
    fn accept(
        &mut self,
    ) -> impl Future<Output = Result<(Self::SendStream, Self::RecvStream), ConnectionError>> + Send;
}

/// The sending half of a stream.
///
/// Dropping it finishes the stream: what was written is still delivered while the connection lives.
pub trait SendStream: Send + fmt::Debug + 'static {
    /// Hands a prefix of `data` to the stream and removes it from `data`; ready as soon as at least one
    /// byte was taken, or at once if `data` is empty. No bytes are copied where the transport can keep
    /// the `Bytes`.
    ///
    /// Pending means that the stream, the connection or the peer's window is full: back-pressure.
    /// A transport whose own send does not push back bounds what it has taken and not yet sent.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>>;

    /// Marks the end of the stream. What was written is delivered first.
    fn finish(&mut self) -> Result<(), StreamError>;

    /// After [`finish`](Self::finish): ready once the peer's transport has received everything. That
    /// is not yet to say that its application has read it, but it can, even if the connection is closed now.
    ///
    /// A receiver that is dropped after it has read to the end does not change that. One that is stopped or
    /// dropped earlier makes this [`StreamError::Stopped`], unless everything had been acknowledged by then.
    fn poll_acked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>>;

    /// Abandons the stream: the peer sees [`StreamError::Reset`] with `code`, perhaps before it has
    /// read what was written.
    fn reset(&mut self, code: u64);

    /// Among the streams of a connection, data of those with a higher priority is sent first. The
    /// default is 0. Without [`Capabilities::stream_priorities`] it has no effect.
    fn set_priority(&mut self, priority: i32);

    /// Writes all of `data`.
    ///
    /// # Cancel safety
    ///
    /// Not safe: a prefix may have been written.
    fn write_all(
        &mut self,
        mut data: Bytes,
    ) -> impl Future<Output = Result<(), StreamError>> + Send {
        async move {
            while !data.is_empty() {
                poll_fn(|cx| self.poll_write(cx, &mut data)).await?;
            }
            Ok(())
        }
    }

    /// Waits until the peer's transport has received everything; see [`poll_acked`](Self::poll_acked).
    ///
    /// # Cancel safety
    ///
    /// Safe.
    fn acked(&mut self) -> impl Future<Output = Result<(), StreamError>> + Send {
        async move { poll_fn(|cx| self.poll_acked(cx)).await }
    }
}

/// The receiving half of a stream.
///
/// Dropping it tells the peer to stop sending. What had arrived in order before the connection was closed
/// can still be read afterwards.
pub trait RecvStream: Send + fmt::Debug + 'static {
    /// The next bytes in order, at least one and at most `max` (which is not 0); `None` at the end of
    /// the stream.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>>;

    /// Asks the peer to stop sending and discards what has arrived. The peer's writes fail with
    /// [`StreamError::Stopped`] and `code`.
    fn stop(&mut self, code: u64);

    /// The next bytes; see [`poll_read`](Self::poll_read).
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped future has consumed nothing.
    fn read(
        &mut self,
        max: usize,
    ) -> impl Future<Output = Result<Option<Bytes>, StreamError>> + Send {
        async move { poll_fn(|cx| self.poll_read(cx, max)).await }
    }

    /// Fills `buffer`; [`StreamError::UnexpectedEnd`] if the stream ends before.
    ///
    /// # Cancel safety
    ///
    /// Not safe: bytes may have been consumed.
    fn read_exact(
        &mut self,
        buffer: &mut [u8],
    ) -> impl Future<Output = Result<(), StreamError>> + Send {
        async move {
            let mut filled = 0;
            while filled < buffer.len() {
                match self.read(buffer.len() - filled).await? {
                    Some(bytes) => {
                        buffer[filled..filled + bytes.len()].copy_from_slice(&bytes);
                        filled += bytes.len();
                    }
                    None => return Err(StreamError::UnexpectedEnd),
                }
            }
            Ok(())
        }
    }
}
