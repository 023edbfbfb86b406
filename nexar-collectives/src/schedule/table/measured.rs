//! Lines that come from measurements of the algorithms themselves. They go before what the model says.

use super::{ANY, Hosts, KIB, Rule, rule};
use nexar_core::{Algorithm, Collective};

/// What was measured between ranks on one host. The model of `tune/model.rs` has no caches: it holds what is
/// in flight to cost nothing, where it costs 15 % of the time of 64 MiB between 4 ranks (segments of 64 KiB and
/// lookahead 2 instead of 96 KiB and 1; 2 cores, encrypted). And it holds a short message to cost the same
/// whether its rank is awake or not, and so puts the switch from recursive doubling too high. A barrier of 2^k ranks
/// takes a quarter less by recursive doubling, since an answer carries the acknowledgement. Bruck's algorithms gain
/// nothing with 8 ranks and blocks of 8 and 512 bytes.
#[rustfmt::skip]
const ONE_HOST: &[Rule] = {
    use Algorithm::*;
    use Collective::*;
    &[
        rule(Barrier,       1..=2,   ANY,      RecursiveDoubling, 64 * KIB,  1),
        rule(Barrier,       4..=4,   ANY,      RecursiveDoubling, 64 * KIB,  1),
        rule(Barrier,       8..=8,   ANY,      RecursiveDoubling, 64 * KIB,  1),
        rule(Barrier,       16..=16, ANY,      RecursiveDoubling, 64 * KIB,  1),
        rule(Barrier,       1..=ANY, ANY,      Dissemination,     64 * KIB,  1),

        rule(Broadcast,     1..=2,   64 * KIB, Binomial,          64 * KIB,  1),
        rule(Broadcast,     1..=2,   ANY,      Chain,             128 * KIB, 1),

        rule(AllReduce,     1..=2,   64 * KIB, RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     1..=2,   ANY,      Direct,            128 * KIB, 2),
        rule(AllReduce,     3..=16,  4 * KIB,  RecursiveDoubling, 64 * KIB,  1),
        rule(AllReduce,     3..=16,  ANY,      Direct,            96 * KIB,  1),

        rule(AllGather,     1..=2,   ANY,      Direct,            128 * KIB, 2),
        rule(AllGather,     3..=16,  ANY,      Direct,            96 * KIB,  2),
        rule(ReduceScatter, 1..=2,   ANY,      Direct,            128 * KIB, 2),
        rule(ReduceScatter, 3..=16,  ANY,      Direct,            96 * KIB,  2),
        rule(AllToAll,      1..=2,   ANY,      Direct,            128 * KIB, 2),
        rule(AllToAll,      3..=16,  ANY,      Direct,            96 * KIB,  2),
    ]
};

/// What was measured between two ranks on one host, taken over: recursive doubling copies the whole vector before it
/// sends, in memory that the cache does not hold.
#[rustfmt::skip]
const SEVERAL_HOSTS: &[Rule] = {
    use Algorithm::*;
    use Collective::*;
    &[
        rule(AllReduce, 1..=2, 64 * KIB, RecursiveDoubling, 64 * KIB, 1),
        rule(AllReduce, 1..=2, ANY,      Direct,            64 * KIB, 8),
    ]
};

/// The lines for ranks on these hosts.
pub(crate) const fn rules(hosts: Hosts) -> &'static [Rule] {
    match hosts {
        Hosts::One => ONE_HOST,
        Hosts::Several => SEVERAL_HOSTS,
    }
}
