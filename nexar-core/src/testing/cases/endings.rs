//! How streams, connections and endpoints end.

use crate::{
    testing::{
        End, Harness,
        tools::{Pattern, at_most, fill, read_error, write_error},
    },
    transport::{
        BiAcceptor, Connection, ConnectionError, RecvStream, SendStream, StreamError, Transport,
        UniAcceptor,
    },
};
use std::sync::Arc;

pub async fn acknowledged_before_it_is_read<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(21);
    let mut send = a.connection.open_uni().await.expect("open");
    pattern.write(&mut send, 0, 10_000).await;
    send.finish().expect("finish");
    send.acked()
        .await
        .expect("acknowledged although nobody reads");
    send.acked().await.expect("still acknowledged");
    let mut recv = b.uni.accept().await.expect("accept");
    pattern.read_to_end(&mut recv, 0, 10_000).await;
}

pub async fn acknowledged_while_it_is_read<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(22);
    let total = 3 * harness.limits().stream_window;
    let write = async {
        let mut send = a.connection.open_uni().await.expect("open");
        pattern.write(&mut send, 0, total).await;
        send.finish().expect("finish");
        send.acked().await.expect("acknowledged");
    };
    let read = async {
        let mut recv = b.uni.accept().await.expect("accept");
        pattern.read_to_end(&mut recv, 0, total).await;
    };
    tokio::join!(write, read);
}

pub async fn acknowledged_data_survives_a_close<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(26);
    let mut send = a.connection.open_uni().await.expect("open");
    pattern.write(&mut send, 0, 10_000).await;
    let mut recv = b.uni.accept().await.expect("accept");
    pattern.write(&mut send, 10_000, 50_000).await;
    send.finish().expect("finish");
    send.acked().await.expect("acknowledged");
    a.connection.close(1, "done");
    b.connection.closed().await;
    pattern.read_to_end(&mut recv, 0, 50_000).await;
}

pub async fn acknowledged_data_survives_dropped_handles<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(28);
    let mut send = a.connection.open_uni().await.expect("open");
    pattern.write(&mut send, 0, 50_000).await;
    send.finish().expect("finish");
    send.acked().await.expect("acknowledged");
    let End {
        transport: _kept,
        connection,
        uni,
        bi,
    } = a;
    drop((send, connection, uni, bi));
    let end = b.connection.closed().await;
    assert!(
        matches!(end, ConnectionError::ClosedByPeer { code: 0, .. }),
        "{end}"
    );
    let mut recv = b.uni.accept().await.expect("accept");
    pattern.read_to_end(&mut recv, 0, 50_000).await;
}

pub async fn a_close_tells_what_was_acknowledged<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    // Neither end reads or waits before the close, so that the stream has to take it all.
    let total = harness.limits().stream_unread.min(500_000) / 2;
    let pattern = Pattern::new(27);
    for polls in [0, 1, 2, 5, 10, 20, 50, 100, 1000] {
        let (dialled, accepted) = tokio::join!(
            a.transport.connect(b.transport.local_addr(), None),
            b.transport.accept()
        );
        let from = dialled.expect("connect").connection;
        let mut to = accepted.expect("the endpoint is open");
        let mut send = from.open_uni().await.expect("open");
        // The peer knows of the stream.
        pattern.write(&mut send, 0, 10).await;
        let mut recv = to.uni.accept().await.expect("accept");
        pattern.write(&mut send, 10, total).await;
        send.finish().expect("finish");
        let early = at_most(polls, send.acked()).await;
        from.close(95, "now");
        let acked = match early {
            Some(acked) => acked,
            None => send.acked().await,
        };
        assert_closed_by_peer(&to.connection.closed().await, 95, "now");
        match acked {
            Ok(()) => pattern.read_to_end(&mut recv, 0, total).await,
            Err(StreamError::Connection(ConnectionError::ClosedLocally)) => {
                assert_not_cut_short(&mut recv, &pattern, total).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Reads a stream of which not everything may have come: then it must not look complete.
async fn assert_not_cut_short<R: RecvStream>(stream: &mut R, pattern: &Pattern, total: usize) {
    let mut at = 0;
    while let Ok(chunk) = stream.read(total).await {
        let Some(bytes) = chunk else {
            return assert_eq!(at, total, "the stream ended as if complete");
        };
        pattern.check(at, &bytes);
        at += bytes.len();
    }
}

pub async fn finished_streams_take_no_more<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    _b: End<H::Transport>,
) {
    let mut send = a.connection.open_uni().await.expect("open");
    send.write_all("all".into()).await.expect("write");
    send.finish().expect("finish");
    let error = send
        .write_all("more".into())
        .await
        .expect_err("write after finish");
    assert!(matches!(error, StreamError::Closed), "{error:?}");

    let mut send = a.connection.open_uni().await.expect("open");
    send.reset(1);
    let error = send
        .write_all("more".into())
        .await
        .expect_err("write after reset");
    assert!(matches!(error, StreamError::Closed), "{error:?}");
}

pub async fn reset_reaches_the_reader<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    // In the middle of a read.
    let pattern = Pattern::new(23);
    let mut send = a.connection.open_uni().await.expect("open");
    pattern.write(&mut send, 0, 10).await;
    let mut recv = b.uni.accept().await.expect("accept");
    pattern.read(&mut recv, 0, 10).await;
    let (error, ()) = tokio::join!(read_error(&mut recv), async { send.reset(71) });
    assert!(
        matches!(error, StreamError::Reset { code: 71 }),
        "{error:?}"
    );

    // Of a stream that is full.
    let mut send = a.connection.open_uni().await.expect("open");
    fill(&mut send, &pattern, harness.limits().stream_unread).await;
    send.reset(72);
    let mut recv = b.uni.accept().await.expect("accept");
    let error = read_error(&mut recv).await;
    assert!(
        matches!(error, StreamError::Reset { code: 72 }),
        "{error:?}"
    );

    // The other direction of a bidirectional stream goes on.
    let (mut send, mut back) = a.connection.open_bi().await.expect("open");
    send.write_all("x".into()).await.expect("write");
    let (mut reply, mut recv) = b.bi.accept().await.expect("accept");
    send.reset(73);
    let error = read_error(&mut recv).await;
    assert!(
        matches!(error, StreamError::Reset { code: 73 }),
        "{error:?}"
    );
    pattern.write(&mut reply, 0, 1000).await;
    reply.finish().expect("finish");
    pattern.read_to_end(&mut back, 0, 1000).await;
}

pub async fn stop_reaches_the_writer<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    // Of a stream that is full: a waiting writer learns of it.
    let pattern = Pattern::new(24);
    let mut send = a.connection.open_uni().await.expect("open");
    fill(&mut send, &pattern, harness.limits().stream_unread).await;
    let mut recv = b.uni.accept().await.expect("accept");
    let (error, ()) = tokio::join!(write_error(&mut send), async { recv.stop(81) });
    assert!(
        matches!(error, StreamError::Stopped { code: 81 }),
        "{error:?}"
    );
    let error = recv.read(1).await.expect_err("read after stop");
    assert!(matches!(error, StreamError::Closed), "{error:?}");

    // The other direction of a bidirectional stream goes on.
    let (mut send, mut back) = a.connection.open_bi().await.expect("open");
    send.write_all("x".into()).await.expect("write");
    let (mut reply, mut recv) = b.bi.accept().await.expect("accept");
    recv.stop(82);
    let error = write_error(&mut send).await;
    assert!(
        matches!(error, StreamError::Stopped { code: 82 }),
        "{error:?}"
    );
    pattern.write(&mut reply, 0, 1000).await;
    reply.finish().expect("finish");
    pattern.read_to_end(&mut back, 0, 1000).await;
}

