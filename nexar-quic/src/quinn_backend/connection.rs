//! Connections and the acceptors of their streams.

use super::{
    error,
    stream::{QuinnRecvStream, QuinnSendStream},
};
use nexar_core::transport::{
    BiAcceptor, Connection, ConnectionError, ConnectionStats, NewConnection, PeerId, UniAcceptor,
};
use rustls::pki_types::CertificateDer;
use std::{fmt, net::SocketAddr};

/// A connection over quinn.
#[derive(Clone)]
pub struct QuinnConnection {
    connection: quinn::Connection,
    peer: PeerId,
}

impl QuinnConnection {
    /// Wraps an established connection; its certificate must name the peer.
    pub(super) fn new(connection: quinn::Connection) -> Result<Self, ConnectionError> {
        let chain = connection.peer_identity();
        let chain = chain.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        match chain.and_then(|chain| crate::identity::peer_id(&chain)) {
            Some(peer) => Ok(QuinnConnection { connection, peer }),
            None => {
                let reason = "the certificate names nobody";
                connection.close(error::code(0), reason.as_bytes());
                Err(ConnectionError::Refused {
                    reason: reason.to_owned(),
                })
            }
        }
    }

    pub(super) fn split(self) -> NewConnection<QuinnConnection> {
        let uni = QuinnUniAcceptor(self.connection.clone());
        let bi = QuinnBiAcceptor(self.connection.clone());
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
            .map_err(error::connection)?;
        Ok(QuinnSendStream::new(stream))
    }

    async fn open_bi(&self) -> Result<(QuinnSendStream, QuinnRecvStream), ConnectionError> {
        let (send, recv) = self.connection.open_bi().await.map_err(error::connection)?;
        Ok((QuinnSendStream::new(send), QuinnRecvStream::new(recv)))
    }

    fn peer_identity(&self) -> &PeerId {
        &self.peer
    }

    fn remote_addr(&self) -> SocketAddr {
        let address = self.connection.remote_address();
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    fn close(&self, code: u64, reason: &str) {
        self.connection.close(error::code(code), reason.as_bytes());
    }

    async fn closed(&self) -> ConnectionError {
        error::connection(self.connection.closed().await)
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
pub struct QuinnUniAcceptor(quinn::Connection);

impl fmt::Debug for QuinnUniAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuinnUniAcceptor")
    }
}

impl UniAcceptor for QuinnUniAcceptor {
    type RecvStream = QuinnRecvStream;

    async fn accept(&mut self) -> Result<QuinnRecvStream, ConnectionError> {
        let stream = self.0.accept_uni().await.map_err(error::connection)?;
        Ok(QuinnRecvStream::new(stream))
    }
}

/// Yields the bidirectional streams of a [`QuinnConnection`].
pub struct QuinnBiAcceptor(quinn::Connection);

impl fmt::Debug for QuinnBiAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuinnBiAcceptor")
    }
}

impl BiAcceptor for QuinnBiAcceptor {
    type SendStream = QuinnSendStream;
    type RecvStream = QuinnRecvStream;

    async fn accept(&mut self) -> Result<(QuinnSendStream, QuinnRecvStream), ConnectionError> {
        let (send, recv) = self.0.accept_bi().await.map_err(error::connection)?;
        Ok((QuinnSendStream::new(send), QuinnRecvStream::new(recv)))
    }
}
