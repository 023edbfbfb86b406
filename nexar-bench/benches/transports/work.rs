//! What two connected processes do while the clock runs, on either side.

use crate::{
    Result,
    subject::{CHUNK, Host, Link, Receiver, Sender, Subject},
};
use bytes::Bytes;
use nexar_bench::report::plan::{MESSAGE, MESSAGES, ROUND_TRIP};
use serde::{Deserialize, Serialize};
use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

/// What a receiver says when it has everything.
pub(crate) const CONFIRMATION: &[u8] = b"1";

static DATA: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![7; CHUNK]));

/// What is measured.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Work {
    /// A short message and the same back.
    RoundTrip,
    /// Many short messages, each of them a send of its own, and a confirmation of all of them.
    Messages,
    /// So many bytes, and their confirmation.
    OneWay(usize),
    /// So many bytes from each side at the same time.
    BothWays(usize),
}

/// The side with the clock.
pub(crate) async fn ask<S: Subject>(
    link: &mut Link<S>,
    work: Work,
    repeats: u64,
) -> Result<Duration> {
    let Link {
        sender,
        receiver,
        host,
    } = link;
    let start = Instant::now();
    for _ in 0..repeats {
        match work {
            Work::RoundTrip => {
                let turn = async {
                    sender.send(DATA.slice(..ROUND_TRIP)).await?;
                    receiver.recv_all(ROUND_TRIP).await
                };
                host.drive(turn).await?;
            }
            Work::Messages => {
                let turn = async {
                    for _ in 0..MESSAGES {
                        sender.send(DATA.slice(..MESSAGE)).await?;
                    }
                    receiver.recv_all(CONFIRMATION.len()).await
                };
                host.drive(turn).await?;
            }
            Work::OneWay(bytes) => {
                let turn = async {
                    source(sender, bytes).await?;
                    receiver.recv_all(CONFIRMATION.len()).await
                };
                host.drive(turn).await?;
            }
            Work::BothWays(bytes) => {
                host.drive(exchange(sender, receiver, bytes)).await?;
            }
        }
    }
    if let Work::BothWays(_) = work {
        host.drive(receiver.recv_all(CONFIRMATION.len())).await?;
    }
    Ok(start.elapsed())
}

/// The other side.
pub(crate) async fn answer<S: Subject>(link: &mut Link<S>, work: Work, repeats: u64) -> Result<()> {
    let Link {
        sender,
        receiver,
        host,
    } = link;
    let confirmation = Bytes::from_static(CONFIRMATION);
    for _ in 0..repeats {
        match work {
            Work::RoundTrip => {
                let turn = async {
                    receiver.recv_all(ROUND_TRIP).await?;
                    sender.send(DATA.slice(..ROUND_TRIP)).await
                };
                host.drive(turn).await?;
            }
            Work::Messages => {
                let turn = async {
                    receiver.recv_all(MESSAGES * MESSAGE).await?;
                    sender.send(confirmation.clone()).await
                };
                host.drive(turn).await?;
            }
            Work::OneWay(bytes) => {
                let turn = async {
                    receiver.recv_all(bytes).await?;
                    sender.send(confirmation.clone()).await
                };
                host.drive(turn).await?;
            }
            Work::BothWays(bytes) => {
                host.drive(exchange(sender, receiver, bytes)).await?;
            }
        }
    }
    if let Work::BothWays(_) = work {
        host.drive(sender.send(confirmation)).await?;
    }
    Ok(())
}

async fn source(sender: &mut impl Sender, bytes: usize) -> Result<()> {
    let mut left = bytes;
    while left > 0 {
        let length = left.min(CHUNK);
        sender.send(DATA.slice(..length)).await?;
        left -= length;
    }
    Ok(())
}

async fn exchange(
    sender: &mut impl Sender,
    receiver: &mut impl Receiver,
    bytes: usize,
) -> Result<()> {
    tokio::try_join!(source(sender, bytes), receiver.recv_all(bytes))?;
    Ok(())
}
