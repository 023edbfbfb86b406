//! The in-memory transport passes the conformance suite.
#![allow(clippy::expect_used)]

use nexar_core::{
    testing::Harness,
    transport::{
        PeerId,
        memory::{MemoryNetwork, MemoryTransport},
    },
};
use std::time::Duration;

/// Without faults.
struct Plain;

impl Harness for Plain {
    type Transport = MemoryTransport;

    async fn endpoints(&self) -> [MemoryTransport; 2] {
        endpoints(&MemoryNetwork::new(1))
    }
}

/// With a delay that lets streams overtake each other.
struct Delayed;

impl Harness for Delayed {
    type Transport = MemoryTransport;

    async fn endpoints(&self) -> [MemoryTransport; 2] {
        let network = MemoryNetwork::new(2);
        network.set_delay(Duration::from_micros(100), Duration::from_micros(500));
        endpoints(&network)
    }

    fn runtime(&self) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
    }
}

fn endpoints(network: &MemoryNetwork) -> [MemoryTransport; 2] {
    ["left", "right"].map(|name| network.bind(None, PeerId::new(name)).expect("bind"))
}

mod plain {
    nexar_core::transport_conformance!(super::Plain);
}

mod delayed {
    nexar_core::transport_conformance!(super::Delayed);
}
