//! Flow control and the limit on concurrent streams.

use crate::{
    testing::{
        End, Harness,
        tools::{Pattern, fill, join_all, poll_once, unless_stuck},
    },
    transport::{BiAcceptor, Connection, RecvStream, SendStream, Transport, UniAcceptor},
};
use std::sync::Arc;
use tokio::sync::Mutex;

type SendStreamOf<T> = <<T as Transport>::Connection as Connection>::SendStream;

/// One stream with `total` bytes, written and read at the same time.
async fn transfer<H: Harness>(a: End<H::Transport>, mut b: End<H::Transport>, total: usize) {
    let pattern = Pattern::new(11);
    let write = async {
        let mut stream = a.connection.open_uni().await.expect("open");
        pattern.write(&mut stream, 0, total).await;
        stream.finish().expect("finish");
        stream.acked().await.expect("acknowledged");
    };
    let read = async {
        let mut stream = b.uni.accept().await.expect("accept");
        pattern.read_to_end(&mut stream, 0, total).await;
    };
    tokio::join!(write, read);
}

pub async fn one_byte_more_than_a_window<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    transfer::<H>(a, b, harness.limits().stream_window + 1).await;
}

pub async fn sixty_four_mebibytes<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    transfer::<H>(a, b, 64 << 20).await;
}

pub async fn a_stalled_stream_delays_no_other<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let limit = harness.limits().stream_unread;
    let (stalled, live) = (Pattern::new(12), Pattern::new(13));
    let mut first = a.connection.open_uni().await.expect("open");
    let taken = fill(&mut first, &stalled, limit).await;
    let mut unread = b.uni.accept().await.expect("accept");
    for _ in 0..10 {
        let write = async {
            let mut send = a.connection.open_uni().await.expect("open");
            live.write(&mut send, 0, 200_000).await;
            send.finish().expect("finish");
            send.acked().await.expect("acknowledged");
        };
        let read = async {
            let mut recv = b.uni.accept().await.expect("accept");
            live.read_to_end(&mut recv, 0, 200_000).await;
        };
        tokio::join!(write, read);
    }
    first.finish().expect("finish");
    stalled.read_to_end(&mut unread, 0, taken).await;
}

pub async fn back_pressure_bounds_a_stream<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(14);
    let mut send = a.connection.open_uni().await.expect("open");
    let taken = fill(&mut send, &pattern, harness.limits().stream_unread).await;
    let total = 2 * taken + 1;
    let mut recv = b.uni.accept().await.expect("accept");
    let write = async {
        pattern.write(&mut send, taken, total).await;
        send.finish().expect("finish");
    };
    tokio::join!(write, pattern.read_to_end(&mut recv, 0, total));
}

/// More streams than a connection takes data of, each written to until it pushes back while nobody reads.
async fn fill_connection<H: Harness>(
    harness: &H,
    a: &End<H::Transport>,
) -> Vec<(Pattern, SendStreamOf<H::Transport>, usize)> {
    let limits = harness.limits();
    let mut left = limits.connection_unread;
    let mut streams = Vec::new();
    // Enough streams to pass the limit if nothing but their own windows held them.
    for number in 0..limits.connection_unread / limits.stream_unread + 2 {
        let pattern = Pattern::new(number as u64);
        let mut send = a.connection.open_uni().await.expect("open");
        let taken = fill(&mut send, &pattern, left).await;
        left -= taken;
        streams.push((pattern, send, taken));
    }
    streams
}

pub async fn back_pressure_bounds_a_connection<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let streams = fill_connection(&*harness, &a).await;
    // The lock is fair: the streams are accepted in the order in which they were opened.
    let uni = &Mutex::new(&mut b.uni);
    join_all(
        streams
            .into_iter()
            .map(|(pattern, mut send, taken)| async move {
                let write = async {
                    pattern.write(&mut send, taken, taken + 1000).await;
                    send.finish().expect("finish");
                };
                let read = async {
                    let mut recv = uni.lock().await.accept().await.expect("accept");
                    pattern.read_to_end(&mut recv, 0, taken + 1000).await;
                };
                tokio::join!(write, read);
            }),
    )
    .await;
}

pub async fn a_full_connection_starves_no_reader<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    for (pattern, mut send, taken) in fill_connection(&*harness, &a).await {
        let write = async {
            pattern.write(&mut send, taken, taken + 1000).await;
            send.finish().expect("finish");
        };
        let read = async {
            let mut recv = b.uni.accept().await.expect("accept");
            pattern.read_to_end(&mut recv, 0, taken + 1000).await;
        };
        tokio::join!(write, read);
    }
}

