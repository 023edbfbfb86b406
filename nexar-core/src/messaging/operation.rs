//! Operations in progress.

use super::{
    error::WaitingFor,
    inbox::{Entry, Pattern},
};
use crate::DataType;
use std::task::Waker;
use tokio::time::Instant;

pub(super) struct Operation<R> {
    pub(super) waker: Option<Waker>,
    pub(super) deadline: Option<Instant>,
    pub(super) timed_out: bool,
    /// Its task did not follow a wake-up: others are to read the lanes.
    pub(super) lazy: bool,
    pub(super) kind: Kind<R>,
}

pub(super) enum Kind<R> {
    Send(Sending),
    Receive(Receiving<R>),
    Probe(Pattern),
    Drain,
}

pub(super) struct Sending {
    pub(super) to: usize,
    pub(super) tag: u64,
    pub(super) phase: SendPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendPhase {
    New,
    /// Among those that wait for room.
    Waiting,
    Announced {
        message: u64,
    },
    Cleared {
        message: u64,
        transfer: u64,
    },
    Taken,
}

pub(super) struct Receiving<R> {
    pub(super) pattern: Pattern,
    pub(super) capacity: usize,
    /// The element type that it takes; `None` for any.
    pub(super) expected: Option<DataType>,
    pub(super) posted: bool,
    pub(super) matched: Option<Matched<R>>,
}

pub(super) struct Matched<R> {
    pub(super) entry: Entry,
    pub(super) transfer: TransferPhase<R>,
}

pub(super) enum TransferPhase<R> {
    /// Not needed.
    None,
    /// To be asked for.
    Due,
    /// Asked for, under this number; the lane, until the receive takes it.
    Asked { transfer: u64, lane: Option<R> },
}

impl<R> Receiving<R> {
    /// Whether it can have a message, and does not only discard it.
    pub(super) fn takes(&self, entry: &Entry) -> bool {
        entry.length() <= self.capacity && self.is_of_type(entry)
    }

    pub(super) fn is_of_type(&self, entry: &Entry) -> bool {
        self.expected.is_none() || self.expected == entry.dtype
    }
}

impl<R> Kind<R> {
    /// For the error of one whose time is over.
    pub(super) fn waiting_for(&self) -> WaitingFor {
        match self {
            Kind::Send(sending) => match sending.phase {
                SendPhase::Waiting => WaitingFor::Room,
                SendPhase::Announced { .. } => WaitingFor::Receive,
                SendPhase::New | SendPhase::Cleared { .. } | SendPhase::Taken => WaitingFor::Body,
            },
            Kind::Receive(receiving) if receiving.matched.is_some() => WaitingFor::Body,
            Kind::Receive(_) | Kind::Probe(_) => WaitingFor::Message,
            Kind::Drain => WaitingFor::Room,
        }
    }
}
