//! From costs to the lines of a table.

use super::{Machine, model};
use crate::schedule::{
    self, Algorithm, Choice, Collective, Hosts, Operation, Parts, Rule, Schedule,
};
use std::ops::RangeInclusive;

/// The worlds for which costs are evaluated. Each stands for those above the one before it.
pub const WORLDS: [usize; 10] = [2, 3, 4, 5, 8, 16, 32, 64, 128, 256];

/// The sizes for which costs are evaluated, in bytes: from 8 B to 256 MiB.
pub fn sizes() -> impl Iterator<Item = usize> {
    (3..=28).map(|log| 1 << log)
}

/// A line lasts as long as it takes no longer than this, compared to the best choice: so tables stay short.
const HYSTERESIS: f64 = 1.05;

/// The same for worlds that share their lines.
const SHARED: f64 = 1.10;

/// The bytes of an element, as most programs have them.
const ELEMENT: usize = 4;

const KIB: usize = 1 << 10;

/// The choices that are considered; of those that take the same time, the first counts: a direct exchange.
fn choices(collective: Collective, hosts: Hosts, machines: &[Machine]) -> Vec<Choice> {
    let mut algorithms = schedule::algorithms(collective).to_vec();
    algorithms.sort_by_key(|algorithm| *algorithm != Algorithm::Direct);
    algorithms
        .into_iter()
        .flat_map(|algorithm| parameters(collective, algorithm, hosts, machines))
        .collect()
}

/// The parameters that are considered for an algorithm: one choice where it has none.
fn parameters(
    collective: Collective,
    algorithm: Algorithm,
    hosts: Hosts,
    machines: &[Machine],
) -> Vec<Choice> {
    use Algorithm::{Binomial, Chain, Direct, Ring, ScatterAllGather};
    let reduces = matches!(
        collective,
        Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce
    );
    // Ranks keep in step.
    let paces = matches!(collective, Collective::AllGather | Collective::AllToAll);
    let divides = match algorithm {
        Binomial => collective == Collective::Reduce,
        Chain | Direct | Ring | ScatterAllGather => true,
        _ => false,
    };
    let overlaps = match algorithm {
        Direct => reduces || paces,
        Ring => reduces,
        _ => false,
    };
    let segments: &[usize] = match (divides, hosts) {
        (false, _) => &[64 * KIB],
        (true, Hosts::One) => &[64 * KIB, 128 * KIB],
        (true, Hosts::Several) if algorithm == Chain => &[32 * KIB, 64 * KIB],
        (true, Hosts::Several) => &[64 * KIB],
    };
    let lookaheads: &[usize] = match (overlaps, hosts) {
        (false, _) => &[1],
        (true, Hosts::One) => &[1, 2],
        (true, Hosts::Several) => &[1, 2, 4, 8, 16],
    };
    let pairs = segments.iter().flat_map(|segment| {
        lookaheads
            .iter()
            .map(move |lookahead| (*segment, *lookahead))
    });
    let choice = |(segment, lookahead)| Choice {
        algorithm,
        segment,
        lookahead,
    };
    let least = machines.iter().map(Machine::in_flight).max().unwrap_or(0);
    let enough = |choice: &Choice| !overlaps || choice.segment * choice.lookahead >= least;
    pairs.map(choice).filter(enough).collect()
}

impl Machine {
    /// Bytes that are on their way in both directions before the first answer is there: with fewer in flight the
    /// simulation may find the network busy, but one late packet would leave it idle.
    fn in_flight(&self) -> usize {
        match self.beta_ns_per_byte > 0.0 {
            true => (2.0 * self.alpha_ns / self.beta_ns_per_byte) as usize,
            false => 0,
        }
    }
}

/// The operation of a collective with vectors, or blocks, of so many elements.
fn operation(collective: Collective, count: usize) -> Option<Operation> {
    let (root, in_place) = (0, false);
    let parts = Parts::Even(count);
    Some(match collective {
        Collective::Barrier => Operation::Barrier,
        Collective::Broadcast => Operation::Broadcast { root, count },
        Collective::Reduce => Operation::Reduce { root, count },
        Collective::AllReduce => Operation::AllReduce { count },
        Collective::Scan | Collective::ExclusiveScan => Operation::Scan {
            count,
            exclusive: collective == Collective::ExclusiveScan,
        },
        Collective::AllGather => Operation::AllGather { parts, in_place },
        Collective::Gather => Operation::Gather { root, parts },
        Collective::Scatter => Operation::Scatter { root, parts },
        Collective::ReduceScatter => Operation::ReduceScatter { parts, in_place },
        Collective::AllToAll => Operation::AllToAll { count, in_place },
        // Of what is exchanged only the pairs know; the equal exchange stands for it.
        Collective::AllToAllV => Operation::AllToAll { count, in_place },
        _ => return None,
    })
}

