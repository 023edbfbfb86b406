//! What the algorithms share: appending items, and dividing ranges.

use super::{Action, Buffer, Item, ItemId, Parts, Plan, Schedule, Span, Store};
use std::ops::Range;

impl Span {
    pub(super) fn of(buffer: Buffer, range: Range<usize>) -> Span {
        Span {
            buffer,
            start: range.start,
            len: range.len(),
        }
    }

    pub(super) const fn input(start: usize, len: usize) -> Span {
        Span {
            buffer: Buffer::Input,
            start,
            len,
        }
    }

    pub(super) const fn output(start: usize, len: usize) -> Span {
        Span {
            buffer: Buffer::Output,
            start,
            len,
        }
    }

    pub(super) const fn scratch(start: usize, len: usize) -> Span {
        Span {
            buffer: Buffer::Scratch,
            start,
            len,
        }
    }
}

/// A schedule under construction.
///
/// Each method appends an item and returns its number. An empty span appends nothing and
/// returns `None`, which is no dependency; so algorithms need no special cases for short vectors.
pub(super) struct Builder {
    items: Vec<Item>,
}

/// No dependency.
pub(super) const FREE: [Option<ItemId>; 2] = [None, None];

impl Builder {
    pub(super) fn with_capacity(items: usize) -> Builder {
        Builder {
            items: Vec::with_capacity(items),
        }
    }

    pub(super) fn send(
        &mut self,
        to: usize,
        span: Span,
        after: [Option<ItemId>; 2],
    ) -> Option<ItemId> {
        self.push(span.len, Action::Send { to, span }, after)
    }

    pub(super) fn recv(
        &mut self,
        from: usize,
        span: Span,
        store: Store,
        after: [Option<ItemId>; 2],
    ) -> Option<ItemId> {
        self.push(span.len, Action::Recv { from, span, store }, after)
    }

    pub(super) fn copy(
        &mut self,
        from: Span,
        to: Span,
        after: [Option<ItemId>; 2],
    ) -> Option<ItemId> {
        self.push(from.len, Action::Copy { from, to }, after)
    }

    fn push(&mut self, len: usize, action: Action, after: [Option<ItemId>; 2]) -> Option<ItemId> {
        if len == 0 {
            return None;
        }
        // 2^32 items would take some 300 GiB.
        let id = self.items.len() as ItemId;
        self.items.push(Item { action, after });
        Some(id)
    }

    /// The schedule; `single_site` false, for the algorithm to claim.
    pub(super) fn finish(self, scratch: usize) -> Schedule {
        Schedule {
            items: self.items,
            scratch,
            single_site: false,
            told: Vec::new(),
        }
    }
}

/// Keeps a rank from running ahead of its peers: a segment leaves for a peer when the segment `lookahead` before
/// it has arrived from there. What is under way then stays in the cache, and no queue grows long.
pub(super) struct Pace {
    lookahead: usize,
    /// The latest receives from each peer, by segment modulo `lookahead`.
    received: Vec<Option<ItemId>>,
}

impl Pace {
    pub(super) fn new(world: usize, segments: usize, plan: Plan) -> Pace {
        let lookahead = plan.lookahead.clamp(1, segments.max(1));
        Pace {
            lookahead,
            received: vec![None; world * lookahead],
        }
    }

    /// What a segment to `peer` waits for.
    pub(super) fn before(&self, peer: usize, segment: usize) -> Option<ItemId> {
        self.received[peer * self.lookahead + segment % self.lookahead]
    }

    /// Notes the receive of a segment from `peer`.
    pub(super) fn arrives(&mut self, peer: usize, segment: usize, item: Option<ItemId>) {
        self.received[peer * self.lookahead + segment % self.lookahead] = item;
    }
}

/// A rank in recursive doubling among any number of ranks.
///
/// Let p be the largest power of two in the world. The first 2 (n - p) ranks fold in pairs: the even one leaves its part
/// to the odd one. The p ranks that are left are numbered in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubling {
    /// Ranks that leave their part to another.
    folded: usize,
    rank: usize,
    /// log2 p.
    pub(super) steps: u32,
}

/// What a rank does before and after the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    /// Nothing.
    Alone,
    /// Leaves its part to this rank, and gets the result from there.
    Leaves(usize),
    /// Takes the part of this rank over.
    Takes(usize),
}

impl Doubling {
    pub(super) fn new(world: usize, rank: usize) -> Doubling {
        let steps = world.ilog2();
        Doubling {
            folded: world - (1 << steps),
            rank,
            steps,
        }
    }

    pub(super) fn fold(&self) -> Fold {
        match self.rank {
            rank if rank >= 2 * self.folded => Fold::Alone,
            rank if rank.is_multiple_of(2) => Fold::Leaves(rank + 1),
            rank => Fold::Takes(rank - 1),
        }
    }

