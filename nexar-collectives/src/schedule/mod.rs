//! Algorithms as data.
//!
//! An algorithm is a pure function from rank, world size, lengths and parameters to a [`Schedule`]: what
//! this rank sends to whom, what it receives from whom, and what must be done before each. One executor
//! runs every schedule; one checker proves every schedule without a network.
//!
//! The rules of a schedule:
//!
//! - The sends to one peer leave in the order of the list, and so do the receives from one peer arrive:
//!   the k-th send from i to j is the k-th receive at j from i, of the same length. The copies of a rank
//!   are made in the order of the list, too. Beyond that, items run in any order that respects
//!   [`Item::after`].
//! - A send reads its span at any time between the completion of its dependencies and its own
//!   completion; a send is complete when its data has been copied out of the span (not when the peer has
//!   it). A receive is complete when all of its data has been stored.
//!   Every element is read once per send, so that a send no longer reads what its peer has received.
//! - An item only depends on items before it in the list.
//! - Spans are never empty: two ranks that have no element to exchange exchange no message.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod builder;
#[cfg(test)]
mod check;
mod exchange;
mod gather;
mod overrides;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod select;
mod table;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use nexar_core::Algorithm;
pub(crate) use nexar_core::Collective;
pub(crate) use overrides::Overrides;
pub(crate) use select::{Plan, select};
use std::{ops::Range, sync::Arc};
pub(crate) use table::Hosts;
#[cfg(any(test, feature = "tune"))]
pub(crate) use {
    select::{algorithms, forced, plan},
    table::{Choice, Rule, measured, rules},
};

/// One block of a vector for each rank, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Parts {
    /// All of this length.
    Even(usize),
    /// Block i is from the i-th of these numbers to the one after it.
    Uneven(Arc<[usize]>),
}

impl Parts {
    /// Blocks of these lengths. None if they add up to more than there can be.
    pub(crate) fn uneven(counts: &[usize]) -> Option<Parts> {
        let mut ends = Vec::with_capacity(counts.len() + 1);
        ends.push(0usize);
        for count in counts {
            ends.push(ends[ends.len() - 1].checked_add(*count)?);
        }
        Some(Parts::Uneven(ends.into()))
    }

    /// Block `i`, as a range of elements.
    pub(crate) fn get(&self, i: usize) -> Range<usize> {
        match self {
            Parts::Even(count) => i * count..(i + 1) * count,
            Parts::Uneven(ends) => ends[i]..ends[i + 1],
        }
    }

    /// Length of the longest block of `world` ranks.
    pub(crate) fn longest(&self, world: usize) -> usize {
        match self {
            Parts::Even(count) => *count,
            Parts::Uneven(_) => (0..world).map(|i| self.get(i).len()).max().unwrap_or(0),
        }
    }

    /// Elements of all blocks of `world` ranks.
    pub(crate) fn total(&self, world: usize) -> usize {
        match self {
            Parts::Even(count) => world * count,
            Parts::Uneven(ends) => ends[world],
        }
    }
}

/// What this rank exchanges with a rank, which may be itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) rank: usize,
    /// Elements of the input that go there, behind those of the links before.
    pub(crate) sends: usize,
    /// Elements of the output that come from there, behind those of the links before.
    pub(crate) expects: usize,
}

/// What the ranks do together, with the values that all of them must agree on.
///
/// | operation | input elements | output elements |
/// |---|---|---|
/// | barrier | 1, of any value | none |
/// | broadcast, all-reduce, scan (in place) | none | `count` |
/// | exclusive scan on rank 0 | `count` | none |
/// | reduce | `count`, but none on the root | `count` on the root (in place), none elsewhere |
/// | all-gather | the own block; none in place | all blocks |
/// | gather | the own block | all blocks on the root, none elsewhere |
/// | scatter | all blocks on the root, none elsewhere | the own block |
/// | reduce-scatter | all blocks | the own block |
/// | reduce-scatter in place | none | all blocks; the own one is the result |
/// | all-to-all | a block for each rank; none in place | a block from each rank |
/// | exchange | what the links send | what they expect |
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// No rank leaves before every rank has entered.
    Barrier,
    /// The output of `root` replaces that of every rank.
    Broadcast { root: usize, count: usize },
    /// The combination of all ranks' contributions replaces the output of `root`.
    Reduce { root: usize, count: usize },
    /// The combination of all ranks' outputs replaces the output of every rank.
    AllReduce { count: usize },
    /// The combination of the outputs of ranks 0 to r replaces that of rank r. If exclusive, of ranks 0 to
    /// r - 1, and the output of rank 0 stays.
    Scan { count: usize, exclusive: bool },
    /// Every rank gets the blocks of all ranks.
    AllGather { parts: Parts, in_place: bool },
    /// The root gets the blocks of all ranks. Other ranks need not know the blocks but their own.
    Gather { root: usize, parts: Parts },
    /// Every rank gets its block from the root. Other ranks need not know the blocks but their own.
    Scatter { root: usize, parts: Parts },
    /// Every rank gets its own block of the combination of all ranks' vectors.
    ReduceScatter { parts: Parts, in_place: bool },
    /// Every rank gets from every rank the block that is for it.
    AllToAll { count: usize, in_place: bool },
    /// Each rank exchanges with the ranks that it lists, and they with it: the k-th time that i lists j
    /// belongs to the k-th time that j lists i.
    Exchange { links: Arc<[Link]> },
}

