//! Who this process is, and whom it trusts.
//!
//! The cluster secret *is* the certificate authority: every rank derives the same P-256 key from it
//! and signs a certificate for itself, so that all handshakes are mutual TLS 1.3 and nobody ever sends
//! the secret. Sites with a PKI of their own give certificates in PEM form instead.

mod ca;
mod leaf;
mod peer;
mod secret;

pub(crate) use leaf::Leaf;
pub(crate) use peer::peer_id;
pub use secret::{MAX_SECRET_LEN, MIN_SECRET_LEN, Secret};

use ca::ClusterCa;
use nexar_core::transport::PeerId;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{
    fmt::{self, Write as _},
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use zeroize::Zeroizing;

/// How long a certificate that a rank mints for itself is valid. It is renewed at half of that.
pub const DEFAULT_CERTIFICATE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest name of a job, in bytes.
pub const MAX_JOB_LEN: usize = 128;

/// Key material of the identity that everybody knows. It keeps the handshake the same, and protects
/// against nothing but mistakes.
const LOOPBACK_KEY: &[u8; 32] = b"nexar: not a secret, loopback on";

/// Why an identity could not be made. Never contains the secret or a private key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The secret is empty, too short or too long.
    #[error(
        "the cluster secret has {length} bytes; it needs {MIN_SECRET_LEN} to {MAX_SECRET_LEN}, \
         best is the output of `openssl rand -hex 32`"
    )]
    SecretLength {
        /// Its length in bytes.
        length: usize,
    },
    /// A name of a job that cannot be part of a certificate's name.
    #[error(
        "{name:?} cannot name a job: use 1 to {MAX_JOB_LEN} of the characters A-Z a-z 0-9 . _ -"
    )]
    Job {
        /// The name.
        name: String,
    },
    /// An environment variable does not hold text.
    #[error("{variable} is not valid Unicode")]
    NotUnicode {
        /// The variable.
        variable: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something is missing in PEM input or cannot be decoded.
    #[error("the PEM data of the {what} cannot be used: {reason}")]
    Pem {
        /// Which input.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The certificate has no name that could identify its holder.
    #[error("the certificate has neither a URI, nor a DNS name, nor a subject")]
    NoName,
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
    /// The TLS stack does not accept the certificate or key.
    #[error("certificate or key not accepted: {0}")]
    Tls(#[source] rustls::Error),
    /// A cryptographic operation failed.
    #[error("{0}")]
    Crypto(&'static str),
}

/// Who this process is in its cluster and whom it trusts. Clones share one identity.
///
/// ```
/// use nexar_quic::{Identity, Secret};
///
/// # fn main() -> Result<(), nexar_quic::IdentityError> {
/// let secret = Secret::new("correct horse battery staple")?;
/// let identity = Identity::from_secret(&secret, "training-7")?;
/// assert!(identity.peer_id().as_str().starts_with("training-7/"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

struct Inner {
    peer_id: PeerId,
    roots: Arc<RootCertStore>,
    leaf: Arc<Leaf>,
    reset_key: Option<Zeroizing<[u8; 32]>>,
    loopback_only: bool,
}

impl Identity {
    /// A new identity `job/uuid/incarnation` in the cluster that shares `secret`. Processes with the
    /// same secret accept one another, whatever their jobs are called.
    ///
    /// Costs about 1 ms, and 25 ms more for a secret that is not a 256-bit key.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Job`] for a name that does not fit into a certificate.
    pub fn from_secret(secret: &Secret, job: &str) -> Result<Self, IdentityError> {
        Identity::from_secret_with_lifetime(secret, job, DEFAULT_CERTIFICATE_LIFETIME)
    }

    /// The same with certificates that are valid for `lifetime` from now (and from one hour before, for
    /// clocks that differ). They are renewed at half of it for as long as the identity is in use.
    ///
    /// # Errors
    ///
    /// As [`from_secret`](Self::from_secret).
    pub fn from_secret_with_lifetime(
        secret: &Secret,
        job: &str,
        lifetime: Duration,
    ) -> Result<Self, IdentityError> {
        check_job(job)?;
        Identity::minted(ClusterCa::derive(secret)?, job, lifetime, false)
    }

    /// An identity without a secret, for processes on one host: everybody knows its key. A transport
    /// with it neither binds nor dials an address that is not a loopback address.
    ///
    /// # Errors
    ///
    /// As [`from_secret`](Self::from_secret).
    pub fn insecure_loopback(job: &str) -> Result<Self, IdentityError> {
        check_job(job)?;
        let ca = ClusterCa::from_key_material(LOOPBACK_KEY)?;
        Identity::minted(ca, job, DEFAULT_CERTIFICATE_LIFETIME, true)
    }

    /// The identity of a certificate from a PKI of your own: the chain with the leaf first, the leaf's
    /// private key, and the authorities to trust, each in PEM form. The leaf must allow both client and
    /// server authentication. Peers know this process by the leaf's first URI, else its first DNS name,
    /// else its subject; that name should be different for every process.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Pem`], [`IdentityError::NoName`] or [`IdentityError::Tls`].
    pub fn from_pem(chain: &[u8], key: &[u8], ca: &[u8]) -> Result<Self, IdentityError> {
        let chain = certificates("certificate chain", chain)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| pem_error("private key", &error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("certificate authorities", ca)? {
            roots.add(authority).map_err(IdentityError::Tls)?;
        }
        let peer_id = peer_id(&chain).ok_or(IdentityError::NoName)?;
        let leaf = CertifiedKey::from_der(chain, key, &crate::tls::provider())
            .map_err(IdentityError::Tls)?;
        Ok(Identity(Arc::new(Inner {
            peer_id,
            roots: Arc::new(roots),
            leaf: Arc::new(Leaf::Fixed(Arc::new(leaf))),
            reset_key: None,
            loopback_only: false,
        })))
    }

    /// The same from files.
    ///
    /// # Errors
    ///
    /// [`IdentityError::File`], and those of [`from_pem`](Self::from_pem).
    pub fn from_pem_files(
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
        ca: impl AsRef<Path>,
    ) -> Result<Self, IdentityError> {
        let key = Zeroizing::new(read(key.as_ref())?);
        Identity::from_pem(&read(chain.as_ref())?, &key, &read(ca.as_ref())?)
    }

    /// The name by which peers know this process.
    pub fn peer_id(&self) -> &PeerId {
        &self.0.peer_id
    }

    /// Whether this identity protects against nobody and is therefore limited to loopback addresses.
    pub fn is_loopback_only(&self) -> bool {
        self.0.loopback_only
    }

    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        self.0.roots.clone()
    }

    pub(crate) fn leaf(&self) -> Arc<Leaf> {
        self.0.leaf.clone()
    }

    /// A key that a process on the same address has again after a restart, so that it can tell peers that
    /// their old connection is gone.
    pub(crate) fn reset_key(&self) -> Option<&[u8; 32]> {
        self.0.reset_key.as_deref()
    }

    /// Why `address` must not be used with this identity, if so.
    pub(crate) fn objection_to(&self, address: SocketAddr) -> Option<String> {
        if !self.0.loopback_only || address.ip().to_canonical().is_loopback() {
            return None;
        }
        Some(
            "without a cluster secret only loopback addresses are allowed: \
              set NEXAR_SECRET or NEXAR_SECRET_FILE to the same value on every rank"
                .to_owned(),
        )
    }

    fn minted(
        ca: ClusterCa,
        job: &str,
        lifetime: Duration,
        loopback_only: bool,
    ) -> Result<Self, IdentityError> {
        let name = format!("{job}/{}/{}", uuid()?, incarnation());
        let roots = Arc::new(ca.roots().clone());
        let reset_key = Some(Zeroizing::new(*ca.reset_key()));
        let leaf = leaf::Minted::new(ca, format!("{}{name}", peer::URI_SCHEME), lifetime)?;
        Ok(Identity(Arc::new(Inner {
            peer_id: PeerId::new(&name),
            roots,
            leaf: Arc::new(Leaf::Minted(Box::new(leaf))),
            reset_key,
            loopback_only,
        })))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("peer_id", &self.0.peer_id)
            .field("loopback_only", &self.0.loopback_only)
            .finish_non_exhaustive()
    }
}

fn check_job(job: &str) -> Result<(), IdentityError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if job.is_empty() || job.len() > MAX_JOB_LEN || !job.chars().all(allowed) {
        return Err(IdentityError::Job {
            name: job.chars().take(MAX_JOB_LEN).collect(),
        });
    }
    Ok(())
}

/// 128 random bits in hexadecimal.
fn uuid() -> Result<String, IdentityError> {
    let mut bytes = [0u8; 16];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| IdentityError::Crypto("the system's random generator failed"))?;
    let mut text = String::with_capacity(32);
    push_hex(&mut text, &bytes);
    Ok(text)
}

/// The start of this identity in milliseconds since 1970: a later one on the same host is larger.
fn incarnation() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis()
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|source| IdentityError::File {
        path: path.to_owned(),
        source,
    })
}

fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| pem_error(what, &error.to_string()))?;
    if certificates.is_empty() {
        return Err(pem_error(what, "no certificate in it"));
    }
    Ok(certificates)
}

fn pem_error(what: &'static str, reason: &str) -> IdentityError {
    IdentityError::Pem {
        what,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_job_uuid_incarnation_and_new_every_time() {
        let secret = Secret::new(&"3c".repeat(32)).unwrap();
        let (a, b) = (
            Identity::from_secret(&secret, "job-1").unwrap(),
            Identity::from_secret(&secret, "job-1").unwrap(),
        );
        assert_ne!(a.peer_id(), b.peer_id());
        let parts: Vec<_> = a.peer_id().as_str().split('/').collect();
        assert_eq!((parts.len(), parts[0], parts[1].len()), (3, "job-1", 32));
        assert!(parts[2].parse::<u64>().unwrap() > 1_700_000_000_000);
    }

    #[test]
    fn job_names_are_checked() {
        let long = "x".repeat(129);
        for job in ["", "a b", "a/b", "ä", "a\n", long.as_str()] {
            let error = Identity::insecure_loopback(job).unwrap_err();
            assert!(matches!(error, IdentityError::Job { .. }), "{job:?}");
        }
    }

    #[test]
    fn only_the_insecure_identity_objects_to_other_addresses() {
        let insecure = Identity::insecure_loopback("j").unwrap();
        let secret = Secret::random().unwrap();
        let secure = Identity::from_secret(&secret, "j").unwrap();
        for (address, loopback) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("192.168.0.1:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(
                insecure.objection_to(address).is_none(),
                loopback,
                "{address}"
            );
            assert!(secure.objection_to(address).is_none());
        }
        let text = insecure.objection_to("0.0.0.0:1".parse().unwrap()).unwrap();
        assert!(text.contains("NEXAR_SECRET"));
    }

    #[test]
    fn debug_shows_the_name_only() {
        let secret = Secret::new(&"5d".repeat(32)).unwrap();
        let text = format!("{:?}", Identity::from_secret(&secret, "job").unwrap());
        assert!(text.starts_with("Identity { peer_id: PeerId(job/") && !text.contains("5d5d"));
    }
}
