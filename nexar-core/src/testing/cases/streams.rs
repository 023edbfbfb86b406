//! What one stream does.

use crate::{
    testing::{End, Harness, tools::Pattern},
    transport::{BiAcceptor, Connection, RecvStream, SendStream, StreamError, UniAcceptor},
};
use bytes::Bytes;
use std::sync::Arc;

pub async fn order_within_a_stream<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(1);
    // Writes of 1, 2, 3, ... bytes, so that every boundary is at another offset.
    let total = 1100 * 1101 / 2;
    let write = async {
        let mut stream = a.connection.open_uni().await.expect("open");
        let mut at = 0;
        for len in 1..=1100 {
            stream
                .write_all(pattern.piece(at, len))
                .await
                .expect("write");
            at += len;
        }
        stream.finish().expect("finish");
    };
    let read = async {
        let mut stream = b.uni.accept().await.expect("accept");
        pattern.read_to_end(&mut stream, 0, total).await;
    };
    tokio::join!(write, read);
}

pub async fn writing_nothing<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let (mut send, _back) = a.connection.open_bi().await.expect("open");
    send.write_all(Bytes::new()).await.expect("write nothing");
    std::future::poll_fn(|cx| send.poll_write(cx, &mut Bytes::new()))
        .await
        .expect("poll nothing");
    send.write_all("x".into()).await.expect("write");
    send.write_all(Bytes::new())
        .await
        .expect("write nothing again");
    send.finish().expect("finish");
    let (_, mut recv) = b.bi.accept().await.expect("accept");
    assert_eq!(
        recv.read(10).await.expect("read").as_deref(),
        Some(&b"x"[..])
    );
    assert_eq!(recv.read(10).await.expect("read the end"), None);
}

pub async fn an_empty_stream_is_seen<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let mut send = a.connection.open_uni().await.expect("open");
    send.finish().expect("finish");
    let mut recv = b.uni.accept().await.expect("accept");
    assert_eq!(recv.read(10).await.expect("read the end"), None);
    send.acked().await.expect("acknowledged");
}

pub async fn reads_take_at_most_what_was_asked<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(2);
    let mut send = a.connection.open_uni().await.expect("open");
    pattern.write(&mut send, 0, 5000).await;
    send.finish().expect("finish");
    let mut recv = b.uni.accept().await.expect("accept");
    let (mut at, mut max) = (0, 1);
    while at < 5000 {
        let bytes = recv.read(max).await.expect("read").expect("more");
        assert!(
            (1..=max).contains(&bytes.len()),
            "{} bytes where {max} were asked",
            bytes.len()
        );
        assert_eq!(bytes, pattern.piece(at, bytes.len()));
        at += bytes.len();
        max += 1;
    }
    assert_eq!(recv.read(1).await.expect("read the end"), None);
}

pub async fn read_exact_reports_an_early_end<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let mut send = a.connection.open_uni().await.expect("open");
    send.write_all("abcdefg".into()).await.expect("write");
    send.finish().expect("finish");
    let mut recv = b.uni.accept().await.expect("accept");
    let mut buffer = [0; 4];
    recv.read_exact(&mut buffer)
        .await
        .expect("four of seven bytes");
    assert_eq!(&buffer, b"abcd");
    let error = recv
        .read_exact(&mut buffer)
        .await
        .expect_err("three bytes are left");
    assert!(matches!(error, StreamError::UnexpectedEnd), "{error:?}");
}

pub async fn half_close<H: Harness>(_: Arc<H>, a: End<H::Transport>, mut b: End<H::Transport>) {
    let (question, answer) = (Pattern::new(3), Pattern::new(4));
    let ask = async {
        let (mut send, mut recv) = a.connection.open_bi().await.expect("open");
        question.write(&mut send, 0, 100_000).await;
        send.finish().expect("finish");
        answer.read_to_end(&mut recv, 0, 70_000).await;
    };
    let reply = async {
        let (mut send, mut recv) = b.bi.accept().await.expect("accept");
        question.read_to_end(&mut recv, 0, 100_000).await;
        answer.write(&mut send, 0, 70_000).await;
        send.finish().expect("finish");
        send.acked().await.expect("acknowledged");
    };
    tokio::join!(ask, reply);
}

pub async fn both_directions_at_once<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let total = 4 * harness.limits().stream_window + 12_345;
    let (there, back) = (Pattern::new(5), Pattern::new(6));
    let (mut a_send, mut a_recv) = a.connection.open_bi().await.expect("open");
    there.write(&mut a_send, 0, 1).await;
    let (mut b_send, mut b_recv) = b.bi.accept().await.expect("accept");
    tokio::join!(
        async {
            there.write(&mut a_send, 1, total).await;
            a_send.finish().expect("finish");
        },
        async {
            back.write(&mut b_send, 0, total).await;
            b_send.finish().expect("finish");
        },
        there.read_to_end(&mut b_recv, 0, total),
        back.read_to_end(&mut a_recv, 0, total),
    );
}

pub async fn dropped_sender_finishes<H: Harness>(
    _: Arc<H>,
    a: End<H::Transport>,
    mut b: End<H::Transport>,
) {
    let pattern = Pattern::new(7);
    let mut send = a.connection.open_uni().await.expect("open");
    pattern.write(&mut send, 0, 50_000).await;
    drop(send);
    let mut recv = b.uni.accept().await.expect("accept");
    pattern.read_to_end(&mut recv, 0, 50_000).await;
}
