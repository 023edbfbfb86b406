//! The conformance suite finds a transport that misbehaves, by the right cases.
#![allow(clippy::expect_used)]

use bytes::Bytes;
use nexar_core::{
    testing::{CASES, Harness, Limits, run_case},
    transport::{
        BiAcceptor, Capabilities, Connection, ConnectionError, ConnectionStats, NewConnection,
        PeerId, SendStream, StreamError, Transport,
        memory::{
            MemoryBiAcceptor, MemoryConnection, MemoryNetwork, MemoryRecvStream, MemorySendStream,
            MemoryTransport, MemoryUniAcceptor,
        },
    },
};
use std::{
    net::SocketAddr,
    panic::catch_unwind,
    task::{Context, Poll},
    time::Duration,
};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Nothing.
    None,
    /// Every 1000th write of a stream is lost.
    Drops,
    /// Every 100th write of a stream arrives with its halves swapped.
    Reorders,
    /// Closing forgets the code and the reason, and resetting finishes.
    LiesAboutClosing,
}

#[derive(Debug, Clone)]
struct BrokenHarness(Fault);

impl Harness for BrokenHarness {
    type Transport = Broken<MemoryTransport>;

    async fn endpoints(&self) -> [Self::Transport; 2] {
        let network = MemoryNetwork::new(3);
        ["left", "right"].map(|name| {
            let inner = network.bind(None, PeerId::new(name)).expect("bind");
            Broken {
                inner,
                fault: self.0,
            }
        })
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.case_time = Duration::from_secs(20);
        limits
    }
}

/// The cases that fail with this fault.
fn failing(fault: Fault) -> Vec<&'static str> {
    let fails = |case: &&&str| catch_unwind(|| run_case(case, BrokenHarness(fault))).is_err();
    CASES.iter().filter(fails).copied().collect()
}

#[test]
fn the_wrapper_without_a_fault_passes() {
    assert_eq!(failing(Fault::None), [""; 0]);
}

#[test]
fn lost_writes_are_found() {
    assert_eq!(
        failing(Fault::Drops),
        ["order_within_a_stream", "sixty_four_mebibytes"]
    );
}

#[test]
fn reordered_writes_are_found() {
    let found = failing(Fault::Reorders);
    for case in ["order_within_a_stream", "sixty_four_mebibytes"] {
        assert!(
            found.contains(&case),
            "{case} does not fail; these do: {found:?}"
        );
    }
    for case in [
        "a_thousand_streams",
        "close_reaches_the_peer",
        "identity_of_the_peer",
    ] {
        assert!(
            !found.contains(&case),
            "{case} has fewer than 100 writes in a stream"
        );
    }
}

#[test]
fn lies_about_closing_are_found() {
    let expected = [
        "reset_reaches_the_reader",
        "close_reaches_the_peer",
        "close_ends_what_is_pending",
        "closed_endpoint",
    ];
    assert_eq!(failing(Fault::LiesAboutClosing), expected);
}

/// A transport with a fault.
#[derive(Debug, Clone)]
struct Broken<T> {
    inner: T,
    fault: Fault,
}

#[derive(Debug)]
struct BrokenSend {
    inner: MemorySendStream,
    fault: Fault,
    writes: usize,
}

impl<T> Broken<T> {
    fn with<U>(&self, inner: U) -> Broken<U> {
        Broken {
            inner,
            fault: self.fault,
        }
    }

    fn send(&self, inner: MemorySendStream) -> BrokenSend {
        BrokenSend {
            inner,
            fault: self.fault,
            writes: 0,
        }
    }

    fn handles(&self, new: NewConnection<MemoryConnection>) -> NewConnection<BrokenConnection> {
        NewConnection {
            connection: self.with(new.connection),
            uni: new.uni,
            bi: self.with(new.bi),
        }
    }
}

type BrokenConnection = Broken<MemoryConnection>;

impl Transport for Broken<MemoryTransport> {
    type Connection = BrokenConnection;

    fn name(&self) -> &str {
        "broken"
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn identity(&self) -> &PeerId {
        self.inner.identity()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&PeerId>,
    ) -> Result<NewConnection<BrokenConnection>, ConnectionError> {
        Ok(self.handles(self.inner.connect(address, expected).await?))
    }

    async fn accept(&self) -> Option<NewConnection<BrokenConnection>> {
        Some(self.handles(self.inner.accept().await?))
    }

    async fn close(&self, code: u64, reason: &str) {
        match self.fault {
            Fault::LiesAboutClosing => self.inner.close(0, "").await,
            _ => self.inner.close(code, reason).await,
        }
    }

    fn background(&self) -> &tokio::runtime::Handle {
        self.inner.background()
    }
}

impl Connection for BrokenConnection {
    type SendStream = BrokenSend;
    type RecvStream = MemoryRecvStream;
    type UniAcceptor = MemoryUniAcceptor;
    type BiAcceptor = Broken<MemoryBiAcceptor>;

    async fn open_uni(&self) -> Result<BrokenSend, ConnectionError> {
        Ok(self.send(self.inner.open_uni().await?))
    }

    async fn open_bi(&self) -> Result<(BrokenSend, MemoryRecvStream), ConnectionError> {
        let (send, recv) = self.inner.open_bi().await?;
        Ok((self.send(send), recv))
    }

    fn peer_identity(&self) -> &PeerId {
        self.inner.peer_identity()
    }

    fn remote_addr(&self) -> SocketAddr {
        self.inner.remote_addr()
    }

    fn close(&self, code: u64, reason: &str) {
        match self.fault {
            Fault::LiesAboutClosing => self.inner.close(0, ""),
            _ => self.inner.close(code, reason),
        }
    }

    async fn closed(&self) -> ConnectionError {
        self.inner.closed().await
    }

    fn stats(&self) -> ConnectionStats {
        self.inner.stats()
    }
}

impl BiAcceptor for Broken<MemoryBiAcceptor> {
    type SendStream = BrokenSend;
    type RecvStream = MemoryRecvStream;

    async fn accept(&mut self) -> Result<(BrokenSend, MemoryRecvStream), ConnectionError> {
        let (send, recv) = self.inner.accept().await?;
        Ok((self.send(send), recv))
    }
}

impl SendStream for BrokenSend {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>> {
        let this_one = self.writes + 1;
        if self.fault == Fault::Drops && this_one.is_multiple_of(1000) {
            self.writes = this_one;
            data.clear();
            return Poll::Ready(Ok(()));
        }
        let mut sent = data.clone();
        if self.fault == Fault::Reorders && this_one.is_multiple_of(100) {
            let (first, second) = data.split_at(data.len() / 2);
            sent = [second, first].concat().into();
        }
        let result = self.inner.poll_write(cx, &mut sent);
        if result.is_ready() {
            self.writes = this_one;
            *data = data.slice(data.len() - sent.len()..);
        }
        result
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.inner.finish()
    }

    fn poll_acked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        self.inner.poll_acked(cx)
    }

    fn reset(&mut self, code: u64) {
        match self.fault {
            Fault::LiesAboutClosing => drop(self.inner.finish()),
            _ => self.inner.reset(code),
        }
    }

    fn set_priority(&mut self, priority: i32) {
        self.inner.set_priority(priority);
    }
}
