//! Acceptors, dialling, identities and counters.

use crate::{
    testing::{
        End, Harness,
        tools::{Pattern, poll_once},
    },
    transport::{
        BiAcceptor, Connection, ConnectionError, NewConnection, PeerId, RecvStream, SendStream,
        Transport, UniAcceptor,
    },
};
use std::{sync::Arc, time::Duration};

/// Sends one stream with `text` over a connection and reads it at the other end.
pub(super) async fn exchange<C: Connection>(
    from: &mut NewConnection<C>,
    to: &mut NewConnection<C>,
    text: &'static str,
) {
    let mut send = from.connection.open_uni().await.expect("open");
    send.write_all(text.into()).await.expect("write");
    send.finish().expect("finish");
    let mut recv = to.uni.accept().await.expect("accept");
    let mut bytes = vec![0; text.len()];
    recv.read_exact(&mut bytes).await.expect("read");
    assert_eq!(bytes, text.as_bytes());
    assert_eq!(recv.read(1).await.expect("read the end"), None);
}

pub async fn accepts_in_the_order_of_opening<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let mut uni = Vec::new();
    let mut bi = Vec::new();
    for _ in 0..20 {
        uni.push(a.connection.open_uni().await.expect("open"));
        bi.push(a.connection.open_bi().await.expect("open"));
    }
    // The last one opened writes first.
    for number in (0..20_u8).rev() {
        let at = usize::from(number);
        uni[at].write_all(vec![number].into()).await.expect("write");
        bi[at]
            .0
            .write_all(vec![number + 100].into())
            .await
            .expect("write");
    }
    let mut byte = [0];
    for number in 0..20 {
        let mut recv = b.uni.accept().await.expect("accept");
        recv.read_exact(&mut byte).await.expect("read");
        assert_eq!(byte, [number]);
    }
    for number in 0..20 {
        let (_send, mut recv) = b.bi.accept().await.expect("accept");
        recv.read_exact(&mut byte).await.expect("read");
        assert_eq!(byte, [number + 100]);
    }
}

pub async fn acceptors_are_cancel_safe<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let open = async {
        for number in 0..50_u8 {
            let mut send = a.connection.open_uni().await.expect("open");
            send.write_all(vec![number].into()).await.expect("write");
            let (mut send, _recv) = a.connection.open_bi().await.expect("open");
            send.write_all(vec![number].into()).await.expect("write");
        }
    };
    // Every accept is polled once, and dropped unless it is ready.
    let accept = async {
        let (mut uni, mut bi) = (0, 0);
        let mut byte = [0];
        while uni < 50 || bi < 50 {
            if let Some(stream) = poll_once(b.uni.accept()).await {
                stream
                    .expect("accept")
                    .read_exact(&mut byte)
                    .await
                    .expect("read");
                assert_eq!(byte, [uni]);
                uni += 1;
            }
            if let Some(stream) = poll_once(b.bi.accept()).await {
                let (_send, mut recv) = stream.expect("accept");
                recv.read_exact(&mut byte).await.expect("read");
                assert_eq!(byte, [bi]);
                bi += 1;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(open, accept);
}

pub async fn accepting_connections_is_cancel_safe<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let dial = async {
        let mut dialled = Vec::new();
        for _ in 0..5 {
            let new = a.transport.connect(b.transport.local_addr(), None).await;
            dialled.push(new.expect("connect"));
        }
        dialled
    };
    let accept = async {
        let mut accepted = Vec::new();
        while accepted.len() < 5 {
            if let Some(new) = poll_once(b.transport.accept()).await {
                accepted.push(new.expect("the endpoint is open"));
            }
            tokio::task::yield_now().await;
        }
        accepted
    };
    let (mut dialled, mut accepted) = tokio::join!(dial, accept);
    for (from, to) in dialled.iter_mut().zip(&mut accepted) {
        exchange(from, to, "one of five").await;
    }
}

pub async fn dropped_open_opens_nothing<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let mut held = Vec::new();
    for _ in 0..harness.limits().max_streams {
        held.push(a.connection.open_uni().await.expect("open"));
    }
    for _ in 0..10 {
        let opened = poll_once(a.connection.open_uni()).await;
        assert!(opened.is_none(), "a stream beyond the limit");
    }
    // The next stream that the peer sees is the one that was opened, not one that was dropped.
    let rounds = held.len() + 1;
    let write = async {
        for (number, mut send) in held.into_iter().enumerate() {
            send.write_all(number.to_le_bytes().to_vec().into())
                .await
                .expect("write");
        }
        let mut send = a.connection.open_uni().await.expect("open");
        send.write_all((rounds - 1).to_le_bytes().to_vec().into())
            .await
            .expect("write");
    };
    let read = async {
        for number in 0..rounds {
            let mut recv = b.uni.accept().await.expect("accept");
            let mut bytes = [0; size_of::<usize>()];
            recv.read_exact(&mut bytes).await.expect("read");
            assert_eq!(usize::from_le_bytes(bytes), number);
            assert_eq!(recv.read(1).await.expect("read the end"), None);
        }
    };
    tokio::join!(write, read);
}

