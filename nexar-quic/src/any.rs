//! A transport whose backend is chosen at run time.

use crate::Config;
use bytes::Bytes;
use nexar_core::transport::{
    BiAcceptor, Capabilities, Connection, ConnectionError, ConnectionStats, NewConnection, PeerId,
    RecvStream, SendStream, StreamError, Transport, UniAcceptor,
};
use std::{
    fmt,
    future::Future,
    net::SocketAddr,
    str::FromStr,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::runtime::Handle;

#[cfg(feature = "quinn")]
use crate::quinn_backend as quinn;
#[cfg(feature = "s2n-quic")]
use crate::s2n_backend as s2n;

/// The QUIC implementations that this crate knows. Which of them are compiled in depends on the crate's
/// features of the same names; they speak the same protocol and can be mixed within a cluster.
///
/// ```
/// use nexar_quic::Backend;
///
/// let backend: Backend = "s2n-quic".parse()?;
/// assert_eq!(backend, Backend::S2nQuic);
/// println!("{backend} is {}", if backend.is_available() { "here" } else { "not in this build" });
/// # Ok::<(), nexar_quic::BackendError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// [quinn](https://docs.rs/quinn), feature `quinn`: the default.
    Quinn,
    /// [s2n-quic](https://docs.rs/s2n-quic), feature `s2n-quic`.
    S2nQuic,
}

impl Backend {
    /// The name: `quinn` or `s2n-quic`.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Quinn => "quinn",
            Backend::S2nQuic => "s2n-quic",
        }
    }

    /// All of them, in the order of preference.
    pub const ALL: [Backend; 2] = [Backend::Quinn, Backend::S2nQuic];

    /// Whether it is compiled in.
    pub const fn is_available(self) -> bool {
        match self {
            Backend::Quinn => cfg!(feature = "quinn"),
            Backend::S2nQuic => cfg!(feature = "s2n-quic"),
        }
    }
}

impl Default for Backend {
    /// The first of [`ALL`](Self::ALL) that is compiled in; quinn if none is.
    fn default() -> Self {
        let available = Backend::ALL.into_iter().find(|it| it.is_available());
        available.unwrap_or(Backend::Quinn)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(name: &str) -> Result<Self, BackendError> {
        match name {
            "quinn" => Ok(Backend::Quinn),
            "s2n-quic" => Ok(Backend::S2nQuic),
            _ => Err(BackendError::Unknown {
                name: name.chars().take(64).collect(),
            }),
        }
    }
}

/// A backend that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There is none of this name.
    #[error("no transport is called {name:?}; there are quinn and s2n-quic")]
    Unknown {
        /// The name.
        name: String,
    },
    /// It is not part of this build.
    #[error(
        "{backend} is not part of this build: enable the feature `{backend}` of nexar-collectives or nexar-quic"
    )]
    NotCompiledIn {
        /// The backend.
        backend: Backend,
    },
}

/// An enum with one variant per compiled backend, whose methods pass everything on to it.
macro_rules! any {
    ($(#[$doc:meta])* $name:ident, $quinn:ident, $s2n:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum $name {
            /// On quinn.
            #[cfg(feature = "quinn")]
            #[cfg_attr(docsrs, doc(cfg(feature = "quinn")))]
            Quinn(quinn::$quinn),
            /// On s2n-quic.
            #[cfg(feature = "s2n-quic")]
            #[cfg_attr(docsrs, doc(cfg(feature = "s2n-quic")))]
            S2nQuic(s2n::$s2n),
        }
    };
}

/// Evaluates `$body` with `$inner` bound to the value in the variant. Matching on the place instead
/// of a reference keeps it valid for an enum without variants.
macro_rules! each {
    ($value:expr, $inner:ident => $body:expr) => {
        match *$value {
            #[cfg(feature = "quinn")]
            Self::Quinn(ref $inner) => $body,
            #[cfg(feature = "s2n-quic")]
            Self::S2nQuic(ref $inner) => $body,
        }
    };
    (mut $value:expr, $inner:ident => $body:expr) => {
        match *$value {
            #[cfg(feature = "quinn")]
            Self::Quinn(ref mut $inner) => $body,
            #[cfg(feature = "s2n-quic")]
            Self::S2nQuic(ref mut $inner) => $body,
        }
    };
}

