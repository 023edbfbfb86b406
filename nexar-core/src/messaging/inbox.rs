//! Which message goes to which receive: pure bookkeeping, without I/O.

use super::Received;
use crate::DataType;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// From whom to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// From whichever rank's message arrived first, this rank itself included.
    Any,
    /// From this rank of the communicator.
    Rank(usize),
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Source::Rank(rank)
    }
}

/// Which tag to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Whatever the tag of the message that arrived first.
    Any,
    /// This tag.
    Value(u64),
}

impl From<u64> for Tag {
    fn from(tag: u64) -> Self {
        Tag::Value(tag)
    }
}

/// The messages that a receive is content with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) source: Source,
    pub(super) tag: Tag,
}

impl Pattern {
    pub(super) fn matches(&self, source: usize, tag: u64) -> bool {
        (self.source == Source::Any || self.source == Source::Rank(source))
            && (self.tag == Tag::Any || self.tag == Tag::Value(tag))
    }
}

/// A message that has arrived, or at least its announcement.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Its place in the order of arrival from all sources.
    pub(super) arrival: u64,
    pub(super) source: usize,
    pub(super) tag: u64,
    pub(super) dtype: Option<DataType>,
    pub(super) body: Body,
}

impl Entry {
    /// Length of the message in bytes.
    pub(super) fn length(&self) -> usize {
        match &self.body {
            Body::Eager { bytes, .. } | Body::Own { bytes, .. } => bytes.len(),
            Body::Announced { length, .. } => *length,
        }
    }

    pub(super) fn received(&self) -> Received {
        let length = self.length();
        let element = self.dtype.map_or(1, DataType::size);
        Received {
            source: self.source,
            tag: self.tag,
            dtype: self.dtype,
            count: length / element,
            length,
        }
    }
}

/// Where the body of a message is.
#[derive(Debug, Clone)]
pub(super) enum Body {
    /// It came with the header. A borrowed one keeps a larger chunk in memory.
    Eager { bytes: Bytes, borrowed: bool },
    /// At the sender still.
    Announced { message: u64, length: usize },
    /// This rank sent it to itself; numbered where its send waits until it is taken.
    Own { bytes: Bytes, message: Option<u64> },
}

/// Messages without a receive, and receives without a message. There is never one of each that match.
#[derive(Debug)]
pub(super) struct Inbox {
    next_arrival: u64,
    sources: Vec<Queue>,
    /// Receives of one source and tag, which is most of them: source, tag, receive.
    exact: BTreeSet<(usize, u64, u64)>,
    /// All others.
    wild: BTreeMap<u64, Pattern>,
    messages: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Queue {
    /// By arrival.
    entries: BTreeMap<u64, Entry>,
    /// Tag and arrival.
    by_tag: BTreeSet<(u64, u64)>,
}

impl Queue {
    fn first(&self, tag: Tag) -> Option<u64> {
        match tag {
            Tag::Any => self.entries.keys().next().copied(),
            Tag::Value(tag) => {
                let mut of_tag = self.by_tag.range((tag, 0)..=(tag, u64::MAX));
                of_tag.next().map(|(_, arrival)| *arrival)
            }
        }
    }
}

impl Inbox {
    pub(super) fn new(world: usize) -> Self {
        Inbox {
            next_arrival: 0,
            sources: (0..world).map(|_| Queue::default()).collect(),
            exact: BTreeSet::new(),
            wild: BTreeMap::new(),
            messages: 0,
            bytes: 0,
        }
    }

    /// The place of a message that arrives now.
    pub(super) fn next_arrival(&mut self) -> u64 {
        self.next_arrival += 1;
        self.next_arrival
    }

    /// Messages that wait for a receive.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    /// Bytes of their bodies that are in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn find(&self, pattern: &Pattern) -> Option<(usize, u64)> {
        match pattern.source {
            Source::Rank(rank) => {
                let queue = self.sources.get(rank)?;
                queue.first(pattern.tag).map(|arrival| (rank, arrival))
            }
            Source::Any => {
                let firsts = self.sources.iter().enumerate();
                firsts
                    .filter_map(|(rank, queue)| Some((rank, queue.first(pattern.tag)?)))
                    .min_by_key(|(_, arrival)| *arrival)
            }
        }
    }

