//! What this rank knows of its calls with one member, in both directions.

use super::{
    INLINE_LIMIT, MAX_CALLS, MAX_REQUESTS, MAX_TRANSFERS, SEND_QUEUE, call::Wanted, serve::Serving,
    state::Inner,
};
use crate::{
    lane::{Breakage, Hub, LaneWaker, OutLane, OutQueue},
    membership::{RecvOf, SendOf},
    transport::Transport,
    wire::rpc::FrameReader,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    task::Waker,
};
use tokio::sync::Semaphore;

/// Calls that no handler makes, and calls of handlers: each kind has bounds of its own, so that handlers
/// never wait for room that is held by those who wait for them.
pub(super) const KINDS: usize = 2;

pub(super) fn kind_of(depth: u8) -> usize {
    usize::from(depth > 0)
}

/// Calls in progress of one kind.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Load {
    calls: usize,
    bytes: usize,
}

impl Load {
    /// Whether there is room for a call of this cost. The caller asks before it sends, the callee when it has
    /// received.
    pub(super) fn has_room(&self, cost: usize) -> bool {
        self.calls < MAX_CALLS && self.bytes + cost <= MAX_REQUESTS
    }

    pub(super) fn add(&mut self, cost: usize) {
        self.calls += 1;
        self.bytes += cost;
    }

    pub(super) fn remove(&mut self, cost: usize) {
        self.calls = self.calls.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(cost);
    }
}

/// What a request costs of the bound on small bodies.
pub(super) fn cost(length: usize, large: bool) -> usize {
    if large { 0 } else { length }
}

pub(super) struct Peer<T: Transport> {
    pub(super) waker: Waker,

    pub(super) recv: Option<RecvOf<T>>,
    pub(super) reader: FrameReader,
    /// Its lane has come to its end.
    pub(super) ended: bool,
    pub(super) lane: OutLane<SendOf<T>>,
    pub(super) queue: OutQueue,

    /// Calls to it that it has not answered.
    pub(super) made: [Load; KINDS],
    /// Calls to it that wait for room, in order.
    pub(super) waiting: [VecDeque<u64>; KINDS],
    /// Lanes that it is to open, by number.
    pub(super) wanted: HashMap<u64, Wanted<RecvOf<T>>>,
    /// Large bodies that come from it at a time.
    pub(super) transfers: Arc<Semaphore>,

    /// Calls from it that are not answered.
    pub(super) taken: [Load; KINDS],
    /// Smallest number that its next call may have.
    pub(super) next_call: u64,
    pub(super) serving: HashMap<u64, Serving<T>>,
    /// Those of which no handler has been started, in order.
    pub(super) backlog: [VecDeque<u64>; KINDS],
    /// It is among those that wait for a handler to end.
    pub(super) starved: bool,

    /// It has left; whether its lane is yet to be read to its end.
    pub(super) left: Option<bool>,
    pub(super) broken: Breakage,
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
            reader: FrameReader::new(INLINE_LIMIT),
            ended: false,
            lane: OutLane::Closed,
            queue: OutQueue::default(),
            made: Default::default(),
            waiting: Default::default(),
            wanted: HashMap::new(),
            transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)),
            taken: Default::default(),
            next_call: 0,
            serving: HashMap::new(),
            backlog: Default::default(),
            starved: false,
            left: None,
            broken: Breakage::default(),
        }
    }

    /// Nothing more can come from it.
    pub(super) fn is_gone(&self) -> bool {
        self.left.is_some_and(|lane| self.ended || !lane)
    }

    /// It reads what it is sent, so that it may be sent more answers.
    pub(super) fn listens(&self) -> bool {
        self.queue.bytes() < SEND_QUEUE
    }
}
