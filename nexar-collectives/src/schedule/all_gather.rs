//! All-gather: the input of rank i becomes block i of every rank's output.

use super::builder::{Blocks, Builder, FREE};
use super::{Plan, Schedule, Span, Store};

/// Direct exchange: every rank sends its block to every other, one message deep.
///
/// In segments, and starting with the neighbour, so that not all ranks send to the same one.
/// Nothing depends on anything: sends read the input, receives write disjoint blocks.
pub(super) fn direct(world: usize, rank: usize, count: usize, plan: Plan) -> Schedule {
    let segments = Blocks::new(count, plan.segment);
    let mut schedule = Builder::with_capacity(segments.len() * (2 * world - 1));
    for segment in segments.iter() {
        let own = Span::input(segment.start, segment.len());
        let block = |rank: usize| Span::output(rank * count + segment.start, segment.len());
        for distance in 1..world {
            let to = (rank + distance) % world;
            let from = (rank + world - distance) % world;
            schedule.send(to, own, FREE);
            schedule.recv(from, block(from), Store::Copy, FREE);
        }
        schedule.copy(own, block(rank), FREE);
    }
    schedule.finish(0)
}

/// Ring (Thakur, Rabenseifner, Gropp 2005): in step t a rank passes on the block of the
/// rank t below it, which it received in the step before.
///
/// Each rank talks to its two neighbours only. Segments of one step are independent, so that a
/// segment is passed on while the next one arrives.
pub(super) fn ring(world: usize, rank: usize, count: usize, plan: Plan) -> Schedule {
    let next = (rank + 1) % world;
    let previous = (rank + world - 1) % world;
    let segments = Blocks::new(count, plan.segment);
    let mut schedule = Builder::with_capacity(segments.len() * (2 * world - 1));
    let mut received = vec![None; segments.len()];
    for step in 0..world - 1 {
        let passed = (rank + world - step) % world;
        let arriving = (rank + world - 1 - step) % world;
        for (segment, received) in segments.iter().zip(&mut received) {
            let block = |rank: usize| Span::output(rank * count + segment.start, segment.len());
            let from = match step {
                0 => Span::input(segment.start, segment.len()),
                _ => block(passed),
            };
            schedule.send(next, from, [*received, None]);
            *received = schedule.recv(previous, block(arriving), Store::Copy, FREE);
        }
    }
    for segment in segments.iter() {
        let own = Span::output(rank * count + segment.start, segment.len());
        schedule.copy(Span::input(segment.start, segment.len()), own, FREE);
    }
    schedule.finish(0)
}
