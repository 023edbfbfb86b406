//! The state of one connection: both sides behind one lock, and the messages that pass between them.
//!
//! Each side knows only what has been delivered to it. A message to a side on a link without delay is
//! applied at once by whoever sends it; otherwise it waits in that side's wire, which a task empties.

use super::{
    MemoryConfig,
    link::{Link, SplitMix64, Wire},
    lock,
    stream::{RecvHalf, SendHalf},
};
use crate::transport::{ConnectionError, PeerId};
use bytes::Bytes;
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    task::Waker,
};
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore},
    time::Instant,
};

/// Writes in flight towards one side before further ones wait.
pub(super) const MAX_IN_FLIGHT: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Uni = 0,
    Bi = 1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StreamId {
    /// The side that opened it.
    pub(super) opener: usize,
    pub(super) kind: Kind,
    pub(super) index: u64,
}

#[derive(Debug)]
pub(super) enum Message {
    Data {
        id: StreamId,
        bytes: Bytes,
    },
    Finish {
        id: StreamId,
    },
    Reset {
        id: StreamId,
        code: u64,
    },
    Stop {
        id: StreamId,
        code: u64,
    },
    Acked {
        id: StreamId,
    },
    StreamCredit {
        id: StreamId,
        bytes: usize,
    },
    ConnectionCredit {
        bytes: usize,
    },
    /// A stream of this kind has come to its end; another may be opened.
    OpenCredit {
        kind: Kind,
    },
    Close {
        code: u64,
        reason: String,
    },
}

/// The end points of a connection: index 0 is the dialler.
pub(super) struct Ends {
    pub(super) addresses: [SocketAddr; 2],
    /// Which endpoint, among those that have used the address.
    pub(super) instances: [u64; 2],
    pub(super) identities: [PeerId; 2],
    pub(super) runtimes: [Handle; 2],
    /// The link on which each side sends.
    pub(super) links: [Arc<Link>; 2],
}

pub(super) struct Shared {
    pub(super) ends: Ends,
    pub(super) config: MemoryConfig,
    /// How many streams each side may still open, by kind.
    pub(super) permits: [[Semaphore; 2]; 2],
    over: [Notify; 2],
    pumps: [Notify; 2],
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) sides: [Side; 2],
    /// Woken once the lock is released.
    pub(super) wakers: Vec<Waker>,
    /// Dropped once the lock is released: the last reference to a task may be among them.
    pub(super) stale: Vec<Waker>,
}

/// What one side knows.
pub(super) struct Side {
    /// Why the connection is over for this side.
    pub(super) over: Option<ConnectionError>,
    /// The endpoint has crashed: the peer hears nothing from it any more.
    severed: bool,
    /// Since when the peer cannot be heard.
    cut_since: Option<Instant>,
    random: SplitMix64,
    /// Messages on their way to this side.
    pub(super) wire: Wire,
    pumping: bool,
    /// Bytes that may still be sent, over all streams.
    pub(super) send_credit: usize,
    /// Streams that wait for `send_credit` or for room in the peer's wire.
    pub(super) blocked: Vec<StreamId>,
    /// Bytes that the application has taken and the peer has not been told of.
    consumed: usize,
    credit_in_flight: bool,
    pub(super) opened: [u64; 2],
    pub(super) incoming: [Incoming; 2],
    pub(super) sending: HashMap<StreamId, SendHalf>,
    pub(super) receiving: HashMap<StreamId, RecvHalf>,
    /// Halves of the peer's streams that have not come to their end.
    open_halves: HashMap<StreamId, u8>,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// Streams of one kind that the peer has opened.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// How many are visible: a stream makes those opened before it visible too.
    pub(super) seen: u64,
    pub(super) accepted: u64,
    pub(super) waker: Option<Waker>,
}

impl Side {
    fn new(config: &MemoryConfig, seed: u64) -> Self {
        Side {
            over: None,
            severed: false,
            cut_since: None,
            random: SplitMix64(seed),
            wire: Wire::default(),
            pumping: false,
            send_credit: config.connection_window.max(1),
            blocked: Vec::new(),
            consumed: 0,
            credit_in_flight: false,
            opened: [0; 2],
            incoming: Default::default(),
            sending: HashMap::new(),
            receiving: HashMap::new(),
            open_halves: HashMap::new(),
            sent_bytes: 0,
            received_bytes: 0,
        }
    }
}

impl Shared {
    pub(super) fn new(ends: Ends, config: MemoryConfig, seeds: [u64; 2]) -> Arc<Self> {
        // A semaphore cannot count further than this.
        let streams = config.max_streams.clamp(1, Semaphore::MAX_PERMITS);
        let permits = || [Semaphore::new(streams), Semaphore::new(streams)];
        let sides = seeds.map(|seed| Side::new(&config, seed));
        Arc::new(Shared {
            permits: [permits(), permits()],
            over: Default::default(),
            pumps: Default::default(),
            state: Mutex::new(State {
                sides,
                wakers: Vec::new(),
                stale: Vec::new(),
            }),
            ends,
            config,
        })
    }

