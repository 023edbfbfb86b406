//! Reductions on the CPU, over bytes.
//!
//! The element type is a run-time value, so that the code which moves bytes needs no type parameters.
//! Slices may have any alignment. Every function checks the lengths and the combination it is given and
//! returns a [`ReduceError`] where they do not fit. None panics, allocates, or uses other threads than the
//! caller's; those in [`parallel`] do, for large buffers, where CPUs are idle.
//!
//! # Narrow and wide
//!
//! [`reduce`] combines two buffers of the element type itself. Rounding once per rank would lose
//! precision for `f16` and `bf16`, and adding up an integer average would overflow. For these
//! [`accumulator`] names a wider type:
//!
//! ```
//! use nexar_device::reduce::{self, Accumulator};
//! use nexar_core::{DataType, Element, ReduceOp};
//!
//! let (dtype, op) = (DataType::U8, ReduceOp::Average);
//! let ranks: [[u8; 3]; 2] = [[200, 7, 0], [250, 8, 1]];
//!
//! let wide = reduce::accumulator(dtype, op).unwrap_or(Accumulator::I64);
//! let mut acc = vec![0; ranks[0].len() * wide.size()];
//! let mut out = [0u8; 3];
//! reduce::widen(dtype, wide, &mut acc, &ranks[0])?;
//! reduce::accumulate(dtype, wide, op, &mut acc, &ranks[1])?;
//! reduce::finish(dtype, wide, op, ranks.len(), &mut out, &acc)?;
//! assert_eq!(out, [225, 7, 0]);
//! # Ok::<(), nexar_device::reduce::ReduceError>(())
//! ```
//!
//! # Semantics
//!
//! - Integer sums and products wrap. Integer averages round toward zero.
//! - Float minimum and maximum give the canonical NaN where either operand is NaN, and take -0.0 as
//!   smaller than +0.0. Which NaN a sum or product gives is not specified; [`canonicalize_nan`] settles it.
//! - Logical operations take a non-zero integer as true and give 0 or 1. For bool every operation does
//!   so: bytes from elsewhere never become an invalid bool.
//! - Every operation is commutative, NaN payloads aside, and the same on every instruction set bit by bit.
//!
//! # Cost
//!
//! One pass over both buffers, vectorised for the instruction set found at run time: AVX2 with F16C or AVX-512 on
//! x86-64, NEON on 64-bit ARM, the target's baseline elsewhere. Buffers that are larger than the caches are reduced
//! as fast as memory allows. In the caches, in bytes of the narrower type and as a multiple of the time that a sum of
//! `f32` takes (on a Zen 4 with AVX-512; the example `reduce_speed` prints it all):
//!
//! - sums, products, minima and bit operations of integers: 1; minima of floats: 2;
//! - sums and products of `f16` and `bf16`: 2 to 2.5; in an accumulator: 2 each for [`widen`] and
//!   [`accumulate`], of whose bytes there are twice as many;
//! - [`finish`]: 1.5 for `f16` and 2.5 for `bf16`; averages over a number of ranks that is no power of two
//!   are limited by the division, 3 and 4;
//! - [`cast`]: 1 to 2 where one type is `f32`; 3 from the 16-bit types to `f64`; 7 from `f16` to `bf16`;
//! - averages of integers: [`widen`] and [`accumulate`] are limited by the accumulators, which have up to eight
//!   times as many bytes; [`finish`] divides element by element, 2 to 3 nanoseconds for each.
//!
//! Without AVX2 and off 64-bit ARM, conversions of `f16` are in integer arithmetic and take 10 to 20 times as
//! long.

mod cast;
mod check;
mod error;
mod float;
mod half;
mod lanes;
mod level;
mod native;
mod ops;
pub mod parallel;
mod select;
#[cfg(test)]
mod tests;
mod threads;

pub use error::ReduceError;

use level::Level;
use nexar_core::{DataType, ReduceOp};

/// A type that is wide enough to reduce the elements of many ranks with one rounding at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accumulator {
    /// binary32, for `f16` and `bf16`.
    F32,
    /// 64-bit integers, for averages of integers up to 32 bits; exact up to 2^31 ranks.
    I64,
    /// 128-bit integers, for averages of 64-bit integers.
    I128,
}

impl Accumulator {
    /// Every accumulator.
    pub const ALL: [Accumulator; 3] = [Accumulator::F32, Accumulator::I64, Accumulator::I128];

