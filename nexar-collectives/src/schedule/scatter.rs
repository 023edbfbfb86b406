//! Scatter: block i of the root's input becomes the output of rank i.

use super::builder::{Builder, FREE, others};
use super::{Buffer, Parts, Plan, Schedule, Span, Store};

/// Direct: the root sends every rank its block, one message deep.
pub(super) fn direct(
    world: usize,
    rank: usize,
    root: usize,
    parts: &Parts,
    plan: Plan,
) -> Schedule {
    // Other ranks know the length of their own block alone.
    let own = parts.get(rank).len();
    let mut schedule = Builder::with_capacity(0);
    if rank != root {
        for segment in plan.segments(own, world).iter() {
            schedule.recv(root, Span::of(Buffer::Output, segment), Store::Copy, FREE);
        }
        let mut schedule = schedule.finish(0);
        schedule.told = vec![root];
        return schedule;
    }
    for to in others(world, rank) {
        let block = parts.get(to);
        let segments = plan.segments(block.len(), world);
        for i in 0..segments.len() {
            let span = Span::of(Buffer::Input, segments.within(block.start, i));
            schedule.send(to, span, FREE);
        }
    }
    let from = Span::of(Buffer::Input, parts.get(rank));
    schedule.copy(from, Span::output(0, own), FREE);
    let mut schedule = schedule.finish(0);
    schedule.told = others(world, rank);
    schedule
}
