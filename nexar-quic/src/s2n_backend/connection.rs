//! Connections and the acceptors of their streams.

use super::{
    closing::Reasons,
    credit::Windows,
    error,
    link::Link,
    stream::{RecvHalf, S2nQuicRecvStream, S2nQuicSendStream},
};
use nexar_core::transport::{
    BiAcceptor, Connection, ConnectionError, ConnectionStats, NewConnection, PeerId, StreamError,
    UniAcceptor,
};
use s2n_quic::{
    connection::{self, BidirectionalStreamAcceptor, Handle, ReceiveStreamAcceptor},
    stream,
};
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::poll_fn,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker, ready},
};

/// A connection over s2n-quic.
#[derive(Clone)]
pub struct S2nQuicConnection(Arc<Inner>);

/// What the handles of one connection share.
pub(super) struct Inner {
    handle: Handle,
    link: Arc<Link>,
    peer: PeerId,
    remote: SocketAddr,
    reasons: Reasons,
    uni: Mutex<Incoming<ReceiveStreamAcceptor>>,
    bi: Mutex<Incoming<BidirectionalStreamAcceptor>>,
    /// The receiving halves that somebody holds, for [`salvage`](Self::salvage).
    halves: Mutex<HashMap<u64, Weak<Mutex<RecvHalf>>>>,
}

impl S2nQuicConnection {
    /// Wraps an established connection; its certificate must name the peer.
    pub(super) fn new(
        mut connection: s2n_quic::Connection,
        link: Arc<Link>,
        reasons: Reasons,
        keep_alive: bool,
    ) -> Result<Self, ConnectionError> {
        let Some(peer) = link.peer().cloned() else {
            let reason = "the certificate names nobody";
            connection.close(error::code(0));
            return Err(ConnectionError::Refused {
                reason: reason.to_owned(),
            });
        };
        // Fails only where the connection has ended, which its user will see.
        let _ = connection.keep_alive(keep_alive);
        let remote = connection.remote_addr().map_err(error::connection)?;
        let (handle, acceptor) = connection.split();
        let (bi, uni) = acceptor.split();
        let inner = Arc::new(Inner {
            handle,
            link: link.clone(),
            peer,
            remote,
            reasons,
            uni: Mutex::new(Incoming::new(uni)),
            bi: Mutex::new(Incoming::new(bi)),
            halves: Mutex::default(),
        });
        link.attach(&inner);
        // The peer may have closed it before there was somebody to tell.
        if link.end().is_some() {
            inner.salvage();
        }
        Ok(S2nQuicConnection(inner))
    }

    pub(super) fn split(self) -> NewConnection<S2nQuicConnection> {
        NewConnection {
            uni: S2nQuicUniAcceptor(self.0.clone()),
            bi: S2nQuicBiAcceptor(self.0.clone()),
            connection: self,
        }
    }
}

impl Inner {
    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn close(&self, code: u64, reason: &str) {
        if self.link.end().is_none() {
            self.reasons.set(self.remote, code, reason);
            self.link.set_end(ConnectionError::ClosedLocally);
            self.handle.close(error::code(code));
        }
    }

    /// Why the connection has ended, given what s2n-quic says.
    fn ended(&self, error: NoMore) -> ConnectionError {
        let end = self.link.end().cloned();
        end.unwrap_or_else(|| match error {
            Some(error) => error::connection(error),
            None => error::ended_by_peer(),
        })
    }

    pub(super) fn stream_error(&self, error: stream::Error) -> StreamError {
        match error {
            stream::Error::ConnectionError { error, .. } => self.ended(Some(error)).into(),
            stream::Error::InvalidStream { .. } => match self.link.end() {
                Some(end) => end.clone().into(),
                None => StreamError::Closed,
            },
            _ => StreamError::Closed,
        }
    }

    fn halves(&self) -> MutexGuard<'_, HashMap<u64, Weak<Mutex<RecvHalf>>>> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register(&self, id: u64, half: &Arc<Mutex<RecvHalf>>) {
        self.halves().insert(id, Arc::downgrade(half));
    }

    pub(super) fn unregister(&self, id: u64) {
        self.halves().remove(&id);
    }

    fn uni(&self) -> MutexGuard<'_, Incoming<ReceiveStreamAcceptor>> {
        self.uni.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bi(&self) -> MutexGuard<'_, Incoming<BidirectionalStreamAcceptor>> {
        self.bi.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer has closed the connection, which s2n-quic does not know yet: takes over the streams and
    /// the data that have arrived, and closes it from this side. Bounded by the windows and the stream
    /// limits.
    pub(super) fn salvage(&self) {
        let mut wakers = Vec::new();
        wakers.extend(self.uni().salvage());
        wakers.extend(self.bi().salvage());
        let halves: Vec<_> = self.halves().values().filter_map(Weak::upgrade).collect();
        for half in halves {
            let mut half = half.lock().unwrap_or_else(PoisonError::into_inner);
            wakers.extend(half.salvage());
        }
        self.handle.close(error::code(0));
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for S2nQuicConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S2nQuicConnection")
            .field("peer", &self.0.peer)
            .field("remote", &self.remote_addr())
            .finish_non_exhaustive()
    }
}

impl Connection for S2nQuicConnection {
    type SendStream = S2nQuicSendStream;
    type RecvStream = S2nQuicRecvStream;
    type UniAcceptor = S2nQuicUniAcceptor;
    type BiAcceptor = S2nQuicBiAcceptor;

