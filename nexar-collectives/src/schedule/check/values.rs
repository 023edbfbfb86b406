//! Execution on symbolic values.

use super::Fault;
use super::graph::{Graph, Node};
use super::memory::{self, Expected};
use crate::schedule::{Action, Buffer, Operation, Schedule, Span, Store};
use std::collections::HashMap;

/// An expression: equal numbers are equal expressions, operand by operand.
type Expr = u32;

/// What memory holds that nobody has written.
const UNDEFINED: Expr = u32::MAX;

/// Where the result of each rank ended.
pub(super) type Outputs = Vec<Vec<Expr>>;

/// The expressions of all executions of one operation.
pub(super) struct Values<'a> {
    /// The operation of each rank.
    operations: &'a [Operation],
    /// Contributions are to be combined in the order of the ranks.
    ordered: bool,
    /// The first expression that each rank contributes, and the number of all.
    starts: Vec<usize>,
    /// For each expression, the ranks that contributed to it and the element that it belongs to.
    facts: Vec<(u64, usize)>,
    combined: HashMap<(Expr, Expr), Expr>,
}

/// The memory of one rank.
struct Memory {
    output: Vec<Expr>,
    scratch: Vec<Expr>,
    /// For each element of the output and of scratch, the span of the combinations that it is in
    /// (single-site reductions).
    sites: [Vec<Option<Span>>; 2],
}