impl Operation {
    /// What kind of operation it is, for the choice of an algorithm.
    pub(crate) const fn collective(&self) -> Collective {
        match self {
            Operation::Barrier => Collective::Barrier,
            Operation::Broadcast { .. } => Collective::Broadcast,
            Operation::Reduce { .. } => Collective::Reduce,
            Operation::AllReduce { .. } => Collective::AllReduce,
            Operation::Scan { exclusive, .. } => match exclusive {
                false => Collective::Scan,
                true => Collective::ExclusiveScan,
            },
            Operation::AllGather { .. } => Collective::AllGather,
            Operation::Gather { .. } => Collective::Gather,
            Operation::Scatter { .. } => Collective::Scatter,
            Operation::ReduceScatter { .. } => Collective::ReduceScatter,
            Operation::AllToAll { .. } => Collective::AllToAll,
            Operation::Exchange { .. } => Collective::AllToAllV,
        }
    }

    /// Whether, as all ranks know, nothing is exchanged and nobody is told: the schedules only copy, if
    /// anything. Such a call can run as a barrier, for the ranks to compare it.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Operation::Barrier
            | Operation::Gather { .. }
            | Operation::Scatter { .. }
            | Operation::Exchange { .. } => false,
            Operation::Broadcast { count, .. }
            | Operation::Reduce { count, .. }
            | Operation::AllReduce { count }
            | Operation::Scan { count, .. }
            | Operation::AllToAll { count, .. } => *count == 0,
            Operation::AllGather { parts, .. } | Operation::ReduceScatter { parts, .. } => {
                *parts == Parts::Even(0)
            }
        }
    }
}

