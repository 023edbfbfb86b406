//! One QUIC connection between two endpoints of this process: a stream, and small messages to and fro.

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nexar_core::transport::{BiAcceptor, Connection, RecvStream, SendStream, Transport};
use nexar_quic::{Config, Identity, QuinnTransport};
use std::{error::Error, net::Ipv4Addr, thread, time::Duration};
use tokio::runtime::{self, Runtime};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Sender = <<QuinnTransport as Transport>::Connection as Connection>::SendStream;
type Receiver = <<QuinnTransport as Transport>::Connection as Connection>::RecvStream;

/// Bytes of a transfer.
const TRANSFER: usize = 64 << 20;
const CHUNK: usize = 1 << 20;

/// The first byte of a request asks for a pong or for a transfer.
const PING: u8 = 0;
const SEND: u8 = 1;
const MESSAGE: usize = 8;

fn runtime() -> Result<Runtime> {
    Ok(runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

fn bind() -> Result<QuinnTransport> {
    let identity = Identity::insecure_loopback("messages")?;
    Ok(QuinnTransport::bind(Config::new(
        identity,
        (Ipv4Addr::LOCALHOST, 0).into(),
    ))?)
}

/// Answers requests on its own thread until the stream ends.
async fn serve(server: QuinnTransport) -> Result<()> {
    let mut new = server.accept().await.ok_or("the endpoint was closed")?;
    let (mut send, mut recv) = new.bi.accept().await?;
    let chunk = Bytes::from(vec![7; CHUNK]);
    let mut request = [0; MESSAGE];
    while server.drive(recv.read_exact(&mut request)).await.is_ok() {
        match request[0] {
            PING => {
                server
                    .drive(send.write_all(Bytes::copy_from_slice(&request)))
                    .await?
            }
            _ => {
                for _ in 0..TRANSFER / CHUNK {
                    server.drive(send.write_all(chunk.clone())).await?;
                }
            }
        }
    }
    server.close(0, "done").await;
    Ok(())
}

async fn request(send: &mut Sender, recv: &mut Receiver, kind: u8, answer: usize) -> Result<()> {
    send.write_all(Bytes::copy_from_slice(&[kind; MESSAGE]))
        .await?;
    let mut left = answer;
    while left > 0 {
        left -= recv
            .read(left)
            .await?
            .ok_or("the stream ended early")?
            .len();
    }
    Ok(())
}

fn measure(c: &mut Criterion) -> Result<()> {
    let server = bind()?;
    let address = server.local_addr();
    let serving = thread::spawn(move || runtime()?.block_on(serve(server)));
    let (client, runtime) = (bind()?, runtime()?);
    let connect = async {
        let new = client.connect(address, None).await?;
        let streams = new.connection.open_bi().await?;
        Ok::<_, Box<dyn Error + Send + Sync>>((new, streams))
    };
    let (new, (mut send, mut recv)) = runtime.block_on(connect)?;

    let mut group = c.benchmark_group("quinn");
    for (name, kind, answer) in [
        ("8 B to and fro", PING, MESSAGE),
        ("stream of 64 MiB", SEND, TRANSFER),
    ] {
        group.throughput(Throughput::Bytes(answer as u64));
        group.bench_function(name, |b| {
            b.iter_custom(|repeats| {
                let start = std::time::Instant::now();
                for _ in 0..repeats {
                    let work = client.drive(request(&mut send, &mut recv, kind, answer));
                    if let Err(error) = runtime.block_on(work) {
                        eprintln!("{name}: {error}");
                    }
                }
                start.elapsed()
            });
        });
    }
    group.finish();
    send.finish()?;
    runtime.block_on(new.connection.closed());
    runtime.block_on(client.close(0, "done"));
    serving.join().map_err(|_| "the server panicked")?
}

fn messages(c: &mut Criterion) {
    if let Err(error) = measure(c) {
        eprintln!("messages: {error}");
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .without_plots()
        .nresamples(2000)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(2))
        .sample_size(10);
    targets = messages
}
criterion_main!(benches);
