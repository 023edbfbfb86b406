//! Which algorithm runs, and with what parameters.
//!
//! The choice is a pure function of values that all ranks share, so that they agree without
//! asking each other.

use super::builder::Blocks;
use super::table::{self, Choice, Hosts, KIB, Rule};
use super::{Operation, Parts};
use nexar_core::{Algorithm, Collective};
use std::fmt;

/// The algorithms that can carry out a collective.
pub(crate) const fn algorithms(collective: Collective) -> &'static [Algorithm] {
    use Algorithm::*;
    match collective {
        Collective::Barrier => &[Dissemination, RecursiveDoubling],
        Collective::Broadcast => &[Binomial, Chain, ScatterAllGather],
        Collective::AllReduce => &[RecursiveDoubling, Direct, Ring],
        Collective::AllGather => &[Bruck, Direct, Ring],
        Collective::ReduceScatter => &[Direct, Ring],
        Collective::Reduce | Collective::Gather | Collective::Scatter => &[Binomial, Direct],
        Collective::Scan | Collective::ExclusiveScan => &[RecursiveDoubling, Chain],
        Collective::AllToAll => &[Bruck, Direct],
        Collective::AllToAllV => &[Direct],
        _ => &[],
    }
}

/// Whether an algorithm's reductions are [`single_site`](super::Schedule::single_site). Between two ranks
/// every algorithm's are: there are no partial results. Those of a scan are all partial.
pub(crate) const fn is_single_site(
    collective: Collective,
    algorithm: Algorithm,
    world: usize,
) -> bool {
    match collective {
        Collective::Scan | Collective::ExclusiveScan => false,
        _ => world <= 2 || matches!(algorithm, Algorithm::Direct),
    }
}

/// An algorithm and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub(crate) algorithm: Algorithm,
    /// Elements per message, for algorithms that divide vectors. At least 1.
    pub(crate) segment: usize,
    /// Blocks in flight at once, for algorithms that overlap blocks. At least 1.
    pub(crate) lookahead: usize,
    /// Contributions are combined in the order of the ranks, for operators that are not commutative.
    pub(crate) ordered: bool,
}

impl Plan {
    /// The segments of `count` elements that one rank sends another, if no other rank needs to know
    /// `count`. Larger ones where that many would be too many.
    pub(super) fn segments(&self, count: usize, world: usize) -> Blocks {
        Blocks::new(
            count,
            self.segment.max(count.div_ceil(most_segments(world))),
        )
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            algorithm,
            segment,
            lookahead,
            ordered,
        } = self;
        write!(
            f,
            "{algorithm}, segments of {segment} elements, lookahead {lookahead}"
        )?;
        f.write_str(if *ordered { ", in order" } else { "" })
    }
}

/// Above this size, a type that has to be accumulated wide needs a single-site algorithm: to send
/// it wide would double the traffic. Below, the number of messages counts more.
const WIDE_BYTES: usize = 64 * KIB;

/// Most items that one schedule may have, as far as larger segments can achieve it: the schedule of a
/// larger operation then takes some 20 MiB.
const ITEMS: usize = 1 << 18;

