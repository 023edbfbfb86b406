//! Two quinn endpoints over loopback.
#![cfg(feature = "quinn")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are not inside #[test]"
)]

mod common;

use common::*;
use nexar_core::transport::{
    BiAcceptor, Connection, ConnectionError, PeerId, RecvStream, SendStream, StreamError,
    Transport, UniAcceptor,
};
use nexar_quic::{Identity, QuinnTransport};

#[tokio::test]
async fn each_side_knows_who_the_other_is() {
    let (a, b) = two();
    let expected = b.identity().clone();
    let (dialled, accepted) = tokio::join!(a.connect(b.local_addr(), Some(&expected)), b.accept());
    let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());
    assert_eq!(dialled.connection.peer_identity(), b.identity());
    assert_eq!(accepted.connection.peer_identity(), a.identity());
    assert_eq!(dialled.connection.remote_addr(), b.local_addr());
    assert_eq!(accepted.connection.remote_addr(), a.local_addr());
    close(a, b).await;
}

#[tokio::test]
async fn dialling_somebody_else_is_an_error_on_both_sides() {
    let (a, b) = two();
    let expected = PeerId::new("test/nobody/1");
    let (dialled, accepted) = tokio::join!(a.connect(b.local_addr(), Some(&expected)), b.accept());
    match dialled.unwrap_err() {
        ConnectionError::WrongPeer {
            expected: wanted,
            found,
        } => {
            assert_eq!((wanted, &found), (expected, b.identity()));
        }
        other => panic!("{other:?}"),
    }
    let error = accepted.unwrap().connection.closed().await;
    assert!(
        matches!(error, ConnectionError::ClosedByPeer { code: 0, .. }),
        "{error:?}"
    );
    close(a, b).await;
}

#[tokio::test]
async fn datagrams_are_as_large_as_the_path_allows_from_the_start() {
    let (a, b) = two();
    let (dialled, accepted) = connect(&a, &b).await;
    if cfg!(target_os = "linux") {
        assert_eq!(dialled.connection.stats().mtu, 65_507);
        assert_eq!(accepted.connection.stats().mtu, 65_507);
    }
    close(a, b).await;
}

async fn transfer(total: u64, chunk: usize) {
    let (a, b) = two();
    let (mut left, mut right) = connect(&a, &b).await;
    let one = async {
        let mut send = left.connection.open_uni().await.unwrap();
        let sending = async {
            send_pattern(&mut send, 1, total, chunk).await.unwrap();
            send.acked().await.unwrap();
        };
        let receiving = async {
            let mut recv = left.uni.accept().await.unwrap();
            check_pattern(&mut recv, 2).await.unwrap()
        };
        tokio::join!(sending, receiving).1
    };
    let other = async {
        let mut send = right.connection.open_uni().await.unwrap();
        let sending = async {
            send_pattern(&mut send, 2, total, chunk).await.unwrap();
            send.acked().await.unwrap();
        };
        let receiving = async {
            let mut recv = right.uni.accept().await.unwrap();
            check_pattern(&mut recv, 1).await.unwrap()
        };
        tokio::join!(sending, receiving).1
    };
    assert_eq!(tokio::join!(one, other), (total, total));
    let stats = left.connection.stats();
    assert!(
        stats.sent_bytes > total && stats.received_bytes > total,
        "{stats:?}"
    );
    close(a, b).await;
}

