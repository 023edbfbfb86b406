//! Errors of everything above the transport.

use crate::{Call, UnsupportedReduction, rpc::RpcFailure, transport::ConnectionError};
use serde::{Deserialize, Serialize};
use std::{error::Error as StdError, fmt, net::SocketAddr, sync::Arc, time::Duration};

/// The result of a nexar call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong.
///
/// The variants say at which stage; three methods say what to do about it:
///
/// | failure of an operation | [`is_peer_failure`] | [`failed_ranks`] | what to do |
/// |---|---|---|---|
/// | a rank died or was cut off ([`Failure::PeerLost`]) | yes | that rank | end, or form a new group without it |
/// | a rank left ([`Failure::PeerLeft`]) | yes | that rank | end: it makes fewer calls than this rank |
/// | different calls ([`Failure::Mismatch`]) | no | the two that noticed, one of which may be right | mend the program |
/// | time limit ([`Failure::TimedOut`]) | no | those that have not made the call, and those whose device is late | find out why they are late |
/// | a rank gave up ([`Failure::Aborted`]) | no | that rank | see its own error |
///
/// A failed operation may have completed on some ranks before it failed on others, so that ranks can differ
/// by one operation: compare steps before going on from a checkpoint.
///
/// ```
/// use nexar_core::Error;
///
/// fn explain(error: &Error) -> String {
///     if error.is_peer_failure() {
///         format!("go on without ranks {:?}", error.failed_ranks())
///     } else if error.is_retryable() {
///         format!("try again: {error}")
///     } else {
///         format!("give up: {error}")
///     }
/// }
/// # let error = Error::NotConfirmed { ranks: vec![3] };
/// # assert!(explain(&error).starts_with("give up"));
/// ```
///
/// [`is_peer_failure`]: Error::is_peer_failure
/// [`failed_ranks`]: Error::failed_ranks
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is missing or does not make sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The group could not be formed.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The local endpoint failed, outside any operation.
    #[error("{doing}: {source}")]
    Connection {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: ConnectionError,
    },
    /// An operation on a communicator failed.
    #[error(transparent)]
    Operation(#[from] Box<OperationError>),
    /// One message could not be sent or received; the communicator goes on.
    #[error(transparent)]
    Message(#[from] Box<crate::messaging::MessageError>),
    /// A remote call failed; unless its cause is a [`Failure`], the communicator goes on.
    #[error(transparent)]
    Rpc(#[from] Box<crate::rpc::RpcError>),
    /// The reduction is not defined for the element type. Nothing was sent.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedReduction),
    /// An argument of a call does not make sense. Nothing was sent.
    #[error("{operation}: {reason}")]
    InvalidArgument {
        /// The call.
        operation: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Memory of a device cannot be reached. Nothing was sent.
    #[error("{operation}: {source}")]
    Device {
        /// The call, or what else was to be done.
        operation: &'static str,
        /// What the device adapter says.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// A clean leave could not be confirmed: these ranks may not have everything that was sent to them. Ranks that were
    /// known to be gone before are not among them.
    #[error("left, but ranks {ranks:?} did not confirm that they have everything that was sent")]
    NotConfirmed {
        /// The ranks without confirmation.
        ranks: Vec<usize>,
    },
}

/// The message, as [`Display`](fmt::Display) gives it: a `main` that returns this error prints its `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Whether the cause is a rank that died, left or stopped answering, so that the survivors may go on
    /// without it.
    pub fn is_peer_failure(&self) -> bool {
        let peer = |failure: &Failure| {
            matches!(failure, Failure::PeerLost { .. } | Failure::PeerLeft { .. })
        };
        self.failure().is_some_and(peer)
    }

    /// The failure of the communicator, where that is the cause.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Operation(error) => Some(&error.failure),
            Error::Rpc(error) => match &error.cause {
                RpcFailure::Failed { failure } => Some(failure),
                _ => None,
            },
            _ => None,
        }
    }

    /// The ranks at fault, as far as they are known; numbered in the communicator of the operation.
    pub fn failed_ranks(&self) -> Vec<usize> {
        if let Some(failure) = self.failure() {
            return failure.ranks();
        }
        match self {
            Error::Join(JoinError::Missing { ranks, .. }) => ranks.clone(),
            Error::NotConfirmed { ranks } => ranks.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether the same call may succeed when it is simply made again: while forming, when somebody was
    /// late. An operation that failed has made its communicator unusable, so it is not retryable.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Join(
                JoinError::Missing { .. }
                    | JoinError::NotFormed { .. }
                    | JoinError::SeedUnreachable { .. }
            )
        )
    }
}

/// A setting that is missing or does not make sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct ConfigError {
    /// The environment variable or builder method.
    pub setting: String,
    /// What is wrong with its value, and what it should be.
    pub reason: String,
}

