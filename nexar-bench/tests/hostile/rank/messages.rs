//! Ranks that send messages.

use super::{Orders, Result, say, world::World};
use bytes::Bytes;
use nexar_core::{messaging::Source, transport::Connection};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{task::JoinSet, time::sleep};

type Done = Result<()>;

/// The tag of what is counted.
const DATA: u64 = 7;

/// The tag of answers and of small messages beside large ones.
const SMALL: u64 = 8;

/// Between small messages.
const PAUSE: Duration = Duration::from_millis(10);

/// The length of a message that says how many came before it.
const END: usize = 8;

/// A message with its number in the first bytes, and with bytes that tell their place in the rest.
fn message(number: u64, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect();
    bytes[..END].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Compares without making the message again: only the number is new in `expected`.
fn is_message(number: u64, received: &[u8], expected: &mut [u8]) -> bool {
    expected[..END].copy_from_slice(&number.to_le_bytes());
    received == expected
}

/// Rank 0 sends messages to rank 1 and leaves at once.
pub(super) async fn in_a_row(count: u64, length: usize) -> Result<()> {
    let world = World::join().await?;
    let mut expected = message(0, length);
    for number in 0..count {
        match world.rank() {
            0 => {
                is_message(number, &[], &mut expected);
                world.messenger.send_from(1, DATA, &expected).await?;
            }
            _ => {
                let (_, received) = world.messenger.recv(0, DATA, length).await?;
                if !is_message(number, &received, &mut expected) {
                    return Err(format!("message {number} is not what was sent").into());
                }
            }
        }
    }
    say(&format!("done {count}"));
    world.leave().await
}

/// Bytes of a message of a stream.
const PIECE: usize = 1 << 20;

/// One rank sends messages to all others until it is told to stop.
pub(super) async fn stream(orders: &Arc<Orders>, from: usize) -> Result<()> {
    let world = World::join().await?;
    if world.rank() == from {
        let mut sends = JoinSet::new();
        for to in world.others() {
            let (messenger, orders) = (Arc::clone(&world.messenger), Arc::clone(orders));
            sends.spawn(async move {
                let mut piece = message(0, PIECE);
                let mut number = 0_u64;
                while !orders.stopped() {
                    is_message(number, &[], &mut piece);
                    messenger.send_from(to, DATA, &piece).await?;
                    number += 1;
                }
                messenger.send_from(to, DATA, &number.to_le_bytes()).await
            });
        }
        while let Some(sent) = sends.join_next().await {
            sent??;
        }
        for connection in world
            .others()
            .filter_map(|rank| world.mesh.connection(rank))
        {
            say(&format!("datagrams {}", connection.stats().mtu));
        }
    } else {
        let mut expected = message(0, PIECE);
        let mut number = 0_u64;
        loop {
            let (_, received) = world.messenger.recv(from, DATA, PIECE).await?;
            if received.len() == END {
                if received != number.to_le_bytes() {
                    return Err("messages are missing at the end".into());
                }
                break;
            }
            if !is_message(number, &received, &mut expected) {
                return Err(format!("message {number} is not what was sent").into());
            }
            number = orders.step("at");
        }
    }
    world.leave().await
}

fn now_micros() -> Result<u64> {
    Ok(u64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros(),
    )?)
}

/// Rank 0 sends rank 1 a large message, and small ones beside it, each once the one before is answered. Rank 1
/// says how long the slowest small one took.
pub(super) async fn beside(length: usize) -> Result<()> {
    let world = World::join().await?;
    let messenger = &*world.messenger;
    if world.rank() == 0 {
        let large = message(1, length);
        let arrived = AtomicBool::new(false);
        let beside = async {
            while !arrived.load(Relaxed) {
                let sent = now_micros()?;
                messenger.send_from(1, SMALL, &sent.to_le_bytes()).await?;
                messenger.recv(1, SMALL, 0).await?;
                sleep(PAUSE).await;
            }
            messenger.send(1, SMALL, Bytes::new()).await?;
            Done::Ok(())
        };
        let large = async {
            messenger.send_from(1, DATA, &large).await?;
            arrived.store(true, Relaxed);
            Done::Ok(())
        };
        tokio::try_join!(beside, large)?;
    } else {
        let mut buffer = vec![0; length];
        let beside = async {
            let (mut count, mut slowest) = (0, 0);
            loop {
                let (_, sent) = messenger.recv(0, SMALL, END).await?;
                if sent.is_empty() {
                    say(&format!("small {count}"));
                    say(&format!("slowest {slowest}"));
                    return Done::Ok(());
                }
                let sent = u64::from_le_bytes(sent[..].try_into()?);
                slowest = slowest.max(now_micros()?.saturating_sub(sent));
                count += 1;
                messenger.send(0, SMALL, Bytes::new()).await?;
            }
        };
        let large = async { Done::Ok(messenger.recv_into(0, DATA, &mut buffer).await.map(drop)?) };
        tokio::try_join!(beside, large)?;
        if !is_message(1, &buffer, &mut message(0, length)) {
            return Err("the large message is not what was sent".into());
        }
        say("large");
    }
    world.leave().await
}

/// Every rank sends a message to every other.
pub(super) async fn everybody(length: usize) -> Result<()> {
    let world = World::join().await?;
    let mut sends = JoinSet::new();
    let own: Bytes = message(world.rank() as u64, length).into();
    for to in world.others() {
        let (messenger, own) = (Arc::clone(&world.messenger), own.clone());
        sends.spawn(async move { messenger.send(to, DATA, own).await });
    }
    let mut missing: Vec<usize> = world.others().collect();
    let mut expected = message(0, length);
    while !missing.is_empty() {
        let (from, received) = world.messenger.recv(Source::Any, DATA, length).await?;
        missing.retain(|rank| *rank != from.source);
        if !is_message(from.source as u64, &received, &mut expected) {
            return Err(format!("the message of rank {} is not what it sent", from.source).into());
        }
    }
    while let Some(sent) = sends.join_next().await {
        sent??;
    }
    say(&format!("received {}", world.others().count()));
    world.leave().await
}

/// Bytes of a large message that are read before the receive is given up: more than comes at once.
const GLIMPSE: u64 = 512 << 10;

/// Rank 1 begins to receive a large message and gives up, so many times; then it receives it.
pub(super) async fn half_read(length: usize, times: u64) -> Result<()> {
    let world = World::join().await?;
    let messenger = &*world.messenger;
    if world.rank() == 0 {
        messenger.send_from(1, DATA, &message(1, length)).await?;
        return world.leave().await;
    }
    for _ in 0..times {
        let seen = AtomicU64::new(0);
        let mut receive = pin!(messenger.recv_with(0, DATA, |piece| {
            seen.fetch_add(piece.len() as u64, Relaxed);
        }));
        poll_fn(|cx| match receive.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(Err("the message came at once")),
            Poll::Pending if seen.load(Relaxed) >= GLIMPSE => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
    }
    say("cancelled");
    let (_, received) = messenger.recv(0, DATA, length).await?;
    if !is_message(1, &received, &mut message(0, length)) {
        return Err("the message is not what was sent".into());
    }
    say("received");
    world.leave().await
}
