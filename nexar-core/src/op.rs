//! Reductions.

use crate::dtype::{DataType, UnknownName};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a reduction combines the elements of all ranks.
///
/// The discriminants are part of the wire format and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum. Integers wrap; f16 and bf16 are accumulated in f32 and rounded once.
    Sum = 1,
    /// The product. Integers wrap; f16 and bf16 are accumulated in f32 and rounded once.
    Product = 2,
    /// The minimum. A NaN on any rank gives NaN.
    Min = 3,
    /// The maximum. A NaN on any rank gives NaN.
    Max = 4,
    /// The sum divided by the world size. Integers are accumulated wide and rounded toward zero.
    Average = 5,
    /// Bitwise and, of integers and bool.
    BitAnd = 6,
    /// Bitwise or, of integers and bool.
    BitOr = 7,
    /// Bitwise exclusive or, of integers and bool.
    BitXor = 8,
    /// Logical and, of integers (non-zero is true, the result is 0 or 1) and bool.
    LogicalAnd = 9,
    /// Logical or, of integers and bool.
    LogicalOr = 10,
    /// Logical exclusive or, of integers and bool.
    LogicalXor = 11,
}

impl ReduceOp {
    /// Every reduction, in the order of the wire numbers.
    pub const ALL: [ReduceOp; 11] = [
        ReduceOp::Sum,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Average,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
        ReduceOp::LogicalAnd,
        ReduceOp::LogicalOr,
        ReduceOp::LogicalXor,
    ];

    /// The name used by the command-line tools and in messages: `sum`, `bit-and` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Product => "product",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Average => "average",
            ReduceOp::BitAnd => "bit-and",
            ReduceOp::BitOr => "bit-or",
            ReduceOp::BitXor => "bit-xor",
            ReduceOp::LogicalAnd => "logical-and",
            ReduceOp::LogicalOr => "logical-or",
            ReduceOp::LogicalXor => "logical-xor",
        }
    }

    /// The reduction with this wire number, if there is one.
    pub const fn from_wire(number: u8) -> Option<ReduceOp> {
        if number == 0 || number as usize > Self::ALL.len() {
            return None;
        }
        Some(Self::ALL[number as usize - 1])
    }

    /// Whether this reduction is defined for elements of `dtype`.
    ///
    /// Floats know sum, product, min, max and average; integers know everything; bool knows min, max
    /// and the bitwise and logical operations.
    pub const fn supports(self, dtype: DataType) -> bool {
        match self {
            ReduceOp::Min | ReduceOp::Max => true,
            ReduceOp::Sum | ReduceOp::Product | ReduceOp::Average => {
                !matches!(dtype, DataType::Bool)
            }
            _ => !dtype.is_float(),
        }
    }
}

/// A reduction that is not defined for a data type; see [`ReduceOp::supports`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{op} is not supported for {dtype}")]
#[non_exhaustive]
pub struct UnsupportedReduction {
    /// The reduction.
    pub op: ReduceOp,
    /// The element type.
    pub dtype: DataType,
}

impl ReduceOp {
    /// An error where this reduction is not defined for elements of `dtype`.
    pub const fn check(self, dtype: DataType) -> Result<(), UnsupportedReduction> {
        if self.supports(dtype) {
            Ok(())
        } else {
            Err(UnsupportedReduction { op: self, dtype })
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for ReduceOp {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|op| op.name() == name)
            .ok_or_else(|| UnknownName {
                kind: "reduction",
                name: name.to_owned(),
                expected: Self::ALL.map(ReduceOp::name).join(", "),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_numbers_and_names_round_trip() {
        for op in ReduceOp::ALL {
            assert_eq!(ReduceOp::from_wire(op as u8), Some(op));
            assert_eq!(op.name().parse::<ReduceOp>(), Ok(op));
        }
        assert_eq!(ReduceOp::from_wire(0), None);
        assert_eq!(ReduceOp::from_wire(12), None);
    }

    #[test]
    fn bool_and_floats_know_their_operations() {
        let known = |t| {
            ReduceOp::ALL
                .into_iter()
                .filter(|op| op.supports(t))
                .count()
        };
        assert_eq!(known(DataType::F16), 5);
        assert_eq!(known(DataType::Bool), 8);
        assert_eq!(known(DataType::U64), 11);
    }
}
