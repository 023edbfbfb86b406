//! Small operations, for a tool that counts the processor's instructions. `bash .ci/instructions` runs it.
//!
//! ```text
//! cargo run --release -p nexar-bench --example instructions -- [operation] [rounds]
//! ```
//!
//! All ranks run on one thread, over the in-memory network: nothing that happens depends on the clock or on another
//! core, so that a count says what the code does. The tool is told to count in the function `measured` only.
//! Without arguments, prints the names of the operations.

use nexar_collectives::{
    Communicator, CpuAdapter, ReduceOp, Result,
    membership::{JoinRequest, SeedRoute},
    transport::{
        PeerId, Transport,
        memory::{MemoryNetwork, MemoryTransport},
    },
};
use std::{convert::Infallible, env, error::Error, hint::black_box, sync::Arc};
use tokio::{runtime::Runtime, task::JoinSet};

type Comm = Communicator<MemoryTransport>;

/// What is measured, and among how many ranks.
const OPERATIONS: [(&str, Operation, usize); 6] = [
    ("all_reduce/2", Operation::AllReduce, 2),
    ("all_reduce/4", Operation::AllReduce, 4),
    ("barrier/2", Operation::Barrier, 2),
    ("barrier/4", Operation::Barrier, 4),
    ("message/2", Operation::Message, 2),
    ("call/2", Operation::Call, 2),
];

#[derive(Clone, Copy)]
enum Operation {
    /// Of 8 bytes.
    AllReduce,
    Barrier,
    /// 8 bytes from rank 0 to rank 1, and back.
    Message,
    /// 8 bytes from rank 0 to rank 1, and as many as answer.
    Call,
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [name, rounds] = &args[..] else {
        OPERATIONS.iter().for_each(|(name, ..)| println!("{name}"));
        return Ok(());
    };
    let rounds = rounds.parse()?;
    let found = OPERATIONS.iter().find(|(known, ..)| known == name);
    let (_, operation, world) = found.ok_or_else(|| format!("there is no operation {name:?}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let ranks = runtime.block_on(form(*world))?;
    work(&runtime, &ranks, *operation, rounds)?;
    Ok(measured(&runtime, &ranks, *operation, rounds)?)
}

/// What is counted: after as many rounds to warm up.
#[inline(never)]
fn measured(
    runtime: &Runtime,
    ranks: &[Arc<Comm>],
    operation: Operation,
    rounds: u64,
) -> Result<()> {
    black_box(work(runtime, ranks, operation, rounds))
}

#[inline(never)]
fn work(runtime: &Runtime, ranks: &[Arc<Comm>], operation: Operation, rounds: u64) -> Result<()> {
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for comm in ranks {
            tasks.spawn(rank(Arc::clone(comm), operation, rounds));
        }
        tasks.join_all().await.into_iter().collect()
    })
}

async fn rank(comm: Arc<Comm>, operation: Operation, rounds: u64) -> Result<()> {
    let (own, other) = (comm.rank(), 1_usize.saturating_sub(comm.rank()));
    let mut data = [own as u64 + 1];
    for _ in 0..rounds {
        match operation {
            Operation::AllReduce => comm.all_reduce(&mut data, ReduceOp::Max).await?,
            Operation::Barrier => comm.barrier().await?,
            Operation::Message if own == 0 => {
                comm.send(&data, other, 7).await?;
                comm.recv(&mut data, other, 7).await?;
            }
            Operation::Message => {
                comm.recv(&mut data, other, 7).await?;
                comm.send(&data, other, 7).await?;
            }
            Operation::Call if own == 0 => {
                let request = data[0].to_le_bytes().to_vec().into();
                black_box(comm.rpc().call_raw(other, "echo", request).await?);
            }
            // Answers are given while it waits here.
            Operation::Call => break,
        }
    }
    Ok(())
}

/// Forms a group in which every rank answers calls.
async fn form(world: usize) -> std::result::Result<Vec<Arc<Comm>>, Box<dyn Error>> {
    let network = MemoryNetwork::new(1);
    let mut transports = Vec::new();
    for rank in 0..world {
        let peer = PeerId::new(&format!("rank {rank}"));
        transports.push(Arc::new(network.bind(None, peer)?));
    }
    let seed = transports[0].local_addr();
    let mut joins = JoinSet::new();
    for (rank, transport) in transports.into_iter().enumerate() {
        let request = JoinRequest::new("instructions", world).with_rank(Some(rank));
        let route = match rank {
            0 => SeedRoute::Here(transport),
            _ => SeedRoute::Dial(vec![(transport, seed)]),
        };
        joins.spawn(Comm::join(route, request, CpuAdapter));
    }
    let mut ranks = Vec::new();
    for joined in joins.join_all().await {
        let comm = joined?;
        let echo = |_, request| async { Ok::<_, Infallible>(request) };
        comm.rpc().register_raw("echo", echo)?;
        ranks.push(Arc::new(comm));
    }
    ranks.sort_by_key(|comm| comm.rank());
    Ok(ranks)
}
