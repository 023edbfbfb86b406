//! Scatter: block i of the root's input becomes the output of rank i.

use super::builder::{Builder, FREE, others, told};
use super::tree::Tree;
use super::{Buffer, Parts, Plan, Schedule, Span, Store};

/// Direct: the root sends every rank its block, one message deep.
pub(super) fn direct(
    world: usize,
    rank: usize,
    root: usize,
    parts: &Parts,
    plan: Plan,
) -> Schedule {
    // Other ranks know the length of their own block alone.
    let own = parts.get(rank).len();
    let mut schedule = Builder::with_capacity(0);
    if rank != root {
        for segment in plan.segments(own, world).iter() {
            schedule.recv(root, Span::of(Buffer::Output, segment), Store::Copy, FREE);
        }
        let mut schedule = schedule.finish(0);
        schedule.told = told(world, rank, root);
        return schedule;
    }
    for to in others(world, rank) {
        let block = parts.get(to);
        let segments = plan.segments(block.len(), world);
        for i in 0..segments.len() {
            let span = Span::of(Buffer::Input, segments.within(block.start, i));
            schedule.send(to, span, FREE);
        }
    }
    let from = Span::of(Buffer::Input, parts.get(rank));
    schedule.copy(from, Span::output(0, own), FREE);
    let mut schedule = schedule.finish(0);
    schedule.told = told(world, rank, root);
    schedule
}

/// Binomial tree, for short blocks of `count` elements: each rank gets the blocks of its subtree, which are
/// consecutive, see [`Tree`], in one message, and passes them on, the largest subtree first. Inner
/// ranks get them in scratch.
pub(super) fn binomial(world: usize, rank: usize, root: usize, count: usize) -> Schedule {
    let tree = Tree::new(world, rank, root);
    let (buffer, start) = match tree.parent {
        None => (Buffer::Input, 0),
        Some(_) => (Buffer::Scratch, rank),
    };
    let blocks = |first: usize, blocks: usize| {
        let first = (first - start) * count;
        Span::of(buffer, first..first + blocks * count)
    };
    let own = Span::output(0, count);
    let mut schedule = Builder::with_capacity(tree.children.len() + 2);
    let (mut received, mut scratch) = (None, 0);
    match tree.parent {
        Some(parent) if tree.children.is_empty() => {
            schedule.recv(parent, own, Store::Copy, FREE);
        }
        Some(parent) => {
            let all = blocks(rank, tree.group.len());
            received = schedule.recv(parent, all, Store::Copy, FREE);
            scratch = all.len;
        }
        None => {}
    }
    for child in tree.children.iter().rev() {
        let span = blocks(child.group.start, child.group.len());
        schedule.send(child.rank, span, [received, None]);
    }
    if tree.parent.is_none() || !tree.children.is_empty() {
        schedule.copy(blocks(rank, 1), own, [received, None]);
    }
    let mut schedule = schedule.finish(scratch);
    schedule.told = told(world, rank, root);
    schedule
}
