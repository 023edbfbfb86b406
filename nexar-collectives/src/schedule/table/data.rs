//! The tables, written by nexar-tune:
//!
//! ```text
//! cargo run --release -p nexar-bench --bin nexar-tune -- --write \
//!     --alpha-us 3.8 \
//!     --overhead-us 6.9 \
//!     --handling-ns-per-kib 1035 \
//!     --gamma-ns-per-kib 21.7 \
//!     --delta-ns-per-kib 19.5 \
//!     --cores 2 \
//!     --network-alpha-us 75 \
//!     --beta-ns-per-kib 328
//! ```

use super::{ANY, KIB, MIB, Rule, rule};
use nexar_core::{Algorithm, Collective};

/// For ranks of one host.
#[rustfmt::skip]
pub(super) const ONE_HOST: &[Rule] = {
    use Algorithm::*;
    use Collective::*;
    &[
        //   collective     world      up to      algorithm          segment    lookahead
        rule(Barrier,       1..=2,     ANY,       RecursiveDoubling, 64 * KIB,  1), // measured
        rule(Barrier,       4..=4,     ANY,       RecursiveDoubling, 64 * KIB,  1), // measured
        rule(Barrier,       8..=8,     ANY,       RecursiveDoubling, 64 * KIB,  1), // measured
        rule(Barrier,       16..=16,   ANY,       RecursiveDoubling, 64 * KIB,  1), // measured
        rule(Barrier,       1..=ANY,   ANY,       Dissemination,     64 * KIB,  1), // measured

        rule(Broadcast,     1..=2,     64 * KIB,  Binomial,          64 * KIB,  1), // measured
        rule(Broadcast,     1..=2,     ANY,       Chain,             128 * KIB, 1), // measured
        rule(Broadcast,     3..=16,    32 * KIB,  Binomial,          64 * KIB,  1),
        rule(Broadcast,     3..=16,    ANY,       ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     17..=64,   128 * KIB, Binomial,          64 * KIB,  1),
        rule(Broadcast,     17..=64,   ANY,       ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     65..=ANY,  256 * KIB, Binomial,          64 * KIB,  1),
        rule(Broadcast,     65..=ANY,  64 * MIB,  ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     65..=ANY,  ANY,       Chain,             64 * KIB,  1),

        rule(AllReduce,     1..=2,     64 * KIB,  RecursiveDoubling, 64 * KIB,  1), // measured
        rule(AllReduce,     1..=2,     ANY,       Direct,            128 * KIB, 2), // measured
        rule(AllReduce,     3..=16,    4 * KIB,   RecursiveDoubling, 64 * KIB,  1), // measured
        rule(AllReduce,     3..=16,    ANY,       Direct,            96 * KIB,  1), // measured
        rule(AllReduce,     17..=128,  128 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     17..=128,  ANY,       Direct,            64 * KIB,  1),
        rule(AllReduce,     129..=ANY, 512 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     129..=ANY, ANY,       Direct,            64 * KIB,  1),

        rule(AllGather,     1..=2,     ANY,       Direct,            128 * KIB, 2), // measured
        rule(AllGather,     3..=16,    ANY,       Direct,            96 * KIB,  2), // measured
        rule(AllGather,     17..=ANY,  32 * KIB,  Bruck,             64 * KIB,  1),
        rule(AllGather,     17..=ANY,  ANY,       Ring,              64 * KIB,  1),

        rule(ReduceScatter, 1..=2,     ANY,       Direct,            128 * KIB, 2), // measured
        rule(ReduceScatter, 3..=16,    ANY,       Direct,            96 * KIB,  2), // measured
        rule(ReduceScatter, 17..=ANY,  ANY,       Direct,            64 * KIB,  2),

        rule(Reduce,        1..=4,     ANY,       Binomial,          64 * KIB,  1),
        rule(Reduce,        5..=5,     32 * KIB,  Binomial,          64 * KIB,  1),
        rule(Reduce,        5..=5,     ANY,       Direct,            64 * KIB,  1),
        rule(Reduce,        6..=128,   512 * KIB, Binomial,          64 * KIB,  1),
        rule(Reduce,        6..=128,   ANY,       Direct,            64 * KIB,  1),
        rule(Reduce,        129..=ANY, 2 * MIB,   Binomial,          64 * KIB,  1),
        rule(Reduce,        129..=ANY, ANY,       Direct,            64 * KIB,  1),

        rule(Gather,        1..=5,     ANY,       Direct,            64 * KIB,  1),
        rule(Gather,        6..=128,   2 * KIB,   Binomial,          64 * KIB,  1),
        rule(Gather,        6..=128,   ANY,       Direct,            64 * KIB,  1),
        rule(Gather,        129..=ANY, 4 * KIB,   Binomial,          64 * KIB,  1),
        rule(Gather,        129..=ANY, ANY,       Direct,            64 * KIB,  1),

        rule(Scatter,       1..=16,    ANY,       Direct,            64 * KIB,  1),
        rule(Scatter,       17..=ANY,  KIB,       Binomial,          64 * KIB,  1),
        rule(Scatter,       17..=ANY,  ANY,       Direct,            64 * KIB,  1),

        rule(AllToAll,      1..=2,     ANY,       Direct,            128 * KIB, 2), // measured
        rule(AllToAll,      3..=16,    ANY,       Direct,            96 * KIB,  2), // measured
        rule(AllToAll,      17..=128,  2 * KIB,   Bruck,             64 * KIB,  1),
        rule(AllToAll,      17..=128,  ANY,       Direct,            64 * KIB,  1),
        rule(AllToAll,      129..=ANY, ANY,       Direct,            64 * KIB,  1),

        rule(Scan,          1..=32,    64 * KIB,  RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          1..=32,    ANY,       Chain,             64 * KIB,  1),
        rule(Scan,          33..=ANY,  128 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          33..=ANY,  ANY,       Chain,             64 * KIB,  1),

        rule(ExclusiveScan, 1..=64,    ANY,       Chain,             64 * KIB,  1),
        rule(ExclusiveScan, 65..=ANY,  128 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(ExclusiveScan, 65..=ANY,  ANY,       Chain,             64 * KIB,  1),

        rule(AllToAllV,     1..=ANY,   ANY,       Direct,            128 * KIB, 1),
    ]
};

/// For ranks on several hosts.
#[rustfmt::skip]
pub(super) const SEVERAL_HOSTS: &[Rule] = {
    use Algorithm::*;
    use Collective::*;
    &[
        //   collective     world      up to      algorithm          segment    lookahead
        rule(Barrier,       1..=ANY,   ANY,       Dissemination,     64 * KIB,  1),

        rule(Broadcast,     1..=2,     MIB,       Chain,             32 * KIB,  1),
        rule(Broadcast,     1..=2,     ANY,       Binomial,          64 * KIB,  1),
        rule(Broadcast,     3..=3,     256 * KIB, Binomial,          64 * KIB,  1),
        rule(Broadcast,     3..=3,     ANY,       ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     4..=5,     8 * KIB,   Binomial,          64 * KIB,  1),
        rule(Broadcast,     4..=5,     ANY,       ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     6..=16,    ANY,       ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     17..=32,   64,        ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     17..=32,   8 * KIB,   Binomial,          64 * KIB,  1),
        rule(Broadcast,     17..=32,   ANY,       ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     33..=128,  32 * KIB,  Binomial,          64 * KIB,  1),
        rule(Broadcast,     33..=128,  ANY,       ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     129..=ANY, 64 * KIB,  Binomial,          64 * KIB,  1),
        rule(Broadcast,     129..=ANY, 64 * MIB,  ScatterAllGather,  64 * KIB,  1),
        rule(Broadcast,     129..=ANY, ANY,       Chain,             64 * KIB,  1),

        rule(AllReduce,     1..=2,     64 * KIB,  RecursiveDoubling, 64 * KIB,  1), // measured
        rule(AllReduce,     1..=2,     ANY,       Direct,            64 * KIB,  8), // measured
        rule(AllReduce,     3..=4,     4 * KIB,   RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     3..=4,     ANY,       Direct,            64 * KIB,  8),
        rule(AllReduce,     5..=8,     ANY,       Direct,            64 * KIB,  8),
        rule(AllReduce,     9..=16,    8 * KIB,   RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     9..=16,    ANY,       Direct,            64 * KIB,  8),
        rule(AllReduce,     17..=32,   32 * KIB,  RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     17..=32,   ANY,       Direct,            64 * KIB,  8),
        rule(AllReduce,     33..=128,  128 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     33..=128,  ANY,       Direct,            64 * KIB,  8),
        rule(AllReduce,     129..=ANY, 512 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     129..=ANY, ANY,       Direct,            64 * KIB,  8),

        rule(AllGather,     1..=32,    ANY,       Direct,            64 * KIB,  8),
        rule(AllGather,     33..=ANY,  8 * KIB,   Bruck,             64 * KIB,  1),
        rule(AllGather,     33..=ANY,  128 * KIB, Direct,            64 * KIB,  8),
        rule(AllGather,     33..=ANY,  ANY,       Ring,              64 * KIB,  1),

        rule(ReduceScatter, 1..=ANY,   ANY,       Direct,            64 * KIB,  8),

        rule(Reduce,        1..=3,     ANY,       Binomial,          64 * KIB,  1),
        rule(Reduce,        4..=4,     8 * KIB,   Binomial,          64 * KIB,  1),
        rule(Reduce,        4..=4,     2 * MIB,   Direct,            64 * KIB,  8),
        rule(Reduce,        4..=4,     ANY,       Binomial,          64 * KIB,  1),
        rule(Reduce,        5..=5,     8 * KIB,   Binomial,          64 * KIB,  1),
        rule(Reduce,        5..=5,     ANY,       Direct,            64 * KIB,  8),
        rule(Reduce,        6..=8,     ANY,       Direct,            64 * KIB,  8),
        rule(Reduce,        9..=16,    32,        Direct,            64 * KIB,  8),
        rule(Reduce,        9..=16,    8 * KIB,   Binomial,          64 * KIB,  1),
        rule(Reduce,        9..=16,    ANY,       Direct,            64 * KIB,  8),
        rule(Reduce,        17..=32,   32,        Direct,            64 * KIB,  8),
        rule(Reduce,        17..=32,   32 * KIB,  Binomial,          64 * KIB,  1),
        rule(Reduce,        17..=32,   ANY,       Direct,            64 * KIB,  8),
        rule(Reduce,        33..=128,  256 * KIB, Binomial,          64 * KIB,  1),
        rule(Reduce,        33..=128,  ANY,       Direct,            64 * KIB,  8),
        rule(Reduce,        129..=ANY, 512 * KIB, Binomial,          64 * KIB,  1),
        rule(Reduce,        129..=ANY, ANY,       Direct,            64 * KIB,  8),

        rule(Gather,        1..=64,    ANY,       Direct,            64 * KIB,  1),
        rule(Gather,        65..=ANY,  8 * KIB,   Binomial,          64 * KIB,  1),
        rule(Gather,        65..=ANY,  ANY,       Direct,            64 * KIB,  1),

        rule(Scatter,       1..=64,    ANY,       Direct,            64 * KIB,  1),
        rule(Scatter,       65..=ANY,  KIB,       Binomial,          64 * KIB,  1),
        rule(Scatter,       65..=ANY,  ANY,       Direct,            64 * KIB,  1),

        rule(AllToAll,      1..=32,    ANY,       Direct,            64 * KIB,  8),
        rule(AllToAll,      33..=128,  KIB,       Bruck,             64 * KIB,  1),
        rule(AllToAll,      33..=128,  ANY,       Direct,            64 * KIB,  8),
        rule(AllToAll,      129..=ANY, ANY,       Direct,            64 * KIB,  8),

        rule(Scan,          1..=2,     MIB,       Chain,             32 * KIB,  1),
        rule(Scan,          1..=2,     ANY,       RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          3..=16,    128 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          3..=16,    ANY,       Chain,             32 * KIB,  1),
        rule(Scan,          17..=64,   256 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          17..=64,   ANY,       Chain,             32 * KIB,  1),
        rule(Scan,          65..=128,  512 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          65..=128,  128 * MIB, Chain,             32 * KIB,  1),
        rule(Scan,          65..=128,  ANY,       Chain,             64 * KIB,  1),
        rule(Scan,          129..=ANY, MIB,       RecursiveDoubling, 64 * KIB,  1),
        rule(Scan,          129..=ANY, ANY,       Chain,             32 * KIB,  1),

        rule(ExclusiveScan, 1..=3,     128 * KIB, Chain,             32 * KIB,  1),
        rule(ExclusiveScan, 1..=3,     ANY,       RecursiveDoubling, 64 * KIB,  1),
        rule(ExclusiveScan, 4..=64,    256 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(ExclusiveScan, 4..=64,    ANY,       Chain,             32 * KIB,  1),
        rule(ExclusiveScan, 65..=ANY,  512 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(ExclusiveScan, 65..=ANY,  ANY,       Chain,             32 * KIB,  1),

        rule(AllToAllV,     1..=ANY,   ANY,       Direct,            64 * KIB,  1),
    ]
};
