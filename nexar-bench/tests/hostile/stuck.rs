//! Ranks that do not run, or whose application does not.

use crate::{
    job::{Job, SOON, finish},
    net::Net,
    rank::FAILED,
    transports::Mix,
};
use rustix::process::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};

on_each_transport![
    blocked_workers_are_not_a_dead_rank,
    a_rank_that_is_stopped_for_a_moment_goes_on,
    a_stopped_rank_learns_that_it_was_expelled,
];

const REDUCE: &str = "reduce 1003";

/// Four times the detection time.
fn blocked_workers_are_not_a_dead_rank(mix: Mix) {
    let Some(net) = Net::new(3) else { return };
    let mut ranks = Job::new(&net, mix, 3).detection("1.5").start(REDUCE);
    ranks[0].reaches("step", 3, SOON);
    ranks[1].say("block 6");
    ranks[1].expect("blocking", SOON);
    ranks[1].expect("unblocked", SOON);
    let before = ranks[0].position();
    ranks[0].reaches("step", before + 3, SOON);
    finish(&mut ranks, SOON);
}

/// Half the detection time.
fn a_rank_that_is_stopped_for_a_moment_goes_on(mix: Mix) {
    let Some(net) = Net::new(3) else { return };
    let mut ranks = Job::new(&net, mix, 3).detection("2").start(REDUCE);
    ranks[0].reaches("step", 3, SOON);
    ranks[1].signal(Signal::STOP);
    let before = ranks[0].position();
    // How long it is stopped; nothing is waited for.
    thread::sleep(Duration::from_secs(1));
    ranks[1].signal(Signal::CONT);
    ranks[0].reaches("step", before + 3, SOON);
    finish(&mut ranks, SOON);
}

fn a_stopped_rank_learns_that_it_was_expelled(mix: Mix) {
    const DETECTION: Duration = Duration::from_secs(1);
    let Some(net) = Net::new(3) else { return };
    let mut ranks = Job::new(&net, mix, 3).detection("1").start(REDUCE);
    ranks[0].reaches("step", 3, SOON);
    ranks[1].signal(Signal::STOP);
    let stopped = Instant::now();
    for survivor in [0, 2] {
        let said = ranks[survivor].expect("failed", SOON);
        assert!(said.starts_with("peers [1] "), "rank {survivor}: {said}");
        assert_eq!(ranks[survivor].exit(SOON), Some(FAILED));
    }
    // How long it is stopped; nothing is waited for.
    thread::sleep((2 * DETECTION).saturating_sub(stopped.elapsed()));
    ranks[1].signal(Signal::CONT);
    let resumed = Instant::now();
    let said = ranks[1].expect("failed", SOON);
    let learned = resumed.elapsed();
    assert!(said.starts_with("peers ["), "rank 1: {said}");
    assert!(learned < Duration::from_secs(2), "only after {learned:?}");
    assert_eq!(ranks[1].exit(SOON), Some(FAILED));
}
