//! What a process has to know to join a group, and how the environment says it.

use crate::schedule::Overrides;
use nexar_core::{ConfigError, TimeLimits, wire::MAX_WORLD_SIZE};
use nexar_quic::{Backend, BackendError, Identity, Secret};
use std::{path::PathBuf, str::FromStr, time::Duration};

/// Which rank a process wants to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rank {
    /// Whichever is free.
    #[default]
    Any,
    /// This one.
    Fixed(usize),
}

impl Rank {
    pub(super) fn fixed(self) -> Option<usize> {
        match self {
            Rank::Any => None,
            Rank::Fixed(rank) => Some(rank),
        }
    }
}

impl FromStr for Rank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Rank::Any),
            _ => text
                .parse()
                .map(Rank::Fixed)
                .map_err(|_| format!("'{text}' is neither a rank nor 'any'")),
        }
    }
}

/// Whether a process serves the seed's address itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeedRole {
    /// Rank 0 does.
    #[default]
    Auto,
    /// This process does.
    Host,
    /// Another process does, a rank or a launcher.
    Join,
}

impl FromStr for SeedRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(SeedRole::Auto),
            "host" => Ok(SeedRole::Host),
            "join" => Ok(SeedRole::Join),
            _ => Err(format!("'{text}' is none of auto, host, join")),
        }
    }
}

/// By what a process proves that it belongs to the cluster.
#[derive(Debug, Clone, Default)]
pub(super) enum Credentials {
    /// By nothing, which is possible on loopback only.
    #[default]
    None,
    Secret(Secret),
    Files {
        certificate: PathBuf,
        key: PathBuf,
        ca: PathBuf,
    },
    Identity(Identity),
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) world_size: usize,
    pub(super) rank: Rank,
    pub(super) seed: Option<String>,
    pub(super) seed_role: SeedRole,
    pub(super) bind: Option<String>,
    pub(super) advertise: Option<String>,
    pub(super) credentials: Credentials,
    pub(super) backend: Backend,
    pub(super) limits: TimeLimits,
    pub(super) spin: Option<Duration>,
    pub(super) job: String,
    pub(super) overrides: Overrides,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            world_size: 1,
            rank: Rank::Any,
            seed: None,
            seed_role: SeedRole::Auto,
            bind: None,
            advertise: None,
            credentials: Credentials::None,
            backend: Backend::default(),
            limits: TimeLimits::default(),
            spin: None,
            job: "nexar".into(),
            overrides: Overrides::default(),
        }
    }
}

/// Looks an environment variable up.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<std::ffi::OsString>;

impl Settings {
    pub(super) fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(&|name| std::env::var_os(name))
    }

    pub(super) fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        let default = Settings::default();
        let mut limits = default.limits;
        if let Some(limit) = seconds(lookup, "NEXAR_TIMEOUT_SECS")? {
            limits = limits.with_join(limit).with_operation(limit);
        }
        if let Some(detection) = seconds(lookup, "NEXAR_DETECTION_SECS")? {
            limits = limits.with_detection(detection);
        }
        let spin = parsed(lookup, "NEXAR_SPIN_US", "a number of microseconds")?;
        let settings = Settings {
            world_size: parsed(lookup, "NEXAR_WORLD_SIZE", "a number of ranks")?
                .unwrap_or(default.world_size),
            rank: told(lookup, "NEXAR_RANK")?.unwrap_or_default(),
            seed: text(lookup, "NEXAR_SEED")?,
            seed_role: told(lookup, "NEXAR_SEED_ROLE")?.unwrap_or_default(),
            bind: text(lookup, "NEXAR_BIND")?,
            advertise: text(lookup, "NEXAR_ADVERTISE")?,
            credentials: credentials(lookup)?,
            backend: told(lookup, "NEXAR_TRANSPORT")?.unwrap_or_default(),
            limits,
            spin: spin.map(Duration::from_micros),
            job: text(lookup, "NEXAR_JOB")?.unwrap_or(default.job),
            overrides: told(lookup, "NEXAR_ALGORITHM")?.unwrap_or_default(),
        };
        if settings.seed.is_some() && text(lookup, "NEXAR_WORLD_SIZE")?.is_none() {
            let reason = "not set, though NEXAR_SEED is: set it to the number of ranks";
            return Err(ConfigError::new("NEXAR_WORLD_SIZE", reason));
        }
        settings.check([
            "NEXAR_WORLD_SIZE",
            "NEXAR_RANK",
            "NEXAR_SEED",
            "NEXAR_TRANSPORT",
        ])?;
        Ok(settings)
    }

    /// Checks what can be checked without the network; `names` are those of the settings for world
    /// size, rank, seed and transport.
    pub(super) fn check(&self, names: [&str; 4]) -> Result<(), ConfigError> {
        let [world_name, rank_name, seed_name, transport_name] = names;
        let world_size = self.world_size;
        if world_size == 0 || world_size > MAX_WORLD_SIZE {
            let reason = format!("{world_size} is not a number from 1 to {MAX_WORLD_SIZE}");
            return Err(ConfigError::new(world_name, reason));
        }
        if let Rank::Fixed(rank) = self.rank
            && rank >= world_size
        {
            let reason = format!("rank {rank} does not exist in a world of {world_size}");
            return Err(ConfigError::new(rank_name, reason));
        }
        if self.seed.is_none() && world_size > 1 {
            let reason = "not set, but a world of more than one rank needs host:port of the seed";
            return Err(ConfigError::new(seed_name, reason));
        }
        if !self.backend.is_available() {
            let error = BackendError::NotCompiledIn {
                backend: self.backend,
            };
            return Err(ConfigError::new(transport_name, error.to_string()));
        }
        self.limits.check()
    }

    /// Whether this process serves the seed's address.
    pub(super) fn hosts_seed(&self) -> bool {
        match self.seed_role {
            SeedRole::Host => true,
            SeedRole::Join => false,
            SeedRole::Auto => self.world_size == 1 || self.rank == Rank::Fixed(0),
        }
    }

    pub(super) fn identity(&self) -> Result<Identity, ConfigError> {
        let (setting, identity) = match &self.credentials {
            Credentials::None => ("job", Identity::insecure_loopback(&self.job)),
            Credentials::Secret(secret) => ("secret", Identity::from_secret(secret, &self.job)),
            Credentials::Files {
                certificate,
                key,
                ca,
            } => (
                "certificate files",
                Identity::from_pem_files(certificate, key, ca),
            ),
            Credentials::Identity(identity) => ("identity", Ok(identity.clone())),
        };
        identity.map_err(|error| ConfigError::new(setting, error.to_string()))
    }
}

