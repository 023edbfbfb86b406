//! Scan: the combination of the outputs of ranks 0 to r, or r - 1 if exclusive, in place on the output.
//! Always in the order of the ranks.
//!
//! An exclusive scan begins with a shift: each rank passes its contribution on to the next, where it takes
//! the place of that rank's own; the inclusive scan of ranks 1 to n - 1 that follows gives the
//! exclusive one. The output of rank 0 is never written.

use super::builder::{Blocks, Builder, FREE};
use super::{Plan, Schedule, Span, Store};

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
        let span = Span::output(segment.start, segment.len());
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
