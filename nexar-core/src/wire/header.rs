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
//! | 6..8 | 0 |
//! | 8..12 | root |
//! | 12..20 | sequence number |
//! | 20..28 | count |

use super::{
    WireError,
    preamble::{u32_at, u64_at},
};
use crate::{Algorithm, Call, Collective, DataType, ReduceOp};

/// Length of a header.
pub const HEADER_LEN: usize = 28;

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
    bytes
}

/// The call of a header.
pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Call, WireError> {
    let malformed = || WireError::Malformed("collective header");
    if bytes[0] != MAGIC || bytes[6..8] != [0, 0] {
        return Err(malformed());
    }
    let optional = |number: u8| (number != 0).then_some(number);
    let root = match bytes[5] {
        0 => None,
        1 => Some(u32_at(bytes, 8)),
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
            },
            Call {
                collective: Collective::Broadcast,
                sequence: 3,
                dtype: Some(DataType::Bool),
                op: Some(ReduceOp::LogicalXor),
                count: u64::MAX - 1,
                root: Some(0),
                algorithm: Algorithm::Ring,
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
        });
        for (at, value) in [
            (0, 0),
            (1, 0),
            (1, 200),
            (2, 14),
            (3, 12),
            (5, 2),
            (6, 1),
            (7, 1),
        ] {
            let mut bad = good;
            bad[at] = value;
            assert!(decode(&bad).is_err(), "byte {at} = {value}");
        }
    }
}
