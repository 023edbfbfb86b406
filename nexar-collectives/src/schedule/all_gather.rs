//! All-gather: the input of rank i becomes block i of every rank's output. In place, it is there already.

use super::builder::{Builder, FREE, Pace, Segmented, above, below, neighbours, others};
use super::{Buffer, ItemId, Parts, Plan, Schedule, Span, Store};
use std::ops::Range;

/// Where the segments of blocks are.
struct Layout<'a> {
    blocks: Segmented<'a>,
    rank: usize,
    in_place: bool,
}

impl Layout<'_> {
    /// A segment of a rank's block in the output.
    fn block(&self, rank: usize, segment: usize) -> Span {
        Span::of(Buffer::Output, self.blocks.get(rank, segment))
    }

    /// A segment of the own block where it is at the start.
    fn own(&self, segment: usize) -> Span {
        match self.in_place {
            true => self.block(self.rank, segment),
            false => Span::of(Buffer::Input, self.blocks.alone(self.rank, segment)),
        }
    }

    /// Copies the own block from the input.
    fn copy_own(&self, schedule: &mut Builder, segment: usize) {
        if !self.in_place {
            schedule.copy(self.own(segment), self.block(self.rank, segment), FREE);
        }
    }
}

/// Direct exchange: every rank sends its block to every other, one message deep.
///
/// In segments, and starting with the neighbour, so that not all ranks send to the same one.
/// A rank is `lookahead` segments ahead of each peer at most.
pub(super) fn direct(
    world: usize,
    rank: usize,
    parts: &Parts,
    in_place: bool,
    plan: Plan,
) -> Schedule {
    let blocks = Segmented::new(world, parts, plan.segment);
    let segments = blocks.segments;
    let layout = Layout {
        blocks,
        rank,
        in_place,
    };
    let mut schedule = Builder::with_capacity(segments * (2 * world - 1));
    let mut pace = Pace::new(world, segments, plan);
    for segment in 0..segments {
        for to in above(world, rank) {
            schedule.send(to, layout.own(segment), [pace.before(to, segment), None]);
        }
        for from in below(world, rank) {
            let block = layout.block(from, segment);
            let received = schedule.recv(from, block, Store::Copy, FREE);
            pace.arrives(from, segment, received);
        }
        layout.copy_own(&mut schedule, segment);
    }
    let mut schedule = schedule.finish(0);
    if let Parts::Uneven(_) = parts {
        schedule.told = others(world, rank);
    }
    schedule
}

/// Ring (Thakur, Rabenseifner, Gropp 2005): in step t a rank passes on the block of the
/// rank t below it, which it received in the step before.
///
/// Each rank talks to its two neighbours only. Segments of one step are independent, so that a
/// segment is passed on while the next one arrives.
pub(super) fn ring(
    world: usize,
    rank: usize,
    parts: &Parts,
    in_place: bool,
    plan: Plan,
) -> Schedule {
    let next = (rank + 1) % world;
    let previous = (rank + world - 1) % world;
    let blocks = Segmented::new(world, parts, plan.segment);
    let segments = blocks.segments;
    let layout = Layout {
        blocks,
        rank,
        in_place,
    };
    let mut schedule = Builder::with_capacity(segments * (2 * world - 1));
    let mut received = vec![None; segments];
    for step in 0..world - 1 {
        let passed = (rank + world - step) % world;
        let arriving = (rank + world - 1 - step) % world;
        for (segment, received) in received.iter_mut().enumerate() {
            let from = match step {
                0 => layout.own(segment),
                _ => layout.block(passed, segment),
            };
            schedule.send(next, from, [*received, None]);
            let to = layout.block(arriving, segment);
            *received = schedule.recv(previous, to, Store::Copy, FREE);
        }
    }
    for segment in 0..segments {
        layout.copy_own(&mut schedule, segment);
    }
    let mut schedule = schedule.finish(0);
    if let Parts::Uneven(_) = parts {
        schedule.told = neighbours(world, rank);
    }
    schedule
}

/// Bruck et al. 1997 (Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems),
/// for short blocks: in round k each rank sends the block of its own and those of the 2^k - 1 ranks above
/// it to the rank 2^k below it (modulo the world), as far as that lacks them.
///
/// Blocks are received where they belong. Those before the end of the output and those that continue at its
/// start are messages of their own.
pub(super) fn bruck(world: usize, rank: usize, parts: &Parts, in_place: bool) -> Schedule {
    let own = Span::input(0, parts.get(rank).len());
    let mut schedule = Builder::with_capacity(4 * world.ilog2() as usize + 5);
    let mut copied = None;
    if !in_place {
        copied = schedule.copy(own, Span::of(Buffer::Output, parts.get(rank)), FREE);
    }
    let mut stretches = [
        Stretch::new(0..world - rank, rank),
        Stretch::new(world - rank..world, 0),
    ];
    // The distance of the last round, and how many blocks are ever sent in one round.
    let farthest = world.next_power_of_two() / 2;
    let most = (farthest / 2).max(world - farthest);
    let mut told = Vec::new();
    let mut distance = 1;
    while distance < world {
        let blocks = distance.min(world - distance);
        let below = (rank + world - distance) % world;
        let above = (rank + distance) % world;
        if distance == 1 && !in_place {
            schedule.send(below, own, FREE);
        } else {
            for (stretch, copied) in stretches.iter().zip([copied, None]) {
                let (_, span) = stretch.cut(parts, 0..blocks);
                schedule.send(below, span, [copied, stretch.received_below(blocks)]);
            }
        }
        for stretch in &mut stretches {
            let (first, span) = stretch.cut(parts, distance..distance + blocks);
            let passed_on = first < most;
            let before = if passed_on {
                stretch.received_below(most)
            } else {
                None
            };
            let received = schedule.recv(above, span, Store::Copy, [before, None]);
            if passed_on && received.is_some() {
                stretch.received.push((first, received));
            }
        }
        told.extend([below, above]);
        distance *= 2;
    }
    let mut schedule = schedule.finish(0);
    if let Parts::Uneven(_) = parts {
        told.sort_unstable();
        told.dedup();
        schedule.told = told;
    }
    schedule
}

/// Blocks that lie one after the other, by the distance of their rank above the own one.
struct Stretch {
    distances: Range<usize>,
    /// The rank of the first one.
    rank: usize,
    /// What is passed on later: the distance of the first block, and the receive that follows all before it.
    received: Vec<(usize, Option<ItemId>)>,
}

impl Stretch {
    fn new(distances: Range<usize>, rank: usize) -> Stretch {
        Stretch {
            distances,
            rank,
            received: Vec::new(),
        }
    }

    /// The blocks of these distances that are in the stretch: the first distance, and where they are.
    fn cut(&self, parts: &Parts, distances: Range<usize>) -> (usize, Span) {
        let first = self.distances.start.max(distances.start);
        let end = self.distances.end.min(distances.end);
        if first >= end {
            return (first, Span::output(0, 0));
        }
        let rank = |distance: usize| self.rank + distance - self.distances.start;
        let (low, high) = (parts.get(rank(first)), parts.get(rank(end - 1)));
        (first, Span::of(Buffer::Output, low.start..high.end))
    }

    /// What has to be complete before the blocks below a distance are sent.
    fn received_below(&self, distance: usize) -> Option<ItemId> {
        let below = self.received.iter().rev();
        let mut below = below.filter(|(first, _)| *first < distance);
        below.next().and_then(|(_, item)| *item)
    }
}
