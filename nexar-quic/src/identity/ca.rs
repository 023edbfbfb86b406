//! The certificate authority that a cluster secret stands for.

use super::{IdentityError, Secret, push_hex};
use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::{
    agreement::{ECDH_P256, PrivateKey},
    digest,
    hkdf::{HKDF_SHA256, Salt},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SignatureAlgorithm, SigningKey,
};
use rustls::{RootCertStore, pki_types::CertificateDer};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Argon2id memory in KiB, passes and lanes for a human-chosen secret: about 25 ms, once per process.
const ARGON2_COST: (u32, u32, u32) = (19 * 1024, 2, 1);

/// All ranks must derive the same key, so the salt is a constant.
const ARGON2_SALT: &[u8] = b"nexar cluster secret v1";
const HKDF_SALT: &[u8] = b"nexar cluster key derivation v1";
const HKDF_INFO_RESET: &[u8] = b"stateless reset";
const HKDF_INFO_CA: &[u8] = b"certificate authority P-256";

/// How far a leaf's validity reaches into the past, for hosts whose clocks differ.
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// The derived authority: signs the leaves of this process.
pub(super) struct ClusterCa {
    issuer: Issuer<'static, CaKey>,
    roots: RootCertStore,
    reset_key: Zeroizing<[u8; 32]>,
}

impl ClusterCa {
    /// The authority of `secret`, the same in every process.
    pub(super) fn derive(secret: &Secret) -> Result<Self, IdentityError> {
        match secret.as_key() {
            Some(key) => ClusterCa::from_key_material(&key[..]),
            None => ClusterCa::from_key_material(&stretch(secret)?[..]),
        }
    }

    /// The authority of high-entropy key material.
    pub(super) fn from_key_material(material: &[u8]) -> Result<Self, IdentityError> {
        let key = CaKey::derive(material)?;
        let params = ca_params(&key)?;
        let certificate = params.self_signed(&key).map_err(certificate_error)?;
        let mut roots = RootCertStore::empty();
        roots
            .add(certificate.der().clone())
            .map_err(IdentityError::Tls)?;
        let mut reset_key = Zeroizing::new([0u8; 32]);
        expand(material, &[HKDF_INFO_RESET], &mut reset_key)?;
        Ok(ClusterCa {
            issuer: Issuer::new(params, key),
            roots,
            reset_key,
        })
    }

    /// The trust anchor: only the authority's name and public key.
    pub(super) fn roots(&self) -> &RootCertStore {
        &self.roots
    }

    /// Another key that all processes of the cluster share; see
    /// [`Identity::reset_key`](super::Identity::reset_key).
    pub(super) fn reset_key(&self) -> &[u8; 32] {
        &self.reset_key
    }

    /// A certificate for `key` with the name `uri`, valid from a little before now for `lifetime`.
    pub(super) fn mint(
        &self,
        key: &KeyPair,
        uri: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, IdentityError> {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut params = CertificateParams::default();
        params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
        params.not_after = epoch + now + lifetime;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "nexar rank");
        let uri = uri.try_into().map_err(certificate_error)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params
            .signed_by(key, &self.issuer)
            .map_err(certificate_error)?;
        Ok(certificate.der().clone())
    }
}

pub(super) fn certificate_error(error: rcgen::Error) -> IdentityError {
    IdentityError::Certificate(error.to_string())
}

/// The authority's name ends in a fingerprint of its public key, so that a rank with another secret
/// finds no issuer at all ("unknown CA") instead of an issuer whose signature fails.
fn ca_params(key: &CaKey) -> Result<CertificateParams, IdentityError> {
    let fingerprint = digest::digest(&digest::SHA256, &key.public);
    let fingerprint = fingerprint
        .as_ref()
        .first_chunk::<8>()
        .copied()
        .unwrap_or_default();
    let mut name = String::from("nexar cluster ");
    push_hex(&mut name, &fingerprint);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn stretch(secret: &Secret) -> Result<Zeroizing<[u8; 32]>, IdentityError> {
    let (memory, passes, lanes) = ARGON2_COST;
    let failed = |_| IdentityError::Crypto("Argon2id failed");
    let params = Params::new(memory, passes, lanes, Some(32)).map_err(failed)?;
    let mut key = Zeroizing::new([0u8; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(secret.expose().as_bytes(), ARGON2_SALT, &mut key[..])
        .map_err(failed)?;
    Ok(key)
}

/// HKDF-SHA256.
fn expand(material: &[u8], info: &[&[u8]], key: &mut [u8; 32]) -> Result<(), IdentityError> {
    let failed = |_| IdentityError::Crypto("key derivation failed");
    let prk = Salt::new(HKDF_SHA256, HKDF_SALT).extract(material);
    let okm = prk.expand(info, HKDF_SHA256).map_err(failed)?;
    okm.fill(key).map_err(failed)
}

/// A P-256 key pair that rcgen can sign with.
struct CaKey {
    pair: EcdsaKeyPair,
    public: Vec<u8>,
}

impl CaKey {
    /// Candidates are drawn until one is a valid scalar; the first fails once in 2^32 cases.
    fn derive(material: &[u8]) -> Result<Self, IdentityError> {
        let failed = |_| IdentityError::Crypto("key derivation failed");
        for attempt in 0..=u8::MAX {
            let mut scalar = Zeroizing::new([0u8; 32]);
            expand(material, &[HKDF_INFO_CA, &[attempt]], &mut scalar)?;
            let Ok(private) = PrivateKey::from_private_key(&ECDH_P256, &scalar[..]) else {
                continue;
            };
            let public = private
                .compute_public_key()
                .map_err(failed)?
                .as_ref()
                .to_vec();
            let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
            let pair =
                EcdsaKeyPair::from_private_key_and_public_key(algorithm, &scalar[..], &public)
                    .map_err(|_| IdentityError::Crypto("the derived key was not accepted"))?;
            return Ok(CaKey { pair, public });
        }
        Err(IdentityError::Crypto("no key could be derived"))
    }
}

impl PublicKeyData for CaKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl SigningKey for CaKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        signature
            .map(|s| s.as_ref().to_vec())
            .map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(secret: &str) -> Vec<u8> {
        let ca = ClusterCa::derive(&Secret::new(secret).unwrap()).unwrap();
        let root = &ca.roots().roots[0];
        [root.subject.as_ref(), root.subject_public_key_info.as_ref()].concat()
    }

    #[test]
    fn the_same_secret_gives_the_same_authority_and_another_does_not() {
        let key = "11".repeat(32);
        assert_eq!(anchor(&key), anchor(&key));
        assert_ne!(anchor(&key), anchor(&"12".repeat(32)));
        assert_eq!(
            anchor("correct horse battery"),
            anchor("correct horse battery")
        );
        assert_ne!(
            anchor("correct horse battery"),
            anchor("correct horse batterz")
        );
    }

    /// The derivation is part of the wire contract: ranks of different builds must agree.
    #[test]
    fn the_derivation_is_stable() {
        let ca = ClusterCa::derive(&Secret::new(&"a5".repeat(32)).unwrap()).unwrap();
        let digest = digest::digest(&digest::SHA256, &ca.issuer.key().public);
        let mut text = String::new();
        push_hex(&mut text, digest.as_ref());
        assert_eq!(
            text,
            "44812ad8d8e35f5b3443ed8547d686208a814a3d6e367999bbd6094614fdf377"
        );
    }
}
