//! What the event loop and the handles of one connection tell each other.

use super::{
    connection::Inner,
    credit::{Backlog, Credit, Windows},
};
use nexar_core::transport::{ConnectionError, ConnectionStats, PeerId};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// One connection, from its first packet on.
pub(super) struct Link {
    id: u64,
    links: Arc<Links>,
    peer: OnceLock<PeerId>,
    /// The TLS handshake is complete on this side.
    complete: AtomicBool,
    /// The server has confirmed the handshake.
    confirmed: AtomicBool,
    end: OnceLock<ConnectionError>,
    /// Notified when one of these changes.
    changed: watch::Sender<()>,
    inner: OnceLock<Weak<Inner>>,
    windows: OnceLock<Windows>,
    credits: Mutex<HashMap<u64, Arc<Credit>>>,
    pub(super) backlog: Backlog,
    pub(super) counters: Counters,
}

impl Link {
    pub(super) fn new(id: u64, links: Arc<Links>) -> Arc<Self> {
        let link = Arc::new(Link {
            id,
            links,
            peer: OnceLock::new(),
            complete: AtomicBool::new(false),
            confirmed: AtomicBool::new(false),
            end: OnceLock::new(),
            changed: watch::Sender::new(()),
            inner: OnceLock::new(),
            windows: OnceLock::new(),
            credits: Mutex::default(),
            backlog: Backlog::default(),
            counters: Counters::default(),
        });
        link.links.all().insert(id, Arc::downgrade(&link));
        link
    }

    pub(super) fn set_peer(&self, peer: PeerId) {
        let _ = self.peer.set(peer);
    }

    pub(super) fn peer(&self) -> Option<&PeerId> {
        self.peer.get()
    }

    pub(super) fn set_complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    pub(super) fn set_confirmed(&self) {
        self.confirmed.store(true, Ordering::Release);
        self.changed.send_replace(());
    }

    /// Notes why the connection has ended; the first reason counts.
    pub(super) fn set_end(&self, end: ConnectionError) {
        if self.end.set(end).is_ok() {
            self.changed.send_replace(());
            self.backlog.end();
            let credits: Vec<_> = self.credits().values().cloned().collect();
            credits.iter().for_each(|credit| credit.wake());
        }
    }

    /// Why the connection has ended.
    pub(super) fn end(&self) -> Option<&ConnectionError> {
        self.end.get()
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) -> ConnectionError {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(end) = self.end.get() {
                return end.clone();
            }
            // The sender lives as long as `self`.
            let _ = changed.changed().await;
        }
    }

    /// Waits until the server has confirmed the handshake, which the end may prevent.
    pub(super) async fn confirmed(&self) -> Result<(), ConnectionError> {
        let mut changed = self.changed.subscribe();
        loop {
            // First of all: a server may accept the client and then close the connection.
            if self.confirmed.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Some(end) = self.end.get() {
                return Err(end.clone());
            }
            let _ = changed.changed().await;
        }
    }

    fn credits(&self) -> MutexGuard<'_, HashMap<u64, Arc<Credit>>> {
        self.credits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer has said how much of each stream it takes at first.
    pub(super) fn set_windows(&self, windows: Windows) {
        let _ = self.windows.set(windows);
    }

    /// The peer's credit for the new stream `id`, of which it takes `window` at first.
    pub(super) fn open_credit(&self, id: u64, window: fn(&Windows) -> u64) -> Arc<Credit> {
        let credit = Arc::new(Credit::new(self.windows.get().map_or(u64::MAX, window)));
        self.credits().insert(id, credit.clone());
        credit
    }

    /// Nobody holds the stream `id` any more; what it has taken is still sent.
    pub(super) fn close_credit(&self, id: u64) {
        let mut credits = self.credits();
        if credits.get(&id).is_some_and(|credit| credit.abandon()) {
            credits.remove(&id);
        }
    }

    /// The bytes of stream `id` before `end` were sent.
    pub(super) fn stream_sent(&self, id: u64, end: u64) {
        if let Some(credit) = self.credit(id)
            && credit.sent(end, &self.backlog)
        {
            self.credits().remove(&id);
        }
    }

    /// The peer does not want the stream `id` any more.
    pub(super) fn stream_stopped(&self, id: u64) {
        let credit = self.credit(id);
        if let Some(credit) = credit {
            if credit.discard(&self.backlog) {
                self.credits().remove(&id);
            }
            credit.wake();
        }
    }

    /// The credit of a stream of this side that somebody holds or that has something to send.
    pub(super) fn credit(&self, id: u64) -> Option<Arc<Credit>> {
        self.credits().get(&id).cloned()
    }

    /// From now on `inner` is told when the peer closes the connection.
    pub(super) fn attach(&self, inner: &Arc<Inner>) {
        let _ = self.inner.set(Arc::downgrade(inner));
    }

    /// Whether there is, or will be, somebody who can take over what has arrived.
    pub(super) fn may_be_attached(&self) -> bool {
        self.inner
            .get()
            .is_none_or(|inner| inner.strong_count() > 0)
    }

    pub(super) fn inner(&self) -> Option<Arc<Inner>> {
        self.inner.get().and_then(Weak::upgrade)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.links.all().remove(&self.id);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// All connections of one s2n-quic endpoint.
#[derive(Debug, Default)]
pub(super) struct Links {
    all: Mutex<HashMap<u64, Weak<Link>>>,
    /// Connections that the peer has closed and whose data must be taken over.
    closed: Mutex<Vec<Arc<Link>>>,
    any_closed: AtomicBool,
}

impl Links {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Weak<Link>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: u64) -> Option<Arc<Link>> {
        self.all().get(&id).and_then(Weak::upgrade)
    }

    pub(super) fn list(&self) -> Vec<Arc<Link>> {
        self.all().values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn push_closed(&self, link: Arc<Link>) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.push(link);
        self.any_closed.store(true, Ordering::Release);
    }

    /// Takes over the data of what the peers have closed.
    pub(super) fn salvage(&self) {
        if !self.any_closed.swap(false, Ordering::AcqRel) {
            return;
        }
        let closed =
            std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner));
        for link in closed {
            if let Some(inner) = link.inner() {
                inner.salvage();
            }
        }
    }
}

/// Counters that the events of the connection feed.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) rtt_nanos: AtomicU64,
    pub(super) lost_packets: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) mtu: AtomicU16,
}

impl Counters {
    pub(super) fn stats(&self) -> ConnectionStats {
        let mut stats = ConnectionStats::default();
        stats.rtt = Duration::from_nanos(self.rtt_nanos.load(Ordering::Relaxed));
        stats.lost_packets = self.lost_packets.load(Ordering::Relaxed);
        stats.sent_bytes = self.sent_bytes.load(Ordering::Relaxed);
        stats.received_bytes = self.received_bytes.load(Ordering::Relaxed);
        stats.mtu = self.mtu.load(Ordering::Relaxed);
        stats
    }
}
