//! Sending.

use super::{
    BATCH, BULK_PRIORITY, BURST, EAGER_LIMIT,
    body::MemoryWait,
    error::{Cause, MessageFailure},
    operation::{Kind, SendPhase, Sending},
    outgoing::{Chunks, Content, Outgoing, reserve},
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
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::atomic::Ordering,
    task::Poll,
};

/// A send in progress. Dropping it withdraws what was announced.
struct SendOperation<'a, T: Transport> {
    inner: &'a Inner<T>,
    id: u64,
    to: usize,
    memory: MemoryWait,
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

/// Why a body does not get through.
enum Broken {
    Lane(StreamError),
    Body(MessageFailure),
}

impl From<StreamError> for Broken {
    fn from(error: StreamError) -> Self {
        Broken::Lane(error)
    }
}

impl From<MessageFailure> for Broken {
    fn from(failure: MessageFailure) -> Self {
        Broken::Body(failure)
    }
}

pub(super) async fn send<T: Transport>(
    inner: &Inner<T>,
    mut message: Outgoing<'_>,
) -> Result<(), Cause> {
    let to = message.to;
    if to == inner.group.rank() {
        // It is kept as it is; the copy is not to be made with the state locked.
        message.own().map_err(Cause::Message)?;
    }
    let (phase, tag) = (SendPhase::New, message.tag);
    let id = inner.begin(Kind::Send(Sending { to, tag, phase }));
    let operation = SendOperation {
        inner,
        id,
        to,
        memory: MemoryWait::default(),
    };
    if matches!(message.body, Content::Reader(_))
        && (to == inner.group.rank() || message.length <= EAGER_LIMIT)
    {
        inner.with(|core| core.state.peers[to].unplaced.insert((tag, id)));
        let bytes = operation.take_in(&mut message).await?;
        message.body = Content::Owned(bytes);
    }
    let mut hand_over = |core: &mut Core<'_, T>| core.hand_over(id, &mut message);
    match inner.with(&mut hand_over) {
        Poll::Ready(handed_over) => handed_over?,
        Poll::Pending => poll_fn(|cx| inner.poll(id, cx, &mut hand_over)).await?,
    }
    loop {
        match poll_fn(|cx| inner.poll(id, cx, |core| core.wanted(id))).await? {
            Wanted::Nothing => return Ok(()),
            Wanted::Body(transfer) => {
                operation.transfer(transfer, &mut message).await?;
                message.pause();
            }
        }
    }
}

