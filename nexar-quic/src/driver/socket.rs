//! The UDP socket as the backends see it.

use crate::settings;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use std::{
    io::{self, IoSliceMut},
    mem,
    net::{SocketAddr, UdpSocket},
    sync::{
        Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// A socket without registration for readiness. Where it would block it notes who asked, and
/// [`retry`](Self::retry) has them ask again; see rule 3 of the module.
#[derive(Debug)]
pub(crate) struct Socket {
    /// `None` once the transport is closed, even if handles of dead connections still refer to this.
    io: RwLock<Option<UdpSocket>>,
    local: SocketAddr,
    state: UdpSocketState,
    blocked: Mutex<Blocked>,
    send_would_block: AtomicBool,
    moved: AtomicU64,
}

/// Who waits for the socket: the endpoint for datagrams, connections for room.
#[derive(Debug, Default)]
struct Blocked {
    receiver: Option<Waker>,
    senders: Vec<Waker>,
}

impl Socket {
    /// Wraps a bound, non-blocking socket.
    pub(crate) fn new(io: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&io).into())?;
        Ok(Socket {
            local: io.local_addr()?,
            io: RwLock::new(Some(io)),
            state,
            blocked: Mutex::default(),
            send_would_block: AtomicBool::new(false),
            moved: AtomicU64::new(0),
        })
    }

    /// Does something with the open socket.
    pub(super) fn with<R>(&self, work: impl FnOnce(&UdpSocket) -> io::Result<R>) -> io::Result<R> {
        match &*self.io.read().unwrap_or_else(PoisonError::into_inner) {
            Some(io) => work(io),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Closes the socket, so that its address is free again.
    pub(super) fn close(&self) {
        *self.io.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn blocked(&self) -> MutexGuard<'_, Blocked> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has everybody who found the socket blocked try again.
    pub(super) fn retry(&self) {
        let (receiver, senders) = {
            let mut blocked = self.blocked();
            (blocked.receiver.clone(), mem::take(&mut blocked.senders))
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        for sender in senders {
            sender.wake();
        }
    }

    /// Whether a connection waits for room to send.
    pub(super) fn has_blocked_senders(&self) -> bool {
        !self.blocked().senders.is_empty()
    }

    /// Grows with every batch that is sent or received.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends a datagram, or several of `segment_size`. A batch of more bytes than one UDP datagram can
    /// have would be refused as a whole, silently; it is sent in parts.
    ///
    /// Where the socket would block, [`poll_writable`](Self::poll_writable) says when to try again.
    pub(crate) fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let limit = usize::from(settings::MAX_DATAGRAM);
        match transmit.segment_size {
            Some(segment) if transmit.contents.len() > limit => {
                let part = (limit / segment).max(1) * segment;
                let mut parts = transmit.contents.chunks(part);
                parts.try_for_each(|contents| {
                    self.send(&Transmit {
                        contents,
                        ..*transmit
                    })
                })
            }
            _ => self.send(transmit),
        }
    }

    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let result = self.with(|io| self.state.send(io.into(), transmit));
        match &result {
            Ok(()) => self.count(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.send_would_block.store(true, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        result
    }

    /// Ready unless the last send would have blocked; then the task is woken to try again.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.send_would_block.load(Ordering::Relaxed)
            || !self.send_would_block.swap(false, Ordering::Relaxed)
        {
            return Poll::Ready(());
        }
        self.blocked().senders.push(cx.waker().clone());
        Poll::Pending
    }

    /// Receives up to one batch of datagrams. There is one receiver.
    pub(crate) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let result = self.with(|io| self.state.recv(io.into(), bufs, meta));
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut blocked = self.blocked();
                if !blocked
                    .receiver
                    .as_ref()
                    .is_some_and(|known| known.will_wake(cx.waker()))
                {
                    blocked.receiver = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            result => {
                self.count();
                Poll::Ready(result)
            }
        }
    }

    /// The address that was bound.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Datagrams that one call can send.
    pub(crate) fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Whether the network may fragment datagrams, so that their size says nothing about the path.
    #[cfg(feature = "quinn")]
    pub(crate) fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}
