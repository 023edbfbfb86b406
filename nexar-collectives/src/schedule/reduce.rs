//! Reduce: in place on the output of the root; the others contribute their input.

use super::builder::{Blocks, Builder, FREE, Pieces, contributor};
use super::tree::Tree;
use super::{Buffer, Plan, Schedule, Span, Store, select::is_single_site};
use nexar_core::{Algorithm, Collective};

/// Binomial tree (Thakur, Rabenseifner, Gropp 2005: Optimization of Collective Communication
/// Operations in MPICH), for short vectors; over groups of consecutive ranks, see [`Tree`], so that
/// contributions are combined in the order of the ranks.
///
/// In segments, so that one travels while another is combined. Inner ranks combine in scratch.
pub(super) fn binomial(
    world: usize,
    rank: usize,
    root: usize,
    count: usize,
    plan: Plan,
) -> Schedule {
    let tree = Tree::new(world, rank, root);
    let segments = Blocks::new(count, plan.segment);
    let buffer = match (tree.parent, tree.children.len()) {
        (None, _) => Buffer::Output,
        (Some(_), 0) => Buffer::Input,
        (Some(_), _) => Buffer::Scratch,
    };
    let mut schedule = Builder::with_capacity(segments.len() * (tree.children.len() + 2));
    for segment in segments.iter() {
        let span = Span::of(buffer, segment.clone());
        let mut combined = None;
        if buffer == Buffer::Scratch {
            combined = schedule.copy(Span::of(Buffer::Input, segment), span, FREE);
        }
        for (i, child) in tree.children.iter().enumerate() {
            let store = Store::Reduce {
                incoming_first: child.rank < rank,
                first: i == 0,
                last: tree.parent.is_none() && i + 1 == tree.children.len(),
            };
            combined = schedule.recv(child.rank, span, store, [combined, None]);
        }
        if let Some(parent) = tree.parent {
            schedule.send(parent, span, [combined, None]);
        }
    }
    let scratch = if buffer == Buffer::Scratch { count } else { 0 };
    let mut schedule = schedule.finish(scratch);
    schedule.single_site = is_single_site(Collective::Reduce, Algorithm::Binomial, world);
    schedule
}

/// Direct exchange in blocks, for long vectors: a reduce-scatter with all peers at once, and a gather to the
/// root, two messages deep (the long-vector scheme of Rabenseifner 2004: Optimization of
/// Collective Reduction Operations, over a full mesh in place of its butterfly).
///
/// A block of n segments is divided among the ranks. Every rank sends piece i to rank i, which combines
/// what arrives, in the order of [`contributor`], and sends the result to the root. Each piece is reduced on
/// one rank; a partial result never travels. Ranks other than the root combine in scratch.
///
/// The pieces of `lookahead` blocks are sent ahead, each with a place in scratch.
pub(super) fn direct(world: usize, rank: usize, root: usize, count: usize, plan: Plan) -> Schedule {
    let blocks = Blocks::new(count, world.saturating_mul(plan.segment.max(1)));
    let lookahead = plan.lookahead.clamp(1, blocks.len().max(1));
    let place = Pieces::new(blocks.get(0), world).get(0).len();
    let source = if rank == root {
        Buffer::Output
    } else {
        Buffer::Input
    };
    let target = |pieces: Pieces, slot: usize| match rank == root {
        true => pieces.output(rank),
        false => Span::scratch(slot * place, pieces.get(rank).len()),
    };
    let mut schedule = Builder::with_capacity(3 * world * blocks.len());
    // For the blocks in flight: the receive that completes the own piece, and the send of the result.
    let mut reduced = vec![None; lookahead];
    let mut sent = vec![None; lookahead];
    for block in 0..blocks.len() + lookahead {
        let slot = block % lookahead;
        if block >= lookahead {
            let pieces = Pieces::new(blocks.get(block - lookahead), world);
            if rank != root {
                sent[slot] = schedule.send(root, target(pieces, slot), [reduced[slot], None]);
            } else {
                // A result may overwrite the piece that was sent to its owner: it had received it by then.
                for distance in 1..world {
                    let from = (rank + world - distance) % world;
                    schedule.recv(from, pieces.output(from), Store::Copy, FREE);
                }
            }
        }
        let pieces = Pieces::new(blocks.get(block), world);
        let own = target(pieces, slot);
        let mut combined = None;
        if rank != root {
            let piece = Span::of(source, pieces.get(rank));
            combined = schedule.copy(piece, own, [sent[slot], None]);
        }
        for distance in 1..world {
            let to = (rank + distance) % world;
            let (from, incoming_first) = contributor(world, rank, distance, plan.ordered);
            let store = Store::Reduce {
                incoming_first,
                first: distance == 1,
                last: distance == world - 1,
            };
            schedule.send(to, Span::of(source, pieces.get(to)), FREE);
            combined = schedule.recv(from, own, store, [combined, None]);
        }
        reduced[slot] = combined;
    }
    let scratch = if rank == root { 0 } else { lookahead * place };
    let mut schedule = schedule.finish(scratch);
    schedule.single_site = is_single_site(Collective::Reduce, Algorithm::Direct, world);
    schedule
}
