//! Messages between two ranks: order, sizes, bounds, and futures that are dropped.

use crate::{
    Error,
    messaging::{CREDIT, EAGER_LIMIT, MessageFailure, Messenger, SEND_QUEUE, Source, Tag},
    testing::{
        End, Harness,
        group::{Rank, group},
        tools::{Pattern, at_most, unless_stuck},
    },
    transport::Transport,
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// The longest small message, and a length of large ones.
const SMALL: usize = EAGER_LIMIT;
const LARGE: usize = 1 << 20;

/// Sends to rank 1 that wait, one message of a tag of its own each.
fn sends<T: Transport>(
    from: &Arc<Messenger<T>>,
    messages: impl IntoIterator<Item = (u64, Bytes)>,
) -> JoinSet<crate::Result<()>> {
    let send = |(tag, message)| {
        let from = Arc::clone(from);
        async move { from.send(1, tag, message).await }
    };
    messages.into_iter().map(send).collect()
}

async fn all_done(mut sends: JoinSet<crate::Result<()>>) {
    while let Some(sent) = sends.join_next().await {
        sent.expect("the task ends").expect("send");
    }
}

/// One message from rank 0 to rank 1.
async fn exchange<T: Transport>(ranks: &[Rank<T>; 2], tag: u64, message: &Bytes) {
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    let (sent, received) = tokio::join!(
        zero.send(1, tag, message.clone()),
        one.recv(0, tag, message.len())
    );
    sent.expect("send");
    let (received, bytes) = received.expect("receive");
    assert_eq!(
        (received.source, received.tag, received.length),
        (0, tag, message.len())
    );
    assert!(bytes == *message, "wrong content in {} bytes", bytes.len());
}

/// Waits until so many messages have come that no receive has taken: nothing else tells.
async fn until_unexpected<T: Transport>(messenger: &Messenger<T>, messages: usize) {
    while messenger.stats().unexpected_messages != messages {
        assert_eq!(messenger.group().failure(), None);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn assert_nothing_left<T: Transport>(rank: &Rank<T>) {
    let stats = rank.messenger.stats();
    assert_eq!((stats.unexpected_messages, stats.unexpected_bytes), (0, 0));
    assert_eq!((stats.operations, stats.incoming_transfers), (0, 0));
}

pub async fn order_per_source_and_tag<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    const LENGTHS: [usize; 8] = [70_000, 1, 0, SMALL, SMALL + 1, 2, 200_000, 3];
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    // Rank 1 sends to itself with the same tags; neither source mixes with the other.
    let patterns: Vec<Pattern> = (0..96).map(Pattern::new).collect();
    let message = |source: usize, tag: u64, number: usize| {
        let pattern = &patterns[source * 48 + tag as usize * 16 + number];
        pattern.message(LENGTHS[number % LENGTHS.len()])
    };
    let send = |from: &Arc<Messenger<_>>, source: usize| {
        let all = (0..16).flat_map(|number| (0..3).map(move |tag| (tag, number)));
        let all = all.map(|(tag, number)| (tag, message(source, tag, number)));
        let (from, all) = (Arc::clone(from), all.collect::<Vec<_>>());
        async move {
            let mut waiting = JoinSet::new();
            for (tag, message) in all {
                // The order is that of the first polls.
                let from = Arc::clone(&from);
                let mut send = Box::pin(async move { from.send(1, tag, message).await });
                if at_most(1, send.as_mut()).await.is_none() {
                    waiting.spawn(send);
                }
            }
            all_done(waiting).await;
        }
    };
    let receive = async {
        for tag in [2, 0, 1] {
            for number in 0..16 {
                for source in [1, 0] {
                    let (received, bytes) = one.recv(source, tag, LARGE).await.expect("receive");
                    assert_eq!((received.source, received.tag), (source, tag));
                    let expected = message(source, tag, number);
                    assert!(
                        bytes == expected,
                        "source {source}, tag {tag}, message {number}: {} bytes instead of {}",
                        bytes.len(),
                        expected.len()
                    );
                }
            }
        }
    };
    tokio::join!(send(zero, 0), send(one, 1), receive);
    ranks.iter().for_each(assert_nothing_left);
}

pub async fn a_stalled_tag_delays_no_other<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    const STALLED: usize = 200;
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    let mut kept = 0;
    for length in [SMALL, LARGE] {
        let message = Pattern::new(41).message(length);
        let mut stalled = sends(zero, vec![(1, message); STALLED]);
        until_unexpected(one, kept + STALLED).await;
        assert!(one.stats().unexpected_bytes <= CREDIT);
        for other in [0, 10, SMALL, LARGE] {
            exchange(&ranks, 2, &Pattern::new(42).message(other)).await;
        }
        // Those that the receiver keeps are sent; the others are withdrawn.
        kept = one.stats().unexpected_bytes / SMALL;
        stalled.abort_all();
        while stalled.join_next().await.is_some() {}
        until_unexpected(one, kept).await;
    }
    assert!(kept > 0, "none of the small messages went ahead");
}

pub async fn a_message_of_no_bytes<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    exchange(&ranks, 3, &Bytes::new()).await;
    // Before its receive, among others, and into a buffer that has no room.
    for message in ["", "x", ""] {
        zero.send(1, 4, message.into()).await.expect("send");
    }
    let received = one.recv_into(0, 4, &mut []).await.expect("receive");
    assert_eq!((received.tag, received.length), (4, 0));
    assert_eq!(one.recv(0, 4, 1).await.expect("receive").1, b"x");
    assert_eq!(one.recv(0, 4, 1).await.expect("receive").1, b"");
    ranks.iter().for_each(assert_nothing_left);
}

