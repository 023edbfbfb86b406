//! Sending.

use super::{
    BATCH, BULK_PRIORITY, BURST, MAX_CHUNK,
    error::Cause,
    operation::{Kind, SendPhase, Sending},
    peer::cost,
    state::{Core, Inner},
};
use crate::{
    Failure,
    lane::BulkLane,
    membership::SendOf,
    transport::{StreamError, Transport},
    wire::{LaneKind, message::Frame},
};
use bytes::{Bytes, BytesMut};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::atomic::Ordering,
    task::Poll,
};

/// What is sent.
pub(super) enum Outgoing<'a> {
    Owned(Bytes),
    Slice(&'a [u8]),
    /// Pieces that belong together.
    Parts(&'a [&'a [u8]]),
}

impl Outgoing<'_> {
    pub(super) fn length(&self) -> usize {
        match self {
            Outgoing::Owned(bytes) => bytes.len(),
            Outgoing::Slice(slice) => slice.len(),
            Outgoing::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
        }
    }

    fn to_bytes(&self) -> Bytes {
        match self {
            Outgoing::Owned(bytes) => bytes.clone(),
            Outgoing::Slice(slice) => Bytes::copy_from_slice(slice),
            Outgoing::Parts(parts) => parts.concat().into(),
        }
    }
}

/// Hands out a message chunk by chunk.
enum Chunks<'a> {
    Owned(Bytes),
    Parts {
        first: &'a [u8],
        rest: &'a [&'a [u8]],
    },
}

impl<'a> Chunks<'a> {
    fn new(message: &Outgoing<'a>) -> Self {
        match message {
            Outgoing::Owned(bytes) => Chunks::Owned(bytes.clone()),
            Outgoing::Slice(slice) => Chunks::Parts {
                first: slice,
                rest: &[],
            },
            Outgoing::Parts(parts) => Chunks::Parts {
                first: &[],
                rest: parts,
            },
        }
    }
}

impl Iterator for Chunks<'_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let chunk = match self {
            Chunks::Owned(bytes) => bytes.split_to(bytes.len().min(MAX_CHUNK)),
            Chunks::Parts { first, rest } => {
                let mut chunk = BytesMut::new();
                while chunk.len() < MAX_CHUNK {
                    if first.is_empty() {
                        let Some((next, others)) = rest.split_first() else {
                            break;
                        };
                        (*first, *rest) = (next, others);
                    }
                    let (taken, left) = first.split_at(first.len().min(MAX_CHUNK - chunk.len()));
                    chunk.extend_from_slice(taken);
                    *first = left;
                }
                chunk.freeze()
            }
        };
        (!chunk.is_empty()).then_some(chunk)
    }
}

/// A send in progress. Dropping it withdraws what was announced.
struct SendOperation<'a, T: Transport> {
    inner: &'a Inner<T>,
    id: u64,
    to: usize,
}

impl<T: Transport> Drop for SendOperation<'_, T> {
    fn drop(&mut self) {
        self.inner.with(|core| core.drop_send(self.id));
    }
}

/// What the receiver wants of an announced message.
enum Wanted {
    /// Nothing more: it has it.
    Nothing,
    /// The body, under this number.
    Body(u64),
}

pub(super) async fn send<T: Transport>(
    inner: &Inner<T>,
    to: usize,
    tag: u64,
    mut message: Outgoing<'_>,
) -> Result<(), Cause> {
    if to == inner.group.rank() {
        // It is kept as it is; the copy is not to be made with the state locked.
        message = Outgoing::Owned(message.to_bytes());
    }
    let phase = SendPhase::New;
    let id = inner.begin(Kind::Send(Sending { to, phase }));
    let operation = SendOperation { inner, id, to };
    let hand_over = |core: &mut Core<'_, T>| core.hand_over(id, to, tag, &message);
    match inner.with(hand_over) {
        Poll::Ready(handed_over) => handed_over?,
        Poll::Pending => poll_fn(|cx| inner.poll(id, cx, hand_over)).await?,
    }
    loop {
        match poll_fn(|cx| inner.poll(id, cx, |core| core.wanted(id))).await? {
            Wanted::Nothing => return Ok(()),
            Wanted::Body(transfer) => operation.transfer(transfer, &message).await?,
        }
    }
}