    /// Size of one accumulator in bytes.
    pub const fn size(self) -> usize {
        match self {
            Accumulator::F32 => 4,
            Accumulator::I64 => 8,
            Accumulator::I128 => 16,
        }
    }
}

/// The type in which to accumulate when many ranks are reduced; `None` where the element type itself is
/// right, and where the operation is not supported.
pub const fn accumulator(dtype: DataType, op: ReduceOp) -> Option<Accumulator> {
    match (dtype, op) {
        (DataType::F16 | DataType::Bf16, ReduceOp::Sum | ReduceOp::Product | ReduceOp::Average) => {
            Some(Accumulator::F32)
        }
        (DataType::I64 | DataType::U64, ReduceOp::Average) => Some(Accumulator::I128),
        (_, ReduceOp::Average) if dtype.is_integer() => Some(Accumulator::I64),
        _ => None,
    }
}

/// `acc = acc op incoming`, element by element in `dtype` itself. `f16` and `bf16` are combined in `f32`
/// and rounded to nearest even. [`ReduceOp::Average`] combines like [`ReduceOp::Sum`]; see
/// [`finish_in_place`].
///
/// # Errors
///
/// The slices differ in length or hold a part of an element, or `op` is not defined for `dtype`. `acc` is
/// then unchanged.
///
/// ```
/// use nexar_device::reduce;
/// use nexar_core::{DataType, Element, ReduceOp};
///
/// let mut acc = f32::as_bytes(&[1.0, 2.0]).to_vec();
/// reduce::reduce(DataType::F32, ReduceOp::Sum, &mut acc, f32::as_bytes(&[0.5, 4.0]))?;
/// assert_eq!(acc, f32::as_bytes(&[1.5, 6.0]));
/// # Ok::<(), nexar_device::reduce::ReduceError>(())
/// ```
pub fn reduce(
    dtype: DataType,
    op: ReduceOp,
    acc: &mut [u8],
    incoming: &[u8],
) -> Result<(), ReduceError> {
    check::reduce(dtype, op, acc.len(), incoming.len())?;
    select::reduce(Level::best(), dtype, op, acc, incoming);
    Ok(())
}

/// `acc = source`, each element converted to the accumulator.
///
/// # Errors
///
/// The slices hold different numbers of elements or a part of one, or no reduction of `dtype` uses this
/// accumulator. `acc` is then unchanged.
pub fn widen(
    dtype: DataType,
    accumulator: Accumulator,
    acc: &mut [u8],
    source: &[u8],
) -> Result<(), ReduceError> {
    check::widen(dtype, accumulator, acc.len(), source.len())?;
    select::widen(Level::best(), dtype, acc, source);
    Ok(())
}

/// `acc = acc op incoming`, with `acc` in the accumulator and `incoming` in `dtype`.
///
/// # Errors
///
/// The slices hold different numbers of elements or a part of one, or the accumulator is not
/// [`accumulator`]`(dtype, op)`. `acc` is then unchanged.
pub fn accumulate(
    dtype: DataType,
    accumulator: Accumulator,
    op: ReduceOp,
    acc: &mut [u8],
    incoming: &[u8],
) -> Result<(), ReduceError> {
    check::accumulate(dtype, accumulator, op, acc.len(), incoming.len())?;
    select::accumulate(Level::best(), dtype, op, acc, incoming);
    Ok(())
}

/// `acc = acc op incoming`, both in the accumulator.
///
/// # Errors
///
/// The slices differ in length or hold a part of an element, or no data type uses this accumulator for
/// `op`. `acc` is then unchanged.
pub fn combine(
    accumulator: Accumulator,
    op: ReduceOp,
    acc: &mut [u8],
    incoming: &[u8],
) -> Result<(), ReduceError> {
    check::combine(accumulator, op, acc.len(), incoming.len())?;
    select::combine(Level::best(), accumulator, op, acc, incoming);
    Ok(())
}

/// `out = acc`, each element rounded once to `dtype`; for [`ReduceOp::Average`] divided by `world` first,
/// floats in `f32` and then to nearest even, integers toward zero.
///
/// # Errors
///
/// The slices hold different numbers of elements or a part of one, the accumulator is not
/// [`accumulator`]`(dtype, op)`, or `world` is 0. `out` is then unchanged.
pub fn finish(
    dtype: DataType,
    accumulator: Accumulator,
    op: ReduceOp,
    world: usize,
    out: &mut [u8],
    acc: &[u8],
) -> Result<(), ReduceError> {
    check::finish(dtype, accumulator, op, world, out.len(), acc.len())?;
    select::finish(Level::best(), dtype, divisor(op, world), out, acc);
    Ok(())
}

