//! Groups of ranks, each a process: collectives, and forming the group.

use crate::{
    Result, or_exit,
    peer::{self, Commands, Peer, Role},
    runtime,
    subjects::{backends, bind},
};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use nexar_bench::report::plan::{self, ALL_REDUCE, FORMATION, Group, REDUCED};
use nexar_collectives::{
    Backend, Communicator, CpuAdapter, ReduceOp,
    membership::{JoinRequest, SeedRoute},
    transport::Transport,
};
use serde::{Deserialize, Serialize};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// What a rank other than 0 is told to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Command {
    Join {
        transport: String,
        seed: SocketAddr,
        rank: usize,
        world_size: usize,
    },
    AllReduce {
        bytes: usize,
        repeats: u64,
    },
    Leave,
}

pub(crate) fn measure(c: &mut Criterion) {
    all_reduce(c);
    formation(c);
}

fn all_reduce(c: &mut Criterion) {
    let mut benches = c.benchmark_group(Group::AllReduce.id());
    benches.sampling_mode(SamplingMode::Flat);
    for ranks in ALL_REDUCE {
        for backend in backends() {
            let name = plan::nexar(backend.name());
            // Formed by the first case that is not filtered out.
            let mut world = None;
            for bytes in REDUCED {
                benches.throughput(Throughput::Bytes(bytes as u64));
                let id = BenchmarkId::new(&name, plan::reduced(ranks, bytes));
                benches.bench_function(id, |b| {
                    let world =
                        world.get_or_insert_with(|| or_exit(&name, World::formed(backend, ranks)));
                    b.iter_custom(|repeats| or_exit(&name, world.all_reduce(bytes, repeats)));
                });
            }
            if let Some(world) = world {
                or_exit(&name, world.end());
            }
        }
    }
    benches.finish();
}

fn formation(c: &mut Criterion) {
    let mut benches = c.benchmark_group(Group::Formation.id());
    benches.sampling_mode(SamplingMode::Flat);
    for ranks in FORMATION {
        for backend in backends() {
            let name = plan::nexar(backend.name());
            let mut world = None;
            let id = BenchmarkId::new(&name, plan::ranks(ranks));
            benches.bench_function(id, |b| {
                let world = world.get_or_insert_with(|| or_exit(&name, World::new(backend, ranks)));
                b.iter_custom(|repeats| {
                    (0..repeats)
                        .map(|_| or_exit(&name, world.form_and_leave()))
                        .sum()
                });
            });
            if let Some(world) = world {
                or_exit(&name, world.end());
            }
        }
    }
    benches.finish();
}

/// This process as rank 0, and those of the others.
struct World {
    backend: Backend,
    peers: Vec<Peer>,
    comm: Option<Communicator>,
    runtime: Runtime,
}

