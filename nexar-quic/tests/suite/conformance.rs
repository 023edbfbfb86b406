//! The backend passes the conformance suite for transports, by itself and chosen at run time.

use super::{
    common::{any_port, identity},
    site::{Site, expired, not_yet_valid},
};
use crate::backend::*;
use nexar_core::{
    testing::{Blow, Harness, Limits, Statistics, Stranger},
    transport::{ConnectionError, Transport},
};
use nexar_quic::{AnyTransport, Backend, Config, Identity, Profile};
use std::{any::Any, sync::mpsc, time::Duration};

/// The backend.
struct Quic<T> {
    bind: fn(Config) -> Result<T, ConnectionError>,
    profile: Profile,
    stream_window: usize,
    /// Certificates of a site's own PKI; without, those of a cluster secret.
    site: Option<Site>,
    threads: usize,
}

impl Quic<TestTransport> {
    /// With the default settings, but for the time limits.
    fn new() -> Self {
        Quic {
            bind: TestTransport::bind,
            profile: Profile::Auto,
            stream_window: 2 << 20,
            site: None,
            threads: 1,
        }
    }
}

impl Quic<AnyTransport> {
    /// With the settings of long paths and certificates in PEM form, on several threads, chosen at run time.
    fn any_wan() -> Self {
        Quic {
            bind: |config| AnyTransport::bind(BACKEND, config),
            profile: Profile::Wan,
            stream_window: 16 << 20,
            site: Some(Site::new()),
            threads: 2,
        }
    }
}

impl<T> Quic<T> {
    /// Time limits that cases have to wait for are shorter than by default.
    fn bind(&self, identity: Identity) -> T {
        let config = Config::new(identity, any_port())
            .profile(self.profile)
            .handshake_timeout(Duration::from_secs(5))
            .idle_timeout(Duration::from_secs(5))
            .keep_alive(Some(Duration::from_secs(1)));
        (self.bind)(config).unwrap()
    }
}

impl<T: Transport> Harness for Quic<T> {
    type Transport = T;

    async fn endpoints(&self) -> [T; 2] {
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
        limits.connection_unread = match BACKEND {
            // A window that is a ninth larger, and what the streams may have taken and not sent.
            Backend::S2nQuic => (72 << 20) + (64 << 20),
            _ => 64 << 20,
        };
        limits.max_streams = 1_024;
        limits
    }

    fn skip(&self, case: &str) -> Option<String> {
        let reason =
            "s2n-quic announces freed room of a connection in steps of a tenth of its window";
        let skip = BACKEND == Backend::S2nQuic && case == "a_full_connection_starves_no_reader";
        skip.then(|| reason.to_owned())
    }

    fn statistics(&self) -> Statistics {
        Statistics::ALL
    }

    fn stranger(&self, kind: Stranger) -> Option<T> {
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
    fn inflict(&self, blow: Blow, on: &T, _peer: &T) -> Option<Box<dyn Any + Send>> {
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

mod default {
    nexar_core::transport_conformance!(super::Quic::new());
}

mod any_wan {
    nexar_core::transport_conformance!(super::Quic::any_wan());
}
