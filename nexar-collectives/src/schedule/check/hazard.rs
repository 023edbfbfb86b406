//! What is certain to happen before what.

use super::graph::{Graph, Node};
use super::{Fault, accesses, overlap};
use crate::schedule::{Schedule, Span};

/// Proves that no two items of one rank can access the same memory at the same time, unless both
/// only read it.
///
/// An item is over before another one accesses memory if there is a way from one to the other
/// along dependencies and messages. A message leads from the start of a send to the first access of
/// its receive, and from the last access of the send to the end of the receive. So a receive knows what its
/// send knew; and who waits for the receive also knows that the send no longer reads. The order of a
/// lane proves nothing.
pub(super) fn check_rank(
    graph: &Graph,
    order: &[Node],
    rank: usize,
    schedule: &Schedule,
) -> Result<(), Fault> {
    // For every item of all ranks: which items of this rank were over before it, and itself.
    let words = schedule.items.len().div_ceil(64);
    let mut known = vec![0u64; graph.len() * words];
    let mut node_of = vec![0; schedule.items.len()];
    for &node in order {
        for before in graph.after(node).chain(graph.send_of(node)) {
            for word in 0..words {
                known[node * words + word] |= known[before * words + word];
            }
        }
        if graph.rank(node) == rank {
            let item = graph.item(node);
            node_of[item] = node;
            known[node * words + item / 64] |= 1 << (item % 64);
        }
    }
    let knows = |item: usize, before: usize| {
        known[node_of[item] * words + before / 64] >> (before % 64) & 1 == 1
    };

    let mut accesses: Vec<(usize, Span, bool)> = schedule
        .items
        .iter()
        .enumerate()
        .flat_map(|(item, it)| accesses(it.action).map(move |(span, write)| (item, span, write)))
        .collect();
    accesses.sort_by_key(|(_, span, _)| (span.buffer, span.start));
    for (i, &(a, span_a, write_a)) in accesses.iter().enumerate() {
        let overlapping = accesses[i + 1..]
            .iter()
            .take_while(|(_, span, _)| overlap(span_a, *span));
        for &(b, _, write_b) in overlapping {
            let conflict = a != b && (write_a || write_b);
            if conflict && !knows(a, b) && !knows(b, a) {
                return Err(Fault::Race {
                    rank,
                    items: [a.min(b), a.max(b)],
                });
            }
        }
    }
    Ok(())
}

/// Proves that every rank has heard from every rank when it is done.
pub(super) fn check_barrier(graph: &Graph, order: &[Node]) -> Result<(), Fault> {
    let mut known = vec![0u64; graph.len()];
    let mut heard: Vec<u64> = (0..graph.world()).map(|rank| 1 << rank).collect();
    for &node in order {
        let rank = graph.rank(node);
        let before = graph.after(node).chain(graph.send_of(node));
        known[node] = before.fold(1 << rank, |known_here, before| known_here | known[before]);
        heard[rank] |= known[node];
    }
    let all = u64::MAX >> (64 - graph.world());
    match heard.iter().position(|&heard| heard != all) {
        Some(rank) => Err(Fault::Barrier { rank }),
        None => Ok(()),
    }
}
