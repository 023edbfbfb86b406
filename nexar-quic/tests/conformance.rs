//! The backends pass the conformance suite for transports.
#![cfg(feature = "quinn")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are not inside #[test]"
)]

mod common;

use common::{
    any_port, identity,
    site::{Site, expired, not_yet_valid},
};
use nexar_core::{
    testing::{Blow, Harness, Limits, Statistics, Stranger},
    transport::Transport,
};
use nexar_quic::{AnyTransport, Backend, Config, Identity, Profile};
use std::{any::Any, sync::mpsc, time::Duration};

/// One backend.
struct Quic {
    backend: Backend,
    profile: Profile,
    stream_window: usize,
    /// Certificates of a site's own PKI; without, those of a cluster secret.
    site: Option<Site>,
    threads: usize,
}

impl Quic {
    /// With the default settings, but for the time limits.
    fn new(backend: Backend) -> Self {
        Quic {
            backend,
            profile: Profile::Auto,
            stream_window: 2 << 20,
            site: None,
            threads: 1,
        }
    }

    /// With the settings of long paths and certificates in PEM form, on several threads.
    fn wan(backend: Backend) -> Self {
        Quic {
            profile: Profile::Wan,
            stream_window: 16 << 20,
            site: Some(Site::new()),
            threads: 2,
            ..Quic::new(backend)
        }
    }

    /// Time limits that cases have to wait for are shorter than by default.
    fn bind(&self, identity: Identity) -> AnyTransport {
        let config = Config::new(identity, any_port())
            .profile(self.profile)
            .handshake_timeout(Duration::from_secs(5))
            .idle_timeout(Duration::from_secs(5))
            .keep_alive(Some(Duration::from_secs(1)));
        AnyTransport::bind(self.backend, config).unwrap()
    }
}

impl Harness for Quic {
    type Transport = AnyTransport;

    async fn endpoints(&self) -> [AnyTransport; 2] {
        ["spiffe://site/left", "spiffe://site/right"].map(|uri| {
            self.bind(match &self.site {
                Some(site) => site.identity(uri, |_| {}),
                None => identity(7),
            })
        })
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.stream_window = self.stream_window;
        limits.stream_unread = self.stream_window;
        limits.connection_unread = 64 << 20;
        limits.max_streams = 1_024;
        limits
    }

    fn statistics(&self) -> Statistics {
        Statistics::ALL
    }

    fn stranger(&self, kind: Stranger) -> Option<AnyTransport> {
        const NAME: &str = "spiffe://site/stranger";
        Some(self.bind(match (kind, &self.site) {
            (Stranger::OtherAuthority, None) => identity(8),
            (Stranger::OtherAuthority, Some(_)) => Site::new().identity(NAME, |_| {}),
            (Stranger::Expired, Some(site)) => site.identity(NAME, expired),
            (Stranger::NotYetValid, Some(site)) => site.identity(NAME, not_yet_valid),
            // Who has the secret makes new certificates as needed.
            _ => return None,
        }))
    }

    /// Silence: everything that an endpoint does happens on its background runtime, which has one thread.
    /// A process that was started again is the subject of a test with real processes.
    fn inflict(
        &self,
        blow: Blow,
        on: &AnyTransport,
        _peer: &AnyTransport,
    ) -> Option<Box<dyn Any + Send>> {
        if blow != Blow::Silence {
            return None;
        }
        let (end, until) = mpsc::channel::<()>();
        on.background().spawn(async move {
            let _ = until.recv();
        });
        Some(Box::new(end))
    }

    fn runtime(&self) -> tokio::runtime::Runtime {
        let mut runtime = match self.threads {
            1 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let threads = runtime.worker_threads(self.threads);
        threads.enable_all().build().unwrap()
    }
}

mod quinn {
    use super::*;

    mod default {
        nexar_core::transport_conformance!(super::Quic::new(super::Backend::Quinn));
    }

    mod wan {
        nexar_core::transport_conformance!(super::Quic::wan(super::Backend::Quinn));
    }
}
