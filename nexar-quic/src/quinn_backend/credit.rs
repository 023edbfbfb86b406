//! Connection-level flow control that cannot get stuck.

use crate::driver::{Drivers, Timer};
use std::{
    fmt,
    future::poll_fn,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// How long freed room may stay unannounced while a reader waits and nothing is read.
const DELAY: Duration = Duration::from_millis(10);

/// Announces freed room of the connection window.
///
/// quinn tells the peer of it in steps of an eighth of the window. If streams that nobody reads hold the
/// rest, a reader that has freed less would wait forever for a peer that may not send. So when a reader
/// waits and nothing has been read for [`DELAY`], smaller amounts are announced, too.
pub(super) struct Credit {
    connection: quinn::Connection,
    window: u64,
    /// Changes with everything that frees room.
    freed: AtomicU64,
    announced: AtomicU64,
    /// The future of [`watch`] looks after what is not announced.
    watched: AtomicBool,
    call: Arc<Notify>,
}

impl Credit {
    pub(super) fn new(
        connection: quinn::Connection,
        window: u64,
        drivers: &Arc<Drivers>,
    ) -> Arc<Self> {
        let call = Arc::new(Notify::new());
        let credit = Arc::new(Credit {
            connection,
            window,
            freed: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            watched: AtomicBool::new(false),
            call: call.clone(),
        });
        let timer = Timer::new(drivers.clone(), Instant::now());
        drivers.spawn(Box::pin(watch(Arc::downgrade(&credit), call, timer)));
        credit
    }

    /// Data was taken out of a stream or discarded with it.
    pub(super) fn freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// A reader found its stream empty.
    pub(super) fn reader_waits(&self) {
        if self.freed.load(Ordering::Relaxed) != self.announced.load(Ordering::Relaxed)
            && !self.watched.swap(true, Ordering::Relaxed)
        {
            self.call.notify_one();
        }
    }

    /// quinn announces the window when it grows; the byte is taken back at once.
    fn announce(&self) {
        if self.connection.close_reason().is_none() {
            self.connection
                .set_receive_window(super::error::code(self.window + 1));
            self.connection
                .set_receive_window(super::error::code(self.window));
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        // Ends the future.
        self.call.notify_one();
    }
}

/// Looks after one connection's credit for as long as somebody has it.
async fn watch(credit: Weak<Credit>, call: Arc<Notify>, mut timer: Timer) {
    loop {
        call.notified().await;
        let mut seen = None;
        loop {
            let Some(credit) = credit.upgrade() else {
                return;
            };
            let freed = credit.freed.load(Ordering::Relaxed);
            if seen == Some(freed) {
                credit.watched.store(false, Ordering::Relaxed);
                credit.announced.store(freed, Ordering::Relaxed);
                credit.announce();
                break;
            }
            seen = Some(freed);
            drop(credit);
            timer.reset(Instant::now() + DELAY);
            poll_fn(|cx| timer.poll(cx)).await;
        }
    }
}

impl fmt::Debug for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credit")
    }
}
