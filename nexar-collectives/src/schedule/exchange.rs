//! Exchange: every rank sends what its links say to the ranks that they name, and hears from them.

use super::builder::{Builder, FREE};
use super::{Buffer, Link, Plan, Schedule, Span, Store};
use std::ops::Range;

/// Direct: every rank sends to all of its links at once, one message deep.
///
/// Starting with the links upwards of the own rank, so that not all ranks send to the same one. What goes
/// to the own rank is copied. A rank that is linked is told of the call, even if nothing is exchanged.
pub(super) fn direct(world: usize, rank: usize, links: &[Link], plan: Plan) -> Schedule {
    let sends = spans(links, |link| link.sends);
    let expects = spans(links, |link| link.expects);
    let above = |peer: usize| (world + peer - rank) % world;
    let below = |peer: usize| (world + rank - peer) % world;
    let mut schedule = Builder::with_capacity(2 * links.len());
    // Sorting keeps the order among the links of one rank.
    let mut order: Vec<usize> = (0..links.len()).collect();
    order.sort_by_key(|&i| above(links[i].rank));
    for &i in order.iter().filter(|&&i| links[i].rank != rank) {
        let segments = plan.segments(links[i].sends, world);
        for segment in 0..segments.len() {
            let span = Span::of(Buffer::Input, segments.within(sends[i].start, segment));
            schedule.send(links[i].rank, span, FREE);
        }
    }
    order.sort_by_key(|&i| below(links[i].rank));
    for &i in order.iter().filter(|&&i| links[i].rank != rank) {
        let segments = plan.segments(links[i].expects, world);
        for segment in 0..segments.len() {
            let span = Span::of(Buffer::Output, segments.within(expects[i].start, segment));
            schedule.recv(links[i].rank, span, Store::Copy, FREE);
        }
    }
    for (i, link) in links.iter().enumerate() {
        if link.rank == rank {
            let len = link.sends.min(link.expects);
            let to = Span::output(expects[i].start, len);
            schedule.copy(Span::input(sends[i].start, len), to, FREE);
        }
    }
    let mut schedule = schedule.finish(0);
    schedule.told = links.iter().map(|link| link.rank).collect();
    schedule.told.retain(|&peer| peer != rank);
    schedule.told.sort_unstable();
    schedule.told.dedup();
    schedule
}

/// The ranges of all links, one after the other.
fn spans(links: &[Link], len: impl Fn(&Link) -> usize) -> Vec<Range<usize>> {
    let mut start = 0;
    let span = |link| {
        let range = start..start + len(link);
        start = range.end;
        range
    };
    links.iter().map(span).collect()
}
