//! How fast TLS over TCP is between two addresses, to compare nexar with on the same path; `nexar-bench/links` runs it.
//!
//! ```text
//! cargo run --release -p nexar-bench --example tls_speed -- listen 10.0.0.1:29401 keys.json cubic
//! cargo run --release -p nexar-bench --example tls_speed -- dial 10.0.0.1:29401 keys.json cubic 16777216 4194304
//! ```
//!
//! The side that listens writes the keys, a fresh pair, for the other to read, and ends with the connection. The
//! other prints the rates in GB/s (1e9 bytes), one way in rounds of the first number of bytes, each of which is
//! confirmed, and in each direction of both ways at the same time in rounds of the second number. The latter is what
//! an all-reduce of two ranks moves. Both name TCP's congestion control; root may choose any that the system has.

#[path = "../benches/transports/keys.rs"]
mod keys;

use keys::{Keys, NAME};
use std::{
    env,
    error::Error,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream},
    try_join,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "\
    tls_speed listen ADDRESS KEYS CONGESTION | dial ADDRESS KEYS CONGESTION ONE_WAY_BYTES BOTH_WAYS_BYTES";

/// Bytes that are written and read at once; more do not stay in the cache.
const CHUNK: usize = 256 << 10;

/// Kinds of work, on the wire.
const ONE_WAY: u8 = 1;
const BOTH_WAYS: u8 = 2;

/// Rounds that are not counted, in which TCP finds its window and the time of a round becomes known.
const WARM_UP: u64 = 2;

/// Each kind is measured for about this long, at least three rounds.
const TIME: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match args[..] {
        ["listen", address, keys, congestion] => {
            runtime.block_on(listen(address, keys, congestion))
        }
        ["dial", address, keys, congestion, one_way, both_ways] => {
            let work = [(ONE_WAY, one_way.parse()?), (BOTH_WAYS, both_ways.parse()?)];
            runtime.block_on(dial(address, keys, congestion, work))
        }
        _ => Err(USAGE.into()),
    }
}

async fn listen(address: &str, path: &str, congestion: &str) -> Result<()> {
    let listener = TcpListener::bind(address).await?;
    let keys = Keys::new()?;
    let acceptor = TlsAcceptor::from(Arc::new(keys.server()?));
    // Complete as soon as it exists.
    let unfinished = format!("{path}.new");
    fs::write(&unfinished, serde_json::to_vec(&keys)?)?;
    fs::rename(unfinished, path)?;
    let (stream, _) = listener.accept().await?;
    configure(&stream, congestion)?;
    let stream = TlsStream::from(acceptor.accept(stream).await?);
    let (mut reader, mut writer) = split(stream);
    loop {
        // The other side ends the connection when it is done.
        let Ok(kind) = reader.read_u8().await else {
            return Ok(());
        };
        let (bytes, rounds) = (reader.read_u64().await?, reader.read_u64().await?);
        for _ in 0..rounds {
            if kind == ONE_WAY {
                drain(&mut reader, bytes).await?;
                confirm(&mut writer).await?;
            } else {
                try_join!(fill(&mut writer, bytes), drain(&mut reader, bytes))?;
            }
        }
        confirm(&mut writer).await?;
    }
}

async fn dial(address: &str, path: &str, congestion: &str, work: [(u8, u64); 2]) -> Result<()> {
    let keys: Keys = serde_json::from_slice(&fs::read(path)?)?;
    let stream = TcpStream::connect(address).await?;
    configure(&stream, congestion)?;
    let connector = TlsConnector::from(Arc::new(keys.client()?));
    let stream = connector.connect(NAME.try_into()?, stream).await?;
    let (mut reader, mut writer) = split(TlsStream::from(stream));
    for (kind, bytes) in work {
        let warm_up = rounds(&mut reader, &mut writer, (kind, bytes), WARM_UP).await?;
        let fitting = TIME.as_secs_f64() / (warm_up.as_secs_f64() / WARM_UP as f64);
        let count = (fitting as u64).max(3);
        let time = rounds(&mut reader, &mut writer, (kind, bytes), count).await?;
        let rate = (bytes * count) as f64 / time.as_secs_f64() / 1e9;
        let name = if kind == ONE_WAY {
            "one_way"
        } else {
            "both_ways"
        };
        println!("{name} {rate:.4}");
    }
    Ok(())
}

fn configure(stream: &TcpStream, congestion: &str) -> Result<()> {
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_congestion(stream, congestion)?;
    #[cfg(not(target_os = "linux"))]
    let _ = congestion;
    Ok(stream.set_nodelay(true)?)
}

/// How long so many rounds take.
async fn rounds(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    (kind, bytes): (u8, u64),
    count: u64,
) -> Result<Duration> {
    let start = Instant::now();
    writer.write_u8(kind).await?;
    writer.write_u64(bytes).await?;
    writer.write_u64(count).await?;
    for _ in 0..count {
        if kind == ONE_WAY {
            fill(writer, bytes).await?;
            reader.read_u8().await?;
        } else {
            try_join!(fill(writer, bytes), drain(reader, bytes))?;
        }
    }
    reader.read_u8().await?;
    Ok(start.elapsed())
}

async fn confirm(writer: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
    writer.write_u8(1).await?;
    Ok(writer.flush().await?)
}

async fn fill(writer: &mut (impl AsyncWrite + Unpin), bytes: u64) -> Result<()> {
    let data = vec![7; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(CHUNK as u64);
        writer.write_all(&data[..length as usize]).await?;
        left -= length;
    }
    Ok(writer.flush().await?)
}

async fn drain(reader: &mut (impl AsyncRead + Unpin), bytes: u64) -> Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(CHUNK as u64) as usize;
        match reader.read(&mut buffer[..length]).await? {
            0 => return Err("the other side has ended".into()),
            count => left -= count as u64,
        }
    }
    Ok(())
}