/// The plan for an operation on elements of `element_size` bytes.
///
/// `wide`: the elements have to be accumulated in a wider type. `ordered`: contributions have to be combined
/// in the order of the ranks. `hosts`: whether messages between the ranks stay on one host. `forced`: an
/// algorithm that the user asks for; it is used whenever the collective knows it, and it can keep the order.
///
/// All arguments must be the same on all ranks, but for lengths that only some ranks know
/// ([`Operation::Gather`] and so on): the plan does not depend on them. Never fails; costs some hundred
/// comparisons.
pub(crate) fn select(
    operation: &Operation,
    element_size: usize,
    world: usize,
    hosts: Hosts,
    forced: Option<Algorithm>,
    wide: bool,
    ordered: bool,
) -> Plan {
    let collective = operation.collective();
    let count = shared_count(operation, world);
    let bytes = count.saturating_mul(element_size);
    let usable = |algorithm| is_usable(operation, algorithm, ordered);
    let forced = forced.map(|algorithm| match usable(algorithm) {
        true => algorithm,
        false => Algorithm::Direct,
    });
    let known = algorithms(collective);
    let forced = forced.filter(|algorithm| known.contains(algorithm));
    let single_site = |algorithm| is_single_site(collective, algorithm, world);
    let wide = wide && known.iter().any(|&algorithm| single_site(algorithm));

    let suits = |algorithm| match forced {
        Some(forced) => algorithm == forced,
        None => usable(algorithm) && (!wide || bytes <= WIDE_BYTES || single_site(algorithm)),
    };
    let choice = find(hosts, collective, world, bytes, suits)
        .unwrap_or_else(|| hosts.usual(forced.unwrap_or(Algorithm::Direct)));
    plan(operation, element_size, world, choice, ordered)
}

/// The first line that applies, of those whose algorithm suits. If none does, an algorithm outside of its range,
/// with the parameters that it has elsewhere.
fn find(
    hosts: Hosts,
    collective: Collective,
    world: usize,
    bytes: usize,
    suits: impl Fn(Algorithm) -> bool,
) -> Option<Choice> {
    let rules = || {
        let rules = table::rules(hosts).iter();
        rules.filter(|rule| rule.collective == collective && suits(rule.choice.algorithm))
    };
    let fits = |rule: &&Rule| rule.world.contains(&world) && bytes <= rule.bytes;
    let rule = rules().find(fits).or_else(|| rules().next());
    rule.map(|rule| rule.choice)
}

/// The choice where an algorithm is forced that the collective knows.
#[cfg(any(test, feature = "tune"))]
pub(crate) fn forced(
    hosts: Hosts,
    collective: Collective,
    world: usize,
    bytes: usize,
    algorithm: Algorithm,
) -> Choice {
    find(hosts, collective, world, bytes, |known| known == algorithm)
        .unwrap_or_else(|| hosts.usual(algorithm))
}

/// The plan that follows a choice, with larger segments where there would be too many.
pub(crate) fn plan(
    operation: &Operation,
    element_size: usize,
    world: usize,
    choice: Choice,
    ordered: bool,
) -> Plan {
    let vectors = match operation.collective() {
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => world,
        // Of a tree, one rank has items for each of its children.
        Collective::Reduce => 1 + world.max(1).ilog2() as usize / 4,
        _ => 1,
    };
    let count = shared_count(operation, world);
    let segment = (choice.segment / element_size.max(1))
        .max(1)
        .max(count.div_ceil(most_segments(vectors)));
    Plan {
        algorithm: choice.algorithm,
        segment,
        lookahead: choice.lookahead,
        ordered,
    }
}

/// Whether an algorithm can do what is asked for.
const fn is_usable(operation: &Operation, algorithm: Algorithm, ordered: bool) -> bool {
    match (operation, algorithm) {
        (_, Algorithm::Ring) => !ordered || matches!(operation, Operation::AllGather { .. }),
        // Only ranks that know all lengths can pass blocks on.
        (Operation::Gather { parts, .. } | Operation::Scatter { parts, .. }, _) => {
            matches!(parts, Parts::Even(_)) || matches!(algorithm, Algorithm::Direct)
        }
        _ => true,
    }
}

/// Segments of each of so many vectors at which a schedule has no more than [`ITEMS`] items.
const fn most_segments(vectors: usize) -> usize {
    // There are at most 4 items for a segment of each vector; a last, shorter block can double that.
    let vectors = if vectors == 0 { 1 } else { vectors };
    let most = ITEMS / 8 / vectors;
    if most == 0 { 1 } else { most }
}

