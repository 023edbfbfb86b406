//! Messages of elements.

use crate::world::{World, at_most, body, settle, start};
use nexar_core::{
    DataType, Element, Error, Failure, bf16, f16,
    messaging::{EAGER_LIMIT, MessageFailure, Messenger, Received, Source, Tag},
    transport::{SendStream, memory::MemoryTransport},
    wire::{LaneKind, message::Frame},
};
use std::{fmt::Debug, sync::Arc};

type Rank = Messenger<MemoryTransport>;

/// Values that say which message they are of, whatever their type.
fn values<E: Element>(seed: usize, count: usize, make: fn(u64) -> E) -> Vec<E> {
    let numbers = body(seed, count * 8);
    let numbers = numbers.as_chunks::<8>().0;
    numbers
        .iter()
        .map(|bytes| make(u64::from_le_bytes(*bytes)))
        .collect()
}

/// Bit for bit, since a NaN equals nothing.
fn assert_same<E: Element>(left: &[E], right: &[E]) {
    assert!(E::as_bytes(left) == E::as_bytes(right), "{}", E::DATA_TYPE);
}

/// What is wrong with one message.
fn cause<R: Debug>(result: nexar_core::Result<R>) -> MessageFailure {
    match result.unwrap_err() {
        Error::Message(error) => error.cause,
        error => panic!("{error}"),
    }
}

fn about<E: Element>(received: &Received) -> (usize, u64, Option<DataType>, usize, usize) {
    assert_eq!(received.length, received.count * E::DATA_TYPE.size());
    let Received {
        source,
        tag,
        dtype,
        count,
        length,
        ..
    } = *received;
    (source, tag, dtype, count, length)
}

/// One message in every way of sending and receiving it.
async fn arrives<E: Element>(
    world: &World,
    from: usize,
    to: usize,
    count: usize,
    make: fn(u64) -> E,
) {
    let (sender, receiver) = (&world.ranks[from], &world.ranks[to]);
    let size = E::DATA_TYPE.size();
    let expected = values(count + from, count, make);
    let other = values(count + from + 1, 1, make)[0];
    let info = |tag| (from, tag, Some(E::DATA_TYPE), count, count * size);

    let mut buffer = vec![other; count + 3];
    let (sent, received) = tokio::join!(
        sender.send_elements(to, 1, &expected),
        receiver.recv_elements(from, 1, &mut buffer)
    );
    sent.unwrap();
    assert_eq!(about::<E>(&received.unwrap()), info(1));
    assert_same(&buffer[..count], &expected);
    assert_same(&buffer[count..], &[other; 3]);

    let (left, right) = expected.split_at(count / 3);
    let parts = [left, &[], right];
    let receive = async {
        let found = receiver.probe(Source::Any, 2).await?;
        assert_eq!(about::<E>(&found), info(2));
        receiver
            .recv_vec::<E>(Source::Any, Tag::Any, found.count)
            .await
    };
    let (sent, received) = tokio::join!(sender.send_element_parts(to, 2, &parts), receive);
    sent.unwrap();
    let (received, vector) = received.unwrap();
    assert_eq!(about::<E>(&received), info(2));
    assert_same(&vector, &expected);

    let mut pieces = [
        vec![other; count / 2],
        vec![],
        vec![other; count - count / 2 + 1],
    ];
    let [a, b, c] = &mut pieces;
    let mut into: [&mut [E]; 3] = [a, b, c];
    let (sent, received) = tokio::join!(
        sender.send_elements(to, u64::MAX, &expected),
        receiver.recv_element_parts(from, Tag::Any, &mut into)
    );
    sent.unwrap();
    assert_eq!(about::<E>(&received.unwrap()), info(u64::MAX));
    let pieces = pieces.concat();
    assert_same(&pieces[..count], &expected);
    assert_same(&pieces[count..], &[other]);

    // As bytes.
    let (sent, received) = tokio::join!(
        sender.send_elements(to, 3, &expected),
        receiver.recv(from, 3, count * size)
    );
    sent.unwrap();
    let (received, bytes) = received.unwrap();
    assert_eq!(about::<E>(&received), info(3));
    assert!(bytes == E::as_bytes(&expected));
}

