//! A conformance suite for transports.
//!
//! Whoever writes a [`Transport`] implements [`Harness`] for it and calls [`transport_conformance!`], which
//! emits one `#[test]` for each case. Every case runs twice, on connections of its own: once with the
//! dialling side in the leading role, once with the accepting side.
//!
//! ```
//! use nexar_core::{
//!     testing::{Harness, Limits},
//!     transport::{PeerId, memory::{MemoryNetwork, MemoryTransport}},
//! };
//!
//! struct Memory;
//!
//! impl Harness for Memory {
//!     type Transport = MemoryTransport;
//!
//!     async fn endpoints(&self) -> [MemoryTransport; 2] {
//!         let network = MemoryNetwork::new(1);
//!         ["left", "right"].map(|name| network.bind(None, PeerId::new(name)).expect("bind"))
//!     }
//! }
//!
//! nexar_core::transport_conformance!(Memory);
//! ```
//!
//! The functions here panic when a transport fails a case, as tests do.
//!
//! [`transport_conformance!`]: crate::transport_conformance
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[doc(hidden)]
pub mod cases;
mod tools;

use crate::transport::{Connection, NewConnection, Transport};
use std::{
    future::Future,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// Makes the endpoints that the suite tests.
pub trait Harness: Send + Sync + 'static {
    /// The transport.
    type Transport: Transport;

    /// Two endpoints with different identities that trust and can reach each other. Runs inside
    /// [`runtime`](Self::runtime).
    fn endpoints(&self) -> impl Future<Output = [Self::Transport; 2]> + Send;

    /// How the endpoints are configured.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// An address at which nobody listens. The default is a UDP port of 127.0.0.1 that was free a moment
    /// ago.
    fn dead_address(&self) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.local_addr().expect("the port")
    }

    /// Why the case of this name does not apply to the transport, if so. The reason is printed.
    fn skip(&self, case: &str) -> Option<String> {
        let _ = case;
        None
    }

    /// The runtime on which a case runs. The default has one thread.
    fn runtime(&self) -> Runtime {
        Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    }
}

/// Limits that the suite puts to the test.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// The window of one stream in bytes. Default 1 MiB.
    pub stream_window: usize,
    /// Bytes that one stream takes before it pushes back while nobody reads, the sender's own buffers
    /// included. Default 1 MiB.
    pub stream_unread: usize,
    /// Bytes that all streams of one direction of a connection take together before they push back while
    /// nobody reads, the sender's own buffers included. Default 8 MiB.
    pub connection_unread: usize,
    /// Streams of one kind that a side can have open at a time. Default 256.
    pub max_streams: usize,
    /// Within what time a dial that leads nowhere must fail. Default 30 s.
    pub connect_time: Duration,
    /// Within what time a case must be done. Default 60 s.
    pub case_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            stream_window: 1 << 20,
            stream_unread: 1 << 20,
            connection_unread: 8 << 20,
            max_streams: 256,
            connect_time: Duration::from_secs(30),
            case_time: Duration::from_secs(60),
        }
    }
}

/// One end of the connection that a case gets.
#[doc(hidden)]
pub struct End<T: Transport> {
    pub transport: T,
    pub connection: T::Connection,
    pub uni: <T::Connection as Connection>::UniAcceptor,
    pub bi: <T::Connection as Connection>::BiAcceptor,
}

impl<T: Transport> End<T> {
    fn new(transport: T, new: NewConnection<T::Connection>) -> Self {
        End {
            transport,
            connection: new.connection,
            uni: new.uni,
            bi: new.bi,
        }
    }
}

/// Which end leads.
#[derive(Debug, Clone, Copy)]
enum Leader {
    Dialler,
    Acceptor,
}

