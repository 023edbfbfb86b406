//! Handshakes in both directions.

use super::{
    closing::{CloseGuard, Reasons},
    connection::S2nQuicConnection,
    error,
    event_loop::{Capture, Machines},
    events::{EventContext, Events},
    ids::{Ids, Prefix, Prefixes, Resets},
    link::{Link, Links},
    settings::{self, Congestion, PathLimits, PathMtu},
};
use crate::{Config, refusals::RefusalLog, tls};
use nexar_core::transport::{Connection, ConnectionError, PeerId};
use s2n_quic::{Client, Server, client::Connect, provider::tls::rustls};
use std::{
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use tokio::{sync::mpsc, time::timeout};

/// A finished incoming handshake, which counts until somebody accepts it.
pub(super) struct Pending {
    connection: S2nQuicConnection,
    finished: Arc<AtomicUsize>,
}

impl Pending {
    fn new(connection: S2nQuicConnection, finished: Arc<AtomicUsize>) -> Self {
        finished.fetch_add(1, Ordering::Relaxed);
        Pending {
            connection,
            finished,
        }
    }

    pub(super) fn accept(&self) -> S2nQuicConnection {
        self.connection.clone()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.finished.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The endpoints of s2n-quic and what a handshake needs.
pub(super) struct Handshakes {
    config: Config,
    local: SocketAddr,
    client: Client,
    client_reasons: Reasons,
    server_reasons: Reasons,
    links: [Arc<Links>; 2],
    finished: Arc<AtomicUsize>,
    refusals: RefusalLog,
    closed: AtomicBool,
}

impl Handshakes {
    /// Builds both endpoints.
    pub(super) fn start(
        config: Config,
        local: SocketAddr,
    ) -> Result<(Self, Server, Machines), ConnectionError> {
        let prefixes = Prefixes::random()?;
        let limits = PathLimits::new(&config)?;
        let parts = Parts {
            config: &config,
            local,
            limits,
            server_reasons: Reasons::default(),
            client_reasons: Reasons::default(),
            finished: Arc::default(),
        };
        let (server, server_side) = parts.server(prefixes.server)?;
        let (client, client_side) = parts.client(prefixes.client)?;
        let machines = Machines {
            prefixes,
            server: server_side
                .0
                .take()
                .ok_or(ConnectionError::EndpointClosed)?,
            server_links: server_side.1.clone(),
            client: client_side
                .0
                .take()
                .ok_or(ConnectionError::EndpointClosed)?,
            client_links: client_side.1.clone(),
        };
        let Parts {
            finished,
            server_reasons,
            client_reasons,
            ..
        } = parts;
        let handshakes = Handshakes {
            local,
            client,
            client_reasons,
            server_reasons,
            links: [server_side.1, client_side.1],
            finished,
            refusals: RefusalLog::default(),
            closed: AtomicBool::new(false),
            config,
        };
        Ok((handshakes, server, machines))
    }

    pub(super) fn identity(&self) -> &PeerId {
        self.config.identity.peer_id()
    }

    /// Closes all connections, now and in future.
    pub(super) fn close(&self, code: u64, reason: &str) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        for links in &self.links {
            for inner in links.list().iter().filter_map(|link| link.inner()) {
                inner.close(code, reason);
            }
        }
    }

    /// Dials `address` and returns once the server has confirmed the handshake.
    pub(super) async fn dial(
        self: Arc<Self>,
        address: SocketAddr,
        expected: Option<PeerId>,
    ) -> Result<S2nQuicConnection, ConnectionError> {
        if let Some(reason) = self.config.identity.objection_to(address) {
            return Err(ConnectionError::Unreachable { address, reason });
        }
        let connect =
            Connect::new(reachable(self.local, address)?).with_server_name(tls::SERVER_NAME);
        let attempt = self.client.connect(connect);
        let handshake = async {
            let connection = attempt.await.map_err(error::connection)?;
            let link = link(&connection)?;
            link.confirmed().await?;
            self.wrap(connection, link, &self.client_reasons)
        };
        let connection = timeout(self.config.handshake_timeout, handshake)
            .await
            .map_err(|_| ConnectionError::TimedOut)??;
        match expected {
            Some(expected) if expected != *connection.peer_identity() => {
                connection.close(0, "dialled somebody else");
                let found = connection.peer_identity().clone();
                Err(ConnectionError::WrongPeer { expected, found })
            }
            _ => Ok(connection),
        }
    }

    /// Takes the connections of all clients until the endpoint is closed.
    pub(super) async fn serve(self: Arc<Self>, mut server: Server, ready: mpsc::Sender<Pending>) {
        while let Some(connection) = server.accept().await {
            let remote = connection.remote_addr();
            let accepted = link(&connection)
                .and_then(|link| self.wrap(connection, link, &self.server_reasons));
            match accepted {
                // One place for each: the queue cannot be full.
                Ok(connection) => {
                    drop(ready.try_send(Pending::new(connection, self.finished.clone())));
                }
                Err(error) => {
                    if let Ok(remote) = remote {
                        self.refusals.refused(remote, &error);
                    }
                }
            }
        }
    }

    fn wrap(
        &self,
        connection: s2n_quic::Connection,
        link: Arc<Link>,
        reasons: &Reasons,
    ) -> Result<S2nQuicConnection, ConnectionError> {
        let keep_alive = self.config.keep_alive.is_some();
        let connection = S2nQuicConnection::new(connection, link, reasons.clone(), keep_alive)?;
        if self.closed.load(Ordering::SeqCst) {
            connection.close(0, "closed");
            return Err(ConnectionError::EndpointClosed);
        }
        Ok(connection)
    }
}

fn link(connection: &s2n_quic::Connection) -> Result<Arc<Link>, ConnectionError> {
    connection
        .query_event_context(|context: &EventContext| context.link.clone())
        .map_err(error::text)
}

/// The address to dial as this socket knows it.
fn reachable(local: SocketAddr, address: SocketAddr) -> Result<SocketAddr, ConnectionError> {
    let unreachable = |reason: &str| ConnectionError::Unreachable {
        address,
        reason: reason.into(),
    };
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err(unreachable("port or address is 0"));
    }
    match (local, address) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => Ok(address),
        (SocketAddr::V4(_), SocketAddr::V6(v6)) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => Ok(SocketAddr::from((v4, v6.port()))),
            None => Err(unreachable("this endpoint is bound to an IPv4 address")),
        },
        (SocketAddr::V6(_), SocketAddr::V6(_)) => Ok(address),
        (SocketAddr::V6(local), SocketAddr::V4(v4)) if *local.ip() == Ipv6Addr::UNSPECIFIED => {
            let mapped = v4.ip().to_ipv6_mapped();
            Ok(SocketAddrV6::new(mapped, v4.port(), 0, 0).into())
        }
        (SocketAddr::V6(_), SocketAddr::V4(_)) => {
            Err(unreachable("this endpoint is bound to an IPv6 address"))
        }
    }
}

