//! Joining a group over real QUIC, and what can go wrong with it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::free_address;
use nexar_collectives::{
    Backend, Builder, Communicator, Error, JoinError, Rank, ReduceOp, RefuseReason, Result, Secret,
    SeedRole, TimeLimits,
};
use nexar_core::{
    transport::{Connection, Transport},
    wire::{
        self, MAX_JOIN_FRAME, PROTOCOL_VERSION,
        join::{Join, Opening},
    },
};
use nexar_quic::{AnyTransport, Config, Identity};
use std::{net::UdpSocket, time::Duration};
use tokio::{task::JoinSet, time::Instant};

/// What is found at once is found long before it.
const JOIN_LIMIT: Duration = Duration::from_secs(10);

fn secret() -> Secret {
    Secret::new("the secret of these tests is long enough").unwrap()
}

fn builder(world_size: usize, rank: Rank, seed: &str) -> Builder {
    let limits = TimeLimits::default().with_join(JOIN_LIMIT);
    Communicator::builder()
        .world_size(world_size)
        .rank(rank)
        .seed(seed)
        .secret(secret())
        .limits(limits)
}

async fn join_all(builders: Vec<Builder>) -> Vec<Result<Communicator>> {
    let mut joins = JoinSet::new();
    for (index, builder) in builders.into_iter().enumerate() {
        joins.spawn(async move { (index, builder.join().await) });
    }
    let mut results = joins.join_all().await;
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

async fn sum_of_ranks(group: Vec<Communicator>) {
    let mut tasks = JoinSet::new();
    for comm in group {
        tasks.spawn(async move {
            let world = comm.world_size() as u64;
            let mut data = [comm.rank() as u64; 5];
            comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
            assert_eq!(data, [world * (world - 1) / 2; 5]);
            comm.shutdown().await.unwrap();
        });
    }
    tasks.join_all().await;
}

fn all(results: Vec<Result<Communicator>>) -> Vec<Communicator> {
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|e| panic!("{e}")))
        .collect()
}

#[tokio::test]
async fn ranks_of_ones_own_choice_and_any_ranks_mix() {
    let seed = free_address().to_string();
    let ranks = [Rank::Fixed(0), Rank::Any, Rank::Fixed(1), Rank::Any];
    let group = all(join_all(ranks.map(|rank| builder(4, rank, &seed)).into()).await);
    let numbers: Vec<usize> = group.iter().map(Communicator::rank).collect();
    assert_eq!((numbers[0], numbers[2]), (0, 1));
    assert!(numbers[1] + numbers[3] == 5, "{numbers:?}");
    sum_of_ranks(group).await;
}

/// The seed comes last: the others keep trying.
#[tokio::test]
async fn any_order_of_arrival_will_do() {
    let seed = free_address().to_string();
    let mut others = JoinSet::new();
    for rank in [2, 1] {
        others.spawn(builder(3, Rank::Fixed(rank), &seed).join());
    }
    // The first attempts of the others find nobody: time passes until the seed is there.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut group = vec![builder(3, Rank::Fixed(0), &seed).join().await.unwrap()];
    group.extend(all(others.join_all().await));
    sum_of_ranks(group).await;
}

#[tokio::test]
async fn host_names_of_both_families_are_tried() {
    let port = free_address().port();
    let seed = format!("localhost:{port}");
    let group = join_all(vec![
        // Whatever else localhost is, it is 127.0.0.1.
        builder(2, Rank::Fixed(0), &seed).bind("127.0.0.1"),
        builder(2, Rank::Fixed(1), &seed),
    ]);
    sum_of_ranks(all(group.await)).await;
}

#[tokio::test]
async fn missing_ranks_are_listed_at_the_time_limit() {
    let seed = free_address().to_string();
    let limits = TimeLimits::default().with_join(Duration::from_secs(3));
    let started = Instant::now();
    let results = join_all(
        [0, 1, 3]
            .map(|rank| builder(4, Rank::Fixed(rank), &seed).limits(limits))
            .into(),
    )
    .await;
    assert!(started.elapsed() < JOIN_LIMIT, "{:?}", started.elapsed());
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.failed_ranks(), [2], "{error}");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn no_seed_is_said_so() {
    let limits = TimeLimits::default().with_join(Duration::from_millis(700));
    let seed = free_address().to_string();
    let error = builder(2, Rank::Fixed(1), &seed)
        .limits(limits)
        .join()
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Join(JoinError::SeedUnreachable { .. })),
        "{error}"
    );
    assert!(error.to_string().contains(&seed), "{error}");
}

