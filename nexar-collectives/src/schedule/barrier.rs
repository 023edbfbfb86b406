//! Barrier.

use super::builder::Builder;
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
