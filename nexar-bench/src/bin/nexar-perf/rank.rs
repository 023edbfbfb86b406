//! One rank: joins, measures, and leaves.

use crate::{
    args::Args,
    check::{MAX_MISTAKES, Verdict},
    measure::{Repeats, measure},
    report::{FileError, Report, Row},
    values::Value,
    workload::{Task, Workload},
};
use nexar_collectives::{Builder, Communicator, DataType, Error, bf16, f16};
use std::{env, io};

/// How a run ended that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Right,
    Wrong,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RankError {
    #[error(transparent)]
    Group(#[from] Error),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot write the results: {0}")]
    Write(#[from] io::Error),
    #[error("{0}")]
    Usage(String),
    #[error("there is no memory for a buffer of {bytes} bytes: choose a smaller --max")]
    Memory { bytes: usize },
}

impl RankError {
    /// Whether the command line or the environment has to be changed.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            RankError::Usage(_) | RankError::File(_) | RankError::Group(Error::Config(_))
        )
    }
}

/// Joins the group that the environment describes and measures with it.
pub(crate) async fn run(args: &Args) -> Result<Outcome, RankError> {
    let comm = join(args).await?;
    check_world(args, &comm)?;
    let report = match comm.rank() {
        0 => Some(Report::new(args, comm.world_size())?),
        _ => None,
    };
    let wrong = match args.dtype {
        DataType::F32 => sweep::<f32>(&comm, args, report).await,
        DataType::F64 => sweep::<f64>(&comm, args, report).await,
        DataType::F16 => sweep::<f16>(&comm, args, report).await,
        DataType::Bf16 => sweep::<bf16>(&comm, args, report).await,
        DataType::I8 => sweep::<i8>(&comm, args, report).await,
        DataType::I16 => sweep::<i16>(&comm, args, report).await,
        DataType::I32 => sweep::<i32>(&comm, args, report).await,
        DataType::I64 => sweep::<i64>(&comm, args, report).await,
        DataType::U8 => sweep::<u8>(&comm, args, report).await,
        DataType::U16 => sweep::<u16>(&comm, args, report).await,
        DataType::U32 => sweep::<u32>(&comm, args, report).await,
        DataType::U64 => sweep::<u64>(&comm, args, report).await,
        DataType::Bool => sweep::<bool>(&comm, args, report).await,
        other => Err(RankError::Usage(format!(
            "--dtype: {other} cannot be measured yet"
        ))),
    }?;
    comm.shutdown().await?;
    Ok(if wrong == 0 {
        Outcome::Right
    } else {
        Outcome::Wrong
    })
}

async fn join(args: &Args) -> Result<Communicator, RankError> {
    let mut builder = Builder::from_env()?;
    if env::var_os("NEXAR_TRANSPORT").is_none() && !args.transport.is_empty() {
        let rank: usize = env::var("NEXAR_RANK")
            .ok()
            .and_then(|r| r.parse().ok())
            .unwrap_or(0);
        builder = builder.transport(args.transport[rank % args.transport.len()]);
    }
    Ok(builder.join().await?)
}

fn check_world(args: &Args, comm: &Communicator) -> Result<(), RankError> {
    let world_size = comm.world_size();
    if let Some(ranks) = args.ranks.filter(|ranks| usize::from(*ranks) != world_size) {
        let message = format!("-n {ranks}, but NEXAR_WORLD_SIZE is {world_size}: leave -n out");
        return Err(RankError::Usage(message));
    }
    args.check_root(world_size).map_err(RankError::Usage)
}

/// Measures all sizes; gives the number of wrong elements on all ranks.
async fn sweep<E: Value>(
    comm: &Communicator,
    args: &Args,
    mut report: Option<Report>,
) -> Result<u64, RankError> {
    let transport = transports(comm).await?;
    if let Some(report) = &mut report {
        report.start(transport)?;
    }
    let task = Task {
        kind: args.collective,
        op: args.op,
        root: args.root,
    };
    let repeats = Repeats {
        iters: args.iters,
        warmup: args.warmup,
    };
    let largest = args.sizes().last().unwrap_or_default();
    let mut work = Workload::<E>::new(comm, task, largest)?;
    let mut all_wrong = 0;
    for bytes in args.sizes() {
        work.resize(bytes);
        let mut verdict = Verdict::default();
        check(&mut work, args.check, &mut verdict).await?;
        let timing = measure(&mut work, repeats).await?;
        check(&mut work, args.check, &mut verdict).await?;
        tell(comm.rank(), bytes, &verdict);
        let mut wrong = vec![0; comm.world_size()];
        comm.all_gather(&[verdict.wrong], &mut wrong).await?;
        let wrong: u64 = wrong.into_iter().sum();
        all_wrong += wrong;
        if let Some(report) = &mut report {
            let wrong = (args.check > 0).then_some(wrong);
            report.row(Row {
                shape: work.shape(),
                timing,
                wrong,
            })?;
        }
    }
    if let Some(report) = report {
        report.finish()?;
    }
    Ok(all_wrong)
}

async fn check<E: Value>(
    work: &mut Workload<'_, E>,
    times: u32,
    verdict: &mut Verdict,
) -> Result<(), Error> {
    for _ in 0..times {
        work.check(verdict).await?;
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

/// Longest name of a transport in the table.
const NAME: usize = 16;

/// The transports of all ranks, each once: `quinn`, or `quinn,s2n-quic` in a mixed group.
async fn transports(comm: &Communicator) -> Result<String, Error> {
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
