//! A transport of one's own: nexar over TCP, with nothing but the public traits.
//!
//! **Nobody is authenticated here and nothing is encrypted.** Every process on this machine can claim to
//! be any peer, and what it sends is reduced into your data. The transport refuses all addresses but
//! loopback; use it to learn, not to run jobs.
//!
//! ```text
//! cargo run -p nexar-collectives --example tcp_transport
//! cargo test -p nexar-collectives --example tcp_transport
//! ```
//!
//! The first prints, in any order of the ranks:
//!
//! ```text
//! rank 0 of 3: 1 became 321
//! rank 1 of 3: 20 became 321
//! rank 2 of 3: 300 became 321
//! ```
//!
//! The second runs the conformance suite, one test for each case, over this transport.
//!
//! # In which order to write one
//!
//! The traits are in `nexar-core`, and the suite is in its feature `testing`, for the dev-dependencies.
//! Write the [`Harness`](nexar_core::testing::Harness) first, at the end of this file, and each method of the
//! traits as an `async fn` (or `fn`) that is still to be done, until its turn comes; then make one group of
//! cases pass after the other. Every case connects two endpoints before anything else.
//!
//! 1. `frame.rs`: what travels. A transport over a protocol with streams of its own, such as QUIC, has
//!    no need of this file, nor of `table.rs`.
//! 2. `endpoint.rs`: listening and dialling. `identity_of_the_peer`, `wrong_peer`, `nobody_listens`.
//! 3. `connection.rs`: one task that reads and writes; closing. `close_reaches_the_peer`, `closed_endpoint`.
//! 4. `stream.rs`: bytes in order. `order_within_a_stream`, `half_close`, `an_empty_stream_is_seen`.
//! 5. `table.rs`: credit and limits. `back_pressure_bounds_a_stream`, `stream_limit_waits`.
//! 6. The rest of the suite, with its messages between ranks; then a group, as in [`form`].
//!
//! # What the contracts mean
//!
//! * *Identity.* [`connect`](Transport::connect) says nothing to a peer that is not the expected one:
//!   here, the side that was dialled introduces itself first. A transport whose peers prove who they are
//!   says so in its [capabilities](Transport::capabilities).
//! * *Address.* [`remote_addr`](nexar_core::transport::Connection::remote_addr) is where the peer can be
//!   dialled, not the port that its socket happens to have.
//! * *Background.* Heartbeats run on [`background`](Transport::background), so it belongs to a thread
//!   that the application cannot block. Sockets and timers belong there, too: whoever awaits a method of
//!   the transport may be on another runtime, or on none.
//! * *Back-pressure.* [`poll_write`](nexar_core::transport::SendStream::poll_write) is pending while the
//!   peer's application is behind. A stalled stream leaves the others room, and only many of them together
//!   use up the connection. What a peer can make this side store is bounded and checked here, not left
//!   to its good will.
//! * *Acknowledged* means that the peer's transport has everything and that its application can read it even
//!   after the connection was closed. What is not acknowledged may be lost by a close.
//! * *The end of a stream* that was cut short never looks like its end: that is an error.
//! * *Closing* is immediate for this side, and the peer still learns the code and the reason: the socket
//!   stays until the peer has read them, for a bounded time.
//! * *Cancel safety.* A dropped accept, open or read has taken nothing: no connection, no stream, no bytes.
//!
//! A peer that falls silent, with its process stopped, is not noticed here; the heartbeats of the group
//! are for that. The cases that need a stranger or a silent peer are therefore skipped.

mod connection;
mod endpoint;
mod frame;
mod stream;
mod table;

use endpoint::TcpTransport;
use nexar_collectives::{
    Communicator, CpuAdapter, Error, ReduceOp, Result,
    membership::{JoinRequest, SeedRoute},
    transport::{PeerId, Transport},
};
use std::{net::SocketAddr, sync::Arc};
use tokio::task::JoinSet;

/// An endpoint on a free port.
fn bind(name: &str) -> Result<TcpTransport> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    TcpTransport::bind(address, PeerId::new(name)).map_err(|source| Error::Connection {
        doing: "opening an endpoint",
        source,
    })
}

/// Forms a group of `world_size` ranks in this process; rank 0 introduces the others to each other.
async fn form(world_size: usize) -> Result<Vec<Communicator<TcpTransport>>> {
    let seed = Arc::new(bind("rank 0")?);
    let address = seed.local_addr();
    let mut routes = vec![SeedRoute::Here(seed)];
    for rank in 1..world_size {
        let transport = Arc::new(bind(&format!("rank {rank}"))?);
        routes.push(SeedRoute::Dial(vec![(transport, address)]));
    }
    let mut joining = JoinSet::new();
    for (rank, route) in routes.into_iter().enumerate() {
        let request = JoinRequest::new("tcp example", world_size).with_rank(Some(rank));
        joining.spawn(Communicator::join(route, request, CpuAdapter));
    }
    joining.join_all().await.into_iter().collect()
}

