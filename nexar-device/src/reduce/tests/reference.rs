//! What the reductions mean, one element at a time.

use nexar_core::{DataType, ReduceOp, bf16, f16};

/// An element, for reading and comparing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Float(DataType, f64),
    Int(DataType, i128),
    Bool(bool),
}

pub(super) fn read(dtype: DataType, bytes: &[u8]) -> Value {
    macro_rules! int {
        ($type:ty) => {
            Value::Int(
                dtype,
                <$type>::from_le_bytes(bytes.try_into().unwrap()).into(),
            )
        };
    }
    match dtype {
        DataType::F32 => Value::Float(dtype, f32::from_le_bytes(bytes.try_into().unwrap()).into()),
        DataType::F64 => Value::Float(dtype, f64::from_le_bytes(bytes.try_into().unwrap())),
        DataType::F16 => Value::Float(dtype, f16::from_le_bytes(bytes.try_into().unwrap()).into()),
        DataType::Bf16 => {
            Value::Float(dtype, bf16::from_le_bytes(bytes.try_into().unwrap()).into())
        }
        DataType::I8 => int!(i8),
        DataType::I16 => int!(i16),
        DataType::I32 => int!(i32),
        DataType::I64 => int!(i64),
        DataType::U8 => int!(u8),
        DataType::U16 => int!(u16),
        DataType::U32 => int!(u32),
        DataType::U64 => int!(u64),
        DataType::Bool => Value::Bool(bytes[0] != 0),
        other => panic!("no reference for {other}"),
    }
}

/// The bytes of a value, rounded to nearest even or wrapped.
pub(super) fn write(value: Value) -> Vec<u8> {
    match value {
        // The values that are written have at most 24 significant bits where the type is 16 bits
        // wide, so that going through f32 rounds once.
        Value::Float(DataType::F16, x) => f16::from_f32(x as f32).to_le_bytes().into(),
        Value::Float(DataType::Bf16, x) => bf16::from_f32(x as f32).to_le_bytes().into(),
        Value::Float(DataType::F32, x) => (x as f32).to_le_bytes().into(),
        Value::Float(_, x) => x.to_le_bytes().into(),
        Value::Int(dtype, x) => x.to_le_bytes()[..dtype.size()].into(),
        Value::Bool(x) => vec![x.into()],
    }
}

fn float(dtype: DataType, op: ReduceOp, a: f64, b: f64) -> f64 {
    // In f64 for f64, in f32 for the others: a sum or product is rounded in its own type.
    let arithmetic = |in_f32: fn(f32, f32) -> f32, in_f64: fn(f64, f64) -> f64| {
        if dtype == DataType::F64 {
            in_f64(a, b)
        } else {
            in_f32(a as f32, b as f32).into()
        }
    };
    match op {
        ReduceOp::Sum | ReduceOp::Average => arithmetic(|a, b| a + b, |a, b| a + b),
        ReduceOp::Product => arithmetic(|a, b| a * b, |a, b| a * b),
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        ReduceOp::Min => [a, b].into_iter().min_by(f64::total_cmp).unwrap(),
        ReduceOp::Max => [a, b].into_iter().max_by(f64::total_cmp).unwrap(),
        other => panic!("no reference for {other} of floats"),
    }
}

fn int(op: ReduceOp, a: i128, b: i128) -> i128 {
    match op {
        ReduceOp::Sum | ReduceOp::Average => a + b,
        ReduceOp::Product => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::BitAnd => a & b,
        ReduceOp::BitOr => a | b,
        ReduceOp::BitXor => a ^ b,
        ReduceOp::LogicalAnd => (a != 0 && b != 0).into(),
        ReduceOp::LogicalOr => (a != 0 || b != 0).into(),
        ReduceOp::LogicalXor => ((a != 0) != (b != 0)).into(),
        other => panic!("no reference for {other} of integers"),
    }
}

fn boolean(op: ReduceOp, a: bool, b: bool) -> bool {
    match op {
        ReduceOp::Min | ReduceOp::BitAnd | ReduceOp::LogicalAnd => a && b,
        ReduceOp::Max | ReduceOp::BitOr | ReduceOp::LogicalOr => a || b,
        ReduceOp::BitXor | ReduceOp::LogicalXor => a != b,
        other => panic!("no reference for {other} of bool"),
    }
}

/// `a op b`.
pub(super) fn combine(op: ReduceOp, a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Float(t, a), Value::Float(_, b)) => Value::Float(t, float(t, op, a, b)),
        (Value::Int(t, a), Value::Int(_, b)) => Value::Int(t, int(op, a, b)),
        (Value::Bool(a), Value::Bool(b)) => Value::Bool(boolean(op, a, b)),
        mixed => panic!("values of different kinds: {mixed:?}"),
    }
}

/// A sum divided by the world size.
pub(super) fn divide(sum: Value, world: usize) -> Value {
    match sum {
        Value::Float(DataType::F64, x) => Value::Float(DataType::F64, x / world as f64),
        Value::Float(t, x) => Value::Float(t, (x as f32 / world as f32).into()),
        Value::Int(t, x) => Value::Int(t, x / world as i128),
        other => other,
    }
}

/// `acc op incoming` for whole buffers.
pub(super) fn reduce(dtype: DataType, op: ReduceOp, acc: &[u8], incoming: &[u8]) -> Vec<u8> {
    let size = dtype.size();
    acc.chunks_exact(size)
        .zip(incoming.chunks_exact(size))
        .flat_map(|(a, b)| write(combine(op, read(dtype, a), read(dtype, b))))
        .collect()
}

/// Whether two buffers hold the same bits, any NaN being equal to any other.
pub(super) fn same(dtype: DataType, a: &[u8], b: &[u8]) -> bool {
    let is_nan = |bytes: &[u8]| matches!(read(dtype, bytes), Value::Float(_, x) if x.is_nan());
    a.len() == b.len()
        && a.chunks_exact(dtype.size())
            .zip(b.chunks_exact(dtype.size()))
            .all(|(a, b)| a == b || (is_nan(a) && is_nan(b)))
}
