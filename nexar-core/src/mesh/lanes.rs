//! What comes for communicators that do not exist on this rank yet.

use super::shared::LastWord;
use crate::wire::Preamble;
use std::collections::{HashMap, VecDeque};
use tokio::time::Instant;

/// Lanes, and last words, kept for communicators that this rank has not made yet; more are refused.
const MAX_UNCLAIMED: usize = 4096;

/// Communicators that this rank has dropped and remembers.
const MAX_DROPPED: usize = 4096;

/// What has come for communicators that do not exist on this rank yet, because a peer is ahead.
pub(super) struct Unclaimed<R> {
    by_group: HashMap<u64, Waiting<R>>,
    /// Lanes and words.
    count: usize,
    /// The last communicators that this rank has dropped: their late lanes would only use up streams.
    dropped: VecDeque<u64>,
}

/// What has come for one communicator, since the first of it came.
struct Waiting<R> {
    since: Instant,
    claimed: Claimed<R>,
}

/// What waited for a communicator.
pub(super) struct Claimed<R> {
    pub(super) lanes: Vec<(usize, Preamble, R)>,
    /// Ranks that had left it or met its failure before this rank made it.
    pub(super) words: Vec<(usize, LastWord)>,
}

impl<R> Default for Claimed<R> {
    fn default() -> Self {
        Claimed {
            lanes: Vec::new(),
            words: Vec::new(),
        }
    }
}

impl<R> Claimed<R> {
    fn count(&self) -> usize {
        self.lanes.len() + self.words.len()
    }
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
        match self.waiting(preamble.communicator) {
            Some(waiting) => waiting.lanes.push((rank, preamble, stream)),
            None => return Err(stream),
        }
        Ok(())
    }

    /// Keeps how `rank` left a communicator.
    pub(super) fn keep_word(&mut self, rank: usize, communicator: u64, word: LastWord) {
        if let Some(waiting) = self.waiting(communicator) {
            waiting.words.push((rank, word));
        }
    }

    /// Room for one thing more.
    fn waiting(&mut self, communicator: u64) -> Option<&mut Claimed<R>> {
        if self.count >= MAX_UNCLAIMED || self.dropped.contains(&communicator) {
            return None;
        }
        self.count += 1;
        let waiting = self.by_group.entry(communicator);
        let waiting = waiting.or_insert_with(|| Waiting {
            since: Instant::now(),
            claimed: Claimed::default(),
        });
        Some(&mut waiting.claimed)
    }

    /// Gives up what waits for communicators for which the first came before `limit`.
    pub(super) fn forget(&mut self, limit: Instant) -> Vec<Claimed<R>> {
        let late = self.by_group.extract_if(|_, waiting| waiting.since < limit);
        let forgotten: Vec<_> = late.map(|(_, waiting)| waiting.claimed).collect();
        self.count -= forgotten.iter().map(Claimed::count).sum::<usize>();
        forgotten
    }

    /// This rank has dropped a communicator.
    pub(super) fn drop_group(&mut self, communicator: u64) {
        if self.dropped.len() == MAX_DROPPED {
            self.dropped.pop_front();
        }
        self.dropped.push_back(communicator);
    }

    /// What waits for a communicator, which this rank makes now.
    pub(super) fn claim(&mut self, communicator: u64) -> Claimed<R> {
        self.dropped.retain(|dropped| *dropped != communicator);
        let waiting = self.by_group.remove(&communicator);
        let claimed = waiting.map(|waiting| waiting.claimed).unwrap_or_default();
        self.count -= claimed.count();
        claimed
    }
}
