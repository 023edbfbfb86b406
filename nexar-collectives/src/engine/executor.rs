//! Runs a schedule: one poll function over all streams of an operation.

use super::{
    combine::Combiner,
    memory::Memory,
    pool::ChunkPool,
    program::{PeerItems, Program},
    staging::Need,
};
use crate::schedule::{Action, ItemId, Span};
use bytes::{Buf, Bytes};
use nexar_core::{
    Call, Failure,
    membership::{RecvOf, SendOf},
    mesh::OngoingCall,
    transport::{RecvStream, SendStream, StreamError, Transport},
    wire::{
        LaneKind,
        header::{self, HEADER_LEN},
    },
};
use nexar_device::{DeviceError, ExecutionQueue};
use std::task::{Context, Poll, ready};

/// Longest chunk that is handed to a stream at once.
const MAX_CHUNK: usize = 256 << 10;

/// Reads from one stream in a row, so that the other streams and the sends get their turn.
const READS_IN_A_ROW: usize = 8;

/// Passes over all streams in one poll, so that failures are noticed and other tasks get their turn.
const PASSES_IN_A_ROW: usize = 64;

/// The two directions of the lane to one member.
#[derive(Debug)]
pub(crate) struct Lane<T: Transport> {
    pub(crate) send: Option<SendOf<T>>,
    pub(crate) recv: Option<RecvOf<T>>,
}

/// Why an operation cannot go on.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The reason is known.
    Failure(Failure),
    /// A stream to or from a member broke; the control stream may know why.
    Stream(usize, StreamError),
    /// The device failed, or the arithmetic refused, which a checked call does not cause.
    Local(String),
}

impl From<DeviceError> for Trouble {
    fn from(error: DeviceError) -> Self {
        Trouble::Local(error.to_string())
    }
}

fn no_lane(member: usize) -> Trouble {
    Trouble::Local(format!("there is no lane to rank {member}"))
}

pub(crate) struct Executor<'a, 'm, 'c, T: Transport, Q: ExecutionQueue> {
    call: &'a OngoingCall<'a, T>,
    program: &'a Program,
    memory: &'a mut Memory<'m, Q>,
    combiner: Combiner<'c>,
    pool: &'a ChunkPool,
    /// By member.
    lanes: &'a mut [Lane<T>],
    peers: Vec<PeerRun<'a>>,
    next_copy: usize,
    /// Bytes of the next copy that have been made.
    copy_offset: usize,
    /// By item.
    done: &'a mut Vec<bool>,
    /// Common chunks that some receivers have yet to be sent.
    shared: Vec<Option<Bytes>>,
    sharers_left: Vec<u32>,
}

/// How far the exchange with one member is.
struct PeerRun<'a> {
    items: &'a PeerItems,
    /// What the member is told of the call.
    own_header: [u8; HEADER_LEN],
    header_sent: bool,
    next_send: usize,
    /// Bytes of the next send that have been copied out.
    send_offset: usize,
    pending: Bytes,
    header: Header,
    next_receive: usize,
    /// Bytes of the next receive that have been stored.
    receive_offset: usize,
    /// The first bytes of an element whose other bytes have not arrived.
    carry: Vec<u8>,
    /// What has arrived for the next receive before its memory was at hand.
    arrived: Bytes,
}

/// The first bytes of a member's header.
struct Header {
    bytes: [u8; HEADER_LEN],
    filled: usize,
}

impl Header {
    const EMPTY: Self = Header {
        bytes: [0; HEADER_LEN],
        filled: 0,
    };

    /// Moves bytes from `data` until the header is complete; whether it is.
    fn fill(&mut self, data: &mut Bytes) -> bool {
        let take = (HEADER_LEN - self.filled).min(data.len());
        data.copy_to_slice(&mut self.bytes[self.filled..self.filled + take]);
        self.filled += take;
        self.filled == HEADER_LEN
    }
}