/// What one rank does: 1 of rank 0, 20 of rank 1 and 300 of rank 2 make 321 on all of them.
async fn work(comm: Communicator<TcpTransport>) -> Result<()> {
    let rank = comm.rank();
    let own = (rank + 1) as f32 * 10_f32.powi(rank as i32);
    let mut data = vec![own; 1 << 20];
    comm.all_reduce(&mut data, ReduceOp::Sum).await?;
    comm.barrier().await?;
    println!(
        "rank {rank} of {}: {own} became {}",
        comm.world_size(),
        data[0]
    );
    comm.shutdown().await
}

#[tokio::main]
async fn main() -> Result<()> {
    let ranks = form(3).await?;
    let mut working = JoinSet::new();
    for comm in ranks {
        working.spawn(work(comm));
    }
    working.join_all().await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, MAX_BODY, StreamId, UNI, What};
    use nexar_core::{
        testing::{DeadAddress, Harness},
        transport::{Connection, ConnectionError},
    };
    use tokio::net::{TcpSocket, TcpStream};

    struct TcpHarness;

    impl Harness for TcpHarness {
        type Transport = TcpTransport;

        async fn endpoints(&self) -> [TcpTransport; 2] {
            ["left", "right"].map(|name| bind(name).expect("a free port"))
        }

        fn dead_address(&self) -> DeadAddress {
            let socket = TcpSocket::new_v4().expect("a socket");
            let any_port = "127.0.0.1:0".parse().expect("an address");
            socket.bind(any_port).expect("a free port");
            DeadAddress::new(socket.local_addr().expect("its address"), socket)
        }
    }

    nexar_core::transport_conformance!(TcpHarness);

    /// Peers that break the protocol, each in another way.
    #[tokio::test]
    async fn a_breach_of_the_protocol_ends_the_connection() {
        let here = bind("here").expect("a free port");
        let frame = |what, index, value, len| {
            Frame::new(what, StreamId::new(true, UNI, index), value, vec![0; len])
        };
        let ours = StreamId::new(false, UNI, 0);
        let breaches = [
            vec![frame(What::Data, 0, 0, MAX_BODY + 1)],
            (0..17).map(|_| frame(What::Data, 0, 0, MAX_BODY)).collect(),
            vec![frame(What::Data, 256, 0, 1)],
            vec![frame(What::Credit, 0, 1, 0)],
            vec![frame(What::Ended, 0, 0, 0)],
            vec![frame(What::Hello, 0, 0, 0)],
            vec![Frame::new(What::Acked, ours, 0, "")],
            (0..10_000).map(|_| frame(What::Finish, 0, 0, 0)).collect(),
        ];
        for breach in breaches {
            let text = format!("{:?}", breach[0].what);
            let (_peer, accepted) = tokio::join!(raw_peer(&here, breach), here.accept());
            let error = accepted.expect("a connection").connection.closed().await;
            assert!(
                matches!(error, ConnectionError::Backend(_)),
                "{text}: {error:?}"
            );
        }
    }

    /// Introduces itself and sends some frames.
    async fn raw_peer(to: &TcpTransport, frames: Vec<Frame>) -> TcpStream {
        let mut peer = TcpStream::connect(to.local_addr()).await.expect("connect");
        let mut hello = Frame::read(&mut peer).await.expect("its hello");
        hello.body = "peer".into();
        hello.write(&mut peer).await.expect("write");
        for frame in frames {
            // It may have had enough before the last one.
            let _ = frame.write(&mut peer).await;
        }
        peer
    }

    #[tokio::test]
    async fn all_reduce_in_worlds_of_several_sizes() {
        for world_size in [1, 2, 3, 5] {
            let mut working = JoinSet::new();
            for comm in form(world_size).await.expect("a group") {
                working.spawn(check_sums(comm));
            }
            working.join_all().await;
        }
    }

    /// Sums of lengths that take different algorithms.
    async fn check_sums(comm: Communicator<TcpTransport>) {
        let (rank, world_size) = (comm.rank() as i64, comm.world_size() as i64);
        for len in [1, 1_000, 300_007] {
            let mut data: Vec<i64> = (0..len).map(|at| (rank + 1) * 1_000_000 + at).collect();
            comm.all_reduce(&mut data, ReduceOp::Sum)
                .await
                .expect("a sum");
            let ranks = world_size * (world_size + 1) / 2;
            let expected: Vec<i64> = (0..len)
                .map(|at| ranks * 1_000_000 + world_size * at)
                .collect();
            assert!(
                data == expected,
                "{len} elements on rank {rank} of {world_size}"
            );
        }
        comm.shutdown().await.expect("a clean end");
    }
}
