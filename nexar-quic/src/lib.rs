//! QUIC transports for nexar: encrypted, mutually authenticated, and fast without configuration.
//!
//! An [`Identity`] says who this process is and whom it trusts, a [`Config`] where it listens, and
//! [`QuinnTransport`] or [`AnyTransport`] is the endpoint, behind the traits of
//! [`nexar_core::transport`].
//!
//! ```
//! use nexar_core::transport::{Connection, RecvStream, SendStream, Transport, UniAcceptor};
//! use nexar_quic::{AnyTransport, Backend, Config, Identity, Secret};
//!
//! # #[cfg(not(feature = "quinn"))] fn main() {}
//! # #[cfg(feature = "quinn")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = Secret::random()?;
//! let bind = || -> Result<_, Box<dyn std::error::Error>> {
//!     let identity = Identity::from_secret(&secret, "training-7")?;
//!     let config = Config::new(identity, "127.0.0.1:0".parse()?);
//!     Ok(AnyTransport::bind(Backend::default(), config)?)
//! };
//! let (a, b) = (bind()?, bind()?);
//!
//! let (dialled, accepted) = tokio::join!(a.connect(b.local_addr(), None), b.accept());
//! let (dialled, mut accepted) = (dialled?, accepted.ok_or("closed")?);
//! assert_eq!(dialled.connection.peer_identity(), b.identity());
//!
//! let mut send = dialled.connection.open_uni().await?;
//! a.drive(send.write_all("hello".into())).await?;
//! let mut recv = accepted.uni.accept().await?;
//! assert_eq!(b.drive(recv.read(100)).await?.as_deref(), Some(&b"hello"[..]));
//!
//! tokio::join!(a.close(0, "done"), b.close(0, "done"));
//! # Ok(())
//! # }
//! ```
//!
//! # What is bounded
//!
//! Memory that one peer can make this process hold: [`Config::connection_window`] unread bytes. Memory of
//! one connection for data on its way out: [`Config::send_window`]. Streams: [`Config::max_streams`] of
//! each kind. Incoming handshakes in progress or not yet accepted: 256, above which clients wait; with quinn,
//! from 64 on they must prove their address first. [`S2nQuicTransport`] says where its bounds differ.
//!
//! # Features
//!
//! `quinn` (default) and `s2n-quic`, in any combination: they can be chosen at run time, and mixed within a
//! cluster. Without a backend the identities remain.
#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(any(feature = "quinn", feature = "s2n-quic")),
    allow(dead_code, unused_variables, reason = "only a backend uses it")
)]

#[cfg(any(feature = "quinn", feature = "s2n-quic"))]
mod allocator;
mod any;
mod background;
mod config;
#[cfg(any(feature = "quinn", feature = "s2n-quic"))]
mod driver;
mod identity;
mod path;
#[cfg(feature = "quinn")]
mod quinn_backend;
mod refusals;
#[cfg(any(feature = "quinn", feature = "s2n-quic"))]
mod resets;
#[cfg(feature = "s2n-quic")]
mod s2n_backend;
mod settings;
mod socket;
mod tls;

pub use any::{
    AnyBiAcceptor, AnyConnection, AnyRecvStream, AnySendStream, AnyTransport, AnyUniAcceptor,
    Backend, BackendError,
};
pub use config::{Config, Profile};
pub use identity::{
    DEFAULT_CERTIFICATE_LIFETIME, Identity, IdentityError, MAX_JOB_LEN, MAX_SECRET_LEN,
    MIN_SECRET_LEN, Secret,
};
#[cfg(feature = "quinn")]
#[cfg_attr(docsrs, doc(cfg(feature = "quinn")))]
pub use quinn_backend::{
    QuinnBiAcceptor, QuinnConnection, QuinnRecvStream, QuinnSendStream, QuinnTransport,
    QuinnUniAcceptor,
};
#[cfg(feature = "s2n-quic")]
#[cfg_attr(docsrs, doc(cfg(feature = "s2n-quic")))]
pub use s2n_backend::{
    S2nQuicBiAcceptor, S2nQuicConnection, S2nQuicRecvStream, S2nQuicSendStream, S2nQuicTransport,
    S2nQuicUniAcceptor,
};
