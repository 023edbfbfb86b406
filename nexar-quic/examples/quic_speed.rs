//! How fast one connection between two processes of this host is.
//!
//! ```text
//! cargo run --release -p nexar-quic --example quic_speed -- [spin in us] [current | main | task] [GiB] [quinn | s2n-quic]
//! ```
//!
//! Prints the rate of one stream, one way and both ways at a time, the sender's CPU time for a gigabyte
//! (on Linux, where it disturbs less than the rate what else the host does), and the round trip of 8 bytes.
//! The second argument says where the application runs: on a `current_thread` runtime (default), in the
//! main future of a multi-thread runtime, or in a task of one.

use bytes::Bytes;
use nexar_core::transport::{BiAcceptor, Connection, RecvStream, SendStream, Transport};
use nexar_quic::{AnyRecvStream, AnySendStream, AnyTransport, Backend, Config, Identity};
use std::{
    env,
    error::Error,
    process::{Child, Command},
    time::{Duration, Instant},
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CHILD: &str = "QUIC_SPEED_PEER";
const CHUNK: usize = 1 << 20;
const REPEATS: usize = 3;
const ROUNDS: usize = 20_000;

#[derive(Clone)]
struct Options {
    spin: Duration,
    place: String,
    bytes: usize,
    backend: Backend,
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.iter().any(|arg| arg.starts_with('-')) {
        println!("quic_speed [spin in us] [current | main | task] [GiB] [quinn | s2n-quic]");
        return Ok(());
    }
    let arg = |i: usize, default: &str| args.get(i).cloned().unwrap_or(default.to_owned());
    let options = Options {
        spin: Duration::from_micros(arg(0, "50").parse()?),
        place: arg(1, "current"),
        bytes: arg(2, "1").parse::<usize>()? << 30,
        backend: arg(3, Backend::default().name()).parse()?,
    };
    let place = options.place.clone();
    let work = async move {
        match env::var(CHILD) {
            Ok(address) => child(options, &address).await,
            Err(_) => parent(options).await,
        }
    };
    match place.as_str() {
        "current" => tokio::runtime::Builder::new_current_thread()
            .build()?
            .block_on(work),
        "main" => tokio::runtime::Builder::new_multi_thread()
            .build()?
            .block_on(work),
        "task" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
            runtime.block_on(async { tokio::spawn(work).await? })
        }
        other => Err(format!("no place is called {other}").into()),
    }
}

fn bind(options: &Options) -> Result<AnyTransport> {
    let config = Config::new(
        Identity::insecure_loopback("speed")?,
        "127.0.0.1:0".parse()?,
    );
    Ok(AnyTransport::bind(
        options.backend,
        config.spin(options.spin),
    )?)
}

async fn parent(options: Options) -> Result<()> {
    let transport = bind(&options)?;
    let mut peer = spawn_peer(&transport)?;
    let mut new = transport.accept().await.ok_or("closed")?;
    let (mut send, mut recv) = new.bi.accept().await?;
    recv.read_exact(&mut [0]).await?;
    for _ in 0..REPEATS {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        transport.drive(source(&mut send, options.bytes)).await?;
        transport.drive(recv.read_exact(&mut [0])).await?;
        let one_way = start.elapsed();
        let cpu = (cpu_seconds() - cpu) / (options.bytes as f64 / 1e9);

        let start = Instant::now();
        transport
            .drive(both(&mut send, &mut recv, options.bytes))
            .await?;
        let both_ways = start.elapsed();

        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            transport.drive(ping(&mut send, &mut recv)).await?;
            rounds.push(start.elapsed().as_secs_f64() * 1e6);
        }
        rounds.sort_by(f64::total_cmp);

        println!(
            "{}, spin {:>3} us, {:7}: one way {:.2} GB/s ({:.2} CPU s/GB), both ways {:.2} GB/s each, 8 B mean {:.1} us, median {:.1}, 99 % {:.0}, max {:.0}; {} packets lost",
            options.backend,
            options.spin.as_micros(),
            options.place,
            options.bytes as f64 / one_way.as_secs_f64() / 1e9,
            cpu,
            options.bytes as f64 / both_ways.as_secs_f64() / 1e9,
            rounds.iter().sum::<f64>() / ROUNDS as f64,
            rounds[ROUNDS / 2],
            rounds[ROUNDS * 99 / 100],
            rounds[ROUNDS - 1],
            new.connection.stats().lost_packets,
        );
    }
    send.finish()?;
    new.connection.closed().await;
    peer.wait()?;
    transport.close(0, "done").await;
    Ok(())
}

/// User and system time of this process; fields 14 and 15 in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat
        .split(' ')
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

async fn child(options: Options, address: &str) -> Result<()> {
    let transport = bind(&options)?;
    let new = transport.connect(address.parse()?, None).await?;
    let (mut send, mut recv) = new.connection.open_bi().await?;
    send.write_all(Bytes::from_static(&[1])).await?;
    for _ in 0..REPEATS {
        transport.drive(sink(&mut recv, options.bytes)).await?;
        send.write_all(Bytes::from_static(&[1])).await?;
        transport
            .drive(both(&mut send, &mut recv, options.bytes))
            .await?;
        for _ in 0..ROUNDS {
            transport.drive(pong(&mut send, &mut recv)).await?;
        }
    }
    assert_eq!(recv.read(1).await?, None);
    transport.close(0, "done").await;
    Ok(())
}

fn spawn_peer(transport: &AnyTransport) -> Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(env::args().skip(1))
        .env(CHILD, transport.local_addr().to_string());
    Ok(command.spawn()?)
}

async fn source(send: &mut AnySendStream, bytes: usize) -> Result<()> {
    let chunk = Bytes::from(vec![7; CHUNK]);
    for _ in 0..bytes / CHUNK {
        send.write_all(chunk.clone()).await?;
    }
    Ok(())
}

async fn sink(recv: &mut AnyRecvStream, bytes: usize) -> Result<()> {
    let mut left = bytes;
    while left > 0 {
        left -= recv.read(left).await?.ok_or("ended early")?.len();
    }
    Ok(())
}

async fn both(send: &mut AnySendStream, recv: &mut AnyRecvStream, bytes: usize) -> Result<()> {
    tokio::try_join!(source(send, bytes), sink(recv, bytes)).map(|_| ())
}

async fn ping(send: &mut AnySendStream, recv: &mut AnyRecvStream) -> Result<()> {
    send.write_all(Bytes::from_static(b"12345678")).await?;
    Ok(recv.read_exact(&mut [0; 8]).await?)
}

async fn pong(send: &mut AnySendStream, recv: &mut AnyRecvStream) -> Result<()> {
    let mut message = [0; 8];
    recv.read_exact(&mut message).await?;
    Ok(send.write_all(Bytes::copy_from_slice(&message)).await?)
}
