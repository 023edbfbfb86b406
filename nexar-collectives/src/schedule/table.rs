//! The switch points between algorithms: which one, and with what parameters.

mod data;
#[cfg(any(test, feature = "tune"))]
pub(crate) mod measured;

use nexar_core::{Algorithm, Collective, mesh::Group, transport::Transport};
use std::ops::RangeInclusive;

pub(super) const KIB: usize = 1 << 10;
pub(super) const MIB: usize = 1 << 20;
/// No bound.
pub(super) const ANY: usize = usize::MAX;

/// Where the ranks of a group are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// All on one host: they share its processor, and messages take no time beyond what they take of it.
    One,
    /// On several hosts: messages are on their way for a while.
    Several,
}

impl Hosts {
    /// The same on all ranks of the group.
    pub(crate) fn of<T: Transport>(group: &Group<T>) -> Hosts {
        match group.is_one_host() {
            true => Hosts::One,
            false => Hosts::Several,
        }
    }

    /// The parameters of an algorithm that the table does not have.
    pub(super) const fn usual(self, algorithm: Algorithm) -> Choice {
        let lookahead = match self {
            Hosts::One => 2,
            Hosts::Several => 8,
        };
        Choice {
            algorithm,
            segment: 64 * KIB,
            lookahead,
        }
    }
}

/// An algorithm and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) algorithm: Algorithm,
    /// Bytes per message, of algorithms that divide vectors.
    pub(crate) segment: usize,
    /// Blocks in flight at once, of algorithms that overlap blocks.
    pub(crate) lookahead: usize,
}

/// A line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) collective: Collective,
    pub(crate) world: RangeInclusive<usize>,
    /// The most bytes that the rule is for: of the vector, or of one block of it.
    pub(crate) bytes: usize,
    pub(crate) choice: Choice,
}

pub(super) const fn rule(
    collective: Collective,
    world: RangeInclusive<usize>,
    bytes: usize,
    algorithm: Algorithm,
    segment: usize,
    lookahead: usize,
) -> Rule {
    Rule {
        collective,
        world,
        bytes,
        choice: Choice {
            algorithm,
            segment,
            lookahead,
        },
    }
}

/// The rules for ranks on these hosts. The first one that applies decides.
pub(crate) const fn rules(hosts: Hosts) -> &'static [Rule] {
    match hosts {
        Hosts::One => data::ONE_HOST,
        Hosts::Several => data::SEVERAL_HOSTS,
    }
}

#[cfg(test)]
mod tests;
