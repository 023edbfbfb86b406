//! Many ranks, and many messages that nobody wants in the end.

use crate::{
    job::{Job, SOON, all_succeed},
    net::Net,
    transports::Mix,
};
use std::time::Duration;

on_each_transport![
    everybody_sends_to_everybody,
    receives_that_are_given_up_half_way,
];

fn everybody_sends_to_everybody(mix: Mix) {
    const RANKS: usize = 20;
    let Some(net) = Net::new(1) else { return };
    let mut ranks = Job::new(&net, mix, RANKS).start("everybody 1048576");
    for rank in &ranks {
        rank.expect("received 19", Duration::from_secs(30));
    }
    all_succeed(&mut ranks, SOON);
}

/// What is discarded with them is more than the window of the connection.
fn receives_that_are_given_up_half_way(mix: Mix) {
    let Some(net) = Net::new(2) else { return };
    let mut ranks = Job::new(&net, mix, 2).start("half-read 8388608 200");
    ranks[1].expect("cancelled", Duration::from_secs(40));
    ranks[1].expect("received", SOON);
    all_succeed(&mut ranks, SOON);
}
