//! Tasks that drive the connections while they wait: nothing is lost, whoever drives, and however often
//! that changes.
use super::common::*;
use crate::backend::*;
use bytes::Bytes;
use nexar_core::transport::{Connection, RecvStream, SendStream, Transport, UniAcceptor};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

const SPIN: Duration = Duration::from_micros(50);

fn two_with_spin(spin: Duration) -> (TestTransport, TestTransport) {
    let bind = || TestTransport::bind(config(identity(7)).spin(spin)).unwrap();
    (bind(), bind())
}

/// Streams in both directions between `a` and `b`.
struct Pair {
    left: (TestSendStream, TestRecvStream),
    right: (TestSendStream, TestRecvStream),
    connections: (New, New),
}

async fn pair(a: &TestTransport, b: &TestTransport) -> Pair {
    let (mut left, mut right) = connect(a, b).await;
    let mut from_left = left.connection.open_uni().await.unwrap();
    let mut from_right = right.connection.open_uni().await.unwrap();
    from_left.write_all(Bytes::from_static(b"l")).await.unwrap();
    from_right
        .write_all(Bytes::from_static(b"r"))
        .await
        .unwrap();
    let mut to_right = right.uni.accept().await.unwrap();
    let mut to_left = left.uni.accept().await.unwrap();
    assert_eq!(to_right.read(1).await.unwrap().unwrap()[..], *b"l");
    assert_eq!(to_left.read(1).await.unwrap().unwrap()[..], *b"r");
    Pair {
        left: (from_left, to_left),
        right: (from_right, to_right),
        connections: (left, right),
    }
}

async fn send_number(send: &mut TestSendStream, number: u64) {
    send.write_all(Bytes::copy_from_slice(&number.to_le_bytes()))
        .await
        .unwrap();
}

/// Reads messages of 8 bytes; what has arrived of one survives a dropped read.
struct Numbers {
    recv: TestRecvStream,
    part: Vec<u8>,
}

impl Numbers {
    fn new(recv: TestRecvStream) -> Self {
        Numbers {
            recv,
            part: Vec::new(),
        }
    }

    async fn next(&mut self) -> u64 {
        while self.part.len() < 8 {
            let bytes = self.recv.read(8 - self.part.len()).await.unwrap().unwrap();
            self.part.extend_from_slice(&bytes);
        }
        let number = u64::from_le_bytes(self.part[..].try_into().unwrap());
        self.part.clear();
        number
    }
}

/// Polls `future` up to `polls` times and drops it if that was not enough.
async fn give_up_after<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// `rounds` numbers there and back. Every third wait is dropped after one poll first.
async fn ping(
    transport: &TestTransport,
    (mut send, recv): (TestSendStream, TestRecvStream),
    rounds: u64,
) {
    let mut numbers = Numbers::new(recv);
    for i in 0..rounds {
        transport.drive(send_number(&mut send, i)).await;
        let mut answer = None;
        if i % 3 == 0 {
            answer = give_up_after(1, transport.drive(numbers.next())).await;
        }
        let answer = match answer {
            Some(answer) => answer,
            None => transport.drive(numbers.next()).await,
        };
        assert_eq!(answer, i * 2);
    }
}

async fn pong(
    transport: &TestTransport,
    (mut send, recv): (TestSendStream, TestRecvStream),
    rounds: u64,
) {
    let mut numbers = Numbers::new(recv);
    for i in 0..rounds {
        let number = transport.drive(numbers.next()).await;
        assert_eq!(number, i);
        if i % 5 == 0 {
            // Not inside `drive`: the background has to send it.
            send_number(&mut send, number * 2).await;
        } else {
            transport.drive(send_number(&mut send, number * 2)).await;
        }
    }
}

async fn ping_pong(spin: Duration, rounds: u64) {
    let (a, b) = two_with_spin(spin);
    let Pair {
        left,
        right,
        connections,
    } = pair(&a, &b).await;
    tokio::join!(ping(&a, left, rounds), pong(&b, right, rounds));
    drop(connections);
    close(a, b).await;
}