    /// The message that a receive would get.
    pub(super) fn peek(&self, pattern: &Pattern) -> Option<&Entry> {
        let (source, arrival) = self.find(pattern)?;
        self.sources.get(source)?.entries.get(&arrival)
    }

    /// Takes the message that a receive gets.
    pub(super) fn take(&mut self, pattern: &Pattern) -> Option<Entry> {
        let (source, arrival) = self.find(pattern)?;
        self.remove(source, arrival)
    }

    pub(super) fn remove(&mut self, source: usize, arrival: u64) -> Option<Entry> {
        let queue = self.sources.get_mut(source)?;
        let entry = queue.entries.remove(&arrival)?;
        queue.by_tag.remove(&(entry.tag, arrival));
        self.messages -= 1;
        self.bytes -= entry.body.in_memory();
        Some(entry)
    }

    /// Keeps a message at its place in the order of arrival.
    pub(super) fn insert(&mut self, mut entry: Entry) {
        if let Body::Eager { bytes, borrowed } = &mut entry.body
            && std::mem::take(borrowed)
        {
            *bytes = Bytes::copy_from_slice(bytes);
        }
        let Some(queue) = self.sources.get_mut(entry.source) else {
            return;
        };
        self.messages += 1;
        self.bytes += entry.body.in_memory();
        queue.by_tag.insert((entry.tag, entry.arrival));
        queue.entries.insert(entry.arrival, entry);
    }

    /// A receive waits. Those with lower numbers come first.
    pub(super) fn post(&mut self, receive: u64, pattern: Pattern) {
        match (pattern.source, pattern.tag) {
            (Source::Rank(source), Tag::Value(tag)) => {
                self.exact.insert((source, tag, receive));
            }
            _ => {
                self.wild.insert(receive, pattern);
            }
        }
    }

    /// A receive does not wait any more.
    pub(super) fn unpost(&mut self, receive: u64, pattern: Pattern) {
        match (pattern.source, pattern.tag) {
            (Source::Rank(source), Tag::Value(tag)) => {
                self.exact.remove(&(source, tag, receive));
            }
            _ => {
                self.wild.remove(&receive);
            }
        }
    }

    /// The receive that gets a message, which waits no more.
    pub(super) fn take_posted(&mut self, source: usize, tag: u64) -> Option<u64> {
        let exact = (self.exact)
            .range((source, tag, 0)..=(source, tag, u64::MAX))
            .next()
            .map(|(_, _, receive)| *receive);
        let wild = (self.wild.iter())
            .find(|(_, pattern)| pattern.matches(source, tag))
            .map(|(receive, _)| *receive);
        let receive = match (exact, wild) {
            (Some(exact), Some(wild)) => exact.min(wild),
            (exact, wild) => exact.or(wild)?,
        };
        if exact == Some(receive) {
            self.exact.remove(&(source, tag, receive));
        } else {
            self.wild.remove(&receive);
        }
        Some(receive)
    }

    /// Forgets the announcements of a source whose bodies will not come.
    pub(super) fn forget_announced(&mut self, source: usize) {
        let Some(queue) = self.sources.get(source) else {
            return;
        };
        let announced = queue
            .entries
            .values()
            .filter(|entry| matches!(entry.body, Body::Announced { .. }));
        let arrivals: Vec<u64> = announced.map(|entry| entry.arrival).collect();
        for arrival in arrivals {
            self.remove(source, arrival);
        }
    }

    /// Forgets all messages.
    pub(super) fn clear(&mut self) {
        self.sources
            .iter_mut()
            .for_each(|queue| *queue = Queue::default());
        (self.messages, self.bytes) = (0, 0);
    }
}

impl Body {
    fn in_memory(&self) -> usize {
        match self {
            Body::Eager { bytes, .. } | Body::Own { bytes, .. } => bytes.len(),
            Body::Announced { .. } => 0,
        }
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
