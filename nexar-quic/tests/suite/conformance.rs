//! The backend passes the conformance suite for transports.
use super::common::*;
use crate::backend::*;
use nexar_core::testing::{Harness, Limits};
use nexar_quic::{AnyTransport, Backend, Profile};

fn limits(stream_window: usize) -> Limits {
    let mut limits = Limits::default();
    limits.stream_window = stream_window;
    (limits.stream_unread, limits.connection_unread) = match BACKEND {
        // What a stream keeps for sending, and what all may have taken and not sent, comes on top.
        Backend::S2nQuic => (2 * stream_window + (256 << 10), 128 << 20),
        _ => (stream_window, 64 << 20),
    };
    limits.max_streams = 1_024;
    limits
}

/// With the default settings.
struct Default;

impl Harness for Default {
    type Transport = TestTransport;

    async fn endpoints(&self) -> [TestTransport; 2] {
        let (a, b) = two();
        [a, b]
    }

    fn limits(&self) -> Limits {
        limits(2 << 20)
    }
}

/// With the settings of long paths, chosen at run time, on several threads.
struct AnyWan;

impl Harness for AnyWan {
    type Transport = AnyTransport;

    async fn endpoints(&self) -> [AnyTransport; 2] {
        [7, 7].map(|cluster| {
            let config = config(identity(cluster)).profile(Profile::Wan);
            AnyTransport::bind(BACKEND, config).unwrap()
        })
    }

    fn limits(&self) -> Limits {
        limits(16 << 20)
    }

    fn runtime(&self) -> tokio::runtime::Runtime {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(2).enable_all().build().unwrap()
    }
}

mod default {
    nexar_core::transport_conformance!(super::Default);
}

mod any_wan {
    nexar_core::transport_conformance!(super::AnyWan);
}
