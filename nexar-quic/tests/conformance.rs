//! The quinn backend passes the conformance suite for transports.
#![cfg(feature = "quinn")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are not inside #[test]"
)]

mod common;

use common::*;
use nexar_core::testing::{Harness, Limits};
use nexar_quic::{AnyTransport, Backend, Profile, QuinnTransport};

fn limits(stream_window: usize) -> Limits {
    let mut limits = Limits::default();
    limits.stream_window = stream_window;
    limits.stream_unread = stream_window;
    limits.connection_unread = 64 << 20;
    limits.max_streams = 1_024;
    limits
}

/// With the default settings.
struct Default;

impl Harness for Default {
    type Transport = QuinnTransport;

    async fn endpoints(&self) -> [QuinnTransport; 2] {
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
            AnyTransport::bind(Backend::Quinn, config).unwrap()
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
