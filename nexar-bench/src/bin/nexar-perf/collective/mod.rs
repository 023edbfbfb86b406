//! Collectives, measured in the manner of nccl-tests.

mod expected;
mod kind;
mod shape;
mod workload;

pub(crate) use kind::Kind;

use crate::{
    args::Args,
    check::Verdict,
    measure::{Repeats, Timing, measure},
    rank::RankError,
    report::{Column, format_time, microseconds},
    sweep::{Benchmark, Context},
    values::Value,
};
use nexar_collectives::{Communicator, Result};
use serde::Serialize;
use workload::{Task, Workload};

/// A collective at several sizes.
pub(crate) struct Collective<'a, E> {
    comm: &'a Communicator,
    args: &'a Args,
    task: Task,
    work: Workload<'a, E>,
    bus_bandwidths: Vec<f64>,
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
            bus_bandwidths: Vec::new(),
        })
    }
}

/// A JSON line.
#[derive(Serialize)]
struct Record<'a> {
    collective: &'a str,
    ranks: usize,
    transport: &'a str,
    dtype: &'a str,
    redop: &'a str,
    bytes: usize,
    count: usize,
    time_us: f64,
    p50_us: f64,
    p99_us: f64,
    algbw_gbps: f64,
    busbw_gbps: f64,
    wrong: Option<u64>,
}

impl<E: Value> Benchmark for Collective<'_, E> {
    type Figures = Timing;

    const COLUMNS: &'static [Column] = &[
        Column::new(11, "size", "(B)"),
        Column::new(13, "count", "(elements)"),
        Column::new(6, "type", ""),
        Column::new(11, "redop", ""),
        Column::new(5, "root", ""),
        Column::new(10, "time", "(us)"),
        Column::new(7, "algbw", "(GB/s)"),
        Column::new(7, "busbw", "(GB/s)"),
    ];

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
        let algorithm = shape.algorithm_bandwidth(timing.time);
        let bus = algorithm * shape.bus_factor();
        self.bus_bandwidths.push(bus);
        let record = Record {
            collective: description.name,
            ranks: context.ranks,
            transport: context.transport,
            dtype: if kind.has_data() {
                E::DATA_TYPE.name()
            } else {
                "none"
            },
            redop: if description.reduces {
                self.task.op.name()
            } else {
                "none"
            },
            bytes: shape.bytes(),
            count: shape.count(),
            time_us: microseconds(timing.time),
            p50_us: microseconds(timing.p50),
            p99_us: microseconds(timing.p99),
            algbw_gbps: algorithm,
            busbw_gbps: bus,
            wrong: context.wrong,
        };
        let root = if description.rooted {
            self.task.root.to_string()
        } else {
            "-1".into()
        };
        let cells = vec![
            record.bytes.to_string(),
            record.count.to_string(),
            record.dtype.into(),
            record.redop.into(),
            root,
            format_time(timing.time),
            format!("{algorithm:.3}"),
            format!("{bus:.3}"),
        ];
        (cells, record)
    }

    fn summary(&self) -> Option<String> {
        let sum: f64 = self.bus_bandwidths.iter().sum();
        let average = sum / self.bus_bandwidths.len() as f64;
        let said = self.task.kind.has_data() && !self.bus_bandwidths.is_empty();
        said.then(|| format!("Average bus bandwidth: {average:.3} GB/s"))
    }
}