impl<T: Transport> SendOperation<'_, T> {
    /// Sends the body until the receiver has it or does not want it any more.
    async fn transfer(&self, transfer: u64, message: &Outgoing<'_>) -> Result<(), Cause> {
        let mut lane = None;
        let mut push = pin!(self.push(transfer, message, &mut lane));
        let mut pushed = false;
        poll_fn(|cx| {
            let over = |core: &mut Core<'_, T>| core.transfer_over(self.id, transfer);
            if let Poll::Ready(over) = self.inner.poll(self.id, cx, over) {
                return Poll::Ready(over);
            }
            if !pushed && push.as_mut().poll(cx).is_ready() {
                pushed = true;
            }
            Poll::Pending
        })
        .await
    }

    /// Opens the lane and writes the body. The lane stays in `lane` until the receiver has answered. Where
    /// it breaks, what the receiver says on the message lane counts, or the end of the connection.
    async fn push(
        &self,
        transfer: u64,
        message: &Outgoing<'_>,
        lane: &mut Option<BulkLane<SendOf<T>>>,
    ) {
        let error = match self.try_push(transfer, message, lane).await {
            Err(error @ StreamError::Connection(_)) => error,
            _ => return,
        };
        self.inner.with(|core| core.broke(self.to, &error));
    }

    async fn try_push(
        &self,
        transfer: u64,
        message: &Outgoing<'_>,
        lane: &mut Option<BulkLane<SendOf<T>>>,
    ) -> Result<(), StreamError> {
        let group = &self.inner.group;
        let opened = group
            .try_open_lane(self.to, LaneKind::Bulk, transfer)
            .await?;
        let lane = lane.insert(BulkLane::new(opened, BULK_PRIORITY));
        for chunk in Chunks::new(message) {
            lane.write_all(chunk).await?;
        }
        lane.finish()
    }
}

