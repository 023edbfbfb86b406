//! What can go wrong with one call, without the communicator being the worse for it.

use crate::{
    Failure,
    wire::rpc::{FailureCode, MAX_TEXT},
};
use bytes::Bytes;
use std::{any::Any, fmt, time::Duration};

/// A remote call that failed. Unless the cause is [`RpcFailure::Failed`], its communicator goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RpcError {
    /// The name of the method.
    pub method: String,
    /// The rank that was called.
    pub callee: usize,
    /// The communicator.
    pub communicator: u64,
    /// This rank.
    pub rank: usize,
    /// What happened.
    pub cause: RpcFailure,
}

/// Why a remote call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RpcFailure {
    /// The callee has no method of this name. Register it before the first call can come, perhaps with a
    /// barrier in between.
    NoSuchMethod {
        /// Names of methods that it has and that are spelt alike, at most 3.
        similar: Vec<String>,
    },
    /// The method streams its reply, or does not, and the call expects the contrary.
    OtherKind {
        /// Whether the method streams.
        streams: bool,
    },
    /// The handler returned an error.
    Handler {
        /// The error, as it displays itself; at most 4 KiB.
        message: String,
    },
    /// The handler panicked. The callee goes on.
    Panicked {
        /// The panic's message; at most 4 KiB.
        message: String,
    },
    /// The time limit of the call passed.
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The call was cancelled.
    Cancelled,
    /// The request, the reply or an item is longer than one of both ranks allows.
    TooLarge {
        /// Its length in bytes.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// The request could not be encoded by the caller, or the reply by the callee.
    Encode {
        /// What went wrong.
        what: String,
    },
    /// The request could not be decoded by the callee, or the reply by the caller: both ranks must mean the
    /// same types.
    Decode {
        /// What went wrong.
        what: String,
    },
    /// The callee does not run handlers any more, or cannot run this one.
    NotServed {
        /// Why.
        reason: String,
    },
    /// The communicator has failed, so that all its calls do, or the callee has left.
    Failed {
        /// Why.
        failure: Failure,
    },
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RpcError {
            method,
            callee,
            communicator,
            rank,
            cause,
        } = self;
        write!(
            f,
            "call of '{method}' on rank {callee} (communicator {communicator}, rank {rank}): {cause}"
        )
    }
}

impl std::error::Error for RpcError {}

impl fmt::Display for RpcFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcFailure::NoSuchMethod { similar } if similar.is_empty() => {
                f.write_str("there is no such method")
            }
            RpcFailure::NoSuchMethod { similar } => {
                write!(
                    f,
                    "there is no such method; similar: {}",
                    similar.join(", ")
                )
            }
            RpcFailure::OtherKind { streams: true } => {
                f.write_str("the method streams its reply: use call_stream")
            }
            RpcFailure::OtherKind { streams: false } => {
                f.write_str("the method does not stream its reply: use call")
            }
            RpcFailure::Handler { message } => write!(f, "the handler failed: {message}"),
            RpcFailure::Panicked { message } => write!(f, "the handler panicked: {message}"),
            RpcFailure::TimedOut { limit } => {
                write!(f, "not answered within {} s", limit.as_secs_f32())
            }
            RpcFailure::Cancelled => f.write_str("cancelled"),
            RpcFailure::TooLarge { length, limit } => write!(
                f,
                "a body of {length} bytes is above the limit of {limit} (RpcOptions::max_body)"
            ),
            RpcFailure::Encode { what } => write!(f, "a body could not be encoded: {what}"),
            RpcFailure::Decode { what } => write!(f, "a body could not be decoded: {what}"),
            RpcFailure::NotServed { reason } => write!(f, "not served: {reason}"),
            RpcFailure::Failed { failure } => write!(f, "{failure}"),
        }
    }
}

/// Why a call ends without success, before it is known which call it is.
#[derive(Debug, Clone)]
pub(super) enum Cause {
    /// The communicator has failed, or the callee has left.
    Failed(Failure),
    /// Only this call.
    Rpc(RpcFailure),
    /// The time limit; the call knows it.
    TimedOut,
    /// At the callee: what the caller is to be told.
    Fault(Fault),
}

impl From<RpcFailure> for Cause {
    fn from(failure: RpcFailure) -> Self {
        Cause::Rpc(failure)
    }
}

/// A failure as it goes over the wire.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) code: FailureCode,
    pub(super) text: Bytes,
}

impl Fault {
    pub(super) fn new(code: FailureCode, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.len() > MAX_TEXT {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
        }
        let text = text.into();
        Fault { code, text }
    }

    pub(super) fn bare(code: FailureCode) -> Self {
        let text = Bytes::new();
        Fault { code, text }
    }

    pub(super) fn too_large(length: u64, limit: usize) -> Self {
        let text = [length.to_le_bytes(), (limit as u64).to_le_bytes()].concat();
        Fault {
            code: FailureCode::TooLarge,
            text: text.into(),
        }
    }

    pub(super) fn no_memory(length: usize) -> Self {
        let text = format!("there is no memory for a body of {length} bytes");
        Fault::new(FailureCode::NotServed, text)
    }

    pub(super) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Fault::new(
            FailureCode::Panicked,
            message.unwrap_or("without a message"),
        )
    }

    /// What the caller is told.
    pub(super) fn into_cause(self) -> Cause {
        let message = || String::from_utf8_lossy(&self.text).into_owned();
        let number = |at: usize| crate::wire::u64_at(&self.text, at);
        Cause::Rpc(match self.code {
            FailureCode::NoSuchMethod => RpcFailure::NoSuchMethod {
                similar: message().lines().map(str::to_owned).collect(),
            },
            FailureCode::Handler => RpcFailure::Handler { message: message() },
            FailureCode::Panicked => RpcFailure::Panicked { message: message() },
            FailureCode::TimedOut => return Cause::TimedOut,
            FailureCode::Cancelled => RpcFailure::Cancelled,
            FailureCode::TooLarge => RpcFailure::TooLarge {
                length: number(0),
                limit: number(8),
            },
            FailureCode::Decode => RpcFailure::Decode { what: message() },
            FailureCode::Encode => RpcFailure::Encode { what: message() },
            FailureCode::OtherKind => RpcFailure::OtherKind {
                streams: self.text.is_empty(),
            },
            FailureCode::NotServed => RpcFailure::NotServed { reason: message() },
        })
    }
}
