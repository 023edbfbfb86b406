//! Bringing messages and receives together, and apart again.

use super::{
    CREDIT, RETURN_CREDIT,
    error::Cause,
    inbox::{Body, Entry, Source},
    operation::{Kind, Matched, Receiving, TransferPhase},
    peer::{Place, cost},
    state::Core,
};
use crate::{
    Failure, lane::OutLane, membership::RecvOf, transport::Transport, wire::message::Frame,
};
use bytes::Bytes;

const _: () = assert!(RETURN_CREDIT < CREDIT);

impl<T: Transport> Core<'_, T> {
    pub(super) fn receiving(&mut self, id: u64) -> Option<&mut Receiving<RecvOf<T>>> {
        match &mut self.state.operations.get_mut(&id)?.kind {
            Kind::Receive(receiving) => Some(receiving),
            _ => None,
        }
    }

    /// A message goes to the first receive that it matches, or into the inbox.
    pub(super) fn offer(&mut self, entry: Entry) {
        if let Some(id) = self.state.inbox.take_posted(entry.source, entry.tag) {
            return self.assign(id, entry);
        }
        if let Some(message) = entry.body.number() {
            let place = Place::Inbox(entry.arrival);
            self.state.peers[entry.source]
                .announced
                .insert(message, place);
        }
        if self.state.probes > 0 {
            let (source, tag) = (entry.source, entry.tag);
            self.wake_all(
                |kind| matches!(kind, Kind::Probe(pattern) if pattern.matches(source, tag)),
            );
        }
        self.state.inbox.insert(entry);
    }

    /// A receive gets a message.
    fn assign(&mut self, id: u64, entry: Entry) {
        let (source, message) = (entry.source, entry.body.number());
        let Some(receiving) = self.receiving(id) else {
            return;
        };
        let on_its_way = matches!(entry.body, Body::Announced { .. });
        let due = on_its_way && entry.length() > 0 && receiving.takes(&entry);
        receiving.posted = false;
        receiving.matched = Some(Matched {
            entry,
            transfer: if due {
                TransferPhase::Due
            } else {
                TransferPhase::None
            },
        });
        self.wake(id);
        let peer = &mut self.state.peers[source];
        if let Some(message) = message {
            peer.announced.insert(message, Place::Receive(id));
        }
        if due {
            peer.due.push_back(id);
            self.write(source);
        }
    }

    /// A receive gets the first message that matches, or waits for one.
    pub(super) fn post(&mut self, id: u64) {
        let Some(receiving) = self.receiving(id) else {
            return;
        };
        let pattern = receiving.pattern;
        match self.state.inbox.take(&pattern) {
            Some(entry) => self.assign(id, entry),
            None => {
                self.state.inbox.post(id, pattern);
                if let Some(receiving) = self.receiving(id) {
                    receiving.posted = true;
                }
            }
        }
    }

    /// Asks a member for the bodies that receives wait for, as many at a time as may be; whether it did.
    pub(super) fn ask_due(&mut self, member: usize) -> bool {
        let mut asked = false;
        while self.state.peers[member].may_ask()
            && let Some(id) = self.state.peers[member].due.pop_front()
        {
            let transfer = self.state.next_transfer;
            let Some(Receiving {
                matched: Some(matched),
                ..
            }) = self.receiving(id)
            else {
                continue;
            };
            let Body::Announced { message, .. } = matched.entry.body else {
                continue;
            };
            matched.transfer = TransferPhase::Asked {
                transfer,
                lane: None,
            };
            self.state.next_transfer = transfer.wrapping_add(1);
            self.state.transfers.insert(transfer, id);
            let peer = &mut self.state.peers[member];
            peer.transfers += 1;
            let frame = Frame::ClearToSend { message, transfer };
            peer.queue.push(&frame.encode(), Bytes::new());
            asked = true;
        }
        asked
    }

    /// A body begins to come. Where nobody waits for it, dropping the lane stops it.
    pub(super) fn take_bulk_lane(&mut self, member: usize, number: u64, lane: RecvOf<T>) {
        let Some(&id) = self.state.transfers.get(&number) else {
            return;
        };
        if let Some(Receiving {
            matched: Some(matched),
            ..
        }) = self.receiving(id)
            && matched.entry.source == member
            && let TransferPhase::Asked { lane: slot, .. } = &mut matched.transfer
        {
            *slot = Some(lane);
            self.wake(id);
        }
    }

    /// A receive needs its transfer no more; whether the sender had been asked.
    fn release_transfer(
        &mut self,
        id: u64,
        source: usize,
        phase: TransferPhase<RecvOf<T>>,
    ) -> bool {
        let peer = &mut self.state.peers[source];
        match phase {
            TransferPhase::None => false,
            TransferPhase::Due => {
                peer.due.retain(|due| *due != id);
                false
            }
            TransferPhase::Asked { transfer, .. } => {
                peer.transfers -= 1;
                self.state.transfers.remove(&transfer);
                true
            }
        }
    }

    /// A receive is done with the message of this arrival, which is returned. None where it does not have
    /// it any more, since another thread may have seen in the meantime that it was withdrawn.
    pub(super) fn finish_receive(&mut self, id: u64, arrival: u64) -> Option<Entry> {
        let matched = self.receiving(id)?.matched.as_ref()?;
        if matched.entry.arrival != arrival {
            return None;
        }
        let Some(Kind::Receive(Receiving {
            matched: Some(matched),
            ..
        })) = self.end(id)
        else {
            return None;
        };
        let entry = matched.entry;
        let source = entry.source;
        self.release_transfer(id, source, matched.transfer);
        let peer = &mut self.state.peers[source];
        match &entry.body {
            Body::Eager { .. } => {
                peer.returning += cost(entry.length());
                if peer.returning >= RETURN_CREDIT {
                    let bytes = std::mem::take(&mut peer.returning);
                    peer.held -= bytes;
                    let frame = Frame::Credit {
                        bytes: bytes as u64,
                    };
                    peer.queue.push(&frame.encode(), Bytes::new());
                    self.write(source);
                }
            }
            Body::Announced { message, .. } => {
                peer.announced.remove(message);
                let frame = Frame::Taken { message: *message };
                peer.queue.push(&frame.encode(), Bytes::new());
                self.write(source);
            }
            Body::Own { message: None, .. } => peer.held -= cost(entry.length()),
            Body::Own {
                message: Some(message),
                ..
            } => {
                peer.announced.remove(message);
                self.taken(source, *message);
            }
        }
        Some(entry)
    }

    /// A receive is dropped: it has consumed nothing.
    pub(super) fn drop_receive(&mut self, id: u64) {
        let Some(Kind::Receive(receiving)) = self.end(id) else {
            return;
        };
        if receiving.posted {
            self.state.inbox.unpost(id, receiving.pattern);
        }
        let Some(Matched { entry, transfer }) = receiving.matched else {
            return;
        };
        let source = entry.source;
        let asked = self.release_transfer(id, source, transfer);
        if self.state.failure.is_some() || self.state.closed {
            return;
        }
        if asked && let Body::Announced { message, .. } = entry.body {
            let peer = &mut self.state.peers[source];
            peer.queue
                .push(&Frame::Keep { message }.encode(), Bytes::new());
        }
        self.offer(entry);
        self.write(source);
    }

    /// An announced message does not come after all. A receive that had it waits for the next one.
    pub(super) fn withdraw(&mut self, member: usize, message: u64) {
        match self.state.peers[member].announced.remove(&message) {
            // It was taken before.
            None => {}
            Some(Place::Inbox(arrival)) => {
                self.state.inbox.remove(member, arrival);
            }
            Some(Place::Receive(id)) => {
                self.unmatch(id);
                self.write(member);
            }
        }
    }

    fn unmatch(&mut self, id: u64) {
        let Some(receiving) = self.receiving(id) else {
            return;
        };
        if let Some(Matched { entry, transfer }) = receiving.matched.take() {
            self.release_transfer(id, entry.source, transfer);
            self.post(id);
            self.wake(id);
        }
    }

    /// A member has left. What it sent before can still be received; what it only announced cannot.
    pub(super) fn left(&mut self, member: usize) {
        let peer = &mut self.state.peers[member];
        peer.queue.clear();
        if let OutLane::Opening(task) = std::mem::replace(&mut peer.lane, OutLane::Over) {
            task.abort();
        }
        if peer.is_gone() {
            self.state.inbox.forget_announced(member);
            let announced = std::mem::take(&mut self.state.peers[member].announced);
            for place in announced.into_values() {
                if let Place::Receive(id) = place {
                    self.unmatch(id);
                }
            }
        }
        self.wake_all(|_| true);
    }

    /// Why a source can send nothing any more.
    pub(super) fn unreachable(&self, source: Source) -> Result<(), Cause> {
        let own = self.inner.group.rank();
        let peers = &self.state.peers;
        let gone = |rank: usize| rank != own && peers.get(rank).is_some_and(|p| p.is_gone());
        let left = match source {
            Source::Rank(rank) => gone(rank).then_some(rank),
            Source::Any => {
                let mut others = (0..peers.len()).filter(|rank| *rank != own);
                let first = others.clone().next();
                first.filter(|_| others.all(gone))
            }
        };
        match left {
            Some(rank) => Err(Cause::Failed(Failure::PeerLeft { rank })),
            None if self.state.closed => Err(Cause::Failed(Failure::ShutDown)),
            None => Ok(()),
        }
    }
}

impl Body {
    /// The number under which its sender waits.
    fn number(&self) -> Option<u64> {
        match self {
            Body::Eager { .. } => None,
            Body::Announced { message, .. } => Some(*message),
            Body::Own { message, .. } => *message,
        }
    }
}
