//! From run-time types to typed loops. The callers have checked lengths and combinations; one that got
//! past them would change nothing.

use super::{
    Accumulator,
    cast::{Quiet, Resize, RoundToOdd, Same},
    float::{Binary16, Binary32, Binary64, Brain16, Canonical, Ordered},
    half::{FromHalf, Rounded, RoundedPair, ToHalf, Widened},
    lanes::{Combine, Convert, Lane, map, update, zip},
    level::{Binary16Conversion, Level},
    native,
    ops::{
        BitAnd, BitOr, BitXor, Constant, Divide, LogicalAnd, LogicalOr, LogicalXor, Max, Min,
        Product, Scale, Sum, Truth, Widen,
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
    let level = if streams(dtype, op) {
        level.for_streaming()
    } else {
        level
    };
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

/// Whether an element costs a single instruction on every instruction set.
fn streams(dtype: DataType, op: ReduceOp) -> bool {
    match op {
        ReduceOp::Sum | ReduceOp::Average => !matches!(dtype, DataType::F16 | DataType::Bf16),
        ReduceOp::Product => matches!(dtype, DataType::F32 | DataType::F64),
        ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => true,
        _ => false,
    }
}

fn arithmetic(level: Level, dtype: DataType, op: impl Arithmetic, acc: &mut [u8], incoming: &[u8]) {
    match dtype {
        DataType::F32 => zip::<f32, f32>(level, acc, incoming, op),
        DataType::F64 => zip::<f64, f64>(level, acc, incoming, op),
        DataType::F16 => combine_f16(level, op, acc, incoming),
        DataType::Bf16 => combine_bf16(level, op, acc, incoming),
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
        DataType::F16 => from_f16::<f32>(level, acc, source, Same),
        DataType::Bf16 => map::<f32, u16>(level, acc, source, FromHalf(Brain16, Same)),
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
    let level = level.for_streaming();
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
        DataType::F16 | DataType::Bf16 if divisor.is_power_of_two() => {
            finish_half(level, dtype, Scale(1.0 / divisor as f32), out, acc)
        }
        DataType::F16 | DataType::Bf16 => {
            finish_half(level, dtype, Divide(divisor as f32), out, acc)
        }
        // The quotient fits, so that its low bytes are right for signed and unsigned types.
        DataType::I8 | DataType::U8 => map::<u8, i64>(level, out, acc, wide),
        DataType::I16 | DataType::U16 => map::<u16, i64>(level, out, acc, wide),
        DataType::I32 | DataType::U32 => map::<u32, i64>(level, out, acc, wide),
        DataType::I64 | DataType::U64 => map::<u64, i128>(level, out, acc, widest),
        _ => {}
    }
}

fn finish_half(
    level: Level,
    dtype: DataType,
    quotient: impl Convert<f32, f32>,
    out: &mut [u8],
    acc: &[u8],
) {
    if dtype == DataType::F16 {
        to_f16::<f32>(level, out, acc, quotient);
    } else {
        map::<u16, f32>(level, out, acc, ToHalf(Brain16, quotient));
    }
}

/// `buffer = buffer / divisor`, for the floats that are their own accumulator.
pub(super) fn divide(level: Level, dtype: DataType, divisor: usize, buffer: &mut [u8]) {
    match (dtype, divisor.is_power_of_two()) {
        (DataType::F32, true) => update::<f32>(level, buffer, Scale(1.0 / divisor as f32)),
        (DataType::F32, false) => update::<f32>(level, buffer, Divide(divisor as f32)),
        (DataType::F64, true) => update::<f64>(level, buffer, Scale(1.0 / divisor as f64)),
        (DataType::F64, false) => update::<f64>(level, buffer, Divide(divisor as f64)),
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

/// Any non-zero byte to 1.
pub(super) fn normalize_bool(level: Level, bytes: &mut [u8]) {
    update::<u8>(level, bytes, Truth);
}

/// Any non-zero byte to 1.
pub(super) fn copy_bool(level: Level, out: &mut [u8], source: &[u8]) {
    map::<u8, u8>(level, out, source, Truth);
}

/// `out = source`, between float types.
pub(super) fn cast(level: Level, from: DataType, to: DataType, out: &mut [u8], source: &[u8]) {
    use DataType::{Bf16, F16, F32, F64};
    match (from, to) {
        (F16, F32) => from_f16::<f32>(level, out, source, Same),
        (F16, F64) => from_f16::<f64>(level, out, source, Resize),
        // Compilers do not pack what the CPU's conversions give; the portable ones they vectorise.
        (F16, Bf16) => {
            let f = FromHalf(Binary16, ToHalf(Brain16, Same));
            map::<u16, u16>(level, out, source, f)
        }
        (Bf16, F32) => map::<f32, u16>(level, out, source, FromHalf(Brain16, Quiet)),
        (Bf16, F64) => map::<f64, u16>(level, out, source, FromHalf(Brain16, Resize)),
        (Bf16, F16) => to_f16::<u16>(level, out, source, FromHalf(Brain16, Same)),
        (F32, F16) => to_f16::<f32>(level, out, source, Same),
        (F32, Bf16) => map::<u16, f32>(level, out, source, ToHalf(Brain16, Same)),
        (F32, F64) => map::<f64, f32>(level, out, source, Resize),
        (F64, F16) => to_f16::<f64>(level, out, source, RoundToOdd::<12>),
        (F64, Bf16) => map::<u16, f64>(level, out, source, ToHalf(Brain16, RoundToOdd::<9>)),
        (F64, F32) => map::<f32, f64>(level, out, source, Resize),
        _ if out.len() == source.len() => out.copy_from_slice(source),
        _ => {}
    }
}

/// Sets every element to `element`, which has the size of an element.
pub(super) fn fill(level: Level, dtype: DataType, element: &[u8], buffer: &mut [u8]) {
    match *element {
        [a] if dtype == DataType::Bool => update::<u8>(level, buffer, Constant((a != 0).into())),
        [a] => update::<u8>(level, buffer, Constant(a)),
        [a, b] => update::<u16>(level, buffer, Constant(u16::load([a, b]))),
        [a, b, c, d] => update::<u32>(level, buffer, Constant(u32::load([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => {
            let element = u64::load([a, b, c, d, e, f, g, h]);
            update::<u64>(level, buffer, Constant(element))
        }
        _ => {}
    }
}

fn combine_bf16(level: Level, op: impl Combine<f32>, acc: &mut [u8], incoming: &[u8]) {
    let pairs = acc.len().min(incoming.len()) / 4 * 4;
    let (acc, acc_rest) = acc.split_at_mut(pairs);
    let (incoming, incoming_rest) = incoming.split_at(pairs);
    zip::<u32, u32>(level, acc, incoming, RoundedPair(op));
    zip::<u16, u16>(level, acc_rest, incoming_rest, Rounded(Brain16, op));
}

/// Runs a loop over binary16 with the CPU's conversions, and the other loop where it has none.
macro_rules! native_or {
    ($level:expr, |$native:ident| $task:expr, $portable:expr) => {
        match $level.binary16() {
            Binary16Conversion::Portable => $portable,
            #[cfg(target_arch = "x86_64")]
            Binary16Conversion::Avx2($native) => $level.run($task),
            #[cfg(target_arch = "x86_64")]
            Binary16Conversion::Avx512($native) => $level.run($task),
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                target_feature = "neon"
            ))]
            Binary16Conversion::Neon($native) => $level.run($task),
        }
    };
}

fn combine_f16(level: Level, op: impl Combine<f32>, acc: &mut [u8], incoming: &[u8]) {
    native_or!(
        level,
        |native| native::combine_rounded(native, acc, incoming, op),
        zip::<u16, u16>(level, acc, incoming, Rounded(Binary16, op))
    );
}

fn accumulate_f16(level: Level, op: impl Combine<f32>, acc: &mut [u8], incoming: &[u8]) {
    native_or!(
        level,
        |native| native::combine_widened(native, acc, incoming, op),
        zip::<f32, u16>(level, acc, incoming, Widened(Binary16, op))
    );
}

/// `out = f(source)`, with `source` of binary16.
fn from_f16<A: Lane>(level: Level, out: &mut [u8], source: &[u8], f: impl Convert<A, f32>) {
    native_or!(
        level,
        |native| native::from_half(native, out, source, f),
        map::<A, u16>(level, out, source, FromHalf(Binary16, f))
    );
}

/// `out = f(source)`, rounded to binary16.
fn to_f16<B: Lane>(level: Level, out: &mut [u8], source: &[u8], f: impl Convert<f32, B>) {
    native_or!(
        level,
        |native| native::to_half(native, out, source, f),
        map::<u16, B>(level, out, source, ToHalf(Binary16, f))
    );
}
