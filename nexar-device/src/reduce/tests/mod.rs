mod cast;
mod conversion;
mod fill;
mod narrow;
mod one_buffer;
mod reference;
mod several_threads;
mod wide;

use super::*;
use proptest::prelude::*;

/// Longer than the widest vector loop in elements of one byte, unrolling included, so that body and rest
/// both run.
const MAX_ELEMENTS: usize = 300;

/// One more than the largest distance of a buffer from an aligned address: a cache line and the widest
/// vector.
const MAX_OFFSET: usize = 65;

/// Lengths at which bodies and rests of every width meet, and some that run for long.
const LENGTHS: [usize; 12] = [0, 1, 2, 3, 7, 8, 15, 31, 33, 65, 1021, 5000];

const FLOATS: [DataType; 4] = [DataType::F32, DataType::F64, DataType::F16, DataType::Bf16];

/// Every supported pair.
fn supported() -> impl Iterator<Item = (DataType, ReduceOp)> {
    DataType::ALL.into_iter().flat_map(|dtype| {
        ReduceOp::ALL
            .into_iter()
            .filter(move |op| op.supports(dtype))
            .map(move |op| (dtype, op))
    })
}

/// Bit patterns at which an implementation may go wrong, for elements of the size of `dtype`.
fn special(dtype: DataType) -> Vec<u64> {
    match dtype {
        DataType::F32 => [
            0.0,
            1.0,
            1.5,
            f32::INFINITY,
            f32::MAX,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            f32::NAN,
            f32::from_bits(0x7f80_0001),
            f32::from_bits(0x7fff_ffff),
            3.1,
            16_777_216.0,
        ]
        .into_iter()
        .flat_map(|x| [x.to_bits().into(), (-x).to_bits().into()])
        .collect(),
        DataType::F64 => [
            0.0,
            1.0,
            1.5,
            f64::INFINITY,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::from_bits(1),
            f64::NAN,
            f64::from_bits(0x7ff0_0000_0000_0001),
            f64::from_bits(u64::MAX >> 1),
            3.1,
        ]
        .into_iter()
        .flat_map(|x| [x.to_bits(), (-x).to_bits()])
        .collect(),
        DataType::F16 => [
            0, 1, 0x3ff, 0x400, 0x3c00, 0x4248, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7fff,
        ]
        .into_iter()
        .flat_map(|x| [x, x | 0x8000])
        .collect(),
        DataType::Bf16 => [
            0, 1, 0x7f, 0x80, 0x3f80, 0x4049, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fff,
        ]
        .into_iter()
        .flat_map(|x| [x, x | 0x8000])
        .collect(),
        _ => {
            let sign = 1u64 << (8 * dtype.size() - 1);
            vec![
                0,
                1,
                2,
                255,
                sign - 1,
                sign,
                sign + 1,
                u64::MAX,
                u64::MAX - 1,
            ]
        }
    }
}

/// One element: a special pattern or any.
fn element(dtype: DataType) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::sample::select(special(dtype)), any::<u64>(),]
        .prop_map(move |bits| bits.to_le_bytes()[..dtype.size()].to_vec())
}

/// The bits of an element.
fn bits(element: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    u64::from_le_bytes(bytes)
}

/// Bits of a NaN, and the infinity of its type: every larger magnitude is a NaN.
fn is_nan(dtype: DataType, bits: u64) -> bool {
    let infinity = match dtype {
        DataType::F32 => 0x7f80_0000,
        DataType::F64 => 0x7ff0_0000_0000_0000,
        DataType::F16 => 0x7c00,
        DataType::Bf16 => 0x7f80,
        _ => return false,
    };
    bits & ((1 << (8 * dtype.size() - 1)) - 1) > infinity
}

/// `length` elements that take turns among `patterns`.
fn cycle(dtype: DataType, patterns: &[u64], length: usize) -> Vec<u8> {
    let patterns = patterns.iter().cycle().take(length);
    patterns
        .flat_map(|bits| bits.to_le_bytes()[..dtype.size()].to_vec())
        .collect()
}

/// Buffers of `count` elements each.
fn buffers(dtype: DataType, count: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    (0..MAX_ELEMENTS).prop_flat_map(move |length| {
        prop::collection::vec(
            prop::collection::vec(element(dtype), length).prop_map(|elements| elements.concat()),
            count,
        )
    })
}

/// Runs `f` on copies of `bytes` that start at the given distance from an aligned address, and gives
/// back what `f` made of the first.
fn at_offset(bytes: &[u8], offset: usize, f: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut memory = vec![0u64; (bytes.len() + MAX_OFFSET).div_ceil(8)];
    // SAFETY: the bytes of the integers, all initialised.
    let memory = unsafe {
        std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), memory.len() * 8)
    };
    let place = &mut memory[offset..offset + bytes.len()];
    place.copy_from_slice(bytes);
    f(place);
    place.to_vec()
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
