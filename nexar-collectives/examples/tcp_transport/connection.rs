//! A connection: its handles, and the task that reads and writes its frames.
//!
//! # Bounds
//!
//! A data frame costs its length and [`OVERHEAD`], so that many small writes take no more memory than few
//! large ones. The sender spends credit of the stream and of the connection, and waits when it has none; both
//! come back once the receiving application has taken the frame. So at most [`STREAM_WINDOW`] of a stream
//! and [`CONNECTION_WINDOW`] of a direction of a connection are anywhere between the applications, queues
//! included. At most [`MAX_STREAMS`] of each kind are open in each direction. A peer that makes anything
//! else grow breaks the protocol and is cut off.

use crate::{
    frame::{BI, Frame, OVERHEAD, StreamId, UNI, What, violation},
    stream::{TcpRecvStream, TcpSendStream},
    table::{Halves, Table},
};
use bytes::Bytes;
use nexar_core::transport::{
    BiAcceptor, Connection, ConnectionError, ConnectionStats, NewConnection, PeerId, UniAcceptor,
};
use std::{
    collections::HashSet,
    fmt, io,
    net::SocketAddr,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncWriteExt, BufReader, BufWriter},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    sync::{Semaphore, SetOnce, mpsc, watch},
};

pub(crate) const STREAM_WINDOW: u64 = 1 << 20;
pub(crate) const CONNECTION_WINDOW: u64 = 8 << 20;
pub(crate) const MAX_STREAMS: usize = 256;

/// More frames than can wait for half of a stream while the peer keeps to the protocol.
pub(crate) const MAX_EVENTS: usize = (STREAM_WINDOW / OVERHEAD) as usize + 8;

/// More frames than can wait to be written while the peer keeps to the protocol: data, credit, and a few
/// about each stream.
const MAX_QUEUED: usize = 2 * (CONNECTION_WINDOW / OVERHEAD) as usize + 64 * MAX_STREAMS;

/// How long a connection that was closed here waits until the peer has read everything and closes it, too.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);

/// Code for the peer that breaks the protocol.
const VIOLATION: u64 = 1;

/// A code and a reason for the peer.
pub(crate) type Close = (u64, String);

/// What the handles and the task of a connection share.
pub(crate) struct Shared {
    peer: PeerId,
    remote: SocketAddr,
    /// Why the connection is over, and what the peer is told. Only the first end counts.
    end: SetOnce<(ConnectionError, Option<Close>)>,
    /// Frames to be written.
    frames: mpsc::Sender<Frame>,
    /// How many streams of each kind this side may still open.
    places: [Semaphore; 2],
    credit: Mutex<Credit>,
    /// None once the connection is over. Frames are handed over under this lock, which wakes tasks:
    /// nothing that may run then, such as the drop of a stream, takes it.
    table: Mutex<Option<Table>>,
}

/// What this side may still send.
struct Credit {
    left: u64,
    /// The streams that have not found enough.
    blocked: HashSet<StreamId>,
}

/// Locks also after a panic elsewhere: whenever a lock is released, what it protects is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the handles do.
impl Shared {
    /// Why the connection is over.
    pub(crate) fn error(&self) -> ConnectionError {
        let end = self.end.get().map(|(error, _)| error.clone());
        end.unwrap_or(ConnectionError::Reset)
    }

    /// Hands a frame to the task.
    pub(crate) fn post(&self, frame: Frame) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.frames.try_send(frame) {
            self.fail(violation("nothing is read"));
        }
    }

    /// Takes `cost` off the credit of the connection. Where there is not enough, the stream is told when
    /// there is more.
    pub(crate) fn spend(&self, id: StreamId, cost: u64) -> bool {
        let mut credit = lock(&self.credit);
        if credit.left < cost {
            credit.blocked.insert(id);
            return false;
        }
        credit.left -= cost;
        true
    }

    /// Opens a stream. The peer learns of it by its first frame, and gives the place back when it has ended.
    async fn open(&self, kind: usize) -> Result<Halves, ConnectionError> {
        let place = self.places[kind].acquire().await;
        match (place, &mut *lock(&self.table)) {
            (Ok(place), Some(table)) if self.end.get().is_none() => {
                place.forget();
                Ok(table.open(kind))
            }
            _ => Err(self.error()),
        }
    }

    fn close(&self, code: u64, reason: &str) {
        let farewell = Some((code, reason.chars().take(1000).collect()));
        let _ = self.end.set((ConnectionError::ClosedLocally, farewell));
    }
}