#[tokio::test]
async fn every_type_arrives_in_every_way() {
    for size in [1, 2, 3, 5] {
        let world = World::new(size).await;
        for (from, to) in [(0, size - 1), (size - 1, 0)] {
            for count in [0, 1, 1000, EAGER_LIMIT / 8 + 1, EAGER_LIMIT * 2 + 7] {
                arrives(&world, from, to, count, |n| f32::from_bits(n as u32)).await;
                arrives(&world, from, to, count, f64::from_bits).await;
                arrives(&world, from, to, count, |n| f16::from_bits(n as u16)).await;
                arrives(&world, from, to, count, |n| bf16::from_bits(n as u16)).await;
                arrives(&world, from, to, count, |n| n as i8).await;
                arrives(&world, from, to, count, |n| n as i16).await;
                arrives(&world, from, to, count, |n| n as i32).await;
                arrives(&world, from, to, count, |n| n as i64).await;
                arrives(&world, from, to, count, |n| n as u8).await;
                arrives(&world, from, to, count, |n| n as u16).await;
                arrives(&world, from, to, count, |n| n as u32).await;
                arrives(&world, from, to, count, |n| n).await;
                arrives(&world, from, to, count, |n| n % 3 == 0).await;
            }
        }
        for rank in &world.ranks {
            let stats = rank.stats();
            assert_eq!((stats.unexpected_messages, stats.operations), (0, 0));
        }
    }
}

