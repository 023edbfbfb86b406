//! Binding and closing many times leaves neither threads nor sockets behind. In a process of its own,
//! because it counts them.
#![cfg(all(target_os = "linux", any(feature = "quinn", feature = "s2n-quic")))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are not inside #[test]"
)]

use nexar_core::transport::{Connection, NewConnection, SendStream, Transport};
use nexar_quic::{AnyConnection, AnyTransport, Backend, Config, Identity};
use std::{fs, net::SocketAddr};

fn bind(backend: Backend, port: u16) -> AnyTransport {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let identity = Identity::insecure_loopback("leaks").unwrap();
    AnyTransport::bind(backend, Config::new(identity, address)).unwrap()
}

async fn connect(a: &AnyTransport, b: &AnyTransport) -> [NewConnection<AnyConnection>; 2] {
    let (dialled, accepted) = tokio::join!(a.connect(b.local_addr(), None), b.accept());
    [dialled.unwrap(), accepted.unwrap()]
}

async fn close(a: AnyTransport, b: AnyTransport) {
    tokio::join!(a.close(0, "done"), b.close(0, "done"));
}

/// Threads and open files of this process.
fn count() -> (usize, usize) {
    let entries = |dir| fs::read_dir(dir).unwrap().count();
    (entries("/proc/self/task"), entries("/proc/self/fd"))
}

/// Waits until no more than `before` are left; a thread is listed for a moment after its end.
async fn settle(before: (usize, usize)) -> (usize, usize) {
    for _ in 0..100_000 {
        let now = count();
        if now.0 <= before.0 && now.1 <= before.1 {
            return now;
        }
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
    count()
}

#[tokio::test]
async fn threads_and_sockets_are_given_back() {
    for backend in Backend::ALL.into_iter().filter(|it| it.is_available()) {
        check(backend).await;
    }
}

async fn check(backend: Backend) {
    let two = || (bind(backend, 0), bind(backend, 0));
    let before = count();
    for cycle in 0..200 {
        let (a, b) = two();
        match cycle % 4 {
            0 => close(a, b).await,
            1 => {
                let ends = connect(&a, &b).await;
                close(a, b).await;
                drop(ends);
            }
            2 => {
                // Dropped without a close, inside an async context, with a stream in use.
                let [left, _right] = connect(&a, &b).await;
                let mut send = left.connection.open_uni().await.unwrap();
                send.write_all("x".into()).await.unwrap();
                drop((a, b));
            }
            _ => drop((a, b)),
        }
    }
    // Handles of dead connections do not hold the socket.
    let (a, b) = two();
    let ends = connect(&a, &b).await;
    let port = b.local_addr().port();
    b.close(0, "").await;
    drop(bind(backend, port));
    drop((ends, a, b));
    let after = settle(before).await;
    assert!(
        after.0 <= before.0 && after.1 <= before.1,
        "{backend}: before {before:?}, after {after:?}"
    );
}