pub async fn identity_of_the_peer<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    assert_ne!(a.transport.identity(), b.transport.identity());
    assert_eq!(a.connection.peer_identity(), b.transport.identity());
    assert_eq!(b.connection.peer_identity(), a.transport.identity());
    assert_eq!(
        a.connection.remote_addr().port(),
        b.transport.local_addr().port()
    );
    assert_eq!(
        b.connection.remote_addr().port(),
        a.transport.local_addr().port()
    );
}

pub async fn wrong_peer<H: Harness>(_: Arc<H>, a: End<H::Transport>, b: End<H::Transport>) {
    let somebody_else = PeerId::new("somebody else");
    let address = b.transport.local_addr();
    let dial = a.transport.connect(address, Some(&somebody_else)).await;
    match dial.expect_err("the peer is somebody else") {
        ConnectionError::WrongPeer { expected, found } => {
            assert_eq!(expected, somebody_else);
            assert_eq!(&found, b.transport.identity());
        }
        other => panic!("expected another peer to be found, got {other:?}"),
    }
    // The right one is still reached.
    let dial = async {
        let new = a
            .transport
            .connect(address, Some(b.transport.identity()))
            .await
            .expect("connect");
        let mut send = new.connection.open_uni().await.expect("open");
        send.write_all("the right one".into()).await.expect("write");
        send.finish().expect("finish");
        send.acked().await.expect("acknowledged");
    };
    let accept = async {
        // The acceptor may have seen the connection that its dialler gave up.
        let (new, mut recv) = loop {
            let mut new = b.transport.accept().await.expect("the endpoint is open");
            if let Ok(recv) = new.uni.accept().await {
                break (new, recv);
            }
        };
        let mut bytes = [0; 13];
        recv.read_exact(&mut bytes).await.expect("read");
        assert_eq!(&bytes, b"the right one");
        // A stream that is dropped before its end is stopped.
        assert_eq!(recv.read(1).await.expect("read the end"), None);
        new
    };
    // The connection lives until both are done.
    let _new = tokio::join!(dial, accept);
}

pub async fn nobody_listens<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let limit = harness.limits().connect_time;
    let dead = harness.dead_address();
    let dial = a.transport.connect(dead.address(), None);
    let result = tokio::time::timeout(limit, dial).await;
    let error = result
        .expect("an answer in time")
        .expect_err("nobody listens there");
    assert!(
        matches!(
            error,
            ConnectionError::TimedOut
                | ConnectionError::Unreachable { .. }
                | ConnectionError::Refused { .. }
        ),
        "{error:?}"
    );
    // The other connection is not affected.
    let mut send = a.connection.open_uni().await.expect("open");
    send.write_all("still here".into()).await.expect("write");
    let mut bytes = [0; 10];
    b.uni
        .accept()
        .await
        .expect("accept")
        .read_exact(&mut bytes)
        .await
        .expect("read");
    assert_eq!(&bytes, b"still here");
}