/// What all handles of a connection hold. With the last of them the connection is closed.
pub(crate) struct Held(Arc<Shared>);

impl Deref for Held {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.close(0, "");
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.peer).finish()
    }
}

/// The handles of a bidirectional stream.
fn both(held: &Arc<Held>, halves: Halves) -> (TcpSendStream, TcpRecvStream) {
    let send = TcpSendStream::new(held, halves.id, halves.send);
    (send, TcpRecvStream::new(held, halves.id, halves.recv))
}

/// A connection to one peer.
#[derive(Debug, Clone)]
pub(crate) struct TcpConnection(Arc<Held>);

impl Connection for TcpConnection {
    type SendStream = TcpSendStream;
    type RecvStream = TcpRecvStream;
    type UniAcceptor = TcpAcceptor;
    type BiAcceptor = TcpAcceptor;

    async fn open_uni(&self) -> Result<TcpSendStream, ConnectionError> {
        let halves = self.0.open(UNI).await?;
        Ok(TcpSendStream::new(&self.0, halves.id, halves.send))
    }

    async fn open_bi(&self) -> Result<(TcpSendStream, TcpRecvStream), ConnectionError> {
        Ok(both(&self.0, self.0.open(BI).await?))
    }

    fn peer_identity(&self) -> &PeerId {
        &self.0.peer
    }

    fn remote_addr(&self) -> SocketAddr {
        self.0.remote
    }

    fn close(&self, code: u64, reason: &str) {
        self.0.close(code, reason);
    }

    async fn closed(&self) -> ConnectionError {
        self.0.end.wait().await.0.clone()
    }

    /// Counts nothing.
    fn stats(&self) -> ConnectionStats {
        ConnectionStats::default()
    }
}

/// Yields the streams of one kind that the peer opens.
#[derive(Debug)]
pub(crate) struct TcpAcceptor(Arc<Held>, mpsc::UnboundedReceiver<Halves>);

impl TcpAcceptor {
    async fn next(&mut self) -> Result<Halves, ConnectionError> {
        self.1.recv().await.ok_or_else(|| self.0.error())
    }
}

impl UniAcceptor for TcpAcceptor {
    type RecvStream = TcpRecvStream;

    async fn accept(&mut self) -> Result<TcpRecvStream, ConnectionError> {
        let halves = self.next().await?;
        Ok(TcpRecvStream::new(&self.0, halves.id, halves.recv))
    }
}

impl BiAcceptor for TcpAcceptor {
    type SendStream = TcpSendStream;
    type RecvStream = TcpRecvStream;

    async fn accept(&mut self) -> Result<(TcpSendStream, TcpRecvStream), ConnectionError> {
        let halves = self.next().await?;
        Ok(both(&self.0, halves))
    }
}

/// The two directions of a TCP connection.
pub(crate) struct Socket {
    pub(crate) read: BufReader<OwnedReadHalf>,
    pub(crate) write: BufWriter<OwnedWriteHalf>,
}

/// Starts the task of a connection on the current runtime, and returns its handles.
pub(crate) fn start(
    socket: Socket,
    by_dialler: bool,
    (peer, remote): (PeerId, SocketAddr),
    closing: watch::Receiver<Option<Close>>,
) -> NewConnection<TcpConnection> {
    let (frames, queue) = mpsc::channel(MAX_QUEUED);
    let (to_uni, uni) = mpsc::unbounded_channel();
    let (to_bi, bi) = mpsc::unbounded_channel();
    let table = Table::new(by_dialler, frames.clone(), [to_uni, to_bi]);
    let credit = Credit {
        left: CONNECTION_WINDOW,
        blocked: HashSet::new(),
    };
    let shared = Arc::new(Shared {
        peer,
        remote,
        end: SetOnce::new(),
        frames,
        places: [MAX_STREAMS; 2].map(Semaphore::new),
        credit: Mutex::new(credit),
        table: Mutex::new(Some(table)),
    });
    let held = Arc::new(Held(Arc::clone(&shared)));
    tokio::spawn(Task(shared).run(socket, queue, closing));
    NewConnection {
        connection: TcpConnection(Arc::clone(&held)),
        uni: TcpAcceptor(Arc::clone(&held), uni),
        bi: TcpAcceptor(held, bi),
    }
}

