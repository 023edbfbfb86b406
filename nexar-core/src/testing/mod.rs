//! A conformance suite for transports.
//!
//! In the feature `testing`, which belongs among the `dev-dependencies`:
//!
//! ```toml
//! [dev-dependencies]
//! nexar-core = { path = "../nexar/nexar-core", features = ["testing"] }
//! ```
//!
//! Whoever writes a [`Transport`] implements [`Harness`] for it and calls
//! [`transport_conformance!`](crate::transport_conformance), which emits one `#[test]` for each case. One file
//! with both is all that it takes:
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
//!
//!     // The windows and the number of streams that the endpoints are configured with.
//!     fn limits(&self) -> Limits {
//!         let mut limits = Limits::default();
//!         limits.max_streams = 256;
//!         limits
//!     }
//! }
//!
//! nexar_core::transport_conformance!(Memory);
//! ```
//!
//! Every case runs twice, on endpoints of its own: once with the dialling side in the leading role, once with
//! the accepting side. A case that fails panics, as tests do. Nothing depends on how fast a transport is:
//! the times in [`Limits`] only turn a hang into a failure.
//!
//! # What it covers
//!
//! | group | the transport |
//! |---|---|
//! | streams | keeps the order of bytes whatever the sizes of writes and reads; sees empty streams and ends; closes the two directions of a stream separately |
//! | flow control | takes one byte more than a window and 64 MiB; pushes back at the limits of a stream and of a connection; lets no stalled stream delay another; survives dropped writes and reads; opens a thousand streams, waits at the limit, and gets back what abandoned ones held |
//! | endings | acknowledges what has arrived and nothing else, also in the moment of a close; passes on resets, stops and closes with their codes and reasons, to whatever waits |
//! | connections | accepts in order and loses nothing when an accept is dropped; names the peer, and refuses another than the one expected; answers where nobody listens; lets both ends dial at once; counts sensibly |
//! | from outside | refuses strangers with a reason and goes on; says that a peer fell silent, or has forgotten the connection |
//! | messages | carries a group of two ranks ([`membership`](crate::membership), [`messaging`](crate::messaging)): order for each source and tag; 200 messages of a tag that is never received beside others; 0 bytes, a window and one byte, 256 MiB; bounded memory; dropped sends and receives; tags received late and used again; more large messages than streams |
//! | leaving | delivers 1000 messages before a clean leave, and says whom a leave did not reach; finds silent and dead ranks; refuses who comes too late |
//! | lies | refuses headers, written by hand, that claim more than may or does come, before memory is set aside |
//!
//! `cargo test -- --list` has the names of the cases, and so has [`CASES`] at run time; `cargo test half_close` runs
//! one of them. All begin by connecting two endpoints, so `connect` and `accept` come first.
//!
//! # What it does not cover, and how to skip
//!
//! A harness that can make [strangers](Harness::stranger) and deal [blows](Harness::inflict) gets those cases too;
//! without, each of them prints one line that says that it was skipped. [`Harness::statistics`] says which counters
//! must not be 0. A case that cannot apply to a transport is skipped with a reason by [`Harness::skip`], which is
//! printed, too. [`Limits`] says what each limit is put to the test for.
//!
//! Speed, loss of packets, and paths with small datagrams are for tests of the transport itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[doc(hidden)]
pub mod cases;
mod group;
mod harness;
mod tools;

pub use harness::{Blow, DeadAddress, Harness, Limits, Statistics, Stranger};

use crate::transport::{Connection, NewConnection, Transport};
use std::{future::Future, io::Write, sync::Arc};

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

/// What came of a case that did not fail.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    Done,
    /// The harness lacks what it takes.
    Skipped(&'static str),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Outcome::Done
    }
}

/// How much longer than others a case may take.
fn slack(name: &str) -> u32 {
    match name {
        "a_message_of_256_mebibytes" => 4,
        _ => 1,
    }
}

/// Runs one case in both roles.
#[doc(hidden)]
pub fn run<H: Harness, F: Future<Output: Into<Outcome>>>(
    name: &str,
    harness: H,
    case: impl Fn(Arc<H>, End<H::Transport>, End<H::Transport>) -> F,
) {
    if let Some(reason) = harness.skip(name) {
        return print_skipped(name, &reason);
    }
    let harness = Arc::new(harness);
    let limit = harness.limits().case_time * slack(name);
    for leader in [Leader::Dialler, Leader::Acceptor] {
        eprintln!("{name}: the {leader:?} leads");
        let outcome = harness.runtime().block_on(async {
            let (dialler, acceptor) = connect(&*harness).await;
            let case = match leader {
                Leader::Dialler => case(Arc::clone(&harness), dialler, acceptor),
                Leader::Acceptor => case(Arc::clone(&harness), acceptor, dialler),
            };
            match tokio::time::timeout(limit, case).await {
                Ok(outcome) => outcome.into(),
                Err(_) => panic!("{name} is not done after {limit:?} (the {leader:?} leads)"),
            }
        });
        if let Outcome::Skipped(reason) = outcome {
            return print_skipped(name, reason);
        }
    }
}

/// Prints a line that is seen although the test succeeds: the output of the macros would be captured.
fn print_skipped(name: &str, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().filter(|test| test.ends_with(name));
    let line = format!("{} skipped: {reason}\n", test.unwrap_or(name));
    // Nobody may be there to read it.
    let _ = std::io::stderr().write_all(line.as_bytes());
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
            a_full_connection_starves_no_reader
            dropped_write_leaves_the_stream_usable
            dropped_read_leaves_the_stream_usable
            a_thousand_streams
            stream_limit_waits
            abandoned_streams_free_the_limit
            // Endings.
            acknowledged_before_it_is_read
            acknowledged_while_it_is_read
            acknowledged_data_survives_a_close
            acknowledged_data_survives_dropped_handles
            a_close_tells_what_was_acknowledged
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
            // From outside.
            a_stranger_of_another_authority
            a_stranger_with_an_expired_certificate
            a_stranger_with_a_certificate_of_the_future
            a_silent_peer_times_out
            a_peer_that_has_forgotten_resets
            // Messages.
            order_per_source_and_tag
            a_stalled_tag_delays_no_other
            a_message_of_no_bytes
            a_message_of_one_byte_more_than_a_window
            a_message_of_256_mebibytes
            messages_both_ways_at_once
            back_pressure_bounds_messages
            dropped_sends_leave_the_group_usable
            dropped_receives_consume_nothing
            late_and_duplicate_tags
            more_large_messages_than_streams
            // Leaving.
            a_clean_leave_delivers_everything
            a_leave_says_what_was_not_confirmed
            a_silent_rank_is_lost
            a_rank_whose_connection_ends_is_lost
            a_process_that_comes_too_late_is_refused
            // Lies.
            a_message_that_lies_about_its_length
            a_message_that_is_cut_short
            a_number_that_comes_twice
            an_announcement_that_lies
            a_control_frame_that_lies
            an_opening_that_lies
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
