//! The switch points between algorithms.

use nexar_core::{Algorithm, Collective};
use std::ops::RangeInclusive;

/// A line of [`TABLE`].
pub(super) struct Rule {
    pub(super) collective: Collective,
    pub(super) world: RangeInclusive<usize>,
    /// The most bytes that the rule is for: of the vector, or of one block of it.
    pub(super) bytes: usize,
    pub(super) algorithm: Algorithm,
    /// Bytes per message.
    pub(super) segment: usize,
    pub(super) lookahead: usize,
}

pub(super) const KIB: usize = 1 << 10;
pub(super) const MIB: usize = 1 << 20;
const ANY: usize = usize::MAX;

const fn rule(
    collective: Collective,
    world: RangeInclusive<usize>,
    bytes: usize,
    algorithm: Algorithm,
    segment: usize,
    lookahead: usize,
) -> Rule {
    Rule {
        collective,
        world,
        bytes,
        algorithm,
        segment,
        lookahead,
    }
}

/// The first rule that applies decides.
///
/// The switch points of all-reduce up to 8 ranks come from measurements on loopback (2 cores, encrypted).
/// The others are estimates from the model time = messages in a row * 15 us + bytes * 1 ns. To measure:
/// run `nexar-perf` for the collective over sizes from 8 B to 64 MiB, once per algorithm with
/// `NEXAR_ALGORITHM=<collective>:<algorithm>`, and set `bytes` to where the curves cross.
#[rustfmt::skip]
pub(super) const TABLE: &[Rule] = {
    use Algorithm::*;
    use Collective::*;
    &[
        //   collective     world         up to      algorithm          segment    lookahead
        rule(Barrier,       1..=2,        ANY,       RecursiveDoubling, 1,         1),
        rule(Barrier,       4..=4,        ANY,       RecursiveDoubling, 1,         1),
        rule(Barrier,       8..=8,        ANY,       RecursiveDoubling, 1,         1),
        rule(Barrier,       16..=16,      ANY,       RecursiveDoubling, 1,         1),
        rule(Barrier,       1..=ANY,      ANY,       Dissemination,     1,         1),

        rule(Broadcast,     1..=ANY,      64 * KIB,  Binomial,          64 * KIB,  1),
        rule(Broadcast,     1..=2,        ANY,       Chain,             128 * KIB, 1),
        rule(Broadcast,     3..=16,       ANY,       ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     17..=64,      4 * MIB,   Binomial,          64 * KIB,  1),
        rule(Broadcast,     65..=ANY,     32 * MIB,  Binomial,          64 * KIB,  1),
        rule(Broadcast,     17..=ANY,     ANY,       Chain,             64 * KIB,  1),

        // Between two ranks both algorithms move the same bytes, recursive doubling in one message.
        rule(AllReduce,     1..=2,        64 * KIB,  RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     1..=2,        ANY,       Direct,            128 * KIB, 2),
        rule(AllReduce,     3..=16,       4 * KIB,   RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     17..=64,      256 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     65..=ANY,     MIB,       RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     17..=ANY,     ANY,       Ring,              128 * KIB, 4),
        rule(AllReduce,     1..=ANY,      ANY,       Direct,            96 * KIB,  1),

        rule(Reduce,        1..=2,        ANY,       Binomial,          128 * KIB, 1),
        rule(Reduce,        3..=16,       128 * KIB, Binomial,          64 * KIB,  1),
        rule(Reduce,        17..=64,      512 * KIB, Binomial,          64 * KIB,  1),
        rule(Reduce,        65..=ANY,     2 * MIB,   Binomial,          64 * KIB,  1),
        rule(Reduce,        1..=ANY,      ANY,       Direct,            64 * KIB,  2),

        // Between two ranks both algorithms send one message, the chain in segments.
        rule(Scan,          3..=16,       64 * KIB,  RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          17..=64,      512 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          65..=ANY,     2 * MIB,   RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          1..=ANY,      ANY,       Chain,             32 * KIB,  1),

        rule(ExclusiveScan, 3..=16,       64 * KIB,  RecursiveDoubling, 64 * KIB,  1),
        rule(ExclusiveScan, 17..=64,      512 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(ExclusiveScan, 65..=ANY,     2 * MIB,   RecursiveDoubling, 64 * KIB,  1),
        rule(ExclusiveScan, 1..=ANY,      ANY,       Chain,             32 * KIB,  1),

        rule(AllGather,     5..=16,       4 * KIB,   Bruck,             64 * KIB,  1),
        rule(AllGather,     1..=2,        ANY,       Direct,            128 * KIB, 2),
        rule(AllGather,     3..=16,       ANY,       Direct,            96 * KIB,  2),
        rule(AllGather,     17..=ANY,     64 * KIB,  Bruck,             64 * KIB,  1),
        rule(AllGather,     17..=ANY,     ANY,       Ring,              128 * KIB, 1),

        // Every rank but the root sends one message in both algorithms; the tree only spares the root.
        rule(Gather,        17..=ANY,     4 * KIB,   Binomial,          64 * KIB,  1),
        rule(Gather,        1..=ANY,      ANY,       Direct,            64 * KIB,  1),
        rule(Scatter,       17..=ANY,     4 * KIB,   Binomial,          64 * KIB,  1),
        rule(Scatter,       1..=ANY,      ANY,       Direct,            64 * KIB,  1),

        rule(ReduceScatter, 1..=2,        ANY,       Direct,            128 * KIB, 2),
        rule(ReduceScatter, 3..=16,       ANY,       Direct,            96 * KIB,  2),
        rule(ReduceScatter, 17..=ANY,     64 * KIB,  Direct,            64 * KIB,  2),
        rule(ReduceScatter, 17..=ANY,     ANY,       Ring,              128 * KIB, 4),
        rule(ReduceScatter, 1..=ANY,      ANY,       Direct,            64 * KIB,  2),

        rule(AllToAll,      5..=ANY,      KIB,       Bruck,             64 * KIB,  1),
        rule(AllToAll,      1..=2,        ANY,       Direct,            128 * KIB, 2),
        rule(AllToAll,      1..=ANY,      ANY,       Direct,            96 * KIB,  2),
        rule(AllToAllV,     1..=ANY,      ANY,       Direct,            64 * KIB,  1),
    ]
};