impl ConfigError {
    /// An error about `setting`.
    pub fn new(setting: impl Into<String>, reason: impl Into<String>) -> Self {
        ConfigError {
            setting: setting.into(),
            reason: reason.into(),
        }
    }
}

/// Why a group could not be formed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The time limit passed and some ranks had not come.
    #[error(
        "ranks {ranks:?} of {world_size} did not join within {} s{}",
        .limit.as_secs_f32(),
        in_brackets(.notes)
    )]
    Missing {
        /// The ranks that were waited for.
        ranks: Vec<usize>,
        /// Ranks in all.
        world_size: usize,
        /// The time limit.
        limit: Duration,
        /// What may explain who is missing: processes that were turned away, and where this rank looked for
        /// the missing ones with what came of it. At most 16 of each.
        notes: Vec<String>,
    },
    /// The seed answered, and then neither formed the group nor said who is missing.
    #[error(
        "the seed at {address} answered, but did not form the group within {} s: {last}",
        .limit.as_secs_f32()
    )]
    NotFormed {
        /// The address that was dialled.
        address: SocketAddr,
        /// The time limit.
        limit: Duration,
        /// What is known of the seed.
        last: String,
    },
    /// Nobody answered at the seed's address within the time limit.
    #[error("no seed answered at {address} within {} s: {last} (rank 0 serves it, or a process with NEXAR_SEED_ROLE=host)", .limit.as_secs_f32())]
    SeedUnreachable {
        /// The address that was dialled.
        address: SocketAddr,
        /// The time limit.
        limit: Duration,
        /// The last failure.
        last: String,
    },
    /// The seed, or a rank, was reached and turned this process away.
    #[error("{by} refused this process: {reason}")]
    Refused {
        /// Who.
        by: String,
        /// Why.
        reason: RefuseReason,
    },
    /// This process is the seed and gave up because two processes contradict each other.
    #[error("the group cannot form: {reason} (process at {address})")]
    Conflict {
        /// Where the contradicting process runs.
        address: SocketAddr,
        /// What the contradiction is.
        reason: RefuseReason,
    },
    /// A connection that the group needs failed for a reason that waiting does not mend.
    #[error("connecting to {whom} at {address}: {source}")]
    Connect {
        /// The seed, or a rank.
        whom: String,
        /// Its address.
        address: SocketAddr,
        /// Why.
        source: ConnectionError,
    },
    /// The other side does not speak the protocol.
    #[error("protocol violation by {whom}: {what}")]
    Protocol {
        /// The other side.
        whom: String,
        /// What it did.
        what: String,
    },
}

fn in_brackets(notes: &[String]) -> String {
    if notes.is_empty() {
        String::new()
    } else {
        format!(" ({})", notes.join("; "))
    }
}

/// Why a process was turned away from a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RefuseReason {
    /// Another version of the protocol.
    #[error("protocol version {theirs} instead of {ours}: use the same nexar release on all ranks")]
    Version {
        /// That of the process turned away.
        theirs: u16,
        /// That of the seed.
        ours: u16,
    },
    /// Another job's process came to this job's port.
    #[error("it belongs to job '{theirs}', this is job '{ours}'")]
    Job {
        /// That of the process turned away.
        theirs: String,
        /// That of the seed.
        ours: String,
    },
    /// Two world sizes.
    #[error("world size {theirs} instead of {ours}: NEXAR_WORLD_SIZE must be equal on all ranks")]
    WorldSize {
        /// That of the process turned away.
        theirs: u32,
        /// That of the seed.
        ours: u32,
    },
    /// Two detection times: the ranks would take each other for dead.
    #[error(
        "detection time {theirs_ms} ms instead of {ours_ms} ms: NEXAR_DETECTION_SECS must be equal on all ranks"
    )]
    Detection {
        /// That of the process turned away.
        theirs_ms: u64,
        /// That of those who came before.
        ours_ms: u64,
    },
    /// The rank does not exist in this world.
    #[error("rank {rank} does not exist in a world of {world_size}")]
    RankOutOfRange {
        /// The rank asked for.
        rank: u32,
        /// The world size.
        world_size: u32,
    },
    /// Two living processes claim one rank.
    #[error("rank {rank} is claimed by two processes: NEXAR_RANK must be unique")]
    DuplicateRank {
        /// The rank.
        rank: u32,
    },
    /// All ranks are taken.
    #[error("the group has formed already; another job may be using this seed address")]
    AlreadyFormed,
    /// The group gave up waiting.
    #[error("ranks {ranks:?} did not join within {limit_ms} ms")]
    Missing {
        /// The missing ranks.
        ranks: Vec<u32>,
        /// The time limit in milliseconds.
        limit_ms: u64,
    },
    /// The seed gave up because of somebody else.
    #[error("the group cannot form: {0}")]
    Conflict(String),
    /// The connection is not for this group or not from the expected process.
    #[error("the connection does not belong to this group")]
    Stranger,
}

