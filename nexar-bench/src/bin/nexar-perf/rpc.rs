//! Remote calls from rank 0 to rank 1: how long one takes, and how many go at a time.

use crate::{
    args::Args,
    check::{Pattern, Verdict},
    measure::{Operation, Repeats, Timing, measure, measure_loops},
    rank::RankError,
    report::{Column, format_rate, format_time, microseconds, per_second},
    sweep::{Benchmark, Context, allocate},
    values::{Place, Value},
};
use bytes::Bytes;
use nexar_collectives::{AnyTransport, Communicator, Result, rpc::Caller};
use serde::Serialize;
use std::{convert::Infallible, future::ready, ops::Range};
use tokio::task::JoinSet;

const METHOD: &str = "echo";

/// Callers at the same time, beside the one that is measured on its own.
const CROWDS: [usize; 2] = [16, 64];

/// A crowd makes as many calls as make up so many bytes, within these bounds, and starts anew.
const CROWD_BYTES: usize = 16 << 20;
const CROWD_CALLS: std::ops::RangeInclusive<usize> = 64..=1024;

/// How far apart the data of requests can begin, so that the reply of another call differs.
const SHIFTS: usize = 64;

/// Calls with requests and replies of one size. Rank 1 sends back what it gets; ranks but 0 and 1 do nothing.
pub(crate) struct Calls<'a> {
    comm: &'a Communicator,
    args: &'a Args,
    caller: Caller<AnyTransport>,
    bytes: usize,
    /// What requests are cut from.
    data: Bytes,
    next: usize,
    /// Wrong replies that are not yet reported.
    wrong: u64,
}

impl<'a> Calls<'a> {
    pub(crate) async fn new(
        comm: &'a Communicator,
        args: &'a Args,
    ) -> std::result::Result<Self, RankError> {
        let rpc = comm.rpc();
        rpc.register_raw(METHOD, |_, request| ready(Ok::<_, Infallible>(request)))?;
        // No call comes before its handler is there.
        comm.barrier().await?;
        let largest = args.sizes().last().unwrap_or_default();
        let mut data = allocate(largest.saturating_add(SHIFTS))?;
        let value = |index| u8::input(None, 1, Place { rank: 0, index });
        Pattern::new(data.len(), value).fill(0, &mut data);
        Ok(Calls {
            comm,
            args,
            caller: rpc.within(comm.limits().operation),
            bytes: 0,
            data: data.into(),
            next: 0,
            wrong: 0,
        })
    }

    fn crowd_calls(&self) -> usize {
        let calls = CROWD_BYTES / self.bytes.max(1);
        calls.clamp(*CROWD_CALLS.start(), *CROWD_CALLS.end())
    }
}

/// Calls one after the other; gives the number of wrong replies.
async fn call(
    caller: &Caller<AnyTransport>,
    data: &Bytes,
    bytes: usize,
    numbers: Range<usize>,
) -> Result<u64> {
    let mut wrong = 0;
    for number in numbers {
        let start = number % SHIFTS;
        let request = data.slice(start..start + bytes);
        let reply = caller.call_raw(1, METHOD, request.clone()).await?;
        wrong += u64::from(reply != request);
    }
    Ok(wrong)
}

/// One call.
struct One<'a, 'b>(&'b mut Calls<'a>);

impl Operation for One<'_, '_> {
    fn comm(&self) -> &Communicator {
        self.0.comm
    }

    async fn run(&mut self) -> Result<()> {
        let calls = &mut *self.0;
        if calls.comm.rank() == 0 {
            let number = calls.next;
            calls.next = number.wrapping_add(1);
            let (caller, data) = (&calls.caller, &calls.data);
            calls.wrong += call(caller, data, calls.bytes, number..number + 1).await?;
        }
        Ok(())
    }

    fn is_timed(&self) -> bool {
        self.0.comm.rank() == 0
    }
}

/// Many calls, by so many callers at the same time, each a task.
struct Crowd<'a, 'b>(&'b mut Calls<'a>, usize);

