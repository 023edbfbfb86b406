//! Connections and the acceptors of their streams.

use super::{
    congestion::Closing,
    credit::Credit,
    error,
    settings::Setup,
    stream::{QuinnRecvStream, QuinnSendStream},
};
use crate::driver::Drivers;
use nexar_core::transport::{
    BiAcceptor, Connection, ConnectionError, ConnectionStats, NewConnection, PeerId, UniAcceptor,
};
use rustls::pki_types::CertificateDer;
use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

/// A connection over quinn.
#[derive(Clone)]
pub struct QuinnConnection {
    connection: quinn::Connection,
    peer: PeerId,
    /// How the connection ended, as it was first seen: quinn forgets that at a later close on this side.
    end: Arc<OnceLock<ConnectionError>>,
    closing: Closing,
    credit: Arc<Credit>,
}

impl QuinnConnection {
    /// Wraps an established connection; its certificate must name the peer.
    pub(super) fn new(
        connection: quinn::Connection,
        setup: Setup,
        drivers: &Arc<Drivers>,
    ) -> Result<Self, ConnectionError> {
        let chain = connection.peer_identity();
        let chain = chain.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        match chain.and_then(|chain| crate::identity::peer_id(&chain)) {
            Some(peer) => {
                let credit = Credit::new(connection.clone(), setup.window, drivers);
                Ok(QuinnConnection {
                    connection,
                    peer,
                    end: Arc::default(),
                    closing: setup.closing,
                    credit,
                })
            }
            None => {
                let reason = "the certificate names nobody";
                connection.close(error::code(0), reason.as_bytes());
                Err(ConnectionError::Refused {
                    reason: reason.to_owned(),
                })
            }
        }
    }

    /// The reason for the end that was seen first, which may be this one.
    fn ended(&self, end: quinn::ConnectionError) -> ConnectionError {
        self.end.get_or_init(|| error::connection(end)).clone()
    }

    pub(super) fn split(self) -> NewConnection<QuinnConnection> {
        let uni = QuinnUniAcceptor(self.clone());
        let bi = QuinnBiAcceptor(self.clone());
        NewConnection {
            connection: self,
            uni,
            bi,
        }
    }
}

impl fmt::Debug for QuinnConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuinnConnection")
            .field("peer", &self.peer)
            .field("remote", &self.remote_addr())
            .finish_non_exhaustive()
    }
}

impl Connection for QuinnConnection {
    type SendStream = QuinnSendStream;
    type RecvStream = QuinnRecvStream;
    type UniAcceptor = QuinnUniAcceptor;
    type BiAcceptor = QuinnBiAcceptor;

    async fn open_uni(&self) -> Result<QuinnSendStream, ConnectionError> {
        let stream = self
            .connection
            .open_uni()
            .await
            .map_err(|end| self.ended(end))?;
        Ok(QuinnSendStream::new(stream))
    }

    async fn open_bi(&self) -> Result<(QuinnSendStream, QuinnRecvStream), ConnectionError> {
        let (send, recv) = self
            .connection
            .open_bi()
            .await
            .map_err(|end| self.ended(end))?;
        Ok((
            QuinnSendStream::new(send),
            QuinnRecvStream::new(recv, self.credit.clone()),
        ))
    }

    fn peer_identity(&self) -> &PeerId {
        &self.peer
    }

    fn remote_addr(&self) -> SocketAddr {
        let address = self.connection.remote_address();
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    fn close(&self, code: u64, reason: &str) {
        match self.connection.close_reason() {
            Some(end) => drop(self.ended(end)),
            None => {
                self.closing.set();
                self.connection.close(error::code(code), reason.as_bytes());
            }
        }
    }

    async fn closed(&self) -> ConnectionError {
        self.ended(self.connection.closed().await)
    }

    fn stats(&self) -> ConnectionStats {
        let quinn = self.connection.stats();
        let mut stats = ConnectionStats::default();
        stats.rtt = quinn.path.rtt;
        stats.lost_packets = quinn.path.lost_packets;
        stats.sent_bytes = quinn.udp_tx.bytes;
        stats.received_bytes = quinn.udp_rx.bytes;
        stats.mtu = quinn.path.current_mtu;
        stats
    }
}

/// Yields the unidirectional streams of a [`QuinnConnection`].
pub struct QuinnUniAcceptor(QuinnConnection);

impl fmt::Debug for QuinnUniAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuinnUniAcceptor")
    }
}

impl UniAcceptor for QuinnUniAcceptor {
    type RecvStream = QuinnRecvStream;

    async fn accept(&mut self) -> Result<QuinnRecvStream, ConnectionError> {
        let stream = self
            .0
            .connection
            .accept_uni()
            .await
            .map_err(|end| self.0.ended(end))?;
        Ok(QuinnRecvStream::new(stream, self.0.credit.clone()))
    }
}

/// Yields the bidirectional streams of a [`QuinnConnection`].
pub struct QuinnBiAcceptor(QuinnConnection);

impl fmt::Debug for QuinnBiAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuinnBiAcceptor")
    }
}

impl BiAcceptor for QuinnBiAcceptor {
    type SendStream = QuinnSendStream;
    type RecvStream = QuinnRecvStream;

    async fn accept(&mut self) -> Result<(QuinnSendStream, QuinnRecvStream), ConnectionError> {
        let (send, recv) = self
            .0
            .connection
            .accept_bi()
            .await
            .map_err(|end| self.0.ended(end))?;
        Ok((
            QuinnSendStream::new(send),
            QuinnRecvStream::new(recv, self.0.credit.clone()),
        ))
    }
}