/// Moves bytes from `data` until an element of `size` bytes is complete; how many.
fn carry_on(carry: &mut Vec<u8>, size: usize, data: &mut Bytes) -> usize {
    let take = size.saturating_sub(carry.len()).min(data.len());
    carry.extend_from_slice(&data[..take]);
    data.advance(take);
    take
}

impl PeerRun<'_> {
    fn finished(&self) -> bool {
        self.pending.is_empty()
            && self.header_sent
            && self.next_send == self.items.sends.len()
            && self.header.filled == HEADER_LEN
            && self.next_receive == self.items.receives.len()
    }
}

impl<'a, 'm, 'c, T: Transport, Q: ExecutionQueue> Executor<'a, 'm, 'c, T, Q> {
    pub(crate) fn new(
        call: &'a OngoingCall<'a, T>,
        program: &'a Program,
        memory: &'a mut Memory<'m, Q>,
        combiner: Combiner<'c>,
        pool: &'a ChunkPool,
        lanes: &'a mut [Lane<T>],
        done: &'a mut Vec<bool>,
    ) -> Self {
        done.clear();
        done.resize(program.schedule.items.len(), false);
        let run = |items: &'a PeerItems| PeerRun {
            items,
            own_header: header::encode(&call.towards(items.member)),
            header_sent: false,
            next_send: 0,
            send_offset: 0,
            pending: Bytes::new(),
            header: Header::EMPTY,
            next_receive: 0,
            receive_offset: 0,
            carry: Vec::new(),
            arrived: Bytes::new(),
        };
        Executor {
            call,
            program,
            memory,
            combiner,
            pool,
            lanes,
            peers: program.peers.iter().map(run).collect(),
            next_copy: 0,
            copy_offset: 0,
            done,
            shared: vec![None; program.sharers.len()],
            sharers_left: program.sharers.clone(),
        }
    }

    /// Goes as far as possible; ready when everything is sent, received and stored.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Trouble>> {
        if let Poll::Ready(failure) = self.call.poll_failure(cx) {
            return Poll::Ready(Err(Trouble::Failure(failure)));
        }
        for _ in 0..PASSES_IN_A_ROW {
            let mut moved = self.copy(cx)?;
            let mut finished = self.next_copy == self.program.copies.len();
            for at in 0..self.peers.len() {
                moved |= self.send(at, cx)?;
                moved |= self.receive(at, cx)?;
                finished &= self.peers[at].finished();
            }
            // Last, so that what was enqueued above has a waker before this returns.
            moved |= self.memory.poll_copies(cx)?;
            if finished && self.memory.is_settled() {
                return Poll::Ready(Ok(()));
            }
            if !moved {
                self.call.set_waiting_for_device(self.memory.is_copying());
                return Poll::Pending;
            }
            self.call.made_progress();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn ready(&self, id: ItemId) -> bool {
        let after = self.program.schedule.items[id as usize].after;
        after.iter().flatten().all(|id| self.done[*id as usize])
    }

    fn copy(&mut self, cx: &mut Context<'_>) -> Result<bool, Trouble> {
        let mut moved = false;
        while let Some(id) = self.program.copies.get(self.next_copy)
            && self.ready(*id)
        {
            if let Action::Copy { from, to } = self.program.schedule.items[*id as usize].action {
                let Poll::Ready(copied) = self.memory.poll_copy(cx, from, to, self.copy_offset)
                else {
                    break;
                };
                moved = true;
                self.copy_offset += copied?;
                if self.copy_offset < self.memory.length(from) {
                    continue;
                }
            }
            self.copy_offset = 0;
            self.done[*id as usize] = true;
            self.next_copy += 1;
        }
        Ok(moved)
    }

    fn send(&mut self, at: usize, cx: &mut Context<'_>) -> Result<bool, Trouble> {
        let mut moved = false;
        loop {
            if self.peers[at].pending.is_empty() && !self.next_chunk(at, cx)? {
                return Ok(moved);
            }
            let peer = &mut self.peers[at];
            let member = peer.items.member;
            let lane = self.lanes.get_mut(member);
            let Some(stream) = lane.and_then(|lane| lane.send.as_mut()) else {
                return Err(no_lane(member));
            };
            match stream.poll_write(cx, &mut peer.pending) {
                Poll::Ready(Ok(())) => moved = true,
                Poll::Ready(Err(error)) => return Err(Trouble::Stream(member, error)),
                Poll::Pending => return Ok(moved),
            }
        }
    }

    /// Makes the next chunk for a member pending, if one may be sent yet.
    fn next_chunk(&mut self, at: usize, cx: &mut Context<'_>) -> Result<bool, Trouble> {
        let peer = &self.peers[at];
        let next = peer
            .items
            .sends
            .get(peer.next_send)
            .filter(|id| self.ready(**id));
        let Some(&id) = next else {
            // A member to which nothing is sent, or not yet, still has to learn of this call. Where
            // data will follow, the header goes with it.
            let alone = !peer.header_sent && peer.items.sends.is_empty();
            if alone {
                let peer = &mut self.peers[at];
                peer.pending = Bytes::copy_from_slice(&peer.own_header);
                peer.header_sent = true;
            }
            return Ok(alone);
        };
        let Action::Send { span, .. } = self.program.schedule.items[id as usize].action else {
            return Ok(false);
        };
        let (offset, length) = (peer.send_offset, self.memory.length(span));
        let Poll::Ready(found) = self.memory.poll_at_hand(cx, span, offset, Need::Read) else {
            return Ok(false);
        };
        let found = found?.min(MAX_CHUNK);
        let peer = &self.peers[at];
        let header: &[u8] = match peer.header_sent {
            true => &[],
            false => &peer.own_header,
        };
        let shared = self.program.shared[id as usize].filter(|_| found == length);
        let (chunk, taken) = match shared {
            // The header goes ahead alone, so that the chunk can be shared.
            Some(_) if !header.is_empty() && length > HEADER_LEN => {
                (Bytes::copy_from_slice(header), 0)
            }
            Some(number) if header.is_empty() => (self.shared_chunk(number as usize, span), length),
            _ => {
                let body = self.memory.read(span, offset, found);
                (self.pool.bytes([header, body]), found)
            }
        };
        self.memory.done_with(span, offset, taken);
        let peer = &mut self.peers[at];
        peer.pending = chunk;
        peer.header_sent = true;
        peer.send_offset += taken;
        if taken > 0 && peer.send_offset == length {
            peer.send_offset = 0;
            peer.next_send += 1;
            self.done[id as usize] = true;
        }
        Ok(true)
    }

    fn shared_chunk(&mut self, number: usize, span: Span) -> Bytes {
        let length = self.memory.length(span);
        let chunk = self.shared[number]
            .take()
            .unwrap_or_else(|| self.pool.bytes([&[], self.memory.read(span, 0, length)]));
        self.sharers_left[number] = self.sharers_left[number].saturating_sub(1);
        if self.sharers_left[number] > 0 {
            self.shared[number] = Some(chunk.clone());
        }
        chunk
    }

    fn receive(&mut self, at: usize, cx: &mut Context<'_>) -> Result<bool, Trouble> {
        let mut moved = false;
        for _ in 0..READS_IN_A_ROW {
            if !self.peers[at].arrived.is_empty() {
                let arrived = std::mem::take(&mut self.peers[at].arrived);
                let before = arrived.len();
                self.store(at, cx, arrived)?;
                moved |= self.peers[at].arrived.len() < before;
                if !self.peers[at].arrived.is_empty() {
                    break;
                }
            }
            let peer = &self.peers[at];
            let item = peer
                .items
                .receives
                .get(peer.next_receive)
                .filter(|id| self.ready(**id));
            let body = item.map_or(0, |id| self.receive_length(*id) - peer.receive_offset);
            let wanted = HEADER_LEN - peer.header.filled + body;
            if wanted == 0 {
                break;
            }
            let Poll::Ready(bytes) = self.read(at, cx, wanted) else {
                break;
            };
            self.take(at, cx, bytes?)?;
            moved = true;
        }
        Ok(moved)
    }

    fn receive_length(&self, id: ItemId) -> usize {
        match self.program.schedule.items[id as usize].action {
            Action::Recv { span, .. } => self.memory.length(span),
            Action::Send { .. } | Action::Copy { .. } => 0,
        }
    }

    fn read(
        &mut self,
        at: usize,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Bytes, Trouble>> {
        let member = self.peers[at].items.member;
        let Some(lane) = self.lanes.get_mut(member) else {
            return Poll::Ready(Err(no_lane(member)));
        };
        let stream = match &mut lane.recv {
            Some(stream) => stream,
            none => {
                let lane = self
                    .call
                    .group()
                    .poll_lane(cx, member, LaneKind::Collective);
                none.insert(ready!(lane))
            }
        };
        Poll::Ready(match ready!(stream.poll_read(cx, max)) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(Trouble::Stream(member, StreamError::UnexpectedEnd)),
            Err(error) => Err(Trouble::Stream(member, error)),
        })
    }

    /// Takes in what has arrived from a member: no more than the header and one item.
    fn take(&mut self, at: usize, cx: &mut Context<'_>, mut bytes: Bytes) -> Result<(), Trouble> {
        let peer = &mut self.peers[at];
        if peer.header.filled < HEADER_LEN {
            if !peer.header.fill(&mut bytes) {
                return Ok(());
            }
            let (member, header) = (peer.items.member, peer.header.bytes);
            self.compare(member, &header)?;
        }
        match bytes.is_empty() {
            true => Ok(()),
            false => self.store(at, cx, bytes),
        }
    }

    fn compare(&self, member: usize, bytes: &[u8; HEADER_LEN]) -> Result<(), Trouble> {
        let theirs: Call = header::decode(bytes).map_err(|error| {
            Trouble::Failure(Failure::Protocol {
                rank: member,
                what: error.to_string(),
            })
        })?;
        let ours = self.call.towards(member);
        if ours.agrees(&theirs) {
            return Ok(());
        }
        let own = self.call.group().rank();
        Err(Trouble::Failure(Failure::mismatch(
            (own, ours),
            (member, theirs),
        )))
    }

    /// Stores what has arrived for the next receive, as far as its memory is at hand; keeps the rest.
    fn store(&mut self, at: usize, cx: &mut Context<'_>, mut data: Bytes) -> Result<(), Trouble> {
        let element = self.memory.element;
        let peer = &mut self.peers[at];
        let Some(&id) = peer.items.receives.get(peer.next_receive) else {
            return Ok(());
        };
        let Action::Recv { span, store, .. } = self.program.schedule.items[id as usize].action
        else {
            return Ok(());
        };
        while !data.is_empty() {
            let offset = peer.receive_offset - peer.carry.len();
            let Poll::Ready(room) = self.memory.poll_at_hand(cx, span, offset, Need::to(store))
            else {
                break;
            };
            let length = room?.min(data.len() - data.len() % element);
            let (elements, length) = match !peer.carry.is_empty() || length == 0 {
                false => (&data[..length], length),
                true => {
                    peer.receive_offset += carry_on(&mut peer.carry, element, &mut data);
                    if peer.carry.len() < element {
                        break;
                    }
                    (&peer.carry[..], element)
                }
            };
            self.combiner
                .store(self.memory, span, store, offset, elements)
                .map_err(|error| Trouble::Local(error.to_string()))?;
            self.memory.done_with(span, offset, length);
            match peer.carry.is_empty() {
                false => peer.carry.clear(),
                true => {
                    data.advance(length);
                    peer.receive_offset += length;
                }
            }
        }
        if data.is_empty()
            && peer.carry.is_empty()
            && peer.receive_offset == self.memory.length(span)
        {
            peer.receive_offset = 0;
            peer.next_receive += 1;
            self.done[id as usize] = true;
            self.combiner.complete(span, store);
        }
        if !data.is_empty() {
            peer.arrived = data;
        }
        Ok(())
    }
}
