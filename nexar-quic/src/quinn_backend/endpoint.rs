//! Handshakes in both directions.

use super::{congestion::Closing, connection::QuinnConnection, error, settings::setup};
use crate::{Config, driver::Drivers, path::Path, refusals::RefusalLog, settings, tls};
use nexar_core::transport::{ConnectionError, PeerId};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use std::{fmt::Display, net::SocketAddr, sync::Arc};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};

/// A finished incoming handshake; the permit counts it until somebody accepts it.
pub(super) type Pending = (QuinnConnection, OwnedSemaphorePermit);

/// The quinn endpoint and what a handshake needs.
pub(super) struct Handshakes {
    endpoint: quinn::Endpoint,
    config: Config,
    server: quinn::ServerConfig,
    client: Arc<QuicClientConfig>,
    slots: Arc<Semaphore>,
    refusals: RefusalLog,
    closing: Closing,
    drivers: Arc<Drivers>,
}

/// The TLS side of both roles.
pub(super) fn crypto(
    config: &Config,
) -> Result<(quinn::ServerConfig, Arc<QuicClientConfig>), ConnectionError> {
    let server = tls::server_config(&config.identity).map_err(error::backend)?;
    let client = tls::client_config(&config.identity).map_err(error::backend)?;
    let server = QuicServerConfig::try_from(server).map_err(error::backend)?;
    let client = QuicClientConfig::try_from(client).map_err(error::backend)?;
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(server));
    // What is not yet a handshake here is at most this many first datagrams.
    server.max_incoming(4 * settings::MAX_PENDING);
    Ok((server, Arc::new(client)))
}

impl Handshakes {
    pub(super) fn new(
        endpoint: quinn::Endpoint,
        config: Config,
        server: quinn::ServerConfig,
        client: Arc<QuicClientConfig>,
        drivers: Arc<Drivers>,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(settings::MAX_PENDING));
        Handshakes {
            endpoint,
            config,
            server,
            client,
            slots,
            refusals: RefusalLog::default(),
            closing: Closing::default(),
            drivers,
        }
    }

    /// To be set before the endpoint is closed.
    pub(super) fn closing(&self) -> &Closing {
        &self.closing
    }

    pub(super) fn identity(&self) -> &PeerId {
        self.config.identity.peer_id()
    }

    /// Dials `address` and returns once the server has confirmed the handshake.
    pub(super) async fn dial(
        self: Arc<Self>,
        address: SocketAddr,
        expected: Option<PeerId>,
    ) -> Result<QuinnConnection, ConnectionError> {
        if let Some(reason) = self.config.identity.objection_to(address) {
            return Err(ConnectionError::Unreachable { address, reason });
        }
        let path = Path::to(address, self.config.profile);
        let mut client = quinn::ClientConfig::new(self.client.clone());
        let setup = setup(&self.config, path, &self.closing)?;
        client.transport_config(setup.transport.clone());
        let connecting = self
            .endpoint
            .connect_with(client, address, tls::SERVER_NAME)
            .map_err(|cause| error::connect(cause, address))?;
        let handshake = async {
            let connection = connecting.await?;
            confirmed(&connection).await?;
            Ok(connection)
        };
        let connection = timeout(self.config.handshake_timeout, handshake)
            .await
            .map_err(|_| ConnectionError::TimedOut)?
            .map_err(error::connection)?;
        let connection = QuinnConnection::new(connection, setup, &self.drivers)?;
        check_peer(&connection, expected)?;
        Ok(connection)
    }

    /// Runs the handshakes of all clients until the endpoint is closed.
    pub(super) async fn serve(self: Arc<Self>, ready: mpsc::Sender<Pending>) {
        while let Some(incoming) = self.endpoint.accept().await {
            let Ok(slot) = self.slots.clone().try_acquire_owned() else {
                incoming.ignore();
                continue;
            };
            let used = settings::MAX_PENDING - self.slots.available_permits();
            if used > settings::RETRY_ABOVE && !incoming.remote_address_validated() {
                // Without a validated address a retry is always possible.
                let _ = incoming.retry();
                continue;
            }
            let remote = incoming.remote_address();
            let (this, ready) = (self.clone(), ready.clone());
            tokio::spawn(async move {
                match this.answer(incoming).await {
                    // One place per permit: the queue cannot be full.
                    Ok(connection) => drop(ready.try_send((connection, slot))),
                    Err(ConnectionError::ClosedLocally) => {}
                    Err(cause) => this.refused(remote, &cause),
                }
            });
        }
    }

    async fn answer(&self, incoming: quinn::Incoming) -> Result<QuinnConnection, ConnectionError> {
        let path = Path::to(incoming.remote_address(), self.config.profile);
        let mut server = self.server.clone();
        let setup = setup(&self.config, path, &self.closing)?;
        server.transport_config(setup.transport.clone());
        let connecting = incoming
            .accept_with(Arc::new(server))
            .map_err(error::connection)?;
        let connection = timeout(self.config.handshake_timeout, connecting)
            .await
            .map_err(|_| ConnectionError::TimedOut)?
            .map_err(error::connection)?;
        QuinnConnection::new(connection, setup, &self.drivers)
    }

    fn refused(&self, remote: SocketAddr, cause: &dyn Display) {
        self.refusals.refused(remote, cause);
    }
}

fn check_peer(
    connection: &QuinnConnection,
    expected: Option<PeerId>,
) -> Result<(), ConnectionError> {
    use nexar_core::transport::Connection;
    match expected {
        Some(expected) if expected != *connection.peer_identity() => {
            connection.close(0, "dialled somebody else");
            let found = connection.peer_identity().clone();
            Err(ConnectionError::WrongPeer { expected, found })
        }
        _ => Ok(()),
    }
}

/// Waits until the server has confirmed the handshake. In TLS 1.3 the client is done before the server
/// has seen its certificate; only the server's HANDSHAKE_DONE says that it was accepted. quinn has no
/// event for it, but counts the frame.
async fn confirmed(connection: &quinn::Connection) -> Result<(), quinn::ConnectionError> {
    loop {
        // First of all: a server may accept the client and then close the connection.
        if connection.stats().frame_rx.handshake_done > 0 {
            return Ok(());
        }
        if let Some(error) = connection.close_reason() {
            return Err(error);
        }
        let _ = timeout(settings::CONFIRM_INTERVAL, connection.closed()).await;
    }
}