#[tokio::test]
async fn messages_there_and_back_with_dropped_waits() {
    ping_pong(SPIN, 10_000).await;
}

#[tokio::test]
async fn messages_there_and_back_without_spinning() {
    ping_pong(Duration::ZERO, 3_000).await;
}

#[tokio::test]
#[ignore = "long"]
async fn a_hundred_thousand_messages_there_and_back() {
    ping_pong(SPIN, 100_000).await;
    ping_pong(Duration::ZERO, 100_000).await;
}

/// Each side on a thread of its own, so that both spin at the same time.
fn ping_pong_on_threads(spin: Duration, rounds: u64) {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let (a, b) = two_with_spin(spin);
    let (a, b) = (Arc::new(a), Arc::new(b));
    let Pair {
        left,
        right,
        connections,
    } = runtime().block_on(pair(&a, &b));
    let other = {
        let b = b.clone();
        std::thread::spawn(move || runtime().block_on(pong(&b, right, rounds)))
    };
    runtime().block_on(ping(&a, left, rounds));
    other.join().unwrap();
    drop(connections);
    runtime().block_on(async { tokio::join!(a.close(0, ""), b.close(0, "")) });
}

#[test]
fn two_threads_drive_their_own_ends() {
    ping_pong_on_threads(SPIN, 20_000);
}

#[test]
#[ignore = "long"]
fn two_threads_drive_their_own_ends_for_long() {
    ping_pong_on_threads(SPIN, 100_000);
}

/// Many tasks wait on the same two endpoints at a time.
async fn crowd(spin: Duration, tasks: u64, rounds: u64) {
    let (a, b) = two_with_spin(spin);
    let (a, b) = (Arc::new(a), Arc::new(b));
    let (mut handles, mut open) = (Vec::new(), Vec::new());
    for _ in 0..tasks {
        let Pair {
            left,
            right,
            connections,
        } = pair(&a, &b).await;
        open.push(connections);
        let (a, b) = (a.clone(), b.clone());
        handles.push(tokio::spawn(async move { ping(&a, left, rounds).await }));
        handles.push(tokio::spawn(async move { pong(&b, right, rounds).await }));
    }
    for handle in handles {
        handle.await.unwrap();
    }
    drop(open);
    tokio::join!(a.close(0, ""), b.close(0, ""));
}

