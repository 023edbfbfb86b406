//! What the author of a transport tells the suite.

use crate::transport::Transport;
use std::{
    any::Any,
    future::Future,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// Makes the endpoints that the suite tests.
///
/// Only the type and [`endpoints`](Self::endpoints) have to be given. Where a method with a default says that
/// something cannot be done, the cases that need it are skipped, and say so.
pub trait Harness: Send + Sync + 'static {
    /// The transport.
    type Transport: Transport;

    /// Two endpoints with different identities that trust and can reach each other. Runs inside
    /// [`runtime`](Self::runtime), twice for each case.
    fn endpoints(&self) -> impl Future<Output = [Self::Transport; 2]> + Send;

    /// How the endpoints are configured.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Which counters the transport knows. The default says none: then those that are not 0 are checked.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// An endpoint that those of [`endpoints`](Self::endpoints) must not trust; `None`, the default, where
    /// there is no such thing. Its own trust is in the authority that has signed its certificate. Runs
    /// inside [`runtime`](Self::runtime).
    fn stranger(&self, kind: Stranger) -> Option<Self::Transport> {
        let _ = kind;
        None
    }

    /// Does something to one of the two endpoints that no application can do; `peer` is the other one. It
    /// lasts until the value that is returned is dropped, or longer; `None`, the default, where it cannot be
    /// done. Runs inside [`runtime`](Self::runtime).
    fn inflict(
        &self,
        blow: Blow,
        on: &Self::Transport,
        peer: &Self::Transport,
    ) -> Option<Box<dyn Any + Send>> {
        let _ = (blow, on, peer);
        None
    }

    /// An address at which nobody listens. The default is a UDP port of 127.0.0.1: transports that do not
    /// run over UDP give one of their own. Runs inside [`runtime`](Self::runtime).
    fn dead_address(&self) -> DeadAddress {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        DeadAddress::new(socket.local_addr().expect("the port"), socket)
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
    /// The window of one stream in bytes: what a sender may send ahead of the reader. Cases send one byte
    /// more, and several times as much. Default 1 MiB.
    pub stream_window: usize,
    /// Bytes that one stream takes before it pushes back while nobody reads, the sender's own buffers
    /// included. A stream that takes more fails. Default 1 MiB.
    pub stream_unread: usize,
    /// Bytes that all streams of one direction of a connection take together before they push back while
    /// nobody reads, the sender's own buffers included. Default 8 MiB.
    pub connection_unread: usize,
    /// Streams of one kind that a side can have open at a time, neither fewer nor more. Default 256.
    pub max_streams: usize,
    /// Within what time a dial that leads nowhere must fail. Default 30 s.
    pub connect_time: Duration,
    /// Within what time a connection must fail whose peer has fallen [silent](Blow::Silence). Default 60 s.
    pub silence_time: Duration,
    /// Within what time a case must be done, in each role; the one that moves 256 MiB gets four times as
    /// long. Only there so that a hang becomes a failure. Default 60 s.
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
            silence_time: Duration::from_secs(60),
            case_time: Duration::from_secs(60),
        }
    }
}

/// Counters of [`ConnectionStats`](crate::transport::ConnectionStats) that a transport knows, so that they
/// must not be 0 once data has moved.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// The round-trip time.
    pub rtt: bool,
    /// Bytes sent and received.
    pub bytes: bool,
    /// The datagram size.
    pub mtu: bool,
}

impl Statistics {
    /// A transport that knows all of them.
    pub const ALL: Statistics = Statistics {
        rtt: true,
        bytes: true,
        mtu: true,
    };
}

/// An address at which nobody listens, nor can begin to as long as this value lives.
#[derive(Debug)]
pub struct DeadAddress {
    address: SocketAddr,
    _reserved: Box<dyn Any + Send>,
}

impl DeadAddress {
    /// `reserved` keeps others from taking the address, as a socket does that is bound to it and that nobody
    /// reads. An address that was free a moment ago may be that of another test now.
    pub fn new(address: SocketAddr, reserved: impl Any + Send) -> Self {
        DeadAddress {
            address,
            _reserved: Box::new(reserved),
        }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// An endpoint that must be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stranger {
    /// Its certificate is from an authority that the others do not know.
    OtherAuthority,
    /// Its certificate is from the right authority and has expired.
    Expired,
    /// Its certificate is from the right authority and is not valid yet.
    NotYetValid,
}

/// What can befall an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blow {
    /// It falls silent, as with a process that is stopped or a cable that is cut: nothing that it sends
    /// arrives, it answers nothing, and nobody is told.
    Silence,
    /// It has forgotten its connections, as a process that was started again on the same address: whoever
    /// goes on with one of them is told so.
    Amnesia,
}
