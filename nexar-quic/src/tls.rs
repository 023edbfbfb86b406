//! The one TLS configuration of all backends: TLS 1.3, certificates on both sides, one authority.

use crate::Identity;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    RootCertStore, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier},
    version::TLS13,
};
use std::sync::Arc;

/// The protocol that both sides must name in the handshake.
pub(crate) const ALPN: &[u8] = b"nexar/1";

/// A name for the client's `ServerName`: required by TLS, checked by nobody here.
pub(crate) const SERVER_NAME: &str = "nexar";

/// The cryptography, passed explicitly: a library must not install a process-wide default.
/// AES-128-GCM comes first; ChaCha20 halves the rate where the CPU has AES instructions.
pub(crate) fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.tls13().is_some());
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

/// The configuration for incoming connections.
pub(crate) fn server_config(identity: &Identity) -> Result<ServerConfig, Error> {
    let provider = Arc::new(provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(identity.roots(), provider.clone())
        .build()
        .map_err(|error: VerifierBuilderError| Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(identity.leaf());
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Every handshake checks certificates anew; tickets would also skip the renewal.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The configuration for outgoing connections.
pub(crate) fn client_config(identity: &Identity) -> Result<ClientConfig, Error> {
    let provider = Arc::new(provider());
    let verifier = Arc::new(ClusterVerifier {
        roots: identity.roots(),
        provider: provider.clone(),
    });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(identity.leaf());
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// Accepts every server whose certificate the cluster's authority has signed and whose time is right.
///
/// The DNS name is not checked: ranks are dialled by address, and who has answered is compared with
/// whom was dialled by [`PeerId`](nexar_core::transport::PeerId) afterwards.
#[derive(Debug)]
struct ClusterVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ClusterVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}

/// Who turned a handshake down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedBy {
    /// This side did not accept the peer.
    Us,
    /// The peer did not accept this side.
    Peer,
}

/// What a TLS alert means to a user of this crate; `detail` is what the TLS stack said.
pub(crate) fn refusal(by: RefusedBy, alert: u8, detail: &str) -> String {
    let whose = match by {
        RefusedBy::Us => "the peer's certificate",
        RefusedBy::Peer => "this side's certificate, says the peer,",
    };
    match alert {
        UNKNOWN_CA | DECRYPT_ERROR => {
            format!(
                "{whose} is not signed by the cluster's CA: the secrets (or the CA files) differ"
            )
        }
        CERTIFICATE_EXPIRED => format!(
            "{whose} has expired or is not valid yet: renew it, or compare the clocks of both hosts"
        ),
        CERTIFICATE_REQUIRED => match by {
            RefusedBy::Us => "the peer showed no certificate".to_owned(),
            RefusedBy::Peer => "the peer asks for a certificate and got none".to_owned(),
        },
        UNSUPPORTED_CERTIFICATE => {
            format!("{whose} does not allow both client and server authentication")
        }
        NO_APPLICATION_PROTOCOL => "the other side does not speak this version of nexar".to_owned(),
        _ if detail.is_empty() => format!("TLS alert {alert}"),
        _ => format!("TLS alert {alert}: {detail}"),
    }
}

const UNSUPPORTED_CERTIFICATE: u8 = 43;
const CERTIFICATE_EXPIRED: u8 = 45;
const UNKNOWN_CA: u8 = 48;
/// An authority of the same name with another key.
const DECRYPT_ERROR: u8 = 51;
const CERTIFICATE_REQUIRED: u8 = 116;
const NO_APPLICATION_PROTOCOL: u8 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_128_gcm_is_preferred_and_everything_is_tls_1_3() {
        let suites = provider().cipher_suites;
        assert_eq!(suites[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert!(suites.iter().all(|suite| suite.tls13().is_some()));
    }

    #[test]
    fn reasons_name_the_side_and_the_remedy() {
        let us = refusal(RefusedBy::Us, 48, "");
        assert!(us.starts_with("the peer's certificate is not signed") && us.contains("secrets"));
        let peer = refusal(RefusedBy::Peer, 45, "");
        assert!(peer.starts_with("this side's") && peer.contains("clocks"));
        assert_eq!(
            refusal(RefusedBy::Us, 40, "handshake"),
            "TLS alert 40: handshake"
        );
    }
}