pub async fn a_message_of_one_byte_more_than_a_window<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let length = harness.limits().stream_window + 1;
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    let message = Pattern::new(43).message(length);
    let mut buffer = vec![0; length + 1];
    buffer[length] = 99;
    let (sent, received) = tokio::join!(
        zero.send_from(1, 5, &message),
        one.recv_into(0, 5, &mut buffer)
    );
    sent.expect("send");
    assert_eq!(received.expect("receive").length, length);
    assert!(buffer[..length] == message, "wrong content");
    assert_eq!(buffer[length], 99, "a byte beyond the message was written");
}

pub async fn a_message_of_256_mebibytes<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    const LENGTH: usize = 256 << 20;
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    // Neither end holds it: the sender has one piece over and over, the receiver looks at what comes.
    let pattern = Pattern::new(44);
    let pieces = pattern.pieces(LENGTH);
    let mut at = 0;
    let (sent, received) = tokio::join!(
        zero.send_parts(1, 6, &pieces),
        one.recv_with(0, 6, |chunk| {
            pattern.check(at, chunk);
            at += chunk.len();
        })
    );
    sent.expect("send");
    assert_eq!(received.expect("receive").length, LENGTH);
    assert_eq!(at, LENGTH);
}

pub async fn messages_both_ways_at_once<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let length = 4 * harness.limits().stream_window + 12_345;
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    let [there, back] = [45, 46].map(|stream| Pattern::new(stream).message(length));
    let (there_sent, back_sent, at_one, at_zero) = tokio::join!(
        zero.send(1, 7, there.clone()),
        one.send(0, 7, back.clone()),
        one.recv(0, 7, length),
        zero.recv(1, 7, length),
    );
    there_sent.and(back_sent).expect("send");
    assert!(at_one.expect("receive").1 == there, "wrong content");
    assert!(at_zero.expect("receive").1 == back, "wrong content");
}

pub async fn back_pressure_bounds_messages<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    const LARGE_ONES: usize = 50;
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    let (small, large) = (Pattern::new(47), Pattern::new(48));
    let (small, large) = (small.message(SMALL), large.message(LARGE));
    let mut sent = 0;
    while let Some(result) = unless_stuck(zero.send(1, 8, small.clone())).await {
        result.expect("send");
        sent += 1;
        assert!(
            sent * SMALL <= CREDIT,
            "{sent} messages that nobody receives"
        );
    }
    // Large ones stay at their sender.
    let waiting = sends(zero, vec![(9, large.clone()); LARGE_ONES]);
    until_unexpected(one, sent + LARGE_ONES).await;
    let stats = one.stats();
    assert_eq!(
        (stats.unexpected_bytes, stats.incoming_transfers),
        (sent * SMALL, 0)
    );
    assert!(zero.stats().queued_bytes <= SEND_QUEUE + SMALL);
    for _ in 0..LARGE_ONES {
        let (_, bytes) = one.recv(0, 9, LARGE).await.expect("receive");
        assert!(bytes == large, "wrong content");
    }
    all_done(waiting).await;
    for _ in 0..sent {
        let (_, bytes) = one.recv(0, 8, SMALL).await.expect("receive");
        assert!(bytes == small, "wrong content");
    }
    ranks.iter().for_each(assert_nothing_left);
}

/// How often futures are polled before they are dropped.
const POLLS: [usize; 9] = [0, 1, 2, 3, 5, 10, 30, 100, 1000];

