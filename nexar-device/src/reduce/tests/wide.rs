//! Reductions in an accumulator.

use super::{reference, *};

/// What many ranks together give, computed exactly or in f32 and rounded once.
fn expected(dtype: DataType, op: ReduceOp, ranks: &[Vec<u8>]) -> Vec<u8> {
    let size = dtype.size();
    (0..ranks[0].len() / size)
        .flat_map(|i| {
            let value = |rank: &Vec<u8>| reference::read(dtype, &rank[i * size..][..size]);
            let total = ranks[1..].iter().fold(value(&ranks[0]), |acc, rank| {
                reference::combine(op, acc, value(rank))
            });
            let total = if op == ReduceOp::Average {
                reference::divide(total, ranks.len())
            } else {
                total
            };
            reference::write(total)
        })
        .collect()
}

/// Accumulates all ranks one after the other.
fn accumulated(
    level: Level,
    dtype: DataType,
    op: ReduceOp,
    ranks: &[Vec<u8>],
    offset: usize,
) -> Vec<u8> {
    let wide = accumulator(dtype, op).unwrap();
    let acc = vec![0; ranks[0].len() / dtype.size() * wide.size()];
    let mut result = Vec::new();
    at_offset(&acc, offset, |acc| {
        select::widen(level, dtype, acc, &ranks[0]);
        for rank in &ranks[1..] {
            at_offset(rank, MAX_OFFSET - 1 - offset, |rank| {
                select::accumulate(level, dtype, op, acc, rank)
            });
        }
        let divisor = if op == ReduceOp::Average {
            ranks.len()
        } else {
            1
        };
        result = at_offset(&ranks[0], offset, |out| {
            select::finish(level, dtype, divisor, out, acc)
        });
    });
    result
}

/// Carries a wide partial from rank to rank.
fn carried(dtype: DataType, op: ReduceOp, ranks: &[Vec<u8>]) -> Vec<u8> {
    let wide = accumulator(dtype, op).unwrap();
    let widened = |rank: &Vec<u8>| {
        let mut acc = vec![0; rank.len() / dtype.size() * wide.size()];
        widen(dtype, wide, &mut acc, rank).unwrap();
        acc
    };
    let mut partial = widened(&ranks[0]);
    for rank in &ranks[1..] {
        let mut own = widened(rank);
        combine(wide, op, &mut own, &partial).unwrap();
        partial = own;
    }
    let mut out = vec![0; ranks[0].len()];
    finish(dtype, wide, op, ranks.len(), &mut out, &partial).unwrap();
    out
}

fn check(dtype: DataType, ranks: &[Vec<u8>], offset: usize) {
    for op in ReduceOp::ALL
        .into_iter()
        .filter(|op| accumulator(dtype, *op).is_some())
    {
        let expected = expected(dtype, op, ranks);
        for level in Level::available() {
            let result = accumulated(level, dtype, op, ranks, offset);
            assert!(
                reference::same(dtype, &result, &expected),
                "{op} of {dtype} with {level:?}"
            );
        }
        assert!(
            reference::same(dtype, &carried(dtype, op, ranks), &expected),
            "{op} of {dtype}"
        );
    }
}

macro_rules! against_the_reference {
    ($($name:ident: $dtype:ident),* $(,)?) => {$(
        proptest! {
            #![proptest_config(cases(40))]
            #[test]
            fn $name(
                ranks in prop::sample::select(vec![1usize, 2, 3, 5, 8])
                    .prop_flat_map(|world| buffers(DataType::$dtype, world)),
                offset in 0..MAX_OFFSET,
            ) {
                check(DataType::$dtype, &ranks, offset);
            }
        }
    )*};
}

against_the_reference! {
    f16_agrees: F16,
    bf16_agrees: Bf16,
    i8_agrees: I8,
    i16_agrees: I16,
    i32_agrees: I32,
    i64_agrees: I64,
    u8_agrees: U8,
    u16_agrees: U16,
    u32_agrees: U32,
    u64_agrees: U64,
}

