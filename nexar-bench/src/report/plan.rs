//! What the bench `transports` measures, under which names: shared by the bench and the report.

use nexar_quic::Backend;

/// Plain TCP.
pub const TCP: &str = "TCP";
/// rustls over TCP: TLS 1.3 with certificates on both sides.
pub const TLS: &str = "TLS over TCP";

/// Bytes of a round trip, to and fro.
pub const ROUND_TRIP: usize = 8;
/// Bytes of one of many messages.
pub const MESSAGE: usize = 64;
/// Messages from one confirmation to the next.
pub const MESSAGES: usize = 10_000;
/// Bytes of a transfer.
pub const TRANSFERS: [usize; 3] = [64 << 10, 1 << 20, 64 << 20];
/// Numbers of ranks that all-reduce.
pub const ALL_REDUCE: [usize; 2] = [2, 4];
/// Bytes of an all-reduce.
pub const REDUCED: [usize; 3] = [8, 1 << 20, 64 << 20];
/// Numbers of ranks that form a group.
pub const FORMATION: [usize; 2] = [4, 8];

/// QUIC implementations, by the names of the transports that use them.
const IMPLEMENTATIONS: [&str; 2] = [Backend::Quinn.name(), Backend::S2nQuic.name()];

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// [`ROUND_TRIP`] bytes to and fro.
    RoundTrip,
    /// Messages of [`MESSAGE`] bytes one after the other.
    MessageRate,
    /// [`TRANSFERS`] from one side, with a confirmation.
    OneWay,
    /// [`TRANSFERS`] from both sides at the same time.
    BothWays,
    /// All-reduces in place.
    AllReduce,
    /// Ranks that are started become a group.
    Formation,
}

impl Group {
    /// All of them, in the order of the report.
    pub const ALL: [Group; 6] = [
        Group::RoundTrip,
        Group::MessageRate,
        Group::OneWay,
        Group::BothWays,
        Group::AllReduce,
        Group::Formation,
    ];

    /// The name of the group in criterion.
    pub const fn id(self) -> &'static str {
        match self {
            Group::RoundTrip => "round_trip",
            Group::MessageRate => "message_rate",
            Group::OneWay => "stream_one_way",
            Group::BothWays => "stream_both_ways",
            Group::AllReduce => "all_reduce",
            Group::Formation => "formation",
        }
    }

    /// The cases that each subject is measured in.
    pub fn cases(self) -> Vec<String> {
        match self {
            Group::RoundTrip => vec![size(ROUND_TRIP)],
            Group::MessageRate => vec![size(MESSAGE)],
            Group::OneWay | Group::BothWays => TRANSFERS.map(size).into(),
            Group::AllReduce => ALL_REDUCE
                .iter()
                .flat_map(|&ranks| REDUCED.map(|bytes| reduced(ranks, bytes)))
                .collect(),
            Group::Formation => FORMATION.map(ranks).into(),
        }
    }

    /// What is measured, if all of it is part of the build, in the order of the report.
    pub fn subjects(self) -> Vec<String> {
        let each = |name: fn(&str) -> String| IMPLEMENTATIONS.map(name);
        let yardsticks = [TCP, TLS].map(String::from);
        match self {
            Group::RoundTrip | Group::MessageRate => {
                [&each(nexar)[..], &each(messages), &yardsticks, &each(alone)].concat()
            }
            Group::OneWay | Group::BothWays => {
                [&each(nexar)[..], &yardsticks, &each(alone)].concat()
            }
            Group::AllReduce | Group::Formation => each(nexar).into(),
        }
    }
}

/// The name of a transport of nexar.
pub fn nexar(transport: &str) -> String {
    format!("nexar {transport}")
}

/// The name of nexar's messages over one of its transports.
pub fn messages(transport: &str) -> String {
    format!("nexar messages {transport}")
}

/// The name of a QUIC implementation used without nexar.
pub fn alone(implementation: &str) -> String {
    format!("{implementation} alone")
}

/// The QUIC implementation beneath a subject of nexar, without nexar.
pub(super) fn beneath(subject: &str) -> Option<String> {
    IMPLEMENTATIONS
        .into_iter()
        .find(|name| subject == nexar(name) || subject == messages(name))
        .map(alone)
}

/// The case of an all-reduce.
pub fn reduced(count: usize, bytes: usize) -> String {
    format!("{}, {}", ranks(count), size(bytes))
}

/// The transfer that moves the same bytes as an all-reduce of two ranks, both of which send all they
/// have to the other.
pub(super) fn exchanged(case: &str) -> Option<&str> {
    case.strip_prefix(&ranks(2))?.strip_prefix(", ")
}

/// The case of so many ranks.
pub fn ranks(count: usize) -> String {
    format!("{count} ranks")
}

/// A number of bytes, such as `64 KiB`.
pub fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = [8, 1_000, 64 << 10, 1 << 20, 64 << 20].map(size);
        assert_eq!(sizes, ["8 B", "1000 B", "64 KiB", "1 MiB", "64 MiB"]);
    }

    #[test]
    fn subjects_of_nexar_stand_on_a_quic_implementation() {
        assert_eq!(beneath("nexar quinn"), Some("quinn alone".into()));
        let messages = beneath("nexar messages s2n-quic");
        assert_eq!(messages, Some("s2n-quic alone".into()));
        assert_eq!(beneath("quinn alone"), None);
        assert_eq!(beneath(TCP), None);
    }

    #[test]
    fn two_ranks_exchange_what_they_reduce() {
        assert_eq!(exchanged(&reduced(2, 1 << 20)), Some("1 MiB"));
        assert_eq!(exchanged(&reduced(4, 1 << 20)), None);
    }

    #[test]
    fn criterion_keeps_the_names_as_they_are() {
        // It shortens names of more than 64 bytes and replaces these characters in directories.
        for group in Group::ALL {
            for name in group.subjects().iter().chain(&group.cases()) {
                assert!(
                    name.len() < 64
                        && !name.contains(['?', '"', '/', '\\', '*', '<', '>', ':', '|', '^']),
                    "{name}"
                );
            }
        }
    }
}
