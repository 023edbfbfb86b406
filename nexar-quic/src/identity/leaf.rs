//! The certificate that this process shows, and its renewal.

use super::{IdentityError, ca::ClusterCa};
use rcgen::KeyPair;
use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::{CertifiedKey, SigningKey},
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// Shows the current certificate in handshakes of both roles.
pub(crate) enum Leaf {
    /// From files: always the same.
    Fixed(Arc<CertifiedKey>),
    /// Minted here and renewed at half of its life.
    Minted(Box<Minted>),
}

/// A leaf of the cluster's own authority.
pub(crate) struct Minted {
    ca: ClusterCa,
    key: KeyPair,
    signer: Arc<dyn SigningKey>,
    uri: String,
    lifetime: Duration,
    current: Mutex<(Arc<CertifiedKey>, SystemTime)>,
}

impl Minted {
    pub(super) fn new(
        ca: ClusterCa,
        uri: String,
        lifetime: Duration,
    ) -> Result<Self, IdentityError> {
        let key = KeyPair::generate().map_err(super::ca::certificate_error)?;
        let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let signer = crate::tls::provider()
            .key_provider
            .load_private_key(der)
            .map_err(IdentityError::Tls)?;
        let now = SystemTime::now();
        let first = certified(ca.mint(&key, &uri, now, lifetime)?, &signer);
        let current = Mutex::new((first, now));
        Ok(Minted {
            ca,
            key,
            signer,
            uri,
            lifetime,
            current,
        })
    }

    /// The current certificate. One that has lived for half of its life is replaced first; a clock
    /// that was set back counts as that, too. A failed renewal leaves the old one in place.
    fn current(&self, now: SystemTime) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = now
            .duration_since(current.1)
            .is_ok_and(|age| age < self.lifetime / 2);
        if !fresh {
            match self.ca.mint(&self.key, &self.uri, now, self.lifetime) {
                Ok(certificate) => *current = (certified(certificate, &self.signer), now),
                Err(error) => tracing::warn!(%error, "cannot renew this rank's certificate"),
            }
        }
        current.0.clone()
    }
}

fn certified(
    certificate: CertificateDer<'static>,
    signer: &Arc<dyn SigningKey>,
) -> Arc<CertifiedKey> {
    Arc::new(CertifiedKey::new(vec![certificate], signer.clone()))
}

impl Leaf {
    fn current(&self) -> Arc<CertifiedKey> {
        match self {
            Leaf::Fixed(key) => key.clone(),
            Leaf::Minted(minted) => minted.current(SystemTime::now()),
        }
    }
}

impl ResolvesClientCert for Leaf {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Leaf {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Leaf::Fixed(_) => "Leaf::Fixed",
            Leaf::Minted(_) => "Leaf::Minted",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_renewed_at_half_of_its_life_and_keeps_its_key() {
        let ca = ClusterCa::from_key_material(&[7; 32]).unwrap();
        let hour = Duration::from_secs(3600);
        let leaf = Minted::new(ca, "nexar:j/u/1".into(), 24 * hour).unwrap();
        let start = leaf.current.lock().unwrap().1;
        let first = leaf.current(start + hour);
        assert_eq!(leaf.current(start + 11 * hour).cert, first.cert);
        let second = leaf.current(start + 13 * hour);
        assert_ne!(second.cert, first.cert);
        assert_eq!(second.key.public_key(), first.key.public_key());
        assert_eq!(leaf.current(start + 24 * hour).cert, second.cert);
    }
}
