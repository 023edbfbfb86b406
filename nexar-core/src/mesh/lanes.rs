//! Incoming lanes, until the communicator that they belong to takes them.

use crate::wire::Preamble;
use std::collections::HashMap;

/// Lanes kept for communicators that this rank has not made yet; more are refused.
const MAX_UNCLAIMED: usize = 4096;

/// Lanes of communicators that do not exist on this rank yet, because a peer is ahead.
pub(super) struct Unclaimed<R> {
    by_group: HashMap<u64, Vec<(usize, Preamble, R)>>,
    count: usize,
}

impl<R> Default for Unclaimed<R> {
    fn default() -> Self {
        Unclaimed {
            by_group: HashMap::new(),
            count: 0,
        }
    }
}

impl<R> Unclaimed<R> {
    /// Keeps a lane from `rank`; gives it back where there are too many.
    pub(super) fn keep(&mut self, rank: usize, preamble: Preamble, stream: R) -> Result<(), R> {
        if self.count >= MAX_UNCLAIMED {
            return Err(stream);
        }
        self.count += 1;
        self.by_group
            .entry(preamble.communicator)
            .or_default()
            .push((rank, preamble, stream));
        Ok(())
    }

    /// The lanes of a communicator.
    pub(super) fn claim(&mut self, communicator: u64) -> Vec<(usize, Preamble, R)> {
        let lanes = self.by_group.remove(&communicator).unwrap_or_default();
        self.count -= lanes.len();
        lanes
    }
}
