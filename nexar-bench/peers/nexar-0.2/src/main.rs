//! The crate nexar 0.2.0 from the registry as a peer of nexar-compare.
//!
//! `peer-nexar-0-2 CONFIG RANKS OPERATION:BYTES ...` prints a JSON object per measurement: microseconds of one
//! operation, back to back, on the slowest rank. CONFIG is `default` (TLS over TCP) or `quic` (QUIC only). Sizes are
//! of all blocks together, data are f32, reductions are sums in place.
//!
//! This process is rank 0 and starts the others, which end with it.

mod measure;
mod work;

use nexar::{ClusterConfig, CpuAdapter, NexarClient, NexarConfig, SeedNode};
use std::{
    env,
    error::Error,
    io::{self, Read},
    net::{Ipv4Addr, SocketAddr},
    process::{self, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::process::{Child, Command};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const JOIN_LIMIT: Duration = Duration::from_secs(60);

/// The first argument of a process that rank 0 has started.
const JOIN: &str = "join";

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let run = match args.first().map(String::as_str) {
        Some(JOIN) => follow(&args[1..]).await,
        _ => lead(&args).await,
    };
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peer-nexar-0-2: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What all ranks are told.
struct Job<'a> {
    config: ClusterConfig,
    items: &'a [String],
}

impl<'a> Job<'a> {
    fn new(args: &'a [String]) -> Result<Self> {
        let [config, ranks, items @ ..] = args else {
            return Err("usage: peer-nexar-0-2 CONFIG RANKS OPERATION:BYTES ...".into());
        };
        let mut nexar = NexarConfig::default();
        match config.as_str() {
            "default" => {}
            "quic" => nexar.enable_tcp_bulk_sidecar = false,
            other => return Err(format!("there is no configuration '{other}'").into()),
        }
        let config = ClusterConfig::new(ranks.parse()?)
            .with_bind_addr(loopback())
            .with_cluster_token("nexar-compare")
            .with_join_timeout(JOIN_LIMIT)
            .with_nexar(nexar);
        Ok(Job { config, items })
    }
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Rank 0.
async fn lead(args: &[String]) -> Result<()> {
    let job = Job::new(args)?;
    let seed = SeedNode::from_config(loopback(), &job.config)?;
    let mut others = Vec::new();
    for rank in 1..job.config.world_size {
        others.push(start(seed.local_addr(), rank, args)?);
    }
    let cpu = Arc::new(CpuAdapter::new());
    let client = NexarClient::bootstrap_seed_with(seed, &job.config, cpu).await?;
    work(client, job.items).await?;
    // The pipes stay open until all have ended: waiting closes them.
    let pipes: Vec<_> = others.iter_mut().map(|other| other.stdin.take()).collect();
    for mut other in others {
        let status = other.wait().await?;
        if !status.success() {
            return Err(format!("a rank failed: {status}").into());
        }
    }
    drop(pipes);
    Ok(())
}

/// The pipe to its standard input closes when this process ends.
fn start(seed: SocketAddr, rank: u32, args: &[String]) -> Result<Child> {
    let child = Command::new(env::current_exe()?)
        .args([JOIN, &seed.to_string(), &rank.to_string()])
        .args(args)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}

/// Another rank.
async fn follow(args: &[String]) -> Result<()> {
    let [seed, rank, args @ ..] = args else {
        return Err("join SEED RANK is for processes that rank 0 starts".into());
    };
    let mut job = Job::new(args)?;
    job.config = job.config.with_requested_rank(rank.parse()?);
    // A thread of its own: a runtime would wait for it in the end.
    thread::spawn(|| {
        let mut nothing = [0];
        if let Ok(0) | Err(_) = io::stdin().read(&mut nothing) {
            process::exit(1);
        }
    });
    let cpu = Arc::new(CpuAdapter::new());
    let client = NexarClient::bootstrap_join(seed.parse()?, &job.config, cpu).await?;
    work(client, job.items).await
}

async fn work(client: NexarClient, items: &[String]) -> Result<()> {
    let client = Arc::new(client);
    work::register(&client).await;
    // No call comes before its handler is there.
    client.barrier().await?;
    let server = (client.rank() == 1).then(|| tokio::spawn(work::serve(Arc::clone(&client))));
    for item in items {
        let (name, bytes) = item.split_once(':').unwrap_or((item, "0"));
        let bytes = bytes.parse()?;
        let operation =
            work::Operation::named(name).ok_or_else(|| format!("cannot measure {item}"))?;
        let mut work = work::Work::new(Arc::clone(&client), operation, bytes);
        let time = measure::measure(&mut work).await?;
        if client.rank() == 0 {
            let (ranks, us) = (client.world_size(), time * 1e6);
            println!(r#"{{"operation":"{name}","ranks":{ranks},"bytes":{bytes},"us":{us:.3}}}"#);
        }
    }
    client.barrier().await?;
    if let Some(server) = server {
        server.abort();
        // It ends as it was told.
        let _ = server.await;
    }
    // Nobody leaves while others still wait in the barrier.
    match Arc::into_inner(client) {
        Some(client) => Ok(client.shutdown().await?),
        None => Err("a call is still being answered".into()),
    }
}
