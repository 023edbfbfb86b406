//! All-to-all: block j of the input of rank i becomes block i of the output of rank j. In place, the output
//! holds the input.

use super::builder::{Blocks, Builder, FREE};
use super::{Plan, Schedule, Span, Store};

/// Places in scratch for the segments of one peer.
const PLACES: usize = 2;

/// Direct exchange (the pairwise exchange of Thakur, Rabenseifner, Gropp 2005, with all peers at once):
/// every rank sends every other its block, one message deep.
///
/// In segments, and starting with the neighbour, so that not all ranks send to the same one. Out of
/// place, nothing depends on anything.
///
/// In place, a block cannot be received before it has left, and not both ranks of a pair can wait for the
/// other to receive first. So the higher one sends a copy, from scratch.
pub(super) fn direct(
    world: usize,
    rank: usize,
    count: usize,
    in_place: bool,
    plan: Plan,
) -> Schedule {
    let segments = Blocks::new(count, plan.segment);
    let place = segments.get(0).len();
    let output = |peer: usize, i: usize| {
        let segment = segments.within(peer * count, i);
        Span::output(segment.start, segment.len())
    };
    let mut schedule = Builder::with_capacity(segments.len() * (3 * world - 2));
    // The latest send from each place in scratch.
    let mut left = vec![None; PLACES * rank];
    for i in 0..segments.len() {
        for distance in 1..world {
            let to = (rank + distance) % world;
            let from = (rank + world - distance) % world;
            if !in_place {
                let span = output(to, i);
                schedule.send(to, Span::input(span.start, span.len), FREE);
                schedule.recv(from, output(from, i), Store::Copy, FREE);
                continue;
            }
            let block = output(to, i);
            let free_to_receive = if to < rank {
                let slot = PLACES * to + i % PLACES;
                let copy = Span::scratch(slot * place, block.len);
                let copied = schedule.copy(block, copy, [left[slot], None]);
                left[slot] = schedule.send(to, copy, [copied, None]);
                copied
            } else {
                schedule.send(to, block, FREE)
            };
            schedule.recv(to, block, Store::Copy, [free_to_receive, None]);
        }
        if !in_place {
            let own = output(rank, i);
            schedule.copy(Span::input(own.start, own.len), own, FREE);
        }
    }
    schedule.finish(if in_place { PLACES * rank * place } else { 0 })
}