/// Nobody is left waiting when the task ends early, with its runtime.
struct Task(Arc<Shared>);

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.0.end.set((ConnectionError::EndpointClosed, None));
        self.0.let_go();
    }
}

impl Task {
    async fn run(
        self,
        socket: Socket,
        queue: mpsc::Receiver<Frame>,
        mut closing: watch::Receiver<Option<Close>>,
    ) {
        let shared = &*self.0;
        let read = shared.read_frames(socket.read);
        let write = shared.write_frames(queue, socket.write);
        let time_limit = async {
            tokio::select! {
                _ = shared.end.wait() => {}
                Ok(close) = closing.wait_for(Option::is_some) => {
                    close.iter().for_each(|(code, reason)| shared.close(*code, reason));
                }
            }
            shared.let_go();
            tokio::time::sleep(FAREWELL).await;
        };
        tokio::select! {
            _ = async { tokio::join!(read, write) } => {}
            () = time_limit => {}
        }
    }
}

/// What the task does.
impl Shared {
    fn fail(&self, error: io::Error) {
        let _ = self.end.set(match error.kind() {
            io::ErrorKind::InvalidData => {
                let farewell = Some((VIOLATION, error.to_string()));
                (ConnectionError::Backend(Arc::new(error)), farewell)
            }
            _ => (ConnectionError::Reset, None),
        });
    }

    /// The connection is over: whatever waits fails.
    fn let_go(&self) {
        let table = lock(&self.table).take();
        drop(table);
        self.places.iter().for_each(Semaphore::close);
    }

    async fn read_frames(&self, mut from: BufReader<OwnedReadHalf>) {
        while self.end.get().is_none() {
            let frame = Frame::read(&mut from).await;
            if let Err(error) = frame.and_then(|frame| self.take(frame)) {
                self.fail(error);
            }
        }
        // A socket that is closed with unread data takes back what it has sent, the farewell included. So
        // everything is read until the peer closes it, too.
        let _ = tokio::io::copy_buf(&mut from, &mut tokio::io::sink()).await;
    }

    /// Does what a frame from the peer says.
    fn take(&self, frame: Frame) -> io::Result<()> {
        let mut table = lock(&self.table);
        let Some(table) = &mut *table else {
            return Ok(());
        };
        match frame.what {
            What::Close => {
                let (code, reason) = (frame.value, String::from_utf8_lossy(&frame.body).into());
                let error = ConnectionError::ClosedByPeer { code, reason };
                let _ = self.end.set((error, None));
            }
            What::Ended => {
                let places = &self.places[frame.id.kind()];
                if places.available_permits() >= MAX_STREAMS {
                    return Err(violation("a stream ended that was not opened"));
                }
                places.add_permits(1);
            }
            What::Credit => {
                let mut credit = lock(&self.credit);
                let left = credit.left.checked_add(frame.value);
                let left = left.filter(|left| *left <= CONNECTION_WINDOW);
                credit.left = left.ok_or_else(|| violation("more credit than data"))?;
                let blocked = std::mem::take(&mut credit.blocked);
                drop(credit);
                table.take(frame)?;
                // They look again, whatever they are told.
                for id in blocked {
                    table.tell_sender(Frame::new(What::Credit, id, 0, Bytes::new()))?;
                }
            }
            _ => table.take(frame)?,
        }
        Ok(())
    }

    async fn write_frames(
        &self,
        mut queue: mpsc::Receiver<Frame>,
        mut to: BufWriter<OwnedWriteHalf>,
    ) -> io::Result<()> {
        loop {
            let frame = tokio::select! {
                biased;
                _ = self.end.wait() => break,
                Some(frame) = queue.recv() => frame,
            };
            if let Some(table) = &mut *lock(&self.table)
                && let Err(error) = table.note(&frame)
            {
                self.fail(error);
            }
            frame.write(&mut to).await?;
            if queue.is_empty() {
                to.flush().await?;
            }
        }
        if let Some((_, Some((code, reason)))) = self.end.get() {
            let close = Frame::new(What::Close, StreamId(0), *code, reason.clone());
            close.write(&mut to).await?;
        }
        to.shutdown().await
    }
}
