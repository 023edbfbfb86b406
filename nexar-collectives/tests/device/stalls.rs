//! Devices that do not get on: what an operation comes after on a buffer's stream never ends.

use super::simulated;
use crate::common::memory_world_with;
use nexar_collectives::{
    Communicator, DeviceBuffer, Element, Error, Failure, MemorySpace, OperationError, ReduceOp,
    Result, TimeLimits, f16,
    transport::memory::{MemoryNetwork, MemoryTransport},
};
use nexar_device::testing::{Held, MemoryDevice};
use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

type Comm = Communicator<MemoryTransport, MemoryDevice>;
type Buffer<E> = DeviceBuffer<E, MemoryDevice>;

/// Long enough that the ranks have asked each other why they wait.
const LIMIT: Duration = Duration::from_secs(4);

/// A buffer of a rank, whose stream waits for ever where it is `held`.
async fn buffer<E: Element>(comm: &Comm, held: bool, value: E) -> (Buffer<E>, Option<Held>) {
    let (device, space) = (comm.device(), MemorySpace::Device(0));
    let data = [value; 40];
    let buffer = DeviceBuffer::from_slice(device, space, &data).await;
    let stream = device.stream();
    // SAFETY: the streams of this device exist as long as it does.
    let buffer = unsafe { buffer.unwrap().on_stream(stream) };
    (buffer, held.then(|| device.hold(stream).unwrap()))
}

async fn world(limits: TimeLimits) -> (MemoryNetwork, [Comm; 3]) {
    let devices: Vec<_> = (0..3).map(|rank| simulated(rank, 2, 64).adapter).collect();
    let (network, _, ranks) = memory_world_with(&devices, limits).await;
    (network, ranks.try_into().unwrap())
}

