//! The header of a point-to-point message on a message lane.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | 0x6d |
//! | 1 | 1: the body follows; 2: announcement of a message that comes on a bulk lane |
//! | 2..4 | 0 |
//! | 4..12 | tag |
//! | 12..20 | length of the body in bytes |
//! | 20..28 | number of the message, from 0 for each communicator, sender and receiver |

use super::{WireError, preamble::u64_at};

/// How the body of a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Delivery {
    /// The body follows the header.
    Eager = 1,
    /// The body comes on a bulk lane, once the receiver has asked for it.
    Announced = 2,
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// How the body travels.
    pub delivery: Delivery,
    /// The tag.
    pub tag: u64,
    /// Length of the body in bytes.
    pub length: u64,
    /// Number of the message.
    pub message: u64,
}

impl MessageHeader {
    /// Length on the wire.
    pub const LEN: usize = 28;

    const MAGIC: u8 = 0x6d;

    /// The bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = Self::MAGIC;
        bytes[1] = self.delivery as u8;
        bytes[4..12].copy_from_slice(&self.tag.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..].copy_from_slice(&self.message.to_le_bytes());
        bytes
    }

    /// The value of the bytes. An eager body longer than `eager_limit` is refused.
    pub fn decode(bytes: &[u8; Self::LEN], eager_limit: u64) -> Result<Self, WireError> {
        let malformed = WireError::Malformed("message header");
        if bytes[0] != Self::MAGIC || bytes[2..4] != [0, 0] {
            return Err(malformed);
        }
        let delivery = match bytes[1] {
            1 => Delivery::Eager,
            2 => Delivery::Announced,
            _ => return Err(malformed),
        };
        let length = u64_at(bytes, 12);
        if delivery == Delivery::Eager && length > eager_limit {
            return Err(WireError::TooLong {
                what: "small message",
                length,
                limit: eager_limit,
            });
        }
        Ok(MessageHeader {
            delivery,
            tag: u64_at(bytes, 4),
            length,
            message: u64_at(bytes, 20),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_lies_are_refused() {
        let header = MessageHeader {
            delivery: Delivery::Announced,
            tag: u64::MAX,
            length: u64::MAX,
            message: 5,
        };
        assert_eq!(MessageHeader::decode(&header.encode(), 100), Ok(header));
        let eager = MessageHeader {
            delivery: Delivery::Eager,
            length: 100,
            ..header
        };
        assert_eq!(MessageHeader::decode(&eager.encode(), 100), Ok(eager));
        assert!(MessageHeader::decode(&eager.encode(), 99).is_err());
        for (at, value) in [(0, 1), (1, 0), (1, 3), (2, 1)] {
            let mut bad = header.encode();
            bad[at] = value;
            assert!(MessageHeader::decode(&bad, 100).is_err(), "byte {at}");
        }
    }
}
