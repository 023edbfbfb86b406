use super::super::select::algorithms;
use super::*;

const HOSTS: [Hosts; 2] = [Hosts::One, Hosts::Several];

/// The collectives that a schedule is chosen for.
fn chosen() -> impl Iterator<Item = Collective> {
    let all = Collective::ALL.into_iter();
    all.filter(|collective| !algorithms(*collective).is_empty())
}

#[test]
fn every_line_can_be_followed() {
    for rule in HOSTS.iter().flat_map(|hosts| rules(*hosts)) {
        let known = algorithms(rule.collective);
        assert!(known.contains(&rule.choice.algorithm), "{rule:?}");
        assert!(
            rule.choice.segment >= KIB && rule.choice.lookahead > 0,
            "{rule:?}"
        );
        assert!(!rule.world.is_empty() && rule.bytes > 0, "{rule:?}");
    }
}

#[test]
fn every_world_and_size_has_a_line() {
    for hosts in HOSTS {
        for collective in chosen() {
            let lines = || {
                rules(hosts)
                    .iter()
                    .filter(|rule| rule.collective == collective)
            };
            // Between its ends, the lines of a range of worlds are the same.
            let ends = lines().flat_map(|rule| [*rule.world.start(), *rule.world.end()]);
            for end in ends {
                for world in [end.saturating_sub(1).max(1), end, end.saturating_add(1)] {
                    let last =
                        lines().find(|rule| rule.world.contains(&world) && rule.bytes == ANY);
                    assert!(last.is_some(), "{hosts:?}: {collective} of {world}");
                }
            }
        }
    }
}

#[test]
fn every_line_is_used() {
    for hosts in HOSTS {
        for (i, rule) in rules(hosts).iter().enumerate() {
            let before = &rules(hosts)[..i];
            let covers = |other: &Rule, world: usize| {
                other.collective == rule.collective
                    && other.world.contains(&world)
                    && other.bytes >= rule.bytes
            };
            let free = |world| !before.iter().any(|other| covers(other, world));
            let (start, end) = rule.world.clone().into_inner();
            assert!(free(start) || free(end), "{hosts:?}: {rule:?}");
        }
    }
}

#[test]
fn measured_lines_are_in_the_table() {
    for hosts in HOSTS {
        for rule in measured::rules(hosts) {
            assert!(rules(hosts).contains(rule), "{rule:?}");
        }
    }
}

/// Between hosts, what is in flight covers a network of 75 us one way and 25 Gbit/s.
#[test]
fn between_hosts_direct_exchange_keeps_the_network_busy() {
    let direct = rules(Hosts::Several).iter().filter(|rule| {
        rule.choice.algorithm == Algorithm::Direct && rule.collective == Collective::AllReduce
    });
    for Choice {
        segment, lookahead, ..
    } in direct.map(|rule| rule.choice)
    {
        assert!(
            segment * lookahead >= 2 * 75 * 3125,
            "{segment} {lookahead}"
        );
        assert!(segment <= 64 * KIB && lookahead >= 8);
    }
}
