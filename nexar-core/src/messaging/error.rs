//! What can go wrong with one message, without the communicator being the worse for it.

use super::{Source, Tag};
use crate::{DataType, Failure};
use std::{fmt, time::Duration};

/// A send, receive or probe that failed while its communicator goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageError {
    /// The name of the call, such as `recv_into`.
    pub operation: &'static str,
    /// The communicator.
    pub communicator: u64,
    /// This rank.
    pub rank: usize,
    /// The rank at the other end: the destination of a send, the source that a receive asked for.
    pub peer: Source,
    /// The tag.
    pub tag: Tag,
    /// What happened.
    pub cause: MessageFailure,
}

/// Why a send, receive or probe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageFailure {
    /// The message is longer than the receive allows. It has been discarded, and its send has succeeded;
    /// the next message of the tag is intact. [`probe`](super::Messenger::probe) tells the length
    /// beforehand.
    Truncated {
        /// Who sent it.
        source: usize,
        /// Its tag.
        tag: u64,
        /// Its element type; `None` for bare bytes.
        dtype: Option<DataType>,
        /// Its length in bytes, which is what a receive needs.
        length: usize,
        /// What this one allows, in bytes.
        capacity: usize,
    },
    /// The message has another element type than the receive. It has been discarded, and its send has succeeded; the
    /// next message of the tag is intact. [`probe`](super::Messenger::probe) tells the type beforehand.
    WrongType {
        /// Who sent it.
        source: usize,
        /// Its tag.
        tag: u64,
        /// Its element type; `None` for bare bytes.
        sent: Option<DataType>,
        /// That of the receive.
        expected: DataType,
    },
    /// The time limit of the operation passed.
    TimedOut {
        /// The limit.
        limit: Duration,
        /// What was waited for.
        waiting_for: WaitingFor,
    },
    /// The sender gave up when a part of the message had been handed to the visitor.
    Withdrawn {
        /// The sender.
        source: usize,
        /// The tag.
        tag: u64,
    },
    /// There is no memory for a message of this length. Where it was to be received, that can be done again;
    /// where a rank was to send it to itself, it was not sent.
    OutOfMemory {
        /// Its length in bytes.
        length: usize,
    },
    /// The memory where the body lies could not be read or written, such as that of a device. A message that was to be
    /// sent was not; one that was to be received can be received again, elsewhere.
    Device {
        /// What the device says.
        reason: String,
    },
}

/// What an operation waited for when its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitingFor {
    /// A send: room on the lane, which the peer did not read.
    Room,
    /// A send: a receive that takes the message.
    Receive,
    /// A send or receive: the rest of a message.
    Body,
    /// A receive or probe: a message.
    Message,
    /// A send or receive: the memory of this rank where the body lies, such as that of a device.
    Device,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageError {
            operation,
            communicator,
            rank,
            ..
        } = self;
        write!(
            f,
            "{operation} on communicator {communicator}, rank {rank}: "
        )?;
        match &self.cause {
            MessageFailure::Truncated {
                source,
                tag,
                dtype,
                length,
                capacity,
            } => {
                write!(f, "the message of tag {tag} from rank {source} has ")?;
                match dtype {
                    None => write!(f, "{length} bytes, more than the {capacity}")?,
                    Some(dtype) => {
                        let (count, room) = (length / dtype.size(), capacity / dtype.size());
                        write!(
                            f,
                            "{count} elements of {dtype} ({length} bytes), more than the {room}"
                        )?;
                    }
                }
                f.write_str(" that the receive allows; it was discarded")
            }
            MessageFailure::WrongType {
                source,
                tag,
                sent,
                expected,
            } => {
                let sent = sent.map_or("bare bytes", DataType::name);
                write!(
                    f,
                    "the message of tag {tag} from rank {source} is of {sent}, but the receive is of {expected}; \
                     it was discarded"
                )
            }
            MessageFailure::TimedOut { limit, waiting_for } => {
                self.write_waiting(f, *waiting_for)?;
                write!(f, " within {} s", limit.as_secs_f32())
            }
            MessageFailure::Withdrawn { source, tag } => write!(
                f,
                "rank {source} gave up sending the message of tag {tag} when a part had arrived"
            ),
            MessageFailure::OutOfMemory { length } => {
                write!(f, "there is no memory for a message of {length} bytes")
            }
            MessageFailure::Device { reason } => {
                let (peer, tag) = (DisplaySource(self.peer), DisplayTag(self.tag));
                write!(
                    f,
                    "the memory of the message failed ({peer}, {tag}): {reason}"
                )
            }
        }
    }
}

impl MessageError {
    fn write_waiting(&self, f: &mut fmt::Formatter<'_>, waiting_for: WaitingFor) -> fmt::Result {
        let peer = DisplaySource(self.peer);
        let tag = DisplayTag(self.tag);
        match waiting_for {
            WaitingFor::Room => write!(f, "{peer} did not read what was sent to it"),
            WaitingFor::Receive => write!(f, "no receive was posted by {peer} for {tag}"),
            WaitingFor::Body => write!(f, "the message of {tag} was not transferred completely"),
            WaitingFor::Message => write!(f, "no message of {tag} arrived from {peer}"),
            WaitingFor::Device => {
                write!(
                    f,
                    "the device of this rank did not copy the message of {tag}"
                )
            }
        }
    }
}

impl std::error::Error for MessageError {}

struct DisplaySource(Source);

impl fmt::Display for DisplaySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Source::Any => f.write_str("any rank"),
            Source::Rank(rank) => write!(f, "rank {rank}"),
        }
    }
}

struct DisplayTag(Tag);

impl fmt::Display for DisplayTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Tag::Any => f.write_str("any tag"),
            Tag::Value(tag) => write!(f, "tag {tag}"),
        }
    }
}

/// Why an operation ends without success, before it is known which operation it is.
#[derive(Debug)]
pub(super) enum Cause {
    /// The communicator has failed, or the peer has left.
    Failed(Failure),
    /// Only this operation.
    Message(MessageFailure),
    /// The time limit; the operation knows what it waited for.
    TimedOut(WaitingFor),
}