pub async fn dropped_sends_leave_the_group_usable<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    for length in [10, SMALL + 1, 4 * LARGE] {
        let [first, second] = [49, 50].map(|stream| Pattern::new(stream).message(length));
        for polls in POLLS {
            let send = async {
                let done = at_most(polls, zero.send(1, 10, first.clone())).await;
                zero.send(1, 10, second.clone()).await.expect("send");
                done.is_some()
            };
            let receive = async {
                let (_, bytes) = one.recv(0, 10, length).await.expect("receive");
                let whole = bytes == first;
                if whole {
                    let (_, bytes) = one.recv(0, 10, length).await.expect("receive");
                    assert!(bytes == second, "wrong content");
                } else {
                    assert!(bytes == second, "wrong content");
                }
                whole
            };
            let (done, whole) = tokio::join!(send, receive);
            assert!(whole || !done, "a message whose send was done is lost");
        }
    }
    ranks.iter().for_each(assert_nothing_left);
}

pub async fn dropped_receives_consume_nothing<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    for length in [10, SMALL + 1, 4 * LARGE] {
        let message = Pattern::new(51).message(length);
        let mut buffer = vec![0; length];
        for polls in POLLS {
            let receive = async {
                let first = at_most(polls, one.recv_into(0, 11, &mut buffer)).await;
                match first {
                    Some(received) => assert_eq!(received.expect("receive").length, length),
                    None => {
                        let (_, bytes) = one.recv(0, 11, length).await.expect("receive");
                        buffer.copy_from_slice(&bytes);
                    }
                }
                assert!(buffer == message, "wrong content");
            };
            let (sent, ()) = tokio::join!(zero.send(1, 11, message.clone()), receive);
            sent.expect("send");
        }
    }
    ranks.iter().for_each(assert_nothing_left);
}

pub async fn late_and_duplicate_tags<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    let message = |tag: u64| Pattern::new(tag).message(100 + tag as usize);

    // Receives long after the messages, in another order.
    for tag in 20..30 {
        zero.send(1, tag, message(tag)).await.expect("send");
    }
    assert_eq!(one.probe(0, 29).await.expect("probe").length, 129);
    for tag in (20..30).rev() {
        assert_eq!(
            one.recv(0, tag, 200).await.expect("receive").1,
            message(tag)
        );
    }

    // Receives before the message; of those with one tag, the first gets it. The others get the next ones.
    let before = async {
        let receives = tokio::join!(
            one.recv(0, 31, 200),
            one.recv(Source::Any, 31, 200),
            one.recv(0, Tag::Any, 200),
            one.recv(0, 31, 200),
        );
        let received = [receives.0, receives.1, receives.2, receives.3];
        received.map(|received| received.expect("receive").1)
    };
    let send = async {
        for stream in 60..64 {
            zero.send(1, 31, message(stream)).await.expect("send");
        }
    };
    let (received, ()) = tokio::join!(before, send);
    assert_eq!(received.map(Bytes::from), [60, 61, 62, 63].map(message));

    // A receive for which the message is too long uses it up, and not the next one of its tag.
    zero.send(1, 32, message(70)).await.expect("send");
    zero.send(1, 32, message(71)).await.expect("send");
    match one.recv(0, 32, 169).await.expect_err("it is too long") {
        Error::Message(error) => assert!(
            matches!(
                error.cause,
                MessageFailure::Truncated {
                    dtype: None,
                    source: 0,
                    tag: 32,
                    length: 170,
                    capacity: 169
                }
            ),
            "{error}"
        ),
        error => panic!("{error}"),
    }
    assert_eq!(one.recv(0, 32, 171).await.expect("receive").1, message(71));

    // The tag of a message that was received is free, also for a large one.
    for length in [5, LARGE, 0, SMALL + 1] {
        exchange(&ranks, 32, &Pattern::new(72).message(length)).await;
    }
    ranks.iter().for_each(assert_nothing_left);
}

pub async fn more_large_messages_than_streams<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let count = (harness.limits().max_streams + 50).min(1100);
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = ranks.each_ref().map(|rank| &rank.messenger);
    let bodies: Vec<Bytes> = (0..16)
        .map(|stream| Pattern::new(stream).message(SMALL + 1))
        .collect();
    let body = |tag: u64| bodies[tag as usize % bodies.len()].clone();
    let tags = 0..count as u64;
    let sends = sends(zero, tags.clone().map(|tag| (tag, body(tag))));
    until_unexpected(one, count).await;
    for tag in tags.rev() {
        let (_, bytes) = one.recv(0, tag, SMALL + 1).await.expect("receive");
        assert!(bytes == body(tag), "wrong content in tag {tag}");
    }
    all_done(sends).await;
    ranks.iter().for_each(assert_nothing_left);
}