/// Runs one case in both roles.
#[doc(hidden)]
pub fn run<H: Harness, F: Future<Output = ()>>(
    name: &str,
    harness: H,
    case: impl Fn(Arc<H>, End<H::Transport>, End<H::Transport>) -> F,
) {
    if let Some(reason) = harness.skip(name) {
        eprintln!("{name} skipped: {reason}");
        return;
    }
    let harness = Arc::new(harness);
    for leader in [Leader::Dialler, Leader::Acceptor] {
        eprintln!("{name}: the {leader:?} leads");
        harness.runtime().block_on(async {
            let (dialler, acceptor) = connect(&*harness).await;
            let case = match leader {
                Leader::Dialler => case(Arc::clone(&harness), dialler, acceptor),
                Leader::Acceptor => case(Arc::clone(&harness), acceptor, dialler),
            };
            let limit = harness.limits().case_time;
            if tokio::time::timeout(limit, case).await.is_err() {
                panic!("{name} is not done after {limit:?} (the {leader:?} leads)");
            }
        });
    }
}

async fn connect<H: Harness>(harness: &H) -> (End<H::Transport>, End<H::Transport>) {
    let [dialler, acceptor] = harness.endpoints().await;
    let (dialled, accepted) = tokio::join!(
        dialler.connect(acceptor.local_addr(), Some(acceptor.identity())),
        acceptor.accept()
    );
    let dialled = dialled.expect("the two endpoints can connect");
    let accepted = accepted.expect("the endpoint is open");
    (End::new(dialler, dialled), End::new(acceptor, accepted))
}

/// Emits the conformance suite for a transport: one `#[test]` for each case.
///
/// The argument is an expression of a type that implements [`Harness`](crate::testing::Harness); each test
/// evaluates it once.
#[macro_export]
macro_rules! transport_conformance {
    ($harness:expr) => {
        $crate::__transport_cases! { __transport_tests, $harness }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __transport_tests {
    ([$harness:expr] $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::testing::run(stringify!($case), $harness, $crate::testing::cases::$case);
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __transport_cases {
    ($emit:ident, $($arguments:tt)*) => {
        $crate::$emit! {
            [$($arguments)*]
            // Streams.
            order_within_a_stream
            writing_nothing
            an_empty_stream_is_seen
            reads_take_at_most_what_was_asked
            read_exact_reports_an_early_end
            half_close
            both_directions_at_once
            dropped_sender_finishes
            // Flow control.
            one_byte_more_than_a_window
            sixty_four_mebibytes
            a_stalled_stream_delays_no_other
            back_pressure_bounds_a_stream
            back_pressure_bounds_a_connection
            dropped_write_leaves_the_stream_usable
            dropped_read_leaves_the_stream_usable
            a_thousand_streams
            stream_limit_waits
            abandoned_streams_free_the_limit
            // Endings.
            acknowledged_before_it_is_read
            acknowledged_while_it_is_read
            acknowledged_data_survives_a_close
            finished_streams_take_no_more
            reset_reaches_the_reader
            stop_reaches_the_writer
            dropped_receiver_stops
            close_reaches_the_peer
            close_ends_what_is_pending
            closed_endpoint
            // Connections.
            accepts_in_the_order_of_opening
            acceptors_are_cancel_safe
            accepting_connections_is_cancel_safe
            dropped_open_opens_nothing
            identity_of_the_peer
            wrong_peer
            nobody_listens
            both_ends_dial_at_once
            a_dropped_dial_leaves_the_endpoint_usable
            statistics
        }
    };
}

/// The names of all cases.
pub const CASES: &[&str] = crate::__transport_cases! { __transport_case_names, };

#[doc(hidden)]
#[macro_export]
macro_rules! __transport_case_names {
    ([] $($case:ident)*) => { &[$(stringify!($case)),*] };
}

/// Runs the case of this name like its test; panics if it fails, or if there is no such case.
///
/// For the tests of a suite or of a wrapper; transports use
/// [`transport_conformance!`](crate::transport_conformance).
pub fn run_case<H: Harness>(name: &str, harness: H) {
    crate::__transport_cases! { __transport_run_case, name, harness }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __transport_run_case {
    ([$name:ident, $harness:ident] $($case:ident)*) => {
        match $name {
            $(stringify!($case) => run($name, $harness, cases::$case),)*
            _ => panic!("no case is called {}", $name),
        }
    };
}
