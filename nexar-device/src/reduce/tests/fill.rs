//! Filling with an element.

use super::*;

fn check(dtype: DataType, element: &[u8], length: usize, offset: usize) {
    let stored = if dtype == DataType::Bool {
        vec![(element[0] != 0).into()]
    } else {
        element.to_vec()
    };
    let before: Vec<u8> = (0..length * dtype.size()).map(|i| i as u8).collect();
    for level in Level::available() {
        let result = at_offset(&before, offset, |buffer| {
            select::fill(level, dtype, element, buffer);
        });
        assert_eq!(result, stored.repeat(length), "{dtype} with {level:?}");
    }
}

proptest! {
    #![proptest_config(cases(100))]
    #[test]
    fn every_element_is_set(
        (dtype, element) in prop::sample::select(DataType::ALL.to_vec())
            .prop_flat_map(|dtype| (Just(dtype), element(dtype))),
        length in 0..MAX_ELEMENTS,
        offset in 0..MAX_OFFSET,
    ) {
        check(dtype, &element, length, offset);
    }
}

#[test]
fn every_type_at_many_lengths() {
    for (dtype, length) in DataType::ALL
        .into_iter()
        .flat_map(|t| LENGTHS.map(|n| (t, n)))
    {
        check(dtype, &[1, 2, 3, 4, 5, 6, 7, 8][..dtype.size()], length, 3);
    }
}

#[test]
fn what_is_no_element_is_an_error() {
    for dtype in DataType::ALL {
        let (size, mut buffer) = (dtype.size(), vec![7; 16]);
        for length in (0..=9).filter(|length| *length != size) {
            let error = ReduceError::Element { dtype, length };
            assert_eq!(fill(dtype, &mut buffer, &[1; 9][..length]), Err(error));
        }
        if size > 1 {
            let error = ReduceError::PartialElement { length: 15, size };
            assert_eq!(fill(dtype, &mut buffer[..15], &[1; 8][..size]), Err(error));
        }
        assert_eq!(buffer, [7; 16]);
    }
    let error = ReduceError::Element {
        dtype: DataType::F16,
        length: 4,
    };
    assert_eq!(error.to_string(), "an element of f16 has 2 bytes, not 4");
}