    /// Runs `action` under the lock, then wakes whom it concerns.
    pub(super) fn with<R>(self: &Arc<Self>, action: impl FnOnce(&mut Core<'_>) -> R) -> R {
        let mut state = lock(&self.state);
        let result = action(&mut Core {
            shared: self,
            state: &mut state,
        });
        // Nearly always there is one, and the list keeps its allocation.
        let first = state.wakers.pop();
        let others = match state.wakers.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut state.wakers),
        };
        let stale = std::mem::take(&mut state.stale);
        drop(state);
        drop(stale);
        first.into_iter().chain(others).for_each(Waker::wake);
        result
    }

    /// Waits until the connection is over for `side`.
    pub(super) async fn over(self: &Arc<Self>, side: usize) -> ConnectionError {
        loop {
            let mut notified = std::pin::pin!(self.over[side].notified());
            notified.as_mut().enable();
            if let Some(error) = self.with(|core| core.state.sides[side].over.clone()) {
                return error;
            }
            notified.await;
        }
    }

    /// Waits until `side` knows that the connection is over, or cannot be told.
    pub(super) async fn told(self: &Arc<Self>, side: usize) {
        let done = self.with(|core| {
            let state = &core.state.sides[side];
            state.over.is_some() || state.cut_since.is_some()
        });
        if !done {
            // The runtime that would deliver the message may be gone.
            let _ = tokio::time::timeout(self.config.idle_timeout, self.over(side)).await;
        }
    }
}

/// A connection's state under its lock.
pub(super) struct Core<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) state: &'a mut State,
}

