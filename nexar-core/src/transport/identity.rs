//! Who a peer is.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The identity that a peer has proven in the handshake.
///
/// For clusters with a shared secret it has the form `job/uuid/incarnation`, new for every process; for
/// certificates of a PKI it is the first URI or DNS name of the leaf. Two values are equal when they
/// name the same process (or certificate holder).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(std::sync::Arc<str>);

impl PeerId {
    /// The identity with this name.
    pub fn new(name: &str) -> Self {
        PeerId(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerId({})", self.0)
    }
}

impl Serialize for PeerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PeerId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| PeerId::new(&name))
    }
}
