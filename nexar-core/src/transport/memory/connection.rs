//! Connections and the acceptors of their streams.

use super::{
    state::{Core, Kind, Shared, StreamId},
    stream::{MemoryRecvStream, MemorySendStream, RecvHalf, SendHalf, remember},
};
use crate::transport::{
    BiAcceptor, Connection, ConnectionError, ConnectionStats, NewConnection, PeerId, UniAcceptor,
};
use std::{
    fmt,
    future::poll_fn,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

/// One side of a connection, as all its handles hold it. With the last of them the connection closes.
pub(super) struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) side: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.with(|core| core.close(self.side, 0, ""));
    }
}

/// A connection on a [`MemoryNetwork`](super::MemoryNetwork).
///
/// When the last handle of a side is dropped (connection, acceptors and streams), that side closes the
/// connection with code 0.
#[derive(Clone)]
pub struct MemoryConnection {
    held: Arc<Held>,
}

/// The handles of one side of a connection.
pub(super) fn handles(shared: &Arc<Shared>, side: usize) -> NewConnection<MemoryConnection> {
    let held = Arc::new(Held {
        shared: Arc::clone(shared),
        side,
    });
    NewConnection {
        connection: MemoryConnection {
            held: Arc::clone(&held),
        },
        uni: MemoryUniAcceptor {
            held: Arc::clone(&held),
        },
        bi: MemoryBiAcceptor { held },
    }
}

impl MemoryConnection {
    async fn open(&self, kind: Kind) -> Result<StreamId, ConnectionError> {
        let Held { shared, side } = &*self.held;
        let permit = shared.permits[*side][kind as usize].acquire().await;
        let id = shared.with(|core| core.open(*side, kind))?;
        // The peer gives it back when the stream has come to its end.
        if let Ok(permit) = permit {
            permit.forget();
        }
        Ok(id)
    }
}

impl Core<'_> {
    fn open(&mut self, side: usize, kind: Kind) -> Result<StreamId, ConnectionError> {
        let state = &mut self.state.sides[side];
        if let Some(error) = &state.over {
            return Err(error.clone());
        }
        let index = state.opened[kind as usize];
        state.opened[kind as usize] += 1;
        let id = StreamId {
            opener: side,
            kind,
            index,
        };
        state
            .sending
            .insert(id, SendHalf::new(self.shared.config.stream_window.max(1)));
        if kind == Kind::Bi {
            state.receiving.insert(id, RecvHalf::default());
        }
        self.shared.ends.links[side].streams.fetch_add(1, Relaxed);
        Ok(id)
    }

    fn poll_accept(
        &mut self,
        side: usize,
        kind: Kind,
        cx: &Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        let stale = &mut self.state.stale;
        let state = &mut self.state.sides[side];
        let incoming = &mut state.incoming[kind as usize];
        if incoming.accepted < incoming.seen {
            let index = incoming.accepted;
            incoming.accepted += 1;
            return Poll::Ready(Ok(StreamId {
                opener: 1 - side,
                kind,
                index,
            }));
        }
        if let Some(error) = &state.over {
            return Poll::Ready(Err(error.clone()));
        }
        remember(&mut incoming.waker, cx, stale);
        Poll::Pending
    }
}

impl Connection for MemoryConnection {
    type SendStream = MemorySendStream;
    type RecvStream = MemoryRecvStream;
    type UniAcceptor = MemoryUniAcceptor;
    type BiAcceptor = MemoryBiAcceptor;

    async fn open_uni(&self) -> Result<MemorySendStream, ConnectionError> {
        let id = self.open(Kind::Uni).await?;
        Ok(MemorySendStream::new(Arc::clone(&self.held), id))
    }

    async fn open_bi(&self) -> Result<(MemorySendStream, MemoryRecvStream), ConnectionError> {
        let id = self.open(Kind::Bi).await?;
        Ok(self.held.halves(id))
    }

    fn peer_identity(&self) -> &PeerId {
        &self.held.shared.ends.identities[1 - self.held.side]
    }

    fn remote_addr(&self) -> SocketAddr {
        self.held.shared.ends.addresses[1 - self.held.side]
    }

    fn close(&self, code: u64, reason: &str) {
        self.held
            .shared
            .with(|core| core.close(self.held.side, code, reason));
    }

    async fn closed(&self) -> ConnectionError {
        self.held.shared.over(self.held.side).await
    }

    /// The delay of both directions without jitter as round-trip time, and bytes of stream data.
    fn stats(&self) -> ConnectionStats {
        let Held { shared, side } = &*self.held;
        let [there, back] = &shared.ends.links;
        let (sent_bytes, received_bytes) = shared.with(|core| {
            let state = &core.state.sides[*side];
            (state.sent_bytes, state.received_bytes)
        });
        ConnectionStats {
            rtt: there.fixed_delay() + back.fixed_delay(),
            sent_bytes,
            received_bytes,
            ..Default::default()
        }
    }
}

impl fmt::Debug for MemoryConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryConnection")
            .field("peer", self.peer_identity())
            .field("remote_addr", &self.remote_addr())
            .finish()
    }
}

impl Held {
    fn halves(self: &Arc<Self>, id: StreamId) -> (MemorySendStream, MemoryRecvStream) {
        let send = MemorySendStream::new(Arc::clone(self), id);
        (send, MemoryRecvStream::new(Arc::clone(self), id))
    }

    async fn accept(&self, kind: Kind) -> Result<StreamId, ConnectionError> {
        poll_fn(|cx| {
            self.shared
                .with(|core| core.poll_accept(self.side, kind, cx))
        })
        .await
    }
}

/// Yields the unidirectional streams of a [`MemoryConnection`].
pub struct MemoryUniAcceptor {
    held: Arc<Held>,
}

impl UniAcceptor for MemoryUniAcceptor {
    type RecvStream = MemoryRecvStream;

    async fn accept(&mut self) -> Result<MemoryRecvStream, ConnectionError> {
        let id = self.held.accept(Kind::Uni).await?;
        Ok(MemoryRecvStream::new(Arc::clone(&self.held), id))
    }
}

impl fmt::Debug for MemoryUniAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryUniAcceptor").finish_non_exhaustive()
    }
}

/// Yields the bidirectional streams of a [`MemoryConnection`].
pub struct MemoryBiAcceptor {
    held: Arc<Held>,
}

impl BiAcceptor for MemoryBiAcceptor {
    type SendStream = MemorySendStream;
    type RecvStream = MemoryRecvStream;

    async fn accept(&mut self) -> Result<(MemorySendStream, MemoryRecvStream), ConnectionError> {
        let id = self.held.accept(Kind::Bi).await?;
        Ok(self.held.halves(id))
    }
}

impl fmt::Debug for MemoryBiAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBiAcceptor").finish_non_exhaustive()
    }
}
