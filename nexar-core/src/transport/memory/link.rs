//! One direction between two addresses: its delay, its counters, and the messages in flight.

use super::state::{Message, StreamId};
use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// What has been sent over one directed link since the network began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkStats {
    /// Writes that took at least one byte. A write that finds less window than it has data counts once for
    /// every piece.
    pub writes: u64,
    /// Bytes of stream data.
    pub bytes: u64,
    /// Streams opened by the sending side.
    pub streams: u64,
    /// Connections dialled by the sending side.
    pub connections: u64,
}

#[derive(Debug, Default)]
pub(super) struct Link {
    fixed_nanos: AtomicU64,
    jitter_nanos: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) streams: AtomicU64,
    pub(super) connections: AtomicU64,
}

impl Link {
    pub(super) fn set_delay(&self, fixed: Duration, jitter: Duration) {
        self.fixed_nanos.store(saturating_nanos(fixed), Relaxed);
        self.jitter_nanos.store(saturating_nanos(jitter), Relaxed);
    }

    /// The delay without its random part.
    pub(super) fn fixed_delay(&self) -> Duration {
        Duration::from_nanos(self.fixed_nanos.load(Relaxed))
    }

    /// The delay of one message.
    pub(super) fn draw_delay(&self, random: &mut SplitMix64) -> Duration {
        let jitter = self.jitter_nanos.load(Relaxed);
        let jitter = if jitter == 0 { 0 } else { random.below(jitter) };
        Duration::from_nanos(self.fixed_nanos.load(Relaxed).saturating_add(jitter))
    }

    pub(super) fn stats(&self) -> LinkStats {
        LinkStats {
            writes: self.writes.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            streams: self.streams.load(Relaxed),
            connections: self.connections.load(Relaxed),
        }
    }
}

/// The longest time used, so that adding one to an instant cannot overflow.
pub(super) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.min(YEAR).as_nanos()).unwrap_or(u64::MAX)
}

/// Steele, Lea and Flood's generator: small, and good enough for jitter.
#[derive(Debug)]
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A value in `0..=most`, uniform but for a bias far below what jitter can show.
    fn below(&mut self, most: u64) -> u64 {
        ((u128::from(self.next()) * (u128::from(most) + 1)) >> 64) as u64
    }
}

/// Messages on their way to one side of a connection, ordered by arrival.
#[derive(Debug, Default)]
pub(super) struct Wire {
    queue: BinaryHeap<Reverse<Envelope>>,
    sequence: u64,
}

impl Wire {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.queue = BinaryHeap::new();
    }

    pub(super) fn push(&mut self, due: Instant, message: Message) {
        self.sequence += 1;
        self.queue.push(Reverse(Envelope {
            due,
            sequence: self.sequence,
            message,
        }));
    }

    /// When the next message arrives.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.peek().map(|envelope| envelope.0.due)
    }

    /// The next message, if it has arrived by `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Message> {
        if self.next_due()? > now {
            return None;
        }
        self.queue.pop().map(|envelope| envelope.0.message)
    }
}

#[derive(Debug)]
struct Envelope {
    due: Instant,
    /// Keeps messages that are due at the same instant in order.
    sequence: u64,
    message: Message,
}

impl PartialEq for Envelope {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Envelope {}

impl PartialOrd for Envelope {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Envelope {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

impl Message {
    /// The stream whose order this message must keep.
    pub(super) fn ordered_stream(&self) -> Option<StreamId> {
        match self {
            Message::Data { id, .. } | Message::Finish { id } | Message::Reset { id, .. } => {
                Some(*id)
            }
            _ => None,
        }
    }
}
