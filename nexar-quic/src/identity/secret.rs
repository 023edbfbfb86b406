//! The cluster secret.

use super::IdentityError;
use std::{env, fmt, fs, path::Path};
use zeroize::{Zeroize, Zeroizing};

/// Shortest secret that is accepted, in bytes.
pub const MIN_SECRET_LEN: usize = 8;

/// Longest secret that is accepted, in bytes.
pub const MAX_SECRET_LEN: usize = 4096;

/// The secret that all ranks of a cluster share.
///
/// Exactly 64 hexadecimal digits are taken as a random 256-bit key (`openssl rand -hex 32`, or
/// [`Secret::random`]). Anything else counts as chosen by a human and is stretched with Argon2id when
/// an identity is derived from it. Whoever can reach the port of a rank can test guesses of such a
/// secret offline, so a random key is better wherever a program rather than a person handles it.
///
/// The value is wiped from memory on drop and never shown by `Debug`.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The given secret, without white space around it.
    ///
    /// # Errors
    ///
    /// [`IdentityError::SecretLength`] if it is shorter than [`MIN_SECRET_LEN`] or longer than
    /// [`MAX_SECRET_LEN`].
    pub fn new(secret: &str) -> Result<Self, IdentityError> {
        let secret = secret.trim();
        if !(MIN_SECRET_LEN..=MAX_SECRET_LEN).contains(&secret.len()) {
            return Err(IdentityError::SecretLength {
                length: secret.len(),
            });
        }
        Ok(Secret(Zeroizing::new(secret.to_owned())))
    }

    /// A new random 256-bit key from the system's generator.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Crypto`] if the system has no randomness to give.
    pub fn random() -> Result<Self, IdentityError> {
        let mut key = Zeroizing::new([0u8; 32]);
        aws_lc_rs::rand::fill(&mut key[..])
            .map_err(|_| IdentityError::Crypto("the system's random generator failed"))?;
        let mut text = Zeroizing::new(String::with_capacity(64));
        super::push_hex(&mut text, &key[..]);
        Ok(Secret(text))
    }

    /// The secret in a file.
    ///
    /// # Errors
    ///
    /// [`IdentityError::File`] if the file cannot be read as text, and those of [`Secret::new`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, IdentityError> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|source| IdentityError::File {
            path: path.to_owned(),
            source,
        })?;
        Secret::new(&Zeroizing::new(text))
    }

    /// The secret in `NEXAR_SECRET`, or in the file that `NEXAR_SECRET_FILE` names; `None` if neither
    /// is set. `NEXAR_SECRET` wins.
    ///
    /// # Errors
    ///
    /// Those of [`Secret::new`] and [`Secret::from_file`], and [`IdentityError::NotUnicode`].
    pub fn from_env() -> Result<Option<Self>, IdentityError> {
        if let Some(secret) = env::var_os("NEXAR_SECRET") {
            let secret = secret
                .into_string()
                .map_err(|_| IdentityError::NotUnicode {
                    variable: "NEXAR_SECRET",
                })?;
            return Secret::new(&Zeroizing::new(secret)).map(Some);
        }
        env::var_os("NEXAR_SECRET_FILE")
            .map(Secret::from_file)
            .transpose()
    }

    /// The secret's text, to hand it on to a process of the same cluster.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The 256-bit key that the secret stands for, if it is one.
    pub(super) fn as_key(&self) -> Option<Zeroizing<[u8; 32]>> {
        let digits = self.0.as_bytes().as_chunks::<2>();
        if self.0.len() != 64 || !digits.1.is_empty() {
            return None;
        }
        let mut key = Zeroizing::new([0u8; 32]);
        for (byte, pair) in key.iter_mut().zip(digits.0) {
            let high = char::from(pair[0]).to_digit(16);
            let low = char::from(pair[1]).to_digit(16);
            let (Some(high), Some(low)) = (high, low) else {
                key.zeroize();
                return None;
            };
            *byte = (high * 16 + low) as u8;
        }
        Some(key)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_hex_digits_are_a_key() {
        let text = "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";
        let key = Secret::new(text).unwrap().as_key().unwrap();
        assert_eq!(key[..4], [0x00, 0x11, 0x22, 0x33]);
        assert_eq!(key[16..19], [0xff, 0xee, 0xdd]);
        assert_eq!(key[31], 0x00);
    }

    #[test]
    fn anything_else_is_a_passphrase() {
        let zz = "zz".repeat(32);
        for text in ["correct horse battery", "0011223344556677", zz.as_str()] {
            assert!(Secret::new(text).unwrap().as_key().is_none(), "{text}");
        }
    }

    #[test]
    fn white_space_around_is_dropped_and_debug_shows_nothing() {
        let secret = Secret::new("  correct horse\n").unwrap();
        assert_eq!(secret.expose(), "correct horse");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    #[test]
    fn short_and_long_secrets_are_refused_without_being_shown() {
        for text in [
            String::new(),
            "1234567".into(),
            "   hunter2  ".into(),
            "x".repeat(5000),
        ] {
            let error = Secret::new(&text).unwrap_err();
            assert!(matches!(error, IdentityError::SecretLength { .. }));
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn random_keys_are_keys_and_differ() {
        let (a, b) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert!(a.as_key().is_some());
        assert_ne!(a.expose(), b.expose());
    }
}
