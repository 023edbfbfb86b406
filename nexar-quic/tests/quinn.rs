//! The suite on quinn.
#![cfg(feature = "quinn")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are not inside #[test]"
)]

mod backend {
    pub(crate) use nexar_quic::{
        QuinnConnection as TestConnection, QuinnRecvStream as TestRecvStream,
        QuinnSendStream as TestSendStream, QuinnTransport as TestTransport,
    };
    pub(crate) const BACKEND: nexar_quic::Backend = nexar_quic::Backend::Quinn;
}

mod suite;
