//! Reduce-scatter: block i of the combination of all inputs becomes the output of rank i. In place, the
//! output holds the contribution, and the own block of it becomes the result.

use super::builder::{
    Blocks, Builder, FREE, Pace, Segmented, above, contributor, neighbours, others,
};
use super::{Buffer, ItemId, Parts, Plan, Schedule, Span, Store, select::is_single_site};
use nexar_core::{Algorithm, Collective};

/// Where the segments of blocks are.
struct Layout<'a> {
    blocks: Segmented<'a>,
    in_place: bool,
}

impl Layout<'_> {
    /// A segment of the own contribution to a rank's block.
    fn block(&self, rank: usize, segment: usize) -> Span {
        let buffer = match self.in_place {
            true => Buffer::Output,
            false => Buffer::Input,
        };
        Span::of(buffer, self.blocks.get(rank, segment))
    }

    /// A segment of the result on `rank`.
    fn result(&self, rank: usize, segment: usize) -> Span {
        match self.in_place {
            true => self.block(rank, segment),
            false => Span::of(Buffer::Output, self.blocks.alone(rank, segment)),
        }
    }
}

/// Direct exchange: every rank sends block i of its contribution to rank i, which combines what arrives,
/// one message deep.
///
/// In segments, and starting with the neighbour, so that not all ranks send to the same one. The
/// contributions to an element are combined in a fixed order, whatever the order of arrival:
/// own, then rank - 1, rank - 2 and so on, if ordered with what is above the own rank at the end.
/// A partial result never travels. A rank is `lookahead` segments ahead of each peer at most.
pub(super) fn direct(
    world: usize,
    rank: usize,
    parts: &Parts,
    in_place: bool,
    plan: Plan,
) -> Schedule {
    let blocks = Segmented::new(world, parts, plan.segment);
    let segments = blocks.segments;
    let layout = Layout { blocks, in_place };
    let mut schedule = Builder::with_capacity(segments * (2 * world - 1));
    let mut pace = Pace::new(world, segments, plan);
    for segment in 0..segments {
        let result = layout.result(rank, segment);
        let mut combined = None;
        if !in_place {
            combined = schedule.copy(layout.block(rank, segment), result, FREE);
        }
        for to in above(world, rank) {
            let before = pace.before(to, segment);
            schedule.send(to, layout.block(to, segment), [before, None]);
        }
        for distance in 1..world {
            let (from, incoming_first) = contributor(world, rank, distance, plan.ordered);
            let store = Store::Reduce {
                incoming_first,
                first: distance == 1,
                last: distance == world - 1,
            };
            combined = schedule.recv(from, result, store, [combined, None]);
            pace.arrives(from, segment, combined);
        }
    }
    let mut schedule = schedule.finish(0);
    schedule.single_site = is_single_site(Collective::ReduceScatter, Algorithm::Direct, world);
    if let Parts::Uneven(_) = parts {
        schedule.told = others(world, rank);
    }
    schedule
}

/// Ring (Patarasuk, Yuan 2009: Bandwidth Optimal All-reduce Algorithms for Clusters of
/// Workstations, the first half), interleaved over segments.
///
/// The partial result of block i starts as the contribution of rank i + 1, travels once around the ring, and
/// each rank adds its own, the last one rank i. In place, it is combined where the own contribution is.
/// Otherwise the input stays as it is, and partial results are combined in scratch, which first
/// gets the own contribution.
///
/// `lookahead` segments go around together, so that one travels while another is combined. Each has
/// two places in scratch: one to combine in, one to send from.
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
    let layout = Layout { blocks, in_place };
    let lanes = plan.lookahead.clamp(1, segments.max(1));
    let place = parts.longest(world).min(plan.segment.max(1));
    let mut schedule = Builder::with_capacity(segments * (3 * world - 2));
    let mut chains = vec![Chain::default(); lanes];
    for group in Blocks::new(segments, lanes).iter() {
        for step in 0..world - 1 {
            let sent = (rank + 2 * world - 1 - step) % world;
            let arriving = (rank + 2 * world - 2 - step) % world;
            for (lane, segment) in group.clone().enumerate() {
                let chain = &mut chains[lane];
                let at = |step: usize, rank: usize| match in_place {
                    true => layout.block(rank, segment),
                    false => {
                        let len = layout.block(rank, segment).len;
                        Span::scratch((2 * lane + step % 2) * place, len)
                    }
                };
                let (from, after) = match step {
                    0 => (layout.block(sent, segment), None),
                    _ => (at(step - 1, sent), chain.combined),
                };
                let leaving = schedule.send(next, from, [after, None]);
                let last = step == world - 2;
                let to = match last {
                    true => layout.result(rank, segment),
                    false => at(step, arriving),
                };
                let mut own = None;
                if !in_place {
                    // The place is free when the partial result that was in it has been sent.
                    let free = if last { None } else { chain.left[step % 2] };
                    own = schedule.copy(layout.block(arriving, segment), to, [free, None]);
                    if step > 0 {
                        let left = &mut chain.left[(step - 1) % 2];
                        *left = leaving.or(*left);
                    }
                }
                let store = Store::Reduce {
                    incoming_first: true,
                    first: true,
                    last,
                };
                chain.combined = schedule.recv(previous, to, store, [own, None]);
            }
        }
    }
    if world == 1 && !in_place {
        for segment in 0..segments {
            schedule.copy(layout.block(0, segment), layout.result(0, segment), FREE);
        }
    }
    let places = if world > 2 && !in_place { 2 * lanes } else { 0 };
    let mut schedule = schedule.finish(places * place);
    schedule.single_site = is_single_site(Collective::ReduceScatter, Algorithm::Ring, world);
    if let Parts::Uneven(_) = parts {
        schedule.told = neighbours(world, rank);
    }
    schedule
}

/// One segment on its way around the ring.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    /// The receive that put the latest partial result in its place.
    combined: Option<ItemId>,
    /// The latest send from each of the two places.
    left: [Option<ItemId>; 2],
}
