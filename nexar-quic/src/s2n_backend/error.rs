//! s2n-quic's errors in the terms of the core.

use crate::tls::{RefusedBy, refusal};
use nexar_core::transport::ConnectionError;
use s2n_quic::{application, connection, provider::event::Location};
use std::{error::Error as StdError, fmt, sync::Arc};

/// First of the 256 transport error codes that carry a TLS alert.
const CRYPTO_ERROR: u64 = 0x100;
const CONNECTION_REFUSED: u64 = 0x02;

/// An application's code as QUIC can carry it: 62 bits.
pub(super) fn code(code: u64) -> application::Error {
    const MAX: u64 = (1 << 62) - 1;
    application::Error::new(code.min(MAX)).unwrap_or(application::Error::UNKNOWN)
}

pub(super) fn backend(error: impl StdError + Send + Sync + 'static) -> ConnectionError {
    ConnectionError::Backend(Arc::new(error))
}

/// For errors of s2n-quic that can only be shown.
pub(super) fn text(error: impl fmt::Display) -> ConnectionError {
    ConnectionError::Backend(Arc::new(std::io::Error::other(error.to_string())))
}

pub(super) fn connection(error: connection::Error) -> ConnectionError {
    use connection::Error as S;
    let for_now = |code, reason: &str| ConnectionError::ClosedByPeer {
        code,
        reason: reason.into(),
    };
    match error {
        S::Closed { initiator, .. } => match initiator {
            Location::Local => ConnectionError::ClosedLocally,
            Location::Remote => ended_by_peer(),
        },
        S::Application {
            error, initiator, ..
        } => match initiator {
            Location::Local => ConnectionError::ClosedLocally,
            Location::Remote => for_now(*error, ""),
        },
        S::Transport {
            code,
            reason,
            initiator,
            ..
        } => {
            let code = code.as_u64();
            let by = match initiator {
                Location::Local => RefusedBy::Us,
                Location::Remote => RefusedBy::Peer,
            };
            let alert = code
                .checked_sub(CRYPTO_ERROR)
                .and_then(|alert| u8::try_from(alert).ok());
            match alert {
                Some(alert) => ConnectionError::Refused {
                    reason: refusal(by, alert, reason),
                },
                None if code == CONNECTION_REFUSED => {
                    for_now(code, "it takes no connections, it may be shutting down")
                }
                None => backend(error),
            }
        }
        S::StatelessReset { .. } => ConnectionError::Reset,
        S::IdleTimerExpired { .. } | S::MaxHandshakeDurationExceeded { .. } => {
            ConnectionError::TimedOut
        }
        S::EndpointClosing { .. } => ConnectionError::EndpointClosed,
        other => backend(other),
    }
}

/// The peer closed the connection without saying why: it has dropped it.
pub(super) fn ended_by_peer() -> ConnectionError {
    ConnectionError::ClosedByPeer {
        code: 0,
        reason: "it ended the connection".into(),
    }
}
