//! What this rank knows of another.

use super::{CLOSE_PROTOCOL, LinkParts, MAX_GROUPS, lock};
use crate::{
    membership::Link,
    transport::{Connection, Transport},
    wire::control::Control,
};
use std::{future::Future, sync::Mutex};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

/// Control frames that wait to be written to one peer. They are small; a peer that lets so many pile up is
/// closed. A rank that is lost, or leaves, can cost two frames for each communicator at once.
const MAX_CONTROL_QUEUE: usize = 4 * MAX_GROUPS;

/// What a control stream is to write.
pub(super) enum Outgoing {
    Frame(Control),
    /// The end of the stream; to be reported once the peer has everything.
    End(oneshot::Sender<()>),
}

/// Whether a rank still takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It does.
    Here,
    /// It said goodbye.
    Left,
    /// It died.
    Lost,
}

pub(super) struct Peer<C> {
    pub(super) connection: C,
    control: mpsc::Sender<Outgoing>,
    /// When it was heard of last, and whether it has ever said anything: it does so once it has reached all others
    /// itself, which may take it as long as joining may.
    heard: Mutex<(Instant, bool)>,
    presence: Mutex<Presence>,
    /// Whether it has confirmed this rank's goodbye or left as well (true), or was lost before (false).
    confirmed: watch::Sender<Option<bool>>,
}

impl<C: Connection> Peer<C> {
    /// The shared part, and the part that the connection's tasks own.
    pub(super) fn split<T: Transport<Connection = C>>(
        link: Option<Link<T>>,
    ) -> (Option<Self>, Option<LinkParts<T>>) {
        let Some(link) = link else {
            return (None, None);
        };
        let (control, queue) = mpsc::channel(MAX_CONTROL_QUEUE);
        let peer = Peer {
            connection: link.new.connection.clone(),
            control,
            heard: Mutex::new((Instant::now(), false)),
            presence: Mutex::new(Presence::Here),
            confirmed: watch::channel(None).0,
        };
        (Some(peer), Some((link, queue)))
    }

    /// Queues a frame; whether it could be.
    pub(super) fn send(&self, frame: Control) -> bool {
        match self.control.try_send(Outgoing::Frame(frame)) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.connection
                    .close(CLOSE_PROTOCOL, "does not read its control stream");
                false
            }
        }
    }

    /// Ends the control stream; resolves once the peer has everything, or cannot get it.
    pub(super) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        let (done, wait) = oneshot::channel();
        let queued = self.control.try_send(Outgoing::End(done)).is_ok();
        async move {
            if queued {
                let _ = wait.await;
            }
        }
    }

    pub(super) fn presence(&self) -> Presence {
        *lock(&self.presence)
    }

    /// Records that the rank is gone; false if it was gone before.
    pub(super) fn set_presence(&self, presence: Presence) -> bool {
        let mut current = lock(&self.presence);
        if *current != Presence::Here {
            return false;
        }
        *current = presence;
        drop(current);
        self.confirm(presence == Presence::Left);
        true
    }

    pub(super) fn set_heard(&self) {
        *lock(&self.heard) = (Instant::now(), true);
    }

    /// Begins the count of its silence anew.
    pub(super) fn forgive_silence(&self) {
        lock(&self.heard).0 = Instant::now();
    }

    pub(super) fn heard(&self) -> Instant {
        lock(&self.heard).0
    }

    pub(super) fn has_spoken(&self) -> bool {
        lock(&self.heard).1
    }

    /// Only the first word counts.
    pub(super) fn confirm(&self, confirmed: bool) {
        self.confirmed.send_if_modified(|known| {
            let news = known.is_none();
            known.get_or_insert(confirmed);
            news
        });
    }

    /// Waits until the rank has confirmed this rank's goodbye or left as well (true), or is lost (false).
    pub(super) fn confirmed(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut confirmed = self.confirmed.subscribe();
        async move {
            let known = confirmed.wait_for(Option::is_some).await;
            known.is_ok_and(|known| *known == Some(true))
        }
    }
}
