//! Reductions in the element type itself.

use super::{reference, *};

/// `reduce` with every instruction set, both slices misaligned; all must agree with the reference.
fn check(dtype: DataType, op: ReduceOp, acc: &[u8], incoming: &[u8], offsets: (usize, usize)) {
    let expected = reference::reduce(dtype, op, acc, incoming);
    for level in Level::available() {
        let result = at_offset(acc, offsets.0, |acc| {
            at_offset(incoming, offsets.1, |incoming| {
                select::reduce(level, dtype, op, acc, incoming);
            });
        });
        assert!(
            reference::same(dtype, &result, &expected),
            "{op} of {dtype} with {level:?}:\n{acc:?}\n{incoming:?}\ngave\n{result:?}\nnot\n{expected:?}"
        );
    }
}

macro_rules! against_the_reference {
    ($($name:ident: $dtype:ident),* $(,)?) => {$(
        proptest! {
            #![proptest_config(cases(48))]
            #[test]
            fn $name(
                buffers in buffers(DataType::$dtype, 2),
                acc_offset in 0..MAX_OFFSET,
                incoming_offset in 0..MAX_OFFSET,
            ) {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.supports(DataType::$dtype)) {
                    let offsets = (acc_offset, incoming_offset);
                    check(DataType::$dtype, op, &buffers[0], &buffers[1], offsets);
                }
            }
        }
    )*};
}

against_the_reference! {
    f32_agrees: F32,
    f64_agrees: F64,
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
    bool_agrees: Bool,
}

#[test]
fn every_pair_of_special_values_at_every_length() {
    for (dtype, op) in supported() {
        let bytes = |bits: u64| bits.to_le_bytes()[..dtype.size()].to_vec();
        let special = special(dtype);
        let pairs = special
            .iter()
            .flat_map(|a| special.iter().map(|b| (bytes(*a), bytes(*b))));
        let (acc, incoming): (Vec<_>, Vec<_>) = pairs.unzip();
        check(dtype, op, &acc.concat(), &incoming.concat(), (0, 0));
        for length in 0..acc.len().min(70) {
            check(
                dtype,
                op,
                &acc[..length].concat(),
                &incoming[..length].concat(),
                (1, 3),
            );
        }
    }
}

/// A NaN in either operand, at each position of a buffer with vector body and rest, comes out at
/// that position and nowhere else; with min and max in canonical form.
#[test]
fn nan_stays_at_its_position() {
    const LENGTH: usize = 83;
    let one_and_nans = |dtype| -> (u64, [u64; 2]) {
        match dtype {
            DataType::F32 => (0x3f80_0000, [NAN32, 0xff80_0001]),
            DataType::F64 => (0x3ff0_0000_0000_0000, [NAN64, 0xfff0_0000_0000_0001]),
            DataType::F16 => (0x3c00, [0x7e00, 0xfc01]),
            _ => (0x3f80, [0x7fc0, 0xff81]),
        }
    };
    const NAN32: u64 = 0x7fc0_0000;
    const NAN64: u64 = 0x7ff8_0000_0000_0000;
    for (dtype, op) in supported().filter(|(dtype, _)| dtype.is_float()) {
        let size = dtype.size();
        let (one, nans) = one_and_nans(dtype);
        let ones = one.to_le_bytes()[..size].repeat(LENGTH);
        for (nan, position) in nans
            .into_iter()
            .flat_map(|nan| (0..LENGTH).map(move |p| (nan, p)))
        {
            let mut with_nan = ones.clone();
            with_nan[position * size..][..size].copy_from_slice(&nan.to_le_bytes()[..size]);
            for level in Level::available() {
                let (mut left, mut right) = (with_nan.clone(), ones.clone());
                select::reduce(level, dtype, op, &mut left, &ones);
                select::reduce(level, dtype, op, &mut right, &with_nan);
                if !matches!(op, ReduceOp::Min | ReduceOp::Max) {
                    select::canonicalize_nan(level, dtype, &mut left);
                    select::canonicalize_nan(level, dtype, &mut right);
                }
                assert_eq!(left, right, "{op} of {dtype} with {level:?}");
                for (i, element) in left.chunks_exact(size).enumerate() {
                    let is_canonical = element == &nans[0].to_le_bytes()[..size];
                    assert_eq!(
                        is_canonical,
                        i == position,
                        "{op} of {dtype} with {level:?}"
                    );
                }
            }
        }
    }
}