/// What `rank` has to do for `operation` among `world` ranks.
///
/// All ranks must pass the same world and plan, and operations that belong together. An algorithm that
/// the operation does not know, or that cannot keep the order that the plan asks for, stands for the
/// operation's default (`select` never returns one). Items grow with `count / segment`;
/// [`select()`] bounds them.
///
/// A world of one, an empty operation, and a rank that has nothing to exchange get an empty schedule,
/// or one that only copies.
pub(crate) fn build(operation: &Operation, world: usize, rank: usize, plan: Plan) -> Schedule {
    use Algorithm::{Binomial, Bruck, Chain, RecursiveDoubling, Ring};
    debug_assert!(rank < world, "rank {rank} of {world}");
    match (operation, plan.algorithm) {
        (Operation::Barrier, RecursiveDoubling) => barrier::recursive_doubling(world, rank),
        (Operation::Barrier, _) => barrier::dissemination(world, rank),
        (&Operation::Broadcast { root, count }, Binomial) => {
            broadcast::binomial(world, rank, root, count)
        }
        (&Operation::Broadcast { root, count }, Chain) => {
            broadcast::chain(world, rank, root, count, plan)
        }
        (&Operation::Broadcast { root, count }, _) => {
            broadcast::scatter_all_gather(world, rank, root, count, plan)
        }
        (&Operation::Reduce { root, count }, Binomial) => {
            reduce::binomial(world, rank, root, count, plan)
        }
        (&Operation::Reduce { root, count }, _) => reduce::direct(world, rank, root, count, plan),
        (&Operation::AllReduce { count }, RecursiveDoubling) => {
            all_reduce::recursive_doubling(world, rank, count)
        }
        (&Operation::AllReduce { count }, Ring) if !plan.ordered => {
            all_reduce::ring(world, rank, count, plan)
        }
        (&Operation::AllReduce { count }, _) => all_reduce::direct(world, rank, count, plan),
        (&Operation::Scan { count, exclusive }, RecursiveDoubling) => {
            scan::recursive_doubling(world, rank, count, exclusive)
        }
        (&Operation::Scan { count, exclusive }, _) => {
            scan::chain(world, rank, count, exclusive, plan)
        }
        (Operation::AllGather { parts, in_place }, Ring) => {
            all_gather::ring(world, rank, parts, *in_place, plan)
        }
        (Operation::AllGather { parts, in_place }, Bruck) => {
            all_gather::bruck(world, rank, parts, *in_place)
        }
        (Operation::AllGather { parts, in_place }, _) => {
            all_gather::direct(world, rank, parts, *in_place, plan)
        }
        (
            &Operation::Gather {
                root,
                parts: Parts::Even(count),
            },
            Binomial,
        ) => gather::binomial(world, rank, root, count),
        (
            &Operation::Scatter {
                root,
                parts: Parts::Even(count),
            },
            Binomial,
        ) => scatter::binomial(world, rank, root, count),
        (Operation::Gather { root, parts }, _) => gather::direct(world, rank, *root, parts, plan),
        (Operation::Scatter { root, parts }, _) => scatter::direct(world, rank, *root, parts, plan),
        (Operation::ReduceScatter { parts, in_place }, Ring) if !plan.ordered => {
            reduce_scatter::ring(world, rank, parts, *in_place, plan)
        }
        (Operation::ReduceScatter { parts, in_place }, _) => {
            reduce_scatter::direct(world, rank, parts, *in_place, plan)
        }
        (&Operation::AllToAll { count, in_place }, Bruck) => {
            all_to_all::bruck(world, rank, count, in_place)
        }
        (&Operation::AllToAll { count, in_place }, _) => {
            all_to_all::direct(world, rank, count, in_place, plan)
        }
        (Operation::Exchange { links }, _) => exchange::direct(world, rank, links, plan),
    }
}

/// Number of an item in its schedule.
pub(crate) type ItemId = u32;

/// The memory that a span lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Buffer {
    /// What the caller passes in and keeps; read only. Absent for operations in place.
    Input,
    /// What the caller gets back; for operations in place it holds the input at the start.
    Output,
    /// Memory of the schedule's own, [`Schedule::scratch`] elements, undefined at the start.
    Scratch,
}

/// A range of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) buffer: Buffer,
    /// First element.
    pub(crate) start: usize,
    /// Number of elements; never 0 in a schedule.
    pub(crate) len: usize,
}

/// What happens to data that arrives for a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// It replaces the span.
    Copy,
    /// It is combined with the span.
    Reduce {
        /// The span is the right operand: `span = incoming op span`. Otherwise `span = span op incoming`.
        /// (Both give the same value for the built-in reductions; a non-commutative one needs it.)
        incoming_first: bool,
        /// This is the first combination for this span on this rank: before it, the span holds
        /// this rank's own contribution.
        first: bool,
        /// With this combination the span holds the contributions of all ranks, so that an average
        /// can be divided and a wide accumulator rounded.
        last: bool,
    },
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a span to a rank.
    Send { to: usize, span: Span },
    /// Receive from a rank into a span.
    Recv {
        from: usize,
        span: Span,
        store: Store,
    },
    /// Copy between two spans of this rank, of equal length and not overlapping.
    Copy { from: Span, to: Span },
}

/// An action with what must be complete before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) action: Action,
    /// Items of lower number; at most two.
    pub(crate) after: [Option<ItemId>; 2],
}

/// What one rank does in one operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Schedule {
    pub(crate) items: Vec<Item>,
    /// Elements of scratch memory.
    pub(crate) scratch: usize,
    /// No partial result travels: what a receive combines with a span is always the contribution of
    /// one rank, and the combinations of a span are one chain of receives of exactly this span, from
    /// `first` to `last`. Then narrow types can travel as they are and be accumulated wide where they
    /// are combined. Where it is false, a type that has to be accumulated wide travels wide.
    /// Only means something for reductions.
    pub(crate) single_site: bool,
    /// Ranks that are told of the call even if nothing is exchanged with them, and of which this rank
    /// hears in the same way.
    pub(crate) told: Vec<usize>,
}
