//! Messages from and into device memory.

#[path = "../../../nexar-device/tests/broken_adapter/adapter.rs"]
#[allow(clippy::expect_used, dead_code, reason = "it is that of other tests")]
mod broken;

use super::{
    Devices,
    operations::{Numbered, Rank},
    simulated,
};
use crate::common::{memory_world_with, on_all, share};
use broken::{Broken, Lie};
use nexar_collectives::{
    Communicator, DataType, DeviceAdapter, DeviceBuffer, Element, Error, MemorySpace,
    MessageFailure, Received, Source, Tag, TimeLimits, bf16,
    transport::{
        Transport,
        memory::{MemoryNetwork, MemoryTransport},
    },
};
use nexar_device::testing::MemoryDevice;
use std::{
    fmt::Debug,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

type Ranks<D> = Vec<Arc<Communicator<MemoryTransport, D>>>;

/// Bytes up to which messages are sent at once.
const EAGER: usize = 64 << 10;

async fn world<D: DeviceAdapter>(devices: &[Devices<D>]) -> (MemoryNetwork, Ranks<D>) {
    let adapters: Vec<_> = devices.iter().map(|at| at.adapter.clone()).collect();
    let (network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
    (network, share(ranks))
}

async fn simulated_world(
    slots: usize,
) -> (
    Vec<Devices<MemoryDevice>>,
    MemoryNetwork,
    Ranks<MemoryDevice>,
) {
    let devices: Vec<_> = (0..2).map(|rank| simulated(rank, slots, 4096)).collect();
    let (network, ranks) = world(&devices).await;
    (devices, network, ranks)
}

fn values<E: Numbered>(seed: usize, count: usize) -> Vec<E> {
    (0..count).map(|index| E::value(seed, index)).collect()
}

async fn contents<E: Element, D: DeviceAdapter>(buffer: &DeviceBuffer<E, D>) -> Vec<E> {
    let mut host = vec![E::default(); buffer.len()];
    buffer.copy_to(&mut host).await.unwrap();
    host
}

fn cause<R: Debug>(result: nexar_collectives::Result<R>) -> MessageFailure {
    match result {
        Err(Error::Message(error)) => error.cause.clone(),
        other => panic!("{other:?}"),
    }
}

/// From each kind of memory into each, and to the own rank.
async fn one_length<E: Numbered, T: Transport, D: DeviceAdapter>(
    rank: &Rank<'_, T, D>,
    count: usize,
) {
    let (comm, device) = (rank.comm, rank.comm.on_device());
    let (own, other) = (comm.rank(), 1 - comm.rank());
    let (mine, theirs) = (values::<E>(own, count), values::<E>(other, count));
    let rest = values::<E>(9, 3);
    let expected = [&theirs[..], &rest].concat();
    let longer = [&vec![E::default(); count][..], &rest].concat();
    let buffer = rank.buffer(&mine).await;
    let is_right = |received: Received| {
        assert_eq!(
            (received.source, received.dtype, received.count),
            (other, Some(E::DATA_TYPE), count)
        );
    };

    let mut into = rank.buffer(&longer).await;
    let exchanged = device.send_recv(&buffer, other, 1, &mut into, other, 1);
    is_right(exchanged.await.unwrap());
    assert!(
        contents(&into).await == expected,
        "{count}: both on devices"
    );

    let (mut into, mut host) = (rank.buffer(&longer).await, longer.clone());
    let (sent, received) = match own {
        0 => tokio::join!(
            device.send(&buffer, 1, 2),
            device.recv(&mut into, 1, Tag::Any)
        ),
        _ => {
            let sent = async { comm.send(&mine, 0, 2).await };
            tokio::join!(sent, comm.recv(&mut host, Source::Any, 2))
        }
    };
    sent.unwrap();
    is_right(received.unwrap());
    let found = if own == 0 {
        contents(&into).await
    } else {
        host
    };
    assert!(found == expected, "{count}: one on a device");

    let mut into = rank.buffer(&longer).await;
    device.send(&buffer, own, 3).await.unwrap();
    device.recv(&mut into, own, 3).await.unwrap();
    assert!(
        contents(&into).await == [&mine[..], &rest].concat(),
        "{count}: to itself"
    );
}

/// Elements of every size; messages of lengths around those of slots of 64 bytes, and of what is sent at once.
pub(crate) async fn messages_of_every_length<D: DeviceAdapter>(
    devices: impl Fn(usize) -> Devices<D>,
) {
    let devices: Vec<_> = (0..2).map(devices).collect();
    let (_network, ranks) = world(&devices).await;
    on_all(&ranks, |comm| {
        let devices = devices[comm.rank()].clone();
        async move {
            let rank = Rank {
                comm: &comm,
                devices,
            };
            for bytes in [0, 8, 56, 64, 72, 640] {
                one_length::<f64, _, _>(&rank, bytes / 8).await;
                one_length::<bf16, _, _>(&rank, bytes / 2).await;
                one_length::<bool, _, _>(&rank, bytes).await;
            }
            for bytes in [EAGER, EAGER + 4, 2 * EAGER - 4] {
                one_length::<f32, _, _>(&rank, bytes / 4).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn messages_with_one_slot() {
    messages_of_every_length(|rank| simulated(rank, 1, 64)).await;
}

#[tokio::test]
async fn messages_with_a_few_slots() {
    messages_of_every_length(|rank| simulated(rank, 4, 112)).await;
}

#[tokio::test]
async fn messages_with_long_slots() {
    messages_of_every_length(|rank| simulated(rank, 3, 300 << 10)).await;
}

/// On two slots of each rank.
#[tokio::test]
async fn many_messages_at_a_time() {
    let (devices, _network, ranks) = simulated_world(2).await;
    on_all(&ranks, |comm| {
        let devices = devices[comm.rank()].clone();
        async move {
            let rank = Rank {
                comm: &comm,
                devices,
            };
            let (device, other) = (comm.on_device(), 1 - comm.rank());
            let mut started = Vec::new();
            for number in 0..24 {
                let count = 10 + number * 2_500;
                let mine = rank.buffer(&values::<u64>(comm.rank() + number, count)).await;
                let theirs = rank.buffer(&vec![0_u64; count]).await;
                // The ranks begin with different messages.
                let tag = (number as u64 + 7 * comm.rank() as u64) % 24;
                let send = device.start_send(mine, other, number as u64);
                started.push((send, device.start_recv(theirs, other, tag), count, tag as usize));
            }
            for (send, receive, count, tag) in started {
                assert_eq!(send.await.unwrap().len(), count);
                let expected = values::<u64>(other + tag, 10 + tag * 2_500);
                match receive.await {
                    Ok((received, buffer)) => {
                        assert_eq!(received.count, expected.len());
                        assert!(contents(&buffer).await[..received.count] == expected, "{tag}");
                    }
                    // It does not fit.
                    refused => {
                        assert!(expected.len() > count);
                        let failure = cause(refused);
                        assert!(
                            matches!(failure, MessageFailure::Truncated { length, .. } if length == 8 * expected.len()),
                            "{failure:?}"
                        );
                    }
                }
            }
        }
    })
    .await;
}

/// Also where the device takes its time with one of them.
#[tokio::test]
async fn sends_that_are_started_leave_in_their_order() {
    let (devices, _network, ranks) = simulated_world(2).await;
    let adapter = &devices[0].adapter;
    let rank = Rank {
        comm: &*ranks[0],
        devices: devices[0].clone(),
    };
    for counts in [
        [60_000, 1, 5],
        [EAGER, EAGER + 1, 2],
        [3 * EAGER, 7, 60_000],
    ] {
        let stream = adapter.stream();
        let mut buffers = Vec::new();
        for (index, count) in counts.into_iter().enumerate() {
            buffers.push(rank.buffer(&values::<u8>(index, count)).await);
        }
        // SAFETY: the stream exists as long as the adapter.
        let first = unsafe { buffers.remove(0).on_stream(stream) };
        let held = adapter.hold(stream).unwrap();
        let device = ranks[0].on_device();
        let mut sent = vec![device.start_send(first, 1, 5)];
        sent.extend(
            buffers
                .into_iter()
                .map(|buffer| device.start_send(buffer, 1, 5)),
        );
        let on_host = ranks[0].start_send(vec![9_u8; 9], 1, 5);
        // Another tag does not wait.
        let other = ranks[0].start_send(vec![8_u8], 1, 6);
        assert_eq!(ranks[1].recv_vec::<u8>(0, 6, 9).await.unwrap().1, [8]);
        other.await.unwrap();
        drop(held);
        for (index, count) in counts.into_iter().enumerate() {
            let (_, found) = ranks[1].recv_vec::<u8>(0, 5, 4 * EAGER).await.unwrap();
            assert!(found == values::<u8>(index, count), "{counts:?}: {index}");
        }
        assert_eq!(ranks[1].recv_vec::<u8>(0, 5, 9).await.unwrap().1, [9; 9]);
        on_host.await.unwrap();
        for sent in sent {
            sent.await.unwrap();
        }
    }
    nothing_is_left(&devices).await;
}

/// Polls a future at most so often, while others have their turn.
async fn at_most<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let once = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = once {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[tokio::test]
async fn a_receive_dropped_at_any_point_consumes_nothing() {
    let (devices, _network, ranks) = simulated_world(2).await;
    let rank = Rank {
        comm: &*ranks[1],
        devices: devices[1].clone(),
    };
    for count in [100, EAGER / 2, 3 * EAGER] {
        let message = values::<u16>(count, count);
        let mut dropped = 0;
        for polls in 0..40 {
            let sent = {
                let (zero, message) = (Arc::clone(&ranks[0]), message.clone());
                tokio::spawn(async move { zero.send(&message, 1, 5).await })
            };
            let mut buffer = rank.buffer(&vec![0_u16; count]).await;
            let device = ranks[1].on_device();
            match at_most(polls, device.recv(&mut buffer, 0, 5)).await {
                Some(received) => {
                    received.unwrap();
                    assert!(contents(&buffer).await == message);
                }
                None => {
                    dropped += 1;
                    // What is still under way comes first.
                    buffer.copy_from(&vec![7; count]).await.unwrap();
                    assert!(contents(&buffer).await == vec![7; count]);
                    device.recv(&mut buffer, 0, 5).await.unwrap();
                    assert!(contents(&buffer).await == message);
                }
            }
            sent.await.unwrap().unwrap();
            assert_eq!(ranks[1].try_probe(Source::Any, Tag::Any).unwrap(), None);
        }
        assert!(dropped > 0);
    }
    nothing_is_left(&devices).await;
}

/// Others have the slots until there is another receive.
#[tokio::test]
async fn a_send_whose_receive_was_dropped_holds_no_slots() {
    let (devices, _network, ranks) = simulated_world(4).await;
    let rank = Rank {
        comm: &*ranks[0],
        devices: devices[0].clone(),
    };
    let message = values::<u64>(1, 200_000);
    let buffer = rank.buffer(&message).await;
    let before = devices[0].adapter.usage();
    let sent = ranks[0].on_device().start_send(buffer, 1, 5);
    let mut into = vec![0; message.len()];
    let mut dropped = Box::pin(ranks[1].recv(&mut into, 0, 5));
    while devices[0].adapter.usage().copies_out < before.copies_out + 3 {
        assert!(at_most(1, dropped.as_mut()).await.is_none());
    }
    drop(dropped);
    nothing_is_left(&devices).await;
    ranks[1].recv(&mut into, 0, 5).await.unwrap();
    assert!(into == message);
    sent.await.unwrap();
}

#[tokio::test]
async fn a_send_dropped_at_any_point_is_received_as_a_whole_or_not_at_all() {
    let (devices, _network, ranks) = simulated_world(2).await;
    let rank = Rank {
        comm: &*ranks[0],
        devices: devices[0].clone(),
    };
    for count in [100, EAGER / 2, 3 * EAGER] {
        let message = values::<u16>(count, count);
        for polls in 0..40 {
            let received = {
                let one = Arc::clone(&ranks[1]);
                tokio::spawn(async move { one.recv_vec::<u16>(0, Tag::Any, 4 * EAGER).await })
            };
            let mut buffer = rank.buffer(&message).await;
            let sent = at_most(polls, ranks[0].on_device().send(&buffer, 1, 5)).await;
            // The memory is free to be used.
            buffer.copy_from(&vec![7; count]).await.unwrap();
            if sent.is_none() {
                ranks[0].send(&[1_u16], 1, 6).await.unwrap();
            }
            let (about, found) = received.await.unwrap().unwrap();
            if about.tag == 5 {
                assert!(found == message);
                if sent.is_none() {
                    ranks[1].recv(&mut [0_u16], 0, 6).await.unwrap();
                }
            } else {
                assert_eq!((about.tag, found), (6, vec![1]));
            }
            assert_eq!(ranks[1].try_probe(Source::Any, Tag::Any).unwrap(), None);
        }
    }
    nothing_is_left(&devices).await;
}

async fn nothing_is_left(devices: &[Devices<MemoryDevice>]) {
    for devices in devices {
        while devices.adapter.usage().slots_in_use > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Only the message fails, and on this side only.
#[tokio::test]
async fn a_device_that_fails_costs_one_message_and_not_the_group() {
    for count in [200_usize, 20_000] {
        for nth in 0..3 {
            let copies = (8 * count).div_ceil(4096);
            // Those that bring the data to the device are the first.
            let failing = Devices {
                adapter: MemoryDevice::builder()
                    .slots(4)
                    .slot_len(4096)
                    .fail_after((copies + nth.min(copies - 1)) as u64)
                    .build(),
                ..simulated(0, 4, 4096)
            };
            let devices = [failing.clone(), simulated(1, 4, 4096)];
            let (_network, ranks) = world(&devices).await;
            let rank = Rank {
                comm: &*ranks[0],
                devices: failing,
            };
            let (zero, one) = (&ranks[0], &ranks[1]);
            let mut buffer = rank.buffer(&values::<i64>(0, count)).await;
            let mut found = vec![0_i64; count];
            if nth == 0 {
                // The receive gets the next message instead.
                let (sent, received) = tokio::join!(
                    async {
                        let sent = zero.on_device().send(&buffer, 1, 1).await;
                        zero.send(&[3_i64], 1, 2).await.unwrap();
                        sent
                    },
                    one.recv(&mut found, 0, Tag::Any)
                );
                let failure = cause(sent);
                assert!(
                    matches!(&failure, MessageFailure::Device { reason } if reason.contains("told to fail")),
                    "{failure:?}"
                );
                assert_eq!((received.unwrap().tag, found[0]), (2, 3));
            } else {
                let message = values::<i64>(5, count);
                let (sent, received) = tokio::join!(one.send(&message, 0, 1), async {
                    let failure = cause(zero.on_device().recv(&mut buffer, 1, 1).await);
                    assert!(
                        matches!(&failure, MessageFailure::Device { reason } if reason.contains("told to fail")),
                        "{failure:?}"
                    );
                    zero.recv(&mut found, 1, 1).await
                });
                sent.unwrap();
                assert_eq!(received.unwrap().count, count);
                assert!(found == message);
            }
            on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_as_for_slices() {
    let (devices, _network, ranks) = simulated_world(2).await;
    let rank = Rank {
        comm: &*ranks[0],
        devices: devices[0].clone(),
    };
    let mut short = rank.buffer(&[0_u32; 3]).await;
    let mut floats = rank.buffer(&[0_f32; 9]).await;
    let (one, device) = (&ranks[1], ranks[0].on_device());
    for count in [9, EAGER] {
        let message = values::<u32>(1, count);
        let (sent, refused) = tokio::join!(one.send(&message, 0, 1), device.recv(&mut short, 1, 1));
        sent.unwrap();
        let failure = cause(refused);
        assert!(
            matches!(failure, MessageFailure::Truncated { length, capacity: 12, .. } if length == 4 * count),
            "{failure:?}"
        );
        let (sent, refused) =
            tokio::join!(one.send(&message, 0, 1), device.recv(&mut floats, 1, 1));
        sent.unwrap();
        let failure = cause(refused);
        assert!(
            matches!(
                failure,
                MessageFailure::WrongType {
                    sent: Some(DataType::U32),
                    expected: DataType::F32,
                    ..
                }
            ),
            "{failure:?}"
        );
    }
    let nobody = device.send(&short, 2, 0).await;
    let text = nobody.unwrap_err().to_string();
    assert!(text.contains("send") && text.contains("rank 2"), "{text}");
    let neither = device.send_recv(&floats, 2, 0, &mut short, 1, 0).await;
    assert!(
        matches!(
            neither,
            Err(Error::InvalidArgument {
                operation: "send_recv",
                ..
            })
        ),
        "{neither:?}"
    );
}

/// An error, or what was sent.
#[tokio::test]
async fn a_queue_of_another_length_costs_the_message_at_most() {
    let space = MemorySpace::Device(0);
    for more in [-1, -1000, 1000] {
        let liar = Broken::new(MemoryDevice::new(), Lie::OtherLength(more));
        let honest = Broken::new(MemoryDevice::new(), Lie::None);
        let (_network, _, ranks) = memory_world_with(&[liar, honest], TimeLimits::default()).await;
        let [zero, one] = &ranks[..] else { panic!() };
        for count in [1000, 100_000] {
            let message = values::<u8>(1, count);
            let mut buffer = DeviceBuffer::<u8, _>::zeroed(zero.device(), space, count).unwrap();
            let (sent, received) = tokio::join!(one.send(&message, 0, 1), async {
                let received = zero.on_device().recv(&mut buffer, 1, 1).await;
                if received.is_err() {
                    zero.recv(&mut vec![0_u8; count], 1, 1).await.unwrap();
                }
                received
            });
            sent.unwrap();
            match received {
                Ok(_) => {
                    let mut found = vec![0; count];
                    let device = &zero.device().device;
                    device.read(buffer.address(), &mut found).unwrap();
                    assert!(found == message, "{more}, {count}");
                }
                failed => assert!(matches!(cause(failed), MessageFailure::Device { .. })),
            }

            zero.device()
                .device
                .write(buffer.address(), &message)
                .unwrap();
            let mut found = vec![0; count];
            let (sent, received) = tokio::join!(
                async {
                    let sent = zero.on_device().send(&buffer, 1, 1).await;
                    if sent.is_err() {
                        zero.send(&message, 1, 1).await.unwrap();
                    }
                    sent
                },
                one.recv(&mut found, 0, 1)
            );
            received.unwrap();
            assert!(found == message, "{more}, {count}");
            if sent.is_err() {
                assert!(matches!(cause(sent), MessageFailure::Device { .. }));
            }
        }
    }
}