/// Why an operation, and with it its communicator, failed. It is the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Failure {
    /// A rank died, or nothing was heard from it within the detection time.
    PeerLost {
        /// The rank.
        rank: usize,
        /// How it was noticed.
        reason: String,
    },
    /// A rank left the communicator and does not take part in this operation.
    PeerLeft {
        /// The rank.
        rank: usize,
    },
    /// Two ranks made different calls.
    Mismatch {
        /// A rank and its call.
        first: (usize, Box<Call>),
        /// Another rank and its call.
        second: (usize, Box<Call>),
    },
    /// The time limit of the operation passed.
    TimedOut {
        /// The limit.
        limit: Duration,
        /// The ranks that have not entered the operation, where that is known.
        missing: Vec<usize>,
        /// The ranks that wait for their device, where that is known: for the work on a buffer's stream, or for a copy.
        waiting_for_device: Vec<usize>,
    },
    /// A rank gave up: its future was dropped, or it failed locally.
    Aborted {
        /// The rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// A rank sent something that breaks the protocol.
    Protocol {
        /// The rank.
        rank: usize,
        /// What it sent.
        what: String,
    },
    /// This rank shut the communicator down.
    ShutDown,
}

impl Failure {
    /// A mismatch of two ranks' calls, the lower rank first, so that it reads the same on every rank.
    pub fn mismatch(ours: (usize, Call), theirs: (usize, Call)) -> Failure {
        let (first, second) = if ours.0 <= theirs.0 {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        Failure::Mismatch {
            first: (first.0, Box::new(first.1)),
            second: (second.0, Box::new(second.1)),
        }
    }

    /// The ranks at fault, numbered in the communicator.
    pub fn ranks(&self) -> Vec<usize> {
        match self {
            Failure::PeerLost { rank, .. }
            | Failure::PeerLeft { rank }
            | Failure::Aborted { rank, .. }
            | Failure::Protocol { rank, .. } => vec![*rank],
            Failure::Mismatch { first, second } => vec![first.0, second.0],
            Failure::TimedOut {
                missing,
                waiting_for_device,
                ..
            } => {
                let others = waiting_for_device.iter().filter(|r| !missing.contains(r));
                missing.iter().chain(others).copied().collect()
            }
            Failure::ShutDown => Vec::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::PeerLost { rank, reason } => write!(f, "rank {rank} is lost: {reason}"),
            Failure::PeerLeft { rank } => write!(f, "rank {rank} has left"),
            Failure::Mismatch { first, second } => write!(
                f,
                "mismatch: rank {} calls {}, rank {} calls {}",
                first.0, first.1, second.0, second.1
            ),
            Failure::TimedOut {
                limit,
                missing,
                waiting_for_device,
            } => {
                write!(f, "timed out after {} s", limit.as_secs_f32())?;
                if missing.is_empty() && waiting_for_device.is_empty() {
                    f.write_str(", though every rank has entered the operation")?;
                }
                if !missing.is_empty() {
                    write!(f, ", ranks {missing:?} have not entered the operation")?;
                }
                if !waiting_for_device.is_empty() {
                    write!(f, ", ranks {waiting_for_device:?} wait for their device")?;
                }
                Ok(())
            }
            Failure::Aborted { rank, reason } => write!(f, "aborted by rank {rank}: {reason}"),
            Failure::Protocol { rank, what } => {
                write!(f, "protocol violation by rank {rank}: {what}")
            }
            Failure::ShutDown => f.write_str("the communicator is shut down"),
        }
    }
}

/// An operation that failed on a communicator.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OperationError {
    /// The name of the call, such as `all_reduce`.
    pub operation: &'static str,
    /// Its number on the communicator, where it has one.
    pub sequence: Option<u64>,
    /// The communicator.
    pub communicator: u64,
    /// This rank.
    pub rank: usize,
    /// What happened, the same on every rank.
    pub failure: Failure,
}

impl OperationError {
    /// An error of `operation` on this rank.
    pub fn new(
        operation: &'static str,
        sequence: Option<u64>,
        communicator: u64,
        rank: usize,
        failure: Failure,
    ) -> Self {
        OperationError {
            operation,
            sequence,
            communicator,
            rank,
            failure,
        }
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(sequence) = self.sequence {
            write!(f, " #{sequence}")?;
        }
        write!(
            f,
            " on communicator {}, rank {}: {}",
            self.communicator, self.rank, self.failure
        )
    }
}

impl std::error::Error for OperationError {}
