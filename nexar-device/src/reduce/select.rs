//! From run-time types to typed loops. The callers have checked lengths and combinations; one that got
//! past them would change nothing.

use super::{
    Accumulator,
    float::{Binary16, Binary32, Binary64, Brain16, Canonical, Ordered},
    half::{NarrowQuotient, Rounded, WidenHalf, Widened},
    lanes::{Combine, map, update, zip},
    level::Level,
    ops::{
        BitAnd, BitOr, BitXor, Divide, LogicalAnd, LogicalOr, LogicalXor, Max, Min, Product, Sum,
        Widen,
    },
};
use nexar_core::{DataType, ReduceOp};

/// Sum or product.
trait Arithmetic:
    Combine<f32> + Combine<f64> + Combine<u8> + Combine<u16> + Combine<u32> + Combine<u64>
{
}
impl Arithmetic for Sum {}
impl Arithmetic for Product {}

/// Minimum or maximum.
trait Choice:
    Combine<u8>
    + Combine<u16>
    + Combine<u32>
    + Combine<u64>
    + Combine<i8>
    + Combine<i16>
    + Combine<i32>
    + Combine<i64>
{
}
impl Choice for Min {}
impl Choice for Max {}

/// A logical operation.
trait Logical: Combine<u8> + Combine<u16> + Combine<u32> + Combine<u64> {}
impl Logical for LogicalAnd {}
impl Logical for LogicalOr {}
impl Logical for LogicalXor {}

/// `acc = acc op incoming` in the element type.
pub(super) fn reduce(level: Level, dtype: DataType, op: ReduceOp, acc: &mut [u8], incoming: &[u8]) {
    match (op, dtype) {
        // For bool all operations are logical ones, which store 0 or 1 whatever they read.
        (ReduceOp::Min | ReduceOp::BitAnd, DataType::Bool) => {
            logical(level, dtype, LogicalAnd, acc, incoming)
        }
        (ReduceOp::Max | ReduceOp::BitOr, DataType::Bool) => {
            logical(level, dtype, LogicalOr, acc, incoming)
        }
        (ReduceOp::BitXor, DataType::Bool) => logical(level, dtype, LogicalXor, acc, incoming),
        (ReduceOp::Sum | ReduceOp::Average, _) => arithmetic(level, dtype, Sum, acc, incoming),
        (ReduceOp::Product, _) => arithmetic(level, dtype, Product, acc, incoming),
        (ReduceOp::Min, _) => choice(level, dtype, Min, acc, incoming),
        (ReduceOp::Max, _) => choice(level, dtype, Max, acc, incoming),
        (ReduceOp::BitAnd, _) => zip::<u8, u8>(level, acc, incoming, BitAnd),
        (ReduceOp::BitOr, _) => zip::<u8, u8>(level, acc, incoming, BitOr),
        (ReduceOp::BitXor, _) => zip::<u8, u8>(level, acc, incoming, BitXor),
        (ReduceOp::LogicalAnd, _) => logical(level, dtype, LogicalAnd, acc, incoming),
        (ReduceOp::LogicalOr, _) => logical(level, dtype, LogicalOr, acc, incoming),
        (ReduceOp::LogicalXor, _) => logical(level, dtype, LogicalXor, acc, incoming),
        _ => {}
    }
}

fn arithmetic(level: Level, dtype: DataType, op: impl Arithmetic, acc: &mut [u8], incoming: &[u8]) {
    match dtype {
        DataType::F32 => zip::<f32, f32>(level, acc, incoming, op),
        DataType::F64 => zip::<f64, f64>(level, acc, incoming, op),
        DataType::F16 => combine_f16(level, op, acc, incoming),
        DataType::Bf16 => zip::<u16, u16>(level, acc, incoming, Rounded(Brain16, op)),
        DataType::I8 | DataType::U8 => zip::<u8, u8>(level, acc, incoming, op),
        DataType::I16 | DataType::U16 => zip::<u16, u16>(level, acc, incoming, op),
        DataType::I32 | DataType::U32 => zip::<u32, u32>(level, acc, incoming, op),
        DataType::I64 | DataType::U64 => zip::<u64, u64>(level, acc, incoming, op),
        _ => {}
    }
}

