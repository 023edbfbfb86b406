//! Casts between the float types.

use super::*;
use nexar_core::{bf16, f16};

/// The value of a float, exactly.
fn value(dtype: DataType, bits: u64) -> f64 {
    match dtype {
        DataType::F16 => f16::from_bits(bits as u16).to_f64(),
        DataType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        DataType::F32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

/// The value of the bits of a 16-bit magnitude, with infinity as the number that would follow the largest one.
fn step(dtype: DataType, magnitude: u16) -> f64 {
    match (dtype, magnitude) {
        (DataType::F16, 0x7c00) => 65536.0,
        (DataType::Bf16, 0x7f80) => 2.0 * 2f64.powi(127),
        _ => value(dtype, magnitude.into()),
    }
}

/// The 16-bit float next to `x`, of two as near the even one: searched among the neighbours of a guess.
fn nearest(dtype: DataType, x: f64) -> u16 {
    let (guess, infinity) = if dtype == DataType::F16 {
        (f16::from_f32(x as f32).to_bits(), 0x7c00u16)
    } else {
        (bf16::from_f32(x as f32).to_bits(), 0x7f80)
    };
    let (sign, guess) = (guess & 0x8000, guess & 0x7fff);
    if x.is_infinite() {
        return sign | infinity;
    }
    let candidates = guess.saturating_sub(1)..=(guess + 1).min(infinity);
    let distance = |magnitude: u16| (x.abs() - step(dtype, magnitude)).abs();
    let best = candidates.min_by(|a, b| {
        let by_distance = distance(*a).total_cmp(&distance(*b));
        by_distance.then((a & 1).cmp(&(b & 1)))
    });
    sign | best.unwrap()
}

/// What a number becomes in another type.
fn expected(to: DataType, x: f64) -> u64 {
    match to {
        DataType::F32 => (x as f32).to_bits().into(),
        DataType::F64 => x.to_bits(),
        _ => nearest(to, x).into(),
    }
}

fn check(from: DataType, to: DataType, source: &[u64], offset: usize) {
    let bytes = cycle(from, source, source.len());
    for level in Level::available() {
        let out = at_offset(&vec![7; source.len() * to.size()], offset, |out| {
            at_offset(&bytes, MAX_OFFSET - 1 - offset, |source| {
                select::cast(level, from, to, out, source);
            });
        });
        for (source, out) in source.iter().zip(out.chunks_exact(to.size())) {
            let out = bits(out);
            let context = || format!("{source:#x} {from} to {to} with {level:?}: {out:#x}");
            if from == to {
                assert_eq!(out, *source, "{}", context());
            } else if is_nan(from, *source) {
                assert!(is_nan(to, out) && out & quiet(to) != 0, "{}", context());
            } else {
                let expected = expected(to, value(from, *source));
                assert_eq!(out, expected, "{}", context());
            }
        }
    }
}

/// The bit that makes a NaN quiet.
fn quiet(dtype: DataType) -> u64 {
    match dtype {
        DataType::F16 => 1 << 9,
        DataType::Bf16 => 1 << 6,
        DataType::F32 => 1 << 22,
        _ => 1 << 51,
    }
}

fn pairs() -> impl Iterator<Item = (DataType, DataType)> {
    FLOATS
        .into_iter()
        .flat_map(|from| FLOATS.into_iter().map(move |to| (from, to)))
}

/// Bits of a float: special ones, any, and some in the range of the 16-bit types or close to a tie of theirs.
fn float_bits(dtype: DataType) -> impl Strategy<Value = u64> {
    let mask = u64::MAX >> (64 - 8 * dtype.size());
    let near = (any::<u16>(), any::<bool>(), -2i64..3).prop_map(move |(half, is_f16, beside)| {
        let (small, large) = if is_f16 {
            let half = half & 0xfbff;
            (
                f16::from_bits(half).to_f64(),
                f16::from_bits(half + 1).to_f64(),
            )
        } else {
            let half = half & 0xff7f;
            (
                bf16::from_bits(half).to_f64(),
                bf16::from_bits(half + 1).to_f64(),
            )
        };
        let middle = small / 2.0 + large / 2.0;
        match dtype {
            DataType::F64 => middle.to_bits().wrapping_add_signed(beside),
            DataType::F32 => u64::from((middle as f32).to_bits()).wrapping_add_signed(beside),
            _ => half.into(),
        }
    });
    prop_oneof![prop::sample::select(special(dtype)), any::<u64>(), near]
        .prop_map(move |bits| bits & mask)
}

proptest! {
    #![proptest_config(cases(300))]
    #[test]
    fn any_number_is_rounded_once(
        (from, source) in prop::sample::select(FLOATS.to_vec()).prop_flat_map(|from| {
            (Just(from), prop::collection::vec(float_bits(from), 0..200))
        }),
        to in prop::sample::select(FLOATS.to_vec()),
        offset in 0..MAX_OFFSET,
    ) {
        check(from, to, &source, offset);
    }
}

#[test]
fn special_values_at_many_lengths() {
    for (from, to) in pairs() {
        for (i, length) in LENGTHS.into_iter().enumerate() {
            let source: Vec<u64> = special(from).into_iter().cycle().take(length).collect();
            check(from, to, &source, i);
        }
    }
}

#[test]
fn every_pattern_of_16_bits() {
    let all: Vec<u64> = (0..=0xffff).collect();
    for (from, to) in pairs().filter(|(from, _)| from.size() == 2) {
        check(from, to, &all, 1);
    }
}

/// Every 16-bit number, the middle to the next, and what lies just beside the two.
#[test]
fn ties_go_to_even_and_nothing_else_is_one() {
    for to in [DataType::F16, DataType::Bf16] {
        let infinity: u16 = if to == DataType::F16 { 0x7c00 } else { 0x7f80 };
        let source: Vec<u64> = (0..infinity)
            .flat_map(|half| {
                [
                    step(to, half),
                    step(to, half) / 2.0 + step(to, half + 1) / 2.0,
                ]
            })
            .flat_map(|x| [x.to_bits().saturating_sub(1), x.to_bits(), x.to_bits() + 1])
            .flat_map(|bits| [bits, bits | 1 << 63])
            .collect();
        check(DataType::F64, to, &source, 2);
    }
}

/// Through f32 these would become ties, and round the other way.
#[test]
fn nothing_is_rounded_twice() {
    let wide = [
        1.0 + 2f64.powi(-11) + 2f64.powi(-40),
        1.0 + 2f64.powi(-8) + 2f64.powi(-40),
    ];
    let mut out = [0; 4];
    cast(
        DataType::F64,
        DataType::F16,
        &mut out[..2],
        &wide[0].to_le_bytes(),
    )
    .unwrap();
    cast(
        DataType::F64,
        DataType::Bf16,
        &mut out[2..],
        &wide[1].to_le_bytes(),
    )
    .unwrap();
    assert_eq!(out, [0x01, 0x3c, 0x81, 0x3f]);
}

#[test]
fn what_does_not_fit_is_an_error_and_changes_nothing() {
    let mut out = [7; 8];
    let (f16s, f64s) = (DataType::F16, DataType::F64);
    assert_eq!(
        cast(f16s, f64s, &mut out, &[0; 4]),
        Err(ReduceError::Length { acc: 8, other: 4 })
    );
    assert_eq!(
        cast(f64s, f16s, &mut out[..2], &[0; 9]),
        Err(ReduceError::PartialElement { length: 9, size: 8 })
    );
    for (from, to) in DataType::ALL
        .into_iter()
        .flat_map(|from| DataType::ALL.into_iter().map(move |to| (from, to)))
        .filter(|(from, to)| !(from.is_float() && to.is_float()))
    {
        let error = ReduceError::Cast { from, to };
        assert_eq!(cast(from, to, &mut out, &[0; 8]), Err(error));
        assert!(error.to_string().contains(from.name()));
    }
    assert_eq!(out, [7; 8]);
}
