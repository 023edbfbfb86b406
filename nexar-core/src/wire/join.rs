//! The frames between a process that joins and the seed.

use crate::{error::RefuseReason, transport::PeerId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// First frame of a dialler: is it a rank of a formed group, or a process that wants to join?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Opening {
    /// It wants to join.
    Join(Join),
    /// It is a rank of the group.
    Hello(Hello),
}

/// What a process says of itself when it asks the seed to let it join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION).
    pub version: u16,
    /// The job's name.
    pub job: String,
    /// The world size that it expects.
    pub world_size: u32,
    /// The rank that it wants, or none for any.
    pub rank: Option<u32>,
    /// Where it can be reached. An unspecified IP address means: where the seed sees it.
    pub address: SocketAddr,
    /// Its detection time in milliseconds.
    pub detection_ms: u64,
}

/// What a rank says of itself when it dials another rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION).
    pub version: u16,
    /// The number of the group, from the seed.
    pub session: [u8; 16],
    /// Rank of the dialler.
    pub rank: u32,
}

/// What the seed, or the dialled rank, answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Answer {
    /// Are you still there? To be answered with [`Alive`].
    Probe,
    /// The group has formed.
    Table(Table),
    /// To a [`Hello`]: you are expected.
    Welcome,
    /// Go away.
    Refuse(RefuseReason),
}

/// Answer to [`Answer::Probe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive;

/// Who is in the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The number of the group, random.
    pub session: [u8; 16],
    /// The rank of the process that gets this table.
    pub rank: u32,
    /// The members in rank order.
    pub members: Vec<Member>,
}

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where it can be reached.
    pub address: SocketAddr,
    /// Who it has proven to be.
    pub identity: PeerId,
}
