//! Faults, limits and counters, on paused time.

use super::*;
use crate::transport::{
    BiAcceptor, Connection, ConnectionError, NewConnection, PeerId, RecvStream, SendStream,
    StreamError, Transport, UniAcceptor,
};
use bytes::Bytes;
use std::{future::Future, future::poll_fn, pin::pin, task::Poll};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);

struct World {
    network: MemoryNetwork,
    a: MemoryTransport,
    b: MemoryTransport,
}

impl World {
    fn new(config: MemoryConfig) -> Self {
        let network = MemoryNetwork::with_config(7, config);
        let [a, b] = ["a", "b"].map(|name| network.bind(None, PeerId::new(name)).unwrap());
        World { network, a, b }
    }

    async fn connect(&self) -> [NewConnection<MemoryConnection>; 2] {
        let (a, b) = tokio::join!(self.a.connect(self.b.local_addr(), None), self.b.accept());
        [a.unwrap(), b.unwrap()]
    }

    fn addresses(&self) -> (std::net::SocketAddr, std::net::SocketAddr) {
        (self.a.local_addr(), self.b.local_addr())
    }
}

async fn is_pending(future: impl Future) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// One chunk on a stream of its own, by the time it arrives.
async fn send(connection: &MemoryConnection, text: &'static str) {
    connection
        .open_uni()
        .await
        .unwrap()
        .write_all(text.into())
        .await
        .unwrap();
}

