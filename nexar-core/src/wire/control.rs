//! The frames between two ranks on their control stream.

use crate::{Call, Failure};
use serde::{Deserialize, Serialize};

/// A frame on the control stream of a connection between ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Control {
    /// Nothing but a sign of life.
    Heartbeat,
    /// Are you still there? To be answered with [`Control::Heartbeat`].
    Probe,
    /// A communicator has failed, for the reason given; ranks in it are numbered in the communicator.
    Abort {
        /// The communicator.
        communicator: u64,
        /// Why.
        failure: Failure,
    },
    /// The sender waits in this call and makes no progress: for comparison with the receiver's call.
    Waiting {
        /// The communicator.
        communicator: u64,
        /// The call the sender is in.
        call: Call,
    },
    /// Answer to [`Control::Waiting`]: where the sender is on the communicator.
    Position {
        /// The communicator.
        communicator: u64,
        /// The number of calls that it has made.
        calls: u64,
        /// The number of the call that does not get on because the sender waits for its device, if that is so: the one
        /// in progress, or the next one.
        waits_for_device: Option<u64>,
    },
    /// The sender makes no further calls on a communicator.
    Leave {
        /// The communicator.
        communicator: u64,
        /// Calls that it has made on it.
        calls: u64,
        /// Whether it has opened a message lane to the receiver, which may still hold messages.
        message_lane: bool,
        /// Whether it has opened a lane of calls to the receiver, which may still hold answers.
        rpc_lane: bool,
    },
    /// The sender leaves the group: its connections will be closed.
    Goodbye,
    /// Answer to [`Control::Goodbye`]: what was sent before has been received.
    GoodbyeSeen,
}