fn choice(level: Level, dtype: DataType, op: impl Choice, acc: &mut [u8], incoming: &[u8]) {
    match dtype {
        DataType::F32 => zip::<u32, u32>(level, acc, incoming, Ordered(Binary32, op)),
        DataType::F64 => zip::<u64, u64>(level, acc, incoming, Ordered(Binary64, op)),
        DataType::F16 => zip::<u16, u16>(level, acc, incoming, Ordered(Binary16, op)),
        DataType::Bf16 => zip::<u16, u16>(level, acc, incoming, Ordered(Brain16, op)),
        DataType::I8 => zip::<i8, i8>(level, acc, incoming, op),
        DataType::I16 => zip::<i16, i16>(level, acc, incoming, op),
        DataType::I32 => zip::<i32, i32>(level, acc, incoming, op),
        DataType::I64 => zip::<i64, i64>(level, acc, incoming, op),
        DataType::U8 => zip::<u8, u8>(level, acc, incoming, op),
        DataType::U16 => zip::<u16, u16>(level, acc, incoming, op),
        DataType::U32 => zip::<u32, u32>(level, acc, incoming, op),
        DataType::U64 => zip::<u64, u64>(level, acc, incoming, op),
        _ => {}
    }
}

fn logical(level: Level, dtype: DataType, op: impl Logical, acc: &mut [u8], incoming: &[u8]) {
    match dtype.size() {
        1 => zip::<u8, u8>(level, acc, incoming, op),
        2 => zip::<u16, u16>(level, acc, incoming, op),
        4 => zip::<u32, u32>(level, acc, incoming, op),
        _ => zip::<u64, u64>(level, acc, incoming, op),
    }
}

/// `acc = source` in the accumulator of `dtype`.
pub(super) fn widen(level: Level, dtype: DataType, acc: &mut [u8], source: &[u8]) {
    match dtype {
        DataType::F16 => widen_f16(level, acc, source),
        DataType::Bf16 => map::<f32, u16>(level, acc, source, WidenHalf(Brain16)),
        DataType::I8 => map::<i64, i8>(level, acc, source, Widen),
        DataType::I16 => map::<i64, i16>(level, acc, source, Widen),
        DataType::I32 => map::<i64, i32>(level, acc, source, Widen),
        DataType::U8 => map::<i64, u8>(level, acc, source, Widen),
        DataType::U16 => map::<i64, u16>(level, acc, source, Widen),
        DataType::U32 => map::<i64, u32>(level, acc, source, Widen),
        DataType::I64 => map::<i128, i64>(level, acc, source, Widen),
        DataType::U64 => map::<i128, u64>(level, acc, source, Widen),
        _ => {}
    }
}

/// `acc = acc op incoming`, with `acc` in the accumulator of `dtype`.
pub(super) fn accumulate(
    level: Level,
    dtype: DataType,
    op: ReduceOp,
    acc: &mut [u8],
    incoming: &[u8],
) {
    match (dtype, op) {
        (DataType::F16, ReduceOp::Product) => accumulate_f16(level, Product, acc, incoming),
        (DataType::F16, _) => accumulate_f16(level, Sum, acc, incoming),
        (DataType::Bf16, ReduceOp::Product) => {
            zip::<f32, u16>(level, acc, incoming, Widened(Brain16, Product))
        }
        (DataType::Bf16, _) => zip::<f32, u16>(level, acc, incoming, Widened(Brain16, Sum)),
        (DataType::I8, _) => zip::<i64, i8>(level, acc, incoming, Sum),
        (DataType::I16, _) => zip::<i64, i16>(level, acc, incoming, Sum),
        (DataType::I32, _) => zip::<i64, i32>(level, acc, incoming, Sum),
        (DataType::U8, _) => zip::<i64, u8>(level, acc, incoming, Sum),
        (DataType::U16, _) => zip::<i64, u16>(level, acc, incoming, Sum),
        (DataType::U32, _) => zip::<i64, u32>(level, acc, incoming, Sum),
        (DataType::I64, _) => zip::<i128, i64>(level, acc, incoming, Sum),
        (DataType::U64, _) => zip::<i128, u64>(level, acc, incoming, Sum),
        _ => {}
    }
}

