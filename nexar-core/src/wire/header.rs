//! The header with which a collective announces itself on each lane it uses.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | 0x6e |
//! | 1 | collective |
//! | 2 | data type, 0 for none |
//! | 3 | reduction, 0 for none |
//! | 4 | algorithm |
//! | 5 | 1 if there is a root |
//! | 6 | 1 if there is an exchange |
//! | 7 | 0 |
//! | 8..12 | root |
//! | 12..20 | sequence number |
//! | 20..28 | count |
//! | 28..36 | digest |
//! | 36..40 | bytes of an element |
//! | 40..48 | elements that the sender sends to the receiver, 0 without an exchange |
//! | 48..56 | elements that it expects from there, 0 without an exchange |
//! | 56..60 | blocks of both, 0 without an exchange |

use super::{
    WireError,
    preamble::{u32_at, u64_at},
};
use crate::{Algorithm, Call, Collective, DataType, Exchange, ReduceOp};

/// Length of a header.
pub const HEADER_LEN: usize = 60;

const MAGIC: u8 = 0x6e;

/// The header of `call`.
pub fn encode(call: &Call) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[0] = MAGIC;
    bytes[1] = call.collective as u8;
    bytes[2] = call.dtype.map_or(0, |t| t as u8);
    bytes[3] = call.op.map_or(0, |op| op as u8);
    bytes[4] = call.algorithm as u8;
    bytes[5] = u8::from(call.root.is_some());
    bytes[8..12].copy_from_slice(&call.root.unwrap_or(0).to_le_bytes());
    bytes[12..20].copy_from_slice(&call.sequence.to_le_bytes());
    bytes[20..28].copy_from_slice(&call.count.to_le_bytes());
    bytes[28..36].copy_from_slice(&call.digest.to_le_bytes());
    bytes[36..40].copy_from_slice(&call.element.to_le_bytes());
    if let Some(exchange) = call.exchange {
        bytes[6] = 1;
        bytes[40..48].copy_from_slice(&exchange.sends.to_le_bytes());
        bytes[48..56].copy_from_slice(&exchange.expects.to_le_bytes());
        bytes[56..60].copy_from_slice(&exchange.blocks.to_le_bytes());
    }
    bytes
}

/// The call of a header.
pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Call, WireError> {
    let malformed = || WireError::Malformed("collective header");
    if bytes[0] != MAGIC || bytes[7] != 0 {
        return Err(malformed());
    }
    let optional = |number: u8| (number != 0).then_some(number);
    let root = match bytes[5] {
        0 => None,
        1 => Some(u32_at(bytes, 8)),
        _ => return Err(malformed()),
    };
    let exchange = match bytes[6] {
        0 => None,
        1 => Some(Exchange {
            sends: u64_at(bytes, 40),
            expects: u64_at(bytes, 48),
            blocks: u32_at(bytes, 56),
        }),
        _ => return Err(malformed()),
    };
    Ok(Call {
        collective: Collective::from_wire(bytes[1]).ok_or_else(malformed)?,
        sequence: u64_at(bytes, 12),
        dtype: optional(bytes[2])
            .map(|n| DataType::from_wire(n).ok_or_else(malformed))
            .transpose()?,
        op: optional(bytes[3])
            .map(|n| ReduceOp::from_wire(n).ok_or_else(malformed))
            .transpose()?,
        count: u64_at(bytes, 20),
        root,
        algorithm: Algorithm::from_wire(bytes[4]).ok_or_else(malformed)?,
        digest: u64_at(bytes, 28),
        element: u32_at(bytes, 36),
        exchange,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let calls = [
            Call {
                collective: Collective::Barrier,
                sequence: u64::MAX,
                dtype: None,
                op: None,
                count: 0,
                root: None,
                algorithm: Algorithm::Dissemination,
                element: 0,
                digest: 0,
                exchange: None,
            },
            Call {
                collective: Collective::Broadcast,
                sequence: 3,
                dtype: Some(DataType::Bool),
                op: Some(ReduceOp::LogicalXor),
                count: u64::MAX - 1,
                root: Some(0),
                algorithm: Algorithm::Ring,
                element: u32::MAX,
                digest: u64::MAX - 3,
                exchange: Some(Exchange {
                    sends: u64::MAX - 7,
                    expects: 5,
                    blocks: 77,
                }),
            },
        ];
        for call in calls {
            assert_eq!(decode(&encode(&call)), Ok(call));
        }
    }

    #[test]
    fn unknown_numbers_are_malformed() {
        let good = encode(&Call {
            collective: Collective::AllReduce,
            sequence: 1,
            dtype: Some(DataType::F32),
            op: Some(ReduceOp::Sum),
            count: 4,
            root: None,
            algorithm: Algorithm::Direct,
            element: 0,
            digest: 0,
            exchange: None,
        });
        for (at, value) in [
            (0, 0),
            (1, 0),
            (1, 200),
            (2, 14),
            (3, 12),
            (5, 2),
            (6, 2),
            (7, 1),
        ] {
            let mut bad = good;
            bad[at] = value;
            assert!(decode(&bad).is_err(), "byte {at} = {value}");
        }
    }
}
