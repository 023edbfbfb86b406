//! Proves schedules without a network.
//!
//! [`check`] runs the schedules of all ranks on symbolic values and proves:
//!
//! - the k-th send from i to j and the k-th receive at j from i have the same length, and there are as
//!   many of both;
//! - there is no deadlock, even if no send completes before its receive has started (so none with any
//!   amount of buffering);
//! - every element ends with what the operation promises: each contribution exactly once, and the same
//!   expression on all ranks, in any order of execution;
//! - accesses to the same memory, one of them a write, are ordered by dependencies and messages;
//! - contributions are combined in the order of the ranks, where that was asked for;
//! - ranks that tell each other of the call do so in both directions, and nobody is forgotten;
//! - the flags and claims of the schedules are true, scratch is not read before it is written, the
//!   input is never written.
//!
//! [`count`] only counts, for large worlds.

#[cfg(test)]
mod faults;
mod graph;
mod hazard;
mod memory;
#[cfg(test)]
mod mutations;
mod values;

use super::{Action, Buffer, Item, Operation, Plan, Schedule, Span, build};
use graph::Graph;

/// What the schedules cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// The longest chain of messages of which each waits for the one before.
    pub(crate) rounds: usize,
    /// Elements that each rank sends.
    pub(crate) sent: Vec<usize>,
}

/// What is wrong with the schedules. Ranks and items are numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An item breaks a rule by itself.
    Malformed {
        rank: usize,
        item: usize,
        rule: &'static str,
    },
    /// There are more sends than receives between two ranks, or fewer.
    Unmatched {
        from: usize,
        to: usize,
        sends: usize,
        recvs: usize,
    },
    /// A send and its receive differ in length.
    Length {
        from: usize,
        to: usize,
        sent: usize,
        expected: usize,
    },
    /// The item can never start.
    Deadlock { rank: usize, item: usize },
    /// The item reads memory that nobody has written.
    Undefined { rank: usize, item: usize },
    /// The item combines contributions that overlap or belong to different elements.
    Combination { rank: usize, item: usize },
    /// A flag of a reduction is wrong.
    Flag {
        rank: usize,
        item: usize,
        flag: &'static str,
    },
    /// The item breaks the claim that all reductions are single-site.
    SingleSite { rank: usize, item: usize },
    /// An element of the result is not what the operation promises.
    Result { rank: usize, element: usize },
    /// An element of the result differs from that of rank 0 or from another execution.
    Disagreement { rank: usize, element: usize },
    /// Two items may access the same memory at the same time.
    Race { rank: usize, items: [usize; 2] },
    /// The item combines contributions out of order.
    Order { rank: usize, item: usize },
    /// A rank tells another of the call, which does not expect it, or tells it twice.
    Told { rank: usize, other: usize },
    /// No rank would notice that this one makes another call.
    Alone { rank: usize },
    /// A rank may leave the barrier before all have entered.
    Barrier { rank: usize },
    /// The schedule of a rank is not that of rank 0, rotated.
    Asymmetric { rank: usize },
}

/// The same operation for all ranks.
pub(crate) fn same(operation: &Operation, world: usize) -> Vec<Operation> {
    vec![operation.clone(); world]
}

/// The schedules of all ranks, each with its operation.
pub(crate) fn build_all(operations: &[Operation], plan: Plan) -> Vec<Schedule> {
    operations
        .iter()
        .enumerate()
        .map(|(rank, operation)| build(operation, operations.len(), rank, plan))
        .collect()
}

/// Proves the schedules of all ranks, each with its operation; at most 64. `ordered`: contributions are to
/// be combined in the order of the ranks.
///
/// In worlds above 16, hazards are looked for on some ranks only, to save time.
pub(crate) fn check(
    operations: &[Operation],
    ordered: bool,
    schedules: &[Schedule],
) -> Result<Report, Fault> {
    let world = schedules.len();
    assert!((1..=64).contains(&world) && operations.len() == world);
    let mut graph = Graph::new(world);
    for (rank, schedule) in schedules.iter().enumerate() {
        check_items(&operations[rank], world, rank, schedule)?;
        graph.add(rank, schedule)?;
    }
    graph.pair()?;
    check_told(operations, schedules)?;
    let mut values = values::Values::new(operations, ordered);
    let order = graph.order(1)?;
    let result = values.run(&graph, &order, schedules)?;
    let again = values.run(&graph, &graph.order(2)?, schedules)?;
    values.compare(&result, &again)?;
    if operations[0] == Operation::Barrier {
        hazard::check_barrier(&graph, &order)?;
    }
    let samples = [0, 1, world / 2, world.saturating_sub(2), world - 1];
    for (rank, schedule) in schedules.iter().enumerate() {
        if world <= 16 || samples.contains(&rank) {
            hazard::check_rank(&graph, &order, rank, schedule)?;
        }
    }
    Ok(graph.report(&order))
}

