//! What all measurements have in common: sizes, checks, the report.

use crate::{
    args::Args,
    check::{MAX_MISTAKES, Verdict},
    measure::Repeats,
    rank::RankError,
    report::{Column, Report},
    size::readable,
    values::Value,
};
use nexar_collectives::{Communicator, Error, Result};
use serde::Serialize;
use std::time::Duration;

/// Something that is measured at several sizes, together by all ranks.
pub(crate) trait Benchmark {
    /// What is measured at one size.
    type Figures;

    /// All columns of the table but that of wrong elements.
    const COLUMNS: &'static [Column];

    fn comm(&self) -> &Communicator;

    /// What the head of the table says after the transport.
    fn headline(&self) -> String;

    /// Goes on with another size.
    fn resize(&mut self, bytes: usize);

    /// Runs on known values and compares the results.
    async fn check(&mut self, verdict: &mut Verdict) -> Result<()>;

    async fn measure(&mut self, repeats: Repeats) -> Result<Self::Figures>;

    /// The cells of the columns and the JSON record.
    fn row(
        &mut self,
        figures: Self::Figures,
        context: Context<'_>,
    ) -> (Vec<String>, impl Serialize);

    /// The last line of the table.
    fn summary(&self) -> Option<String> {
        None
    }
}

/// What stands in every JSON record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) ranks: usize,
    pub(crate) transport: &'a str,
    /// Wrong elements on all ranks; `None` if nothing was checked.
    pub(crate) wrong: Option<u64>,
    /// Bytes of the all-reduces beside the measurement.
    pub(crate) beside: Option<usize>,
}

/// Measures all sizes in a group that took `formed` to form; gives the number of wrong elements on all ranks.
pub(crate) async fn sweep<B: Benchmark>(
    args: &Args,
    formed: Duration,
    mut bench: B,
) -> std::result::Result<u64, RankError> {
    let (rank, ranks) = (bench.comm().rank(), bench.comm().world_size());
    let transport = transports(bench.comm()).await?;
    let mut report = None;
    if rank == 0 {
        let mut table = Report::new(args.json.as_deref(), B::COLUMNS)?;
        let (name, headline) = (args.subject.name(), bench.headline());
        let beside = args.beside.map(readable);
        let beside = beside.map_or(String::new(), |size| {
            format!(", beside all-reduces of {size}")
        });
        table.start(&format!(
            "{name}: {ranks} ranks, transport {transport}{headline}{beside}; formed in {:.1} ms",
            formed.as_secs_f64() * 1e3
        ))?;
        report = Some(table);
    }
    let repeats = Repeats {
        iters: args.iters,
        warmup: args.warmup,
    };
    let mut all_wrong = 0;
    for bytes in args.sizes() {
        bench.resize(bytes);
        let mut verdict = Verdict::default();
        check(&mut bench, args.check, &mut verdict).await?;
        let figures = bench.measure(repeats).await?;
        check(&mut bench, args.check, &mut verdict).await?;
        tell(rank, bytes, &verdict);
        let mut wrong = vec![0; ranks];
        bench
            .comm()
            .all_gather(&[verdict.wrong], &mut wrong)
            .await?;
        let wrong: u64 = wrong.into_iter().sum();
        all_wrong += wrong;
        if let Some(report) = &mut report {
            let wrong = (args.check > 0).then_some(wrong);
            let context = Context {
                ranks,
                transport: &transport,
                wrong,
                beside: args.beside,
            };
            let (cells, record) = bench.row(figures, context);
            report.row(&cells, wrong, &record)?;
        }
    }
    if let Some(report) = report {
        report.finish(bench.summary())?;
    }
    Ok(all_wrong)
}

async fn check(bench: &mut impl Benchmark, times: u32, verdict: &mut Verdict) -> Result<()> {
    for _ in 0..times {
        bench.check(verdict).await?;
    }
    Ok(())
}

/// Names the first wrong elements of this rank.
fn tell(rank: usize, bytes: usize, verdict: &Verdict) {
    for mistake in &verdict.mistakes {
        let (index, got, expected) = (mistake.index, &mistake.got, &mistake.expected);
        eprintln!(
            "nexar-perf: rank {rank}, {bytes} B, element {index}: got {got}, expected {expected}"
        );
    }
    if verdict.wrong > MAX_MISTAKES as u64 {
        eprintln!(
            "nexar-perf: rank {rank}, {bytes} B: {} wrong elements",
            verdict.wrong
        );
    }
}

/// A buffer of zeros, or an error instead of an abort if there is not enough memory.
pub(crate) fn allocate<E: Value>(elements: usize) -> std::result::Result<Vec<E>, RankError> {
    let mut buffer = Vec::new();
    buffer
        .try_reserve_exact(elements)
        .map_err(|_| RankError::Memory {
            bytes: elements.saturating_mul(size_of::<E>()),
        })?;
    buffer.resize(elements, E::default());
    Ok(buffer)
}

/// Longest name of a transport in the table.
const NAME: usize = 16;

/// The transports of all ranks, each once: `quinn`, or `quinn,s2n-quic` in a mixed group.
async fn transports(comm: &Communicator) -> std::result::Result<String, Error> {
    let mut own = [0; NAME];
    let name = comm.transport_name().as_bytes();
    let length = name.len().min(NAME);
    own[..length].copy_from_slice(&name[..length]);
    let mut all = vec![0; NAME * comm.world_size()];
    comm.all_gather(&own, &mut all).await?;
    let mut names: Vec<String> = Vec::new();
    for name in all.chunks(NAME) {
        let name = String::from_utf8_lossy(name)
            .trim_end_matches('\0')
            .to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names.join(","))
}
