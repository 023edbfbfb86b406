//! The front for programs without async.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![cfg(any(feature = "quinn", feature = "s2n-quic"))]

use nexar_collectives::{Error, ReduceOp, Source, Tag, blocking::Communicator, run_local};
use std::{panic, thread};

/// Runs `work` on each of `world` ranks, each on a thread of its own.
fn on_threads(world: usize, work: impl Fn(&Communicator) + Sync) {
    let ranks = Communicator::local(world).unwrap();
    thread::scope(|scope| {
        for comm in ranks {
            let work = &work;
            scope.spawn(move || {
                work(&comm);
                comm.shutdown().unwrap();
            });
        }
    });
}

#[test]
fn collectives_and_messages() {
    for world in [1, 2, 3, 5] {
        on_threads(world, |comm| {
            let rank = comm.rank();
            let mut sum = [rank as i64 + 1, 10 * rank as i64];
            comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            let n = world as i64;
            assert_eq!(sum, [n * (n + 1) / 2, 10 * n * (n - 1) / 2]);

            let mut all = vec![0u32; 2 * world];
            comm.all_gather(&[rank as u32, 7], &mut all).unwrap();
            let expected: Vec<u32> = (0..world as u32).flat_map(|rank| [rank, 7]).collect();
            assert_eq!(all, expected);

            let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
            let mut got = [0u8; 3];
            let received = comm
                .send_recv(&[rank as u8; 3], next, 5, &mut got, previous, Tag::Any)
                .unwrap();
            assert_eq!((received.source, received.tag), (previous, 5));
            assert_eq!(got, [previous as u8; 3]);
            comm.barrier().unwrap();
        });
    }
}

#[test]
fn several_threads_use_one_communicator() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 50;
    on_threads(2, |comm| {
        let other = 1 - comm.rank();
        thread::scope(|scope| {
            for tag in 0..THREADS {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        comm.send(&[tag, round], other, tag).unwrap();
                        let mut got = [0u64; 2];
                        comm.recv(&mut got, Source::Any, tag).unwrap();
                        assert_eq!(got, [tag, round]);
                    }
                });
            }
            // All ranks call collectives in one order; here one thread of each calls them.
            for round in 0..ROUNDS as usize {
                let mut sum = [(comm.rank() + round) as u64];
                comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum, [2 * round as u64 + 1]);
            }
        });
    });
}

#[test]
fn groups_and_started_operations() {
    on_threads(4, |comm| {
        let rank = comm.rank();
        let half = comm
            .split(Some(rank as u64 % 2), -(rank as i64))
            .unwrap()
            .unwrap();
        // By descending rank.
        assert_eq!(half.rank(), 1 - rank / 2);
        let started = comm
            .as_async()
            .start_all_reduce(vec![rank as u16; 3], ReduceOp::Max);
        let mut ranks = [0; 2];
        half.all_gather(&[rank as u64], &mut ranks).unwrap();
        let low = rank as u64 % 2;
        assert_eq!(ranks, [low + 2, low]);
        assert_eq!(started.wait_blocking().unwrap(), [3; 3]);
        half.shutdown().unwrap();

        let copy = comm.duplicate().unwrap();
        let pair = copy.subgroup(&[3, 1]).unwrap();
        assert_eq!(
            pair.as_ref().map(Communicator::rank),
            [None, Some(1), None, Some(0)][rank]
        );
        if let Some(pair) = pair {
            let mut got = [rank as u8];
            pair.broadcast(&mut got, 0).unwrap();
            assert_eq!(got, [3]);
        }
    });
}

#[test]
fn errors_come_as_values() {
    on_threads(2, |comm| {
        let error = comm.broadcast(&mut [0u8], 2).unwrap_err();
        assert!(error.to_string().contains("root 2"), "{error}");
        let error = comm.all_reduce(&mut [true], ReduceOp::Average).unwrap_err();
        assert!(error.to_string().contains("not supported"), "{error}");
    });
}

/// What is passed on is the cause, not that others have lost the rank.
#[test]
fn errors_and_panics_of_one_rank_of_several() {
    let error = run_local(3, async |comm| {
        if comm.rank() == 1 {
            return Err(Error::NotConfirmed { ranks: vec![9] });
        }
        comm.barrier().await
    });
    assert_eq!(error.unwrap_err().failed_ranks(), [9]);

    let panicked = panic::catch_unwind(|| {
        run_local(3, async |comm| {
            if comm.rank() == 1 {
                panic::resume_unwind(Box::new("mine"));
            }
            comm.barrier().await
        })
    });
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"mine"));
}
