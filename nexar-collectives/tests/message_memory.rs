//! What messages leave behind. A test process of its own, since it looks at the memory of the whole process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use nexar_collectives::{Communicator, Source, Tag};

/// Messages from one rank to the other, of 64 bytes.
const MESSAGES: usize = 1_000_000;

/// Messages before the memory is looked at for the first time.
const WARM_UP: usize = 100_000;

/// Bytes of the process in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn message(number: usize) -> [u64; 8] {
    std::array::from_fn(|i| (number * 8 + i) as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_messages_leave_nothing_behind() {
    let mut ranks = Communicator::local(2).await.unwrap();
    let (receiver, sender) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let sending = tokio::spawn(async move {
        for number in 0..WARM_UP + MESSAGES {
            let tag = (number % 3) as u64;
            sender.send(&message(number), 1, tag).await.unwrap();
        }
        sender.shutdown().await.unwrap();
    });
    let receiving = tokio::spawn(async move {
        let (mut before, mut most) = (0, 0);
        for number in 0..WARM_UP + MESSAGES {
            let mut buffer = [0_u64; 8];
            let tag = (number % 3) as u64;
            let received = receiver.recv(&mut buffer, 0, tag).await.unwrap();
            assert_eq!((received.count, buffer), (8, message(number)));
            if number == WARM_UP {
                before = resident();
            }
            if number > WARM_UP && number.is_multiple_of(10_000) {
                most = most.max(resident());
            }
        }
        assert_eq!(receiver.try_probe(Source::Any, Tag::Any).unwrap(), None);
        let grown = most.saturating_sub(before) >> 20;
        assert!(grown < 20, "{grown} MiB more");
        receiver.shutdown().await.unwrap();
    });
    sending.await.unwrap();
    receiving.await.unwrap();
}
