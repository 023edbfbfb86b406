//! All-reduce, in place on the output.

use super::builder::{Blocks, Builder, Doubling, FREE, Fold, Pieces, contributor};
use super::{ItemId, Plan, Schedule, Span, Store, select::is_single_site};
use nexar_core::{Algorithm, Collective};

/// Recursive doubling (Thakur, Rabenseifner, Gropp 2005: Optimization of Collective Communication
/// Operations in MPICH), for short vectors and any world.
///
/// Let p be the largest power of two in the world. The first 2 (n - p) ranks fold in pairs: the even
/// one sends its vector to the odd one, and gets the result at the end. The p ranks that are
/// left, numbered in order, then exchange their whole vectors: in step k with the partner whose
/// number differs in bit k. Each number stands for consecutive ranks and so does each aligned group
/// of 2^k numbers; ordering the two operands by rank, both partners evaluate the same
/// expression, and after log2 p steps all ranks have the same bits.
///
/// A vector cannot be sent while it is combined with the partner's, and neither partner can wait for
/// the other to receive first. So a copy is sent, from scratch.
pub(super) fn recursive_doubling(world: usize, rank: usize, count: usize) -> Schedule {
    let vector = Span::output(0, count);
    let copy = Span::scratch(0, count);
    let doubling = Doubling::new(world, rank);
    let (fold, steps) = (doubling.fold(), doubling.steps);
    let mut schedule = Builder::with_capacity(3 * steps as usize + 2);

    let mut combined = None;
    match fold {
        Fold::Alone => {}
        Fold::Leaves(to) => {
            schedule.send(to, vector, FREE);
            schedule.recv(to, vector, Store::Copy, FREE);
            return schedule.finish(0);
        }
        Fold::Takes(from) => {
            let store = Store::Reduce {
                incoming_first: true,
                first: true,
                last: false,
            };
            combined = schedule.recv(from, vector, store, FREE);
        }
    }
    let mut sent = None;
    for step in 0..steps {
        let partner = doubling.partner(step);
        let store = Store::Reduce {
            incoming_first: partner < rank,
            first: step == 0 && fold == Fold::Alone,
            last: step + 1 == steps,
        };
        let copied = schedule.copy(vector, copy, [combined, sent]);
        sent = schedule.send(partner, copy, [copied, None]);
        combined = schedule.recv(partner, vector, store, [copied, None]);
    }
    if let Fold::Takes(from) = fold {
        schedule.send(from, vector, [combined, None]);
    }
    let mut schedule = schedule.finish(if steps > 0 { count } else { 0 });
    schedule.single_site =
        is_single_site(Collective::AllReduce, Algorithm::RecursiveDoubling, world);
    schedule
}

/// Direct exchange in blocks: a reduce-scatter and an all-gather with all peers at once, two messages
/// deep (the long-vector scheme of Rabenseifner 2004: Optimization of Collective Reduction
/// Operations, over a full mesh in place of its butterfly).
///
/// A block of n segments is divided among the ranks. Every rank sends piece i to rank i, which combines
/// what arrives and sends the result to all. The contributions are combined in a
/// fixed order, whatever the order of arrival: own, then rank - 1, rank - 2 and so on, if ordered with
/// what is above the own rank at the end. Each piece is reduced on one rank; a partial result never travels.
///
/// The pieces of `lookahead` blocks are sent ahead; then the results of block b alternate with the pieces
/// of block b + `lookahead`. So a reduced segment leaves while it is in the cache, and the
/// links never run dry while one waits for the slowest contribution.
pub(super) fn direct(world: usize, rank: usize, count: usize, plan: Plan) -> Schedule {
    let blocks = Blocks::new(count, world.saturating_mul(plan.segment.max(1)));
    let lookahead = plan.lookahead.clamp(1, blocks.len().max(1));
    let mut schedule = Builder::with_capacity(4 * (world - 1) * blocks.len());
    // The receive that completes each block's own piece, for the blocks in flight.
    let mut reduced = vec![None; lookahead];
    for block in 0..blocks.len() + lookahead {
        if block >= lookahead {
            let pieces = Pieces::new(blocks.get(block - lookahead), world);
            let reduced = reduced[block % lookahead];
            gather_pieces(&mut schedule, world, rank, pieces, reduced);
        }
        let pieces = Pieces::new(blocks.get(block), world);
        reduced[block % lookahead] =
            scatter_pieces(&mut schedule, world, rank, pieces, plan.ordered);
    }
    let mut schedule = schedule.finish(0);
    schedule.single_site = is_single_site(Collective::AllReduce, Algorithm::Direct, world);
    schedule
}