fn failure(result: Result<()>) -> OperationError {
    match result {
        Err(Error::Operation(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// What becomes of an operation where the streams of some ranks wait for ever.
async fn errors<E: Element>(
    held: &[usize],
    value: E,
    operation: impl AsyncFn(&Comm, &mut Buffer<E>) -> Result<()>,
) -> [OperationError; 3] {
    let limits = TimeLimits::default().with_operation(LIMIT);
    let (_network, [zero, one, two]) = &world(limits).await;
    let run = async |comm: &Comm| {
        let (mut buffer, _held) = buffer(comm, held.contains(&comm.rank()), value).await;
        failure(operation(comm, &mut buffer).await)
    };
    tokio::join!(run(zero), run(one), run(two)).into()
}

fn waiting(error: &OperationError) -> &[usize] {
    match &error.failure {
        Failure::TimedOut {
            limit: LIMIT,
            waiting_for_device,
            ..
        } => waiting_for_device,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_ranks_learn_whose_device_is_late() {
    let sum = async |comm: &Comm, buffer: &mut Buffer<f32>| {
        comm.on_device().all_reduce(buffer, ReduceOp::Sum).await
    };
    for error in errors(&[1], 1.5, sum).await {
        let (missing, waiting_for_device) = (Vec::new(), vec![1]);
        assert_eq!(
            error.failure,
            Failure::TimedOut {
                limit: LIMIT,
                missing,
                waiting_for_device
            }
        );
        let text = error.to_string();
        assert!(
            text.ends_with("timed out after 4 s, ranks [1] wait for their device"),
            "{text}"
        );
        assert_eq!(error.failure.ranks(), [1]);
    }
}

/// Sums that are carried in a wider type take their data to the host first.
#[tokio::test]
async fn data_that_goes_through_the_host_as_a_whole() {
    let sum = async |comm: &Comm, buffer: &mut Buffer<f16>| {
        comm.on_device().all_reduce(buffer, ReduceOp::Sum).await
    };
    for error in errors(&[0, 2], f16::ONE, sum).await {
        assert_eq!(waiting(&error), [0, 2], "{error}");
    }
}

/// The others know only that it has not entered the operation.
#[tokio::test]
async fn data_that_is_taken_to_the_host_before_the_call() {
    let scaled = async |comm: &Comm, buffer: &mut Buffer<f64>| {
        comm.on_device().all_reduce_scaled(buffer, 2.0).await
    };
    for error in errors(&[1], 1.5, scaled).await {
        assert_eq!(waiting(&error), [1], "{error}");
        assert_eq!(error.failure.ranks(), [1]);
    }
}

/// No rank has entered the operation, and so no rank waits for another.
#[tokio::test]
async fn the_time_limit_holds_before_the_call() {
    let scaled = async |comm: &Comm, buffer: &mut Buffer<i32>| {
        comm.on_device().all_reduce_scaled(buffer, 3).await
    };
    for error in errors(&[0, 1, 2], 7, scaled).await {
        assert_ne!(waiting(&error), [0; 0], "{error}");
    }
}

/// A rank that waits for its device learns at once that another has given up.
#[tokio::test]
async fn a_failure_is_not_kept_back_by_a_device() {
    let (_network, [zero, one, two]) = &world(TimeLimits::default()).await;
    let (mut scaled, _held) = buffer(one, true, 1u64).await;
    let (mut wide, _held) = buffer(two, true, f16::ONE).await;
    let give_up = async {
        let mut barrier = pin!(zero.barrier());
        let waker = Waker::noop();
        assert!(
            barrier
                .as_mut()
                .poll(&mut Context::from_waker(waker))
                .is_pending()
        );
    };
    let (scaled, wide, ()) = tokio::join!(
        one.on_device().all_reduce_scaled(&mut scaled, 2),
        two.on_device().all_reduce(&mut wide, ReduceOp::Sum),
        give_up
    );
    for error in [failure(scaled), failure(wide)] {
        assert!(
            matches!(&error.failure, Failure::Aborted { rank: 0, .. }),
            "{error}"
        );
    }
}

/// A message from or into a device that is late: the rank with the device says so.
#[tokio::test]
async fn a_message_says_whose_device_is_late() {
    let limits = TimeLimits::default().with_operation(LIMIT);
    let (_network, [zero, one, _two]) = &world(limits).await;
    for held in [0, 1] {
        let (sent, _held) = buffer(zero, held == 0, 1.5f32).await;
        let (mut received, _held) = buffer(one, held == 1, 0f32).await;
        let errors = tokio::join!(
            zero.on_device().send(&sent, 1, 7),
            one.on_device().recv(&mut received, 0, 7)
        );
        let late = match held {
            0 => errors.0.unwrap_err(),
            _ => errors.1.unwrap_err(),
        };
        assert_eq!(
            late.to_string().split_once(": ").unwrap().1,
            "the device of this rank did not copy the message of tag 7 within 4 s"
        );
    }
}

/// What was started is waited for when a rank leaves, no longer than the time limit.
#[tokio::test]
async fn leaving_does_not_wait_for_a_device_for_ever() {
    let limits = TimeLimits::default().with_operation(LIMIT);
    let (_network, ranks) = world(limits).await;
    let leave = async |comm: Comm| {
        let (first, _held) = buffer(&comm, comm.rank() == 1, 1.5f32).await;
        let (second, _) = buffer(&comm, false, 2u8).await;
        let device = comm.on_device();
        let first = device.start_all_reduce(first, ReduceOp::Sum);
        let second = device.start_all_reduce(second, ReduceOp::Max);
        comm.shutdown().await.unwrap();
        [
            failure(first.await.map(drop)),
            failure(second.await.map(drop)),
        ]
    };
    let [zero, one, two] = ranks;
    let errors = <[_; 3]>::from(tokio::join!(leave(zero), leave(one), leave(two)));
    for error in errors.as_flattened() {
        assert_eq!(waiting(error), [1], "{error}");
    }
}

/// A stream that gets on in the end costs nothing but the time.
#[tokio::test]
async fn what_was_late_is_exact() {
    let (_network, ranks) = &world(TimeLimits::default()).await;
    for round in 0..20u64 {
        let run = async |comm: &Comm| {
            let rank = comm.rank();
            let held = (round + rank as u64).is_multiple_of(3) || round % 4 == 3;
            let device = comm.on_device();
            let (mut sums, first) = buffer(comm, held, rank as f32 + 1.0).await;
            let (mut wide, second) = buffer(comm, held, f16::from_f32(rank as f32 + 1.0)).await;
            let (mut scaled, third) = buffer(comm, held, rank as i64 + 1).await;
            let (many, fourth) = buffer(comm, held, rank as u8 + 1).await;
            let (mut values, fifth) = buffer(comm, held, rank as i32).await;
            let (mut places, _) = buffer(comm, false, rank as u64 + 10).await;
            let mut many = [many, buffer(comm, false, 1u8).await.0];
            let release = std::thread::spawn(move || {
                drop([first, second, third, fourth, fifth]);
            });
            device.all_reduce(&mut sums, ReduceOp::Sum).await.unwrap();
            device.all_reduce(&mut wide, ReduceOp::Sum).await.unwrap();
            device.all_reduce_scaled(&mut scaled, 2).await.unwrap();
            device
                .all_reduce_many(&mut many, ReduceOp::Sum)
                .await
                .unwrap();
            device
                .all_reduce_max_location(&mut values, &mut places)
                .await
                .unwrap();
            release.join().unwrap();
            let mut found = [0.0; 40];
            sums.copy_to(&mut found).await.unwrap();
            assert_eq!(found, [6.0; 40]);
            let mut found = [f16::ZERO; 40];
            wide.copy_to(&mut found).await.unwrap();
            assert_eq!(found, [f16::from_f32(6.0); 40]);
            let mut found = [0; 40];
            scaled.copy_to(&mut found).await.unwrap();
            assert_eq!(found, [12; 40]);
            let mut found = [0; 40];
            many[0].copy_to(&mut found).await.unwrap();
            assert_eq!(found, [6; 40]);
            many[1].copy_to(&mut found).await.unwrap();
            assert_eq!(found, [3; 40]);
            let mut found = [0; 40];
            places.copy_to(&mut found).await.unwrap();
            assert_eq!(found, [12; 40]);
        };
        let [zero, one, two] = ranks;
        tokio::join!(run(zero), run(one), run(two));
    }
}

/// Others of the same adapter go on beside a stalled one, and nothing is left of what is dropped.
#[tokio::test]
async fn others_go_on_and_nothing_is_left() {
    let (_network, ranks) = &world(TimeLimits::default()).await;
    let run = async |comm: &Comm| {
        let rank = comm.rank();
        let (a, b) = (
            comm.duplicate().await.unwrap(),
            comm.duplicate().await.unwrap(),
        );
        let pair = comm.subgroup(&[2, 1]).await.unwrap();
        let (mut late, held) = buffer(comm, true, 1.5f32).await;
        let (mut late_wide, held_too) = buffer(comm, true, 1i32).await;
        {
            let mut stalled = pin!(a.on_device().all_reduce(&mut late, ReduceOp::Sum));
            let mut whole = pin!(b.on_device().all_reduce_scaled(&mut late_wide, 2));
            let waker = Waker::noop();
            for _ in 0..=rank {
                assert!(
                    stalled
                        .as_mut()
                        .poll(&mut Context::from_waker(waker))
                        .is_pending()
                );
                assert!(
                    whole
                        .as_mut()
                        .poll(&mut Context::from_waker(waker))
                        .is_pending()
                );
            }
            for round in 0..30 {
                let (mut data, _) = buffer(comm, false, rank as i32 + round).await;
                comm.on_device()
                    .all_reduce(&mut data, ReduceOp::Sum)
                    .await
                    .unwrap();
                let mut found = [0; 40];
                data.copy_to(&mut found).await.unwrap();
                assert_eq!(found, [3 + 3 * round; 40]);
                if let Some(pair) = &pair {
                    pair.on_device().broadcast(&mut data, 0).await.unwrap();
                    if pair.rank() == 0 {
                        pair.on_device().send(&data, 1, 3).await.unwrap();
                    } else {
                        pair.on_device().recv(&mut data, 0, 3).await.unwrap();
                    }
                }
            }
            comm.barrier().await.unwrap();
        }
        let error = failure(a.barrier().await);
        assert!(matches!(error.failure, Failure::Aborted { .. }), "{error}");
        let error = failure(b.barrier().await);
        assert!(matches!(error.failure, Failure::Aborted { .. }), "{error}");
        drop((held, held_too));
        comm.barrier().await.unwrap();
        drop((late, late_wide));
        loop {
            let usage = comm.device().usage();
            if (usage.live_regions, usage.slots_in_use) == (0, 0) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let [zero, one, two] = ranks;
    tokio::join!(run(zero), run(one), run(two));
}