    async fn open_uni(&self) -> Result<S2nQuicSendStream, ConnectionError> {
        if let Some(end) = self.0.link.end() {
            return Err(end.clone());
        }
        let mut handle = self.0.handle.clone();
        let stream = handle.open_send_stream().await;
        let stream = stream.map_err(|error| self.0.ended(Some(error)))?;
        let window = |windows: &Windows| windows.uni;
        Ok(S2nQuicSendStream::new(stream, self.0.clone(), window))
    }

    async fn open_bi(&self) -> Result<(S2nQuicSendStream, S2nQuicRecvStream), ConnectionError> {
        if let Some(end) = self.0.link.end() {
            return Err(end.clone());
        }
        let mut handle = self.0.handle.clone();
        let stream = handle.open_bidirectional_stream().await;
        let stream = stream.map_err(|error| self.0.ended(Some(error)))?;
        let (recv, send) = stream.split();
        let window = |windows: &Windows| windows.opened_bi;
        Ok((
            S2nQuicSendStream::new(send, self.0.clone(), window),
            S2nQuicRecvStream::new(RecvHalf::new(recv), self.0.clone()),
        ))
    }

    fn peer_identity(&self) -> &PeerId {
        &self.0.peer
    }

    fn remote_addr(&self) -> SocketAddr {
        let address = self.0.handle.remote_addr().unwrap_or(self.0.remote);
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    fn close(&self, code: u64, reason: &str) {
        self.0.close(code, reason);
    }

    async fn closed(&self) -> ConnectionError {
        self.0.link.ended().await
    }

    fn stats(&self) -> ConnectionStats {
        self.0.link.counters.stats()
    }
}

/// Streams that the peer opens.
struct Incoming<A: Acceptor> {
    acceptor: A,
    /// Those that were taken over when the connection ended.
    ready: VecDeque<A::Stream>,
    waiting: Option<Waker>,
}

impl<A: Acceptor> Incoming<A> {
    fn new(acceptor: A) -> Self {
        Incoming {
            acceptor,
            ready: VecDeque::new(),
            waiting: None,
        }
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<A::Stream, NoMore>> {
        if let Some(stream) = self.ready.pop_front() {
            return Poll::Ready(Ok(stream));
        }
        let next = self.acceptor.poll_next(cx);
        if next.is_pending() {
            self.waiting = Some(cx.waker().clone());
        }
        next
    }

    fn salvage(&mut self) -> Option<Waker> {
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok(mut stream)) = self.acceptor.poll_next(&mut cx) {
            A::salvage(&mut stream);
            self.ready.push_back(stream);
        }
        self.waiting.take()
    }
}

/// s2n-quic's acceptors.
trait Acceptor {
    type Stream;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Stream, NoMore>>;

    fn salvage(stream: &mut Self::Stream);
}

impl Acceptor for ReceiveStreamAcceptor {
    type Stream = RecvHalf;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecvHalf, NoMore>> {
        self.poll_accept_receive_stream(cx)
            .map(|stream| Ok(RecvHalf::new(stream.map_err(Some)?.ok_or(None)?)))
    }

    fn salvage(stream: &mut RecvHalf) {
        stream.salvage();
    }
}

impl Acceptor for BidirectionalStreamAcceptor {
    type Stream = (stream::SendStream, RecvHalf);

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Stream, NoMore>> {
        self.poll_accept_bidirectional_stream(cx).map(|stream| {
            let (recv, send) = stream.map_err(Some)?.ok_or(None)?.split();
            Ok((send, RecvHalf::new(recv)))
        })
    }

    fn salvage((_, recv): &mut Self::Stream) {
        recv.salvage();
    }
}

/// Why there are no more streams; `None` if the connection was closed without an error.
type NoMore = Option<connection::Error>;

/// Yields the unidirectional streams of an [`S2nQuicConnection`].
pub struct S2nQuicUniAcceptor(Arc<Inner>);

impl fmt::Debug for S2nQuicUniAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S2nQuicUniAcceptor")
    }
}

impl UniAcceptor for S2nQuicUniAcceptor {
    type RecvStream = S2nQuicRecvStream;

    async fn accept(&mut self) -> Result<S2nQuicRecvStream, ConnectionError> {
        let stream = poll_fn(|cx| {
            // Under the lock: a stream is always where `salvage` finds it.
            let mut uni = self.0.uni();
            let half = ready!(uni.poll_accept(cx));
            Poll::Ready(half.map(|half| S2nQuicRecvStream::new(half, self.0.clone())))
        });
        stream.await.map_err(|error| self.0.ended(error))
    }
}

/// Yields the bidirectional streams of an [`S2nQuicConnection`].
pub struct S2nQuicBiAcceptor(Arc<Inner>);

impl fmt::Debug for S2nQuicBiAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S2nQuicBiAcceptor")
    }
}

impl BiAcceptor for S2nQuicBiAcceptor {
    type SendStream = S2nQuicSendStream;
    type RecvStream = S2nQuicRecvStream;

    async fn accept(&mut self) -> Result<(S2nQuicSendStream, S2nQuicRecvStream), ConnectionError> {
        let stream = poll_fn(|cx| {
            let mut bi = self.0.bi();
            let stream = ready!(bi.poll_accept(cx));
            Poll::Ready(stream.map(|(send, half)| {
                let recv = S2nQuicRecvStream::new(half, self.0.clone());
                (send, recv)
            }))
        });
        let (send, recv) = stream.await.map_err(|error| self.0.ended(error))?;
        let window = |windows: &Windows| windows.accepted_bi;
        Ok((S2nQuicSendStream::new(send, self.0.clone(), window), recv))
    }
}
