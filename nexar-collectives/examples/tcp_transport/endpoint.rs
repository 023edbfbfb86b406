//! An endpoint: it listens, dials, and introduces itself to whoever it meets.

use crate::{
    connection::{Close, FAREWELL, Socket, TcpConnection, start},
    frame::{Frame, StreamId, What, violation},
};
use nexar_core::{
    task::run_on,
    transport::{Capabilities, ConnectionError, NewConnection, PeerId, Transport},
};
use std::{future::Future, io, net::SocketAddr, sync::Arc, thread, time::Duration};
use tokio::{
    io::{AsyncWriteExt, BufReader, BufWriter},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Handle},
    sync::{Mutex, SetOnce, mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

/// In a hello in place of the stream, to tell a peer from a process that speaks something else. The last byte
/// is the version of the protocol.
const MAGIC: StreamId = StreamId(u64::from_be_bytes(*b"nexrTCP1"));

/// How long it may take to reach a peer and to introduce oneself.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Handshakes with diallers that run at a time; further diallers wait.
const MAX_HANDSHAKES: usize = 256;

/// Connections that wait to be accepted; the handshakes of further ones wait.
const MAX_BACKLOG: usize = 256;

type NewTcp = NewConnection<TcpConnection>;
type Backlog = mpsc::Sender<NewTcp>;

const NOT_LOOPBACK: &str =
    "this transport authenticates nobody, so it takes loopback addresses only";

/// A transport over TCP, **without authentication and without encryption**: every process on this machine can
/// claim to be any peer. It refuses all addresses but loopback.
#[derive(Debug)]
pub(crate) struct TcpTransport {
    endpoint: Arc<Endpoint>,
    runtime: Handle,
    accepted: Mutex<mpsc::Receiver<NewTcp>>,
}

#[derive(Debug)]
struct Endpoint {
    identity: PeerId,
    address: SocketAddr,
    /// Tells everybody that the endpoint closes. Each connection's task keeps a receiver, so that it
    /// also tells when the last of them has ended.
    closing: watch::Sender<Option<Close>>,
    /// Set when the endpoint's thread has nothing left to do.
    closed: SetOnce<()>,
}

impl TcpTransport {
    /// Listens on `address`, which must be loopback, and claims to be `identity`.
    pub(crate) fn bind(address: SocketAddr, identity: PeerId) -> Result<Self, ConnectionError> {
        Self::listen(address, identity).map_err(|source| ConnectionError::Bind {
            address,
            source: Arc::new(source),
        })
    }

    fn listen(address: SocketAddr, identity: PeerId) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            return Err(io::Error::other(NOT_LOOPBACK));
        }
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let endpoint = Arc::new(Endpoint {
            identity,
            address: listener.local_addr()?,
            closing: watch::Sender::new(None),
            closed: SetOnce::new(),
        });
        let (backlog, accepted) = mpsc::channel(MAX_BACKLOG);
        let task = Arc::clone(&endpoint).run(listener, backlog);
        // On a thread of its own, however busy the application keeps its own ones. The thread makes the
        // runtime, since none may be dropped on a thread of another.
        let (ready, built) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("tcp-transport".into());
        thread.spawn(
            move || match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let _ = ready.send(Ok(runtime.handle().clone()));
                    runtime.block_on(task);
                }
                Err(error) => drop(ready.send(Err(error))),
            },
        )?;
        let runtime = built.recv().map_err(io::Error::other)??;
        Ok(TcpTransport {
            endpoint,
            runtime,
            accepted: Mutex::new(accepted),
        })
    }
}

impl Transport for TcpTransport {
    type Connection = TcpConnection;

    fn name(&self) -> &str {
        "tcp"
    }

    /// No priorities, and **nobody is authenticated**.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(false, false)
    }

    fn identity(&self) -> &PeerId {
        &self.endpoint.identity
    }

    fn local_addr(&self) -> SocketAddr {
        self.endpoint.address
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&PeerId>,
    ) -> Result<NewTcp, ConnectionError> {
        // A socket belongs to the runtime on which it is made.
        let dial = Arc::clone(&self.endpoint).dial(address, expected.cloned());
        let dialled = run_on(&self.runtime, dial).await;
        dialled.unwrap_or(Err(ConnectionError::EndpointClosed))
    }

    async fn accept(&self) -> Option<NewTcp> {
        let next = async { self.accepted.lock().await.recv().await };
        self.endpoint.unless_closed(next).await.flatten()
    }

    async fn close(&self, code: u64, reason: &str) {
        self.endpoint.begin_to_close(code, reason);
        // The time limit is over there: whoever waits here may have no timers.
        self.endpoint.closed.wait().await;
    }

    fn background(&self) -> &Handle {
        &self.runtime
    }
}