/// Sends everyone their pieces and combines those that arrive for the own one; returns the last receive.
fn scatter_pieces(
    schedule: &mut Builder,
    world: usize,
    rank: usize,
    pieces: Pieces,
    ordered: bool,
) -> Option<ItemId> {
    let own = pieces.output(rank);
    let mut combined = None;
    for distance in 1..world {
        let to = (rank + distance) % world;
        let (from, incoming_first) = contributor(world, rank, distance, ordered);
        let store = Store::Reduce {
            incoming_first,
            first: distance == 1,
            last: distance == world - 1,
        };
        schedule.send(to, pieces.output(to), FREE);
        combined = schedule.recv(from, own, store, [combined, None]);
    }
    combined
}

/// Sends everyone the own reduced piece and receives theirs.
///
/// A result may overwrite the piece that was sent to its owner: the owner had received it by then.
fn gather_pieces(
    schedule: &mut Builder,
    world: usize,
    rank: usize,
    pieces: Pieces,
    reduced: Option<ItemId>,
) {
    for distance in 1..world {
        let to = (rank + distance) % world;
        let from = (rank + world - distance) % world;
        schedule.send(to, pieces.output(rank), [reduced, None]);
        schedule.recv(from, pieces.output(from), Store::Copy, FREE);
    }
}

/// Ring (Patarasuk, Yuan 2009: Bandwidth Optimal All-reduce Algorithms for Clusters of
/// Workstations), interleaved over blocks.
///
/// A block of n segments is divided into n pieces. In step t a rank sends piece rank - 1 - t
/// to the next rank, and receives piece rank - 2 - t from the previous one (all modulo n): in the first
/// n - 1 steps to combine it with its own, after which piece i is complete on rank i, in the
/// other n - 1 to keep it. What is sent in a step was received in the step before. Piece i is combined
/// in the order i + 1, i + 2, ..., i.
///
/// `lookahead` blocks go around together, so that one travels while another is combined.
pub(super) fn ring(world: usize, rank: usize, count: usize, plan: Plan) -> Schedule {
    let next = (rank + 1) % world;
    let previous = (rank + world - 1) % world;
    let blocks = Blocks::new(count, world.saturating_mul(plan.segment.max(1)));
    let lookahead = plan.lookahead.clamp(1, blocks.len().max(1));
    let mut schedule = Builder::with_capacity(4 * (world - 1) * blocks.len());
    let mut received = vec![None; lookahead];
    for group in Blocks::new(blocks.len(), lookahead).iter() {
        received.fill(None);
        for step in 0..2 * (world - 1) {
            let leaving = (rank + 2 * world - 1 - step) % world;
            let arriving = (rank + 2 * world - 2 - step) % world;
            let store = if step < world - 1 {
                Store::Reduce {
                    incoming_first: true,
                    first: true,
                    last: step == world - 2,
                }
            } else {
                Store::Copy
            };
            for (block, received) in group.clone().zip(&mut received) {
                let pieces = Pieces::new(blocks.get(block), world);
                schedule.send(next, pieces.output(leaving), [*received, None]);
                *received = schedule.recv(previous, pieces.output(arriving), store, FREE);
            }
        }
    }
    let mut schedule = schedule.finish(0);
    schedule.single_site = is_single_site(Collective::AllReduce, Algorithm::Ring, world);
    schedule
}