/// What both endpoints are built from.
struct Parts<'a> {
    config: &'a Config,
    local: SocketAddr,
    limits: PathLimits,
    server_reasons: Reasons,
    client_reasons: Reasons,
    finished: Arc<AtomicUsize>,
}

/// An endpoint without its type, and its connections.
type BuiltSide = (Capture, Arc<Links>);

impl Parts<'_> {
    #[allow(
        deprecated,
        reason = "the conversion is the only way to ask for client certificates"
    )]
    fn server(&self, prefix: Prefix) -> Result<(Server, BuiltSide), ConnectionError> {
        let config = self.config;
        let tls = tls::server_config(&config.identity).map_err(error::backend)?;
        let (io, links) = (
            Capture::new(self.local, PathMtu::largest()?),
            Arc::<Links>::default(),
        );
        let limits = settings::Handshakes {
            finished: self.finished.clone(),
        };
        let build = || -> Result<Server, Box<dyn std::error::Error + Send + Sync>> {
            Ok(Server::builder()
                .with_tls(rustls::Server::from(tls))?
                .with_io(io.clone())?
                .with_connection_id(Ids::new(prefix))?
                .with_stateless_reset_token(Resets::<true>::new(config, self.local)?)?
                .with_limits(self.limits.clone())?
                .with_mtu(PathMtu::new(config))?
                .with_congestion_controller(Congestion::new(config))?
                .with_event(Events::new(links.clone(), Some(RefusalLog::default())))?
                .with_packet_interceptor(CloseGuard(links.clone()))?
                .with_connection_close_formatter(self.server_reasons.clone())?
                .with_endpoint_limits(limits)?
                .start()?)
        };
        let server = build().map_err(error::text)?;
        Ok((server, (io, links)))
    }

    #[allow(
        deprecated,
        reason = "the conversion is the only way to show a client certificate"
    )]
    fn client(&self, prefix: Prefix) -> Result<(Client, BuiltSide), ConnectionError> {
        let config = self.config;
        let tls = tls::client_config(&config.identity).map_err(error::backend)?;
        let (io, links) = (
            Capture::new(self.local, PathMtu::largest()?),
            Arc::<Links>::default(),
        );
        let build = || -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
            Ok(Client::builder()
                .with_tls(rustls::Client::from(tls))?
                .with_io(io.clone())?
                .with_connection_id(Ids::new(prefix))?
                .with_stateless_reset_token(Resets::<false>::new(config, self.local)?)?
                .with_limits(self.limits.clone())?
                .with_mtu(PathMtu::new(config))?
                .with_congestion_controller(Congestion::new(config))?
                .with_event(Events::new(links.clone(), None))?
                .with_packet_interceptor(CloseGuard(links.clone()))?
                .with_connection_close_formatter(self.client_reasons.clone())?
                .start()?)
        };
        let client = build().map_err(error::text)?;
        Ok((client, (io, links)))
    }
}
