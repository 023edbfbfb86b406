//! The model on schedules whose time is known.

use super::{Machine, derive::cost};
use crate::schedule::{Algorithm, Choice, Collective};

const KIB: usize = 1 << 10;

/// Every rank has a processor of its own.
const NETWORK: Machine = Machine {
    alpha_ns: 1000.0,
    overhead_ns: 10.0,
    beta_ns_per_byte: 2.0,
    handling_ns_per_byte: 0.5,
    gamma_ns_per_byte: 0.25,
    delta_ns_per_byte: 0.125,
    cores: None,
};

/// Messages take nothing but the time of the processors.
const HOST: Machine = Machine {
    alpha_ns: 0.0,
    beta_ns_per_byte: 0.0,
    cores: Some(2),
    ..NETWORK
};

fn time(
    machine: &Machine,
    collective: Collective,
    algorithm: Algorithm,
    world: usize,
    bytes: usize,
) -> f64 {
    let choice = Choice {
        algorithm,
        segment: 64 * KIB,
        lookahead: 2,
    };
    cost(machine, collective, world, bytes, choice).unwrap()
}

#[test]
fn a_message_takes_both_ends_and_the_wire() {
    let sent = time(
        &NETWORK,
        Collective::Broadcast,
        Algorithm::Binomial,
        2,
        1000,
    );
    assert_eq!(sent, 2.0 * (10.0 + 500.0) + 1000.0 + 2000.0);
    let reduced = time(&NETWORK, Collective::Reduce, Algorithm::Binomial, 2, 1000);
    assert_eq!(reduced, sent + 250.0);
}

#[test]
fn rounds_follow_each_other() {
    let one = time(
        &NETWORK,
        Collective::AllReduce,
        Algorithm::RecursiveDoubling,
        2,
        1000,
    );
    // A copy, then a message each way at once.
    assert_eq!(one, 125.0 + 510.0 + 3000.0 + 760.0);
    let three = time(
        &NETWORK,
        Collective::AllReduce,
        Algorithm::RecursiveDoubling,
        8,
        1000,
    );
    assert_eq!(three, 3.0 * one);
}

#[test]
fn a_long_message_is_on_its_way_while_it_is_written() {
    let parts = 16.0;
    let bytes = 16 * 64 * KIB;
    let part = (64 * KIB) as f64;
    let long = time(
        &NETWORK,
        Collective::Broadcast,
        Algorithm::Binomial,
        2,
        bytes,
    );
    // The wire is what takes longest.
    assert_eq!(
        long,
        2.0 * 10.0 + part * 0.5 + 1000.0 + parts * part * 2.0 + part * 0.5
    );
}

#[test]
fn ranks_of_one_host_share_its_processors() {
    let bytes = 64 * KIB;
    let all = |world: usize| time(&HOST, Collective::AllToAll, Algorithm::Direct, world, bytes);
    let message = 2.0 * (10.0 + bytes as f64 * 0.5);
    for world in [2, 4, 8] {
        let messages = (world * (world - 1)) as f64;
        // And each copies its own block.
        let busy = messages * message + world as f64 * bytes as f64 * 0.125;
        let least = busy / 2.0;
        assert!((least..1.1 * least).contains(&all(world)), "{world}");
    }
}

#[test]
fn a_pipeline_is_faster_than_a_tree_for_long_vectors() {
    let time = |algorithm, bytes| time(&NETWORK, Collective::Broadcast, algorithm, 16, bytes);
    assert!(time(Algorithm::Binomial, KIB) < time(Algorithm::Chain, KIB));
    assert!(time(Algorithm::Chain, 1 << 24) < time(Algorithm::Binomial, 1 << 24));
}

#[test]
fn what_would_take_too_long_is_not_simulated() {
    let choice = Choice {
        algorithm: Algorithm::Direct,
        segment: KIB,
        lookahead: 1,
    };
    let huge = cost(&NETWORK, Collective::AllReduce, 256, 1 << 30, choice);
    assert_eq!(huge, None);
}