/// What comes out does not depend on the instruction set, nor on where an element stands.
#[test]
fn instruction_sets_combine_alike() {
    for (wide, dtype) in [
        (Accumulator::F32, DataType::F32),
        (Accumulator::I64, DataType::I64),
        (Accumulator::I128, DataType::I64),
    ] {
        for op in ReduceOp::ALL {
            for length in LENGTHS {
                let length = length * wide.size() / dtype.size();
                let special: Vec<u64> = special(dtype)
                    .into_iter()
                    .filter(|bits| !is_nan(dtype, *bits))
                    .collect();
                let acc = cycle(dtype, &special, length);
                let incoming = cycle(dtype, &special[1..], length);
                let mut expected = acc.clone();
                if combine(wide, op, &mut expected, &incoming).is_err() {
                    continue;
                }
                for level in Level::available() {
                    let mut result = acc.clone();
                    select::combine(level, wide, op, &mut result, &incoming);
                    // Infinity less infinity is a NaN of either sign.
                    assert!(
                        reference::same(dtype, &result, &expected),
                        "{wide:?} {op} {level:?}"
                    );
                    if wide == Accumulator::F32 {
                        let expected = reference::reduce(dtype, op, &acc, &incoming);
                        assert!(reference::same(dtype, &result, &expected), "{op} {level:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn which_accumulator() {
    use Accumulator::*;
    let expected = |dtype: DataType, op| match (dtype, op) {
        (DataType::F16 | DataType::Bf16, ReduceOp::Sum | ReduceOp::Product | ReduceOp::Average) => {
            Some(F32)
        }
        (DataType::I64 | DataType::U64, ReduceOp::Average) => Some(I128),
        (DataType::F32 | DataType::F64, _) => None,
        (_, ReduceOp::Average) if op.supports(dtype) => Some(I64),
        _ => None,
    };
    for dtype in DataType::ALL {
        for op in ReduceOp::ALL {
            assert_eq!(
                accumulator(dtype, op),
                expected(dtype, op),
                "{op} of {dtype}"
            );
        }
    }
}

/// 2048 + 1 + 1 + ... in f16: rounding each step would stay at 2048.
#[test]
fn many_ranks_are_rounded_once() {
    let half = |x: f32| nexar_core::f16::from_f32(x).to_le_bytes().to_vec();
    let mut ranks = vec![half(2048.0)];
    ranks.resize(65, half(1.0));
    let result = accumulated(Level::best(), DataType::F16, ReduceOp::Sum, &ranks, 0);
    assert_eq!(result, half(2112.0));
}

#[test]
fn averages_do_not_overflow_and_round_toward_zero() {
    fn average<T: nexar_core::Element>(values: &[T]) -> Vec<u8> {
        let ranks: Vec<_> = values.iter().map(|x| T::as_bytes(&[*x]).to_vec()).collect();
        carried(T::DATA_TYPE, ReduceOp::Average, &ranks)
    }
    assert_eq!(average(&[u64::MAX; 5]), u64::MAX.to_le_bytes());
    assert_eq!(average(&[i64::MIN; 3]), i64::MIN.to_le_bytes());
    assert_eq!(average(&[-3i8, -2]), (-2i8).to_le_bytes());
    assert_eq!(average(&[3i8, 2]), 2i8.to_le_bytes());
    assert_eq!(
        average(&[u32::MAX, u32::MAX - 1]),
        (u32::MAX - 1).to_le_bytes()
    );
}

#[test]
fn any_accumulator_can_be_finished() {
    for (dtype, op) in supported() {
        let Some(wide) = accumulator(dtype, op) else {
            continue;
        };
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            for world in [1, 3, usize::MAX] {
                let mut out = vec![1; 9 * dtype.size()];
                finish(
                    dtype,
                    wide,
                    op,
                    world,
                    &mut out,
                    &vec![byte; 9 * wide.size()],
                )
                .unwrap();
            }
        }
        // The smallest sum over the largest world: -1 for i64, -2^63 for i128.
        if op == ReduceOp::Average && dtype.is_integer() {
            let (mut acc, mut out) = (vec![0; wide.size()], vec![1; dtype.size()]);
            acc[wide.size() - 1] = 0x80;
            finish(dtype, wide, op, usize::MAX, &mut out, &acc[..]).unwrap();
            let expected = if wide == Accumulator::I64 {
                0xff
            } else {
                0x80u8
            };
            assert_eq!(out[dtype.size() - 1], expected, "{dtype}");
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error_and_changes_nothing() {
    let (mut acc, f16s) = ([7u8; 16], DataType::F16);
    let (sum, f32s) = (ReduceOp::Sum, Accumulator::F32);
    assert_eq!(
        widen(f16s, f32s, &mut acc, &[0; 6]),
        Err(ReduceError::Length { acc: 16, other: 6 })
    );
    assert_eq!(
        accumulate(f16s, f32s, sum, &mut acc, &[0; 7]),
        Err(ReduceError::PartialElement { length: 7, size: 2 })
    );
    assert!(combine(f32s, sum, &mut acc, &[0; 8]).is_err());
    assert_eq!(
        finish(f16s, f32s, sum, 0, &mut acc[..8], &[0; 16]),
        Err(ReduceError::EmptyWorld)
    );
    for wide in Accumulator::ALL {
        for (dtype, op) in supported().filter(|(d, op)| accumulator(*d, *op) != Some(wide)) {
            let error = ReduceError::Accumulator {
                accumulator: wide,
                dtype: Some(dtype),
                op: Some(op),
            };
            assert_eq!(accumulate(dtype, wide, op, &mut acc, &[]), Err(error));
            assert_eq!(finish(dtype, wide, op, 2, &mut acc, &[]), Err(error));
        }
    }
    assert!(widen(DataType::F32, f32s, &mut acc, &[0; 16]).is_err());
    assert!(combine(Accumulator::I64, ReduceOp::Product, &mut acc, &[0; 16]).is_err());
    assert_eq!(acc, [7; 16]);
}
