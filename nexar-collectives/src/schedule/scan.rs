//! Scan: the combination of the outputs of ranks 0 to r, or r - 1 if exclusive, in place on the output.
//! Always in the order of the ranks.
//!
//! An exclusive scan begins with a shift: each rank passes its contribution on to the next, where it takes
//! the place of that rank's own; the inclusive scan of ranks 1 to n - 1 that follows gives the
//! exclusive one. Rank 0 has no output, and contributes its input.

use super::builder::{Blocks, Builder, FREE};
use super::{Plan, Schedule, Span, Store};

/// Recursive doubling (Hillis, Steele 1986; in circuits Kogge, Stone 1973), for short vectors: in round k
/// each rank sends what it has combined to the rank 2^k above it, after which it has combined what comes from
/// the 2^(k + 1) - 1 ranks below it and its own.
///
/// A vector cannot be sent while it is combined with another, so a copy is sent, from scratch. A rank
/// that has combined everything sends the result itself.
pub(super) fn recursive_doubling(
    world: usize,
    rank: usize,
    count: usize,
    exclusive: bool,
) -> Schedule {
    let vector = match exclusive && rank == 0 {
        true => Span::input(0, count),
        false => Span::output(0, count),
    };
    let copy = Span::scratch(0, count);
    // The scan is over the ranks from the first on.
    let first = usize::from(exclusive);
    let mut schedule = Builder::with_capacity(3 * world.ilog2() as usize + 5);
    let mut combined = None;
    if exclusive {
        let left = match rank + 1 < world {
            true => schedule.send(rank + 1, vector, FREE),
            false => None,
        };
        if rank == 0 {
            return schedule.finish(0);
        }
        combined = schedule.recv(rank - 1, vector, Store::Copy, [left, None]);
    }
    let (mut sent, mut copies) = (None, false);
    let mut distance = 1;
    while distance < world {
        let receives = rank >= first + distance;
        let mut free = combined;
        if rank + distance < world && receives {
            let copied = schedule.copy(vector, copy, [combined, sent]);
            sent = schedule.send(rank + distance, copy, [copied, None]);
            (free, copies) = (copied, true);
        } else if rank + distance < world {
            schedule.send(rank + distance, vector, [combined, None]);
        }
        if receives {
            let store = combine(!exclusive && distance == 1);
            combined = schedule.recv(rank - distance, vector, store, [free, None]);
        }
        distance *= 2;
    }
    schedule.finish(if copies { count } else { 0 })
}

/// Pipelined chain, for long vectors: each rank combines every segment with its own as soon as it has it, and
/// passes it on.
///
/// Every link carries the vector once, and once more for the shift if exclusive; the last rank is
/// n - 2 segments behind.
pub(super) fn chain(
    world: usize,
    rank: usize,
    count: usize,
    exclusive: bool,
    plan: Plan,
) -> Schedule {
    let segments = Blocks::new(count, plan.segment);
    let has_next = rank + 1 < world;
    let mut schedule = Builder::with_capacity(4 * segments.len());
    for segment in segments.iter() {
        let span = match exclusive && rank == 0 {
            true => Span::input(segment.start, segment.len()),
            false => Span::output(segment.start, segment.len()),
        };
        let mut ready = None;
        if exclusive {
            let left = has_next.then(|| schedule.send(rank + 1, span, FREE));
            if rank > 0 {
                ready = schedule.recv(rank - 1, span, Store::Copy, [left.flatten(), None]);
            }
        }
        let first = usize::from(exclusive);
        if rank > first {
            ready = schedule.recv(rank - 1, span, combine(!exclusive), [ready, None]);
        }
        if rank >= first && has_next {
            schedule.send(rank + 1, span, [ready, None]);
        }
    }
    schedule.finish(0)
}

/// What a rank below sends is the left operand. The result of no rank but the last has all contributions,
/// so none is ever said to.
fn combine(first: bool) -> Store {
    Store::Reduce {
        incoming_first: true,
        first,
        last: false,
    }
}