/// What a process is told that contradicts the group, and what the seed says.
#[tokio::test]
async fn contradictions_are_errors_on_both_sides() {
    let seed = free_address().to_string();
    let started = Instant::now();
    let results = join_all(vec![
        builder(3, Rank::Fixed(0), &seed),
        builder(2, Rank::Fixed(1), &seed),
    ])
    .await;
    assert!(started.elapsed() < JOIN_LIMIT);
    let [at_seed, at_other] = results.try_into().unwrap();
    let Err(Error::Join(JoinError::Conflict { reason, .. })) = at_seed else {
        panic!("{at_seed:?}")
    };
    assert_eq!(reason, RefuseReason::WorldSize { theirs: 2, ours: 3 });
    let Err(Error::Join(JoinError::Refused { reason, .. })) = at_other else {
        panic!("{at_other:?}")
    };
    assert_eq!(reason, RefuseReason::WorldSize { theirs: 2, ours: 3 });

    let seed = free_address().to_string();
    let started = Instant::now();
    let results = join_all(vec![
        builder(3, Rank::Fixed(0), &seed),
        builder(3, Rank::Fixed(1), &seed),
        builder(3, Rank::Fixed(1), &seed),
    ])
    .await;
    assert!(started.elapsed() < JOIN_LIMIT);
    let mut duplicates = 0;
    for result in results {
        let error = result.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("rank 1 is claimed by two processes"),
            "{error}"
        );
        duplicates += usize::from(matches!(
            error,
            Error::Join(
                JoinError::Refused {
                    reason: RefuseReason::DuplicateRank { rank: 1 },
                    ..
                } | JoinError::Conflict {
                    reason: RefuseReason::DuplicateRank { rank: 1 },
                    ..
                }
            )
        ));
    }
    assert_eq!(
        duplicates, 2,
        "the newcomer and the seed; the third is told of the conflict"
    );
}

#[tokio::test]
async fn different_detection_times_are_refused_on_both_sides() {
    let seed = free_address().to_string();
    let limits = TimeLimits::default().with_detection(Duration::from_millis(1_500));
    let results = join_all(vec![
        builder(2, Rank::Fixed(0), &seed),
        builder(2, Rank::Fixed(1), &seed).limits(limits),
    ])
    .await;
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("detection time 1500 ms instead of 4000 ms"),
            "{error}"
        );
    }
}

/// It applies for a rank, gets the table of members, and does nothing more.
#[tokio::test]
async fn only_the_rank_that_stops_while_joining_is_named() {
    let seed = free_address();
    let limit = Duration::from_secs(4);
    let limits = TimeLimits::default().with_join(limit);
    let started = Instant::now();
    let joining = tokio::spawn(join_all(
        [0, 1, 3]
            .map(|rank| builder(4, Rank::Fixed(rank), &seed.to_string()).limits(limits))
            .into(),
    ));

    let identity = Identity::from_secret(&secret(), "nexar").unwrap();
    let config = Config::new(identity, "127.0.0.1:0".parse().unwrap());
    let stuck = AnyTransport::bind(Backend::default(), config).unwrap();
    let new = loop {
        if let Ok(new) = stuck.connect(seed, None).await {
            break new;
        }
    };
    let (mut send, _recv) = new.connection.open_bi().await.unwrap();
    let join = Opening::Join(Join {
        version: PROTOCOL_VERSION,
        job: "nexar".into(),
        world_size: 4,
        rank: Some(2),
        address: stuck.local_addr(),
        detection_ms: 4_000,
    });
    wire::write_frame(&mut send, &join, MAX_JOIN_FRAME)
        .await
        .unwrap();

    for result in joining.await.unwrap() {
        let error = result.unwrap_err();
        assert_eq!(error.failed_ranks(), [2], "{error}");
    }
    assert!(started.elapsed() < limit + JOIN_LIMIT);
}

#[tokio::test]
async fn another_jobs_process_is_refused_and_the_group_forms() {
    let seed = free_address().to_string();
    let stranger = tokio::spawn({
        let seed = seed.clone();
        async move { builder(2, Rank::Fixed(1), &seed).job("other").join().await }
    });
    let first = tokio::spawn(builder(2, Rank::Fixed(0), &seed).join());
    let Err(Error::Join(JoinError::Refused { reason, .. })) = stranger.await.unwrap() else {
        panic!("a stranger joined")
    };
    let expected = RefuseReason::Job {
        theirs: "other".into(),
        ours: "nexar".into(),
    };
    assert_eq!(reason, expected);
    let second = builder(2, Rank::Fixed(1), &seed).join().await.unwrap();
    sum_of_ranks(vec![first.await.unwrap().unwrap(), second]).await;
}