pub async fn dropped_receiver_stops<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let mut send = a.connection.open_uni().await.expect("open");
    send.write_all("x".into()).await.expect("write");
    drop(b.uni.accept().await.expect("accept"));
    let error = write_error(&mut send).await;
    assert!(matches!(error, StreamError::Stopped { .. }), "{error:?}");
}

/// Whether the peer closed with this code and reason.
fn assert_closed_by_peer(error: &ConnectionError, code: u64, reason: &str) {
    match error {
        ConnectionError::ClosedByPeer {
            code: found,
            reason: text,
        } => {
            assert_eq!((*found, text.as_str()), (code, reason));
        }
        other => panic!("expected to be closed by the peer, found {other:?}"),
    }
}

pub async fn close_reaches_the_peer<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    a.connection.close(90, "the reason");
    for _ in 0..2 {
        assert_closed_by_peer(&b.connection.closed().await, 90, "the reason");
        let error = a.connection.closed().await;
        assert!(matches!(error, ConnectionError::ClosedLocally), "{error:?}");
    }
    let error = b
        .connection
        .open_uni()
        .await
        .expect_err("open on a closed connection");
    assert_closed_by_peer(&error, 90, "the reason");
    let error = a
        .connection
        .open_bi()
        .await
        .expect_err("open on a closed connection");
    assert!(matches!(error, ConnectionError::ClosedLocally), "{error:?}");
    // A second close changes nothing.
    a.connection.close(91, "too late");
    b.connection.close(92, "too late");
    assert_closed_by_peer(&b.connection.closed().await, 90, "the reason");
}

pub async fn close_ends_what_is_pending<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(25);
    let (mut full, mut silent) = b.connection.open_bi().await.expect("open");
    fill(&mut full, &pattern, harness.limits().stream_unread).await;
    let (write, read, uni, bi, closed, ()) = tokio::join!(
        write_error(&mut full),
        read_error(&mut silent),
        async { b.uni.accept().await.expect_err("no stream was opened") },
        async { b.bi.accept().await.expect_err("no stream was opened") },
        b.connection.closed(),
        async { a.connection.close(93, "enough") },
    );
    for error in [write, read] {
        match error {
            StreamError::Connection(error) => assert_closed_by_peer(&error, 93, "enough"),
            other => panic!("expected the end of the connection, found {other:?}"),
        }
    }
    for error in [uni, bi, closed] {
        assert_closed_by_peer(&error, 93, "enough");
    }
}

pub async fn closed_endpoint<H: Harness>(_: Arc<H>, a: End<H::Transport>, b: End<H::Transport>) {
    let accept = a.transport.accept();
    let (accepted, ()) = tokio::join!(accept, a.transport.close(94, "leaving"));
    assert!(accepted.is_none(), "a closed endpoint accepts nothing");
    assert!(
        a.transport.accept().await.is_none(),
        "a closed endpoint accepts nothing"
    );
    let error = a.connection.closed().await;
    assert!(matches!(error, ConnectionError::ClosedLocally), "{error:?}");
    assert_closed_by_peer(&b.connection.closed().await, 94, "leaving");
    let dial = a.transport.connect(b.transport.local_addr(), None).await;
    let error = dial.expect_err("a closed endpoint dials nobody");
    assert!(
        matches!(error, ConnectionError::EndpointClosed),
        "{error:?}"
    );
}
