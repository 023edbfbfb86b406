//! The conformance suite finds a transport that misbehaves, by the right cases.
#![allow(clippy::expect_used)]

use bytes::Bytes;
use nexar_core::{
    testing::{Blow, CASES, Harness, Limits, run_case},
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
    any::Any,
    future::poll_fn,
    net::SocketAddr,
    panic::catch_unwind,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker, ready},
};
use tokio::runtime::{Builder, Handle, Runtime};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Nothing.
    None,
    /// Every 1000th write of a stream is lost.
    Drops,
    /// Every 400th write of a stream arrives with its halves swapped.
    Reorders,
    /// What is written to unidirectional streams counts as acknowledged at once, and is sent a little later:
    /// a close in between loses it.
    LosesAtClose,
    /// Closing forgets the code and the reason, and resetting finishes.
    ForgetsReasons,
}

struct BrokenHarness {
    fault: Fault,
    network: MemoryNetwork,
}

impl Harness for BrokenHarness {
    type Transport = Broken<MemoryTransport>;

    async fn endpoints(&self) -> [Self::Transport; 2] {
        ["left", "right"].map(|name| {
            let inner = self.network.bind(None, PeerId::new(name)).expect("bind");
            Broken {
                inner,
                fault: self.fault,
            }
        })
    }

    fn inflict(
        &self,
        blow: Blow,
        on: &Self::Transport,
        peer: &Self::Transport,
    ) -> Option<Box<dyn Any + Send>> {
        let (on, peer) = (on.local_addr(), peer.local_addr());
        let done = match blow {
            Blow::Silence => self.network.kill(on),
            Blow::Amnesia => self.network.drop_connections(on, peer) > 0,
            _ => false,
        };
        done.then(|| Box::new(()) as _)
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        // A late sender holds a piece beside what the network holds.
        limits.stream_unread += LateSend::PIECE;
        limits.connection_unread += 16 * LateSend::PIECE;
        limits
    }

    /// The clock jumps to the next event where nothing else is to be done.
    fn runtime(&self) -> Runtime {
        let mut runtime = Builder::new_current_thread();
        let paused = runtime.enable_all().start_paused(true).build();
        paused.expect("a runtime")
    }
}

/// The cases that fail with this fault. Those with strangers do not apply to the network.
fn failing(fault: Fault) -> Vec<&'static str> {
    let harness = || BrokenHarness {
        fault,
        network: MemoryNetwork::new(3),
    };
    let fails = |case: &&&str| catch_unwind(|| run_case(case, harness())).is_err();
    let cases = CASES.iter().filter(|case| !case.contains("stranger"));
    cases.filter(fails).copied().collect()
}

#[test]
fn the_wrapper_without_a_fault_passes() {
    assert_eq!(failing(Fault::None), [""; 0]);
}

#[test]
fn lost_writes_are_found() {
    let expected = [
        "order_within_a_stream",
        "sixty_four_mebibytes",
        "a_message_of_256_mebibytes",
        "a_clean_leave_delivers_everything",
    ];
    assert_eq!(failing(Fault::Drops), expected);
}

#[test]
fn reordered_writes_are_found() {
    let expected = [
        "order_within_a_stream",
        "sixty_four_mebibytes",
        "a_stalled_tag_delays_no_other",
        "a_message_of_256_mebibytes",
        "more_large_messages_than_streams",
        "a_clean_leave_delivers_everything",
    ];
    assert_eq!(failing(Fault::Reorders), expected);
}

#[test]
fn lies_about_acknowledgements_are_found() {
    let expected = [
        "acknowledged_data_survives_a_close",
        "a_close_tells_what_was_acknowledged",
        "a_clean_leave_delivers_everything",
    ];
    assert_eq!(failing(Fault::LosesAtClose), expected);
}

#[test]
fn forgotten_reasons_are_found() {
    let expected = [
        "a_close_tells_what_was_acknowledged",
        "reset_reaches_the_reader",
        "close_reaches_the_peer",
        "close_ends_what_is_pending",
        "closed_endpoint",
        "a_rank_whose_connection_ends_is_lost",
        "an_opening_that_lies",
    ];
    assert_eq!(failing(Fault::ForgetsReasons), expected);
}

/// A transport with a fault.
#[derive(Debug, Clone)]
struct Broken<T> {
    inner: T,
    fault: Fault,
}

#[derive(Debug)]
enum BrokenSend {
    Direct {
        inner: MemorySendStream,
        fault: Fault,
        writes: usize,
    },
    Late(LateSend),
}

