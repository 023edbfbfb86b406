//! Connection-level flow control that cannot get stuck.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::sleep};

/// How long freed room may stay unannounced while a reader waits.
const DELAY: Duration = Duration::from_millis(10);

/// Announces freed room of the connection window.
///
/// quinn tells the peer of it in steps of an eighth of the window. If streams that nobody reads hold the
/// rest, a reader that has freed less would wait forever for a peer that may not send. So while a reader
/// waits, smaller amounts are announced, too, at most once in [`DELAY`].
pub(super) struct Credit {
    connection: quinn::Connection,
    window: u64,
    background: Handle,
    /// Changes with everything that frees room.
    freed: AtomicU64,
    announced: AtomicU64,
    scheduled: AtomicBool,
}

impl Credit {
    pub(super) fn new(connection: quinn::Connection, window: u64, background: Handle) -> Self {
        Credit {
            connection,
            window,
            background,
            freed: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            scheduled: AtomicBool::new(false),
        }
    }

    /// Data was taken out of a stream or discarded with it.
    pub(super) fn freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// A reader found its stream empty.
    pub(super) fn reader_waits(self: &Arc<Self>) {
        if self.freed.load(Ordering::Relaxed) == self.announced.load(Ordering::Relaxed)
            || self.scheduled.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let this = self.clone();
        self.background.spawn(async move {
            sleep(DELAY).await;
            this.scheduled.store(false, Ordering::Relaxed);
            this.announced
                .store(this.freed.load(Ordering::Relaxed), Ordering::Relaxed);
            this.announce();
        });
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

impl fmt::Debug for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credit")
    }
}
