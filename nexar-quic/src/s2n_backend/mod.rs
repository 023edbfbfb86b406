//! The transport on s2n-quic.

mod closing;
mod connection;
mod credit;
mod error;
mod event_loop;
mod events;
mod handshakes;
mod ids;
mod inbox;
mod link;
mod outbox;
mod settings;
mod stream;

pub use connection::{S2nQuicBiAcceptor, S2nQuicConnection, S2nQuicUniAcceptor};
pub use stream::{S2nQuicRecvStream, S2nQuicSendStream};

use crate::{
    Config,
    background::Background,
    driver::{Drivers, Socket},
    socket,
};
use event_loop::EventLoop;
use handshakes::{Handshakes, Pending};
use nexar_core::transport::{Capabilities, ConnectionError, NewConnection, PeerId, Transport};
use std::{fmt, net::SocketAddr, sync::Arc};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc, watch},
    time::timeout,
};

/// A QUIC endpoint built on s2n-quic.
///
/// It has one UDP socket and one background thread, which keeps its connections going whenever no task
/// of the application waits inside [`drive`](Transport::drive). It needs no runtime from the application:
/// all its futures can be polled by any executor. It speaks the same protocol as
/// [`QuinnTransport`](crate::QuinnTransport), and each can dial the other.
///
/// Feature `s2n-quic`. Where it differs: streams have no priorities; [`Config::send_window`] bounds each stream,
/// and what all streams of a connection have taken and not yet sent is bounded by 64 MiB;
/// [`Config::connection_window`] is a ninth larger than configured, since freed room is announced in steps of a
/// tenth; congestion control is Cubic on all paths; no client has to prove its address before its handshake, and
/// one whose first packet is refused (another protocol version) is not told; data that has arrived is readable
/// after the peer has closed the connection, but not after the connection has died of silence; a side that reads
/// everything and closes at once may leave the other without the acknowledgement; if the packet that closes a
/// connection is lost, the peer may learn of it from the idle timeout only; of a reason to close, 128 bytes are
/// sent, and of no more than 256 different ones in a process.
///
/// Dropping it closes it with code 0 in the background; [`close`](Transport::close) also waits until the
/// peers have been told.
///
/// ```
/// use nexar_core::transport::{Connection, RecvStream, SendStream, Transport, UniAcceptor};
/// use nexar_quic::{Config, Identity, S2nQuicTransport};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let any_port = "127.0.0.1:0".parse()?;
/// let a = S2nQuicTransport::bind(Config::new(Identity::insecure_loopback("job")?, any_port))?;
/// let b = S2nQuicTransport::bind(Config::new(Identity::insecure_loopback("job")?, any_port))?;
///
/// let dialled = a.connect(b.local_addr(), None).await?;
/// let mut send = dialled.connection.open_uni().await?;
/// send.write_all("hello".into()).await?;
/// send.finish()?;
///
/// let mut accepted = b.accept().await.ok_or("closed")?;
/// let mut recv = accepted.uni.accept().await?;
/// assert_eq!(recv.read(100).await?.as_deref(), Some(&b"hello"[..]));
///
/// a.close(0, "done").await;
/// b.close(0, "done").await;
/// # Ok(())
/// # }
/// ```
pub struct S2nQuicTransport {
    handshakes: Arc<Handshakes>,
    ready: Mutex<mpsc::Receiver<Pending>>,
    closed: watch::Sender<bool>,
    idle: watch::Receiver<bool>,
    local: SocketAddr,
    drivers: Arc<Drivers>,
    background: Background,
}

impl S2nQuicTransport {
    /// Binds the socket, starts the background thread and begins to take connections. Does not block
    /// beyond the start of the thread, and needs no runtime.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Bind`] if the address is in use, does not exist, or is not a loopback address
    /// while there is no secret; [`ConnectionError::Backend`] if a thread cannot be started.
    pub fn bind(config: Config) -> Result<Self, ConnectionError> {
        crate::allocator::keep_freed_memory();
        let socket = socket::bind(&config)?;
        let local = socket.local_addr().map_err(error::backend)?;
        let background = Background::start("nexar-s2n-quic").map_err(error::backend)?;
        let socket = Arc::new(Socket::new(socket).map_err(error::backend)?);
        let drivers = Drivers::start(socket.clone(), config.spin, background.handle())
            .map_err(error::backend)?;
        let (handshakes, server, machines) = Handshakes::start(config, local)?;
        let (idle_sender, idle) = watch::channel(true);
        let event_loop = EventLoop::new(machines, socket, drivers.clone(), idle_sender);
        drivers.spawn(Box::pin(event_loop));
        let (finished, ready) = mpsc::channel(crate::settings::MAX_PENDING);
        let handshakes = Arc::new(handshakes);
        background
            .handle()
            .spawn(handshakes.clone().serve(server, finished));
        Ok(S2nQuicTransport {
            handshakes,
            ready: Mutex::new(ready),
            closed: watch::Sender::new(false),
            idle,
            local,
            drivers,
            background,
        })
    }

    /// Closes everything at once and lets the background thread end when the peers know.
    fn shut_down(&self, code: u64, reason: &str) {
        self.closed.send_replace(true);
        self.handshakes.close(code, reason);
        let mut idle = self.idle.clone();
        self.background.stop(async move {
            let told = timeout(crate::settings::CLOSE_WAIT, idle.wait_for(|idle| *idle)).await;
            if told.is_err() {
                tracing::debug!("some peers did not take notice of the close in time");
            }
        });
    }
}

impl fmt::Debug for S2nQuicTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S2nQuicTransport")
            .field("identity", self.identity())
            .field("local_addr", &self.local)
            .finish_non_exhaustive()
    }
}

impl Drop for S2nQuicTransport {
    fn drop(&mut self) {
        self.shut_down(0, "dropped");
    }
}

impl Transport for S2nQuicTransport {
    type Connection = S2nQuicConnection;

    fn name(&self) -> &str {
        "s2n-quic"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(false, true)
    }

    fn identity(&self) -> &PeerId {
        self.handshakes.identity()
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&PeerId>,
    ) -> Result<NewConnection<S2nQuicConnection>, ConnectionError> {
        if *self.closed.borrow() {
            return Err(ConnectionError::EndpointClosed);
        }
        // On the background runtime, whose timers it needs.
        let dial = self.handshakes.clone().dial(address, expected.cloned());
        let dialled = self.background.run(dial).await;
        dialled
            .ok_or(ConnectionError::EndpointClosed)?
            .map(S2nQuicConnection::split)
    }

    async fn accept(&self) -> Option<NewConnection<S2nQuicConnection>> {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => None,
            pending = async { self.ready.lock().await.recv().await } => {
                pending.map(|pending| pending.accept().split())
            }
        }
    }

    async fn close(&self, code: u64, reason: &str) {
        self.shut_down(code, reason);
        self.background.stopped().await;
    }

    fn background(&self) -> &Handle {
        self.background.handle()
    }

    async fn drive<F: Future + Send>(&self, future: F) -> F::Output {
        self.drivers.drive(future).await
    }
}
