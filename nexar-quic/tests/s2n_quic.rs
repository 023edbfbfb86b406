//! The suite on s2n-quic.
#![cfg(feature = "s2n-quic")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are not inside #[test]"
)]

mod backend {
    pub(crate) use nexar_quic::{
        S2nQuicConnection as TestConnection, S2nQuicRecvStream as TestRecvStream,
        S2nQuicSendStream as TestSendStream, S2nQuicTransport as TestTransport,
    };
    pub(crate) const BACKEND: nexar_quic::Backend = nexar_quic::Backend::S2nQuic;
}

mod suite;