async fn receive(new: &mut NewConnection<MemoryConnection>) -> Bytes {
    new.uni
        .accept()
        .await
        .unwrap()
        .read(100)
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_message_takes_the_delay_of_its_link() {
    let world = World::new(MemoryConfig::default());
    let (to_a, to_b) = world.addresses();
    world
        .network
        .set_link_delay(to_a, to_b, 30 * MS, Duration::ZERO);
    world
        .network
        .set_link_delay(to_b, to_a, 4 * MS, Duration::ZERO);
    let start = Instant::now();
    let [a, mut b] = world.connect().await;
    assert_eq!(start.elapsed(), 34 * MS);
    assert_eq!(a.connection.stats().rtt, 34 * MS);

    let start = Instant::now();
    let mut stream = a.connection.open_uni().await.unwrap();
    stream.write_all("x".into()).await.unwrap();
    stream.finish().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "writing does not wait");
    assert_eq!(receive(&mut b).await, "x");
    assert_eq!(start.elapsed(), 30 * MS);
    stream.acked().await.unwrap();
    assert_eq!(start.elapsed(), 34 * MS);

    let start = Instant::now();
    b.connection.close(3, "bye");
    let error = a.connection.closed().await;
    assert!(
        matches!(error, ConnectionError::ClosedByPeer { code: 3, .. }),
        "{error:?}"
    );
    assert_eq!(start.elapsed(), 4 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_window_refills_after_a_round_trip() {
    let config = MemoryConfig {
        stream_window: 1000,
        ..Default::default()
    };
    let world = World::new(config);
    let [a, mut b] = world.connect().await;
    world.network.set_delay(10 * MS, Duration::ZERO);
    let start = Instant::now();
    let write = async {
        let mut stream = a.connection.open_uni().await.unwrap();
        stream.write_all(vec![1; 5000].into()).await.unwrap();
    };
    let read = async {
        let mut stream = b.uni.accept().await.unwrap();
        stream.read_exact(&mut [0; 5000]).await.unwrap();
    };
    tokio::join!(write, read);
    // Five windows, each 10 ms there and 10 ms back, but for the last way back.
    assert_eq!(start.elapsed(), 90 * MS);
    assert_eq!(world.network.total_stats().writes, 5);
}

#[tokio::test(start_paused = true)]
async fn jitter_reorders_streams_but_not_their_content() {
    let order = |seed| async move {
        let network = MemoryNetwork::new(seed);
        let [a, b] = ["a", "b"].map(|name| network.bind(None, PeerId::new(name)).unwrap());
        let (a, b) = tokio::join!(a.connect(b.local_addr(), None), b.accept());
        let (a, mut b) = (a.unwrap(), b.unwrap());
        network.set_delay(MS, 50 * MS);
        let mut sending = Vec::new();
        for number in 0..8_u8 {
            let mut stream = a.connection.open_uni().await.unwrap();
            for step in 0..20 {
                stream.write_all(vec![number, step].into()).await.unwrap();
            }
            stream.finish().unwrap();
            sending.push(stream);
        }
        let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..8 {
            let mut stream = b.uni.accept().await.unwrap();
            let done = done.clone();
            tokio::spawn(async move {
                let mut all = [0; 40];
                stream.read_exact(&mut all).await.unwrap();
                assert_eq!(stream.read(1).await.unwrap(), None);
                let expected: Vec<u8> = (0..20).flat_map(|step| [all[0], step]).collect();
                assert_eq!(all, *expected);
                done.send(all[0]).unwrap();
            });
        }
        let mut order = Vec::new();
        for _ in 0..8 {
            order.push(finished.recv().await.unwrap());
        }
        order
    };
    let first = order(1).await;
    assert_ne!(
        first,
        [0, 1, 2, 3, 4, 5, 6, 7],
        "streams overtake each other"
    );
    assert_eq!(first, order(1).await, "the same seed gives the same order");
    assert_ne!(first, order(2).await, "another seed gives another");
}

#[tokio::test(start_paused = true)]
async fn a_healed_partition_delivers_what_was_sent() {
    let world = World::new(MemoryConfig::default());
    let (to_a, to_b) = world.addresses();
    let [a, mut b] = world.connect().await;
    world.network.partition(to_b, to_a);
    send(&a.connection, "through").await;
    assert!(is_pending(b.uni.accept()).await);
    tokio::time::sleep(29 * Duration::from_secs(1)).await;
    assert!(is_pending(b.uni.accept()).await);
    world.network.heal(to_a, to_b);
    assert_eq!(receive(&mut b).await, "through");
    // The time limit starts anew.
    world.network.partition(to_a, to_b);
    tokio::time::sleep(29 * Duration::from_secs(1)).await;
    assert!(is_pending(a.connection.closed()).await);
    world.network.heal(to_a, to_b);
    send(&b.connection, "back").await;
    let mut a = a;
    assert_eq!(receive(&mut a).await, "back");
}

#[tokio::test(start_paused = true)]
async fn a_partition_times_out_connections_and_dials() {
    let world = World::new(MemoryConfig::default());
    let (to_a, to_b) = world.addresses();
    let [a, mut b] = world.connect().await;
    let other = world.network.bind(None, PeerId::new("other")).unwrap();
    let to_other = world.a.connect(other.local_addr(), None).await.unwrap();

    let start = Instant::now();
    world.network.partition(to_a, to_b);
    let (dial, ended, accept) = tokio::join!(
        world.a.connect(to_b, None),
        a.connection.closed(),
        b.uni.accept()
    );
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    for error in [dial.err().unwrap(), ended, accept.err().unwrap()] {
        assert!(matches!(error, ConnectionError::TimedOut), "{error:?}");
    }
    assert!(
        is_pending(to_other.connection.closed()).await,
        "another link is not affected"
    );

    let dial = async { world.a.connect(to_b, None).await };
    let heal = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.network.heal(to_a, to_b);
    };
    tokio::join!(dial, heal)
        .0
        .expect("a dial that waits goes on");
}

#[tokio::test(start_paused = true)]
async fn peers_of_a_crashed_endpoint_hear_nothing_until_they_time_out() {
    let world = World::new(MemoryConfig::default());
    let (to_a, to_b) = world.addresses();
    let [mut a, b] = world.connect().await;
    world.network.set_delay(5 * MS, Duration::ZERO);
    send(&b.connection, "in flight").await;
    assert!(world.network.kill(to_b));
    assert!(!world.network.kill(to_b), "nobody is there any more");

    // The crashed side fails at once.
    let error = b.connection.closed().await;
    assert!(
        matches!(error, ConnectionError::EndpointClosed),
        "{error:?}"
    );
    assert!(b.connection.open_uni().await.is_err());
    assert!(world.b.accept().await.is_none());
    assert!(world.b.connect(to_a, None).await.is_err());
    drop((b, world.b));

    // The other side can still write into the void, and hears nothing.
    let start = Instant::now();
    send(&a.connection, "anybody there?").await;
    let error = a.uni.accept().await.err().unwrap();
    assert!(matches!(error, ConnectionError::TimedOut), "{error:?}");
    assert_eq!(start.elapsed(), Duration::from_secs(30));

    // The address is free for a successor, which is unknown to old connections.
    let error = world.a.connect(to_b, None).await.err().unwrap();
    assert!(
        matches!(error, ConnectionError::Unreachable { .. }),
        "{error:?}"
    );
    let successor = world.network.bind(Some(to_b), PeerId::new("b/2")).unwrap();
    let dialled = world.a.connect(to_b, None).await.unwrap();
    assert_eq!(dialled.connection.peer_identity().as_str(), "b/2");
    assert!(successor.accept().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn dropped_connections_are_reset_on_both_sides() {
    let world = World::new(MemoryConfig::default());
    let (to_a, to_b) = world.addresses();
    let [a, mut b] = world.connect().await;
    let mut stream = a.connection.open_uni().await.unwrap();
    stream.write_all("arrived".into()).await.unwrap();
    let mut arrived = b.uni.accept().await.unwrap();
    assert_eq!(world.network.drop_connections(to_b, to_a), 1);
    assert_eq!(
        world.network.drop_connections(to_b, to_a),
        0,
        "they are gone"
    );
    for side in [&a, &b] {
        let error = side.connection.closed().await;
        assert!(matches!(error, ConnectionError::Reset), "{error:?}");
    }
    let error = stream.write_all("more".into()).await.unwrap_err();
    assert!(
        matches!(error, StreamError::Connection(ConnectionError::Reset)),
        "{error:?}"
    );
    assert_eq!(arrived.read(100).await.unwrap().unwrap(), "arrived");
    assert!(arrived.read(100).await.is_err());
    world.connect().await;
}

#[tokio::test(start_paused = true)]
async fn links_count_what_is_sent() {
    let world = World::new(MemoryConfig::default());
    let (to_a, to_b) = world.addresses();
    let [a, mut b] = world.connect().await;
    let (mut there, _back) = a.connection.open_bi().await.unwrap();
    there.write_all(vec![0; 300].into()).await.unwrap();
    there.write_all(vec![0; 45].into()).await.unwrap();
    let (mut back, _there) = b.bi.accept().await.unwrap();
    back.write_all(vec![0; 7].into()).await.unwrap();
    let stats = |writes, bytes, streams, connections| LinkStats {
        writes,
        bytes,
        streams,
        connections,
    };
    assert_eq!(world.network.link_stats(to_a, to_b), stats(2, 345, 1, 1));
    assert_eq!(world.network.link_stats(to_b, to_a), stats(1, 7, 0, 0));
    assert_eq!(world.network.total_stats(), stats(3, 352, 1, 1));
    let (a, b) = (a.connection.stats(), b.connection.stats());
    assert_eq!((a.sent_bytes, a.received_bytes), (345, 7));
    assert_eq!((b.sent_bytes, b.received_bytes), (7, 345));
}

#[tokio::test(start_paused = true)]
async fn many_small_writes_take_little_memory() {
    let world = World::new(MemoryConfig::default());
    let [a, mut b] = world.connect().await;
    let mut stream = a.connection.open_uni().await.unwrap();
    for number in 0..100_000_u32 {
        stream.write_all(vec![number as u8].into()).await.unwrap();
    }
    stream.finish().unwrap();
    let mut stream = b.uni.accept().await.unwrap();
    let (mut at, mut chunks) = (0_u32, 0);
    while let Some(chunk) = stream.read(usize::MAX).await.unwrap() {
        for byte in chunk {
            assert_eq!(byte, at as u8);
            at += 1;
        }
        chunks += 1;
    }
    assert_eq!((at, chunks), (100_000, 100_000_usize.div_ceil(4096)));
}

#[tokio::test(start_paused = true)]
async fn writes_in_flight_are_limited() {
    let world = World::new(MemoryConfig::default());
    let (to_a, to_b) = world.addresses();
    let [a, mut b] = world.connect().await;
    world.network.partition(to_a, to_b);
    let mut stream = a.connection.open_uni().await.unwrap();
    let mut written = 0;
    while !is_pending(stream.write_all(Bytes::from_static(b"x"))).await {
        written += 1;
    }
    assert_eq!(written, 1 << 16);
    let write = stream.write_all(Bytes::from_static(b"y"));
    let heal = async { world.network.heal(to_a, to_b) };
    tokio::join!(write, heal).0.unwrap();
    let mut stream = b.uni.accept().await.unwrap();
    let mut bytes = vec![0; (1 << 16) + 1];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes[(1 << 16) - 1..], *b"xy");
}

#[tokio::test(start_paused = true)]
async fn addresses_are_unique_and_a_full_backlog_refuses() {
    let config = MemoryConfig {
        backlog: 2,
        ..Default::default()
    };
    let world = World::new(config);
    let (to_a, to_b) = world.addresses();
    assert_ne!(to_a, to_b);
    let error = world
        .network
        .bind(Some(to_a), PeerId::new("c"))
        .unwrap_err();
    assert!(
        matches!(error, ConnectionError::Bind { address, .. } if address == to_a),
        "{error:?}"
    );

    let _held = [
        world.a.connect(to_b, None).await,
        world.a.connect(to_b, None).await,
    ];
    let error = world.a.connect(to_b, None).await.unwrap_err();
    assert!(
        matches!(error, ConnectionError::Refused { .. }),
        "{error:?}"
    );
    drop(world.b);
    let error = world.a.connect(to_b, None).await.unwrap_err();
    assert!(
        matches!(error, ConnectionError::Unreachable { .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_closes_the_connection() {
    let world = World::new(MemoryConfig::default());
    let [a, mut b] = world.connect().await;
    let mut stream = a.connection.open_uni().await.unwrap();
    stream.write_all("last words".into()).await.unwrap();
    drop(a);
    assert!(
        is_pending(b.connection.closed()).await,
        "the stream holds it"
    );
    drop(stream);
    let error = b.connection.closed().await;
    assert!(
        matches!(error, ConnectionError::ClosedByPeer { code: 0, .. }),
        "{error:?}"
    );
    let mut stream = b.uni.accept().await.unwrap();
    assert_eq!(stream.read(100).await.unwrap().unwrap(), "last words");
    assert_eq!(stream.read(100).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_can_dial_itself() {
    let world = World::new(MemoryConfig::default());
    let to_a = world.a.local_addr();
    let (dialled, accepted) = tokio::join!(world.a.connect(to_a, None), world.a.accept());
    let (dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    send(&dialled.connection, "me").await;
    assert_eq!(receive(&mut accepted).await, "me");
    assert!(world.network.kill(to_a));
    for side in [dialled, accepted] {
        let error = side.connection.closed().await;
        assert!(
            matches!(error, ConnectionError::EndpointClosed),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn closing_an_endpoint_tells_the_peers_it_can_reach() {
    let world = World::new(MemoryConfig::default());
    let (to_a, to_b) = world.addresses();
    let [_a, b] = world.connect().await;
    let cut_off = world.network.bind(None, PeerId::new("cut off")).unwrap();
    let to_cut_off = world.a.connect(cut_off.local_addr(), None).await.unwrap();
    world.network.set_delay(8 * MS, Duration::ZERO);
    world.network.partition(to_a, cut_off.local_addr());
    let start = Instant::now();
    world.a.close(5, "leaving").await;
    assert_eq!(start.elapsed(), 8 * MS);
    let told = b.connection.closed().await;
    assert!(
        matches!(told, ConnectionError::ClosedByPeer { code: 5, .. }),
        "{told:?}"
    );
    let error = to_cut_off.connection.closed().await;
    assert!(matches!(error, ConnectionError::ClosedLocally), "{error:?}");
    let again = world.network.bind(Some(to_a), PeerId::new("a/2"));
    assert_eq!(again.unwrap().local_addr(), to_a, "the address is free");
    assert_eq!(b.connection.remote_addr(), to_a);
    assert_eq!(to_b, world.b.local_addr());
}