pub async fn both_ends_dial_at_once<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let (a_dials, b_dials, a_accepts, b_accepts) = tokio::join!(
        a.transport
            .connect(b.transport.local_addr(), Some(b.transport.identity())),
        b.transport
            .connect(a.transport.local_addr(), Some(a.transport.identity())),
        a.transport.accept(),
        b.transport.accept(),
    );
    let (mut a_dials, mut b_dials) = (a_dials.expect("connect"), b_dials.expect("connect"));
    let (mut a_accepts, mut b_accepts) = (a_accepts.expect("accept"), b_accepts.expect("accept"));
    exchange(&mut a_dials, &mut b_accepts, "dialled by the one").await;
    exchange(&mut b_dials, &mut a_accepts, "dialled by the other").await;
    exchange(&mut b_accepts, &mut a_dials, "and back").await;
    exchange(&mut a_accepts, &mut b_dials, "and back again").await;
}

pub async fn a_dropped_dial_leaves_the_endpoint_usable<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    for _ in 0..10 {
        // Nobody listens there, so that it cannot succeed at once.
        let dead = harness.dead_address();
        drop(poll_once(a.transport.connect(dead.address(), None)).await);
    }
    let (dialled, accepted) = tokio::join!(
        a.transport
            .connect(b.transport.local_addr(), Some(b.transport.identity())),
        b.transport.accept()
    );
    exchange(
        &mut dialled.expect("connect"),
        &mut accepted.expect("accept"),
        "after ten",
    )
    .await;
}

pub async fn statistics<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    const TOTAL: usize = 1 << 20;
    /// What the counters may show beyond the data itself: headers, acknowledgements, repetitions.
    const MOST: u64 = 8 * TOTAL as u64;
    let pattern = Pattern::new(31);
    let before = (a.connection.stats(), b.connection.stats());
    let write = async {
        let mut send = a.connection.open_uni().await.expect("open");
        pattern.write(&mut send, 0, TOTAL).await;
        send.finish().expect("finish");
        send.acked().await.expect("acknowledged");
    };
    let read = async {
        let mut recv = b.uni.accept().await.expect("accept");
        pattern.read_to_end(&mut recv, 0, TOTAL).await;
    };
    tokio::join!(write, read);
    // In this order: nothing is received that was not sent before.
    let received = b.connection.stats();
    let sent = a.connection.clone().stats();

    // A transport may leave a counter at zero; one that counts must count right.
    let known = harness.statistics();
    if known.bytes || sent.sent_bytes > 0 {
        let bytes = sent.sent_bytes - before.0.sent_bytes;
        assert!((TOTAL as u64..MOST).contains(&bytes), "sent {bytes} bytes");
    }
    if known.bytes || received.received_bytes > 0 {
        let bytes = received.received_bytes - before.1.received_bytes;
        assert!(
            (TOTAL as u64..MOST).contains(&bytes),
            "received {bytes} bytes"
        );
    }
    for (end, stats) in [("writer", sent), ("reader", received)] {
        assert!(stats.rtt > Duration::ZERO || !known.rtt, "{end}: no rtt");
        assert!(stats.rtt < Duration::from_secs(10), "{end}: {stats:?}");
        // QUIC assumes 1,200 bytes at least.
        let mtu = stats.mtu;
        assert!(mtu >= 1200 || (mtu == 0 && !known.mtu), "{end}: {stats:?}");
    }
    if sent.sent_bytes > 0 {
        assert!(received.received_bytes <= sent.sent_bytes, "{received:?}");
        assert!(b.connection.stats().sent_bytes <= MOST);
    }
}
