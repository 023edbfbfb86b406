//! The inbox against lists that are looked through.

use super::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};

#[derive(Default)]
struct Model {
    /// Arrival, source, tag.
    messages: Vec<(u64, usize, u64)>,
    receives: Vec<(u64, Pattern)>,
}

impl Model {
    fn take(&mut self, pattern: &Pattern) -> Option<u64> {
        let matching = self.messages.iter().enumerate();
        let (at, _) = matching
            .filter(|(_, (_, source, tag))| pattern.matches(*source, *tag))
            .min_by_key(|(_, (arrival, ..))| *arrival)?;
        Some(self.messages.remove(at).0)
    }

    fn take_posted(&mut self, source: usize, tag: u64) -> Option<u64> {
        let mut receives = self.receives.iter();
        let at = receives.position(|(_, pattern)| pattern.matches(source, tag))?;
        Some(self.receives.remove(at).0)
    }
}

fn pattern(random: &mut StdRng) -> Pattern {
    let source = match random.random_range(0..4) {
        3 => Source::Any,
        rank => Source::Rank(rank),
    };
    let tag = match random.random_range(0..4) {
        3 => Tag::Any,
        tag => Tag::Value(tag),
    };
    Pattern { source, tag }
}

fn entry(arrival: u64, source: usize, tag: u64) -> Entry {
    let (bytes, borrowed) = (Bytes::from_static(b"abc"), true);
    Entry {
        arrival,
        source,
        tag,
        dtype: None,
        body: Body::Eager { bytes, borrowed },
    }
}

#[test]
fn it_matches_like_a_list() {
    let mut random = StdRng::seed_from_u64(11);
    let (mut inbox, mut model) = (Inbox::new(3), Model::default());
    let mut taken: Vec<Entry> = Vec::new();
    for number in 0..20_000 {
        match random.random_range(0..8) {
            0..3 => {
                let (source, tag) = (random.random_range(0..3), random.random_range(0..3));
                let receive = inbox.take_posted(source, tag);
                assert_eq!(receive, model.take_posted(source, tag));
                if receive.is_none() {
                    let arrival = inbox.next_arrival();
                    inbox.insert(entry(arrival, source, tag));
                    model.messages.push((arrival, source, tag));
                }
            }
            3..6 => {
                let pattern = pattern(&mut random);
                let expected = model.take(&pattern);
                let peeked = inbox.peek(&pattern).map(|entry| entry.arrival);
                let entry = inbox.take(&pattern);
                assert_eq!(peeked, expected);
                assert_eq!(entry.as_ref().map(|entry| entry.arrival), expected);
                if entry.is_none() {
                    inbox.post(number, pattern);
                    model.receives.push((number, pattern));
                }
                taken.extend(entry);
            }
            6 if !model.receives.is_empty() => {
                let at = random.random_range(0..model.receives.len());
                let (receive, pattern) = model.receives.remove(at);
                inbox.unpost(receive, pattern);
            }
            // A receive was dropped that had its message already.
            _ => {
                let Some(entry) = taken.pop() else { continue };
                let (arrival, source, tag) = (entry.arrival, entry.source, entry.tag);
                let receive = inbox.take_posted(source, tag);
                assert_eq!(receive, model.take_posted(source, tag));
                if receive.is_none() {
                    model.messages.push((arrival, source, tag));
                    inbox.insert(entry);
                }
            }
        }
        assert_eq!(inbox.messages(), model.messages.len());
        assert_eq!(inbox.bytes(), 3 * model.messages.len());
    }
}