pub async fn dropped_write_leaves_the_stream_usable<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(15);
    let mut send = a.connection.open_uni().await.expect("open");
    // `fill` itself ends with a write that is dropped.
    let mut at = fill(&mut send, &pattern, harness.limits().stream_unread).await;
    let start = at;
    for _ in 0..100 {
        let mut piece = pattern.piece(at, 1000);
        let len = piece.len();
        let write = std::future::poll_fn(|cx| send.poll_write(cx, &mut piece));
        if let Some(result) = poll_once(write).await {
            result.expect("write");
        }
        at += len - piece.len();
    }
    let mut recv = b.uni.accept().await.expect("accept");
    let total = start + 500_000;
    let write = async {
        pattern.write(&mut send, at, total).await;
        send.finish().expect("finish");
    };
    tokio::join!(write, pattern.read_to_end(&mut recv, 0, total));
}

pub async fn dropped_read_leaves_the_stream_usable<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(16);
    let mut send = a.connection.open_uni().await.expect("open");
    pattern.write(&mut send, 0, 1).await;
    let mut recv = b.uni.accept().await.expect("accept");
    pattern.read(&mut recv, 0, 1).await;
    assert!(poll_once(recv.read(10)).await.is_none(), "nothing was sent");
    let mut read = 1;
    for written in 2..300 {
        pattern.write(&mut send, written - 1, written).await;
        if let Some(result) = poll_once(recv.read(1)).await {
            let bytes = result.expect("read").expect("the stream goes on");
            assert_eq!(bytes, pattern.piece(read, bytes.len()));
            read += bytes.len();
        }
        tokio::task::yield_now().await;
    }
    send.finish().expect("finish");
    pattern.read_to_end(&mut recv, read, 299).await;
}

pub async fn a_thousand_streams<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let write = async {
        for number in 0..1000_u32 {
            let mut send = a.connection.open_uni().await.expect("open");
            send.write_all(number.to_le_bytes().to_vec().into())
                .await
                .expect("write");
            send.finish().expect("finish");
        }
    };
    let read = async {
        for number in 0..1000_u32 {
            let mut recv = b.uni.accept().await.expect("accept");
            let mut bytes = [0; 4];
            recv.read_exact(&mut bytes).await.expect("read");
            assert_eq!(u32::from_le_bytes(bytes), number);
            assert_eq!(recv.read(1).await.expect("read the end"), None);
        }
    };
    tokio::join!(write, read);
}

pub async fn stream_limit_waits<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let mut uni = Vec::new();
    let mut bi = Vec::new();
    for _ in 0..harness.limits().max_streams {
        uni.push(a.connection.open_uni().await.expect("open"));
        bi.push(a.connection.open_bi().await.expect("open"));
    }
    let one_more = unless_stuck(a.connection.open_uni()).await;
    assert!(
        one_more.is_none(),
        "a unidirectional stream beyond the limit"
    );
    let one_more = unless_stuck(a.connection.open_bi()).await;
    assert!(
        one_more.is_none(),
        "a bidirectional stream beyond the limit"
    );

    // A transport may let the peer know of ended streams in groups.
    let end_all = async {
        for mut send in uni {
            send.finish().expect("finish");
            let mut recv = b.uni.accept().await.expect("accept");
            assert_eq!(recv.read(1).await.expect("read the end"), None);
        }
        for (mut send, mut recv) in bi {
            send.finish().expect("finish");
            let (mut back, mut there) = b.bi.accept().await.expect("accept");
            assert_eq!(there.read(1).await.expect("read the end"), None);
            back.finish().expect("finish");
            assert_eq!(recv.read(1).await.expect("read the end"), None);
        }
    };
    let (uni, bi, ()) = tokio::join!(a.connection.open_uni(), a.connection.open_bi(), end_all);
    uni.expect("a stream after others have ended");
    bi.expect("a stream after others have ended");
}

pub async fn abandoned_streams_free_the_limit<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let rounds = 3 * harness.limits().max_streams;
    let write = async {
        for round in 0..rounds {
            let mut send = a.connection.open_uni().await.expect("open");
            // A stream that is stopped meanwhile need not take it.
            let _ = send.write_all("abandoned".into()).await;
            match round % 3 {
                0 => send.reset(1),
                1 => drop(send),
                _ => drop(send.finish()),
            }
        }
    };
    let read = async {
        for round in 0..rounds {
            let mut recv = b.uni.accept().await.expect("accept");
            match round % 2 {
                0 => recv.stop(2),
                _ => drop(recv),
            }
        }
    };
    tokio::join!(write, read);
}
