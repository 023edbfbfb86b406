//! The tables.

use super::{ANY, KIB, MIB, Rule, rule};
use nexar_core::{Algorithm, Collective};

#[rustfmt::skip]
pub(super) const ONE_HOST: &[Rule] = {
    use Algorithm::*;
    use Collective::*;
    &[
        //   collective     world         up to      algorithm          segment    lookahead
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
        rule(AllGather,     1..=16,       ANY,       Direct,            64 * KIB,  1),
        rule(AllGather,     17..=ANY,     64 * KIB,  Bruck,             64 * KIB,  1),
        rule(AllGather,     17..=ANY,     ANY,       Ring,              128 * KIB, 1),

        // Every rank but the root sends one message in both algorithms; the tree only spares the root.
        rule(Gather,        17..=ANY,     4 * KIB,   Binomial,          64 * KIB,  1),
        rule(Gather,        1..=ANY,      ANY,       Direct,            64 * KIB,  1),
        rule(Scatter,       17..=ANY,     4 * KIB,   Binomial,          64 * KIB,  1),
        rule(Scatter,       1..=ANY,      ANY,       Direct,            64 * KIB,  1),

        rule(ReduceScatter, 1..=16,       ANY,       Direct,            64 * KIB,  1),
        rule(ReduceScatter, 17..=ANY,     64 * KIB,  Direct,            64 * KIB,  1),
        rule(ReduceScatter, 17..=ANY,     ANY,       Ring,              128 * KIB, 4),
        rule(ReduceScatter, 1..=ANY,      ANY,       Direct,            64 * KIB,  1),

        rule(AllToAll,      5..=ANY,      KIB,       Bruck,             64 * KIB,  1),
        rule(AllToAll,      1..=ANY,      ANY,       Direct,            64 * KIB,  1),
        rule(AllToAllV,     1..=ANY,      ANY,       Direct,            64 * KIB,  1),
    ]
};

#[rustfmt::skip]
pub(super) const SEVERAL_HOSTS: &[Rule] = {
    use Algorithm::*;
    use Collective::*;
    &[
        //   collective     world         up to      algorithm          segment    lookahead
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
        rule(AllReduce,     1..=ANY,      ANY,       Direct,            64 * KIB,  8),

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
        rule(AllGather,     1..=16,       ANY,       Direct,            64 * KIB,  1),
        rule(AllGather,     17..=ANY,     64 * KIB,  Bruck,             64 * KIB,  1),
        rule(AllGather,     17..=ANY,     ANY,       Ring,              128 * KIB, 1),

        // Every rank but the root sends one message in both algorithms; the tree only spares the root.
        rule(Gather,        17..=ANY,     4 * KIB,   Binomial,          64 * KIB,  1),
        rule(Gather,        1..=ANY,      ANY,       Direct,            64 * KIB,  1),
        rule(Scatter,       17..=ANY,     4 * KIB,   Binomial,          64 * KIB,  1),
        rule(Scatter,       1..=ANY,      ANY,       Direct,            64 * KIB,  1),

        rule(ReduceScatter, 1..=16,       ANY,       Direct,            64 * KIB,  1),
        rule(ReduceScatter, 17..=ANY,     64 * KIB,  Direct,            64 * KIB,  1),
        rule(ReduceScatter, 17..=ANY,     ANY,       Ring,              128 * KIB, 4),
        rule(ReduceScatter, 1..=ANY,      ANY,       Direct,            64 * KIB,  1),

        rule(AllToAll,      5..=ANY,      KIB,       Bruck,             64 * KIB,  1),
        rule(AllToAll,      1..=ANY,      ANY,       Direct,            64 * KIB,  1),
        rule(AllToAllV,     1..=ANY,      ANY,       Direct,            64 * KIB,  1),
    ]
};
