//! The libraries.

use super::plan::Line;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Another library, which may or may not be there.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Peer {
    /// Open MPI over TCP.
    #[value(name = "openmpi")]
    #[serde(rename = "openmpi")]
    OpenMpi,
    /// Gloo over TCP, by `torch.distributed`.
    Gloo,
    /// The crate nexar 0.2.0.
    #[value(name = "nexar-0.2")]
    #[serde(rename = "nexar-0.2")]
    Nexar02,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 3] = [Peer::OpenMpi, Peer::Gloo, Peer::Nexar02];

    /// The name that the command line knows.
    pub const fn name(self) -> &'static str {
        match self {
            Peer::OpenMpi => "openmpi",
            Peer::Gloo => "gloo",
            Peer::Nexar02 => "nexar-0.2",
        }
    }
}

/// What has a column of its own: a library with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Subject {
    /// nexar on quinn, its default.
    Quinn,
    /// nexar on s2n-quic.
    S2nQuic,
    /// Open MPI over TCP.
    #[serde(rename = "openmpi")]
    OpenMpi,
    /// Gloo over TCP.
    Gloo,
    /// nexar 0.2.0 with its defaults: TLS over TCP.
    #[serde(rename = "nexar-0.2")]
    Nexar02,
    /// nexar 0.2.0 with QUIC only.
    #[serde(rename = "nexar-0.2-quic")]
    Nexar02Quic,
}

impl Subject {
    /// All, in the order of measuring and of the columns.
    pub const ALL: [Subject; 6] = [
        Subject::Quinn,
        Subject::S2nQuic,
        Subject::OpenMpi,
        Subject::Gloo,
        Subject::Nexar02,
        Subject::Nexar02Quic,
    ];

    /// What ratios and targets are about: the default.
    pub const REFERENCE: Subject = Subject::Quinn;

    /// Its name in tables, charts and messages.
    pub const fn title(self) -> &'static str {
        match self {
            Subject::Quinn => "quinn",
            Subject::S2nQuic => "s2n-quic",
            Subject::OpenMpi => "Open MPI",
            Subject::Gloo => "Gloo",
            Subject::Nexar02 => "nexar 0.2.0",
            Subject::Nexar02Quic => "nexar 0.2.0 QUIC",
        }
    }

    /// The library, unless it is this one.
    pub const fn peer(self) -> Option<Peer> {
        match self {
            Subject::Quinn | Subject::S2nQuic => None,
            Subject::OpenMpi => Some(Peer::OpenMpi),
            Subject::Gloo => Some(Peer::Gloo),
            Subject::Nexar02 | Subject::Nexar02Quic => Some(Peer::Nexar02),
        }
    }

    /// Whether there is such a thing to measure. Peers have no setting like nexar's spin, and only nexar has
    /// remote calls.
    pub fn measures(self, line: &Line) -> bool {
        match self {
            Subject::Quinn | Subject::S2nQuic => true,
            Subject::Nexar02 => line.spin,
            // With QUIC only, calls of nexar 0.2.0 go the same way as with its defaults.
            _ => line.spin && !line.operation.is_call(),
        }
    }

    /// Whether starting it takes seconds, so that it measures several lines at a time.
    pub(super) fn starts_slowly(self) -> bool {
        self == Subject::Gloo
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::Operation;

    #[test]
    fn every_peer_has_a_subject_and_a_name() {
        for peer in Peer::ALL {
            assert!(Subject::ALL.iter().any(|s| s.peer() == Some(peer)));
            assert_eq!(serde_json::to_value(peer).unwrap(), peer.name());
            assert_eq!(Peer::from_str(peer.name(), false), Ok(peer));
        }
    }

    #[test]
    fn only_nexar_is_measured_without_its_spin() {
        let line = Line::new(Operation::AllReduce, 2, 8);
        for subject in Subject::ALL {
            assert!(subject.measures(&line));
            assert_eq!(
                subject.measures(&line.without_spin()),
                subject.peer().is_none()
            );
        }
        let calls = Line::new(Operation::Calls, 2, 8);
        assert!(Subject::Nexar02.measures(&calls) && !Subject::Gloo.measures(&calls));
    }
}