/// Builds the schedules of all ranks and counts what they cost; proves lengths and the
/// absence of deadlock.
pub(crate) fn count(operations: &[Operation], plan: Plan) -> Result<Report, Fault> {
    let world = operations.len();
    let mut graph = Graph::new(world);
    for (rank, operation) in operations.iter().enumerate() {
        graph.add(rank, &build(operation, world, rank, plan))?;
    }
    graph.pair()?;
    let order = graph.order(1)?;
    Ok(graph.report(&order))
}

/// As [`count`], from the schedule of rank 0 alone, for schedules that are the same on all ranks if
/// peers are counted from the own rank. Whether they are is proven on three other ranks.
pub(crate) fn count_symmetric(
    operation: &Operation,
    world: usize,
    plan: Plan,
) -> Result<Report, Fault> {
    let shape = |rank| graph::shape(&build(operation, world, rank, plan), world, rank);
    let shape_of_all = shape(0);
    for rank in [1 % world, world / 2, world - 1] {
        if shape(rank) != shape_of_all {
            return Err(Fault::Asymmetric { rank });
        }
    }
    graph::report_symmetric(&shape_of_all, world)
}

/// Proves that ranks tell each other of the call in both directions, once, and that in a call that
/// is not empty every rank has to do with another one.
fn check_told(operations: &[Operation], schedules: &[Schedule]) -> Result<(), Fault> {
    let world = schedules.len();
    for (rank, schedule) in schedules.iter().enumerate() {
        let told = &schedule.told;
        for &other in told {
            let once = told.iter().filter(|&&again| again == other).count() == 1;
            let answers = || schedules[other].told.contains(&rank);
            if other == rank || other >= world || !once || !answers() {
                return Err(Fault::Told { rank, other });
            }
        }
        let exchanges = |item: &Item| !matches!(item.action, Action::Copy { .. });
        let alone = told.is_empty() && !schedule.items.iter().any(exchanges);
        let may_be = world == 1
            || operations[rank].is_empty()
            || matches!(operations[rank], Operation::Exchange { .. });
        if alone && !may_be {
            return Err(Fault::Alone { rank });
        }
    }
    Ok(())
}

/// The rules for the spans of single items.
fn check_items(
    operation: &Operation,
    world: usize,
    rank: usize,
    schedule: &Schedule,
) -> Result<(), Fault> {
    let inside = |span: Span| {
        let size = match span.buffer {
            Buffer::Input => memory::input_len(operation, world, rank),
            Buffer::Output => memory::output_len(operation, world, rank),
            Buffer::Scratch => schedule.scratch,
        };
        span.start
            .checked_add(span.len)
            .is_some_and(|end| end <= size)
    };
    for (item, it) in schedule.items.iter().enumerate() {
        let require = |holds: bool, rule: &'static str| match holds {
            true => Ok(()),
            false => Err(Fault::Malformed { rank, item, rule }),
        };
        for (span, writes) in accesses(it.action) {
            require(inside(span), "a span lies in its buffer")?;
            require(
                !writes || span.buffer != Buffer::Input,
                "the input is not written",
            )?;
        }
        if let Action::Copy { from, to } = it.action {
            require(from.len == to.len, "a copy keeps the length")?;
            require(!overlap(from, to), "a copy does not overlap")?;
        }
    }
    Ok(())
}

/// The spans that an action accesses, and whether it writes them.
fn accesses(action: Action) -> impl Iterator<Item = (Span, bool)> {
    let (first, second) = match action {
        Action::Send { span, .. } => ((span, false), None),
        Action::Recv { span, .. } => ((span, true), None),
        Action::Copy { from, to } => ((from, false), Some((to, true))),
    };
    std::iter::once(first).chain(second)
}

fn overlap(a: Span, b: Span) -> bool {
    a.buffer == b.buffer && a.start < b.start + b.len && b.start < a.start + a.len
}
