//! The first bytes of a lane.

use super::WireError;

/// What a lane carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum LaneKind {
    /// The collectives of a communicator.
    Collective = 1,
    /// The small messages of a communicator, the announcements of the large ones and the answers.
    Message = 2,
    /// One large message.
    Bulk = 3,
    /// The calls of a communicator, their small bodies and the answers.
    Rpc = 4,
    /// One large body of a call, or one streamed reply.
    RpcBulk = 5,
}

impl LaneKind {
    /// Every kind.
    pub const ALL: [LaneKind; 5] = [
        LaneKind::Collective,
        LaneKind::Message,
        LaneKind::Bulk,
        LaneKind::Rpc,
        LaneKind::RpcBulk,
    ];

    fn from_wire(number: u8) -> Option<LaneKind> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Says which communicator and kind of traffic a unidirectional stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// The communicator.
    pub communicator: u64,
    /// The kind of traffic.
    pub kind: LaneKind,
    /// For [`LaneKind::Bulk`], the number of the transfer; for [`LaneKind::RpcBulk`], twice the number of
    /// the call, and one more if it carries the reply; otherwise 0.
    pub message: u64,
}

impl Preamble {
    /// Length on the wire.
    pub const LEN: usize = 20;

    const MAGIC: [u8; 3] = *b"nxl";

    /// The bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..3].copy_from_slice(&Self::MAGIC);
        bytes[3] = self.kind as u8;
        bytes[4..12].copy_from_slice(&self.communicator.to_le_bytes());
        bytes[12..].copy_from_slice(&self.message.to_le_bytes());
        bytes
    }

    /// The value of the bytes.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, WireError> {
        let malformed = WireError::Malformed("lane preamble");
        let (magic, rest) = bytes.split_at(3);
        if magic != Self::MAGIC {
            return Err(malformed);
        }
        let kind = LaneKind::from_wire(rest[0]).ok_or(malformed)?;
        Ok(Preamble {
            communicator: u64_at(bytes, 4),
            kind,
            message: u64_at(bytes, 12),
        })
    }
}

/// The integer at `at`; 0 where the bytes end before.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u64::from_le_bytes(*b))
}

/// The integer at `at`; 0 where the bytes end before.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preambles_round_trip_and_strangers_are_malformed() {
        for kind in LaneKind::ALL {
            let preamble = Preamble {
                communicator: u64::MAX - 5,
                kind,
                message: 77,
            };
            assert_eq!(Preamble::decode(&preamble.encode()), Ok(preamble));
        }
        let good = Preamble {
            communicator: 1,
            kind: LaneKind::Bulk,
            message: 2,
        }
        .encode();
        for at in 0..4 {
            let mut bad = good;
            bad[at] = 99;
            assert!(Preamble::decode(&bad).is_err(), "byte {at}");
        }
    }
}
