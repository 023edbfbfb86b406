//! Random programs against what must hold of any of them: every message whose send is done is received
//! exactly once and unharmed; one whose send was dropped at most once; those of a source and tag in order.

use crate::world::{Ranks, World, at_most_with, body, start};
use nexar_core::{
    TimeLimits,
    messaging::{Source, Tag},
    transport::memory::MemoryNetwork,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

const WORLD: usize = 3;
const SENDS: usize = 60;
const TAGS: u64 = 3;
/// Of the last message to every rank.
const LAST: u64 = 99;
const LENGTHS: [usize; 6] = [16, 100, 5000, 65_536, 65_537, 300_000];

/// Source, destination, tag.
type Flow = (usize, usize, u64);

#[derive(Default)]
struct Book {
    /// Numbers of the messages of each flow, and whether their sends were done.
    sent: HashMap<Flow, Vec<(u64, bool)>>,
    received: HashMap<Flow, Vec<u64>>,
}

fn message(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = body(number as usize, length);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

async fn sender(ranks: Ranks, own: usize, seed: u64, pause: Duration, book: Arc<Mutex<Book>>) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut sends = Vec::new();
    for number in 0..SENDS as u64 {
        let flow = (
            own,
            random.random_range(0..WORLD),
            random.random_range(0..TAGS),
        );
        let bytes = message(number, LENGTHS[random.random_range(0..LENGTHS.len())]);
        let polls = if random.random_bool(0.3) {
            random.random_range(0..20)
        } else {
            usize::MAX
        };
        let messenger = ranks[own].clone();
        let book = book.clone();
        book.lock()
            .unwrap()
            .sent
            .entry(flow)
            .or_default()
            .push((number, false));
        let send = async move {
            let sent =
                at_most_with(polls, pause, messenger.send(flow.1, flow.2, bytes.into())).await;
            if let Some(sent) = sent {
                sent.unwrap();
                let mut book = book.lock().unwrap();
                let mut flow = book.sent.get_mut(&flow).unwrap().iter_mut();
                flow.find(|sent| sent.0 == number).unwrap().1 = true;
            }
        };
        sends.push(start(send).await);
        if random.random_bool(0.5) {
            tokio::task::yield_now().await;
        }
    }
    for send in sends {
        send.await.unwrap();
    }
    for to in 0..WORLD {
        ranks[own]
            .send(to, LAST, message(0, 8).into())
            .await
            .unwrap();
    }
}

async fn receiver(ranks: Ranks, own: usize, seed: u64, pause: Duration, book: Arc<Mutex<Book>>) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut last = 0;
    while last < WORLD {
        let source = match random.random_range(0..=WORLD) {
            WORLD => Source::Any,
            rank => Source::Rank(rank),
        };
        let tag = match random.random_range(0..=TAGS) {
            TAGS => Tag::Any,
            tag => Tag::Value(tag),
        };
        let polls = random.random_range(1..30);
        let Some(received) =
            at_most_with(polls, pause, ranks[own].recv(source, tag, 1 << 20)).await
        else {
            continue;
        };
        let (received, bytes) = received.unwrap();
        let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        if received.tag == LAST {
            last += 1;
            continue;
        }
        assert!(bytes == message(number, received.length), "damaged");
        let flow = (received.source, own, received.tag);
        book.lock()
            .unwrap()
            .received
            .entry(flow)
            .or_default()
            .push(number);
    }
    // What came before the last messages and was not asked for yet.
    while let Some(found) = ranks[own].try_probe(Source::Any, Tag::Any).unwrap() {
        let taken = ranks[own]
            .recv(found.source, found.tag, 1 << 20)
            .await
            .unwrap();
        let number = u64::from_le_bytes(*taken.1.first_chunk().unwrap());
        let flow = (found.source, own, found.tag);
        book.lock()
            .unwrap()
            .received
            .entry(flow)
            .or_default()
            .push(number);
    }
}

async fn run(seed: u64, delay: Duration) {
    let network = MemoryNetwork::new(seed);
    network.set_delay(delay, delay);
    let world = World::on(network, WORLD, TimeLimits::default()).await;
    let book = Arc::new(Mutex::new(Book::default()));
    let mut tasks = Vec::new();
    for own in 0..WORLD {
        let (ranks, book) = (&world.ranks, &book);
        let seed = seed * 100 + own as u64;
        tasks.push(tokio::spawn(sender(
            ranks.clone(),
            own,
            seed,
            delay / 4,
            book.clone(),
        )));
        tasks.push(tokio::spawn(receiver(
            ranks.clone(),
            own,
            seed + 50,
            delay / 4,
            book.clone(),
        )));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let book = book.lock().unwrap();
    for (flow, sent) in &book.sent {
        let none = Vec::new();
        let received = book.received.get(flow).unwrap_or(&none);
        assert!(
            received.is_sorted_by(|a, b| a < b),
            "seed {seed}, {flow:?}: {received:?}"
        );
        for (number, done) in sent {
            assert!(
                !done || received.contains(number),
                "seed {seed}, {flow:?}: message {number} is missing"
            );
        }
        assert!(
            received
                .iter()
                .all(|number| sent.iter().any(|sent| sent.0 == *number))
        );
    }
    for rank in &world.ranks {
        assert_eq!(rank.stats().unexpected_messages, 0, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn random_programs_without_delay() {
    for seed in 0..40 {
        run(seed, Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn random_programs_with_delay() {
    for seed in 100..120 {
        run(seed, Duration::from_micros(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn random_programs_on_several_threads() {
    for seed in 200..210 {
        run(seed, Duration::ZERO).await;
    }
}
