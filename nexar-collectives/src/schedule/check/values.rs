//! Execution on symbolic values.

use super::Fault;
use super::graph::{Graph, Node};
use crate::schedule::{Action, Buffer, Operation, Schedule, Span, Store};
use std::collections::HashMap;

/// An expression: equal numbers are equal expressions, operand by operand.
type Expr = u32;

/// What memory holds that nobody has written.
const UNDEFINED: Expr = u32::MAX;

/// Where the result of each rank ended.
pub(super) type Outputs = Vec<Vec<Expr>>;

/// The expressions of all executions of one operation.
pub(super) struct Values {
    operation: Operation,
    world: usize,
    /// Elements that one rank contributes.
    contributed: usize,
    /// For each expression, the ranks that contributed to it and the element that it belongs to.
    facts: Vec<(u64, usize)>,
    combined: HashMap<(Expr, Expr), Expr>,
}

/// The memory of one rank.
struct Memory {
    output: Vec<Expr>,
    scratch: Vec<Expr>,
    /// For each element of the output, the span of its first combination (single-site reductions).
    site: Vec<Option<Span>>,
}

impl Values {
    pub(super) fn new(operation: Operation, world: usize) -> Values {
        let contributed = operation.input_len(world).max(operation.count());
        let facts = (0..world)
            .flat_map(|rank| (0..contributed).map(move |element| (1 << rank, element)))
            .collect();
        Values {
            operation,
            world,
            contributed,
            facts,
            combined: HashMap::new(),
        }
    }

    fn own(&self, rank: usize, element: usize) -> Expr {
        (rank * self.contributed + element) as Expr
    }

    fn is_own(&self, expr: Expr) -> bool {
        (expr as usize) < self.world * self.contributed
    }

    fn is_complete(&self, expr: Expr) -> bool {
        self.facts[expr as usize].0 == u64::MAX >> (64 - self.world)
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
        let len = self.operation.output_len(self.world);
        let in_place = self.operation.input_len(self.world) == 0;
        let initial = |element| {
            if in_place {
                self.own(rank, element)
            } else {
                UNDEFINED
            }
        };
        Memory {
            output: (0..len).map(initial).collect(),
            scratch: vec![UNDEFINED; schedule.scratch],
            site: vec![None; len],
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
                let site = match span.buffer {
                    Buffer::Output => memory.site[element].get_or_insert(span),
                    _ => return Err(Fault::SingleSite { rank, item }),
                };
                if *site != span || !self.is_own(*value) {
                    return Err(Fault::SingleSite { rank, item });
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
            *value = *self.combined.entry(operands).or_insert_with(|| {
                self.facts.push((held_ranks | incoming_ranks, held_element));
                self.facts.len() as Expr - 1
            });
            if last != self.is_complete(*value) {
                return Err(flag("last"));
            }
        }
        Ok(())
    }

    fn check_outputs(&self, outputs: &Outputs) -> Result<(), Fault> {
        for (rank, output) in outputs.iter().enumerate() {
            for (element, &value) in output.iter().enumerate() {
                // A reduction among one rank is that rank's contribution, which is complete.
                let complete = |of: usize| {
                    value != UNDEFINED
                        && self.is_complete(value)
                        && self.facts[value as usize].1 == of
                };
                let right = match self.operation {
                    Operation::Barrier => true,
                    Operation::Broadcast { root, .. } => value == self.own(root, element),
                    Operation::AllGather { count } => {
                        value == self.own(element / count, element % count)
                    }
                    Operation::AllReduce { .. } => complete(element),
                    Operation::ReduceScatter { count } => complete(rank * count + element),
                };
                if !right {
                    return Err(Fault::Result { rank, element });
                }
                let agreed = !matches!(self.operation, Operation::ReduceScatter { .. });
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

fn write(memory: &mut Memory, span: Span, values: &[Expr]) {
    let buffer = match span.buffer {
        Buffer::Scratch => &mut memory.scratch,
        _ => &mut memory.output,
    };
    buffer[span.start..span.start + span.len].copy_from_slice(values);
}
