//! What every rank is told when a group does not form.

use crate::world::{Hosts, Joining, LIMIT};
use nexar_core::{
    JoinError, RefuseReason, TimeLimits,
    membership::{SeedSettings, serve_seed},
    transport::Transport,
    wire::{self, MAX_JOIN_FRAME, join::Answer},
};
use std::{net::SocketAddr, time::Duration};
use tokio::time::{Instant, sleep};

/// What a rank reports by one second after its time limit at the latest.
async fn error(joining: Joining) -> JoinError {
    let (result, took) = joining.await.unwrap();
    assert!(took <= LIMIT + Duration::from_secs(1), "{took:?}");
    result.unwrap_err()
}

fn missing(error: &JoinError) -> (&[usize], String) {
    match error {
        JoinError::Missing { ranks, .. } => (ranks, error.to_string()),
        error => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_rank_that_stops_while_joining_is_named() {
    for (world, stuck) in [(2, 1), (3, 1), (5, 2), (5, 4), (8, 1)] {
        for dies in [false, true] {
            let hosts = Hosts::new(world);
            let others = (0..world).filter(|rank| *rank != stuck);
            let joining: Vec<_> = others.map(|rank| hosts.join(rank)).collect();
            let mut applicant = hosts.stuck(stuck).await;
            let answer: Option<Answer> = wire::read_frame(&mut applicant.recv, MAX_JOIN_FRAME)
                .await
                .unwrap();
            assert!(matches!(answer, Some(Answer::Table(_))), "{answer:?}");
            if dies {
                hosts.network.kill(hosts.address(stuck));
            }
            for joining in joining {
                let error = error(joining).await;
                let (ranks, text) = missing(&error);
                assert_eq!(ranks, [stuck], "{text}");
                let address = hosts.address(stuck).to_string();
                assert!(text.contains(&address), "{text}");
            }
        }
    }
}

/// Everybody has come, but one has died before it was told.
#[tokio::test(start_paused = true)]
async fn only_the_rank_that_died_before_the_table_is_named() {
    let hosts = Hosts::new(4);
    let early = [hosts.join(0), hosts.join(1)];
    let _applicant = hosts.stuck(2).await;
    sleep(Duration::from_millis(100)).await;
    hosts.network.kill(hosts.address(2));
    let last = hosts.join(3);
    for joining in early.into_iter().chain([last]) {
        let error = error(joining).await;
        assert_eq!(missing(&error).0, [2], "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_seed_that_is_no_rank_does_not_wait_for_a_stuck_one() {
    let hosts = Hosts::new(2);
    let settings = SeedSettings::new("job", 2, LIMIT);
    let started = Instant::now();
    let (served, _first, _second) = tokio::join!(
        serve_seed(&hosts.transports[0], &settings),
        hosts.stuck(0),
        hosts.stuck(1)
    );
    served.unwrap();
    assert!(started.elapsed() <= LIMIT + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_seed_that_gives_up_does_not_wait_for_a_stuck_applicant() {
    let hosts = Hosts::new(3);
    let seed = hosts.join(0);
    let _applicant = hosts.stuck(1).await;
    assert_eq!(missing(&error(seed).await).0, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_seed_that_dies_while_forming_is_not_said_to_be_silent() {
    let hosts = Hosts::new(3);
    let (seed, other) = (hosts.join(0), hosts.join(1));
    sleep(Duration::from_secs(1)).await;
    hosts.network.kill(hosts.address(0));
    let error = error(other).await;
    assert!(matches!(error, JoinError::NotFormed { .. }), "{error}");
    assert!(error.to_string().contains("answered, but"), "{error}");
    seed.abort();
}

#[tokio::test(start_paused = true)]
async fn different_detection_times_are_refused_on_both_sides() {
    let hosts = Hosts::new(2);
    let limits = TimeLimits::default()
        .with_join(LIMIT)
        .with_detection(Duration::from_secs(1));
    let seed = hosts.join(0);
    let other = hosts.join_with(hosts.request(1).with_limits(limits));
    let expected = RefuseReason::Detection {
        theirs_ms: 1_000,
        ours_ms: 4_000,
    };
    match (error(seed).await, error(other).await) {
        (JoinError::Conflict { reason, .. }, JoinError::Refused { reason: told, .. }) => {
            assert_eq!((&reason, &told), (&expected, &expected));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_advertised_address_is_shown() {
    let hosts = Hosts::new(3);
    let nowhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let zero = hosts.join(0);
    let one = hosts.join_with(hosts.request(1).with_advertise(Some(nowhere)));
    let two = hosts.join(2);
    let error = error(two).await;
    let (ranks, text) = missing(&error);
    assert_eq!(ranks, [1]);
    assert!(text.contains("dialled at 192.0.2.1:9"), "{text}");
    let unreached = one.await.unwrap().0.unwrap_err().to_string();
    assert!(unreached.contains("did not dial this rank"), "{unreached}");

    // Rank 0 has reached both, and is told what went wrong.
    let zero = zero.await.unwrap().0.unwrap();
    let reason = nexar_core::transport::Connection::closed(zero.connection(2).unwrap()).await;
    assert!(
        reason
            .to_string()
            .contains("could not connect to ranks [1]"),
        "{reason}"
    );
    assert_eq!(zero.transport().local_addr(), hosts.address(0));
}
