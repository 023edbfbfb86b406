//! Two endpoints over loopback.
use super::common::*;
use crate::backend::*;
use nexar_core::transport::{
    BiAcceptor, Connection, ConnectionError, PeerId, RecvStream, SendStream, StreamError,
    Transport, UniAcceptor,
};
use nexar_quic::{AnyTransport, Backend, Config, Identity, Profile};
use std::net::SocketAddr;

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
    let b = TestTransport::bind(config(identity(7)).max_streams(2, 2)).unwrap();
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
    let b = TestTransport::bind(config(identity(7)).stream_window(1 << 20)).unwrap();
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
    let nobody = std::net::UdpSocket::bind(any_port()).unwrap();
    let address = nobody.local_addr().unwrap();
    let short = std::time::Duration::from_millis(100);
    let a = TestTransport::bind(config(identity(7)).handshake_timeout(short)).unwrap();
    let error = a.connect(address, None).await.unwrap_err();
    assert!(matches!(error, ConnectionError::TimedOut), "{error:?}");
    a.close(0, "").await;
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let a = bind(identity(7));
    let again = Config::new(identity(7), a.local_addr());
    match TestTransport::bind(again).unwrap_err() {
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
    let everywhere = Config::new(insecure(), "0.0.0.0:0".parse().unwrap());
    let error = TestTransport::bind(everywhere).unwrap_err();
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
    block_on(async {
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

/// Sends 32 MiB over a connection of the given settings and gives the datagram size at the end.
async fn datagram_size_after_a_transfer(change: fn(Config) -> Config) -> u16 {
    let a = TestTransport::bind(change(config(identity(7)))).unwrap();
    let b = TestTransport::bind(change(config(identity(7)))).unwrap();
    let (left, mut right) = connect(&a, &b).await;
    let mut send = left.connection.open_uni().await.unwrap();
    let sending = async { send_pattern(&mut send, 3, 32 << 20, 1 << 20).await.unwrap() };
    let receiving = async {
        let mut recv = right.uni.accept().await.unwrap();
        assert_eq!(check_pattern(&mut recv, 3).await.unwrap(), 32 << 20);
    };
    tokio::join!(sending, receiving);
    let mtu = left.connection.stats().mtu;
    close(a, b).await;
    mtu
}

/// With segmentation offload, batches of large datagrams exceed what the kernel takes at a time.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn every_profile_finds_the_datagram_size() {
    for profile in [
        |c: Config| c.profile(Profile::Lan),
        |c: Config| c.profile(Profile::Wan),
    ] {
        let mtu = datagram_size_after_a_transfer(profile).await;
        assert!(mtu > 60_000, "{mtu}");
    }
    for (limit, limited) in [
        (1_200, (|c| c.max_datagram(1_200)) as fn(Config) -> Config),
        (1_472, |c| c.max_datagram(1_472)),
        (8_972, |c| c.max_datagram(8_972)),
        (8_972, |c| c.max_datagram(8_972).profile(Profile::Lan)),
    ] {
        let mtu = datagram_size_after_a_transfer(limited).await;
        // The search ends within 20 bytes of the IP packet.
        assert!(mtu <= limit && mtu + 50 > limit, "{mtu} of {limit}");
    }
}

#[tokio::test]
async fn wildcard_addresses_and_both_families() {
    let at = |address: &str| {
        let config = Config::new(identity(7), address.parse().unwrap());
        TestTransport::bind(config)
    };
    let reach = |transport: &TestTransport, ip: &str| -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), transport.local_addr().port())
    };
    let v4 = at("0.0.0.0:0").unwrap();
    let a = bind(identity(7));
    let target = reach(&v4, "127.0.0.1");
    let (dialled, accepted) = tokio::join!(a.connect(target, None), v4.accept());
    assert_eq!(dialled.unwrap().connection.remote_addr(), target);
    assert_eq!(accepted.unwrap().connection.remote_addr(), a.local_addr());

    let error = a
        .connect("[::1]:9".parse().unwrap(), None)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectionError::Unreachable { .. }),
        "{error}"
    );

    // Hosts without IPv6 cannot run the rest.
    if let (Ok(v6), Ok(both)) = (at("[::1]:0"), at("[::]:0")) {
        let target = reach(&both, "::1");
        let (dialled, accepted) = tokio::join!(v6.connect(target, None), both.accept());
        let dialled = dialled.unwrap();
        assert_eq!(dialled.connection.remote_addr(), target);
        if cfg!(target_os = "linux") {
            // s2n-quic counts IP packets in 16 bits.
            let largest = if BACKEND == Backend::S2nQuic {
                65_487
            } else {
                65_488
            };
            assert_eq!(dialled.connection.stats().mtu, largest);
        }
        assert_eq!(accepted.unwrap().connection.remote_addr(), v6.local_addr());

        // One socket for both families, in both directions.
        let target = reach(&both, "127.0.0.1");
        let (dialled, accepted) = tokio::join!(a.connect(target, None), both.accept());
        assert_eq!(dialled.unwrap().connection.remote_addr(), target);
        assert_eq!(accepted.unwrap().connection.remote_addr(), a.local_addr());
        let (dialled, accepted) = tokio::join!(both.connect(a.local_addr(), None), a.accept());
        assert_eq!(dialled.unwrap().connection.remote_addr(), a.local_addr());
        assert_eq!(
            accepted.unwrap().connection.remote_addr().port(),
            both.local_addr().port()
        );
        v6.close(0, "").await;
        both.close(0, "").await;
    }
    close(a, v4).await;
}