impl Operation for Crowd<'_, '_> {
    fn comm(&self) -> &Communicator {
        self.0.comm
    }

    async fn run(&mut self) -> Result<()> {
        let Crowd(calls, callers) = self;
        if calls.comm.rank() != 0 {
            return Ok(());
        }
        let each = calls.crowd_calls() / *callers;
        let mut tasks = JoinSet::new();
        for first in 0..*callers {
            let (caller, data, bytes) = (calls.caller.clone(), calls.data.clone(), calls.bytes);
            let numbers = first..first + each;
            tasks.spawn(async move { call(&caller, &data, bytes, numbers).await });
        }
        for wrong in tasks.join_all().await {
            calls.wrong += wrong?;
        }
        Ok(())
    }

    fn is_timed(&self) -> bool {
        self.0.comm.rank() == 0
    }
}

/// What is measured at one size.
pub(crate) struct Figures {
    /// Round trips of one caller.
    latency: Timing,
    /// Calls per second of each crowd.
    rates: [f64; CROWDS.len()],
}

/// A JSON line.
#[derive(Serialize)]
struct Record<'a> {
    operation: &'a str,
    ranks: usize,
    transport: &'a str,
    bytes: usize,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    calls_per_s_1: f64,
    calls_per_s_16: f64,
    calls_per_s_64: f64,
    wrong: Option<u64>,
}

impl Benchmark for Calls<'_> {
    type Figures = Figures;

    const COLUMNS: &'static [Column] = &[
        Column::new(11, "size", "(B)"),
        Column::new(10, "mean", "(us)"),
        Column::new(10, "p50", "(us)"),
        Column::new(10, "p99", "(us)"),
        Column::new(10, "1 caller", "(calls/s)"),
        Column::new(10, "16 callers", "(calls/s)"),
        Column::new(10, "64 callers", "(calls/s)"),
    ];

    fn comm(&self) -> &Communicator {
        self.comm
    }

    fn headline(&self) -> String {
        self.args.describe_sizes()
    }

    fn resize(&mut self, bytes: usize) {
        self.bytes = bytes;
    }

    /// Replies are compared with their requests in every call: this reports those that were wrong, and makes
    /// calls of its own, so that there are some before the measurement.
    async fn check(&mut self, verdict: &mut Verdict) -> Result<()> {
        Crowd(self, CROWDS[0]).run().await?;
        verdict.wrong += std::mem::take(&mut self.wrong);
        Ok(())
    }

    async fn measure(&mut self, repeats: Repeats) -> Result<Figures> {
        let latency = measure(&mut One(self), repeats).await?;
        let mut rates = [0.0; CROWDS.len()];
        for (callers, rate) in CROWDS.into_iter().zip(&mut rates) {
            let time = measure_loops(&mut Crowd(self, callers), repeats).await?;
            let calls = self.crowd_calls() / callers * callers;
            *rate = calls as f64 * per_second(time);
        }
        Ok(Figures { latency, rates })
    }

    fn row(&mut self, figures: Figures, context: Context<'_>) -> (Vec<String>, impl Serialize) {
        let Figures { latency, rates } = figures;
        let record = Record {
            operation: "rpc",
            ranks: context.ranks,
            transport: context.transport,
            bytes: self.bytes,
            mean_us: microseconds(latency.time),
            p50_us: microseconds(latency.p50),
            p99_us: microseconds(latency.p99),
            calls_per_s_1: per_second(latency.time),
            calls_per_s_16: rates[0],
            calls_per_s_64: rates[1],
            wrong: context.wrong,
        };
        let cells = vec![
            record.bytes.to_string(),
            format_time(latency.time),
            format_time(latency.p50),
            format_time(latency.p99),
            format_rate(record.calls_per_s_1),
            format_rate(record.calls_per_s_16),
            format_rate(record.calls_per_s_64),
        ];
        (cells, record)
    }
}
