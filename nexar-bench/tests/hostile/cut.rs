//! Ranks that are cut off from others, for a while or for good.

use crate::{
    job::{Job, SOON, finish},
    net::Net,
    rank::FAILED,
    transports::Mix,
};
use std::{
    thread,
    time::{Duration, Instant},
};

on_each_transport![
    a_rank_is_back_before_it_counts_as_lost,
    a_rank_is_lost,
    packets_to_one_rank_are_refused,
];

/// Elements of 8 bytes: an operation that a cut finds in progress.
const REDUCE: &str = "reduce 100003";

/// Drops everything in both directions.
const ALL: &str = "drop";

fn a_rank_is_back_before_it_counts_as_lost(mix: Mix) {
    let Some(net) = Net::new(3) else { return };
    let mut ranks = Job::new(&net, mix, 3).detection("3").start(REDUCE);
    ranks[0].reaches("step", 3, SOON);
    net.host(2).filter(ALL, ALL);
    let before = ranks[0].position();
    // How long the cut lasts; nothing is waited for.
    thread::sleep(Duration::from_millis(1500));
    net.host(2).clear_filter();
    ranks[0].reaches("step", before + 3, SOON);
    finish(&mut ranks, SOON);
}

fn a_rank_is_lost(mix: Mix) {
    let Some(net) = Net::new(3) else { return };
    let mut ranks = Job::new(&net, mix, 3).detection("1").start(REDUCE);
    ranks[0].reaches("step", 3, SOON);
    net.host(2).filter(ALL, ALL);
    let cut = Instant::now();
    for survivor in [0, 1] {
        let said = ranks[survivor].expect("failed", SOON);
        assert!(said.starts_with("peers [2] "), "rank {survivor}: {said}");
    }
    let noticed = cut.elapsed();
    assert!(noticed < Duration::from_secs(4), "only after {noticed:?}");
    // From there, the others are lost.
    let said = ranks[2].expect("failed", SOON);
    let named = said.starts_with("peers [0] ") || said.starts_with("peers [1] ");
    assert!(named, "rank 2: {said}");
    for rank in &mut ranks {
        assert_eq!(rank.exit(SOON), Some(FAILED));
    }
}

/// Memory that may come and go.
const SLACK: u64 = 32 << 20;

/// The system does not take packets to rank 2 (EPERM) for a while.
fn packets_to_one_rank_are_refused(mix: Mix) {
    let Some(net) = Net::new(3) else { return };
    let mut ranks = Job::new(&net, mix, 3).detection("8").start("stream 0");
    for rank in [1, 2] {
        ranks[rank].reaches("at", 4, SOON);
    }
    let memory = ranks[0].memory();
    let address = net.host(2).address;
    net.host(0).filter("", &format!("ip daddr {address} drop"));
    let (refused, mut most) = (Instant::now(), memory);
    let stuck = ranks[2].position();
    while refused.elapsed() < Duration::from_secs(3) {
        let other = ranks[1].position();
        ranks[1].reaches("at", other + 4, Duration::from_secs(2));
        most = most.max(ranks[0].memory());
    }
    // What was on its way may have arrived.
    let still = ranks[2].position();
    assert!(still <= stuck + 8, "{still} after {stuck}");
    net.host(0).clear_filter();
    ranks[2].reaches("at", still + 4, Duration::from_secs(10));
    most = most.max(ranks[0].memory());
    assert!(most < memory + SLACK, "{memory} bytes became {most}");
    finish(&mut ranks, SOON);
}