impl Core<'_> {
    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        self.state.wakers.extend(waker);
    }

    /// Sends `message` from side `from` to the other.
    pub(super) fn post(&mut self, from: usize, message: Message) {
        let to = 1 - from;
        let [sender, receiver] = self.both(from);
        if sender.over.is_some() || receiver.over.is_some() {
            return;
        }
        let delay = self.shared.ends.links[from].draw_delay(&mut self.state.sides[from].random);
        let receiver = &self.state.sides[to];
        if delay.is_zero() && receiver.cut_since.is_none() && receiver.wire.is_empty() {
            return self.apply(to, message);
        }
        let mut due = Instant::now() + delay;
        if let Some(id) = message.ordered_stream()
            && let Some(half) = self.state.sides[from].sending.get_mut(&id)
        {
            due = half.last_due.map_or(due, |last| due.max(last));
            half.last_due = Some(due);
        }
        let wire = &mut self.state.sides[to].wire;
        wire.push(due, message);
        if wire.next_due() == Some(due) || !self.state.sides[to].pumping {
            self.pump(to);
        }
    }

    fn both(&mut self, first: usize) -> [&mut Side; 2] {
        let [dialler, acceptor] = &mut self.state.sides;
        if first == 0 {
            [dialler, acceptor]
        } else {
            [acceptor, dialler]
        }
    }

    fn apply(&mut self, to: usize, message: Message) {
        match message {
            Message::Data { id, bytes } => self.on_data(to, id, bytes),
            Message::Finish { id } => self.on_finish(to, id),
            Message::Reset { id, code } => self.on_reset(to, id, code),
            Message::Stop { id, code } => self.on_stop(to, id, code),
            Message::Acked { id } => self.on_acked(to, id),
            Message::StreamCredit { id, bytes } => self.on_stream_credit(to, id, bytes),
            Message::ConnectionCredit { bytes } => {
                self.state.sides[to].send_credit += bytes;
                self.unblock(to);
                self.state.sides[1 - to].credit_in_flight = false;
                self.give_credit(1 - to, 0);
            }
            Message::OpenCredit { kind } => self.shared.permits[to][kind as usize].add_permits(1),
            Message::Close { code, reason } => {
                self.end(to, ConnectionError::ClosedByPeer { code, reason }, false);
            }
        }
    }

    /// Tells the peer of `side` that it may send `bytes` more. At most one such message is in flight.
    pub(super) fn give_credit(&mut self, side: usize, bytes: usize) {
        let state = &mut self.state.sides[side];
        state.consumed += bytes;
        if state.consumed > 0 && !state.credit_in_flight {
            state.credit_in_flight = true;
            let bytes = std::mem::take(&mut state.consumed);
            self.post(side, Message::ConnectionCredit { bytes });
        }
    }

    /// Lets the writers of `side` that found no room look again.
    fn unblock(&mut self, side: usize) {
        let State { sides, wakers, .. } = &mut *self.state;
        let Side {
            blocked, sending, ..
        } = &mut sides[side];
        for id in blocked.drain(..) {
            if let Some(half) = sending.get_mut(&id) {
                half.blocked = false;
                wakers.extend(half.waker.take());
            }
        }
    }

    /// Makes the peer's stream `id`, and those opened before it, visible to `side`.
    pub(super) fn make_visible(&mut self, side: usize, id: StreamId) {
        if id.opener == side {
            return;
        }
        let window = self.shared.config.stream_window.max(1);
        let state = &mut self.state.sides[side];
        let incoming = &mut state.incoming[id.kind as usize];
        for index in incoming.seen..=id.index {
            let id = StreamId { index, ..id };
            state.receiving.insert(id, RecvHalf::default());
            if id.kind == Kind::Bi {
                state.sending.insert(id, SendHalf::new(window));
            }
            state
                .open_halves
                .insert(id, if id.kind == Kind::Bi { 2 } else { 1 });
        }
        if incoming.seen <= id.index {
            incoming.seen = id.index + 1;
            let waker = incoming.waker.take();
            self.wake(waker);
        }
    }

    /// Notes that one half of a stream has come to its end for `side`.
    pub(super) fn half_done(&mut self, side: usize, id: StreamId) {
        if let Some(open) = self.state.sides[side].open_halves.get_mut(&id) {
            *open -= 1;
            if *open == 0 {
                self.state.sides[side].open_halves.remove(&id);
                self.post(side, Message::OpenCredit { kind: id.kind });
            }
        }
    }

    /// The connection is over for `side`. What has arrived can still be read, unless `discard`.
    pub(super) fn end(&mut self, side: usize, error: ConnectionError, discard: bool) {
        let State { sides, wakers, .. } = &mut *self.state;
        let state = &mut sides[side];
        if state.over.is_some() {
            return;
        }
        state.over = Some(error);
        state.wire.clear();
        state.blocked.clear();
        for half in state.sending.values_mut() {
            wakers.extend(half.waker.take());
        }
        for half in state.receiving.values_mut() {
            wakers.extend(half.waker.take());
            if discard {
                half.discard();
            }
        }
        for incoming in &mut state.incoming {
            wakers.extend(incoming.waker.take());
            if discard {
                incoming.seen = incoming.accepted;
            }
        }
        self.shared.permits[side].iter().for_each(Semaphore::close);
        self.shared.over[side].notify_waiters();
        self.shared.pumps[side].notify_one();
    }

    /// Closes the connection from `side`.
    pub(super) fn close(&mut self, side: usize, code: u64, reason: &str) {
        if self.state.sides[side].over.is_none() {
            self.post(
                side,
                Message::Close {
                    code,
                    reason: reason.to_owned(),
                },
            );
            self.end(side, ConnectionError::ClosedLocally, true);
        }
    }

    /// The connection is lost for both sides at once.
    pub(super) fn drop_both(&mut self) {
        self.end(0, ConnectionError::Reset, false);
        self.end(1, ConnectionError::Reset, false);
    }

    /// The endpoint of `side` has crashed.
    pub(super) fn sever(&mut self, side: usize) {
        self.state.sides[side].severed = true;
        self.end(side, ConnectionError::EndpointClosed, true);
        self.state.sides[1 - side].wire.clear();
        self.cut(1 - side);
    }

    /// From now on, `side` hears nothing from its peer.
    pub(super) fn cut(&mut self, side: usize) {
        let state = &mut self.state.sides[side];
        if state.over.is_none() && state.cut_since.is_none() {
            state.cut_since = Some(Instant::now());
            self.pump(side);
        }
    }

    /// `side` hears its peer again, unless that has crashed.
    pub(super) fn heal(&mut self, side: usize) {
        if !self.state.sides[1 - side].severed && self.state.sides[side].cut_since.take().is_some()
        {
            self.pump(side);
        }
    }

    /// Has the task of `side` look at its wire.
    fn pump(&mut self, side: usize) {
        if !std::mem::replace(&mut self.state.sides[side].pumping, true) {
            let shared = Arc::clone(self.shared);
            self.shared.ends.runtimes[side].spawn(pump(shared, side));
        } else {
            self.shared.pumps[side].notify_one();
        }
    }

    /// Delivers what has arrived at `side`; returns when to look again.
    fn deliver(&mut self, side: usize) -> Option<Instant> {
        let next = self.deliver_due(side);
        self.state.sides[side].pumping = next.is_some();
        next
    }

    fn deliver_due(&mut self, side: usize) -> Option<Instant> {
        let now = Instant::now();
        if let Some(since) = self.state.sides[side].cut_since {
            let deadline = since + self.shared.config.idle_timeout;
            if now < deadline && self.state.sides[side].over.is_none() {
                return Some(deadline);
            }
            self.end(side, ConnectionError::TimedOut, false);
            return None;
        }
        while let Some(message) = self.state.sides[side].wire.pop_due(now) {
            self.apply(side, message);
        }
        self.unblock(1 - side);
        self.state.sides[side].wire.next_due()
    }

    /// Counts a write of `bytes` by `side`.
    pub(super) fn count_write(&mut self, side: usize, bytes: usize) {
        self.state.sides[side].sent_bytes += bytes as u64;
        let link = &self.shared.ends.links[side];
        link.writes.fetch_add(1, Relaxed);
        link.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// Delivers to `side` until its wire is empty.
async fn pump(shared: Arc<Shared>, side: usize) {
    while let Some(at) = shared.with(|core| core.deliver(side)) {
        tokio::select! {
            () = tokio::time::sleep_until(at) => {}
            () = shared.pumps[side].notified() => {}
        }
    }
}
