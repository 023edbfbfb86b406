//! Broadcast, in place on the output. Ranks are counted from the root: the root is number 0.

use super::builder::{Blocks, Builder, FREE, Pieces};
use super::{Plan, Schedule, Span, Store};

/// Binomial tree (Thakur, Rabenseifner, Gropp 2005: Optimization of Collective Communication
/// Operations in MPICH), for short vectors.
///
/// The parent of a number is the number without its lowest bit; its children are the number plus
/// each power of two below its lowest bit, the largest subtree first. The depth of a number is its
/// count of ones, at most floor(log2 n); the root sends ceil(log2 n) messages.
pub(super) fn binomial(world: usize, rank: usize, root: usize, count: usize) -> Schedule {
    let number = (rank + world - root) % world;
    let rank_of = |number: usize| (number + root) % world;
    let vector = Span::output(0, count);
    let mut schedule = Builder::with_capacity(1 + world.next_power_of_two().ilog2() as usize);

    let mut received = None;
    let mut subtree = world.next_power_of_two();
    if number != 0 {
        subtree = number & number.wrapping_neg();
        received = schedule.recv(rank_of(number - subtree), vector, Store::Copy, FREE);
    }
    while subtree > 1 {
        subtree /= 2;
        if number + subtree < world {
            schedule.send(rank_of(number + subtree), vector, [received, None]);
        }
    }
    schedule.finish(0)
}

/// Pipelined chain: each number passes every segment on to the next as soon as it has it.
///
/// Every link carries the vector once, and the last rank is n - 2 segments behind: best for long
/// vectors, and each rank talks to two others only.
pub(super) fn chain(world: usize, rank: usize, root: usize, count: usize, plan: Plan) -> Schedule {
    let number = (rank + world - root) % world;
    let previous = (rank + world - 1) % world;
    let next = (rank + 1) % world;
    let segments = Blocks::new(count, plan.segment);
    let mut schedule = Builder::with_capacity(2 * segments.len());
    for segment in segments.iter() {
        let span = Span::output(segment.start, segment.len());
        let mut received = None;
        if number > 0 {
            received = schedule.recv(previous, span, Store::Copy, FREE);
        }
        if number + 1 < world {
            schedule.send(next, span, [received, None]);
        }
    }
    schedule.finish(0)
}

/// Scatter and all-gather (van de Geijn's long-vector broadcast, in Thakur, Rabenseifner, Gropp 2005),
/// by direct exchange and in blocks.
///
/// A block is divided among the n - 1 ranks other than the root. The root sends each its piece, and
/// each passes its piece on to the n - 2 others. So the root sends the vector once, every other
/// rank receives it once, and all links share the work; two messages deep.
pub(super) fn scatter_all_gather(
    world: usize,
    rank: usize,
    root: usize,
    count: usize,
    plan: Plan,
) -> Schedule {
    if world < 2 {
        return Schedule::default();
    }
    let others = world - 1;
    // Number of this rank among the others, if it is not the root.
    let own = (rank + others - root) % world;
    let rank_of = |number: usize| (number + 1 + root) % world;
    let blocks = Blocks::new(count, others.saturating_mul(plan.segment.max(1)));
    let mut schedule = Builder::with_capacity(2 * blocks.len() * others);
    for block in blocks.iter() {
        let pieces = Pieces::new(block, others);
        if rank == root {
            for number in 0..others {
                schedule.send(rank_of(number), pieces.output(number), FREE);
            }
            continue;
        }
        let received = schedule.recv(root, pieces.output(own), Store::Copy, FREE);
        for distance in 1..others {
            let to = (own + distance) % others;
            let from = (own + others - distance) % others;
            schedule.send(rank_of(to), pieces.output(own), [received, None]);
            schedule.recv(rank_of(from), pieces.output(from), Store::Copy, FREE);
        }
    }
    schedule.finish(0)
}
