//! How much the streams of a connection take: what the peer's windows allow, and no more than a bound of
//! data that waits to be sent. s2n-quic itself takes what it is given.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

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

    pub(super) fn end(&self) {
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
    pub(super) fn sent(&self, end: u64, backlog: &Backlog) -> bool {
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
    pub(super) fn abandon(&self) -> bool {
        let mut account = self.account();
        account.abandoned = true;
        account.is_settled()
    }

    pub(super) fn new(limit: u64) -> Self {
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