/// Closes the endpoint and its connections without waiting.
impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.endpoint.begin_to_close(0, "");
    }
}

impl Endpoint {
    fn begin_to_close(&self, code: u64, reason: &str) {
        self.closing.send_if_modified(|closing| {
            let first = closing.is_none();
            closing.get_or_insert_with(|| (code, reason.to_owned()));
            first
        });
    }

    async fn unless_closed<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            biased;
            _ = closing.wait_for(Option::is_some) => None,
            output = future => Some(output),
        }
    }

    /// Meets a peer, unless the endpoint closes first or it takes too long.
    async fn in_time(
        &self,
        meeting: impl Future<Output = Result<NewTcp, ConnectionError>>,
    ) -> Result<NewTcp, ConnectionError> {
        match self.unless_closed(timeout(HANDSHAKE, meeting)).await {
            Some(Ok(met)) => met,
            Some(Err(_)) => Err(ConnectionError::TimedOut),
            None => Err(ConnectionError::EndpointClosed),
        }
    }

    /// What the endpoint's thread does. Whatever else runs on it ends with it.
    async fn run(self: Arc<Self>, listener: std::net::TcpListener, backlog: Backlog) {
        match TcpListener::from_std(listener) {
            Ok(listener) => drop(self.unless_closed(self.serve(listener, backlog)).await),
            Err(error) => tracing::error!(%error, "cannot listen"),
        }
        let _ = timeout(2 * FAREWELL, self.closing.closed()).await;
        let _ = self.closed.set(());
    }

    async fn serve(self: &Arc<Self>, listener: TcpListener, backlog: Backlog) {
        let mut handshakes = JoinSet::new();
        loop {
            tokio::select! {
                dialler = listener.accept(), if handshakes.len() < MAX_HANDSHAKES => match dialler {
                    Ok((dialler, from)) => {
                        handshakes.spawn(Arc::clone(self).answer(dialler, from, backlog.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = handshakes.join_next() => {}
            }
        }
    }

    async fn answer(self: Arc<Self>, dialler: TcpStream, from: SocketAddr, backlog: Backlog) {
        let meeting = self.meet(dialler, from, false, None);
        match self.in_time(meeting).await {
            Ok(new) => drop(backlog.send(new).await),
            Err(error) => tracing::debug!(%from, %error, "dialler refused"),
        }
    }

    async fn dial(
        self: Arc<Self>,
        address: SocketAddr,
        expected: Option<PeerId>,
    ) -> Result<NewTcp, ConnectionError> {
        let unreachable = |reason: String| ConnectionError::Unreachable { address, reason };
        if !address.ip().is_loopback() {
            return Err(unreachable(NOT_LOOPBACK.into()));
        }
        let meeting = async {
            let stream = TcpStream::connect(address).await;
            let stream = stream.map_err(|error| unreachable(error.to_string()))?;
            self.meet(stream, address, true, expected).await
        };
        self.in_time(meeting).await
    }

    /// Exchanges hellos. The one who was dialled begins, so that nothing is said to the wrong one.
    async fn meet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        dialled: bool,
        expected: Option<PeerId>,
    ) -> Result<NewTcp, ConnectionError> {
        let refused = |error: io::Error| ConnectionError::Refused {
            reason: error.to_string(),
        };
        stream.set_nodelay(true).map_err(refused)?;
        let (read, write) = stream.into_split();
        let (read, write) = (BufReader::new(read), BufWriter::new(write));
        let mut socket = Socket { read, write };
        if !dialled {
            self.introduce(&mut socket).await.map_err(refused)?;
        }
        let (found, port) = hear(&mut socket).await.map_err(refused)?;
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(ConnectionError::WrongPeer { expected, found });
        }
        if dialled {
            self.introduce(&mut socket).await.map_err(refused)?;
        }
        // Not the port from which it has dialled, but the one on which it is reached.
        let remote = SocketAddr::new(address.ip(), port);
        let closing = self.closing.subscribe();
        Ok(start(socket, dialled, (found, remote), closing))
    }

    async fn introduce(&self, socket: &mut Socket) -> io::Result<()> {
        let (port, name) = (self.address.port().into(), self.identity.to_string());
        let hello = Frame::new(What::Hello, MAGIC, port, name);
        hello.write(&mut socket.write).await?;
        socket.write.flush().await
    }
}

/// Who the peer says that it is, and on which port it listens.
async fn hear(socket: &mut Socket) -> io::Result<(PeerId, u16)> {
    let hello = Frame::read(&mut socket.read).await?;
    let name = std::str::from_utf8(&hello.body);
    match (name, u16::try_from(hello.value)) {
        (Ok(name), Ok(port)) if hello.what == What::Hello && hello.id == MAGIC => {
            Ok((PeerId::new(name), port))
        }
        _ => Err(violation("it speaks another protocol")),
    }
}