/// The result of an element does not depend on where it stands, nor on the instruction set. Of two NaN, either may
/// come out.
#[test]
fn body_and_rest_agree() {
    const LENGTH: usize = 149;
    for (dtype, op) in supported() {
        let special = special(dtype);
        let pairs = special
            .iter()
            .flat_map(|a| special.iter().map(move |b| (*a, *b)));
        for (a, b) in pairs {
            let (acc, incoming) = (cycle(dtype, &[a], LENGTH), cycle(dtype, &[b], LENGTH));
            let mut expected = None;
            for level in Level::available() {
                let mut result = acc.clone();
                select::reduce(level, dtype, op, &mut result, &incoming);
                if is_nan(dtype, a) && is_nan(dtype, b) {
                    select::canonicalize_nan(level, dtype, &mut result);
                }
                let expected =
                    expected.get_or_insert_with(|| result[..dtype.size()].repeat(LENGTH));
                assert_eq!(
                    &result, expected,
                    "{a:#x} {op} {b:#x} of {dtype} with {level:?}"
                );
            }
        }
    }
}

#[test]
fn long_buffers() {
    for (dtype, op) in supported() {
        let special = special(dtype);
        let shifted = [&special[3..], &special[..3], &[1, 2]].concat();
        for (i, length) in LENGTHS.into_iter().enumerate() {
            let (acc, incoming) = (
                cycle(dtype, &special, length),
                cycle(dtype, &shifted, length),
            );
            check(dtype, op, &acc, &incoming, (5 * i, 64 - 3 * i));
        }
    }
}

#[test]
fn operands_commute() {
    for (dtype, op) in supported() {
        let special = special(dtype);
        let bytes = |bits: &u64| bits.to_le_bytes()[..dtype.size()].to_vec();
        let a: Vec<u8> = special.iter().flat_map(bytes).collect();
        for shift in 0..special.len() {
            let b: Vec<u8> = special[shift..]
                .iter()
                .chain(&special[..shift])
                .flat_map(bytes)
                .collect();
            let (mut ab, mut ba, mut swapped) = (a.clone(), b.clone(), a.clone());
            reduce(dtype, op, &mut ab, &b).unwrap();
            reduce(dtype, op, &mut ba, &a).unwrap();
            reduce(dtype, op, &mut swapped, &b).unwrap();
            for buffer in [&mut ab, &mut ba, &mut swapped] {
                canonicalize_nan(dtype, buffer).unwrap();
            }
            assert_eq!(ab, ba, "{op} of {dtype}");
            assert_eq!(ab, swapped, "{op} of {dtype}");
        }
    }
}

#[test]
fn known_values() {
    fn check<T: nexar_core::Element>(op: ReduceOp, a: T, b: T, expected: T) {
        let mut acc = T::as_bytes(&[a]).to_vec();
        reduce(T::DATA_TYPE, op, &mut acc, T::as_bytes(&[b])).unwrap();
        assert_eq!(acc, T::as_bytes(&[expected]), "{a:?} {op} {b:?}");
    }
    check(ReduceOp::Sum, i8::MAX, 2, i8::MIN + 1);
    check(ReduceOp::Product, 200u8, 200, 64);
    check(ReduceOp::Min, u64::MAX, 1, 1);
    check(ReduceOp::Max, i64::MIN, -7, -7);
    check(ReduceOp::Min, 0.0f32, -0.0, -0.0);
    check(ReduceOp::Max, -0.0f64, 0.0, 0.0);
    check(
        ReduceOp::Min,
        nexar_core::f16::from_f32(0.0),
        -nexar_core::f16::from_f32(0.0),
        -nexar_core::f16::from_f32(0.0),
    );
    check(ReduceOp::LogicalAnd, 0x100u16, 0x200, 1);
    check(ReduceOp::LogicalXor, -3i32, 5, 0);
    check(ReduceOp::BitXor, 0b1100u8, 0b1010, 0b0110);
    check(ReduceOp::BitXor, true, true, false);
    check(ReduceOp::Max, false, true, true);
    // 2049 lies between 2048 and 2050: ties to even.
    check(
        ReduceOp::Sum,
        nexar_core::f16::from_f32(2048.0),
        nexar_core::f16::from_f32(1.0),
        nexar_core::f16::from_f32(2048.0),
    );
    check(
        ReduceOp::Sum,
        nexar_core::bf16::from_f32(256.0),
        nexar_core::bf16::from_f32(3.0),
        nexar_core::bf16::from_f32(260.0),
    );
}