/// The elements that the choice depends on: of the vector, or of one block of it. Of blocks of different
/// lengths the average; 0 if not all ranks know them.
fn shared_count(operation: &Operation, world: usize) -> usize {
    let of = |parts: &Parts| match parts {
        Parts::Even(count) => *count,
        Parts::Uneven(_) => parts.total(world).div_ceil(world.max(1)),
    };
    match operation {
        Operation::Barrier => 1,
        Operation::Broadcast { count, .. }
        | Operation::Reduce { count, .. }
        | Operation::AllReduce { count }
        | Operation::Scan { count, .. }
        | Operation::AllToAll { count, .. } => *count,
        Operation::AllGather { parts, .. } | Operation::ReduceScatter { parts, .. } => of(parts),
        Operation::Gather { parts, .. } | Operation::Scatter { parts, .. } => match parts {
            Parts::Even(count) => *count,
            Parts::Uneven(_) => 0,
        },
        Operation::Exchange { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::MIB;
    use super::*;

    const HOST: Hosts = Hosts::One;

    fn all_reduce(bytes: usize, world: usize, forced: Option<Algorithm>, wide: bool) -> Plan {
        let operation = Operation::AllReduce { count: bytes / 4 };
        select(&operation, 4, world, HOST, forced, wide, false)
    }

    /// Each world on one host and on several.
    fn both<const N: usize>(worlds: [usize; N]) -> impl Iterator<Item = (usize, Hosts)> {
        let hosts = [Hosts::One, Hosts::Several];
        worlds
            .into_iter()
            .flat_map(move |world| hosts.map(|hosts| (world, hosts)))
    }

    fn all_gather(count: usize) -> Operation {
        Operation::AllGather {
            parts: Parts::Even(count),
            in_place: false,
        }
    }

    fn reduce_scatter(count: usize) -> Operation {
        Operation::ReduceScatter {
            parts: Parts::Even(count),
            in_place: false,
        }
    }

    /// Every operation of which all ranks know all lengths.
    fn operations(count: usize) -> Vec<Operation> {
        let (root, parts) = (1, Parts::Even(count));
        let mut operations = vec![
            Operation::Barrier,
            Operation::Broadcast { root, count },
            Operation::Reduce { root, count },
            Operation::AllReduce { count },
            all_gather(count),
            reduce_scatter(count),
            Operation::Gather {
                root,
                parts: parts.clone(),
            },
            Operation::Scatter { root, parts },
        ];
        for flag in [false, true] {
            operations.push(Operation::Scan {
                count,
                exclusive: flag,
            });
            operations.push(Operation::AllToAll {
                count,
                in_place: flag,
            });
        }
        operations
    }

    #[test]
    fn wire_numbers_stay() {
        assert_eq!(
            Algorithm::ALL.map(|algorithm| algorithm as u8),
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
    }

    #[test]
    fn small_is_recursive_doubling_large_is_direct() {
        let name = |bytes, world| all_reduce(bytes, world, None, false).algorithm;
        assert_eq!(name(64 * KIB, 2), Algorithm::RecursiveDoubling);
        assert_eq!(name(65 * KIB, 2), Algorithm::Direct);
        assert_eq!(name(4 * KIB, 16), Algorithm::RecursiveDoubling);
        assert_eq!(name(4 * KIB + 4, 16), Algorithm::Direct);
        assert_eq!(name(64 * MIB, 16), Algorithm::Direct);
        assert_eq!(name(64 * MIB, 17), Algorithm::Direct);
        assert_eq!(
            all_reduce(64 * MIB, 4, None, false),
            Plan {
                algorithm: Algorithm::Direct,
                segment: 24 * KIB,
                lookahead: 1,
                ordered: false,
            }
        );
    }

    #[test]
    fn large_wide_reductions_are_single_site() {
        for (world, hosts) in both([1, 2, 3, 16, 17, 100, 5000]) {
            for bytes in [WIDE_BYTES + 4, MIB, 1 << 36] {
                let count = bytes / 4;
                for operation in [
                    Operation::AllReduce { count },
                    Operation::Reduce { root: 0, count },
                    reduce_scatter(count),
                ] {
                    let plan = select(&operation, 4, world, hosts, None, true, false);
                    assert!(
                        is_single_site(operation.collective(), plan.algorithm, world),
                        "{operation:?} {world} {plan}"
                    );
                }
            }
        }
        let plan = all_reduce(4, 4, None, true);
        assert_eq!(plan.algorithm, Algorithm::RecursiveDoubling);
    }

    #[test]
    fn the_forced_algorithm_is_used_where_it_exists() {
        for world in [1, 2, 5, 40] {
            for bytes in [0, 8, MIB, 1 << 40] {
                for &forced in algorithms(Collective::AllReduce) {
                    for wide in [false, true] {
                        let plan = all_reduce(bytes, world, Some(forced), wide);
                        assert_eq!(plan.algorithm, forced);
                    }
                }
                let plan = all_reduce(bytes, world, Some(Algorithm::Chain), false);
                assert_eq!(plan, all_reduce(bytes, world, None, false));
            }
        }
    }

    #[test]
    fn every_operation_has_a_plan_that_its_collective_knows() {
        for (world, hosts) in both([1, 2, 3, 16, 17, 1000, usize::MAX]) {
            for count in [0, 1, 1000, 1 << 24, usize::MAX] {
                for operation in operations(count) {
                    for size in [1, 2, 4, 8] {
                        let wide = size == 2;
                        let plan = select(&operation, size, world, hosts, None, wide, size == 4);
                        let collective = operation.collective();
                        assert!(algorithms(collective).contains(&plan.algorithm));
                        assert!(plan.segment > 0 && plan.lookahead > 0);
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_done_is_not_selected() {
        for world in [1, 2, 5, 40] {
            for bytes in [0, 8, MIB, 1 << 30] {
                for operation in [Operation::AllReduce { count: bytes }, reduce_scatter(bytes)] {
                    for forced in [None, Some(Algorithm::Ring)] {
                        let plan = select(&operation, 1, world, HOST, forced, false, true);
                        assert_ne!(plan.algorithm, Algorithm::Ring);
                    }
                }
            }
        }
        let parts = Parts::uneven(&[1; 40]).unwrap();
        let gather = Operation::Gather { root: 3, parts };
        for forced in [None, Some(Algorithm::Binomial)] {
            let plan = select(&gather, 1, 40, HOST, forced, false, false);
            assert_eq!(plan.algorithm, Algorithm::Direct);
        }
        let forced = Some(Algorithm::Ring);
        let plan = select(&all_gather(8), 1, 40, HOST, forced, false, true);
        assert_eq!(plan.algorithm, Algorithm::Ring);
    }

    #[test]
    fn schedules_of_huge_operations_are_bounded() {
        for world in [2, 5, 33, 100] {
            for operation in operations(1 << 38) {
                for &forced in algorithms(operation.collective()) {
                    for rank in [0, 1] {
                        let plan = select(&operation, 1, world, HOST, Some(forced), false, false);
                        let schedule = super::super::build(&operation, world, rank, plan);
                        let items = schedule.items.len();
                        assert!(items <= ITEMS, "{operation:?} {world} {plan}: {items}");
                    }
                }
            }
        }
        let link = |rank| super::super::Link {
            rank,
            sends: 1 << 38,
            expects: 1 << 38,
        };
        let exchange = Operation::Exchange {
            links: (0..40).map(link).collect(),
        };
        let parts = Parts::uneven(&[1 << 38; 40]).unwrap();
        for operation in [exchange, Operation::Gather { root: 7, parts }] {
            let plan = select(&operation, 1, 40, HOST, None, false, false);
            let schedule = super::super::build(&operation, 40, 7, plan);
            assert!(schedule.items.len() <= ITEMS, "{operation:?}");
        }
    }
}