#[tokio::test]
async fn both_ways_256_mib_arrive_exactly() {
    transfer(256 << 20, 1 << 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_chunks_arrive_exactly_on_a_multi_thread_runtime() {
    transfer((32 << 20) + 13, 77_777).await;
}

#[tokio::test]
async fn a_thousand_streams_at_a_time() {
    let (a, b) = two();
    let (left, mut right) = connect(&a, &b).await;
    let mut open = Vec::new();
    for i in 0..1_000u64 {
        let mut send = left.connection.open_uni().await.unwrap();
        send.write_all(pattern(i, 0, 100)).await.unwrap();
        open.push(send);
    }
    let mut received = Vec::new();
    for _ in 0..1_000 {
        received.push(right.uni.accept().await.unwrap());
    }
    for (i, send) in open.iter_mut().enumerate() {
        send.write_all(pattern(i as u64, 100, 23)).await.unwrap();
        send.finish().unwrap();
    }
    for (i, recv) in received.iter_mut().enumerate() {
        assert_eq!(check_pattern(recv, i as u64).await.unwrap(), 123);
    }
    close(a, b).await;
}

#[tokio::test]
async fn at_the_limit_of_streams_opening_waits() {
    let b = QuinnTransport::bind(config(identity(7)).max_streams(2, 2)).unwrap();
    let a = bind(identity(7));
    let (left, mut right) = connect(&a, &b).await;
    let mut streams = Vec::new();
    for i in 0..2u8 {
        let mut send = left.connection.open_uni().await.unwrap();
        send.write_all(vec![i].into()).await.unwrap();
        streams.push(send);
    }
    let third = left.connection.open_uni();
    tokio::pin!(third);
    let first = async {
        let mut recv = right.uni.accept().await.unwrap();
        assert_eq!(recv.read(10).await.unwrap().unwrap()[..], [0]);
        streams[0].finish().unwrap();
        assert_eq!(recv.read(10).await.unwrap(), None);
    };
    tokio::select! {
        biased;
        _ = &mut third => panic!("opened beyond the limit"),
        () = first => {}
    }
    third.await.unwrap();
    close(a, b).await;
}

#[tokio::test]
async fn bidirectional_streams_carry_both_ways() {
    let (a, b) = two();
    let (left, mut right) = connect(&a, &b).await;
    let (mut send, mut recv) = left.connection.open_bi().await.unwrap();
    send.write_all("question".into()).await.unwrap();
    send.finish().unwrap();
    let (mut answer, mut question) = right.bi.accept().await.unwrap();
    assert_eq!(read_to_end(&mut question).await.unwrap(), b"question");
    answer.write_all("answer".into()).await.unwrap();
    answer.finish().unwrap();
    assert_eq!(read_to_end(&mut recv).await.unwrap(), b"answer");
    close(a, b).await;
}

#[tokio::test]
async fn a_reset_reaches_the_reader_with_its_code() {
    let (a, b) = two();
    let (left, mut right) = connect(&a, &b).await;
    let mut send = left.connection.open_uni().await.unwrap();
    send.write_all("x".into()).await.unwrap();
    let mut recv = right.uni.accept().await.unwrap();
    assert_eq!(recv.read(10).await.unwrap().unwrap()[..], *b"x");
    send.reset((1 << 62) - 2);
    for _ in 0..2 {
        let error = recv.read(10).await.unwrap_err();
        assert!(
            matches!(error, StreamError::Reset { code } if code == (1 << 62) - 2),
            "{error}"
        );
    }
    assert!(matches!(
        send.write_all("y".into()).await,
        Err(StreamError::Closed)
    ));
    assert!(matches!(send.acked().await, Err(StreamError::Closed)));
    assert!(matches!(send.finish(), Err(StreamError::Closed)));
    close(a, b).await;
}

#[tokio::test]
async fn a_stop_reaches_the_writer_with_its_code() {
    let (a, b) = two();
    let (left, mut right) = connect(&a, &b).await;
    let mut send = left.connection.open_uni().await.unwrap();
    send.write_all("x".into()).await.unwrap();
    let mut recv = right.uni.accept().await.unwrap();
    recv.stop(42);
    assert!(matches!(recv.read(10).await, Err(StreamError::Closed)));
    let endless = async {
        loop {
            if let Err(error) = send.write_all(pattern(0, 0, 1 << 16)).await {
                break error;
            }
        }
    };
    let error = endless.await;
    assert!(
        matches!(error, StreamError::Stopped { code: 42 }),
        "{error}"
    );
    close(a, b).await;
}

#[tokio::test]
async fn a_writer_is_pushed_back_by_a_reader_that_does_not_read() {
    let b = QuinnTransport::bind(config(identity(7)).stream_window(1 << 20)).unwrap();
    let a = bind(identity(7));
    let (left, mut right) = connect(&a, &b).await;
    let mut send = left.connection.open_uni().await.unwrap();
    let mut written = 0u64;
    let mut recv = {
        let writing = async {
            loop {
                send.write_all(pattern(5, written, 1 << 16)).await.unwrap();
                written += 1 << 16;
            }
        };
        tokio::pin!(writing);
        // Another stream still gets through while the first is stalled.
        let other = async {
            let first = right.uni.accept().await.unwrap();
            let mut send = left.connection.open_uni().await.unwrap();
            send.write_all("past it".into()).await.unwrap();
            send.finish().unwrap();
            let mut recv = right.uni.accept().await.unwrap();
            assert_eq!(read_to_end(&mut recv).await.unwrap(), b"past it");
            first
        };
        tokio::select! {
            () = &mut writing => unreachable!(),
            first = other => first,
        }
    };
    assert!(written <= 1 << 20, "{written}");
    // A part of the last chunk may be written too.
    drop(send);
    assert!(check_pattern(&mut recv, 5).await.unwrap() >= written);
    close(a, b).await;
}

#[tokio::test]
async fn close_codes_and_reasons_arrive() {
    let (a, b) = two();
    let (left, mut right) = connect(&a, &b).await;
    left.connection.close(77, "going away");
    for _ in 0..2 {
        match right.connection.closed().await {
            ConnectionError::ClosedByPeer { code, reason } => {
                assert_eq!((code, reason.as_str()), (77, "going away"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(
        left.connection.closed().await,
        ConnectionError::ClosedLocally
    ));
    let error = right.uni.accept().await.unwrap_err();
    assert!(
        matches!(error, ConnectionError::ClosedByPeer { code: 77, .. }),
        "{error}"
    );
    assert!(left.connection.open_uni().await.is_err());
    close(a, b).await;
}

#[tokio::test]
async fn what_had_arrived_can_be_read_after_the_close() {
    let (a, b) = two();
    let (left, mut right) = connect(&a, &b).await;
    let mut send = left.connection.open_uni().await.unwrap();
    send.write_all("last words".into()).await.unwrap();
    send.finish().unwrap();
    send.acked().await.unwrap();
    left.connection.close(1, "");
    right.connection.closed().await;
    let mut recv = right.uni.accept().await.unwrap();
    assert_eq!(read_to_end(&mut recv).await.unwrap(), b"last words");
    close(a, b).await;
}

#[tokio::test]
async fn closing_the_transport_tells_the_peers_and_ends_accept() {
    let (a, b) = two();
    let (left, right) = connect(&a, &b).await;
    let accepting = a.accept();
    let closing = a.close(5, "leaving");
    let (none, ()) = tokio::join!(accepting, closing);
    assert!(none.is_none() && a.accept().await.is_none());
    assert!(matches!(
        left.connection.closed().await,
        ConnectionError::ClosedLocally
    ));
    match right.connection.closed().await {
        ConnectionError::ClosedByPeer { code, reason } => {
            assert_eq!((code, reason.as_str()), (5, "leaving"));
        }
        other => panic!("{other:?}"),
    }
    let error = a.connect(b.local_addr(), None).await.unwrap_err();
    assert!(
        matches!(error, ConnectionError::EndpointClosed),
        "{error:?}"
    );
    a.close(6, "twice").await;
    b.close(0, "").await;
}

#[tokio::test]
async fn nobody_at_the_address_is_a_time_out() {
    let nobody = bind(identity(7));
    let address = nobody.local_addr();
    nobody.close(0, "").await;
    let short = std::time::Duration::from_millis(100);
    let a = QuinnTransport::bind(config(identity(7)).handshake_timeout(short)).unwrap();
    let error = a.connect(address, None).await.unwrap_err();
    assert!(matches!(error, ConnectionError::TimedOut), "{error:?}");
    a.close(0, "").await;
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let a = bind(identity(7));
    let again = nexar_quic::Config::new(identity(7), a.local_addr());
    match QuinnTransport::bind(again).unwrap_err() {
        ConnectionError::Bind { address, source } => {
            assert_eq!(address, a.local_addr());
            assert_eq!(source.kind(), std::io::ErrorKind::AddrInUse);
        }
        other => panic!("{other:?}"),
    }
    a.close(0, "").await;
}

#[tokio::test]
async fn the_identity_without_a_secret_stays_on_loopback() {
    let insecure = || Identity::insecure_loopback("test").unwrap();
    let everywhere = nexar_quic::Config::new(insecure(), "0.0.0.0:0".parse().unwrap());
    let error = QuinnTransport::bind(everywhere).unwrap_err();
    assert!(matches!(error, ConnectionError::Bind { .. }));
    assert!(error.to_string().contains("NEXAR_SECRET_FILE"), "{error}");

    let (a, b) = (bind(insecure()), bind(insecure()));
    let error = a
        .connect("192.0.2.1:9".parse().unwrap(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectionError::Unreachable { .. }));
    assert!(error.to_string().contains("NEXAR_SECRET"), "{error}");
    connect(&a, &b).await;
    close(a, b).await;
}

#[test]
fn no_runtime_is_needed_on_the_side_of_the_application() {
    // The futures are polled by a plain executor, without any tokio context.
    let (a, b) = two();
    futures_block_on(async {
        let dialled = a.connect(b.local_addr(), None).await.unwrap();
        let mut accepted = b.accept().await.unwrap();
        let mut send = dialled.connection.open_uni().await.unwrap();
        send.write_all("plain".into()).await.unwrap();
        send.finish().unwrap();
        send.acked().await.unwrap();
        let mut recv = accepted.uni.accept().await.unwrap();
        assert_eq!(read_to_end(&mut recv).await.unwrap(), b"plain");
        a.close(0, "").await;
        b.close(0, "").await;
    });
}

/// Polls a future on this thread, which sleeps in between.
fn futures_block_on<F: Future>(future: F) -> F::Output {
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
