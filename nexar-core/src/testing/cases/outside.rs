//! What comes from outside: strangers, and blows that no application deals. The harness provides them.

use super::connections::exchange;
use crate::{
    testing::{
        Blow, End, Harness, Outcome, Stranger,
        tools::{Pattern, fill, read_error, unless_stuck, write_error},
    },
    transport::{
        Connection, ConnectionError, NewConnection, SendStream, StreamError, Transport, UniAcceptor,
    },
};
use std::sync::Arc;

const NO_STRANGER: Outcome = Outcome::Skipped("the harness has no such stranger");
const NO_BLOW: Outcome = Outcome::Skipped("the harness cannot do that to an endpoint");

pub async fn a_stranger_of_another_authority<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) -> Outcome {
    stranger(&*harness, Stranger::OtherAuthority, a, b).await
}

pub async fn a_stranger_with_an_expired_certificate<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) -> Outcome {
    stranger(&*harness, Stranger::Expired, a, b).await
}

pub async fn a_stranger_with_a_certificate_of_the_future<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) -> Outcome {
    stranger(&*harness, Stranger::NotYetValid, a, b).await
}

/// Dials and must be refused with a reason.
async fn assert_refused<T: Transport>(from: &T, to: &T) {
    let error = from.connect(to.local_addr(), None).await;
    match error.expect_err("a stranger is at one end") {
        ConnectionError::Refused { reason } => assert!(!reason.is_empty(), "no reason is given"),
        error => panic!("expected to be refused, got {error:?}"),
    }
}

async fn stranger<H: Harness>(
    harness: &H,
    kind: Stranger,
    a: End<H::Transport>,
    b: End<H::Transport>,
) -> Outcome {
    let Some(stranger) = harness.stranger(kind) else {
        return NO_STRANGER;
    };
    assert_refused(&stranger, &b.transport).await;
    assert_refused(&b.transport, &stranger).await;
    // The stranger may believe in a connection until it uses it.
    if let Some(Some(mut accepted)) = unless_stuck(stranger.accept()).await {
        let stream = accepted.uni.accept().await;
        stream.expect_err("no connection with a stranger works");
    }
    // The first that the honest end accepts is from its friend.
    let (dialled, accepted) = tokio::join!(
        a.transport
            .connect(b.transport.local_addr(), Some(b.transport.identity())),
        b.transport.accept()
    );
    let mut dialled = dialled.expect("connect");
    let mut accepted = accepted.expect("the endpoint is open");
    assert_eq!(accepted.connection.peer_identity(), a.transport.identity());
    exchange(&mut dialled, &mut accepted, "among friends").await;
    let ((mut from, _a), (mut to, _b)) = (split(a), split(b));
    exchange(&mut from, &mut to, "as before").await;
    stranger.close(0, "").await;
    Outcome::Done
}

/// The connection of an end, and its endpoint.
fn split<T: Transport>(end: End<T>) -> (NewConnection<T::Connection>, T) {
    let new = NewConnection {
        connection: end.connection,
        uni: end.uni,
        bi: end.bi,
    };
    (new, end.transport)
}

pub async fn a_silent_peer_times_out<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) -> Outcome {
    let Some(_silence) = harness.inflict(Blow::Silence, &b.transport, &a.transport) else {
        return NO_BLOW;
    };
    let limits = harness.limits();
    let End {
        connection,
        mut uni,
        ..
    } = a;
    let (mut full, mut silent) = connection.open_bi().await.expect("open");
    fill(&mut full, &Pattern::new(35), limits.stream_unread).await;
    let ends = async {
        tokio::join!(
            connection.closed(),
            async { uni.accept().await.expect_err("nobody opens a stream") },
            write_error(&mut full),
            read_error(&mut silent),
        )
    };
    let ends = tokio::time::timeout(limits.silence_time, ends).await;
    let (closed, accept, write, read) = ends.expect("the silence is noticed in time");
    for error in [StreamError::from(closed), accept.into(), write, read] {
        assert!(
            matches!(error, StreamError::Connection(ConnectionError::TimedOut)),
            "{error:?}"
        );
    }
    let error = connection.open_uni().await;
    let error = error.expect_err("the connection is dead");
    assert!(matches!(error, ConnectionError::TimedOut), "{error:?}");
    Outcome::Done
}

pub async fn a_peer_that_has_forgotten_resets<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) -> Outcome {
    let mut send = a.connection.open_uni().await.expect("open");
    send.write_all("before".into()).await.expect("write");
    let Some(_amnesia) = harness.inflict(Blow::Amnesia, &b.transport, &a.transport) else {
        return NO_BLOW;
    };
    for error in [
        write_error(&mut send).await,
        a.connection.closed().await.into(),
    ] {
        assert!(
            matches!(error, StreamError::Connection(ConnectionError::Reset)),
            "{error:?}"
        );
    }
    Outcome::Done
}
