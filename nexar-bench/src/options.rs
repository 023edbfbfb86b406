//! Values of command-line options that the tools share.

use nexar_quic::{Backend, BackendError};
use std::time::Duration;

/// Longest time that can be given, in seconds: a year.
const MAX_SECONDS: f64 = 86_400.0 * 365.0;

/// A transport that is part of this build.
///
/// # Errors
///
/// [`BackendError`] if there is none of this name, or if it is not compiled in.
pub fn transport(name: &str) -> Result<Backend, BackendError> {
    let backend: Backend = name.parse()?;
    if backend.is_available() {
        Ok(backend)
    } else {
        Err(BackendError::NotCompiledIn { backend })
    }
}

/// A time in seconds, such as `5` or `0.5`.
///
/// # Errors
///
/// A message if it is not a number between 0 and a year.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || format!("'{text}' is not a number of seconds");
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    if !(0.0..=MAX_SECONDS).contains(&seconds) {
        return Err(expected());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

/// As [`seconds`], but more than 0.
///
/// # Errors
///
/// Those of [`seconds`], and a message for 0.
pub fn time_limit(text: &str) -> Result<Duration, String> {
    let limit = seconds(text)?;
    if limit.is_zero() {
        Err("a time limit cannot be 0".into())
    } else {
        Ok(limit)
    }
}

/// A size for people: `8 B`, `64 KiB`, `1.5 MiB`.
pub fn readable(bytes: usize) -> String {
    let (unit, name) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..0x10_0000 => (1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    let value = (bytes as f64 / f64::from(unit) * 100.0).round() / 100.0;
    format!("{value} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_fractions_and_bounds() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        for bad in ["", "-1", "nan", "inf", "1e9", "five"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert!(time_limit("0").is_err());
    }

    #[test]
    fn transports_have_names() {
        for backend in Backend::ALL {
            match transport(backend.name()) {
                Ok(found) => assert_eq!(found, backend),
                Err(error) => assert!(!backend.is_available(), "{error}"),
            }
        }
        assert!(transport("tcp").unwrap_err().to_string().contains("quinn"));
    }
}