any!(
    /// A transport whose backend is chosen at run time. The choice costs one branch per call.
    AnyTransport, QuinnTransport, S2nQuicTransport
);
any!(
    /// A connection of an [`AnyTransport`].
    #[derive(Clone)]
    AnyConnection, QuinnConnection, S2nQuicConnection
);
any!(
    /// The sending half of a stream of an [`AnyConnection`].
    AnySendStream, QuinnSendStream, S2nQuicSendStream
);
any!(
    /// The receiving half of a stream of an [`AnyConnection`].
    AnyRecvStream, QuinnRecvStream, S2nQuicRecvStream
);
any!(
    /// Yields the unidirectional streams of an [`AnyConnection`].
    AnyUniAcceptor, QuinnUniAcceptor, S2nQuicUniAcceptor
);
any!(
    /// Yields the bidirectional streams of an [`AnyConnection`].
    AnyBiAcceptor, QuinnBiAcceptor, S2nQuicBiAcceptor
);

impl AnyTransport {
    /// Binds an endpoint of the given backend.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Backend`] with a [`BackendError`] if the backend is not compiled in, and those of
    /// the backend.
    pub fn bind(backend: Backend, config: Config) -> Result<Self, ConnectionError> {
        match backend {
            #[cfg(feature = "quinn")]
            Backend::Quinn => quinn::QuinnTransport::bind(config).map(AnyTransport::Quinn),
            #[cfg(feature = "s2n-quic")]
            Backend::S2nQuic => s2n::S2nQuicTransport::bind(config).map(AnyTransport::S2nQuic),
            #[allow(
                unreachable_patterns,
                reason = "reachable unless every backend is compiled in"
            )]
            backend => {
                drop(config);
                Err(ConnectionError::Backend(Arc::new(
                    BackendError::NotCompiledIn { backend },
                )))
            }
        }
    }

    /// Which backend this is.
    pub fn backend(&self) -> Backend {
        match *self {
            #[cfg(feature = "quinn")]
            AnyTransport::Quinn(_) => Backend::Quinn,
            #[cfg(feature = "s2n-quic")]
            AnyTransport::S2nQuic(_) => Backend::S2nQuic,
        }
    }
}

/// Turns what a backend yields into the enums.
trait IntoAny<T> {
    fn into_any(self) -> T;
}

macro_rules! into_any {
    ($feature:literal, $variant:ident, $backend:ident: $connection:ident, $send:ident, $recv:ident) => {
        #[cfg(feature = $feature)]
        impl IntoAny<NewConnection<AnyConnection>> for NewConnection<$backend::$connection> {
            fn into_any(self) -> NewConnection<AnyConnection> {
                NewConnection {
                    connection: AnyConnection::$variant(self.connection),
                    uni: AnyUniAcceptor::$variant(self.uni),
                    bi: AnyBiAcceptor::$variant(self.bi),
                }
            }
        }

        #[cfg(feature = $feature)]
        impl IntoAny<AnySendStream> for $backend::$send {
            fn into_any(self) -> AnySendStream {
                AnySendStream::$variant(self)
            }
        }

        #[cfg(feature = $feature)]
        impl IntoAny<AnyRecvStream> for $backend::$recv {
            fn into_any(self) -> AnyRecvStream {
                AnyRecvStream::$variant(self)
            }
        }

        #[cfg(feature = $feature)]
        impl IntoAny<(AnySendStream, AnyRecvStream)> for ($backend::$send, $backend::$recv) {
            fn into_any(self) -> (AnySendStream, AnyRecvStream) {
                (self.0.into_any(), self.1.into_any())
            }
        }
    };
}

into_any!("quinn", Quinn, quinn: QuinnConnection, QuinnSendStream, QuinnRecvStream);
into_any!("s2n-quic", S2nQuic, s2n: S2nQuicConnection, S2nQuicSendStream, S2nQuicRecvStream);

impl Transport for AnyTransport {
    type Connection = AnyConnection;

    fn name(&self) -> &str {
        each!(self, transport => transport.name())
    }

    fn capabilities(&self) -> Capabilities {
        each!(self, transport => transport.capabilities())
    }

