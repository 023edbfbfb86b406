//! What a messenger knows of one member.

use super::{
    CREDIT, EAGER_LIMIT, MAX_ANNOUNCED, MAX_TRANSFERS, MESSAGE_COST, OWN_LIMIT, SEND_QUEUE,
    state::Inner,
};
use crate::{
    lane::{Breakage, Hub, LaneWaker, OutLane, OutQueue},
    membership::{RecvOf, SendOf},
    transport::Transport,
    wire::message::FrameReader,
};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    task::Waker,
};

/// Both directions with one member.
pub(super) struct Peer<T: Transport> {
    pub(super) waker: Waker,

    pub(super) recv: Option<RecvOf<T>>,
    pub(super) reader: FrameReader,
    /// Its lane has come to its end.
    pub(super) ended: bool,
    /// Number of its next message.
    pub(super) next_in: u64,
    /// Cost of its eager messages for which it has not got credit back.
    pub(super) held: usize,
    /// The part of it that has been taken by receives.
    pub(super) returning: usize,
    /// Where its announced messages are.
    pub(super) announced: HashMap<u64, Place>,
    /// Bodies that it was asked for.
    pub(super) transfers: usize,
    /// Receives that cannot ask yet.
    pub(super) due: VecDeque<u64>,

    pub(super) lane: OutLane<SendOf<T>>,
    pub(super) queue: OutQueue,
    /// Number of the next message to it.
    pub(super) next_out: u64,
    pub(super) credit: usize,
    /// Announced messages to it, by number: the send.
    pub(super) outgoing: HashMap<u64, u64>,
    /// Sends that wait for room, in order.
    pub(super) waiting: VecDeque<u64>,
    /// Sends whose bodies are read before they take their places in the order, and those behind them: tag, send.
    pub(super) unplaced: BTreeSet<(u64, u64)>,

    /// It has left; whether its lane is yet to be read to its end.
    pub(super) left: Option<bool>,
    pub(super) broken: Breakage,
}

/// Where an announced message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the inbox, under this arrival number.
    Inbox(u64),
    /// With this receive.
    Receive(u64),
}

impl<T: Transport> Peer<T> {
    pub(super) fn new(hub: &Arc<Hub<Inner<T>>>, member: usize) -> Self {
        let waker = LaneWaker {
            hub: Arc::clone(hub),
            member,
        };
        Peer {
            waker: Arc::new(waker).into(),
            recv: None,
            reader: FrameReader::new(EAGER_LIMIT),
            ended: false,
            next_in: 0,
            held: 0,
            returning: 0,
            announced: HashMap::new(),
            transfers: 0,
            due: VecDeque::new(),
            lane: OutLane::Closed,
            queue: OutQueue::default(),
            next_out: 0,
            credit: CREDIT,
            outgoing: HashMap::new(),
            waiting: VecDeque::new(),
            unplaced: BTreeSet::new(),
            left: None,
            broken: Breakage::default(),
        }
    }

    /// Messages come in the order of their numbers.
    pub(super) fn number(&mut self, message: u64) -> Result<(), &'static str> {
        if message != self.next_in {
            return Err("a message out of turn");
        }
        self.next_in = self.next_in.wrapping_add(1);
        Ok(())
    }

    /// Nothing more can come from it.
    pub(super) fn is_gone(&self) -> bool {
        self.left.is_some_and(|lane| self.ended || !lane)
    }

    /// A message of this length may be sent without being asked for.
    pub(super) fn may_be_eager(&self, length: usize) -> bool {
        length <= EAGER_LIMIT && cost(length) <= self.credit
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.bytes() < SEND_QUEUE && self.outgoing.len() < MAX_ANNOUNCED
    }

    pub(super) fn may_ask(&self) -> bool {
        self.queue.bytes() < SEND_QUEUE && self.transfers < MAX_TRANSFERS
    }

    /// This rank itself: a message of this length may be kept without a receive.
    pub(super) fn may_keep_own(&self, length: usize) -> bool {
        self.held == 0 || self.held.saturating_add(cost(length)) <= OWN_LIMIT
    }
}

/// What an eager message costs of the credit: its body and what it takes to keep it.
pub(super) fn cost(length: usize) -> usize {
    length.saturating_add(MESSAGE_COST)
}
