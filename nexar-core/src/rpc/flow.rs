//! Reading and writing the lanes.

use super::{
    MAX_READ, READS_IN_A_ROW,
    call::Answer,
    error::Fault,
    state::{Core, Inner},
};
use crate::{
    lane::OutLane,
    membership::SendOf,
    transport::{RecvStream, StreamError, Transport},
    wire::{
        LaneKind,
        rpc::{Arrival, FailureCode, Frame},
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
                Poll::Ready(Ok(None)) => return self.violated(member, "half a call"),
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
        match arrival.frame {
            Frame::Request { .. } => self.take_request(member, arrival)?,
            Frame::Reply {
                call,
                large,
                length,
            } => {
                let wanted = self.callee_done(member, call)?;
                if large && wanted {
                    self.fetch_reply(member, call, length);
                } else if large {
                    self.cancel(member, call);
                } else {
                    self.answered(call, Answer::Reply(arrival.body));
                }
            }
            Frame::Failed { call, code, .. } => {
                self.callee_done(member, call)?;
                let text = arrival.body;
                let cause = Fault { code, text }.into_cause();
                self.answered(call, Answer::Failed(cause));
            }
            Frame::StreamOver { call } => {
                self.callee_done(member, call)?;
                self.answered(call, Answer::Streamed);
            }
            Frame::Cancel { call } => self.stop_serving(member, call, FailureCode::Cancelled),
            Frame::AskRequest { call } => self.send_request_body(member, call),
            Frame::AskReply { call } => self.asked_reply(member, call),
            Frame::Credit { call, bytes } => self.give_credit(member, call, bytes),
        }
        Ok(())
    }

    /// Writes what is queued, as far as it goes.
    pub(super) fn write(&mut self, member: usize) {
        self.flush(member);
        if self.state.peers[member].queue.bytes() == 0 {
            self.wake_drains();
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
        let inner = self.inner.hub.inner();
        let group = Arc::clone(&self.inner.group);
        let task = self.inner.hub.background().spawn(async move {
            let opened = group.try_open_lane(member, LaneKind::Rpc, 0).await;
            drop(group);
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
                    core.start_some(member);
                }
                Err(error) => core.cut(member, &error),
            }
        });
    }
}
