//! Gather: the input of rank i becomes block i of the root's output.

use super::builder::{Builder, FREE, others};
use super::{Buffer, Parts, Plan, Schedule, Span, Store};

/// Direct: every rank sends its block to the root, one message deep.
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
            schedule.send(root, Span::of(Buffer::Input, segment), FREE);
        }
        let mut schedule = schedule.finish(0);
        schedule.told = vec![root];
        return schedule;
    }
    for from in others(world, rank) {
        let block = parts.get(from);
        let segments = plan.segments(block.len(), world);
        for i in 0..segments.len() {
            let span = Span::of(Buffer::Output, segments.within(block.start, i));
            schedule.recv(from, span, Store::Copy, FREE);
        }
    }
    let to = Span::of(Buffer::Output, parts.get(rank));
    schedule.copy(Span::input(0, own), to, FREE);
    let mut schedule = schedule.finish(0);
    schedule.told = others(world, rank);
    schedule
}
