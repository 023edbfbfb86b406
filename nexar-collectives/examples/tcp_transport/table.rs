//! What the task of a connection knows: which streams there are, and what the peer may do.
//!
//! The task shows the table every frame, those that come in ([`Table::take`]) and those that go out
//! ([`Table::note`]). The table hands frames to the halves of streams, and answers with frames of its own.

use crate::{
    connection::{CONNECTION_WINDOW, MAX_EVENTS, MAX_STREAMS, STREAM_WINDOW},
    frame::{BI, Frame, StreamId, What, violation},
};
use bytes::Bytes;
use std::{collections::HashMap, io};
use tokio::sync::mpsc;

pub(crate) struct Table {
    by_dialler: bool,
    /// Frames to be written.
    frames: mpsc::Sender<Frame>,
    /// To the acceptor of each kind.
    incoming: [mpsc::UnboundedSender<Halves>; 2],
    streams: HashMap<StreamId, Entry>,
    /// How many streams of each kind this side has opened.
    opened: [u64; 2],
    /// How many streams of each kind the peer has opened, and how many it may have opened by now.
    seen: [u64; 2],
    allowed: [u64; 2],
    /// What the peer may still send.
    room: u64,
}

/// A new stream, with what the peer says to each of its halves.
#[derive(Debug)]
pub(crate) struct Halves {
    pub(crate) id: StreamId,
    pub(crate) send: mpsc::Receiver<Frame>,
    pub(crate) recv: mpsc::Receiver<Frame>,
}

/// A stream. A direction that it does not have, or that is over, is none.
struct Entry {
    sending: Option<mpsc::Sender<Frame>>,
    receiving: Option<Receiving>,
}

struct Receiving {
    events: mpsc::Sender<Frame>,
    /// What the peer may still send.
    room: u64,
}

/// Hands a frame to somebody who may be gone, but who is never that far behind unless the peer breaks the
/// protocol.
fn hand(to: &mpsc::Sender<Frame>, frame: Frame) -> io::Result<()> {
    match to.try_send(frame) {
        Err(mpsc::error::TrySendError::Full(_)) => Err(violation("more than is allowed")),
        _ => Ok(()),
    }
}

impl Table {
    pub(crate) fn new(
        by_dialler: bool,
        frames: mpsc::Sender<Frame>,
        incoming: [mpsc::UnboundedSender<Halves>; 2],
    ) -> Self {
        Table {
            by_dialler,
            frames,
            incoming,
            streams: HashMap::new(),
            opened: [0; 2],
            seen: [0; 2],
            allowed: [MAX_STREAMS as u64; 2],
            room: CONNECTION_WINDOW,
        }
    }

    /// Opens a stream of this side. The caller has seen to the limit.
    pub(crate) fn open(&mut self, kind: usize) -> Halves {
        let id = StreamId::new(self.by_dialler, kind, self.opened[kind]);
        self.opened[kind] += 1;
        self.enter(id, true, kind == BI)
    }

    fn enter(&mut self, id: StreamId, sends: bool, receives: bool) -> Halves {
        let (to_sender, send) = mpsc::channel(MAX_EVENTS);
        let (events, recv) = mpsc::channel(MAX_EVENTS);
        let receiving = Receiving {
            events,
            room: STREAM_WINDOW,
        };
        let entry = Entry {
            sending: sends.then_some(to_sender),
            receiving: receives.then_some(receiving),
        };
        self.streams.insert(id, entry);
        Halves { id, send, recv }
    }

    /// Does what a frame from the peer about a stream says.
    pub(crate) fn take(&mut self, frame: Frame) -> io::Result<()> {
        self.admit(frame.id)?;
        match frame.what {
            What::Data | What::Finish | What::Reset => self.tell_receiver(frame),
            What::Credit | What::Acked | What::Stop => self.tell_sender(frame),
            What::Hello | What::Ended | What::Close => Err(violation("a frame out of place")),
        }
    }

    /// Notes what a frame that goes out says.
    pub(crate) fn note(&mut self, frame: &Frame) -> io::Result<()> {
        let entry = self.streams.get_mut(&frame.id);
        match (frame.what, entry) {
            (What::Credit, entry) => {
                self.room += frame.value;
                if let Some(receiving) = entry.and_then(|entry| entry.receiving.as_mut()) {
                    receiving.room += frame.value;
                }
            }
            (What::Reset, Some(entry)) => entry.sending = None,
            (What::Stop, Some(entry)) => {
                // What has arrived and will never be read.
                let rest = entry.receiving.take().map_or(0, |r| STREAM_WINDOW - r.room);
                self.give_back(frame.id, rest)?;
            }
            _ => {}
        }
        self.forget_if_over(frame.id)
    }

    /// Checks that there is or was such a stream. The first frame of one of the peer's streams enters it, and
    /// those that the peer has opened before.
    fn admit(&mut self, id: StreamId) -> io::Result<()> {
        let kind = id.kind();
        let ours = id.by_dialler() == self.by_dialler;
        let limit = if ours { self.opened } else { self.allowed };
        if id.index() >= limit[kind] {
            return Err(violation("a stream that is not allowed"));
        }
        while !ours && self.seen[kind] <= id.index() {
            let id = StreamId::new(!self.by_dialler, kind, self.seen[kind]);
            self.seen[kind] += 1;
            let halves = self.enter(id, kind == BI, true);
            // Without an acceptor, nobody will ever use the stream.
            let _ = self.incoming[kind].send(halves);
        }
        Ok(())
    }

    fn tell_receiver(&mut self, frame: Frame) -> io::Result<()> {
        let too_much = || violation("more data than credit");
        let (id, cost) = (frame.id, frame.cost());
        self.room = self.room.checked_sub(cost).ok_or_else(too_much)?;
        if frame.what == What::Finish {
            // Before the receiver can say that it has read to the end.
            hand(&self.frames, Frame::new(What::Acked, id, 0, Bytes::new()))?;
        }
        let entry = self.streams.get_mut(&id);
        let Some(receiving) = entry.and_then(|entry| entry.receiving.as_mut()) else {
            // It was on its way when the stream was stopped.
            return self.give_back(id, cost);
        };
        receiving.room = receiving.room.checked_sub(cost).ok_or_else(too_much)?;
        hand(&receiving.events, frame)
    }

    pub(crate) fn tell_sender(&mut self, frame: Frame) -> io::Result<()> {
        let (id, over) = (frame.id, frame.what != What::Credit);
        if let Some(entry) = self.streams.get_mut(&id) {
            if let Some(events) = &entry.sending {
                hand(events, frame)?;
            }
            if over {
                entry.sending = None;
            }
        }
        self.forget_if_over(id)
    }

    fn give_back(&self, id: StreamId, cost: u64) -> io::Result<()> {
        if cost == 0 {
            return Ok(());
        }
        let credit = Frame::new(What::Credit, id, cost, Bytes::new());
        hand(&self.frames, credit)
    }

    /// Forgets a stream when both directions are over, and lets the peer open another one.
    fn forget_if_over(&mut self, id: StreamId) -> io::Result<()> {
        match self.streams.get(&id) {
            Some(entry) if entry.sending.is_none() && entry.receiving.is_none() => {}
            _ => return Ok(()),
        }
        self.streams.remove(&id);
        if id.by_dialler() == self.by_dialler {
            return Ok(());
        }
        self.allowed[id.kind()] += 1;
        hand(&self.frames, Frame::new(What::Ended, id, 0, Bytes::new()))
    }
}
