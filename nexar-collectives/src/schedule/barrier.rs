//! Barrier.

use super::builder::{Builder, Doubling, FREE, Fold};
use super::{Schedule, Span, Store};

/// Dissemination barrier (Hensgen, Finkel, Manber 1988: Two Algorithms for Barrier
/// Synchronization), for any world.
///
/// In round k a rank tells the rank 2^k above it (modulo the world) and hears from the rank 2^k
/// below it. After round k it has heard, directly or through others, from the 2^(k+1) - 1 ranks below
/// it, provided that it sends in a round only when it has heard in all rounds before; so after
/// ceil(log2 n) rounds from all.
///
/// A message has at least one element, so a token travels: it is sent from the input and received
/// into scratch, where nobody looks at it.
pub(super) fn dissemination(world: usize, rank: usize) -> Schedule {
    let mut schedule = Builder::with_capacity(2 * world.next_power_of_two().ilog2() as usize);
    let mut heard = None;
    let mut distance = 1;
    while distance < world {
        let above = (rank + distance) % world;
        let below = (rank + world - distance) % world;
        schedule.send(above, Span::input(0, 1), [heard, None]);
        heard = schedule.recv(below, Span::scratch(0, 1), Store::Copy, [heard, None]);
        distance *= 2;
    }
    schedule.finish(usize::from(world > 1))
}

/// Recursive doubling (Thakur, Rabenseifner, Gropp 2005: Optimization of Collective Communication
/// Operations in MPICH), for worlds of 2^k ranks best.
///
/// In step k a rank exchanges tokens with the partner whose number differs in bit k. As many rounds as in the
/// dissemination barrier, but half as many peers: the answer to a message carries its acknowledgement, and
/// two ranks that share a core wake each other. Other worlds fold first.
pub(super) fn recursive_doubling(world: usize, rank: usize) -> Schedule {
    let doubling = Doubling::new(world, rank);
    let (token, place) = (Span::input(0, 1), Span::scratch(0, 1));
    let mut schedule = Builder::with_capacity(2 * doubling.steps as usize + 2);
    let mut heard = None;
    match doubling.fold() {
        Fold::Alone => {}
        Fold::Leaves(to) => {
            schedule.send(to, token, FREE);
            schedule.recv(to, place, Store::Copy, FREE);
            return schedule.finish(1);
        }
        Fold::Takes(from) => heard = schedule.recv(from, place, Store::Copy, FREE),
    }
    for step in 0..doubling.steps {
        let partner = doubling.partner(step);
        schedule.send(partner, token, [heard, None]);
        heard = schedule.recv(partner, place, Store::Copy, [heard, None]);
    }
    if let Fold::Takes(from) = doubling.fold() {
        schedule.send(from, token, [heard, None]);
    }
    schedule.finish(usize::from(world > 1))
}
