//! The in-memory transport passes the conformance suite.
#![allow(clippy::expect_used)]

use nexar_core::{
    testing::{Blow, Harness, Limits, Statistics},
    transport::{
        PeerId, Transport,
        memory::{MemoryConfig, MemoryNetwork, MemoryTransport},
    },
};
use std::{any::Any, io::ErrorKind, net::UdpSocket, time::Duration};

/// Without faults.
struct Plain(MemoryNetwork);

impl Harness for Plain {
    type Transport = MemoryTransport;

    async fn endpoints(&self) -> [MemoryTransport; 2] {
        endpoints(&self.0)
    }

    fn limits(&self) -> Limits {
        limits()
    }

    fn statistics(&self) -> Statistics {
        let mut known = Statistics::default();
        known.bytes = true;
        known
    }

    fn inflict(
        &self,
        blow: Blow,
        on: &MemoryTransport,
        peer: &MemoryTransport,
    ) -> Option<Box<dyn Any + Send>> {
        inflict(&self.0, blow, on, peer)
    }
}

/// With a delay that lets streams overtake each other.
struct Delayed(MemoryNetwork);

impl Harness for Delayed {
    type Transport = MemoryTransport;

    async fn endpoints(&self) -> [MemoryTransport; 2] {
        self.0
            .set_delay(Duration::from_micros(100), Duration::from_micros(500));
        endpoints(&self.0)
    }

    fn limits(&self) -> Limits {
        limits()
    }

    fn statistics(&self) -> Statistics {
        let mut known = Statistics::default();
        known.bytes = true;
        known.rtt = true;
        known
    }

    fn inflict(
        &self,
        blow: Blow,
        on: &MemoryTransport,
        peer: &MemoryTransport,
    ) -> Option<Box<dyn Any + Send>> {
        inflict(&self.0, blow, on, peer)
    }

    fn runtime(&self) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
    }
}

/// A dead peer is noticed sooner than by default.
fn network(seed: u64) -> MemoryNetwork {
    let mut config = MemoryConfig::default();
    config.idle_timeout = Duration::from_secs(2);
    MemoryNetwork::with_config(seed, config)
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.silence_time = Duration::from_secs(20);
    limits
}

fn endpoints(network: &MemoryNetwork) -> [MemoryTransport; 2] {
    ["left", "right"].map(|name| network.bind(None, PeerId::new(name)).expect("bind"))
}

fn inflict(
    network: &MemoryNetwork,
    blow: Blow,
    on: &MemoryTransport,
    peer: &MemoryTransport,
) -> Option<Box<dyn Any + Send>> {
    let (on, peer) = (on.local_addr(), peer.local_addr());
    let done = match blow {
        Blow::Silence => network.kill(on),
        Blow::Amnesia => network.drop_connections(on, peer) > 0,
        _ => false,
    };
    done.then(|| Box::new(()) as _)
}

mod plain {
    nexar_core::transport_conformance!(super::Plain(super::network(1)));
}

mod delayed {
    nexar_core::transport_conformance!(super::Delayed(super::network(2)));
}

#[test]
fn nobody_can_take_a_dead_address() {
    let dead = Plain(MemoryNetwork::new(1)).dead_address();
    let taken = UdpSocket::bind(dead.address()).expect_err("the address is reserved");
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}
