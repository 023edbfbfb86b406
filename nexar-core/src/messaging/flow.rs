//! Reading and writing the lanes.

use super::{
    CREDIT, MAX_ANNOUNCED, MAX_READ, READS_IN_A_ROW,
    inbox::{Body, Entry},
    operation::{Kind, SendPhase},
    peer::cost,
    state::{Core, Inner},
};
use crate::{
    DataType,
    lane::OutLane,
    membership::SendOf,
    transport::{RecvStream, StreamError, Transport},
    wire::{
        LaneKind,
        message::{Arrival, Frame},
    },
};
use bytes::Bytes;
use std::{
    sync::Arc,
    task::{Context, Poll},
};

impl<T: Transport> Core<'_, T> {
    /// Takes in what has come on a member's lane.
    pub(super) fn read(&mut self, member: usize) {
        let waker = self.state.peers[member].waker.clone();
        let mut cx = Context::from_waker(&waker);
        for _ in 0..READS_IN_A_ROW {
            let Some(lane) = &mut self.state.peers[member].recv else {
                return;
            };
            match lane.poll_read(&mut cx, MAX_READ) {
                Poll::Pending => return,
                Poll::Ready(Ok(Some(mut chunk))) => {
                    while let Some(arrival) = self.next_arrival(member, &mut chunk) {
                        if let Err(what) = self.arrived(member, arrival) {
                            return self.violated(member, what);
                        }
                    }
                }
                Poll::Ready(Ok(None)) if self.state.peers[member].reader.at_boundary() => {
                    return self.lane_ended(member);
                }
                Poll::Ready(Ok(None)) => {
                    return self.violated(member, "half a message");
                }
                Poll::Ready(Err(error)) => {
                    self.broke(member, &error);
                    return self.lane_ended(member);
                }
            }
        }
        // There may be more; the others get their turn.
        self.inner.hub.set_ready(member);
    }

    fn next_arrival(&mut self, member: usize, chunk: &mut Bytes) -> Option<Arrival> {
        match self.state.peers[member].reader.next(chunk) {
            Ok(arrival) => arrival,
            Err(error) => {
                self.violated(member, error.to_string());
                None
            }
        }
    }

    fn lane_ended(&mut self, member: usize) {
        let peer = &mut self.state.peers[member];
        peer.recv = None;
        peer.ended = true;
        if peer.left.is_some() {
            self.left(member);
        }
    }

    /// A frame has come; an error says what is wrong with it.
    fn arrived(&mut self, member: usize, arrival: Arrival) -> Result<(), &'static str> {
        let peer = &mut self.state.peers[member];
        match arrival.frame {
            Frame::Eager {
                dtype,
                tag,
                message,
                ..
            } => {
                peer.number(message)?;
                peer.held += cost(arrival.body.len());
                if peer.held > CREDIT {
                    return Err("small messages beyond its credit");
                }
                let body = Body::Eager {
                    bytes: arrival.body,
                    borrowed: arrival.borrowed,
                };
                self.receive(member, tag, dtype, body);
            }
            Frame::Announce {
                dtype,
                tag,
                length,
                message,
            } => {
                peer.number(message)?;
                if peer.announced.len() >= MAX_ANNOUNCED {
                    return Err("more announced messages than it may have");
                }
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let body = Body::Announced { message, length };
                self.receive(member, tag, dtype, body);
            }
            Frame::Withdraw { message } => self.withdraw(member, message),
            Frame::ClearToSend { message, transfer } => {
                self.set_phase(member, message, SendPhase::Cleared { message, transfer });
            }
            Frame::Keep { message } => {
                self.set_phase(member, message, SendPhase::Announced { message });
            }
            Frame::Taken { message } => self.taken(member, message),
            Frame::Credit { bytes } => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                peer.credit = peer.credit.saturating_add(bytes);
                if peer.credit > CREDIT {
                    return Err("credit that it never got");
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, source: usize, tag: u64, dtype: Option<DataType>, body: Body) {
        let arrival = self.state.inbox.next_arrival();
        self.offer(Entry {
            arrival,
            source,
            tag,
            dtype,
            body,
        });
    }

    /// A message of this rank for itself.
    pub(super) fn receive_own(
        &mut self,
        tag: u64,
        dtype: Option<DataType>,
        bytes: Bytes,
        message: Option<u64>,
    ) {
        let own = self.inner.group.rank();
        self.receive(own, tag, dtype, Body::Own { bytes, message });
    }

    /// The receiver says how it is with a message that was announced to it. The send may be gone.
    fn set_phase(&mut self, member: usize, message: u64, phase: SendPhase) {
        let Some(&id) = self.state.peers[member].outgoing.get(&message) else {
            return;
        };
        if let Some(operation) = self.state.operations.get_mut(&id)
            && let Kind::Send(sending) = &mut operation.kind
        {
            sending.phase = phase;
            self.wake(id);
        }
    }

    /// An announced message has been received completely.
    pub(super) fn taken(&mut self, member: usize, message: u64) {
        self.set_phase(member, message, SendPhase::Taken);
        let peer = &mut self.state.peers[member];
        peer.outgoing.remove(&message);
        if let Some(&next) = peer.waiting.front() {
            self.wake(next);
        }
    }

    /// Asks for the bodies that are due and writes what is queued, as far as it goes.
    pub(super) fn write(&mut self, member: usize) {
        while {
            let asked = self.ask_due(member);
            self.flush(member);
            asked
        } {}
        let peer = &self.state.peers[member];
        let room = peer.has_room();
        let empty = peer.queue.bytes() == 0;
        if room && let Some(&next) = peer.waiting.front() {
            self.wake(next);
        }
        if empty && self.state.drains > 0 {
            self.wake_all(|kind| matches!(kind, Kind::Drain));
        }
    }

    fn flush(&mut self, member: usize) {
        let peer = &mut self.state.peers[member];
        if peer.queue.bytes() == 0 {
            return;
        }
        let mut cx = Context::from_waker(&peer.waker);
        match &mut peer.lane {
            OutLane::Open(stream) => {
                if let Err(error) = peer.queue.write(&mut cx, stream) {
                    self.cut(member, &error);
                }
            }
            OutLane::Opening(_) => {}
            OutLane::Over => peer.queue.clear(),
            OutLane::Closed => self.open(member),
        }
    }

    /// The lane to a member cannot be used any more.
    fn cut(&mut self, member: usize, error: &StreamError) {
        self.broke(member, error);
        let peer = &mut self.state.peers[member];
        peer.lane = OutLane::Over;
        peer.queue.clear();
    }

    /// Opens the lane to a member in the background, since that may have to wait.
    fn open(&mut self, member: usize) {
        let hub = &self.inner.hub;
        let group = Arc::clone(&self.inner.group);
        let inner = hub.inner();
        let task = hub.background().spawn(async move {
            let opened = group.try_open_lane(member, LaneKind::Message, 0).await;
            if let Some(inner) = inner.upgrade() {
                inner.opened(member, opened);
            }
        });
        self.state.peers[member].lane = OutLane::Opening(task.abort_handle());
    }
}

impl<T: Transport> Inner<T> {
    fn opened(&self, member: usize, opened: Result<SendOf<T>, StreamError>) {
        self.with(|core| {
            let peer = &mut core.state.peers[member];
            if !matches!(peer.lane, OutLane::Opening(_)) {
                return;
            }
            match opened {
                Ok(stream) => {
                    peer.lane = OutLane::Open(stream);
                    core.write(member);
                }
                Err(error) => core.cut(member, &error),
            }
        });
    }
}