impl Values<'_> {
    pub(super) fn new(operations: &[Operation], ordered: bool) -> Values<'_> {
        let world = operations.len();
        let mut starts = vec![0];
        let mut facts = Vec::new();
        for (rank, operation) in operations.iter().enumerate() {
            let placed = memory::in_place(operation, world, rank).len();
            let contributed = memory::input_len(operation, world, rank).max(placed);
            facts.extend((0..contributed).map(|element| (1 << rank, element)));
            starts.push(facts.len());
        }
        let scan = matches!(operations[0], Operation::Scan { .. });
        Values {
            operations,
            ordered: ordered || scan,
            starts,
            facts,
            combined: HashMap::new(),
        }
    }

    fn world(&self) -> usize {
        self.operations.len()
    }

    fn own(&self, rank: usize, element: usize) -> Expr {
        (self.starts[rank] + element) as Expr
    }

    fn is_own(&self, expr: Expr) -> bool {
        (expr as usize) < self.starts[self.world()]
    }

    fn is_complete(&self, expr: Expr) -> bool {
        self.facts[expr as usize].0 == below(self.world())
    }

    /// Executes the schedules in this order, and proves the result.
    pub(super) fn run(
        &mut self,
        graph: &Graph,
        order: &[Node],
        schedules: &[Schedule],
    ) -> Result<Outputs, Fault> {
        let mut memories: Vec<Memory> = schedules
            .iter()
            .enumerate()
            .map(|(rank, s)| self.memory(rank, s))
            .collect();
        for &node in order {
            let (rank, item) = (graph.rank(node), graph.item(node));
            let schedule = &schedules[rank];
            match schedule.items[item].action {
                Action::Send { span, .. } => {
                    let values = self.read(&memories, rank, item, span)?;
                    let whole = |&v: &Expr| self.is_own(v) || self.is_complete(v);
                    if schedule.single_site && !values.iter().all(whole) {
                        return Err(Fault::SingleSite { rank, item });
                    }
                }
                Action::Copy { from, to } => {
                    let values = self.read(&memories, rank, item, from)?;
                    write(&mut memories[rank], to, &values);
                }
                Action::Recv { from, span, store } => {
                    let Some(send) = graph.send_of(node) else {
                        continue;
                    };
                    let sent = graph.item(send);
                    let Action::Send { span: source, .. } = schedules[from].items[sent].action
                    else {
                        continue;
                    };
                    let mut values = self.read(&memories, from, sent, source)?;
                    if let Store::Reduce { .. } = store {
                        let single_site = schedule.single_site;
                        let memory = &mut memories[rank];
                        self.reduce((rank, item), memory, span, store, &mut values, single_site)?;
                    }
                    write(&mut memories[rank], span, &values);
                }
            }
        }
        let outputs: Outputs = memories.into_iter().map(|memory| memory.output).collect();
        self.check_outputs(&outputs)?;
        Ok(outputs)
    }

    fn memory(&self, rank: usize, schedule: &Schedule) -> Memory {
        let (operation, world) = (&self.operations[rank], self.world());
        let len = memory::output_len(operation, world, rank);
        let placed = memory::in_place(operation, world, rank);
        let initial = |element| match placed.contains(&element) {
            true => self.own(rank, element - placed.start),
            false => UNDEFINED,
        };
        Memory {
            output: (0..len).map(initial).collect(),
            scratch: vec![UNDEFINED; schedule.scratch],
            sites: [vec![None; len], vec![None; schedule.scratch]],
        }
    }

    fn read(
        &self,
        memories: &[Memory],
        rank: usize,
        item: usize,
        span: Span,
    ) -> Result<Vec<Expr>, Fault> {
        let range = span.start..span.start + span.len;
        let values = match span.buffer {
            Buffer::Input => range.map(|element| self.own(rank, element)).collect(),
            Buffer::Output => memories[rank].output[range].to_vec(),
            Buffer::Scratch => memories[rank].scratch[range].to_vec(),
        };
        if values.contains(&UNDEFINED) {
            return Err(Fault::Undefined { rank, item });
        }
        Ok(values)
    }

    /// Replaces incoming values by their combinations with what the span holds.
    fn reduce(
        &mut self,
        (rank, item): (usize, usize),
        memory: &mut Memory,
        span: Span,
        store: Store,
        incoming: &mut [Expr],
        single_site: bool,
    ) -> Result<(), Fault> {
        let Store::Reduce {
            incoming_first,
            first,
            last,
        } = store
        else {
            return Ok(());
        };
        let flag = |flag| Fault::Flag { rank, item, flag };
        for (value, element) in incoming.iter_mut().zip(span.start..) {
            let held = match span.buffer {
                Buffer::Scratch => memory.scratch[element],
                _ => memory.output[element],
            };
            if held == UNDEFINED {
                return Err(Fault::Undefined { rank, item });
            }
            if single_site {
                let in_scratch = usize::from(span.buffer == Buffer::Scratch);
                let site = &mut memory.sites[in_scratch][element];
                if *site.get_or_insert(span) != span || !self.is_own(*value) {
                    return Err(Fault::SingleSite { rank, item });
                }
                if last {
                    *site = None;
                }
            }
            let (held_ranks, held_element) = self.facts[held as usize];
            let (incoming_ranks, incoming_element) = self.facts[*value as usize];
            if held_ranks & incoming_ranks != 0 || held_element != incoming_element {
                return Err(Fault::Combination { rank, item });
            }
            if first != (held == self.own(rank, held_element)) {
                return Err(flag("first"));
            }
            let operands = if incoming_first {
                (*value, held)
            } else {
                (held, *value)
            };
            let ranks = |expr: Expr| self.facts[expr as usize].0;
            if self.ordered && !follow(ranks(operands.0), ranks(operands.1)) {
                return Err(Fault::Order { rank, item });
            }
            *value = *self.combined.entry(operands).or_insert_with(|| {
                self.facts.push((held_ranks | incoming_ranks, held_element));
                self.facts.len() as Expr - 1
            });
            // No rank of a scan but the last gets all contributions, so none has to know that it did.
            let scan = matches!(self.operations[rank], Operation::Scan { .. });
            if last != (self.is_complete(*value) && !scan) {
                return Err(flag("last"));
            }
        }
        Ok(())
    }

    fn check_outputs(&self, outputs: &Outputs) -> Result<(), Fault> {
        for (rank, output) in outputs.iter().enumerate() {
            for (element, &value) in output.iter().enumerate() {
                let right = match memory::expected(self.operations, rank, element) {
                    Expected::Anything => true,
                    Expected::Element { rank, element } => value == self.own(rank, element),
                    // A reduction among one rank is that rank's contribution.
                    Expected::Combined { ranks, element } => {
                        value != UNDEFINED && self.facts[value as usize] == (below(ranks), element)
                    }
                };
                if !right {
                    return Err(Fault::Result { rank, element });
                }
                let agreed = matches!(self.operations[rank], Operation::AllReduce { .. });
                if agreed && value != outputs[0][element] {
                    return Err(Fault::Disagreement { rank, element });
                }
            }
        }
        Ok(())
    }

    /// Proves that two executions had the same result.
    pub(super) fn compare(&self, one: &Outputs, other: &Outputs) -> Result<(), Fault> {
        for (rank, (one, other)) in one.iter().zip(other).enumerate() {
            if let Some(element) = one.iter().zip(other).position(|(one, other)| one != other) {
                return Err(Fault::Disagreement { rank, element });
            }
        }
        Ok(())
    }
}

/// All ranks below this one.
fn below(rank: usize) -> u64 {
    match rank {
        0 => 0,
        _ => u64::MAX >> (64 - rank),
    }
}

/// Whether the lowest of the upper ranks is next to the highest of the lower ones.
fn follow(lower: u64, upper: u64) -> bool {
    64 - lower.leading_zeros() == upper.trailing_zeros()
}

fn write(memory: &mut Memory, span: Span, values: &[Expr]) {
    let buffer = match span.buffer {
        Buffer::Scratch => &mut memory.scratch,
        _ => &mut memory.output,
    };
    buffer[span.start..span.start + span.len].copy_from_slice(values);
}
