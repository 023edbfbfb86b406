//! Collectives, measured in the manner of nccl-tests.

mod compressed;
mod expected;
mod kind;
mod row;
mod shape;
mod workload;

pub(crate) use compressed::{Compressed, Method};
pub(crate) use kind::Kind;

use crate::{
    args::Args,
    check::Verdict,
    measure::{Repeats, Timing, measure},
    rank::RankError,
    report::Column,
    sweep::{Benchmark, Context},
    values::Value,
};
use nexar_collectives::{Communicator, Result};
use row::{Average, Row};
use serde::Serialize;
use workload::{Task, Workload};

/// A collective at several sizes.
pub(crate) struct Collective<'a, E> {
    comm: &'a Communicator,
    args: &'a Args,
    task: Task,
    work: Workload<'a, E>,
    average: Average,
}

impl<'a, E: Value> Collective<'a, E> {
    /// A collective with buffers for the largest size.
    pub(crate) fn new(
        comm: &'a Communicator,
        args: &'a Args,
        kind: Kind,
    ) -> std::result::Result<Self, RankError> {
        let task = Task {
            kind,
            op: args.op,
            root: args.root,
            tensors: args.tensors as usize,
        };
        let largest = args.sizes().last().unwrap_or_default();
        Ok(Collective {
            comm,
            args,
            task,
            work: Workload::new(comm, task, largest)?,
            average: Average::default(),
        })
    }
}

impl<E: Value> Benchmark for Collective<'_, E> {
    type Figures = Timing;

    const COLUMNS: &'static [Column] = row::COLUMNS;

    fn comm(&self) -> &Communicator {
        self.comm
    }

    fn headline(&self) -> String {
        if self.task.kind.has_data() {
            self.args.describe_sizes()
        } else {
            String::new()
        }
    }

    fn resize(&mut self, bytes: usize) {
        self.work.resize(bytes);
    }

    async fn check(&mut self, verdict: &mut Verdict) -> Result<()> {
        self.work.check(verdict).await
    }

    async fn measure(&mut self, repeats: Repeats) -> Result<Timing> {
        self.work.clear();
        measure(&mut self.work, repeats).await
    }

    fn row(&mut self, timing: Timing, context: Context<'_>) -> (Vec<String>, impl Serialize) {
        let (kind, shape) = (self.task.kind, self.work.shape());
        let description = kind.describe();
        let mut row = Row {
            name: description.name,
            dtype: "none",
            redop: "none",
            root: description.rooted.then_some(self.task.root),
            compressor: None,
            bytes: shape.bytes(),
            count: shape.count(),
            timing,
            bus_factor: shape.bus_factor(),
        };
        if kind.has_data() {
            row.dtype = E::DATA_TYPE.name();
            self.average.add(&row);
        }
        if description.reduces {
            row.redop = self.task.op.name();
        }
        row.write(context)
    }

    fn summary(&self) -> Option<String> {
        self.average.summary()
    }
}
