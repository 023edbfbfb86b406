//! Incoming connections, sorted by what they want.

use super::{Link, RecvOf, SendOf};
use crate::{
    error::RefuseReason,
    transport::{BiAcceptor, Connection, NewConnection, SendStream, Transport},
    wire::{
        self, MAX_JOIN_FRAME,
        join::{Answer, Hello, Join, Opening},
    },
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::timeout,
};

/// How long a connection may take to say what it wants.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// How long telling a process that it is refused may take: a seed that gives up waits for it.
const REFUSAL_LIMIT: Duration = Duration::from_millis(600);

/// How long a process that has been told may take to close the connection itself.
pub(super) const LET_GO: Duration = Duration::from_millis(200);

/// Connections that have not yet said what they want, or wait to be dealt with; more are closed at once.
const MAX_GREETINGS: usize = 4096;

/// Largest opening frame: everything in it is small.
const MAX_OPENING: usize = 4 << 10;

/// Code with which connections are closed that do not speak the protocol.
const CLOSE_PROTOCOL: u64 = 2;

/// A connection that has said what it wants, with the stream on which it is to be answered.
pub(crate) struct Greeting<T: Transport, O> {
    pub(crate) link: Link<T>,
    pub(crate) opening: O,
}

impl<T: Transport> Link<T> {
    /// Sends `reason` and lets the connection go once it has arrived.
    pub(crate) async fn refuse(self, reason: RefuseReason) {
        let Link {
            new,
            mut send,
            recv,
        } = self;
        let told = async {
            wire::write_frame(&mut send, &Answer::Refuse(reason), MAX_JOIN_FRAME).await?;
            send.finish()?;
            send.acked().await?;
            Ok::<_, wire::FrameError>(())
        };
        if let Ok(Ok(())) = timeout(REFUSAL_LIMIT, told).await {
            // The other side closes once it has read the answer.
            let _ = timeout(LET_GO, new.connection.closed()).await;
        }
        drop(recv);
        new.connection.close(CLOSE_PROTOCOL, "refused");
    }
}

/// Accepts connections in the background for as long as it lives.
pub(crate) struct Listener<T: Transport> {
    pub(crate) joins: mpsc::Receiver<Greeting<T, Join>>,
    pub(crate) hellos: mpsc::Receiver<Greeting<T, Hello>>,
    task: JoinHandle<()>,
}

impl<T: Transport> Listener<T> {
    pub(crate) fn spawn(transport: &Arc<T>) -> Self {
        let (join_sender, joins) = mpsc::channel(16);
        let (hello_sender, hellos) = mpsc::channel(16);
        let task = transport.background().spawn(accept_all(
            Arc::clone(transport),
            join_sender,
            hello_sender,
        ));
        Listener {
            joins,
            hellos,
            task,
        }
    }
}

impl<T: Transport> Drop for Listener<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_all<T: Transport>(
    transport: Arc<T>,
    joins: mpsc::Sender<Greeting<T, Join>>,
    hellos: mpsc::Sender<Greeting<T, Hello>>,
) {
    let places = Arc::new(Semaphore::new(MAX_GREETINGS));
    let mut greetings = tokio::task::JoinSet::new();
    while let Some(new) = transport.accept().await {
        while greetings.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            new.connection
                .close(CLOSE_PROTOCOL, "too many connections at once");
            continue;
        };
        let (joins, hellos) = (joins.clone(), hellos.clone());
        greetings.spawn(async move {
            let connection = new.connection.clone();
            match timeout(GREETING_LIMIT, greet::<T>(new)).await {
                Ok(Ok((link, Opening::Join(opening)))) => {
                    let _ = joins.send(Greeting { link, opening }).await;
                }
                Ok(Ok((link, Opening::Hello(opening)))) => {
                    let _ = hellos.send(Greeting { link, opening }).await;
                }
                Ok(Err(error)) => {
                    let from = connection.remote_addr();
                    tracing::warn!(%from, %error, "connection closed: it did not say what it wants");
                    connection.close(CLOSE_PROTOCOL, "protocol violation");
                }
                Err(_) => connection.close(CLOSE_PROTOCOL, "nothing was said"),
            }
            drop(place);
        });
    }
}

type Streams<T> = (SendOf<T>, RecvOf<T>);

async fn greet<T: Transport>(
    mut new: NewConnection<T::Connection>,
) -> Result<(Link<T>, Opening), wire::FrameError> {
    let (send, mut recv): Streams<T> = new
        .bi
        .accept()
        .await
        .map_err(crate::transport::StreamError::from)?;
    let opening = wire::read_frame(&mut recv, MAX_OPENING)
        .await?
        .ok_or(wire::WireError::Malformed("opening"))?;
    Ok((Link { new, send, recv }, opening))
}
