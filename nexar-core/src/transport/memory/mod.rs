//! An in-memory network with a seed and faults on demand, for tests.
//!
//! A [`MemoryNetwork`] connects any number of [`MemoryTransport`]s in one process. It keeps to the
//! semantics of QUIC: flow control per stream and per connection, a limit on concurrent streams, streams
//! that the peer sees with their first byte, finish, reset, stop and close codes. It runs on tokio, also
//! with paused time, and makes faults on demand: delays, partitions, crashed endpoints, dropped
//! connections. Counters per directed link let a test assert how many bytes an algorithm sends.
//!
//! ```
//! use nexar_core::transport::memory::MemoryNetwork;
//! use nexar_core::transport::{Connection, PeerId, RecvStream, SendStream, Transport, UniAcceptor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let network = MemoryNetwork::new(1);
//! let alice = network.bind(None, PeerId::new("alice"))?;
//! let bob = network.bind(None, PeerId::new("bob"))?;
//!
//! let to_bob = alice.connect(bob.local_addr(), Some(&PeerId::new("bob"))).await?;
//! let mut stream = to_bob.connection.open_uni().await?;
//! stream.write_all("hello".into()).await?;
//! stream.finish()?;
//!
//! let mut from_alice = bob.accept().await.ok_or("closed")?;
//! assert_eq!(from_alice.connection.peer_identity().as_str(), "alice");
//! let mut stream = from_alice.uni.accept().await?;
//! assert_eq!(stream.read(100).await?.as_deref(), Some(&b"hello"[..]));
//! assert_eq!(stream.read(100).await?, None);
//! assert_eq!(network.link_stats(alice.local_addr(), bob.local_addr()).bytes, 5);
//! # Ok(())
//! # }
//! ```
//!
//! # Bounds
//!
//! A connection holds at most [`MemoryConfig::connection_window`] bytes of unread data in each direction,
//! a stream at most [`MemoryConfig::stream_window`]; small writes are merged, so that the bookkeeping stays
//! in proportion. On a delayed link at most 65,536 writes of a connection are in flight in each direction.
//!
//! # What it leaves out
//!
//! Nothing is encrypted and no packet is lost: a delayed or partitioned link delivers late. Connections
//! behave as if keep-alive were on: an idle one lives as long as its peer can be heard. Priorities have no
//! effect.

#[cfg(test)]
mod all_to_all_tests;
mod connection;
mod endpoint;
mod link;
mod network;
mod state;
mod stream;
#[cfg(test)]
mod tests;

pub use connection::{MemoryBiAcceptor, MemoryConnection, MemoryUniAcceptor};
pub use endpoint::MemoryTransport;
pub use link::LinkStats;
pub use network::MemoryNetwork;
pub use stream::{MemoryRecvStream, MemorySendStream};

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Limits of a [`MemoryNetwork`]; they hold for every endpoint on it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// Unread bytes that a stream holds before its writer waits. Default 1 MiB; 0 counts as 1.
    pub stream_window: usize,
    /// Unread bytes that one direction of a connection holds before its writers wait. Default 8 MiB; 0
    /// counts as 1.
    pub connection_window: usize,
    /// Streams of each kind that a side may have open at a time. Default 256; 0 counts as 1.
    pub max_streams: usize,
    /// Connections that an endpoint holds before it accepts them; further ones are refused. Default 1024.
    pub backlog: usize,
    /// How long a dial waits on a partitioned link. Default 10 s.
    pub handshake_timeout: Duration,
    /// After how long without hearing the peer a connection times out. Default 30 s.
    pub idle_timeout: Duration,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        MemoryConfig {
            stream_window: 1 << 20,
            connection_window: 8 << 20,
            max_streams: 256,
            backlog: 1024,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Locks also after a panic elsewhere: no invariant here spans an unwinding call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
