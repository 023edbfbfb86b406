//! Keys that a process finds again when it is started anew on the same address.

use crate::Identity;
use aws_lc_rs::hmac;
use std::net::SocketAddr;

/// A key for `purpose` that follows from the cluster's secret and the local address.
///
/// With it, a restarted process answers packets of connections that the former one had with reset tokens
/// that the peers know: they see at once that the old connection is gone. There is none for an identity
/// without a secret, nor for an address that several hosts may have, since one of them would give away the
/// tokens of the others.
pub(crate) fn key(identity: &Identity, local: SocketAddr, purpose: &str) -> Option<hmac::Tag> {
    let secret = identity
        .reset_key()
        .filter(|_| !local.ip().is_unspecified())?;
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
    Some(hmac::sign(&secret, format!("{purpose} {local}").as_bytes()))
}