    /// The rank that this one exchanges with in a step, whose number differs in this bit. Not of one that leaves its
    /// part to another.
    pub(super) fn partner(&self, step: u32) -> usize {
        let number = match self.fold() {
            Fold::Alone => self.rank - self.folded,
            Fold::Leaves(_) | Fold::Takes(_) => self.rank / 2,
        };
        let partner = number ^ (1 << step);
        if partner < self.folded {
            2 * partner + 1
        } else {
            partner + self.folded
        }
    }
}

/// A range in `parts` pieces whose lengths differ by at most one, the longer ones first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pieces {
    start: usize,
    len: usize,
    longer: usize,
}

impl Pieces {
    pub(super) fn new(range: Range<usize>, parts: usize) -> Pieces {
        Pieces {
            start: range.start,
            len: range.len() / parts,
            longer: range.len() % parts,
        }
    }

    pub(super) fn get(&self, i: usize) -> Range<usize> {
        let start = self.start + i * self.len + i.min(self.longer);
        start..start + self.len + usize::from(i < self.longer)
    }

    /// Piece `i`, in the output.
    pub(super) fn output(&self, i: usize) -> Span {
        Span::of(Buffer::Output, self.get(i))
    }
}

/// `0..count` in consecutive ranges of `size`, of which the last may be shorter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    count: usize,
    size: usize,
}

impl Blocks {
    /// A size of 0 counts as 1.
    pub(super) fn new(count: usize, size: usize) -> Blocks {
        Blocks {
            count,
            size: size.max(1),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count.div_ceil(self.size)
    }

    /// Block `i`; empty beyond the last one.
    pub(super) fn get(&self, i: usize) -> Range<usize> {
        let start = self.count.min(i.saturating_mul(self.size));
        start..self.count.min(start.saturating_add(self.size))
    }

    /// Block `i`, as a part of the range that begins at `start`.
    pub(super) fn within(&self, start: usize, i: usize) -> Range<usize> {
        let block = self.get(i);
        start + block.start..start + block.end
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.len()).map(move |i| self.get(i))
    }
}

/// The blocks of all ranks, each in segments of `size`.
#[derive(Debug)]
pub(super) struct Segmented<'a> {
    parts: &'a Parts,
    size: usize,
    /// Segments of the longest block.
    pub(super) segments: usize,
}

impl<'a> Segmented<'a> {
    pub(super) fn new(world: usize, parts: &'a Parts, size: usize) -> Segmented<'a> {
        Segmented {
            parts,
            size,
            segments: Blocks::new(parts.longest(world), size).len(),
        }
    }

    /// A segment of a rank's block; empty beyond the end of the block.
    pub(super) fn get(&self, rank: usize, segment: usize) -> Range<usize> {
        let block = self.parts.get(rank);
        Blocks::new(block.len(), self.size).within(block.start, segment)
    }

    /// The same, counted from the start of the block.
    pub(super) fn alone(&self, rank: usize, segment: usize) -> Range<usize> {
        Blocks::new(self.parts.get(rank).len(), self.size).get(segment)
    }
}

/// All other ranks, upwards from the own one and around the end.
pub(super) fn above(world: usize, rank: usize) -> impl Iterator<Item = usize> {
    (1..world).map(move |distance| (rank + distance) % world)
}

/// All other ranks, downwards from the own one and around the end.
pub(super) fn below(world: usize, rank: usize) -> impl Iterator<Item = usize> {
    (1..world).map(move |distance| (rank + world - distance) % world)
}

/// All ranks but the own one.
pub(super) fn others(world: usize, rank: usize) -> Vec<usize> {
    (0..world).filter(|&other| other != rank).collect()
}

/// The ranks that hear of the call from this one where only the root knows all lengths: of the root all, of
/// the others the root.
pub(super) fn told(world: usize, rank: usize, root: usize) -> Vec<usize> {
    match rank == root {
        true => others(world, rank),
        false => vec![root],
    }
}

/// The order in which a rank combines the contributions of the others with its own: the rank of the
/// `i`-th one, from 1, and whether it is the left operand.
///
/// Downwards from the own rank, around the end. `ordered`: downwards to 0, each to the left of what there is
/// already, then upwards from the own rank, each to the right.
pub(super) fn contributor(world: usize, rank: usize, i: usize, ordered: bool) -> (usize, bool) {
    if ordered && i > rank {
        (i, false)
    } else {
        ((rank + world - i) % world, ordered)
    }
}

/// The ranks beside the own one in a ring.
pub(super) fn neighbours(world: usize, rank: usize) -> Vec<usize> {
    let mut neighbours = vec![(rank + world - 1) % world, (rank + 1) % world];
    neighbours.dedup();
    neighbours.retain(|&other| other != rank);
    neighbours
}
