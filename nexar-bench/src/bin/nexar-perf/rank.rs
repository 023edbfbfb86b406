//! One rank: joins, measures, and leaves.

use crate::{
    args::{Args, Subject},
    collective::{Collective, Compressed},
    load::Load,
    messages::Messages,
    report::FileError,
    rpc::Calls,
    sweep::sweep,
    values::Value,
};
use nexar_collectives::{Builder, Communicator, DataType, Error, bf16, f16};
use std::{
    env, io,
    time::{Duration, Instant},
};

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
    #[error("there is no memory for a buffer of {bytes} bytes: choose a smaller --max or --beside")]
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
    let begun = Instant::now();
    let comm = join(args).await?;
    let formed = begun.elapsed();
    check_world(args, &comm)?;
    let load = match args.beside {
        Some(bytes) => Some(Load::start(&comm, bytes).await?),
        None => None,
    };
    let wrong = match args.dtype {
        DataType::F32 => measure::<f32>(&comm, args, formed).await,
        DataType::F64 => measure::<f64>(&comm, args, formed).await,
        DataType::F16 => measure::<f16>(&comm, args, formed).await,
        DataType::Bf16 => measure::<bf16>(&comm, args, formed).await,
        DataType::I8 => measure::<i8>(&comm, args, formed).await,
        DataType::I16 => measure::<i16>(&comm, args, formed).await,
        DataType::I32 => measure::<i32>(&comm, args, formed).await,
        DataType::I64 => measure::<i64>(&comm, args, formed).await,
        DataType::U8 => measure::<u8>(&comm, args, formed).await,
        DataType::U16 => measure::<u16>(&comm, args, formed).await,
        DataType::U32 => measure::<u32>(&comm, args, formed).await,
        DataType::U64 => measure::<u64>(&comm, args, formed).await,
        DataType::Bool => measure::<bool>(&comm, args, formed).await,
        other => Err(RankError::Usage(format!(
            "--dtype: {other} cannot be measured yet"
        ))),
    }?;
    if let Some(load) = load {
        load.stop().await?;
    }
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
    args.check_world(world_size).map_err(RankError::Usage)
}

/// Measures what the command line says with elements of this type; gives the number of wrong ones.
async fn measure<E: Value>(
    comm: &Communicator,
    args: &Args,
    formed: Duration,
) -> Result<u64, RankError> {
    match args.subject {
        Subject::Collective(kind) => {
            sweep(args, formed, Collective::<E>::new(comm, args, kind)?).await
        }
        Subject::Compressed => sweep(args, formed, Compressed::new(comm, args)?).await,
        Subject::SendRecv => sweep(args, formed, Messages::<E>::new(comm, args)?).await,
        Subject::Rpc => sweep(args, formed, Calls::new(comm, args).await?).await,
    }
}
