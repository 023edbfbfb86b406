//! Logs refused handshakes without letting a stranger fill the log.

use std::{
    collections::HashMap,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// One line per remote address in this time.
const WINDOW: Duration = Duration::from_secs(60);

/// Addresses that are remembered. More within one window are not logged, only counted.
const MAX_ADDRESSES: usize = 1_024;

/// The addresses that were refused lately.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    seen: HashMap<IpAddr, Instant>,
    suppressed: u64,
}

impl RefusalLog {
    /// Logs that `remote` was refused, unless that was said within the last minute.
    pub(crate) fn refused(&self, remote: SocketAddr, reason: &dyn Display) {
        let suppressed = {
            let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match table.note(remote.ip().to_canonical(), Instant::now()) {
                Some(suppressed) => suppressed,
                None => return,
            }
        };
        tracing::warn!(%remote, %reason, suppressed, "refused an incoming connection");
    }
}

impl Table {
    /// The number of lines left out since the last one, if a line is due now.
    fn note(&mut self, ip: IpAddr, now: Instant) -> Option<u64> {
        if self.seen.len() >= MAX_ADDRESSES {
            self.seen.retain(|_, at| now.duration_since(*at) < WINDOW);
        }
        let known = self
            .seen
            .get(&ip)
            .is_some_and(|at| now.duration_since(*at) < WINDOW);
        if known || self.seen.len() >= MAX_ADDRESSES {
            self.suppressed += 1;
            return None;
        }
        self.seen.insert(ip, now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_address_and_window() {
        let mut table = Table::default();
        let now = Instant::now();
        let (a, b) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert_eq!(table.note(a, now), Some(0));
        assert_eq!(table.note(a, now + Duration::from_secs(59)), None);
        assert_eq!(table.note(b, now + Duration::from_secs(59)), Some(1));
        assert_eq!(table.note(a, now + Duration::from_secs(61)), Some(0));
    }

    #[test]
    fn the_table_is_bounded_and_recovers() {
        let mut table = Table::default();
        let now = Instant::now();
        for i in 0..5_000u32 {
            table.note(IpAddr::from(i.to_be_bytes()), now);
        }
        assert_eq!(table.seen.len(), MAX_ADDRESSES);
        let later = now + WINDOW;
        assert_eq!(
            table.note(IpAddr::from([9, 9, 9, 9]), later),
            Some(5_000 - 1_024)
        );
        assert_eq!(table.seen.len(), 1);
    }
}
