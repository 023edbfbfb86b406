//! The transport on quinn.

mod congestion;
mod connection;
mod credit;
mod endpoint;
mod error;
mod runtime;
mod settings;
mod stream;

pub use connection::{QuinnBiAcceptor, QuinnConnection, QuinnUniAcceptor};
pub use stream::{QuinnRecvStream, QuinnSendStream};

use crate::{
    Config, Identity,
    background::Background,
    driver::{Drivers, Socket},
    resets, socket,
};
use aws_lc_rs::hmac;
use endpoint::{Handshakes, Pending};
use nexar_core::transport::{Capabilities, ConnectionError, NewConnection, PeerId, Transport};
use quinn_proto::HashedConnectionIdGenerator;
use runtime::Runtime;
use std::{fmt, net::SocketAddr, sync::Arc};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc, watch},
    time::timeout,
};

/// A QUIC endpoint built on quinn.
///
/// It has one UDP socket and one background thread, which keeps its connections going whenever no task
/// of the application waits inside [`drive`](Transport::drive). It needs no runtime from the application:
/// all its futures can be polled by any executor.
///
/// Dropping it closes it with code 0 in the background; [`close`](Transport::close) also waits until the
/// peers have been told.
///
/// ```
/// use nexar_core::transport::{Connection, RecvStream, SendStream, Transport, UniAcceptor};
/// use nexar_quic::{Config, Identity, QuinnTransport};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let any_port = "127.0.0.1:0".parse()?;
/// let a = QuinnTransport::bind(Config::new(Identity::insecure_loopback("job")?, any_port))?;
/// let b = QuinnTransport::bind(Config::new(Identity::insecure_loopback("job")?, any_port))?;
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
pub struct QuinnTransport {
    endpoint: quinn::Endpoint,
    handshakes: Arc<Handshakes>,
    ready: Mutex<mpsc::Receiver<Pending>>,
    closed: watch::Sender<bool>,
    local: SocketAddr,
    drivers: Arc<Drivers>,
    background: Background,
}

impl QuinnTransport {
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
        let (server, client) = endpoint::crypto(&config)?;
        let background = Background::start("nexar-quinn").map_err(error::backend)?;
        let socket = Arc::new(Socket::new(socket).map_err(error::backend)?);
        let drivers = Drivers::start(socket.clone(), config.spin, background.handle())
            .map_err(error::backend)?;
        let endpoint = quinn::Endpoint::new_with_abstract_socket(
            endpoint_config(&config.identity, local)?,
            Some(server.clone()),
            socket,
            Arc::new(Runtime(drivers.clone())),
        )
        .map_err(error::backend)?;
        let handshakes = Arc::new(Handshakes::new(
            endpoint.clone(),
            config,
            server,
            client,
            drivers.clone(),
        ));
        let (finished, ready) = mpsc::channel(crate::settings::MAX_PENDING);
        background
            .handle()
            .spawn(handshakes.clone().serve(finished));
        let ready = Mutex::new(ready);
        let closed = watch::Sender::new(false);
        Ok(QuinnTransport {
            endpoint,
            handshakes,
            ready,
            closed,
            local,
            drivers,
            background,
        })
    }

    /// Closes everything at once and lets the background thread end when the peers know.
    fn shut_down(&self, code: u64, reason: &str) {
        self.closed.send_replace(true);
        self.handshakes.closing().set();
        self.endpoint.close(error::code(code), reason.as_bytes());
        let endpoint = self.endpoint.clone();
        self.background.stop(async move {
            let told = timeout(crate::settings::CLOSE_WAIT, endpoint.wait_idle()).await;
            if told.is_err() {
                tracing::debug!("some peers did not take notice of the close in time");
            }
        });
    }
}

impl fmt::Debug for QuinnTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuinnTransport")
            .field("identity", self.identity())
            .field("local_addr", &self.local)
            .finish_non_exhaustive()
    }
}

impl Drop for QuinnTransport {
    fn drop(&mut self) {
        self.shut_down(0, "dropped");
    }
}

impl Transport for QuinnTransport {
    type Connection = QuinnConnection;

    fn name(&self) -> &str {
        "quinn"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(true, true)
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
    ) -> Result<NewConnection<QuinnConnection>, ConnectionError> {
        // On the background runtime, whose timers it needs.
        let dial = self.handshakes.clone().dial(address, expected.cloned());
        let dialled = self.background.run(dial).await;
        dialled
            .ok_or(ConnectionError::EndpointClosed)?
            .map(QuinnConnection::split)
    }

    async fn accept(&self) -> Option<NewConnection<QuinnConnection>> {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => None,
            pending = async { self.ready.lock().await.recv().await } => {
                pending.map(|(connection, _slot)| connection.split())
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

/// The settings of the endpoint itself. Where there is a key for it, a process that is started again on the
/// same address recognises the connection IDs of the former one and resets them.
fn endpoint_config(
    identity: &Identity,
    local: SocketAddr,
) -> Result<quinn::EndpointConfig, ConnectionError> {
    let mut config = quinn::EndpointConfig::default();
    config
        .max_udp_payload_size(crate::settings::MAX_RECEIVED_DATAGRAM)
        .map_err(error::backend)?;
    let keys = (
        resets::key(identity, local, "reset"),
        resets::key(identity, local, "connection IDs"),
    );
    if let (Some(reset), Some(ids)) = keys {
        config.reset_key(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, reset.as_ref())));
        let ids = u64::from_le_bytes(ids.as_ref().first_chunk().copied().unwrap_or_default());
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
    }
    Ok(config)
}