fn text(lookup: Lookup<'_>, name: &str) -> Result<Option<String>, ConfigError> {
    lookup(name)
        .filter(|value| !value.is_empty())
        .map(|value| {
            value
                .into_string()
                .map_err(|_| ConfigError::new(name, "it is not UTF-8"))
        })
        .transpose()
}

/// A value whose own error says what is expected.
fn told<V: FromStr<Err: ToString>>(
    lookup: Lookup<'_>,
    name: &str,
) -> Result<Option<V>, ConfigError> {
    let parse = |value: String| {
        value
            .parse()
            .map_err(|error: V::Err| ConfigError::new(name, error.to_string()))
    };
    text(lookup, name)?.map(parse).transpose()
}

fn parsed<V: FromStr>(
    lookup: Lookup<'_>,
    name: &str,
    expected: &str,
) -> Result<Option<V>, ConfigError> {
    let parse = |value: String| {
        value
            .parse()
            .map_err(|_| ConfigError::new(name, format!("'{value}' is not {expected}")))
    };
    text(lookup, name)?.map(parse).transpose()
}

fn seconds(lookup: Lookup<'_>, name: &str) -> Result<Option<Duration>, ConfigError> {
    let Some(value) = text(lookup, name)? else {
        return Ok(None);
    };
    let error = |what| ConfigError::new(name, format!("'{value}' is not {what}"));
    let number: f64 = value.parse().map_err(|_| error("a number of seconds"))?;
    Duration::try_from_secs_f64(number)
        .ok()
        .filter(|limit| !limit.is_zero())
        .map(Some)
        .ok_or_else(|| error("a usable time limit in seconds"))
}

