//! Runs a schedule: one poll function over all streams of an operation.

use super::{
    memory::{Combiner, Memory},
    pool::ChunkPool,
    program::{PeerItems, Program},
};
use crate::schedule::{Action, ItemId};
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
    /// The arithmetic refused, which a checked call does not cause.
    Local(String),
}

fn no_lane(member: usize) -> Trouble {
    Trouble::Local(format!("there is no lane to rank {member}"))
}

pub(crate) struct Executor<'a, 'm, 'c, T: Transport> {
    call: &'a OngoingCall<'a, T>,
    program: &'a Program,
    memory: &'a mut Memory<'m>,
    combiner: Combiner<'c>,
    pool: &'a ChunkPool,
    /// By member.
    lanes: &'a mut [Lane<T>],
    peers: Vec<PeerRun<'a>>,
    next_copy: usize,
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
    fn fill(&mut self, data: &mut &[u8]) -> bool {
        let take = (HEADER_LEN - self.filled).min(data.len());
        self.bytes[self.filled..self.filled + take].copy_from_slice(&data[..take]);
        self.filled += take;
        data.advance(take);
        self.filled == HEADER_LEN
    }
}

/// Moves bytes from `data` until an element of `size` bytes is complete; whether it is.
fn carry_on(carry: &mut Vec<u8>, size: usize, data: &mut &[u8]) -> bool {
    let take = size.saturating_sub(carry.len()).min(data.len());
    carry.extend_from_slice(&data[..take]);
    data.advance(take);
    carry.len() == size
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

impl<'a, 'm, 'c, T: Transport> Executor<'a, 'm, 'c, T> {
    pub(crate) fn new(
        call: &'a OngoingCall<'a, T>,
        program: &'a Program,
        memory: &'a mut Memory<'m>,
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
            let mut moved = self.copy();
            let mut finished = self.next_copy == self.program.copies.len();
            for at in 0..self.peers.len() {
                moved |= self.send(at, cx)?;
                moved |= self.receive(at, cx)?;
                finished &= self.peers[at].finished();
            }
            if finished {
                return Poll::Ready(Ok(()));
            }
            if !moved {
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

    fn copy(&mut self) -> bool {
        let mut moved = false;
        while let Some(id) = self.program.copies.get(self.next_copy)
            && self.ready(*id)
        {
            if let Action::Copy { from, to } = self.program.schedule.items[*id as usize].action {
                self.memory.copy(from, to);
            }
            self.done[*id as usize] = true;
            self.next_copy += 1;
            moved = true;
        }
        moved
    }

    fn send(&mut self, at: usize, cx: &mut Context<'_>) -> Result<bool, Trouble> {
        let mut moved = false;
        loop {
            if self.peers[at].pending.is_empty() && !self.next_chunk(at) {
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
    fn next_chunk(&mut self, at: usize) -> bool {
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
            return alone;
        };
        let Action::Send { span, .. } = self.program.schedule.items[id as usize].action else {
            return false;
        };
        let length = self.memory.length(span);
        let header: &[u8] = match peer.header_sent {
            true => &[],
            false => &peer.own_header,
        };
        let shared = self.program.shared[id as usize].filter(|_| length <= MAX_CHUNK);
        let (chunk, taken) = match shared {
            // The header goes ahead alone, so that the chunk can be shared.
            Some(_) if !header.is_empty() && length > HEADER_LEN => {
                (Bytes::copy_from_slice(header), 0)
            }
            Some(number) if header.is_empty() => (self.shared_chunk(number as usize, span), length),
            _ => {
                let end = length.min(peer.send_offset + MAX_CHUNK);
                let body = &self.memory.read(span)[peer.send_offset..end];
                (self.pool.bytes([header, body]), end - peer.send_offset)
            }
        };
        let peer = &mut self.peers[at];
        peer.pending = chunk;
        peer.header_sent = true;
        peer.send_offset += taken;
        if taken > 0 && peer.send_offset == length {
            peer.send_offset = 0;
            peer.next_send += 1;
            self.done[id as usize] = true;
        }
        true
    }

    fn shared_chunk(&mut self, number: usize, span: crate::schedule::Span) -> Bytes {
        let chunk = self.shared[number]
            .take()
            .unwrap_or_else(|| self.pool.bytes([&[], self.memory.read(span)]));
        self.sharers_left[number] = self.sharers_left[number].saturating_sub(1);
        if self.sharers_left[number] > 0 {
            self.shared[number] = Some(chunk.clone());
        }
        chunk
    }

    fn receive(&mut self, at: usize, cx: &mut Context<'_>) -> Result<bool, Trouble> {
        let mut moved = false;
        for _ in 0..READS_IN_A_ROW {
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
            self.take(at, &bytes?)?;
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
    fn take(&mut self, at: usize, bytes: &[u8]) -> Result<(), Trouble> {
        let mut data = bytes;
        let peer = &mut self.peers[at];
        if peer.header.filled < HEADER_LEN {
            if !peer.header.fill(&mut data) {
                return Ok(());
            }
            let (member, header) = (peer.items.member, peer.header.bytes);
            self.compare(member, &header)?;
        }
        if data.is_empty() {
            return Ok(());
        }
        self.store(at, data)
            .map_err(|error| Trouble::Local(error.to_string()))
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

    fn store(
        &mut self,
        at: usize,
        mut data: &[u8],
    ) -> Result<(), nexar_device::reduce::ReduceError> {
        let peer = &mut self.peers[at];
        let Some(&id) = peer.items.receives.get(peer.next_receive) else {
            return Ok(());
        };
        let Action::Recv { span, store, .. } = self.program.schedule.items[id as usize].action
        else {
            return Ok(());
        };
        let element = self.memory.element;
        let start = peer.receive_offset - peer.carry.len();
        peer.receive_offset += data.len();
        let mut offset = start;
        if !peer.carry.is_empty() && carry_on(&mut peer.carry, element, &mut data) {
            self.combiner
                .store(self.memory, span, store, offset, &peer.carry)?;
            peer.carry.clear();
            offset += element;
        }
        let whole = data.len() - data.len() % element;
        if whole > 0 {
            let (elements, rest) = data.split_at(whole);
            self.combiner
                .store(self.memory, span, store, offset, elements)?;
            data = rest;
        }
        if !data.is_empty() {
            carry_on(&mut peer.carry, element, &mut data);
        }
        if peer.receive_offset == self.memory.length(span) {
            peer.receive_offset = 0;
            peer.next_receive += 1;
            self.done[id as usize] = true;
            self.combiner.complete(self.memory, span, store)?;
        }
        Ok(())
    }
}
