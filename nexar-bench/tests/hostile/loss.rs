//! Paths that lose, delay, or are slow.

use crate::{
    job::{Job, PORT, SOON, all_succeed, test_program},
    net::Net,
    process::Process,
    rank::TASK,
    transports::Mix,
};
use serde_json::Value;
use std::{net::SocketAddr, time::Duration};

on_each_transport![
    all_reduce_with_5_percent_lost,
    all_reduce_with_10_percent_lost,
    messages_with_5_percent_lost,
    messages_with_10_percent_lost,
    all_reduce_with_20_ms_each_way,
    a_small_message_passes_a_large_one,
];

/// For what has to be sent again and again, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Sizes on both sides of every change of algorithm, and what does not divide by the ranks.
const SWEEP: [&str; 11] = [
    "all-reduce",
    "-b",
    "20",
    "-e",
    "400K",
    "-f",
    "25",
    "--iters",
    "2",
    "--warmup",
    "1",
];

/// Rows of [`SWEEP`].
const ROWS: usize = 4;

/// Hosts of which each loses so much of what is sent to it.
fn lossy(hosts: usize, percent: u32) -> Option<Net> {
    let net = Net::new(hosts)?;
    let rule = format!("numgen random mod 100 < {percent} drop");
    net.hosts().iter().for_each(|host| host.filter(&rule, ""));
    Some(net)
}

fn all_reduces(net: &Net, mix: Mix) {
    let job = Job::new(net, mix, 3);
    let ranks = (0..3).map(|rank| job.perf(rank, &SWEEP, &[]));
    all_exact(&mut ranks.collect::<Vec<_>>());
}

/// Every row of `nexar-perf` has no wrong element, and all ranks end well.
fn all_exact(ranks: &mut [Process]) {
    for _ in 0..ROWS {
        let row = format!("{{{}", ranks[0].expect("{", LIMIT));
        let row: Value = serde_json::from_str(&row).unwrap();
        assert_eq!(row["wrong"], 0, "{row}");
    }
    all_succeed(ranks, LIMIT);
}

fn all_reduce_with_5_percent_lost(mix: Mix) {
    lossy(3, 5).inspect(|net| all_reduces(net, mix));
}

fn all_reduce_with_10_percent_lost(mix: Mix) {
    lossy(3, 10).inspect(|net| all_reduces(net, mix));
}

fn messages(net: &Net, mix: Mix) {
    let mut ranks = Job::new(net, mix, 2).start("messages 1000 65536");
    for rank in &ranks {
        rank.expect("done 1000", LIMIT);
    }
    all_succeed(&mut ranks, SOON);
}

fn messages_with_5_percent_lost(mix: Mix) {
    lossy(2, 5).inspect(|net| messages(net, mix));
}

fn messages_with_10_percent_lost(mix: Mix) {
    lossy(2, 10).inspect(|net| messages(net, mix));
}

/// The last host stands in front of the ranks that are dialled.
fn all_reduce_with_20_ms_each_way(mix: Mix) {
    let Some(net) = Net::new(4) else { return };
    let relay = |rank: u16| {
        let front = SocketAddr::new(net.host(3).address, PORT + rank);
        let rank = SocketAddr::new(net.host(rank.into()).address, PORT);
        let mut command = test_program(net.host(3));
        command.env(TASK, format!("relay 20 {front} {rank}"));
        let process = Process::start("relay".into(), &mut command);
        process.expect("ready", SOON);
        (process, front.to_string(), rank.to_string())
    };
    let relays = [relay(0), relay(1)];
    let job = Job::new(&net, mix, 3).with("NEXAR_SEED", &relays[0].1);
    let ranks = (0..3).map(|rank| {
        let settings: &[(&str, &str)] = match relays.get(rank) {
            Some((_, front, own)) => &[("NEXAR_ADVERTISE", front), ("NEXAR_BIND", own)],
            None => &[],
        };
        job.perf(rank, &SWEEP, settings)
    });
    all_exact(&mut ranks.collect::<Vec<_>>());
}

fn a_small_message_passes_a_large_one(mix: Mix) {
    let Some(net) = Net::new(2) else { return };
    net.hosts()
        .iter()
        .for_each(|host| host.limit_rate("100mbit"));
    let mut ranks = Job::new(&net, mix, 2).start("beside 33554432");
    let receiver = &ranks[1];
    let small = receiver.number("small", LIMIT);
    let slowest = Duration::from_micros(receiver.number("slowest", SOON));
    receiver.expect("large", SOON);
    assert!(small >= 10, "only {small} small messages");
    assert!(
        slowest < Duration::from_millis(200),
        "a small message took {slowest:?}"
    );
    all_succeed(&mut ranks, SOON);
}
