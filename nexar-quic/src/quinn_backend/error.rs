//! quinn's errors in the terms of the core.

use crate::tls::{RefusedBy, refusal};
use nexar_core::transport::{ConnectionError, StreamError};
use quinn::{ConnectError, ReadError, StoppedError, VarInt, WriteError};
use std::{error::Error as StdError, net::SocketAddr, sync::Arc};

/// First of the 256 transport error codes that carry a TLS alert.
const CRYPTO_ERROR: u64 = 0x100;
/// How s2n-quic ends a connection that nobody holds any more.
const NO_ERROR: u64 = 0x00;
const CONNECTION_REFUSED: u64 = 0x02;
/// How an application's close is reported while the handshake is not complete.
const APPLICATION_ERROR: u64 = 0x0c;

/// An application's code as QUIC can carry it: 62 bits.
pub(super) fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

pub(super) fn backend(error: impl StdError + Send + Sync + 'static) -> ConnectionError {
    ConnectionError::Backend(Arc::new(error))
}

pub(super) fn connection(error: quinn::ConnectionError) -> ConnectionError {
    use quinn::ConnectionError as Q;
    match error {
        Q::ApplicationClosed(close) => ConnectionError::ClosedByPeer {
            code: close.error_code.into_inner(),
            reason: String::from_utf8_lossy(&close.reason).into_owned(),
        },
        Q::LocallyClosed => ConnectionError::ClosedLocally,
        Q::TimedOut => ConnectionError::TimedOut,
        Q::Reset => ConnectionError::Reset,
        Q::VersionMismatch => ConnectionError::Refused {
            reason: "the peer speaks another version of QUIC".into(),
        },
        Q::TransportError(ref cause) => {
            let refused = refused(RefusedBy::Us, cause.code.into(), &cause.reason);
            refused.unwrap_or_else(|| backend(error))
        }
        Q::ConnectionClosed(ref close) => {
            let detail = String::from_utf8_lossy(&close.reason);
            let refused = refused(RefusedBy::Peer, close.error_code.into(), &detail);
            refused.unwrap_or_else(|| backend(error))
        }
        Q::CidsExhausted => backend(error),
    }
}

/// What a transport error means that is a refusal, for good or for now.
fn refused(by: RefusedBy, code: u64, detail: &str) -> Option<ConnectionError> {
    let for_now = |reason: &str| ConnectionError::ClosedByPeer {
        code,
        reason: reason.into(),
    };
    match code {
        NO_ERROR => Some(ConnectionError::ClosedByPeer {
            code: 0,
            reason: "it ended the connection".into(),
        }),
        CONNECTION_REFUSED => Some(for_now("it takes no connections, it may be shutting down")),
        APPLICATION_ERROR => Some(for_now("it ended the handshake")),
        _ => {
            let alert = u8::try_from(code.checked_sub(CRYPTO_ERROR)?).ok()?;
            let reason = refusal(by, alert, detail);
            Some(ConnectionError::Refused { reason })
        }
    }
}

pub(super) fn connect(error: ConnectError, address: SocketAddr) -> ConnectionError {
    match error {
        ConnectError::EndpointStopping => ConnectionError::EndpointClosed,
        ConnectError::InvalidRemoteAddress(_) => ConnectionError::Unreachable {
            address,
            reason: "this endpoint is bound to the other address family, or port or address is 0"
                .into(),
        },
        other => backend(other),
    }
}

pub(super) fn read(error: ReadError) -> StreamError {
    match error {
        ReadError::Reset(code) => StreamError::Reset {
            code: code.into_inner(),
        },
        ReadError::ConnectionLost(error) => connection(error).into(),
        ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
            StreamError::Closed
        }
    }
}

pub(super) fn write(error: WriteError) -> StreamError {
    match error {
        WriteError::Stopped(code) => StreamError::Stopped {
            code: code.into_inner(),
        },
        WriteError::ConnectionLost(error) => connection(error).into(),
        WriteError::ClosedStream | WriteError::ZeroRttRejected => StreamError::Closed,
    }
}

pub(super) fn stopped(error: StoppedError) -> StreamError {
    match error {
        StoppedError::ConnectionLost(error) => connection(error).into(),
        StoppedError::ZeroRttRejected => StreamError::Closed,
    }
}