impl<T: Transport> Core<'_, T> {
    fn phase(&mut self, id: u64) -> Option<&mut SendPhase> {
        match &mut self.state.operations.get_mut(&id)?.kind {
            Kind::Send(sending) => Some(&mut sending.phase),
            _ => None,
        }
    }

    /// Queues a message or its announcement on the lane, in turn.
    fn hand_over(
        &mut self,
        id: u64,
        to: usize,
        tag: u64,
        message: &Outgoing<'_>,
    ) -> Poll<Result<(), Cause>> {
        if self.inner.hub.is_changed() {
            self.pump();
        }
        if let Some(failure) = &self.state.failure {
            return Poll::Ready(Err(Cause::Failed(failure.clone())));
        }
        if self.state.closed {
            return Poll::Ready(Err(Cause::Failed(Failure::ShutDown)));
        }
        let own = to == self.inner.group.rank();
        let peer = &mut self.state.peers[to];
        if peer.left.is_some() {
            return Poll::Ready(Err(Cause::Failed(Failure::PeerLeft { rank: to })));
        }
        let first = peer.waiting.front().is_none_or(|first| *first == id);
        if !first || !peer.has_room() {
            if self.phase(id).copied() == Some(SendPhase::New) {
                self.set_phase_of(id, SendPhase::Waiting);
                self.state.peers[to].waiting.push_back(id);
            }
            return Poll::Pending;
        }
        peer.waiting.pop_front();
        let length = message.length();
        let eager = if own {
            peer.may_keep_own(length)
        } else {
            peer.may_be_eager(length)
        };
        let number = (!eager).then_some(peer.next_out);
        match number {
            Some(number) => {
                peer.outgoing.insert(number, id);
                self.set_phase_of(id, SendPhase::Announced { message: number });
            }
            None => self.set_phase_of(id, SendPhase::Taken),
        }
        let peer = &mut self.state.peers[to];
        let (message_number, length_on_wire) = (peer.next_out, length as u64);
        peer.next_out = message_number.wrapping_add(1);
        if own {
            if eager {
                peer.held = peer.held.saturating_add(cost(length));
            }
            self.receive_own(tag, message.to_bytes(), number);
        } else if eager {
            peer.credit -= cost(length);
            let frame = Frame::Eager {
                tag,
                length: length_on_wire,
                message: message_number,
            };
            peer.queue.push(&frame.encode(), message.to_bytes());
            let burst = self.inner.burst.fetch_add(1, Ordering::Relaxed);
            if burst >= BURST && peer.queue.bytes() < BATCH {
                self.inner.hub.defer(to);
                return Poll::Ready(Ok(()));
            }
        } else {
            let frame = Frame::Announce {
                tag,
                length: length_on_wire,
                message: message_number,
            };
            peer.queue.push(&frame.encode(), Bytes::new());
        }
        self.write(to);
        Poll::Ready(Ok(()))
    }

    fn set_phase_of(&mut self, id: u64, phase: SendPhase) {
        if let Some(current) = self.phase(id) {
            *current = phase;
        }
    }

    fn wanted(&mut self, id: u64) -> Poll<Result<Wanted, Cause>> {
        match self.phase(id).copied() {
            Some(SendPhase::Taken) => Poll::Ready(Ok(Wanted::Nothing)),
            Some(SendPhase::Cleared { transfer, .. }) => {
                let wanted = Wanted::Body(transfer);
                Poll::Ready(self.check_destination(id).map(|()| wanted))
            }
            _ => self.pending_while_there(id),
        }
    }

    /// Ready once the receiver has answered a transfer, whichever way.
    fn transfer_over(&mut self, id: u64, number: u64) -> Poll<Result<(), Cause>> {
        match self.phase(id).copied() {
            Some(SendPhase::Cleared { transfer, .. }) if transfer == number => {
                self.pending_while_there(id)
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    fn pending_while_there<R>(&self, id: u64) -> Poll<Result<R, Cause>> {
        match self.check_destination(id) {
            Ok(()) => Poll::Pending,
            Err(cause) => Poll::Ready(Err(cause)),
        }
    }

    /// Whether the receiver may still answer.
    fn check_destination(&self, id: u64) -> Result<(), Cause> {
        let Some(Kind::Send(sending)) = self.state.operations.get(&id).map(|o| &o.kind) else {
            return Ok(());
        };
        let rank = sending.to;
        if self.state.peers[rank].left.is_some() {
            return Err(Cause::Failed(Failure::PeerLeft { rank }));
        }
        if self.state.closed {
            return Err(Cause::Failed(Failure::ShutDown));
        }
        Ok(())
    }

    /// A send is over or was dropped: what was announced and not taken is withdrawn.
    fn drop_send(&mut self, id: u64) {
        let Some(Kind::Send(Sending { to, phase })) = self.end(id) else {
            return;
        };
        let own = to == self.inner.group.rank();
        let silent = self.state.failure.is_some() || self.state.closed;
        let peer = &mut self.state.peers[to];
        match phase {
            SendPhase::New | SendPhase::Taken => {}
            SendPhase::Waiting => {
                peer.waiting.retain(|waiting| *waiting != id);
                if let Some(&next) = peer.waiting.front() {
                    self.wake(next);
                }
            }
            SendPhase::Announced { message } | SendPhase::Cleared { message, .. } => {
                peer.outgoing.remove(&message);
                if own {
                    self.withdraw(to, message);
                } else if !silent && peer.left.is_none() {
                    peer.queue
                        .push(&Frame::Withdraw { message }.encode(), Bytes::new());
                }
                self.write(to);
            }
        }
    }
}
