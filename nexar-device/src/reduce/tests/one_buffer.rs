//! What is done to a single buffer, on every instruction set.

use super::{reference, *};

fn canonical(dtype: DataType) -> u64 {
    match dtype {
        DataType::F32 => 0x7fc0_0000,
        DataType::F64 => 0x7ff8_0000_0000_0000,
        DataType::F16 => 0x7e00,
        _ => 0x7fc0,
    }
}

fn check_nan(dtype: DataType, buffer: &[u8], offset: usize) {
    let expected: Vec<u8> = buffer
        .chunks_exact(dtype.size())
        .flat_map(|element| {
            let bits = bits(element);
            let bits = if is_nan(dtype, bits) {
                canonical(dtype)
            } else {
                bits
            };
            bits.to_le_bytes()[..dtype.size()].to_vec()
        })
        .collect();
    for level in Level::available() {
        let result = at_offset(buffer, offset, |buffer| {
            select::canonicalize_nan(level, dtype, buffer);
        });
        assert_eq!(result, expected, "{dtype} with {level:?}");
    }
}

fn check_quotients(dtype: DataType, buffer: &[u8], offset: usize, world: usize) {
    let expected: Vec<u8> = buffer
        .chunks_exact(dtype.size())
        .flat_map(|x| reference::write(reference::divide(reference::read(dtype, x), world)))
        .collect();
    for level in Level::available() {
        let result = at_offset(buffer, offset, |buffer| {
            select::divide(level, dtype, world, buffer);
        });
        assert!(
            reference::same(dtype, &result, &expected),
            "{dtype} / {world} with {level:?}"
        );
    }
}

fn check_bools(buffer: &[u8], offset: usize) {
    let expected: Vec<u8> = buffer.iter().map(|byte| (*byte != 0).into()).collect();
    for level in Level::available() {
        let in_place = at_offset(buffer, offset, |buffer| {
            select::normalize_bool(level, buffer)
        });
        let copied = at_offset(&vec![7; buffer.len()], offset, |out| {
            select::copy_bool(level, out, buffer);
        });
        assert_eq!(in_place, expected, "{level:?}");
        assert_eq!(copied, expected, "{level:?}");
    }
}

fn any_float() -> impl Strategy<Value = (DataType, Vec<u8>)> {
    prop::sample::select(FLOATS.to_vec()).prop_flat_map(|dtype| {
        (
            Just(dtype),
            buffers(dtype, 1).prop_map(|mut all| all.remove(0)),
        )
    })
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn nan_becomes_canonical((dtype, buffer) in any_float(), offset in 0..MAX_OFFSET) {
        check_nan(dtype, &buffer, offset);
    }

    #[test]
    fn quotients_are_rounded_once(
        (dtype, buffer) in any_float(),
        offset in 0..MAX_OFFSET,
        world in prop::sample::select(vec![1usize, 2, 3, 5, 8, 1 << 40, usize::MAX]),
    ) {
        if matches!(dtype, DataType::F32 | DataType::F64) {
            check_quotients(dtype, &buffer, offset, world);
        }
    }

    #[test]
    fn bools_become_valid(
        buffer in prop::collection::vec(any::<u8>(), 0..MAX_ELEMENTS),
        offset in 0..MAX_OFFSET,
    ) {
        check_bools(&buffer, offset);
    }
}

#[test]
fn special_values_at_many_lengths() {
    for (dtype, length) in FLOATS.into_iter().flat_map(|t| LENGTHS.map(|n| (t, n))) {
        let buffer = cycle(dtype, &special(dtype), length);
        check_nan(dtype, &buffer, 3);
        if matches!(dtype, DataType::F32 | DataType::F64) {
            [1, 2, 3, 8, 1 << 40]
                .into_iter()
                .for_each(|world| check_quotients(dtype, &buffer, 1, world));
        }
        check_bools(&buffer, 1);
    }
}
