//! Errors of connections and streams.

use super::PeerId;
use std::{error::Error as StdError, net::SocketAddr, sync::Arc};

/// Why a connection could not be made, or came to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer closed the connection, with the code and reason that its application gave.
    #[error("closed by the peer with code {code}: {reason}")]
    ClosedByPeer {
        /// The application's code.
        code: u64,
        /// The application's reason.
        reason: String,
    },
    /// This side closed the connection.
    #[error("closed on this side")]
    ClosedLocally,
    /// Nothing was heard from the peer within the idle or handshake time limit.
    #[error("timed out: nothing heard from the peer")]
    TimedOut,
    /// The peer does not know the connection any more, as after a restart.
    #[error("reset by the peer")]
    Reset,
    /// One side's certificate was not accepted by the other: another cluster secret, another CA, an
    /// expired certificate, or none.
    #[error("refused in the handshake: {reason}")]
    Refused {
        /// What the TLS stack said.
        reason: String,
    },
    /// The peer proved to be somebody else than the one that was dialled.
    #[error("expected {expected} but reached {found}")]
    WrongPeer {
        /// Whom the caller wanted.
        expected: PeerId,
        /// Who answered.
        found: PeerId,
    },
    /// The local address cannot be used.
    #[error("cannot bind {address}: {source}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// The address to dial cannot be used from this endpoint.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// The address that was dialled.
        address: SocketAddr,
        /// Why not.
        reason: String,
    },
    /// The local endpoint is closed.
    #[error("the local endpoint is closed")]
    EndpointClosed,
    /// Anything else that the backend reports.
    #[error("transport failure: {0}")]
    Backend(#[source] Arc<dyn StdError + Send + Sync>),
}

/// Why a stream cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The sender abandoned the stream.
    #[error("the sender reset the stream with code {code}")]
    Reset {
        /// The sender's code.
        code: u64,
    },
    /// The receiver wants no more data.
    #[error("the receiver stopped the stream with code {code}")]
    Stopped {
        /// The receiver's code.
        code: u64,
    },
    /// The stream ended in the middle of something.
    #[error("the stream ended before the message was complete")]
    UnexpectedEnd,
    /// This half was already finished, reset or stopped on this side.
    #[error("the stream is already closed on this side")]
    Closed,
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}
