//! How the end of a rank looks to the others.

use crate::world::{Hosts, MemoryMesh};
use nexar_core::{
    Algorithm, Call, Collective, Error, Failure, mesh::Group, transport::memory::MemoryTransport,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn groups(meshes: &[MemoryMesh]) -> Vec<Group<MemoryTransport>> {
    let members: Vec<usize> = (0..meshes.len()).collect();
    let group = |mesh: &MemoryMesh| mesh.group(5, members.clone()).unwrap();
    meshes.iter().map(group).collect()
}

fn aborted(rank: usize) -> Failure {
    let reason = "its disk is full".into();
    Failure::Aborted { rank, reason }
}

/// Time for messages to arrive.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// The abort of rank 0 reaches rank 2 late, after rank 1 has heard of it and left.
#[tokio::test(start_paused = true)]
async fn whoever_leaves_a_failed_group_passes_the_failure_on() {
    for drops in [false, true] {
        let hosts = Hosts::new(3);
        let mut meshes = hosts.meshes().await;
        let mut groups = groups(&meshes);
        let delay = Duration::from_secs(1);
        let [zero, two] = [0, 2].map(|rank| hosts.address(rank));
        hosts
            .network
            .set_link_delay(zero, two, delay, Duration::ZERO);
        groups[0].fail(aborted(0));
        settle().await;
        assert_eq!(groups[1].failure(), Some(aborted(0)));
        assert_eq!(groups[2].failure(), None);
        let (mesh, group) = (meshes.remove(1), groups.remove(1));
        if drops {
            drop((group, mesh));
        } else {
            mesh.leave().await.unwrap();
        }
        settle().await;
        assert_eq!(groups[1].failure(), Some(aborted(0)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_dropped_without_leaving_looks_like_a_failure() {
    for whole_mesh in [false, true] {
        let hosts = Hosts::new(3);
        let mut meshes = hosts.meshes().await;
        let mut groups = groups(&meshes);
        if whole_mesh {
            drop(meshes.remove(1));
        } else {
            drop(groups.remove(1));
        }
        settle().await;
        for group in [&groups[0], groups.last().unwrap()] {
            match group.failure() {
                Some(Failure::PeerLost { rank: 1, reason }) => {
                    assert!(reason.contains("without a shutdown"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_left_does_not_fail() {
    let hosts = Hosts::new(3);
    let mut meshes = hosts.meshes().await;
    let mut groups = groups(&meshes);
    let (mesh, group) = (meshes.remove(1), groups.remove(1));
    group.leave();
    assert_eq!(group.failure(), Some(Failure::ShutDown));
    drop(group);
    mesh.leave().await.unwrap();
    settle().await;
    for group in &groups {
        assert_eq!(group.failure(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_rank_holds_up_nobody_who_leaves() {
    let hosts = Hosts::new(3);
    let mut meshes = hosts.meshes().await;
    let groups = groups(&meshes);
    hosts.network.kill(hosts.address(2));
    let started = Instant::now();
    match meshes.remove(0).leave().await.unwrap_err() {
        Error::NotConfirmed { ranks } => assert_eq!(ranks, [2]),
        other => panic!("{other}"),
    }
    assert!(started.elapsed() < Duration::from_millis(2_500));

    // Once it is known to be lost, nothing is left to be confirmed.
    while groups[1].failure().is_none() {
        settle().await;
    }
    let started = Instant::now();
    meshes.remove(0).leave().await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(100));
}

/// It lives, but what it says comes too late.
#[tokio::test(start_paused = true)]
async fn a_rank_that_was_taken_for_dead_is_told_so() {
    let hosts = Hosts::new(2);
    let meshes = hosts.meshes().await;
    let groups = groups(&meshes);
    let late = Duration::from_secs(60);
    let [zero, one] = [0, 1].map(|rank| hosts.address(rank));
    hosts
        .network
        .set_link_delay(one, zero, late, Duration::ZERO);
    while groups[1].failure().is_none() {
        settle().await;
    }
    match groups[1].failure() {
        Some(Failure::PeerLost { rank: 0, reason }) => assert!(
            reason.starts_with("it took this rank for dead: nothing heard from it for 4."),
            "{reason}"
        ),
        other => panic!("{other:?}"),
    }
}

fn barrier(sequence: u64) -> Call {
    Call {
        collective: Collective::Barrier,
        sequence,
        dtype: None,
        element: 0,
        op: None,
        count: 0,
        root: None,
        algorithm: Algorithm::Dissemination,
        digest: 0,
        exchange: None,
    }
}

/// A rank is so quick that it has left before a slower one has made the communicator: the calls in which it took
/// part must complete there.
#[tokio::test(start_paused = true)]
async fn a_rank_that_left_before_the_group_was_made_has_made_its_calls() {
    let hosts = Hosts::new(2);
    let mut meshes = hosts.meshes().await;
    let quick = meshes.remove(1);
    let group = quick.group(5, vec![0, 1]).unwrap();
    group.begin(barrier, None).unwrap().finish();
    group.leave();
    quick.leave().await.unwrap();
    drop((group, quick));
    settle().await;

    let slow = meshes[0].group(5, vec![0, 1]).unwrap();
    assert_eq!(slow.failure(), None);
    slow.begin(barrier, None).unwrap().finish();
    assert_eq!(
        slow.begin(barrier, None).unwrap_err(),
        Failure::PeerLeft { rank: 1 }
    );
}

/// The same with a failure.
#[tokio::test(start_paused = true)]
async fn a_failure_reaches_those_who_make_the_group_later() {
    let hosts = Hosts::new(2);
    let meshes = hosts.meshes().await;
    let quick = meshes[1].group(5, vec![0, 1]).unwrap();
    quick.fail(aborted(1));
    settle().await;
    let slow = meshes[0].group(5, vec![0, 1]).unwrap();
    assert_eq!(slow.failure(), Some(aborted(1)));
}
