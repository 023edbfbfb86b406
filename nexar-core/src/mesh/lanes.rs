//! Incoming lanes, until the communicator that they belong to takes them.

use crate::wire::Preamble;
use std::collections::{HashMap, VecDeque};
use tokio::time::Instant;

/// Lanes kept for communicators that this rank has not made yet; more are refused.
const MAX_UNCLAIMED: usize = 4096;

/// Communicators that this rank has dropped and remembers.
const MAX_DROPPED: usize = 4096;

/// Lanes of communicators that do not exist on this rank yet, because a peer is ahead.
pub(super) struct Unclaimed<R> {
    by_group: HashMap<u64, Waiting<R>>,
    count: usize,
    /// The last communicators that this rank has dropped: their late lanes would only use up streams.
    dropped: VecDeque<u64>,
}

/// The lanes of one communicator, since the first of them came.
struct Waiting<R> {
    since: Instant,
    lanes: Vec<(usize, Preamble, R)>,
}

impl<R> Default for Unclaimed<R> {
    fn default() -> Self {
        Unclaimed {
            by_group: HashMap::new(),
            count: 0,
            dropped: VecDeque::new(),
        }
    }
}

impl<R> Unclaimed<R> {
    /// Keeps a lane from `rank`; gives it back where there are too many, or nobody can want it any more.
    pub(super) fn keep(&mut self, rank: usize, preamble: Preamble, stream: R) -> Result<(), R> {
        if self.count >= MAX_UNCLAIMED || self.dropped.contains(&preamble.communicator) {
            return Err(stream);
        }
        self.count += 1;
        self.by_group
            .entry(preamble.communicator)
            .or_insert_with(|| Waiting {
                since: Instant::now(),
                lanes: Vec::new(),
            })
            .lanes
            .push((rank, preamble, stream));
        Ok(())
    }

    /// Gives up the lanes of communicators of which the first came before `limit`.
    pub(super) fn forget(&mut self, limit: Instant) -> Vec<(usize, Preamble, R)> {
        let late = self.by_group.extract_if(|_, waiting| waiting.since < limit);
        let forgotten: Vec<_> = late.flat_map(|(_, waiting)| waiting.lanes).collect();
        self.count -= forgotten.len();
        forgotten
    }

    /// This rank has dropped a communicator.
    pub(super) fn drop_group(&mut self, communicator: u64) {
        if self.dropped.len() == MAX_DROPPED {
            self.dropped.pop_front();
        }
        self.dropped.push_back(communicator);
    }

    /// The lanes of a communicator that this rank has made.
    pub(super) fn claim(&mut self, communicator: u64) -> Vec<(usize, Preamble, R)> {
        self.dropped.retain(|dropped| *dropped != communicator);
        let waiting = self.by_group.remove(&communicator);
        let lanes = waiting.map(|waiting| waiting.lanes).unwrap_or_default();
        self.count -= lanes.len();
        lanes
    }
}
