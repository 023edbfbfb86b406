//! A PKI of a site's own.

use nexar_quic::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use std::time::{Duration, SystemTime};

/// A certificate authority.
pub(crate) struct Site {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: String,
}

impl Site {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "site");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Site {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// A leaf and its key, both in PEM form, after `change`.
    pub(crate) fn leaf(
        &self,
        uri: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        (leaf.pem(), key.serialize_pem())
    }

    /// The identity of a leaf after `change`; it trusts this authority.
    pub(crate) fn identity(
        &self,
        uri: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let (chain, key) = self.leaf(uri, change);
        let ca = self.certificate.as_bytes();
        Identity::from_pem(chain.as_bytes(), key.as_bytes(), ca).unwrap()
    }
}

/// For a leaf: long past its end.
pub(crate) fn expired(params: &mut CertificateParams) {
    params.not_after = rcgen::date_time_ymd(2001, 2, 3);
}

/// For a leaf: valid in two hours.
pub(crate) fn not_yet_valid(params: &mut CertificateParams) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let soon = now.unwrap() + Duration::from_secs(2 * 60 * 60);
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + soon;
}
