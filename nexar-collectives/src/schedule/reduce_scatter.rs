//! Reduce-scatter: block i of the combination of all inputs becomes the output of rank i.

use super::builder::{Blocks, Builder, FREE};
use super::{ItemId, Plan, Schedule, Span, Store, select::is_single_site};
use nexar_core::Algorithm;

/// Direct exchange: every rank sends block i of its input to rank i, which combines what arrives,
/// one message deep.
///
/// In segments, and starting with the neighbour, so that not all ranks send to the same one. The
/// contributions to an element are combined in the order of the sends, whatever the order of arrival:
/// own, then rank - 1, rank - 2 and so on. A partial result never travels.
pub(super) fn direct(world: usize, rank: usize, count: usize, plan: Plan) -> Schedule {
    let segments = Blocks::new(count, plan.segment);
    let mut schedule = Builder::with_capacity(segments.len() * (2 * world - 1));
    for segment in segments.iter() {
        let block = |rank: usize| Span::input(rank * count + segment.start, segment.len());
        let result = Span::output(segment.start, segment.len());
        let mut combined = schedule.copy(block(rank), result, FREE);
        for distance in 1..world {
            let to = (rank + distance) % world;
            let from = (rank + world - distance) % world;
            let store = Store::Reduce {
                incoming_first: false,
                first: distance == 1,
                last: distance == world - 1,
            };
            schedule.send(to, block(to), FREE);
            combined = schedule.recv(from, result, store, [combined, None]);
        }
    }
    let mut schedule = schedule.finish(0);
    schedule.single_site = is_single_site(Algorithm::Direct, world);
    schedule
}

/// Ring (Patarasuk, Yuan 2009: Bandwidth Optimal All-reduce Algorithms for Clusters of
/// Workstations, the first half), interleaved over segments.
///
/// The partial result of block i starts as the contribution of rank i + 1, travels once around the ring, and
/// each rank adds its own, the last one rank i. The input stays as it is, so partial results are
/// combined in scratch, which first gets the own contribution.
///
/// `lookahead` segments go around together, so that one travels while another is combined. Each has
/// two places in scratch: one to combine in, one to send from.
pub(super) fn ring(world: usize, rank: usize, count: usize, plan: Plan) -> Schedule {
    let next = (rank + 1) % world;
    let previous = (rank + world - 1) % world;
    let segments = Blocks::new(count, plan.segment);
    let lanes = plan.lookahead.clamp(1, segments.len().max(1));
    let place = segments.get(0).len();
    let mut schedule = Builder::with_capacity(segments.len() * (3 * world - 2));
    let mut chains = vec![Chain::default(); lanes];
    for group in Blocks::new(segments.len(), lanes).iter() {
        for step in 0..world - 1 {
            let sent = (rank + 2 * world - 1 - step) % world;
            let arriving = (rank + 2 * world - 2 - step) % world;
            for (lane, segment) in group.clone().map(|i| segments.get(i)).enumerate() {
                let block = |rank: usize| Span::input(rank * count + segment.start, segment.len());
                let at = |step: usize| Span::scratch((2 * lane + step % 2) * place, segment.len());
                let chain = &mut chains[lane];

                let (from, after) = match step {
                    0 => (block(sent), None),
                    _ => (at(step - 1), chain.combined),
                };
                let leaving = schedule.send(next, from, [after, None]);
                let last = step == world - 2;
                let to = if last {
                    Span::output(segment.start, segment.len())
                } else {
                    at(step)
                };
                // The place is free when the partial result that was in it has been sent.
                let free = if last { None } else { chain.left[step % 2] };
                let own = schedule.copy(block(arriving), to, [free, None]);
                let store = Store::Reduce {
                    incoming_first: true,
                    first: true,
                    last,
                };
                chain.combined = schedule.recv(previous, to, store, [own, None]);
                if step > 0 {
                    chain.left[(step - 1) % 2] = leaving;
                }
            }
        }
    }
    if world == 1 {
        for segment in segments.iter() {
            let (start, len) = (segment.start, segment.len());
            schedule.copy(Span::input(start, len), Span::output(start, len), FREE);
        }
    }
    let mut schedule = schedule.finish(if world > 2 { 2 * lanes * place } else { 0 });
    schedule.single_site = is_single_site(Algorithm::Ring, world);
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