fn credentials(lookup: Lookup<'_>) -> Result<Credentials, ConfigError> {
    let [certificate, key, ca] =
        ["NEXAR_CERT", "NEXAR_KEY", "NEXAR_CA"].map(|name| lookup(name).filter(|v| !v.is_empty()));
    let files = [&certificate, &key, &ca]
        .iter()
        .filter(|v| v.is_some())
        .count();
    let error =
        |name: &str, error: nexar_quic::IdentityError| ConfigError::new(name, error.to_string());
    let secret = match (text(lookup, "NEXAR_SECRET")?, lookup("NEXAR_SECRET_FILE")) {
        (Some(secret), _) => Some(Secret::new(&secret).map_err(|e| error("NEXAR_SECRET", e))?),
        (None, Some(file)) if !file.is_empty() => {
            Some(Secret::from_file(file).map_err(|e| error("NEXAR_SECRET_FILE", e))?)
        }
        _ => None,
    };
    match (secret, certificate, key, ca) {
        (None, Some(certificate), Some(key), Some(ca)) => Ok(Credentials::Files {
            certificate: certificate.into(),
            key: key.into(),
            ca: ca.into(),
        }),
        (Some(_), ..) if files > 0 => Err(ConfigError::new(
            "NEXAR_CERT",
            "certificate files and a secret exclude each other: set one of them",
        )),
        (Some(secret), ..) => Ok(Credentials::Secret(secret)),
        _ if files > 0 => Err(ConfigError::new(
            "NEXAR_CERT",
            "NEXAR_CERT, NEXAR_KEY and NEXAR_CA go together: set all three",
        )),
        _ => Ok(Credentials::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        let find = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).into())
        };
        Settings::from_lookup(&find)
    }

    #[cfg(any(feature = "quinn", feature = "s2n-quic"))]
    #[test]
    fn an_empty_environment_is_a_world_of_one() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.world_size, 1);
        assert!(settings.hosts_seed());
    }

    #[cfg(feature = "quinn")]
    #[test]
    fn every_variable_is_read() {
        let settings = settings(&[
            ("NEXAR_WORLD_SIZE", "4"),
            ("NEXAR_RANK", "3"),
            ("NEXAR_SEED", "host:7"),
            ("NEXAR_SEED_ROLE", "host"),
            ("NEXAR_SECRET", "a secret of some length"),
            ("NEXAR_BIND", "eth0"),
            ("NEXAR_ADVERTISE", "10.0.0.1:5"),
            ("NEXAR_TRANSPORT", "quinn"),
            ("NEXAR_TIMEOUT_SECS", "2.5"),
            ("NEXAR_DETECTION_SECS", "1"),
            ("NEXAR_SPIN_US", "0"),
            ("NEXAR_JOB", "night"),
            ("NEXAR_ALGORITHM", "all_reduce:ring"),
        ])
        .unwrap();
        assert_eq!((settings.world_size, settings.rank), (4, Rank::Fixed(3)));
        assert_eq!(settings.seed.as_deref(), Some("host:7"));
        assert!(settings.hosts_seed());
        assert!(matches!(settings.credentials, Credentials::Secret(_)));
        assert_eq!(settings.bind.as_deref(), Some("eth0"));
        assert_eq!(settings.advertise.as_deref(), Some("10.0.0.1:5"));
        assert_eq!(settings.limits.join, Duration::from_millis(2500));
        assert_eq!(settings.limits.operation, Duration::from_millis(2500));
        assert_eq!(settings.limits.detection, Duration::from_secs(1));
        assert_eq!(settings.spin, Some(Duration::ZERO));
        assert_eq!(settings.job, "night");
        assert_eq!(settings.overrides, "all_reduce:ring".parse().unwrap());
    }

    #[test]
    fn errors_name_the_variable() {
        let world = ("NEXAR_WORLD_SIZE", "4");
        let seed = ("NEXAR_SEED", "host:7");
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("NEXAR_WORLD_SIZE", &[("NEXAR_WORLD_SIZE", "four")]),
            ("NEXAR_WORLD_SIZE", &[("NEXAR_WORLD_SIZE", "0")]),
            (
                "NEXAR_WORLD_SIZE",
                &[("NEXAR_WORLD_SIZE", "99999999"), seed],
            ),
            ("NEXAR_WORLD_SIZE", &[seed, ("NEXAR_RANK", "0")]),
            ("NEXAR_RANK", &[world, seed, ("NEXAR_RANK", "-1")]),
            ("NEXAR_RANK", &[world, seed, ("NEXAR_RANK", "4")]),
            ("NEXAR_SEED", &[world]),
            ("NEXAR_SEED_ROLE", &[("NEXAR_SEED_ROLE", "maybe")]),
            ("NEXAR_SECRET", &[("NEXAR_SECRET", "x")]),
            (
                "NEXAR_SECRET_FILE",
                &[("NEXAR_SECRET_FILE", "/nonexistent/secret")],
            ),
            ("NEXAR_CERT", &[("NEXAR_CERT", "cert.pem")]),
            ("NEXAR_TRANSPORT", &[("NEXAR_TRANSPORT", "tcp")]),
            ("NEXAR_TIMEOUT_SECS", &[("NEXAR_TIMEOUT_SECS", "soon")]),
            ("NEXAR_TIMEOUT_SECS", &[("NEXAR_TIMEOUT_SECS", "0")]),
            ("NEXAR_TIMEOUT_SECS", &[("NEXAR_TIMEOUT_SECS", "-3")]),
            ("NEXAR_TIMEOUT_SECS", &[("NEXAR_TIMEOUT_SECS", "inf")]),
            ("NEXAR_SPIN_US", &[("NEXAR_SPIN_US", "-1")]),
            (
                "NEXAR_ALGORITHM",
                &[("NEXAR_ALGORITHM", "all_reduce:magic")],
            ),
        ];
        for (variable, environment) in cases {
            let error = settings(environment).unwrap_err();
            assert_eq!(error.setting, *variable, "{environment:?}: {error}");
        }
    }

    #[test]
    fn a_time_limit_is_shown_as_it_was_given() {
        let error = settings(&[("NEXAR_TIMEOUT_SECS", "1e300")]).unwrap_err();
        assert_eq!(
            error.reason,
            "'1e300' is not a usable time limit in seconds"
        );
    }
}