/// The enum over the backends passes everything on.
#[tokio::test]
async fn any_transport_works_as_the_backend_does() {
    let bind = || AnyTransport::bind(BACKEND, config(identity(7))).unwrap();
    let (a, b) = (bind(), bind());
    assert_eq!((a.name(), a.backend()), (BACKEND.name(), BACKEND));
    assert!(a.capabilities().authenticated);
    let priorities = BACKEND == Backend::Quinn;
    assert_eq!(a.capabilities().stream_priorities, priorities);
    let expected = b.identity().clone();
    let (left, right) = tokio::join!(a.connect(b.local_addr(), Some(&expected)), b.accept());
    let (left, mut right) = (left.unwrap(), right.unwrap());
    assert_eq!(left.connection.peer_identity(), b.identity());
    let mut send = left.connection.open_uni().await.unwrap();
    send.set_priority(5);
    let receiving = async {
        let mut recv = right.uni.accept().await.unwrap();
        b.drive(check_pattern(&mut recv, 4)).await.unwrap()
    };
    let sending = a.drive(send_pattern(&mut send, 4, 3 << 20, 1 << 20));
    let (sent, received) = tokio::join!(sending, receiving);
    sent.unwrap();
    assert_eq!(received, 3 << 20);
    let (mut send, mut recv) = left.connection.open_bi().await.unwrap();
    send.write_all("q".into()).await.unwrap();
    let (mut answer, mut question) = right.bi.accept().await.unwrap();
    assert_eq!(question.read(9).await.unwrap().unwrap()[..], *b"q");
    question.stop(3);
    answer.reset(4);
    assert!(matches!(
        recv.read(9).await,
        Err(StreamError::Reset { code: 4 })
    ));
    send.finish().unwrap();
    let acked = send.acked().await;
    assert!(
        matches!(acked, Ok(()) | Err(StreamError::Stopped { code: 3 })),
        "{acked:?}"
    );
    left.connection.close(8, "bye");
    let error = right.connection.closed().await;
    assert!(matches!(
        error,
        ConnectionError::ClosedByPeer { code: 8, .. }
    ));
    tokio::join!(a.close(0, ""), b.close(0, ""));
}

/// A close passes a full congestion window.
#[tokio::test]
async fn a_close_in_the_middle_of_a_transfer_reaches_the_peer() {
    for profile in [Profile::Loopback, Profile::Lan, Profile::Wan] {
        let bind = || TestTransport::bind(config(identity(7)).profile(profile)).unwrap();
        for whole_endpoint in [false, true] {
            let (a, b) = (bind(), bind());
            let (left, right) = connect(&a, &b).await;
            let mut send = left.connection.open_uni().await.unwrap();
            let mut offset = 0;
            // A megabyte goes to the connection at once, more than the first congestion window.
            while offset < 1 << 20 {
                send.write_all(pattern(1, offset, 1 << 16)).await.unwrap();
                offset += 1 << 16;
            }
            if whole_endpoint {
                a.close(9, "enough").await;
            } else {
                left.connection.close(9, "enough");
            }
            let error = right.connection.closed().await;
            let expected = matches!(error, ConnectionError::ClosedByPeer { code: 9, .. });
            assert!(expected, "{profile:?}, {whole_endpoint}: {error:?}");
            close(a, b).await;
        }
    }
}