/// Completes what [`reduce`] has combined: for [`ReduceOp::Average`] of `f32` and `f64` divides by
/// `world`; otherwise does nothing, as the averages of the other types are completed by [`finish`].
///
/// # Errors
///
/// The buffer holds a part of an element, `op` is not defined for `dtype`, or `world` is 0. `buffer` is
/// then unchanged.
pub fn finish_in_place(
    dtype: DataType,
    op: ReduceOp,
    world: usize,
    buffer: &mut [u8],
) -> Result<(), ReduceError> {
    check::finish_in_place(dtype, op, world, buffer.len())?;
    if op == ReduceOp::Average {
        select::divide(Level::best(), dtype, world, buffer);
    }
    Ok(())
}

/// Makes every non-zero byte 1, so that the bytes are valid bools.
pub fn normalize_bool(bytes: &mut [u8]) {
    select::normalize_bool(Level::best(), bytes);
}

/// Copies bools: a non-zero byte of `incoming` becomes 1 in `out`.
///
/// # Errors
///
/// The slices differ in length. `out` is then unchanged.
pub fn copy_bool(out: &mut [u8], incoming: &[u8]) -> Result<(), ReduceError> {
    check::equal(out.len(), incoming.len())?;
    select::copy_bool(Level::best(), out, incoming);
    Ok(())
}

/// Gives every NaN the same bits (quiet, positive, no payload), so that ranks which combined the same
/// values in a different order hold the same bits. Does nothing for integers and bool.
///
/// # Errors
///
/// The buffer holds a part of an element; it is then unchanged.
pub fn canonicalize_nan(dtype: DataType, buffer: &mut [u8]) -> Result<(), ReduceError> {
    check::whole(buffer.len(), dtype.size())?;
    select::canonicalize_nan(Level::best(), dtype, buffer);
    Ok(())
}

/// `out = source`, each element converted from one float type (`f16`, `bf16`, `f32`, `f64`) to another.
///
/// It is rounded once, to nearest with ties to even, whatever the two types; what is too large becomes
/// infinite. A NaN stays one and becomes quiet. A cast to the same type copies the bytes.
///
/// # Errors
///
/// One of the types is no float type, or the slices hold different numbers of elements or a part of one.
/// `out` is then unchanged.
///
/// ```
/// use nexar_core::{DataType, Element, bf16};
/// use nexar_device::reduce;
///
/// let mut out = [0; 4];
/// reduce::cast(DataType::F64, DataType::Bf16, &mut out, f64::as_bytes(&[1.0, 1e300]))?;
/// assert_eq!(out, bf16::as_bytes(&[bf16::ONE, bf16::INFINITY]));
/// # Ok::<(), reduce::ReduceError>(())
/// ```
pub fn cast(
    from: DataType,
    to: DataType,
    out: &mut [u8],
    source: &[u8],
) -> Result<(), ReduceError> {
    check::cast(from, to, out.len(), source.len())?;
    select::cast(Level::best(), from, to, out, source);
    Ok(())
}

/// Sets every element of `buffer` to `element`, given by its bytes. For bool a non-zero byte counts as 1.
///
/// # Errors
///
/// `element` does not have the size of an element, or the buffer holds a part of one. `buffer` is then
/// unchanged.
///
/// ```
/// use nexar_core::{DataType, Element};
/// use nexar_device::reduce;
///
/// let mut buffer = [0; 12];
/// reduce::fill(DataType::I32, &mut buffer, &(-7i32).to_le_bytes())?;
/// assert_eq!(buffer, i32::as_bytes(&[-7, -7, -7]));
/// # Ok::<(), reduce::ReduceError>(())
/// ```
pub fn fill(dtype: DataType, buffer: &mut [u8], element: &[u8]) -> Result<(), ReduceError> {
    check::fill(dtype, buffer.len(), element.len())?;
    select::fill(Level::best(), dtype, element, buffer);
    Ok(())
}

/// By what an accumulator is divided in the end.
fn divisor(op: ReduceOp, world: usize) -> usize {
    if op == ReduceOp::Average { world } else { 1 }
}