#[tokio::test]
async fn a_message_of_another_type_is_discarded_and_the_next_one_is_intact() {
    let world = World::new(2).await;
    let zero = &world.ranks[0];
    for to in [0, 1] {
        let receiver = &world.ranks[to];
        for count in [0, 5, 50_000] {
            let expected = values(count, count, |n| n as i32);
            let wrong = |sent| MessageFailure::WrongType {
                source: 0,
                tag: 6,
                sent,
                expected: DataType::I32,
            };
            let send = async {
                let floats = values(9, count, |n| n as f32);
                zero.send_elements(to, 6, &floats).await.unwrap();
                zero.send_from(to, 6, &body(1, count)).await.unwrap();
                zero.send_elements(to, 6, &body(2, count)).await.unwrap();
                zero.send_elements(to, 6, &expected).await.unwrap();
            };
            let receive = async {
                let mut buffer = vec![-7; count];
                // Its type is what is wrong with it, even if it is also too long.
                let first = receiver.recv_elements(0, 6, &mut buffer[count / 2..]).await;
                let text = first.as_ref().unwrap_err().to_string();
                assert!(
                    text.contains("is of f32, but the receive is of i32"),
                    "{text}"
                );
                assert_eq!(cause(first), wrong(Some(DataType::F32)));
                let second = receiver.recv_vec::<i32>(Source::Any, Tag::Any, count).await;
                assert_eq!(cause(second), wrong(None));
                let mut parts = [&mut buffer[..]];
                let third = receiver.recv_element_parts(0, 6, &mut parts).await;
                assert_eq!(cause(third), wrong(Some(DataType::U8)));
                assert!(buffer.iter().all(|value| *value == -7));
                receiver.recv_elements(0, 6, &mut buffer).await.unwrap();
                assert_eq!(buffer, expected);
            };
            tokio::join!(send, receive);
            assert_eq!(receiver.stats().unexpected_messages, 0);
        }
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_says_what_it_needs() {
    let world = World::new(2).await;
    let zero = &world.ranks[0];
    for to in [0, 1] {
        let receiver = &world.ranks[to];
        for (first, second) in [(100, 60), (100_000, 60), (100, 70_000), (70_000, 100_000)] {
            let send = async {
                let values = |count| values(count, count, |n| n);
                zero.send_elements(to, 4, &values(first)).await.unwrap();
                zero.send_elements(to, 4, &values(first)).await.unwrap();
                zero.send_elements(to, 4, &values(second)).await.unwrap();
            };
            let receive = async {
                let room = first.min(second) - 1;
                let mut buffer = vec![0xaa_u64; room];
                let refused = receiver.recv_elements(0, 4, &mut buffer).await;
                let text = refused.as_ref().unwrap_err().to_string();
                let says = format!(
                    "has {first} elements of u64 ({} bytes), more than the {room} that",
                    first * 8
                );
                assert!(text.contains(&says), "{text}");
                let expected = MessageFailure::Truncated {
                    source: 0,
                    tag: 4,
                    dtype: Some(DataType::U64),
                    length: first * 8,
                    capacity: room * 8,
                };
                assert_eq!(cause(refused), expected);
                assert!(buffer.iter().all(|value| *value == 0xaa));
                assert_eq!(cause(receiver.recv_vec::<u64>(0, 4, room).await), expected);
                let (_, vector) = receiver.recv_vec::<u64>(0, 4, second).await.unwrap();
                assert!(vector == values(second, second, |n| n));
            };
            tokio::join!(send, receive);
        }
    }
}

#[tokio::test]
async fn ranks_exchange_in_a_circle() {
    for size in [1, 2, 3, 5] {
        let world = World::new(size).await;
        for count in [0, 10, 1 << 20] {
            let exchange = |rank: usize| {
                let messenger = world.ranks[rank].clone();
                let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
                async move {
                    let outgoing = values(rank, count, |n| n as f32);
                    let mut incoming = vec![0.0; count];
                    let received = messenger
                        .send_recv((next, 3), &outgoing, (previous, 3), &mut incoming)
                        .await
                        .unwrap();
                    let bytes = count * 4;
                    let expected = (previous, 3, Some(DataType::F32), count, bytes);
                    assert_eq!(about::<f32>(&received), expected);
                    assert_same(&incoming, &values(previous, count, |n| n as f32));
                }
            };
            let ranks: Vec<_> = (0..size).map(|rank| tokio::spawn(exchange(rank))).collect();
            for rank in ranks {
                rank.await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn an_exchange_that_fails_on_one_side_sends_all_the_same() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    for count in [10, 100_000] {
        let outgoing = values(count, count, |n| n as u16);
        let (mut short, mut long) = (vec![0_u16; count - 1], vec![0_u16; count]);
        let (refused, received) = tokio::join!(
            zero.send_recv((1, 1), &outgoing, (1, 2), &mut short),
            one.send_recv((0, 2), &outgoing, (0, 1), &mut long),
        );
        assert!(matches!(
            cause(refused),
            MessageFailure::Truncated {
                source: 1,
                tag: 2,
                ..
            }
        ));
        received.unwrap();
        assert_eq!(long, outgoing);
    }
    for (to, source) in [(2, 1), (1, 2)] {
        let refused = zero
            .send_recv((to, 1), &[1.0], (source, 1), &mut [0.0])
            .await;
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
    assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
}

#[tokio::test]
async fn a_receive_dropped_in_the_middle_is_made_up_for() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let (mut whole, mut again) = (0, 0);
    for count in [3, 9000, 600_000] {
        for polls in 0..30 {
            let expected = values(count + polls, count, |n| n as i64);
            let send = {
                let (zero, values) = (zero.clone(), expected.clone());
                start(async move { zero.send_elements(1, 1, &values).await.unwrap() }).await
            };
            let mut buffer = vec![0_i64; count];
            if at_most(polls, one.recv_elements(0, 1, &mut buffer))
                .await
                .is_some()
            {
                whole += 1;
                assert!(buffer == expected);
            } else if let Some(received) = at_most(polls, one.recv_vec::<i64>(0, 1, count)).await {
                whole += 1;
                assert!(received.unwrap().1 == expected);
            } else {
                again += 1;
                let (first, second) = buffer.split_at_mut(count / 2);
                let mut parts = [first, second];
                one.recv_element_parts(0, 1, &mut parts).await.unwrap();
                assert!(buffer == expected);
            }
            send.await.unwrap();
            assert_eq!(one.try_probe(Source::Any, Tag::Any).unwrap(), None);
        }
    }
    assert!(whole > 0 && again > 0, "{whole} {again}");
}

/// A group of two whose first rank writes its lanes by hand.
async fn liar(world: &World) -> (nexar_core::mesh::Group<MemoryTransport>, Rank) {
    let members = vec![0, 1];
    let bad = world.meshes[0].group(9, members.clone()).unwrap();
    let good = world.meshes[1].group(9, members).unwrap();
    (bad, Messenger::new(Arc::new(good)))
}

/// Bytes that are no bools.
fn garbage(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 256) as u8).collect()
}

fn are_valid(bools: &[bool]) -> bool {
    bool::as_bytes(bools).iter().all(|byte| *byte <= 1)
}

#[tokio::test]
async fn a_bool_is_0_or_1_whatever_a_peer_sends() {
    let world = World::new(2).await;
    let (bad, good) = liar(&world).await;
    let mut lane = bad.open_lane(1, LaneKind::Message, 0).await.unwrap();
    let dtype = Some(DataType::Bool);
    let expected: Vec<bool> = garbage(1000).iter().map(|byte| *byte != 0).collect();
    for message in 0..2 {
        let eager = Frame::Eager {
            dtype,
            tag: 1,
            length: 1000,
            message,
        };
        let bytes = [&eager.encode()[..], &garbage(1000)].concat();
        lane.write_all(bytes.into()).await.unwrap();
    }
    let mut buffer = [true; 1000];
    good.recv_elements(0, 1, &mut buffer).await.unwrap();
    assert!(are_valid(&buffer) && buffer[..] == expected);
    let (_, vector) = good.recv_vec::<bool>(0, 1, 1000).await.unwrap();
    assert!(are_valid(&vector) && vector == expected);

    // A half of a large one, of which the receive is dropped, and then a quarter before the sender dies.
    let length = 4 << 20;
    let announce = Frame::Announce {
        dtype,
        tag: 2,
        length: length as u64,
        message: 2,
    };
    let announced = announce.encode().to_vec();
    lane.write_all(announced.into()).await.unwrap();
    let mut buffer = vec![false; length];
    for (transfer, part) in [(0, length / 2), (1, length / 4)] {
        buffer.fill(false);
        let mut receive = Box::pin(good.recv_elements(0, 2, &mut buffer));
        assert!(at_most(10, receive.as_mut()).await.is_none());
        let mut bulk = bad.open_lane(1, LaneKind::Bulk, transfer).await.unwrap();
        let writing = bulk.write_all(garbage(part).into());
        let (received, written) = tokio::join!(at_most(2000, receive.as_mut()), writing);
        assert!(received.is_none());
        written.unwrap();
        if transfer == 1 {
            bulk.finish().unwrap();
            let Error::Operation(error) = receive.as_mut().await.unwrap_err() else {
                panic!()
            };
            assert!(matches!(error.failure, Failure::Protocol { rank: 0, .. }));
        }
        drop(receive);
        assert!(are_valid(&buffer));
        let came = buffer.iter().filter(|value| **value).count();
        assert_eq!(came, part - part.div_ceil(256));
    }
}

#[tokio::test]
async fn a_length_that_is_not_a_whole_number_of_elements_breaks_the_protocol() {
    let (tag, message) = (1, 0);
    let length = 1021;
    for dtype in DataType::ALL.into_iter().filter(|dtype| dtype.size() > 1) {
        let dtype = Some(dtype);
        let frames = [
            Frame::Eager {
                dtype,
                tag,
                length,
                message,
            },
            Frame::Announce {
                dtype,
                tag,
                length,
                message,
            },
        ];
        for frame in frames {
            let world = World::new(2).await;
            let (bad, good) = liar(&world).await;
            let send = async {
                let mut lane = bad.open_lane(1, LaneKind::Message, 0).await.unwrap();
                let _ = lane.write_all(frame.encode().to_vec().into()).await;
                settle().await;
            };
            let (received, ()) = tokio::join!(good.recv_vec::<f64>(0, 1, 1000), send);
            let Error::Operation(error) = received.unwrap_err() else {
                panic!()
            };
            match error.failure {
                Failure::Protocol { rank: 0, what } => {
                    assert!(what.contains("length of a typed message"), "{what}");
                }
                failure => panic!("{failure}"),
            }
        }
    }
}

#[tokio::test]
async fn a_message_of_more_than_4_gib_is_never_in_memory() {
    let world = World::new(2).await;
    let [zero, one] = &world.ranks[..] else {
        panic!()
    };
    let slice = values(3, 8 << 20, |n| n);
    let bytes = u64::as_bytes(&slice);
    let times = 65;
    let length = times * bytes.len();
    assert!(length > 4 << 30);
    let mut seen = 0;
    let check = |mut chunk: &[u8]| {
        while !chunk.is_empty() {
            let at = seen % bytes.len();
            let (now, later) = chunk.split_at(chunk.len().min(bytes.len() - at));
            assert!(now == &bytes[at..at + now.len()], "{seen}");
            seen += now.len();
            chunk = later;
        }
    };
    let parts = vec![&slice[..]; times];
    let (sent, received) = tokio::join!(
        zero.send_element_parts(1, 1, &parts),
        one.recv_with(0, 1, check)
    );
    sent.unwrap();
    let received = received.unwrap();
    assert_eq!((received.length, received.count), (length, length / 8));
    assert_eq!(seen, length);
}