#[tokio::test]
async fn many_waiters_on_one_thread() {
    crowd(SPIN, 8, 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_waiters_on_many_threads() {
    crowd(SPIN, 8, 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_waiters_on_many_threads_without_spinning() {
    crowd(Duration::ZERO, 8, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_transfers_are_driven_from_both_ends() {
    let (a, b) = two_with_spin(SPIN);
    let (a, b) = (Arc::new(a), Arc::new(b));
    let Pair {
        left,
        right,
        connections,
    } = pair(&a, &b).await;
    let total = (64 << 20) + 5;
    let end = |transport: Arc<TestTransport>,
               (mut send, mut recv): (TestSendStream, TestRecvStream),
               seeds: (u64, u64)| async move {
        let work = async {
            tokio::join!(
                async {
                    send_pattern(&mut send, seeds.0, total, 1 << 20)
                        .await
                        .unwrap()
                },
                async { assert_eq!(check_pattern(&mut recv, seeds.1).await.unwrap(), total) },
            );
            send.acked().await.unwrap();
        };
        transport.drive(work).await;
    };
    let left = tokio::spawn(end(a.clone(), left, (1, 2)));
    let right = tokio::spawn(end(b.clone(), right, (2, 1)));
    left.await.unwrap();
    right.await.unwrap();
    drop(connections);
    tokio::join!(a.close(0, ""), b.close(0, ""));
}

/// A waiter that was polled once and is never polled again must not stop the others.
#[tokio::test]
async fn an_abandoned_waiter_stops_nobody() {
    let (a, b) = two_with_spin(Duration::from_millis(100));
    let Pair {
        left,
        right,
        connections,
    } = pair(&a, &b).await;
    let (mut send, mut recv) = left;
    let mut stuck: Pin<Box<dyn Future<Output = _> + Send>> =
        Box::pin(async { a.drive(recv.read(1)).await });
    // While there is traffic the waiter lets others run now and then, still the owner.
    let traffic = async {
        for i in 0..200u64 {
            send_number(&mut send, i).await;
        }
    };
    tokio::join!(traffic, async {
        assert!(poll_fn(|cx| Poll::Ready(stuck.as_mut().poll(cx).is_pending())).await);
    });
    // Nobody polls it any more, and yet everything goes on.
    let mut numbers = Numbers::new(right.1);
    for i in 0..200 {
        assert_eq!(numbers.next().await, i);
    }
    drop(stuck);
    drop(connections);
    close(a, b).await;
}

/// The timers of the protocol run while a task drives and while none does.
#[tokio::test]
async fn idle_time_outs_come_whoever_drives() {
    for driven in [true, false] {
        let idle = Duration::from_millis(50);
        let quiet = || config(identity(7)).idle_timeout(idle).keep_alive(None);
        let a = TestTransport::bind(quiet()).unwrap();
        let b = TestTransport::bind(quiet()).unwrap();
        let (left, _right) = connect(&a, &b).await;
        let closed = left.connection.closed();
        let error = if driven {
            a.drive(closed).await
        } else {
            closed.await
        };
        assert!(
            matches!(error, nexar_core::transport::ConnectionError::TimedOut),
            "driven: {driven}, {error:?}"
        );
        close(a, b).await;
    }
}

/// While the only thread of the application is blocked, the background keeps the connection alive.
#[tokio::test]
async fn the_background_keeps_going_while_the_application_is_blocked() {
    let lively = || {
        let config = config(identity(7)).idle_timeout(Duration::from_millis(200));
        config.keep_alive(Some(Duration::from_millis(20)))
    };
    let a = TestTransport::bind(lively()).unwrap();
    let b = TestTransport::bind(lively()).unwrap();
    let Pair {
        mut left,
        right,
        connections,
    } = pair(&a, &b).await;
    a.drive(send_number(&mut left.0, 1)).await;
    // The point of the test: a blocked thread.
    std::thread::sleep(Duration::from_millis(600));
    send_number(&mut left.0, 2).await;
    let mut numbers = Numbers::new(right.1);
    assert_eq!((numbers.next().await, numbers.next().await), (1, 2));
    drop(connections);
    close(a, b).await;
}

/// Driving inside driving, and after the close.
#[tokio::test]
async fn nested_and_late_waits_end() {
    let (a, b) = two_with_spin(SPIN);
    let Pair {
        mut left,
        right,
        connections,
    } = pair(&a, &b).await;
    let mut numbers = Numbers::new(right.1);
    let nested = b.drive(async { b.drive(numbers.next()).await });
    let (number, ()) = tokio::join!(nested, send_number(&mut left.0, 9));
    assert_eq!(number, 9);
    a.close(3, "over").await;
    assert!(a.drive(left.1.read(1)).await.is_err());
    assert_eq!(a.drive(async { 5 }).await, 5);
    b.close(0, "").await;
    drop(connections);
}

#[tokio::test]
async fn background_tasks_may_wait_inside_drive() {
    let (a, b) = two_with_spin(SPIN);
    let b = Arc::new(b);
    let Pair {
        mut left,
        right,
        connections,
    } = pair(&a, &b).await;
    let task = b.background().spawn({
        let b = b.clone();
        let mut numbers = Numbers::new(right.1);
        async move { b.drive(numbers.next()).await }
    });
    a.drive(send_number(&mut left.0, 12)).await;
    assert_eq!(task.await.unwrap(), 12);
    drop(connections);
    tokio::join!(a.close(0, ""), b.close(0, ""));
}

#[test]
fn a_plain_executor_can_drive() {
    let (a, b) = two_with_spin(SPIN);
    block_on(async {
        let Pair {
            left,
            right,
            connections,
        } = pair(&a, &b).await;
        let mut left = left;
        let mut numbers = Numbers::new(right.1);
        for i in 0..100 {
            send_number(&mut left.0, i).await;
            assert_eq!(b.drive(numbers.next()).await, i);
        }
        drop(connections);
        close(a, b).await;
    });
}
