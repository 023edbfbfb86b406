//! The identity that a verified certificate proves.

use nexar_core::transport::PeerId;
use rustls::pki_types::CertificateDer;
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

/// Scheme of the URI in a certificate that the cluster's own authority minted.
pub(super) const URI_SCHEME: &str = "nexar:";

/// Longest name that is taken from a certificate, in bytes.
const MAX_NAME_LEN: usize = 512;

/// The name in the leaf of `chain`: the first URI, else the first DNS name, else the subject. The
/// caller has verified the chain. `None` if there is no usable name.
pub(crate) fn peer_id(chain: &[CertificateDer<'_>]) -> Option<PeerId> {
    let (_, certificate) = parse_x509_certificate(chain.first()?).ok()?;
    let mut uri = None;
    let mut dns = None;
    if let Some(names) = certificate.subject_alternative_name().ok()? {
        for name in &names.value.general_names {
            match name {
                GeneralName::URI(name) => uri = uri.or(Some(*name)),
                GeneralName::DNSName(name) => dns = dns.or(Some(*name)),
                _ => {}
            }
        }
    }
    let name = match uri.or(dns) {
        Some(name) => name.strip_prefix(URI_SCHEME).unwrap_or(name).to_owned(),
        None => certificate.subject().to_string(),
    };
    (!name.is_empty() && name.len() <= MAX_NAME_LEN).then(|| PeerId::new(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn name_of(sans: Vec<SanType>, common_name: &str) -> Option<PeerId> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.subject_alt_names = sans;
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        peer_id(&[certificate.der().clone()])
    }

    #[test]
    fn a_uri_is_preferred_to_a_dns_name_and_that_to_the_subject() {
        let dns = SanType::DnsName("host.example".try_into().unwrap());
        let uri = SanType::URI("spiffe://x/y".try_into().unwrap());
        let own = SanType::URI("nexar:job/uuid/1".try_into().unwrap());
        let id = |name| Some(PeerId::new(name));
        assert_eq!(
            name_of(vec![dns.clone(), uri, own.clone()], "a"),
            id("spiffe://x/y")
        );
        assert_eq!(name_of(vec![own], "a"), id("job/uuid/1"));
        assert_eq!(name_of(vec![dns], "a"), id("host.example"));
        assert_eq!(name_of(vec![], "a"), id("CN=a"));
    }

    #[test]
    fn garbage_and_overlong_names_have_no_identity() {
        assert_eq!(peer_id(&[]), None);
        assert_eq!(peer_id(&[CertificateDer::from(vec![0x30, 0x82, 1])]), None);
        let long = SanType::URI(
            format!("x:{}", "y".repeat(600))
                .as_str()
                .try_into()
                .unwrap(),
        );
        assert_eq!(name_of(vec![long], "a"), None);
    }
}
