#![cfg(feature = "s2n-quic")]
#![allow(clippy::unwrap_used)]
mod common;
use common::{config, identity};
use nexar_core::testing::{Harness, Limits};
use nexar_quic::S2nQuicTransport;
struct S2n;
impl Harness for S2n {
    type Transport = S2nQuicTransport;
    async fn endpoints(&self) -> [S2nQuicTransport; 2] {
        [7, 7].map(|cluster| S2nQuicTransport::bind(config(identity(cluster))).unwrap())
    }
    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.stream_window = 2 << 20;
        limits.stream_unread = (4 << 20) + (256 << 10);
        limits.connection_unread = 130 << 20;
        limits.max_streams = 1_024;
        limits
    }
}
nexar_core::transport_conformance!(S2n);