impl<T: Transport> SendOperation<'_, T> {
    /// Reads the whole message.
    async fn take_in(&self, message: &mut Outgoing<'_>) -> Result<Bytes, Cause> {
        let length = message.length;
        let mut chunks = Chunks::new(message);
        let read = async {
            let _turn = self.inner.bodies.acquire().await;
            let mut bytes = reserve(length)?;
            loop {
                let chunk = poll_fn(|cx| self.memory.note(chunks.poll_next(cx))).await?;
                if chunk.is_empty() {
                    return Ok(bytes.into());
                }
                bytes.extend_from_slice(&chunk);
            }
        };
        let there = |core: &mut Core<'_, T>| core.pending_while_there(self.id);
        let read = self.inner.unless(self.id, there, read).await;
        read.map_err(|cause| self.memory.explain(cause))
    }

    /// Sends the body until the receiver has it or does not want it any more.
    async fn transfer(&self, transfer: u64, message: &mut Outgoing<'_>) -> Result<(), Cause> {
        let mut lane = None;
        let mut push = pin!(self.push(transfer, message, &mut lane));
        let mut pushed = false;
        poll_fn(|cx| {
            let over = |core: &mut Core<'_, T>| core.transfer_over(self.id, transfer);
            if let Poll::Ready(over) = self.inner.poll(self.id, cx, over) {
                return Poll::Ready(over);
            }
            if !pushed && let Poll::Ready(result) = push.as_mut().poll(cx) {
                pushed = true;
                if let Err(failure) = result {
                    return Poll::Ready(Err(Cause::Message(failure)));
                }
            }
            Poll::Pending
        })
        .await
        .map_err(|cause| self.memory.explain(cause))
    }

    /// Opens the lane and writes the body. The lane stays in `lane` until the receiver has answered. Where
    /// it breaks, what the receiver says on the message lane counts, or the end of the connection.
    ///
    /// It fails if the body cannot be read.
    async fn push(
        &self,
        transfer: u64,
        message: &mut Outgoing<'_>,
        lane: &mut Option<BulkLane<SendOf<T>>>,
    ) -> Result<(), MessageFailure> {
        match self.try_push(transfer, message, lane).await {
            Err(Broken::Body(failure)) => return Err(failure),
            Err(Broken::Lane(error @ StreamError::Connection(_))) => {
                self.inner.with(|core| core.broke(self.to, &error));
            }
            Err(Broken::Lane(_)) | Ok(()) => {}
        }
        Ok(())
    }

    async fn try_push(
        &self,
        transfer: u64,
        message: &mut Outgoing<'_>,
        lane: &mut Option<BulkLane<SendOf<T>>>,
    ) -> Result<(), Broken> {
        let group = &self.inner.group;
        let opened = group
            .try_open_lane(self.to, LaneKind::Bulk, transfer)
            .await?;
        let lane = lane.insert(BulkLane::new(opened, BULK_PRIORITY));
        let mut chunks = Chunks::new(message);
        loop {
            let chunk = poll_fn(|cx| self.memory.note(chunks.poll_next(cx))).await?;
            if chunk.is_empty() {
                return Ok(lane.finish()?);
            }
            let mut written = pin!(lane.write_all(chunk));
            poll_fn(|cx| {
                chunks.advance(cx);
                written.as_mut().poll(cx)
            })
            .await?;
        }
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
    fn hand_over(&mut self, id: u64, message: &mut Outgoing<'_>) -> Poll<Result<(), Cause>> {
        let (to, tag, dtype) = (message.to, message.tag, message.dtype);
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
        if self.state.peers[to].left.is_some() {
            return Poll::Ready(Err(Cause::Failed(Failure::PeerLeft { rank: to })));
        }
        if !self.may_take_its_place(id, to, tag) {
            return Poll::Pending;
        }
        let peer = &mut self.state.peers[to];
        let first = peer.waiting.front().is_none_or(|first| *first == id);
        if !first || !peer.has_room() {
            if self.phase(id).copied() == Some(SendPhase::New) {
                self.has_its_place(id, to, tag);
                self.set_phase_of(id, SendPhase::Waiting);
                self.state.peers[to].waiting.push_back(id);
            }
            return Poll::Pending;
        }
        peer.waiting.pop_front();
        self.has_its_place(id, to, tag);
        let peer = &mut self.state.peers[to];
        let length = message.length;
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
            self.receive_own(tag, dtype, message.to_bytes(), number);
        } else if eager {
            peer.credit -= cost(length);
            let frame = Frame::Eager {
                dtype,
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
                dtype,
                tag,
                length: length_on_wire,
                message: message_number,
            };
            peer.queue.push(&frame.encode(), Bytes::new());
        }
        self.write(to);
        Poll::Ready(Ok(()))
    }

    /// Whether the sends of the same tag that began before this one have their places in the order, or it has its own; if
    /// not, those that follow wait for this one, too.
    fn may_take_its_place(&mut self, id: u64, to: usize, tag: u64) -> bool {
        let unplaced = &self.state.peers[to].unplaced;
        let mut before = unplaced.range((tag, 0)..(tag, id));
        if before.next().is_none() || self.phase(id).copied() != Some(SendPhase::New) {
            return true;
        }
        self.state.peers[to].unplaced.insert((tag, id));
        false
    }

    /// A send has its place, or is over: it is the turn of the next one of its tag.
    fn has_its_place(&mut self, id: u64, to: usize, tag: u64) {
        let unplaced = &mut self.state.peers[to].unplaced;
        if !unplaced.remove(&(tag, id)) {
            return;
        }
        let next = unplaced.range((tag, id)..=(tag, u64::MAX)).next();
        if let Some(&(_, next)) = next {
            self.wake(next);
        }
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
        let Some(Kind::Send(Sending { to, tag, phase })) = self.end(id) else {
            return;
        };
        let own = to == self.inner.group.rank();
        let silent = self.state.failure.is_some() || self.state.closed;
        let peer = &mut self.state.peers[to];
        match phase {
            SendPhase::New => self.has_its_place(id, to, tag),
            SendPhase::Taken => {}
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
