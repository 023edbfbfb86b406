//! The algorithms that the user asks for.

use super::Algorithm;
use super::select::algorithms;
use nexar_core::Collective;
use std::str::FromStr;

/// The algorithms that the user asks for, by collective.
///
/// Written as in `all_reduce:ring,broadcast:chain`. Collectives that are carried out as another one follow
/// its setting: `all_gather_v` that of `all_gather`, and so on; they have none of their own.
///
/// ```ignore
/// let overrides: Overrides = "all_reduce:ring".parse()?;
/// assert_eq!(overrides.get(Collective::AllReduce), Some(Algorithm::Ring));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Overrides([Option<Algorithm>; Collective::ALL.len()]);

/// The place of a collective in [`Collective::ALL`], which is in the order of the wire numbers, from 1.
const fn slot(collective: Collective) -> usize {
    collective as usize - 1
}

impl Overrides {
    /// The algorithm that is asked for.
    pub(crate) const fn get(&self, collective: Collective) -> Option<Algorithm> {
        self.0[slot(collective)]
    }

    /// Asks for an algorithm. An error if the collective does not know it.
    pub(crate) fn set(
        &mut self,
        collective: Collective,
        algorithm: Algorithm,
    ) -> Result<(), InvalidAlgorithm> {
        if algorithms(collective).is_empty() {
            return Err(InvalidAlgorithm::no_setting(collective));
        }
        if !algorithms(collective).contains(&algorithm) {
            return Err(InvalidAlgorithm::algorithm(collective, algorithm.name()));
        }
        self.0[slot(collective)] = Some(algorithm);
        Ok(())
    }
}

/// The collective that another one is carried out as.
const fn base(collective: Collective) -> Option<Collective> {
    match collective {
        Collective::AllGatherV => Some(Collective::AllGather),
        Collective::GatherV => Some(Collective::Gather),
        Collective::ScatterV => Some(Collective::Scatter),
        Collective::ReduceScatterV => Some(Collective::ReduceScatter),
        Collective::NeighborAllToAll | Collective::NeighborAllToAllV => Some(Collective::AllToAllV),
        Collective::AllReduceMany => Some(Collective::AllReduce),
        _ => None,
    }
}

impl FromStr for Overrides {
    type Err = InvalidAlgorithm;

    fn from_str(text: &str) -> Result<Overrides, InvalidAlgorithm> {
        let mut overrides = Overrides::default();
        for setting in text
            .split(',')
            .map(str::trim)
            .filter(|setting| !setting.is_empty())
        {
            let (collective, algorithm) =
                setting
                    .split_once(':')
                    .ok_or_else(|| InvalidAlgorithm::Form {
                        setting: setting.to_owned(),
                    })?;
            let collective = Collective::ALL
                .into_iter()
                .find(|known| known.name() == collective.trim())
                .ok_or_else(|| InvalidAlgorithm::collective(collective.trim()))?;
            if algorithms(collective).is_empty() {
                return Err(InvalidAlgorithm::no_setting(collective));
            }
            let algorithm = algorithm.trim();
            let known = Algorithm::ALL
                .into_iter()
                .find(|known| known.name() == algorithm)
                .ok_or_else(|| InvalidAlgorithm::algorithm(collective, algorithm))?;
            overrides.set(collective, known)?;
        }
        Ok(overrides)
    }
}

/// An algorithm setting that cannot be followed; it says what can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum InvalidAlgorithm {
    /// Not of the form `collective:algorithm`.
    #[error(
        "'{setting}' is not of the form collective:algorithm, such as all_reduce:ring; \
         several are separated by commas"
    )]
    Form { setting: String },
    /// No such collective.
    #[error("unknown collective '{name}': expected one of {expected}")]
    Collective { name: String, expected: String },
    /// Not an algorithm of the collective.
    #[error("{collective} has no algorithm '{name}': expected one of {expected}")]
    Algorithm {
        collective: Collective,
        name: String,
        expected: String,
    },
    /// The collective follows another one.
    #[error("{collective} follows the algorithm of {base}: set that of {base}")]
    Follows {
        collective: Collective,
        base: Collective,
    },
    /// There is nothing to choose.
    #[error(
        "{collective} has no algorithms to choose from: leave it out, or use one of {expected}"
    )]
    NoChoice {
        collective: Collective,
        expected: String,
    },
}

impl InvalidAlgorithm {
    fn collective(name: &str) -> InvalidAlgorithm {
        InvalidAlgorithm::Collective {
            name: name.to_owned(),
            expected: with_algorithms(),
        }
    }

    fn no_setting(collective: Collective) -> InvalidAlgorithm {
        match base(collective) {
            Some(base) => InvalidAlgorithm::Follows { collective, base },
            None => InvalidAlgorithm::NoChoice {
                collective,
                expected: with_algorithms(),
            },
        }
    }

    fn algorithm(collective: Collective, name: &str) -> InvalidAlgorithm {
        let known: Vec<_> = algorithms(collective).iter().map(|a| a.name()).collect();
        InvalidAlgorithm::Algorithm {
            collective,
            name: name.to_owned(),
            expected: known.join(", "),
        }
    }
}

/// The names of the collectives that have algorithms.
fn with_algorithms() -> String {
    let known = Collective::ALL
        .into_iter()
        .filter(|collective| !algorithms(*collective).is_empty());
    let names: Vec<_> = known.map(Collective::name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (i, collective) in Collective::ALL.into_iter().enumerate() {
            assert_eq!(slot(collective), i);
            for &algorithm in algorithms(collective) {
                let overrides: Overrides = format!("{collective}:{algorithm}").parse().unwrap();
                assert_eq!(overrides.get(collective), Some(algorithm));
            }
        }
    }

    #[test]
    fn what_is_followed_has_algorithms() {
        for collective in Collective::ALL {
            let Some(base) = base(collective) else {
                continue;
            };
            assert!(algorithms(collective).is_empty() && !algorithms(base).is_empty());
            let mut overrides = Overrides::default();
            let error = overrides.set(collective, algorithms(base)[0]);
            assert_eq!(error, Err(InvalidAlgorithm::Follows { collective, base }));
        }
    }

    #[test]
    fn settings_are_separated_by_commas() {
        let overrides: Overrides = " all_reduce:ring, broadcast : chain,".parse().unwrap();
        assert_eq!(overrides.get(Collective::AllReduce), Some(Algorithm::Ring));
        assert_eq!(overrides.get(Collective::Broadcast), Some(Algorithm::Chain));
        assert_eq!(overrides.get(Collective::AllGather), None);
        assert_eq!("".parse(), Ok(Overrides::default()));
    }

    #[test]
    fn errors_say_what_is_valid() {
        let error = |text: &str| text.parse::<Overrides>().unwrap_err().to_string();
        assert_eq!(
            error("all_reduce:binomial"),
            "all_reduce has no algorithm 'binomial': expected one of \
             recursive-doubling, direct, ring"
        );
        assert_eq!(
            error("reduce_all:ring"),
            "unknown collective 'reduce_all': expected one of barrier, broadcast, all_reduce, \
             all_gather, reduce_scatter, reduce, gather, scatter, all_to_all, scan, \
             exclusive_scan, all_to_all_v"
        );
        assert_eq!(
            error("gather_v:direct"),
            "gather_v follows the algorithm of gather: set that of gather"
        );
        assert!(error("split:direct").starts_with("split has no algorithms to choose from"));
        assert!(error("ring").contains("all_reduce:ring"));
        assert!(error("all_reduce:ring,broadcast:tree").contains("'tree'"));
    }
}
