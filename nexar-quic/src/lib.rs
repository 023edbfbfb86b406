//! QUIC transports for nexar: encrypted, mutually authenticated, without configuration.
#![warn(missing_docs)]
#![cfg_attr(
    not(feature = "quinn"),
    allow(dead_code, unused_variables, reason = "only a backend uses it")
)]

mod any;
mod background;
mod config;
#[cfg(feature = "quinn")]
mod driver;
mod identity;
mod path;
#[cfg(feature = "quinn")]
mod quinn_backend;
mod refusals;
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
pub use quinn_backend::{
    QuinnBiAcceptor, QuinnConnection, QuinnRecvStream, QuinnSendStream, QuinnTransport,
    QuinnUniAcceptor,
};
