//! Helpers of the tests.
#![allow(dead_code, reason = "every test binary uses a part of it")]

pub(crate) mod site;

use bytes::Bytes;
use nexar_core::transport::{
    Connection, ConnectionError, NewConnection, RecvStream, SendStream, StreamError, Transport,
};
use nexar_quic::{Config, Identity, QuinnConnection, QuinnTransport, Secret};
use std::{net::SocketAddr, sync::LazyLock};

pub(crate) type New = NewConnection<QuinnConnection>;

pub(crate) fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A secret that is a key, so that no test pays for stretching.
pub(crate) fn secret(byte: u8) -> Secret {
    Secret::new(&format!("{byte:02x}").repeat(32)).unwrap()
}

pub(crate) fn identity(byte: u8) -> Identity {
    Identity::from_secret(&secret(byte), "test").unwrap()
}

pub(crate) fn config(identity: Identity) -> Config {
    Config::new(identity, any_port())
}

pub(crate) fn bind(identity: Identity) -> QuinnTransport {
    QuinnTransport::bind(config(identity)).unwrap()
}

/// Two endpoints of one cluster.
pub(crate) fn two() -> (QuinnTransport, QuinnTransport) {
    (bind(identity(7)), bind(identity(7)))
}

/// A connection from `a` to `b`: the two ends.
pub(crate) async fn connect(a: &QuinnTransport, b: &QuinnTransport) -> (New, New) {
    let (dialled, accepted) = tokio::join!(a.connect(b.local_addr(), None), b.accept());
    (dialled.unwrap(), accepted.unwrap())
}

pub(crate) async fn close(a: QuinnTransport, b: QuinnTransport) {
    tokio::join!(a.close(0, "done"), b.close(0, "done"));
}

/// Period of [`pattern`], a prime.
const PERIOD: usize = 1_048_583;

/// `len` bytes (at most 1 MiB) that depend on their position and on `seed`.
pub(crate) fn pattern(seed: u64, offset: u64, len: usize) -> Bytes {
    static TABLE: LazyLock<Bytes> = LazyLock::new(|| {
        let byte = |i: usize| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as u8;
        let one: Vec<u8> = (0..PERIOD).map(byte).collect();
        [&one[..], &one[..]].concat().into()
    });
    let start = ((offset + seed * 7_919) % PERIOD as u64) as usize;
    TABLE.slice(start..start + len)
}

/// Sends `total` bytes of the pattern in chunks of `chunk` and finishes.
pub(crate) async fn send_pattern(
    stream: &mut impl SendStream,
    seed: u64,
    total: u64,
    chunk: usize,
) -> Result<(), StreamError> {
    let mut offset = 0;
    while offset < total {
        let len = chunk.min((total - offset) as usize);
        stream.write_all(pattern(seed, offset, len)).await?;
        offset += len as u64;
    }
    stream.finish()
}

/// Reads to the end, checks every byte and returns how many there were.
pub(crate) async fn check_pattern(
    stream: &mut impl RecvStream,
    seed: u64,
) -> Result<u64, StreamError> {
    let mut offset = 0;
    while let Some(bytes) = stream.read(1 << 20).await? {
        assert!(!bytes.is_empty());
        assert_eq!(bytes, pattern(seed, offset, bytes.len()), "at {offset}");
        offset += bytes.len() as u64;
    }
    Ok(offset)
}

pub(crate) async fn read_to_end(stream: &mut impl RecvStream) -> Result<Vec<u8>, StreamError> {
    let mut all = Vec::new();
    while let Some(bytes) = stream.read(1 << 16).await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

pub(crate) fn refused_reason(error: ConnectionError) -> String {
    match error {
        ConnectionError::Refused { reason } => reason,
        other => panic!("expected Refused, got {other:?}"),
    }
}

/// The identity that `connection` has proven, for comparisons.
pub(crate) fn peer<C: Connection>(new: &NewConnection<C>) -> &str {
    new.connection.peer_identity().as_str()
}

/// Polls a future on this thread, which sleeps in between.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    use std::{
        sync::Arc,
        task::{Context, Poll, Wake, Waker},
        thread::{self, Thread},
    };
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