#[tokio::test]
async fn a_process_that_comes_after_the_group_has_formed_is_told_so() {
    let seed = free_address().to_string();
    let ranks = [Rank::Fixed(0), Rank::Fixed(1)];
    let group = all(join_all(ranks.map(|rank| builder(2, rank, &seed)).into()).await);
    let error = builder(2, Rank::Fixed(1), &seed).join().await.unwrap_err();
    assert!(error.to_string().contains("formed already"), "{error}");
    sum_of_ranks(group).await;
}

#[tokio::test]
async fn another_secret_is_refused_at_once_and_the_group_forms() {
    let seed = free_address().to_string();
    let first = tokio::spawn(builder(2, Rank::Fixed(0), &seed).join());
    let other = Secret::new("quite another secret of good length").unwrap();
    let started = Instant::now();
    for wrong in [
        builder(2, Rank::Fixed(1), &seed).secret(other),
        Communicator::builder()
            .world_size(2)
            .rank(Rank::Fixed(1))
            .seed(&seed),
    ] {
        let error = wrong.join().await.unwrap_err();
        assert!(
            matches!(error, Error::Join(JoinError::Connect { .. })),
            "{error}"
        );
        assert!(error.to_string().contains("secret"), "{error}");
    }
    assert!(started.elapsed() < JOIN_LIMIT);
    let second = builder(2, Rank::Fixed(1), &seed).join().await.unwrap();
    sum_of_ranks(vec![first.await.unwrap().unwrap(), second]).await;
}

#[tokio::test]
async fn without_a_secret_only_loopback_is_allowed() {
    let builder = Communicator::builder()
        .world_size(2)
        .rank(Rank::Fixed(0))
        .seed("0.0.0.0:0");
    let error = builder.join().await.unwrap_err();
    assert!(error.to_string().contains("NEXAR_SECRET"), "{error}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let seed = taken.local_addr().unwrap().to_string();
    let error = builder(2, Rank::Fixed(0), &seed).join().await.unwrap_err();
    assert!(error.to_string().contains(&seed), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
}

#[tokio::test]
async fn many_groups_form_at_once() {
    let mut groups = JoinSet::new();
    for _ in 0..12 {
        groups.spawn(async { Communicator::local(3).await.map(|group| group.len()) });
    }
    for formed in groups.join_all().await {
        assert_eq!(formed.unwrap(), 3);
    }
}

#[tokio::test]
async fn a_world_of_one_needs_nothing() {
    let comm = Communicator::builder().join().await.unwrap();
    assert_eq!((comm.rank(), comm.world_size()), (0, 1));
    assert_ne!(comm.local_addr().port(), 0);
    for count in [1, 2, 255, 1025] {
        let input: Vec<f32> = (0..count).map(|x| x as f32 * 0.1).collect();
        let mut output = vec![0.0; count];
        comm.all_gather(&input, &mut output).await.unwrap();
        assert_eq!(output, input);
        output.fill(0.0);
        comm.reduce_scatter(&input, &mut output, ReduceOp::Average)
            .await
            .unwrap();
        assert_eq!(output, input);
    }
    comm.barrier().await.unwrap();
    comm.shutdown().await.unwrap();
}

#[tokio::test]
async fn settings_that_make_no_sense_are_named() {
    let cases = [
        (Communicator::builder().world_size(0), "world size"),
        (
            Communicator::builder()
                .world_size(2)
                .rank(Rank::Fixed(2))
                .seed("127.0.0.1:1"),
            "rank",
        ),
        (Communicator::builder().world_size(2), "seed"),
        (
            Communicator::builder().algorithms("all_reduce:magic"),
            "algorithms",
        ),
        (Communicator::builder().bind("nosuch0"), "NEXAR_BIND"),
        (Communicator::builder().seed("nowhere"), "NEXAR_SEED"),
        (
            Communicator::builder()
                .world_size(2)
                .seed("[::1]:9")
                .seed_role(SeedRole::Join)
                .bind("127.0.0.1"),
            "IPv6",
        ),
    ];
    for (builder, named) in cases {
        let error = builder.join().await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert!(
            error.to_string().contains(named),
            "{error} does not name {named}"
        );
    }
}

/// Every rank leaves and joins again at the same address at once, while others are still leaving.
#[tokio::test]
async fn a_new_group_forms_where_the_last_one_was() {
    let seed = free_address().to_string();
    let mut tasks = JoinSet::new();
    for rank in 0..3 {
        let seed = seed.clone();
        tasks.spawn(async move {
            for round in 0..4 {
                let comm = builder(3, Rank::Fixed(rank), &seed).join().await;
                let comm = comm.unwrap_or_else(|e| panic!("round {round}, rank {rank}: {e}"));
                comm.barrier().await.unwrap();
                comm.shutdown().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}
