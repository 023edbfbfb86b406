//! Gather: the input of rank i becomes block i of the root's output.

use super::builder::{Builder, FREE, others, told};
use super::tree::Tree;
use super::{Buffer, Parts, Plan, Schedule, Span, Store};

/// Direct: every rank sends its block to the root, one message deep.
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
            schedule.send(root, Span::of(Buffer::Input, segment), FREE);
        }
        let mut schedule = schedule.finish(0);
        schedule.told = told(world, rank, root);
        return schedule;
    }
    for from in others(world, rank) {
        let block = parts.get(from);
        let segments = plan.segments(block.len(), world);
        for i in 0..segments.len() {
            let span = Span::of(Buffer::Output, segments.within(block.start, i));
            schedule.recv(from, span, Store::Copy, FREE);
        }
    }
    let to = Span::of(Buffer::Output, parts.get(rank));
    schedule.copy(Span::input(0, own), to, FREE);
    let mut schedule = schedule.finish(0);
    schedule.told = told(world, rank, root);
    schedule
}

/// Binomial tree, for short blocks of `count` elements: each rank collects the blocks of its subtree, which are
/// consecutive, see [`Tree`], and sends them to its parent in one message. Inner ranks collect in
/// scratch.
pub(super) fn binomial(world: usize, rank: usize, root: usize, count: usize) -> Schedule {
    let tree = Tree::new(world, rank, root);
    let (buffer, start) = match tree.parent {
        None => (Buffer::Output, 0),
        Some(_) => (Buffer::Scratch, rank),
    };
    let blocks = |first: usize, blocks: usize| {
        let first = (first - start) * count;
        Span::of(buffer, first..first + blocks * count)
    };
    let own = Span::input(0, count);
    let mut schedule = Builder::with_capacity(tree.children.len() + 2);
    let mut scratch = 0;
    match tree.parent {
        Some(parent) if tree.children.is_empty() => {
            schedule.send(parent, own, FREE);
        }
        None => {
            for child in &tree.children {
                let span = blocks(child.group.start, child.group.len());
                schedule.recv(child.rank, span, Store::Copy, FREE);
            }
            schedule.copy(own, blocks(rank, 1), FREE);
        }
        Some(parent) => {
            let copied = schedule.copy(own, blocks(rank, 1), FREE);
            // The smaller a subtree, the earlier it is collected.
            let mut received = None;
            for child in &tree.children {
                let span = blocks(child.group.start, child.group.len());
                received = schedule.recv(child.rank, span, Store::Copy, [received, None]);
            }
            schedule.send(parent, blocks(rank, tree.group.len()), [copied, received]);
            scratch = tree.group.len() * count;
        }
    }
    let mut schedule = schedule.finish(scratch);
    schedule.told = told(world, rank, root);
    schedule
}