/// `acc = acc op incoming` in the accumulator.
pub(super) fn combine(
    level: Level,
    accumulator: Accumulator,
    op: ReduceOp,
    acc: &mut [u8],
    incoming: &[u8],
) {
    match (accumulator, op) {
        (Accumulator::F32, ReduceOp::Product) => zip::<f32, f32>(level, acc, incoming, Product),
        (Accumulator::F32, _) => zip::<f32, f32>(level, acc, incoming, Sum),
        (Accumulator::I64, _) => zip::<i64, i64>(level, acc, incoming, Sum),
        (Accumulator::I128, _) => zip::<i128, i128>(level, acc, incoming, Sum),
    }
}

/// `out = acc / divisor`, rounded to `dtype`.
pub(super) fn finish(level: Level, dtype: DataType, divisor: usize, out: &mut [u8], acc: &[u8]) {
    let wide = Divide(i64::try_from(divisor).unwrap_or(i64::MAX));
    let widest = Divide(divisor as i128);
    match dtype {
        DataType::F16 => narrow_f16(level, divisor as f32, out, acc),
        DataType::Bf16 => map::<u16, f32>(level, out, acc, NarrowQuotient(Brain16, divisor as f32)),
        // The quotient fits, so that its low bytes are right for signed and unsigned types.
        DataType::I8 | DataType::U8 => map::<u8, i64>(level, out, acc, wide),
        DataType::I16 | DataType::U16 => map::<u16, i64>(level, out, acc, wide),
        DataType::I32 | DataType::U32 => map::<u32, i64>(level, out, acc, wide),
        DataType::I64 | DataType::U64 => map::<u64, i128>(level, out, acc, widest),
        _ => {}
    }
}

/// `buffer = buffer / divisor`, for the floats that are their own accumulator.
pub(super) fn divide(level: Level, dtype: DataType, divisor: usize, buffer: &mut [u8]) {
    match dtype {
        DataType::F32 => update::<f32>(level, buffer, Divide(divisor as f32)),
        DataType::F64 => update::<f64>(level, buffer, Divide(divisor as f64)),
        _ => {}
    }
}

/// Gives every NaN the canonical bits.
pub(super) fn canonicalize_nan(level: Level, dtype: DataType, buffer: &mut [u8]) {
    match dtype {
        DataType::F32 => update::<u32>(level, buffer, Canonical(Binary32)),
        DataType::F64 => update::<u64>(level, buffer, Canonical(Binary64)),
        DataType::F16 => update::<u16>(level, buffer, Canonical(Binary16)),
        DataType::Bf16 => update::<u16>(level, buffer, Canonical(Brain16)),
        _ => {}
    }
}

fn combine_f16(level: Level, op: impl Combine<f32>, acc: &mut [u8], incoming: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if level.has_f16c() {
        // SAFETY: the level proves that the CPU has AVX2 and F16C.
        return unsafe { super::f16c::combine_rounded(acc, incoming, op) };
    }
    zip::<u16, u16>(level, acc, incoming, Rounded(Binary16, op));
}

fn widen_f16(level: Level, out: &mut [u8], source: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if level.has_f16c() {
        // SAFETY: the level proves that the CPU has AVX2 and F16C.
        return unsafe { super::f16c::widen_all(out, source) };
    }
    map::<f32, u16>(level, out, source, WidenHalf(Binary16));
}

fn accumulate_f16(level: Level, op: impl Combine<f32>, acc: &mut [u8], incoming: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if level.has_f16c() {
        // SAFETY: the level proves that the CPU has AVX2 and F16C.
        return unsafe { super::f16c::combine_widened(acc, incoming, op) };
    }
    zip::<f32, u16>(level, acc, incoming, Widened(Binary16, op));
}

fn narrow_f16(level: Level, divisor: f32, out: &mut [u8], acc: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if level.has_f16c() {
        // SAFETY: the level proves that the CPU has AVX2 and F16C.
        return unsafe { super::f16c::narrow_quotients(out, acc, divisor) };
    }
    map::<u16, f32>(level, out, acc, NarrowQuotient(Binary16, divisor));
}