impl<T> Broken<T> {
    fn with<U>(&self, inner: U) -> Broken<U> {
        Broken {
            inner,
            fault: self.fault,
        }
    }

    fn send(&self, inner: MemorySendStream) -> BrokenSend {
        BrokenSend::Direct {
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
            Fault::ForgetsReasons => self.inner.close(0, "").await,
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
        let inner = self.inner.open_uni().await?;
        Ok(match self.fault {
            Fault::LosesAtClose => BrokenSend::Late(LateSend::new(inner)),
            _ => self.send(inner),
        })
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
            Fault::ForgetsReasons => self.inner.close(0, ""),
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
        let (inner, fault, writes) = match self {
            BrokenSend::Direct {
                inner,
                fault,
                writes,
            } => (inner, *fault, writes),
            BrokenSend::Late(late) => return late.poll_write(cx, data),
        };
        let this_one = *writes + 1;
        if fault == Fault::Drops && this_one.is_multiple_of(1000) {
            *writes = this_one;
            data.clear();
            return Poll::Ready(Ok(()));
        }
        let mut sent = data.clone();
        if fault == Fault::Reorders && this_one.is_multiple_of(400) {
            let (first, second) = data.split_at(data.len() / 2);
            sent = [second, first].concat().into();
        }
        let result = inner.poll_write(cx, &mut sent);
        if result.is_ready() {
            *writes = this_one;
            *data = data.slice(data.len() - sent.len()..);
        }
        result
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        match self {
            BrokenSend::Direct { inner, .. } => inner.finish(),
            BrokenSend::Late(late) => late.finish(),
        }
    }

    fn poll_acked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        match self {
            BrokenSend::Direct { inner, .. } => inner.poll_acked(cx),
            BrokenSend::Late(_) => Poll::Ready(Ok(())),
        }
    }

    fn reset(&mut self, code: u64) {
        match self {
            BrokenSend::Direct {
                inner,
                fault: Fault::ForgetsReasons,
                ..
            } => drop(inner.finish()),
            BrokenSend::Direct { inner, .. } => inner.reset(code),
            BrokenSend::Late(late) => late.reset(code),
        }
    }

    fn set_priority(&mut self, _priority: i32) {}
}

/// A sender that takes a piece at once and hands it on a little later.
#[derive(Debug)]
struct LateSend(Arc<Mutex<LateState>>);

#[derive(Debug)]
struct LateState {
    inner: MemorySendStream,
    piece: Bytes,
    error: Option<StreamError>,
    /// The stream is to be finished after the piece, or was reset.
    ended: bool,
    /// A task is going to hand on the piece.
    under_way: bool,
    writer: Option<Waker>,
}

impl LateSend {
    const PIECE: usize = 1 << 16;

    /// How often others have their turn before a piece is handed on, unless the next one waits.
    const TURNS: usize = 200;

    fn new(inner: MemorySendStream) -> Self {
        LateSend(Arc::new(Mutex::new(LateState {
            inner,
            piece: Bytes::new(),
            error: None,
            ended: false,
            under_way: false,
            writer: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, LateState> {
        self.0.lock().expect("nobody panics with the state")
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>> {
        let mut state = self.state();
        if let Some(error) = &state.error {
            return Poll::Ready(Err(error.clone()));
        }
        if state.ended {
            return Poll::Ready(Err(StreamError::Closed));
        }
        if !state.piece.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.piece = data.split_to(data.len().min(Self::PIECE));
        drop(state);
        self.start();
        Poll::Ready(Ok(()))
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        if std::mem::replace(&mut self.state().ended, true) {
            return Err(StreamError::Closed);
        }
        self.start();
        Ok(())
    }

    fn reset(&mut self, code: u64) {
        let mut state = self.state();
        state.piece.clear();
        state.ended = true;
        state.inner.reset(code);
    }

    fn start(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if std::mem::replace(&mut self.state().under_way, true) {
            return;
        }
        let late = LateSend(Arc::clone(&self.0));
        runtime.spawn(async move {
            for _ in 0..Self::TURNS {
                if late.state().writer.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            poll_fn(|cx| late.state().hand_on(cx)).await;
        });
    }
}

impl LateState {
    fn hand_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.piece.is_empty() {
            if let Err(error) = ready!(self.inner.poll_write(cx, &mut self.piece)) {
                self.error = Some(error);
                self.piece.clear();
            }
        }
        self.under_way = false;
        if self.ended {
            // It may have been reset, or the connection is over.
            let _ = self.inner.finish();
        }
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
        Poll::Ready(())
    }
}
