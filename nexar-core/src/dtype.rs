//! Element types that travel through messages and collectives.

use serde::{Deserialize, Serialize};
use std::fmt;

pub use half::{bf16, f16};

/// The element type of a buffer, as it is named on the wire.
///
/// The discriminants are part of the wire format and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum DataType {
    /// IEEE 754 binary32.
    F32 = 1,
    /// IEEE 754 binary64.
    F64 = 2,
    /// IEEE 754 binary16.
    F16 = 3,
    /// bfloat16: the upper half of a binary32.
    Bf16 = 4,
    /// Signed 8-bit integer.
    I8 = 5,
    /// Signed 16-bit integer.
    I16 = 6,
    /// Signed 32-bit integer.
    I32 = 7,
    /// Signed 64-bit integer.
    I64 = 8,
    /// Unsigned 8-bit integer.
    U8 = 9,
    /// Unsigned 16-bit integer.
    U16 = 10,
    /// Unsigned 32-bit integer.
    U32 = 11,
    /// Unsigned 64-bit integer.
    U64 = 12,
    /// One byte, 0 or 1.
    Bool = 13,
}

impl DataType {
    /// Every data type, in the order of the wire numbers.
    pub const ALL: [DataType; 13] = [
        DataType::F32,
        DataType::F64,
        DataType::F16,
        DataType::Bf16,
        DataType::I8,
        DataType::I16,
        DataType::I32,
        DataType::I64,
        DataType::U8,
        DataType::U16,
        DataType::U32,
        DataType::U64,
        DataType::Bool,
    ];

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DataType::I8 | DataType::U8 | DataType::Bool => 1,
            DataType::F16 | DataType::Bf16 | DataType::I16 | DataType::U16 => 2,
            DataType::F32 | DataType::I32 | DataType::U32 => 4,
            DataType::F64 | DataType::I64 | DataType::U64 => 8,
        }
    }

    /// The name used by the command-line tools and in messages: `f32`, `bf16`, `bool` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            DataType::F32 => "f32",
            DataType::F64 => "f64",
            DataType::F16 => "f16",
            DataType::Bf16 => "bf16",
            DataType::I8 => "i8",
            DataType::I16 => "i16",
            DataType::I32 => "i32",
            DataType::I64 => "i64",
            DataType::U8 => "u8",
            DataType::U16 => "u16",
            DataType::U32 => "u32",
            DataType::U64 => "u64",
            DataType::Bool => "bool",
        }
    }

    /// The data type with this wire number, if there is one.
    pub const fn from_wire(number: u8) -> Option<DataType> {
        if number == 0 || number as usize > Self::ALL.len() {
            return None;
        }
        Some(Self::ALL[number as usize - 1])
    }

    /// Whether this is one of the four floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            DataType::F32 | DataType::F64 | DataType::F16 | DataType::Bf16
        )
    }

    /// Whether this is one of the eight integer types (bool is not one).
    pub const fn is_integer(self) -> bool {
        !self.is_float() && !matches!(self, DataType::Bool)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for DataType {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|t| t.name() == name)
            .ok_or_else(|| UnknownName {
                kind: "data type",
                name: name.to_owned(),
                expected: Self::ALL.map(DataType::name).join(", "),
            })
    }
}

/// A name that stands for no data type or reduction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} '{name}': expected one of {expected}")]
pub struct UnknownName {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) expected: String,
}

mod sealed {
    pub trait Sealed {}
}

/// A type whose slices can be communicated.
///
/// The trait is sealed: it is implemented for `f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool`.
///
/// ```
/// use nexar_core::{DataType, Element};
/// assert_eq!(f32::DATA_TYPE, DataType::F32);
/// assert_eq!(f32::as_bytes(&[1.0]), &[0, 0, 0x80, 0x3f]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type",
    note = "elements are f32, f64, f16, bf16, i8 to i64, u8 to u64, and bool; use u64 for usize"
)]
pub trait Element:
    sealed::Sealed + Copy + Default + Send + Sync + PartialEq + fmt::Debug + 'static
{
    /// The run-time name of this type.
    const DATA_TYPE: DataType;

    /// The bytes of a slice, in the order in which they travel (little-endian).
    fn as_bytes(slice: &[Self]) -> &[u8] {
        // SAFETY: every implementor is a plain scalar without padding, so all its bytes are
        // initialised; u8 has alignment 1; the length in bytes is that of the slice.
        unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
    }
}

/// The bytes of a typed slice, to be overwritten by a received value.
///
/// # Safety
///
/// Whatever is written must be valid for `T`: for `bool`, each byte 0 or 1. All other element types
/// take any bytes.
pub unsafe fn as_bytes_mut<T: Element>(slice: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `Element::as_bytes`; the caller keeps the bytes valid for `T`, and the
    // exclusive borrow is handed on.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice)) }
}

macro_rules! elements {
    ($($type:ty => $name:ident),* $(,)?) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DATA_TYPE: DataType = DataType::$name;
        }
    )*};
}

elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    bool => Bool,
}

#[cfg(target_endian = "big")]
compile_error!("nexar sends elements in memory order and supports little-endian targets only");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_numbers_round_trip() {
        for t in DataType::ALL {
            assert_eq!(DataType::from_wire(t as u8), Some(t));
            assert_eq!(t.name().parse::<DataType>(), Ok(t));
        }
        assert_eq!(DataType::from_wire(0), None);
        assert_eq!(DataType::from_wire(14), None);
    }

    #[test]
    fn sizes_match_the_rust_types() {
        fn check<T: Element>() {
            assert_eq!(size_of::<T>(), T::DATA_TYPE.size(), "{}", T::DATA_TYPE);
        }
        check::<f32>();
        check::<f64>();
        check::<f16>();
        check::<bf16>();
        check::<i8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<u8>();
        check::<u16>();
        check::<u32>();
        check::<u64>();
        check::<bool>();
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let error = "float".parse::<DataType>().unwrap_err();
        assert!(error.to_string().contains("'float'"));
        assert!(error.to_string().contains("bf16"));
    }
}
