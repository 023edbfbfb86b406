//! The algorithms that the user asks for.

use super::Algorithm;
use super::select::algorithms;
use nexar_core::Collective;
use std::str::FromStr;

/// The algorithms that the user asks for, by collective.
///
/// Written as in `all_reduce:ring,broadcast:chain`.
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
        if !algorithms(collective).contains(&algorithm) {
            return Err(InvalidAlgorithm::algorithm(collective, algorithm.name()));
        }
        self.0[slot(collective)] = Some(algorithm);
        Ok(())
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
}

impl InvalidAlgorithm {
    fn collective(name: &str) -> InvalidAlgorithm {
        let expected = Collective::ALL.map(Collective::name).join(", ");
        InvalidAlgorithm::Collective {
            name: name.to_owned(),
            expected,
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
            error("reduce:ring"),
            "unknown collective 'reduce': expected one of \
             barrier, broadcast, all_reduce, all_gather, reduce_scatter"
        );
        assert!(error("ring").contains("all_reduce:ring"));
        assert!(error("all_reduce:ring,broadcast:tree").contains("'tree'"));
    }
}
