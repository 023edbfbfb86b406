//! All-gather: the input of rank i becomes block i of every rank's output. In place, it is there already.

use super::builder::{Blocks, Builder, FREE, neighbours, others};
use super::{Buffer, Parts, Plan, Schedule, Span, Store};

/// What the algorithms share: blocks in segments.
struct Layout<'a> {
    parts: &'a Parts,
    rank: usize,
    in_place: bool,
    /// Elements of a segment.
    segment: usize,
    /// Segments of the longest block.
    segments: usize,
}

impl<'a> Layout<'a> {
    fn new(world: usize, rank: usize, parts: &'a Parts, in_place: bool, plan: Plan) -> Self {
        let longest = parts.longest(world);
        Layout {
            parts,
            rank,
            in_place,
            segment: plan.segment,
            segments: Blocks::new(longest, plan.segment).len(),
        }
    }

    /// A segment of a rank's block in the output; empty beyond the end of the block.
    fn block(&self, rank: usize, segment: usize) -> Span {
        let block = self.parts.get(rank);
        let segments = Blocks::new(block.len(), self.segment);
        Span::of(Buffer::Output, segments.within(block.start, segment))
    }

    /// A segment of the own block where it is at the start.
    fn own(&self, segment: usize) -> Span {
        let block = self.block(self.rank, segment);
        if self.in_place {
            return block;
        }
        Span::input(block.start - self.parts.get(self.rank).start, block.len)
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
/// Nothing depends on anything: sends read the own block, receives write others.
pub(super) fn direct(
    world: usize,
    rank: usize,
    parts: &Parts,
    in_place: bool,
    plan: Plan,
) -> Schedule {
    let layout = Layout::new(world, rank, parts, in_place, plan);
    let mut schedule = Builder::with_capacity(layout.segments * (2 * world - 1));
    for segment in 0..layout.segments {
        for distance in 1..world {
            let to = (rank + distance) % world;
            let from = (rank + world - distance) % world;
            schedule.send(to, layout.own(segment), FREE);
            schedule.recv(from, layout.block(from, segment), Store::Copy, FREE);
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
    let layout = Layout::new(world, rank, parts, in_place, plan);
    let mut schedule = Builder::with_capacity(layout.segments * (2 * world - 1));
    let mut received = vec![None; layout.segments];
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
    for segment in 0..layout.segments {
        layout.copy_own(&mut schedule, segment);
    }
    let mut schedule = schedule.finish(0);
    if let Parts::Uneven(_) = parts {
        schedule.told = neighbours(world, rank);
    }
    schedule
}
