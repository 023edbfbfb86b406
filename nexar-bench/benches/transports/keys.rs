//! Certificates for the subjects that are not nexar's: both processes hold one key pair and trust
//! exactly its certificate. TLS 1.3, mutual, P-256, AES-128-GCM by aws-lc-rs, as in nexar.

use crate::Result;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::{
    CipherSuite, ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The name in the certificate.
pub(crate) const NAME: &str = "localhost";
const ALPN: &[u8] = b"bench";

/// A certificate and its key, DER.
#[derive(Serialize, Deserialize)]
pub(crate) struct Keys {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Keys {
    pub(crate) fn new() -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
        Ok(Keys {
            certificate: certificate.der().to_vec(),
            key: key.serialize_der(),
        })
    }

    pub(crate) fn server(&self) -> Result<ServerConfig> {
        let provider = provider();
        let roots = Arc::new(self.roots()?);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate()], self.key())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    pub(crate) fn client(&self) -> Result<ClientConfig> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(vec![self.certificate()], self.key())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate())?;
        Ok(roots)
    }

    fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate.clone())
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }
}

/// AES-128-GCM only, so that no subject has another cipher.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}