#[test]
fn bool_is_never_invalid() {
    let dirty: Vec<u8> = (0..=255).collect();
    for op in ReduceOp::ALL
        .into_iter()
        .filter(|op| op.supports(DataType::Bool))
    {
        for other in [0, 1, 2, 255] {
            let mut acc = dirty.clone();
            reduce(DataType::Bool, op, &mut acc, &[other; 256]).unwrap();
            assert!(acc.iter().all(|byte| *byte <= 1), "{op}");
        }
    }
    let expected: Vec<u8> = (0..=255).map(|byte| (byte != 0).into()).collect();
    let (mut in_place, mut copied) = (dirty.clone(), vec![7; 256]);
    normalize_bool(&mut in_place);
    copy_bool(&mut copied, &dirty).unwrap();
    assert_eq!(in_place, expected);
    assert_eq!(copied, expected);
}

#[test]
fn what_does_not_fit_is_an_error_and_changes_nothing() {
    let mut acc = [1, 2, 3, 4, 5, 6, 7, 8];
    let sum = ReduceOp::Sum;
    assert_eq!(
        reduce(DataType::F32, sum, &mut acc, &[0; 4]),
        Err(ReduceError::Length { acc: 8, other: 4 })
    );
    assert_eq!(
        reduce(DataType::F32, sum, &mut acc[..7], &[0; 7]),
        Err(ReduceError::PartialElement { length: 7, size: 4 })
    );
    assert_eq!(
        finish_in_place(DataType::F32, ReduceOp::Average, 0, &mut acc),
        Err(ReduceError::EmptyWorld)
    );
    assert!(canonicalize_nan(DataType::F64, &mut acc[..5]).is_err());
    assert!(copy_bool(&mut acc, &[1]).is_err());
    for dtype in DataType::ALL {
        for op in ReduceOp::ALL.into_iter().filter(|op| !op.supports(dtype)) {
            let result = reduce(dtype, op, &mut acc, &[0; 8]);
            assert!(
                matches!(result, Err(ReduceError::Unsupported(e)) if e.op == op && e.dtype == dtype)
            );
            assert!(finish_in_place(dtype, op, 2, &mut acc).is_err());
        }
    }
    assert_eq!(acc, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn averages_in_place() {
    for world in [1usize, 2, 3, 5, 8] {
        for (dtype, op) in supported() {
            for length in [0, 1, 37] {
                let special = special(dtype);
                let before: Vec<u8> = (0..length)
                    .flat_map(|i| special[i % special.len()].to_le_bytes()[..dtype.size()].to_vec())
                    .collect();
                let divided =
                    op == ReduceOp::Average && matches!(dtype, DataType::F32 | DataType::F64);
                let expected: Vec<u8> = before
                    .chunks_exact(dtype.size())
                    .flat_map(|x| {
                        reference::write(reference::divide(reference::read(dtype, x), world))
                    })
                    .collect();
                let mut after = before.clone();
                finish_in_place(dtype, op, world, &mut after).unwrap();
                if divided {
                    assert!(
                        reference::same(dtype, &after, &expected),
                        "{dtype} / {world}"
                    );
                } else {
                    assert_eq!(after, before, "{op} of {dtype}");
                }
            }
        }
    }
}
