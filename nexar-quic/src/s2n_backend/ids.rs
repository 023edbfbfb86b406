//! Connection IDs, which tell the two endpoints behind one socket apart, and reset tokens.

use crate::{Config, resets};
use aws_lc_rs::{hmac, rand};
use nexar_core::transport::ConnectionError;
use s2n_quic::provider::{
    connection_id::{ConnectionInfo, Generator, LocalId, Validator},
    stateless_reset_token,
};
use s2n_quic_core::stateless_reset::Token;
use std::{convert::Infallible, net::SocketAddr};

/// Bytes of a connection ID: the prefix of its endpoint, then random ones.
const LEN: usize = 20;
const PREFIX: usize = 8;

/// Starts all connection IDs of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix([u8; PREFIX]);

impl Prefix {
    pub(super) fn random() -> Result<Self, ConnectionError> {
        let mut bytes = [0; PREFIX];
        rand::fill(&mut bytes).map_err(super::error::backend)?;
        Ok(Prefix(bytes))
    }

    fn starts(self, id: &[u8]) -> bool {
        id.starts_with(&self.0)
    }
}

/// For whom a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The endpoint that answers.
    Server,
    /// The endpoint that dials.
    Client,
    /// It names no connection of this process. It may be a reset of one by the peer, which the endpoint of
    /// that connection recognises.
    Either,
}

/// The prefixes of the two endpoints of one socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefixes {
    pub(super) server: Prefix,
    pub(super) client: Prefix,
}

impl Prefixes {
    pub(super) fn random() -> Result<Self, ConnectionError> {
        Ok(Prefixes {
            server: Prefix::random()?,
            client: Prefix::random()?,
        })
    }

    /// Looks at the destination connection ID, which all versions of QUIC have in the same place (RFC
    /// 8999): after one byte in a short header, with its length after the version in a long one.
    pub(super) fn target(&self, datagram: &[u8]) -> Target {
        match *datagram {
            [first, ref id @ ..] if first & 0x80 == 0 => {
                if self.client.starts(id) {
                    Target::Client
                } else if self.server.starts(id) {
                    Target::Server
                } else {
                    Target::Either
                }
            }
            [_, _, _, _, _, _, ref id @ ..] if self.client.starts(id) => Target::Client,
            _ => Target::Server,
        }
    }
}

/// Makes the connection IDs of one endpoint.
#[derive(Debug)]
pub(super) struct Ids {
    prefix: Prefix,
    made: u64,
}

impl Ids {
    pub(super) fn new(prefix: Prefix) -> Self {
        Ids { prefix, made: 0 }
    }
}

impl Generator for Ids {
    fn generate(&mut self, _connection: &ConnectionInfo<'_>) -> LocalId {
        self.made += 1;
        let mut id = [0; LEN];
        let (prefix, rest) = id.split_at_mut(PREFIX);
        prefix.copy_from_slice(&self.prefix.0);
        if rand::fill(rest).is_err() {
            // Only unlinkability is lost.
            rest[..8].copy_from_slice(&self.made.to_le_bytes());
        }
        LocalId::from(id)
    }

    /// The peer learns the reset tokens of later connection IDs only.
    fn rotate_handshake_connection_id(&self) -> bool {
        true
    }
}

impl Validator for Ids {
    fn validate(&self, _connection: &ConnectionInfo<'_>, buffer: &[u8]) -> Option<usize> {
        (buffer.len() >= LEN).then_some(LEN)
    }
}

/// Makes the reset tokens of one endpoint. Only one of the two sends resets.
pub(super) struct Resets<const SEND: bool>(hmac::Key);

impl<const SEND: bool> Resets<SEND> {
    pub(super) fn new(config: &Config, local: SocketAddr) -> Result<Self, ConnectionError> {
        let algorithm = hmac::HMAC_SHA256;
        let key = match resets::key(&config.identity, local, "reset") {
            Some(key) => hmac::Key::new(algorithm, key.as_ref()),
            None => {
                let mut key = [0; 32];
                rand::fill(&mut key).map_err(super::error::backend)?;
                hmac::Key::new(algorithm, &key)
            }
        };
        Ok(Resets(key))
    }
}

impl<const SEND: bool> stateless_reset_token::Generator for Resets<SEND> {
    const ENABLED: bool = SEND;

    fn generate(&mut self, id: &[u8]) -> Token {
        let tag = hmac::sign(&self.0, id);
        Token::from(
            tag.as_ref()
                .first_chunk::<16>()
                .copied()
                .unwrap_or_default(),
        )
    }
}

impl<const SEND: bool> stateless_reset_token::Provider for Resets<SEND> {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_go_to_the_endpoint_whose_prefix_they_carry() {
        let prefixes = Prefixes {
            server: Prefix(*b"server--"),
            client: Prefix(*b"client--"),
        };
        let short = |id: &[u8]| [&[0x40], id, b"12345678 and the rest"].concat();
        let long = |id: &[u8]| [&[0xc0, 0, 0, 0, 1, 16], id, b"12345678 and the rest"].concat();
        assert_eq!(prefixes.target(&short(b"client--")), Target::Client);
        assert_eq!(prefixes.target(&short(b"server--")), Target::Server);
        assert_eq!(prefixes.target(&short(b"somebody")), Target::Either);
        assert_eq!(prefixes.target(&long(b"client--")), Target::Client);
        assert_eq!(prefixes.target(&long(b"somebody")), Target::Server);
        for short in [&[][..], &[0x40], &[0xc0], &[0xc0, 0, 0, 0, 1, 16, 9]] {
            assert_ne!(prefixes.target(short), Target::Client);
        }
    }
}
