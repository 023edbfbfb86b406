//! Conversions of the 16-bit floats, on every instruction set.

use super::*;
use nexar_core::{bf16, f16};

const HALVES: [DataType; 2] = [DataType::F16, DataType::Bf16];

fn widened(level: Level, dtype: DataType, halves: &[u16]) -> Vec<f32> {
    let source: Vec<u8> = halves.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut out = vec![0; source.len() * 2];
    select::widen(level, dtype, &mut out, &source);
    out.as_chunks()
        .0
        .iter()
        .map(|x| f32::from_le_bytes(*x))
        .collect()
}

fn narrowed(level: Level, dtype: DataType, wides: &[f32]) -> Vec<u16> {
    let source: Vec<u8> = wides.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut out = vec![0; source.len() / 2];
    select::finish(level, dtype, 1, &mut out, &source);
    out.as_chunks()
        .0
        .iter()
        .map(|x| u16::from_le_bytes(*x))
        .collect()
}

fn to_f32(dtype: DataType, half: u16) -> f32 {
    if dtype == DataType::F16 {
        f16::from_bits(half).to_f32()
    } else {
        bf16::from_bits(half).to_f32()
    }
}

fn from_f32(dtype: DataType, wide: f32) -> u16 {
    if dtype == DataType::F16 {
        f16::from_f32(wide).to_bits()
    } else {
        bf16::from_f32(wide).to_bits()
    }
}

/// Every number between the neighbours of a 16-bit float is rounded as the reference rounds it: each
/// pattern, the middle to the next, and what lies just beside the two. NaN payloads included.
fn assert_narrows_like_the_reference(dtype: DataType, wides: &[f32]) {
    for level in Level::available() {
        for (wide, half) in wides.iter().zip(narrowed(level, dtype, wides)) {
            assert_eq!(
                half,
                from_f32(dtype, *wide),
                "{dtype} {:#x} {level:?}",
                wide.to_bits()
            );
        }
    }
}

#[test]
fn every_pattern_widens_exactly() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for (dtype, level) in HALVES
        .into_iter()
        .flat_map(|t| Level::available().into_iter().map(move |l| (t, l)))
    {
        for (half, wide) in all.iter().zip(widened(level, dtype, &all)) {
            let expected = to_f32(dtype, *half);
            // Whether a signalling NaN becomes quiet already here is left open.
            let quiet = if expected.is_nan() { 0x0040_0000 } else { 0 };
            assert_eq!(
                wide.to_bits() | quiet,
                expected.to_bits() | quiet,
                "{dtype} {half:#x} {level:?}"
            );
        }
    }
}

#[test]
fn every_pattern_comes_back() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for (dtype, level) in HALVES
        .into_iter()
        .flat_map(|t| Level::available().into_iter().map(move |l| (t, l)))
    {
        let back = narrowed(level, dtype, &widened(level, dtype, &all));
        for (half, back) in all.iter().zip(back) {
            let quiet = if dtype == DataType::F16 {
                0x0200
            } else {
                0x0040
            };
            let expected = if to_f32(dtype, *half).is_nan() {
                half | quiet
            } else {
                *half
            };
            assert_eq!(back, expected, "{dtype} {half:#x} {level:?}");
        }
    }
}

#[test]
fn rounds_to_nearest_even_between_all_neighbours() {
    for dtype in HALVES {
        let wides: Vec<f32> = (0..=u16::MAX)
            .flat_map(|half| {
                let bits = to_f32(dtype, half).to_bits();
                // The distance of neighbours is 2^13 (2^16) units of f32, or more for subnormal f16.
                let middle = if dtype == DataType::F16 {
                    1 << 12
                } else {
                    1 << 15
                };
                let subnormal_middle =
                    ((to_f32(dtype, half) + to_f32(dtype, half.wrapping_add(1))) / 2.0).to_bits();
                [bits, bits.wrapping_add(middle), subnormal_middle]
            })
            .flat_map(|bits| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)])
            .map(f32::from_bits)
            .collect();
        assert_narrows_like_the_reference(dtype, &wides);
    }
}

#[test]
fn rounds_at_the_limits() {
    for dtype in HALVES {
        let limits = [
            65504.0,
            65519.996,
            65520.0,
            65536.0,
            f32::MAX,
            f32::INFINITY,
            5.9604645e-8,
            2.9802322e-8,
            2.9802326e-8,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            0.0,
            f32::from_bits(0x7f80_0001),
            f32::from_bits(0x7fff_ffff),
        ];
        let wides: Vec<f32> = limits.into_iter().flat_map(|x| [x, -x]).collect();
        assert_narrows_like_the_reference(dtype, &wides);
    }
}

proptest! {
    #![proptest_config(cases(200))]
    #[test]
    fn any_f32_is_rounded(bits in prop::collection::vec(any::<u32>(), 1..100)) {
        let wides: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for dtype in HALVES {
            assert_narrows_like_the_reference(dtype, &wides);
        }
    }
}