impl World {
    /// The processes, ready to join.
    fn new(backend: Backend, ranks: usize) -> Result<Self> {
        let runtime = runtime()?;
        let peers = runtime.block_on(async {
            let mut peers = Vec::new();
            for _ in 1..ranks {
                let mut peer = Peer::spawn(&Role::Rank)?;
                peer.answer().await?;
                peers.push(peer);
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(peers)
        })?;
        Ok(World {
            backend,
            peers,
            comm: None,
            runtime,
        })
    }

    fn formed(backend: Backend, ranks: usize) -> Result<Self> {
        let mut world = World::new(backend, ranks)?;
        world.form()?;
        Ok(world)
    }

    /// From the address of the seed to the moment when every rank is connected to every other.
    fn form(&mut self) -> Result<Duration> {
        let World {
            backend,
            peers,
            comm,
            runtime,
        } = self;
        runtime.block_on(async {
            let start = Instant::now();
            let transport = Arc::new(bind(*backend)?);
            let world_size = peers.len() + 1;
            for (i, peer) in peers.iter_mut().enumerate() {
                let join = Command::Join {
                    transport: backend.name().into(),
                    seed: transport.local_addr(),
                    rank: i + 1,
                    world_size,
                };
                peer.command(&join).await?;
            }
            let request = JoinRequest::new("bench", world_size).with_rank(Some(0));
            let route = SeedRoute::Here(transport);
            *comm = Some(Communicator::join(route, request, CpuAdapter).await?);
            answers(peers).await?;
            Ok(start.elapsed())
        })
    }

    fn leave(&mut self) -> Result<()> {
        let World {
            peers,
            comm,
            runtime,
            ..
        } = self;
        runtime.block_on(async {
            tell(peers, &Command::Leave).await?;
            if let Some(comm) = comm.take() {
                comm.shutdown().await?;
            }
            answers(peers).await
        })
    }

    fn form_and_leave(&mut self) -> Result<Duration> {
        let time = self.form()?;
        self.leave()?;
        Ok(time)
    }

    fn all_reduce(&mut self, bytes: usize, repeats: u64) -> Result<Duration> {
        let World {
            peers,
            comm,
            runtime,
            ..
        } = self;
        let comm = comm.as_ref().ok_or("the group has not been formed")?;
        runtime.block_on(async {
            tell(peers, &Command::AllReduce { bytes, repeats }).await?;
            let time = reduce(comm, bytes, repeats).await?;
            answers(peers).await?;
            Ok(time)
        })
    }

    fn end(mut self) -> Result<()> {
        if self.comm.is_some() {
            self.leave()?;
        }
        let World { peers, runtime, .. } = self;
        runtime.block_on(async {
            for peer in peers {
                peer.end().await?;
            }
            Ok(())
        })
    }
}

async fn tell(peers: &mut [Peer], command: &Command) -> Result<()> {
    for peer in peers {
        peer.command(command).await?;
    }
    Ok(())
}

async fn answers(peers: &mut [Peer]) -> Result<()> {
    for peer in peers {
        peer.answer().await?;
    }
    Ok(())
}

/// The same on every rank: one operation whose result is checked, then those that are timed, on zeros.
async fn reduce(comm: &Communicator, bytes: usize, repeats: u64) -> Result<Duration> {
    let count = bytes / size_of::<f32>();
    let mut data = vec![(comm.rank() + 1) as f32; count];
    comm.all_reduce(&mut data, ReduceOp::Sum).await?;
    let sum = (comm.world_size() * (comm.world_size() + 1) / 2) as f32;
    if data.iter().any(|&value| value != sum) {
        return Err(format!("an all-reduce of {bytes} bytes gave a wrong sum").into());
    }
    data.fill(0.0);
    comm.barrier().await?;
    let start = Instant::now();
    for _ in 0..repeats {
        comm.all_reduce(&mut data, ReduceOp::Sum).await?;
    }
    Ok(start.elapsed())
}

/// A rank other than 0, until the commands end.
pub(crate) fn serve() -> Result<()> {
    runtime()?.block_on(async {
        let mut comm = None;
        let mut commands = Commands::new();
        peer::answer()?;
        while let Some(command) = commands.next().await? {
            match (command, comm.take()) {
                (
                    Command::Join {
                        transport,
                        seed,
                        rank,
                        world_size,
                    },
                    None,
                ) => {
                    let transport = Arc::new(bind(transport.parse()?)?);
                    let request = JoinRequest::new("bench", world_size).with_rank(Some(rank));
                    let route = SeedRoute::Dial(vec![(transport, seed)]);
                    comm = Some(Communicator::join(route, request, CpuAdapter).await?);
                }
                (Command::AllReduce { bytes, repeats }, Some(group)) => {
                    reduce(&group, bytes, repeats).await?;
                    comm = Some(group);
                }
                (Command::Leave, Some(group)) => group.shutdown().await?,
                (command, _) => return Err(format!("{command:?} does not fit").into()),
            }
            peer::answer()?;
        }
        Ok(())
    })
}
