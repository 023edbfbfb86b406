//! Logs refused handshakes without letting a stranger fill the log.

use std::{
    collections::HashMap,
    fmt::Display,
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// One line per remote address and kind of cause in this time.
const WINDOW: Duration = Duration::from_secs(60);

/// Lines per remote address in this time: part of a cause may be text of the remote's.
const MAX_KINDS: usize = 8;

/// Addresses that are remembered. More within one window are not logged, only counted.
const MAX_ADDRESSES: usize = 1_024;

/// The addresses that were refused lately, and why.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Of each address, what was said about it and when.
    seen: HashMap<IpAddr, Vec<(Kind, Instant)>>,
    suppressed: u64,
}

/// A cause without its details, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind(u64);

impl Kind {
    /// Texts say what happened, then why, then the details: the first two make the kind.
    fn of(reason: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        for part in reason.split(": ").take(2) {
            part.hash(&mut hasher);
        }
        Kind(hasher.finish())
    }
}

impl RefusalLog {
    /// Logs that `remote` was refused, unless that was said of it for the same kind of reason within the
    /// last minute.
    pub(crate) fn refused(&self, remote: SocketAddr, reason: &dyn Display) {
        let kind = Kind::of(&reason.to_string());
        let suppressed = {
            let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match table.note(remote.ip().to_canonical(), kind, Instant::now()) {
                Some(suppressed) => suppressed,
                None => return,
            }
        };
        tracing::warn!(%remote, %reason, suppressed, "refused an incoming connection");
    }
}

impl Table {
    /// The number of lines left out since the last one, if a line is due now.
    fn note(&mut self, ip: IpAddr, kind: Kind, now: Instant) -> Option<u64> {
        let recent = |(_, at): &(Kind, Instant)| now.duration_since(*at) < WINDOW;
        if self.seen.len() >= MAX_ADDRESSES {
            self.seen.retain(|_, said| said.iter().any(recent));
        }
        let room = self.seen.len() < MAX_ADDRESSES || self.seen.contains_key(&ip);
        let due = room && {
            let said = self.seen.entry(ip).or_default();
            said.retain(recent);
            let due = said.len() < MAX_KINDS && said.iter().all(|(known, _)| *known != kind);
            if due {
                said.push((kind, now));
            }
            due
        };
        if due {
            return Some(std::mem::take(&mut self.suppressed));
        }
        self.suppressed += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GARBAGE: Kind = Kind(1);
    const WRONG_SECRET: Kind = Kind(2);

    #[test]
    fn one_line_per_address_kind_and_window() {
        let mut table = Table::default();
        let now = Instant::now();
        let (a, b) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert_eq!(table.note(a, GARBAGE, now), Some(0));
        let later = now + Duration::from_secs(59);
        assert_eq!(table.note(a, GARBAGE, later), None);
        assert_eq!(table.note(a, WRONG_SECRET, later), Some(1));
        assert_eq!(table.note(a, WRONG_SECRET, later), None);
        assert_eq!(table.note(b, GARBAGE, later), Some(1));
        let much_later = now + Duration::from_secs(61);
        assert_eq!(table.note(a, GARBAGE, much_later), Some(0));
        assert_eq!(table.note(a, WRONG_SECRET, much_later), None);
    }

    #[test]
    fn kinds_differ_by_cause_but_not_by_detail() {
        let refused = |reason: &str| Kind::of(&format!("refused in the handshake: {reason}"));
        let alert = refused("TLS alert 50: bad length 17");
        assert_eq!(alert, refused("TLS alert 50: bad length 18"));
        assert_ne!(
            alert,
            refused("the peer's certificate is not signed: the secrets differ")
        );
        assert_ne!(alert, Kind::of("timed out: nothing heard from the peer"));
    }

    #[test]
    fn one_address_has_a_bounded_number_of_lines() {
        let mut table = Table::default();
        let (now, ip) = (Instant::now(), IpAddr::from([192, 0, 2, 1]));
        let lines = (0..100).filter(|i| table.note(ip, Kind(*i), now).is_some());
        assert_eq!(lines.count(), MAX_KINDS);
        assert_eq!(table.note(ip, Kind(0), now + WINDOW), Some(92));
        assert_eq!(table.seen[&ip].len(), 1);
    }

    #[test]
    fn the_table_is_bounded_and_recovers() {
        let mut table = Table::default();
        let now = Instant::now();
        for i in 0..5_000u32 {
            table.note(IpAddr::from(i.to_be_bytes()), GARBAGE, now);
        }
        assert_eq!(table.seen.len(), MAX_ADDRESSES);
        let later = now + WINDOW;
        assert_eq!(
            table.note(IpAddr::from([9, 9, 9, 9]), GARBAGE, later),
            Some(5_000 - 1_024)
        );
        assert_eq!(table.seen.len(), 1);
    }
}
