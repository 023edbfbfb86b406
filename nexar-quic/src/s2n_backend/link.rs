//! What the event loop and the handles of one connection tell each other.

use super::connection::Inner;
use nexar_core::transport::{ConnectionError, ConnectionStats, PeerId};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
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

/// Bytes of one connection that its streams have taken and that were not yet sent once. s2n-quic takes
/// data without regard to the peer's window for the connection; this bounds it.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: AtomicU64,
    ended: AtomicBool,
    anybody_waits: AtomicBool,
    /// One for each task that waits.
    waiting: Mutex<Vec<Waker>>,
}

/// See [`Backlog`].
const MAX_BACKLOG: u64 = 64 << 20;

impl Backlog {
    fn has_room(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) < MAX_BACKLOG || self.ended.load(Ordering::SeqCst)
    }

    /// Ready when there is room for another chunk.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        {
            let mut waiting = self.waiting();
            if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            self.anybody_waits.store(true, Ordering::SeqCst);
        }
        if self.has_room() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn take(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Bytes were sent, or discarded with their stream.
    fn sent(&self, bytes: u64) {
        let rest = |before: u64| Some(before.saturating_sub(bytes));
        let _ = self
            .bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest);
        if self.anybody_waits.load(Ordering::SeqCst) && self.has_room() {
            self.wake();
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let waiting = {
            let mut waiting = self.waiting();
            self.anybody_waits.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of each kind of stream that the peer takes before it has read any.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) uni: u64,
    /// Bidirectional ones that this side opens.
    pub(super) opened_bi: u64,
    /// Bidirectional ones that the peer opens.
    pub(super) accepted_bi: u64,
}

/// How many bytes of a stream the peer takes. s2n-quic keeps what exceeds it; here a stream that the peer does
/// not read takes no more than the peer's window.
#[derive(Debug)]
pub(super) struct Credit {
    limit: AtomicU64,
    writer: Mutex<Option<Waker>>,
    account: Mutex<Account>,
}

/// What a stream has in the connection's [`Backlog`].
#[derive(Debug, Default)]
struct Account {
    taken: u64,
    /// Sent at least once.
    sent: u64,
    /// The rest will not be sent.
    discarded: bool,
    /// Nobody holds the stream.
    abandoned: bool,
}

impl Account {
    fn is_settled(&self) -> bool {
        self.abandoned && (self.discarded || self.sent >= self.taken)
    }
}

impl Credit {
    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream is about to take `bytes`: before it does, lest they are sent before they are counted.
    pub(super) fn take(&self, bytes: u64, backlog: &Backlog) {
        let mut account = self.account();
        if !account.discarded {
            account.taken += bytes;
            backlog.take(bytes);
        }
    }

    /// It did not.
    pub(super) fn give_back(&self, bytes: u64, backlog: &Backlog) {
        let mut account = self.account();
        if !account.discarded {
            account.taken -= bytes;
            backlog.sent(bytes);
        }
    }

    /// Whether nothing more will happen.
    fn sent(&self, end: u64, backlog: &Backlog) -> bool {
        let mut account = self.account();
        if !account.discarded && end > account.sent {
            backlog.sent(end - account.sent);
            account.sent = end;
        }
        account.is_settled()
    }

    /// The rest will not be sent. Whether nothing more will happen.
    pub(super) fn discard(&self, backlog: &Backlog) -> bool {
        let mut account = self.account();
        if !account.discarded {
            account.discarded = true;
            backlog.sent(account.taken - account.sent);
        }
        account.is_settled()
    }

    /// Nobody holds the stream. Whether nothing more will happen.
    fn abandon(&self) -> bool {
        let mut account = self.account();
        account.abandoned = true;
        account.is_settled()
    }

    fn new(limit: u64) -> Self {
        Credit {
            limit: AtomicU64::new(limit),
            writer: Mutex::new(None),
            account: Mutex::default(),
        }
    }

    /// How many bytes may follow the first `taken`.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>, taken: u64) -> Poll<u64> {
        let room = || self.limit.load(Ordering::SeqCst).saturating_sub(taken);
        if room() == 0 {
            *self.writer() = Some(cx.waker().clone());
        }
        match room() {
            0 => Poll::Pending,
            room => Poll::Ready(room),
        }
    }

    pub(super) fn raise(&self, limit: u64) {
        self.limit.fetch_max(limit, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn wake(&self) {
        let writer = self.writer().take();
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    fn writer(&self) -> MutexGuard<'_, Option<Waker>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
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