/// The schedule of each rank.
fn schedules(
    collective: Collective,
    world: usize,
    bytes: usize,
    choice: Choice,
) -> Option<impl Fn(usize) -> Schedule> {
    let operation = operation(collective, (bytes / ELEMENT).max(1))?;
    let plan = schedule::plan(&operation, ELEMENT, world, choice, false);
    Some(move |rank| schedule::build(&operation, world, rank, plan))
}

/// The time of a choice in nanoseconds; none if its schedules are too long to be simulated.
pub(super) fn cost(
    machine: &Machine,
    collective: Collective,
    world: usize,
    bytes: usize,
    choice: Choice,
) -> Option<f64> {
    let schedule = schedules(collective, world, bytes, choice)?;
    model::time(machine, world, ELEMENT, schedule)
}

/// The times of all choices by size. Those that cannot be simulated go on as between the last two that can.
fn costs(
    machine: &Machine,
    collective: Collective,
    world: usize,
    choices: &[Choice],
) -> Vec<Vec<f64>> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); choices.len()];
    for bytes in sizes() {
        // Choices with the same schedule take the same time.
        let mut known: Vec<(Schedule, f64)> = Vec::new();
        for (choice, times) in choices.iter().zip(&mut times) {
            let schedule = schedules(collective, world, bytes, *choice).map(|build| build(0));
            let same = known
                .iter()
                .find(|known| Some(&known.0) == schedule.as_ref());
            let time = match same {
                Some((_, time)) => Some(*time),
                None if is_beyond(times) => None,
                None => cost(machine, collective, world, bytes, *choice),
            };
            times.push(time.unwrap_or_else(|| extrapolated(times)));
            if let (Some(time), Some(schedule)) = (time, schedule) {
                known.push((schedule, time));
            }
        }
    }
    times
}

/// Nothing is known yet that could be extended.
fn is_beyond(times: &[f64]) -> bool {
    times.last().is_some_and(|time| !time.is_finite())
}

/// By choice and size: the time compared to the best choice, on average over the machines.
fn average(
    machines: &[Machine],
    collective: Collective,
    world: usize,
    choices: &[Choice],
) -> Vec<Vec<f64>> {
    let mut average = vec![vec![0.0; sizes().count()]; choices.len()];
    for machine in machines {
        let times = costs(machine, collective, world, choices);
        for size in 0..sizes().count() {
            let best = times
                .iter()
                .map(|times| times[size])
                .fold(f64::INFINITY, f64::min);
            for (average, times) in average.iter_mut().zip(&times) {
                average[size] += times[size] / best / machines.len() as f64;
            }
        }
    }
    average
}

/// Twice the size after these times, of sizes that double.
fn extrapolated(times: &[f64]) -> f64 {
    match times {
        [.., before, last] => last + 2.0 * (last - before),
        _ => f64::INFINITY,
    }
}

/// A choice and the place of the last size that it is for.
type Walk = Vec<(usize, usize)>;

/// The fewest changes of choice, from the smallest size to the largest, so that every choice is within `tolerance`
/// of the best one in all of these worlds. None if there is no such choice for a size.
fn walk(worlds: &[Vec<Vec<f64>>], tolerance: f64) -> Option<Walk> {
    let (choices, sizes) = (worlds[0].len(), worlds[0].first()?.len());
    // The worst factor of a choice at a size.
    let factor = |choice: usize, size: usize| {
        let factors = worlds.iter().map(|times| {
            let best = times
                .iter()
                .map(|times| times[size])
                .fold(f64::INFINITY, f64::min);
            times[choice][size] / best
        });
        factors.fold(0.0, f64::max)
    };
    let mut walk = Walk::new();
    let mut start = 0;
    while start < sizes {
        let run = |choice| {
            (start..sizes)
                .take_while(|size| factor(choice, *size) <= tolerance)
                .count()
        };
        // Of those that last as long, the fastest.
        let excess = |choice, run| {
            (start..start + run)
                .map(|size| factor(choice, size))
                .sum::<f64>()
        };
        let runs = (0..choices).map(|choice| (choice, run(choice)));
        let (choice, run) = runs.max_by(|&(a, run_a), &(b, run_b)| {
            run_a
                .cmp(&run_b)
                .then(excess(b, run_b).total_cmp(&excess(a, run_a)))
                .then(b.cmp(&a))
        })?;
        if run == 0 {
            return None;
        }
        start += run;
        walk.push((choice, start - 1));
    }
    Some(walk)
}

