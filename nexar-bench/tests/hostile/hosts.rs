//! How groups form: on hosts with interfaces that mislead, without IPv4, or out of each other's reach at first.

use crate::{
    job::{Job, SOON, finish, wait_for_all},
    net::{Families, Host, Net},
    transports::Mix,
};
use std::{
    thread,
    time::{Duration, Instant},
};

on_each_transport![
    interfaces_that_every_host_has,
    hosts_without_ipv4,
    two_ranks_reach_each_other_late,
];

/// Within so much time a group forms.
const FORMED: Duration = Duration::from_secs(5);

/// All-reduces are right on a group that forms in time.
fn forms(net: &Net, mix: Mix) {
    let job = Job::new(net, mix, 3);
    let ranks = (0..3).map(|rank| job.rank(rank, "reduce 1003", &[]));
    let mut ranks: Vec<_> = ranks.collect();
    let started = Instant::now();
    wait_for_all(&ranks, "joined", SOON);
    let formed = started.elapsed();
    assert!(formed < FORMED, "only after {formed:?}");
    ranks[0].reaches("step", 5, SOON);
    finish(&mut ranks, SOON);
}

/// The interface of a container engine, and 20 more, each with an address that every host has. (They are bridges
/// without ports, since not every kernel has dummy interfaces.)
fn add_interfaces(host: &Host) {
    let add = |name: &str, address: &str| {
        format!(
            "link add {name} type bridge\nlink set {name} up\naddress add {address} dev {name}\n"
        )
    };
    let mut lines = add("docker0", "172.17.0.1/16");
    for number in 0..20 {
        lines += &add(&format!("dummy{number}"), &format!("192.168.{number}.1/24"));
    }
    host.ip(&lines).unwrap();
}

fn interfaces_that_every_host_has(mix: Mix) {
    let Some(net) = Net::new(3) else { return };
    net.hosts().iter().for_each(add_interfaces);
    forms(&net, mix);
}

fn hosts_without_ipv4(mix: Mix) {
    let Some(net) = Net::with(3, Families::V6) else {
        return;
    };
    forms(&net, mix);
}

/// Rank 0 reaches both others long before they reach each other, and waits for them as long as joining may take.
fn two_ranks_reach_each_other_late(mix: Mix) {
    let Some(net) = Net::new(3) else { return };
    let apart = format!("ip saddr {} drop", net.host(2).address);
    net.host(1).filter(&apart, "");
    let job = Job::new(&net, mix, 3).detection("1");
    let ranks = (0..3).map(|rank| job.rank(rank, "reduce 1003", &[]));
    let mut ranks: Vec<_> = ranks.collect();
    ranks[0].expect("joined", SOON);
    // How long they are apart, three times the detection time; nothing is waited for.
    thread::sleep(Duration::from_secs(3));
    net.host(1).clear_filter();
    wait_for_all(&ranks[1..], "joined", SOON);
    ranks[0].reaches("step", 5, SOON);
    finish(&mut ranks, SOON);
}
