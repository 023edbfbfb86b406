//! Algorithms as data.
//!
//! An algorithm is a pure function from rank, world size, lengths and parameters to a [`Schedule`]: what
//! this rank sends to whom, what it receives from whom, and what must be done before each. One executor
//! runs every schedule; one checker proves every schedule without a network.
//!
//! The rules of a schedule:
//!
//! - The sends to one peer leave in the order of the list, and so do the receives from one peer arrive:
//!   the k-th send from i to j is the k-th receive at j from i, of the same length. Beyond that, items
//!   run in any order that respects [`Item::after`].
//! - A send reads its span at any time between the completion of its dependencies and its own
//!   completion; a send is complete when its data has been copied out of the span (not when the peer has
//!   it). A receive is complete when all of its data has been stored.
//!   Every element is read once per send, so that a send no longer reads what its peer has received.
//! - An item only depends on items before it in the list.
//! - Spans are never empty: two ranks that have no element to exchange exchange no message.

mod all_gather;
mod all_reduce;
mod barrier;
mod broadcast;
mod builder;
#[cfg(test)]
mod check;
mod overrides;
mod reduce_scatter;
mod select;
#[cfg(test)]
mod tests;

pub(crate) use nexar_core::Algorithm;
pub(crate) use nexar_core::Collective;
pub(crate) use overrides::Overrides;
pub(crate) use select::{Plan, select};

/// What the ranks do together, with the values that all of them must agree on.
///
/// | operation | input elements | output elements |
/// |---|---|---|
/// | barrier | 1, of any value | none |
/// | broadcast, all-reduce (in place) | none | `count` |
/// | all-gather | `count` | `world * count`, in the order of the ranks |
/// | reduce-scatter | `world * count`, in the order of the ranks | `count` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// No rank leaves before every rank has entered.
    Barrier,
    /// The output of `root` replaces that of every rank.
    Broadcast { root: usize, count: usize },
    /// The combination of all ranks' outputs replaces the output of every rank.
    AllReduce { count: usize },
    /// Every rank gets the inputs of all ranks.
    AllGather { count: usize },
    /// Every rank gets its own block of the combination of all ranks' inputs.
    ReduceScatter { count: usize },
}

impl Operation {
    /// What kind of operation it is.
    pub(crate) const fn collective(self) -> Collective {
        match self {
            Operation::Barrier => Collective::Barrier,
            Operation::Broadcast { .. } => Collective::Broadcast,
            Operation::AllReduce { .. } => Collective::AllReduce,
            Operation::AllGather { .. } => Collective::AllGather,
            Operation::ReduceScatter { .. } => Collective::ReduceScatter,
        }
    }

    /// The element count of the operation: what one rank contributes, or its block of it.
    pub(crate) const fn count(self) -> usize {
        match self {
            Operation::Barrier => 1,
            Operation::Broadcast { count, .. }
            | Operation::AllReduce { count }
            | Operation::AllGather { count }
            | Operation::ReduceScatter { count } => count,
        }
    }

    /// Elements of the input that the schedules read.
    #[cfg(test)]
    pub(crate) const fn input_len(self, world: usize) -> usize {
        match self {
            Operation::Barrier => 1,
            Operation::Broadcast { .. } | Operation::AllReduce { .. } => 0,
            Operation::AllGather { count } => count,
            Operation::ReduceScatter { count } => world * count,
        }
    }

    /// Elements of the output that the schedules read and write.
    #[cfg(test)]
    pub(crate) const fn output_len(self, world: usize) -> usize {
        match self {
            Operation::Barrier => 0,
            Operation::Broadcast { count, .. }
            | Operation::AllReduce { count }
            | Operation::ReduceScatter { count } => count,
            Operation::AllGather { count } => world * count,
        }
    }
}

/// What `rank` has to do for `operation` among `world` ranks.
///
/// All ranks must pass the same operation, world and plan. An algorithm that the operation does not
/// know stands for the operation's default (`select` never returns one). Items grow with
/// `count / segment`; [`select()`] bounds them.
///
/// A world of one, an empty operation, and a rank that has nothing to exchange get an empty schedule,
/// or one that only copies.
pub(crate) fn build(operation: Operation, world: usize, rank: usize, plan: Plan) -> Schedule {
    use Algorithm::{Binomial, Chain, RecursiveDoubling, Ring};
    debug_assert!(rank < world, "rank {rank} of {world}");
    match (operation, plan.algorithm) {
        (Operation::Barrier, _) => barrier::dissemination(world, rank),
        (Operation::Broadcast { root, count }, Binomial) => {
            broadcast::binomial(world, rank, root, count)
        }
        (Operation::Broadcast { root, count }, Chain) => {
            broadcast::chain(world, rank, root, count, plan)
        }
        (Operation::Broadcast { root, count }, _) => {
            broadcast::scatter_all_gather(world, rank, root, count, plan)
        }
        (Operation::AllReduce { count }, RecursiveDoubling) => {
            all_reduce::recursive_doubling(world, rank, count)
        }
        (Operation::AllReduce { count }, Ring) => all_reduce::ring(world, rank, count, plan),
        (Operation::AllReduce { count }, _) => all_reduce::direct(world, rank, count, plan),
        (Operation::AllGather { count }, Ring) => all_gather::ring(world, rank, count, plan),
        (Operation::AllGather { count }, _) => all_gather::direct(world, rank, count, plan),
        (Operation::ReduceScatter { count }, Ring) => {
            reduce_scatter::ring(world, rank, count, plan)
        }
        (Operation::ReduceScatter { count }, _) => reduce_scatter::direct(world, rank, count, plan),
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
}