    fn identity(&self) -> &PeerId {
        each!(self, transport => transport.identity())
    }

    fn local_addr(&self) -> SocketAddr {
        each!(self, transport => transport.local_addr())
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&PeerId>,
    ) -> Result<NewConnection<AnyConnection>, ConnectionError> {
        each!(self, transport => {
            transport.connect(address, expected).await.map(IntoAny::into_any)
        })
    }

    async fn accept(&self) -> Option<NewConnection<AnyConnection>> {
        each!(self, transport => transport.accept().await.map(IntoAny::into_any))
    }

    async fn close(&self, code: u64, reason: &str) {
        each!(self, transport => transport.close(code, reason).await)
    }

    fn background(&self) -> &Handle {
        each!(self, transport => transport.background())
    }

    async fn drive<F: Future + Send>(&self, future: F) -> F::Output {
        each!(self, transport => transport.drive(future).await)
    }
}

impl Connection for AnyConnection {
    type SendStream = AnySendStream;
    type RecvStream = AnyRecvStream;
    type UniAcceptor = AnyUniAcceptor;
    type BiAcceptor = AnyBiAcceptor;

    async fn open_uni(&self) -> Result<AnySendStream, ConnectionError> {
        each!(self, connection => connection.open_uni().await.map(IntoAny::into_any))
    }

    async fn open_bi(&self) -> Result<(AnySendStream, AnyRecvStream), ConnectionError> {
        each!(self, connection => connection.open_bi().await.map(IntoAny::into_any))
    }

    fn peer_identity(&self) -> &PeerId {
        each!(self, connection => connection.peer_identity())
    }

    fn remote_addr(&self) -> SocketAddr {
        each!(self, connection => connection.remote_addr())
    }

    fn close(&self, code: u64, reason: &str) {
        each!(self, connection => connection.close(code, reason))
    }

    async fn closed(&self) -> ConnectionError {
        each!(self, connection => connection.closed().await)
    }

    fn stats(&self) -> ConnectionStats {
        each!(self, connection => connection.stats())
    }
}

impl UniAcceptor for AnyUniAcceptor {
    type RecvStream = AnyRecvStream;

    async fn accept(&mut self) -> Result<AnyRecvStream, ConnectionError> {
        each!(mut self, acceptor => acceptor.accept().await.map(IntoAny::into_any))
    }
}

impl BiAcceptor for AnyBiAcceptor {
    type SendStream = AnySendStream;
    type RecvStream = AnyRecvStream;

    async fn accept(&mut self) -> Result<(AnySendStream, AnyRecvStream), ConnectionError> {
        each!(mut self, acceptor => acceptor.accept().await.map(IntoAny::into_any))
    }
}

impl SendStream for AnySendStream {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamError>> {
        each!(mut self, stream => stream.poll_write(cx, data))
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        each!(mut self, stream => stream.finish())
    }

    fn poll_acked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        each!(mut self, stream => stream.poll_acked(cx))
    }

    fn reset(&mut self, code: u64) {
        each!(mut self, stream => stream.reset(code))
    }

    fn set_priority(&mut self, priority: i32) {
        each!(mut self, stream => stream.set_priority(priority))
    }
}

impl RecvStream for AnyRecvStream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        each!(mut self, stream => stream.poll_read(cx, max))
    }

    fn stop(&mut self, code: u64) {
        each!(mut self, stream => stream.stop(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_shown() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse::<Backend>().unwrap(), backend);
        }
        let error = "tcp".parse::<Backend>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no transport is called \"tcp\"; there are quinn and s2n-quic"
        );
    }

    #[test]
    fn a_missing_backend_says_what_to_do() {
        let identity = crate::Identity::insecure_loopback("j").unwrap();
        let config = Config::new(identity, "127.0.0.1:0".parse().unwrap());
        for backend in Backend::ALL {
            match AnyTransport::bind(backend, config.clone()) {
                Ok(transport) => assert_eq!(transport.backend(), backend),
                Err(error) => {
                    assert!(!backend.is_available());
                    let remedy = format!("enable the feature `{backend}`");
                    assert!(error.to_string().contains(&remedy), "{error}");
                }
            }
        }
    }
}
