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
//! - An item only depends on items before it in the list.

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
    Recv { from: usize, span: Span, store: Store },
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
    /// Every element is reduced on one rank only, through a chain of receives from `first` to
    /// `last` on one span, and no other rank sees a partial result. Then narrow types
    /// can travel as they are and be accumulated wide on that rank.
    pub(crate) single_site: bool,
}
