//! The cost model behind the choice of algorithms, for the tool that writes the tables. Not a stable interface, and
//! not used by calls: they look their algorithm up in a table.

mod derive;
mod model;
#[cfg(test)]
mod tests;

pub use derive::{WORLDS, sizes};
pub use model::{Machine, PART};

use crate::schedule::{self, Algorithm, Collective, Rule};
use std::ops::RangeInclusive;

/// Where the ranks of a group are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// All on one host.
    One,
    /// On several hosts.
    Several,
}

impl From<Hosts> for schedule::Hosts {
    fn from(hosts: Hosts) -> Self {
        match hosts {
            Hosts::One => schedule::Hosts::One,
            Hosts::Several => schedule::Hosts::Several,
        }
    }
}

/// A line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// What is carried out.
    pub collective: Collective,
    /// Numbers of ranks; `usize::MAX` is no bound.
    pub world: RangeInclusive<usize>,
    /// The most bytes of the vector, or of one block of it; `usize::MAX` is no bound.
    pub bytes: usize,
    /// How it is carried out.
    pub algorithm: Algorithm,
    /// Bytes per message, of algorithms that divide vectors.
    pub segment: usize,
    /// Blocks in flight at once, of algorithms that overlap blocks.
    pub lookahead: usize,
}

impl From<&Rule> for Line {
    fn from(rule: &Rule) -> Self {
        Line {
            collective: rule.collective,
            world: rule.world.clone(),
            bytes: rule.bytes,
            algorithm: rule.choice.algorithm,
            segment: rule.choice.segment,
            lookahead: rule.choice.lookahead,
        }
    }
}

/// The collectives that have algorithms, in the order of the tables.
pub fn collectives() -> impl Iterator<Item = Collective> {
    let all = Collective::ALL.into_iter();
    all.filter(|collective| !algorithms(*collective).is_empty())
}

/// The algorithms of a collective.
pub fn algorithms(collective: Collective) -> &'static [Algorithm] {
    schedule::algorithms(collective)
}

/// The table that calls use.
pub fn table(hosts: Hosts) -> Vec<Line> {
    schedule::rules(hosts.into())
        .iter()
        .map(Line::from)
        .collect()
}

/// Whether a line was measured, and is in the table whatever the model says.
pub fn is_measured(hosts: Hosts, line: &Line) -> bool {
    let measured = schedule::measured::rules(hosts.into());
    measured.iter().any(|rule| Line::from(rule) == *line)
}

/// The lines for a collective: those that were measured, then what the model says. Takes seconds for collectives in
/// which every rank sends to every other, and up to 200 MiB.
pub fn derive(machines: &[Machine], hosts: Hosts, collective: Collective) -> Vec<Line> {
    let rules = derive::derive(machines, hosts.into(), collective);
    rules.iter().map(Line::from).collect()
}

/// The time that the model gives an algorithm, in nanoseconds, with the parameters that the table has for it at
/// this size, or elsewhere. None if the operation is too large to be simulated. `bytes`: of the vector, or of one block of it.
pub fn predict(
    machine: &Machine,
    hosts: Hosts,
    collective: Collective,
    algorithm: Algorithm,
    world: usize,
    bytes: usize,
) -> Option<f64> {
    let choice = schedule::forced(hosts.into(), collective, world, bytes, algorithm);
    derive::cost(machine, collective, world, bytes, choice)
}
