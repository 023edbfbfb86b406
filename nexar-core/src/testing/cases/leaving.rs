//! How ranks leave, die and are refused.

use crate::{
    Error, Failure, JoinError, RefuseReason,
    messaging::{CREDIT, EAGER_LIMIT, MESSAGE_COST, Messenger},
    testing::{
        End, Harness,
        group::{failure, group, group_with_raw, join_by, leave_group, patient},
        tools::Pattern,
    },
    transport::{Connection, Transport},
    wire::control::Control,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

pub async fn a_clean_leave_delivers_everything<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    const MESSAGES: u64 = 1000;
    /// On a second communicator, where they are received only after the sender has gone. They need no
    /// receive to be sent.
    const LAST: u64 = 60;
    const { assert!(LAST as usize * (EAGER_LIMIT + MESSAGE_COST) <= CREDIT) };
    let [zero, one] = group(&*harness, a, b).await;
    let last = [&zero, &one].map(|rank| rank.communicator(2));
    let patterns: Vec<Pattern> = (0..10).map(Pattern::new).collect();
    let message = |number: u64| {
        let pattern = &patterns[number as usize % patterns.len()];
        pattern.piece(number as usize, EAGER_LIMIT)
    };
    let [from, to] = last;
    let (left, has_left) = oneshot::channel();
    let send = async {
        for number in 0..MESSAGES {
            let sent = zero.messenger.send(1, number % 3, message(number));
            sent.await.expect("send");
        }
        for number in 0..LAST {
            from.send(1, 0, message(number)).await.expect("send");
        }
        leave_group(from).await.expect("everything arrives");
        zero.leave().await.expect("a clean leave");
        left.send(()).expect("the receiver waits");
    };
    let receive = async {
        for number in 0..MESSAGES {
            receive(&one.messenger, number % 3, &message(number)).await;
        }
        has_left.await.expect("the sender leaves");
        for number in 0..LAST {
            receive(&to, 0, &message(number)).await;
        }
        let end = failure(to.recv(0, 0, 1).await);
        assert_eq!(end, Failure::PeerLeft { rank: 0 });
    };
    tokio::join!(send, receive);
    leave_group(to).await.expect("nobody is left");
    one.leave().await.expect("nobody is left");
}

async fn receive<T: Transport>(messenger: &Messenger<T>, tag: u64, expected: &[u8]) {
    let received = messenger.recv(0, tag, expected.len()).await;
    let (_, bytes) = received.expect("receive");
    assert!(bytes == expected, "wrong content in tag {tag}");
}

pub async fn a_leave_says_what_was_not_confirmed<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let (zero, raw) = group_with_raw::<H>(a, b, patient(&*harness)).await;
    zero.messenger
        .send(1, 1, "anybody there?".into())
        .await
        .expect("send");
    // Its transport acknowledges everything, but the rank itself does not answer.
    match zero.leave().await.expect_err("nobody confirms") {
        Error::NotConfirmed { ranks } => assert_eq!(ranks, [1]),
        error => panic!("{error}"),
    }
    raw.new.connection.closed().await;
}

pub async fn a_silent_rank_is_lost<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let limits = patient(&*harness).with_detection(Duration::from_secs(1));
    let (zero, mut raw) = group_with_raw::<H>(a, b, limits).await;
    // Who has never said anything may still be joining.
    raw.says(&Control::Heartbeat).await;
    let large = Pattern::new(81).message(1 << 20);
    let (sent, received) = tokio::join!(
        zero.messenger.send(1, 1, large),
        zero.messenger.recv(1, 2, 10)
    );
    for failure in [failure(sent), failure(received)] {
        match failure {
            Failure::PeerLost { rank: 1, reason } => {
                assert!(reason.starts_with("nothing heard from it"), "{reason}");
            }
            failure => panic!("{failure}"),
        }
    }
    raw.new.connection.closed().await;
}

pub async fn a_rank_whose_connection_ends_is_lost<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let (zero, raw) = group_with_raw::<H>(a, b, patient(&*harness)).await;
    let close = async { raw.new.connection.close(77, "out of memory") };
    let (received, ()) = tokio::join!(zero.messenger.recv(1, 2, 10), close);
    match failure(received) {
        Failure::PeerLost { rank: 1, reason } => {
            assert!(reason.contains("code 77: out of memory"), "{reason}")
        }
        failure => panic!("{failure}"),
    }
}

pub async fn a_process_that_comes_too_late_is_refused<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let ranks = group(&*harness, a, b).await;
    let [zero, one] = &ranks;
    let seed = zero.mesh.transport().local_addr();
    let again = join_by(one.mesh.transport(), seed, patient(&*harness)).await;
    match again.err() {
        Some(JoinError::Refused {
            reason: RefuseReason::AlreadyFormed,
            ..
        }) => {}
        other => panic!("expected to be refused, got {other:?}"),
    }
    // The group is not affected.
    let (sent, received) = tokio::join!(
        zero.messenger.send(1, 3, "still here".into()),
        one.messenger.recv(0, 3, 10)
    );
    sent.expect("send");
    assert_eq!(received.expect("receive").1, b"still here");
}