/// Consecutive worlds that share their lines.
struct Shared {
    worlds: RangeInclusive<usize>,
    walk: Walk,
}

/// The lines for a collective: those that were measured, and from the model what they leave open.
///
/// On several machines, what counts is how much longer than the best choice a choice takes, on average.
pub(super) fn derive(machines: &[Machine], hosts: Hosts, collective: Collective) -> Vec<Rule> {
    let measured = schedule::measured::rules(hosts).iter();
    let mut rules: Vec<_> = measured
        .filter(|rule| rule.collective == collective)
        .cloned()
        .collect();
    let complete = |rule: &&Rule| rule.bytes == usize::MAX;
    let covered = rules
        .iter()
        .filter(complete)
        .map(|rule| *rule.world.end())
        .max();
    let above = covered.unwrap_or(0);
    let choices = choices(collective, hosts, machines);
    let worlds: Vec<usize> = WORLDS.into_iter().filter(|world| *world > above).collect();
    let costs: Vec<_> = worlds
        .iter()
        .map(|world| average(machines, collective, *world, &choices))
        .collect();
    let mut first = above + 1;
    for shared in share(&costs) {
        let end = *shared.worlds.end();
        let last = if end + 1 == worlds.len() {
            usize::MAX
        } else {
            worlds[end]
        };
        rules.extend(lines(collective, first..=last, &shared.walk, &choices));
        first = last.saturating_add(1);
    }
    rules
}

/// Joins worlds as long as that adds at most one line.
fn share(costs: &[Vec<Vec<f64>>]) -> Vec<Shared> {
    let mut groups: Vec<Shared> = Vec::new();
    for world in 0..costs.len() {
        if let Some(group) = groups.last_mut() {
            let worlds = *group.worlds.start()..=world;
            if let Some(walk) = walk(&costs[worlds.clone()], SHARED)
                && walk.len() <= group.walk.len() + 1
            {
                *group = Shared { worlds, walk };
                continue;
            }
        }
        let walk = walk(&costs[world..=world], HYSTERESIS).unwrap_or_default();
        groups.push(Shared {
            worlds: world..=world,
            walk,
        });
    }
    groups
}

fn lines(
    collective: Collective,
    world: RangeInclusive<usize>,
    walk: &Walk,
    choices: &[Choice],
) -> Vec<Rule> {
    let sizes: Vec<usize> = sizes().collect();
    let line = |&(choice, last): &(usize, usize)| Rule {
        collective,
        world: world.clone(),
        bytes: if last + 1 == sizes.len() {
            usize::MAX
        } else {
            sizes[last]
        },
        choice: choices[choice],
    };
    walk.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_changes_as_seldom_as_it_can() {
        let first = vec![1.0, 1.0, 1.04, 2.0, 2.0];
        let second = vec![2.0, 1.5, 1.0, 1.0, 1.03];
        let third = vec![9.0, 9.0, 9.0, 9.0, 1.0];
        let world = vec![first, second, third];
        assert_eq!(
            walk(std::slice::from_ref(&world), 1.05),
            Some(vec![(0, 2), (1, 4)])
        );
        let other = vec![vec![2.0; 5], vec![1.0; 5], vec![2.0; 5]];
        assert_eq!(walk(&[world.clone(), other.clone()], 1.05), None);
        assert_eq!(walk(&[world, other], 2.0), Some(vec![(1, 4)]));
    }

    #[test]
    fn worlds_share_lines_where_they_agree() {
        let left = vec![vec![1.0, 1.0], vec![2.0, 2.0]];
        let right = vec![vec![2.0, 2.0], vec![1.0, 1.0]];
        let shared = share(&[left.clone(), left, right]);
        let found: Vec<_> = shared
            .iter()
            .map(|s| (s.worlds.clone(), s.walk.clone()))
            .collect();
        assert_eq!(found, [(0..=1, vec![(0, 1)]), (2..=2, vec![(1, 1)])]);
    }

    #[test]
    fn times_go_on_as_they_grew() {
        assert_eq!(extrapolated(&[1.0, 11.0, 21.0]), 41.0);
        assert_eq!(extrapolated(&[1.0]), f64::INFINITY);
    }
}
