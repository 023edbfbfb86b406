//! All endpoints exchange data with each other at once.

use super::{MemoryConfig, MemoryConnection, MemoryNetwork};
use crate::transport::{
    Connection, NewConnection, PeerId, RecvStream, SendStream, Transport, UniAcceptor,
};
use std::time::Duration;

/// Every endpoint sends to every other on three streams, through windows far smaller than the content.
async fn exchange_all(delay: Duration) {
    const RANKS: u8 = 8;
    const LEN: usize = 60_000;
    let config = MemoryConfig {
        stream_window: 5000,
        connection_window: 11_000,
        ..Default::default()
    };
    let network = MemoryNetwork::with_config(9, config);
    network.set_delay(delay, delay);
    let bind = |rank: u8| network.bind(None, PeerId::new(&rank.to_string())).unwrap();
    let transports: Vec<_> = (0..RANKS).map(bind).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for from in 0..RANKS {
        for to in from + 1..RANKS {
            let [a, b] = [from, to].map(|rank| &transports[usize::from(rank)]);
            let (a_end, b_end) = tokio::join!(a.connect(b.local_addr(), None), b.accept());
            tasks.spawn(exchange(a_end.unwrap(), from, to, LEN));
            tasks.spawn(exchange(b_end.unwrap(), to, from, LEN));
        }
    }
    // The connections live until everybody is done: closing overtakes acknowledgements.
    let _connections = tasks.join_all().await;
    let pairs = u64::from(RANKS) * u64::from(RANKS - 1);
    let stats = network.total_stats();
    assert_eq!(
        (stats.bytes, stats.streams),
        (3 * pairs * LEN as u64, 3 * pairs)
    );
    assert_eq!(stats.connections, pairs / 2);
}

async fn exchange(
    new: NewConnection<MemoryConnection>,
    own: u8,
    peer: u8,
    len: usize,
) -> MemoryConnection {
    let NewConnection {
        connection,
        mut uni,
        ..
    } = new;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let mut send = connection.open_uni().await.unwrap();
        tasks.spawn(async move {
            send.write_all(vec![own; len].into()).await.unwrap();
            send.finish().unwrap();
            send.acked().await.unwrap();
        });
    }
    for _ in 0..3 {
        let mut recv = uni.accept().await.unwrap();
        tasks.spawn(async move {
            let mut bytes = vec![0; len];
            recv.read_exact(&mut bytes).await.unwrap();
            assert!(bytes.iter().all(|byte| *byte == peer));
            assert_eq!(recv.read(1).await.unwrap(), None);
        });
    }
    tasks.join_all().await;
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_to_all_on_several_threads() {
    exchange_all(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_to_all_on_several_threads_with_delays() {
    exchange_all(Duration::from_micros(200)).await;
}

#[tokio::test(start_paused = true)]
async fn all_to_all_on_paused_time() {
    exchange_all(Duration::from_millis(5)).await;
}
