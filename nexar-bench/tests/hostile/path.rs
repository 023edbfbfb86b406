//! Paths that change under a transfer.

use crate::{
    job::{Job, SOON, all_succeed, wait_for_all},
    net::Net,
    process::Process,
    transports::Mix,
};
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

on_each_transport![
    the_mtu_falls,
    large_packets_are_lost,
    the_address_of_the_receiver_changes,
    the_address_of_the_sender_changes,
];

/// Within so much time a transfer goes on after the path has changed.
const RECOVERY: Duration = Duration::from_secs(10);

/// Messages of 1 MiB in which a stream is well under way.
const WELL: u64 = 8;

/// The stream goes on after what `change` does.
fn goes_on(ranks: &mut [Process], receiver: usize, change: impl FnOnce()) {
    ranks[receiver].reaches("at", WELL, SOON);
    change();
    // More than can have been on its way.
    let next = ranks[receiver].position() + 2 * WELL;
    ranks[receiver].reaches("at", next, RECOVERY);
    ranks[1 - receiver].say("stop");
}

/// Largest IP packet after a change.
const SMALL_MTU: u32 = 1280;

/// The headers of IPv4 and UDP.
const HEADERS: u32 = 28;

fn packets_become_small(mix: Mix, change: impl FnOnce(&Net)) {
    let Some(net) = Net::new(2) else { return };
    let mut ranks = Job::new(&net, mix, 2).start("stream 0");
    goes_on(&mut ranks, 1, || change(&net));
    let datagrams = ranks[0].number("datagrams", SOON);
    assert!(datagrams <= u64::from(SMALL_MTU - HEADERS), "{datagrams}");
    all_succeed(&mut ranks, SOON);
}

fn the_mtu_falls(mix: Mix) {
    packets_become_small(mix, |net| net.set_mtu(SMALL_MTU));
}

/// A hop that says nothing of what it drops.
fn large_packets_are_lost(mix: Mix) {
    packets_become_small(mix, |net| {
        let rule = format!("meta length > {SMALL_MTU} drop");
        net.hosts().iter().for_each(|host| host.filter(&rule, ""));
    });
}

fn the_address_of_the_receiver_changes(mix: Mix) {
    the_address_of_rank_1_changes(mix, 0);
}

fn the_address_of_the_sender_changes(mix: Mix) {
    the_address_of_rank_1_changes(mix, 1);
}

/// Rank 1, which has dialled, listens on all addresses, as it must to survive that.
fn the_address_of_rank_1_changes(mix: Mix, sender: usize) {
    let Some(net) = Net::new(2) else { return };
    let (job, task) = (Job::new(&net, mix, 2), format!("stream {sender}"));
    let mut ranks = vec![
        job.rank(0, &task, &[]),
        job.rank(1, &task, &[("NEXAR_BIND", "0.0.0.0")]),
    ];
    wait_for_all(&ranks, "joined", SOON);
    let new: IpAddr = Ipv4Addr::new(10, 77, 0, 99).into();
    goes_on(&mut ranks, 1 - sender, || {
        net.host(1).change_address(net.host(1).address, new);
    });
    all_succeed(&mut ranks, SOON);
}
