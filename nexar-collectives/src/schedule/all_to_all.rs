//! All-to-all: block j of the input of rank i becomes block i of the output of rank j. In place, the output
//! holds the input.

use super::builder::{Blocks, Builder, FREE, Pace, above, below};
use super::{Buffer, ItemId, Plan, Schedule, Span, Store};

/// Places in scratch for the segments of one peer.
const PLACES: usize = 2;

/// Direct exchange (the pairwise exchange of Thakur, Rabenseifner, Gropp 2005, with all peers at once):
/// every rank sends every other its block, one message deep.
///
/// In segments, and starting with the neighbour, so that not all ranks send to the same one. Out of
/// place, a rank is `lookahead` segments ahead of each peer at most.
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
    let mut pace = Pace::new(world, segments.len(), plan);
    // The latest send from each place in scratch.
    let mut left = vec![None; PLACES * rank];
    for i in 0..segments.len() {
        if !in_place {
            for to in above(world, rank) {
                let span = output(to, i);
                let before = pace.before(to, i);
                schedule.send(to, Span::input(span.start, span.len), [before, None]);
            }
            for from in below(world, rank) {
                let received = schedule.recv(from, output(from, i), Store::Copy, FREE);
                pace.arrives(from, i, received);
            }
            let own = output(rank, i);
            schedule.copy(Span::input(own.start, own.len), own, FREE);
            continue;
        }
        for to in above(world, rank) {
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
    }
    schedule.finish(if in_place { PLACES * rank * place } else { 0 })
}

/// Bruck et al. 1997 (Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems),
/// for short blocks: a block for the rank k above goes there over the distances of the bits of k.
///
/// In round b each rank sends the rank 2^b above it all blocks that have bit b of their distance to go, in
/// one message from scratch, and gets as many from the rank 2^b below it.
pub(super) fn bruck(world: usize, rank: usize, count: usize, in_place: bool) -> Schedule {
    let source = if in_place {
        Buffer::Output
    } else {
        Buffer::Input
    };
    let block = |buffer: Buffer, i: usize| Span::of(buffer, i * count..(i + 1) * count);
    let mut schedule = Builder::with_capacity(world * (world.ilog2() as usize / 2 + 2));
    let mut scratch = 0;
    let mut place = |blocks: usize| {
        let start = scratch;
        scratch += blocks * count;
        start
    };
    // By distance: where the block is that has to go so far, and the receive that put it there.
    let mut blocks: Vec<(Span, Option<ItemId>)> = (0..world)
        .map(|distance| (block(source, (rank + distance) % world), None))
        .collect();
    // The last of a row of copies, and the receives that they waited for.
    let mut copied = None;
    let mut awaited = Vec::new();
    let mut step = 1;
    while step < world {
        let leaving: Vec<usize> = (1..world).filter(|distance| distance & step != 0).collect();
        let len = leaving.len() * count;
        let (start, arriving) = (place(leaving.len()), place(leaving.len()));
        // In place, what comes in the end has to wait for the copies of all rounds.
        if !in_place {
            copied = None;
            awaited.clear();
        }
        for (i, &distance) in leaving.iter().enumerate() {
            let (from, received) = blocks[distance];
            let new = received.filter(|item| !awaited.contains(item));
            awaited.extend(new);
            let to = Span::scratch(start + i * count, count);
            copied = schedule.copy(from, to, [copied, new]);
        }
        schedule.send(
            (rank + step) % world,
            Span::scratch(start, len),
            [copied, None],
        );
        let from = (rank + world - step) % world;
        let received = schedule.recv(from, Span::scratch(arriving, len), Store::Copy, FREE);
        for (i, &distance) in leaving.iter().enumerate() {
            blocks[distance] = (Span::scratch(arriving + i * count, count), received);
        }
        step *= 2;
    }
    // What has come over a distance is from the rank so far below.
    for (distance, &(from, received)) in blocks.iter().enumerate() {
        let to = block(Buffer::Output, (rank + world - distance) % world);
        if !in_place {
            schedule.copy(from, to, [received, None]);
        } else if distance > 0 {
            let new = received.filter(|item| !awaited.contains(item));
            schedule.copy(from, to, [copied, new]);
        }
    }
    schedule.finish(scratch)
}