/// A reader gets on although streams that nobody reads hold nearly all of the connection's window.
#[tokio::test]
async fn a_nearly_full_connection_window_does_not_stop_a_reader() {
    let small = |config: Config| config.connection_window(1 << 20).stream_window(512 << 10);
    let a = bind(identity(7));
    let b = TestTransport::bind(small(config(identity(7)))).unwrap();
    let (left, mut right) = connect(&a, &b).await;
    let mut stalled = left.connection.open_uni().await.unwrap();
    stalled.write_all(pattern(1, 0, 512 << 10)).await.unwrap();
    let _stalled = right.uni.accept().await.unwrap();
    let mut also = left.connection.open_uni().await.unwrap();
    also.write_all(pattern(2, 0, 448 << 10)).await.unwrap();
    let _also = right.uni.accept().await.unwrap();
    // 64 KiB are left, and an eighth of the window is 128.
    let mut send = left.connection.open_uni().await.unwrap();
    let sending = async { send_pattern(&mut send, 3, 300_000, 1 << 20).await.unwrap() };
    let receiving = async {
        let mut recv = right.uni.accept().await.unwrap();
        assert_eq!(check_pattern(&mut recv, 3).await.unwrap(), 300_000);
    };
    tokio::join!(sending, receiving);
    close(a, b).await;
}

/// However often the connection's window is full, and whoever discards what: in the end nothing is left over that
/// would hold writers back.
#[tokio::test]
async fn what_waits_for_a_small_window_is_forgotten_once_it_is_sent() {
    const LEN: u64 = 1 << 20;
    let a = bind(identity(7));
    let small = config(identity(7)).connection_window(256 << 10);
    let b = TestTransport::bind(small).unwrap();
    let (left, mut right) = connect(&a, &b).await;
    for round in 0..12 {
        let mut sending = Vec::new();
        for seed in 0..8 {
            let mut send = left.connection.open_uni().await.unwrap();
            sending.push(tokio::spawn(async move {
                send_pattern(&mut send, round * 8 + seed, LEN, 1 << 20)
                    .await
                    .unwrap();
            }));
        }
        let mut receiving = Vec::new();
        for seed in 0..8 {
            let mut recv = right.uni.accept().await.unwrap();
            receiving.push(tokio::spawn(async move {
                assert_eq!(
                    check_pattern(&mut recv, round * 8 + seed).await.unwrap(),
                    LEN
                );
            }));
        }
        for task in sending.into_iter().chain(receiving) {
            task.await.unwrap();
        }
    }
    close(a, b).await;
}

#[tokio::test]
async fn what_a_reader_stops_is_forgotten() {
    let (a, b) = two();
    let (left, mut right) = connect(&a, &b).await;
    for _ in 0..100 {
        let mut send = left.connection.open_uni().await.unwrap();
        // The reader may stop it meanwhile.
        let _ = send_pattern(&mut send, 1, 2 << 20, 1 << 20).await;
        drop(send);
        drop(right.uni.accept().await.unwrap());
    }
    let mut send = left.connection.open_uni().await.unwrap();
    let sending = async { send_pattern(&mut send, 2, 4 << 20, 1 << 20).await.unwrap() };
    let receiving = async {
        let mut recv = right.uni.accept().await.unwrap();
        assert_eq!(check_pattern(&mut recv, 2).await.unwrap(), 4 << 20);
    };
    tokio::join!(sending, receiving);
    close(a, b).await;
}

/// Whenever the reader's stop is seen, the wait for the acknowledgement reports it.
#[tokio::test]
async fn a_stop_before_the_finish_is_reported() {
    let (a, b) = two();
    let (left, mut right) = connect(&a, &b).await;
    let (mut there, mut back) = left.connection.open_bi().await.unwrap();
    there.write_all("?".into()).await.unwrap();
    let (mut answer, mut question) = right.bi.accept().await.unwrap();
    let mut send = left.connection.open_uni().await.unwrap();
    send.write_all("unwanted".into()).await.unwrap();
    right.uni.accept().await.unwrap().stop(3);
    // Two round trips: the stop has arrived, then what follows from the finish has been acknowledged.
    for finish in [false, true, false] {
        if finish {
            send.finish().unwrap();
        }
        question.read(1).await.unwrap().unwrap();
        answer.write_all("!".into()).await.unwrap();
        back.read(1).await.unwrap().unwrap();
        there.write_all("?".into()).await.unwrap();
    }
    let acked = send.acked().await;
    assert!(
        matches!(acked, Err(StreamError::Stopped { code: 3 })),
        "{acked:?}"
    );
    close(a, b).await;
}
