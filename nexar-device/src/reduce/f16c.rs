//! Loops over binary16 with the conversion instructions of x86-64.
//!
//! Blocks of eight elements; the rest is padded to a block, so that every element takes the same path.

use super::lanes::Combine;
use std::arch::x86_64::{
    __m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph,
};

/// Eight binary16 numbers.
type Halves = [u8; 16];
/// Eight binary32 numbers.
type Wides = [u8; 32];

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen(halves: Halves) -> [f32; 8] {
    // SAFETY: arrays and vectors of the same size, in which every bit pattern is valid.
    unsafe {
        let halves = std::mem::transmute::<Halves, __m128i>(halves);
        std::mem::transmute::<__m256, [f32; 8]>(_mm256_cvtph_ps(halves))
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow(wides: [f32; 8]) -> Halves {
    // SAFETY: arrays and vectors of the same size, in which every bit pattern is valid.
    unsafe {
        let wides = std::mem::transmute::<[f32; 8], __m256>(wides);
        let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wides);
        std::mem::transmute::<__m128i, Halves>(halves)
    }
}

#[inline(always)]
fn load(bytes: Wides) -> [f32; 8] {
    // SAFETY: arrays of the same size, in which every bit pattern is valid.
    unsafe { std::mem::transmute::<Wides, [f32; 8]>(bytes) }
}

#[inline(always)]
fn store(wides: [f32; 8]) -> Wides {
    // SAFETY: arrays of the same size, in which every bit pattern is valid.
    unsafe { std::mem::transmute::<[f32; 8], Wides>(wides) }
}

#[inline(always)]
fn apply<O: Combine<f32>>(op: O, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
    std::array::from_fn(|i| op.combine(a[i], b[i]))
}

/// `acc = f(acc, incoming)` in blocks; both slices hold the same number of elements.
#[inline(always)]
fn blocks<const A: usize, const B: usize>(
    acc: &mut [u8],
    incoming: &[u8],
    f: impl Fn([u8; A], [u8; B]) -> [u8; A],
) {
    let (acc_blocks, acc_rest) = acc.as_chunks_mut::<A>();
    let (incoming_blocks, incoming_rest) = incoming.as_chunks::<B>();
    for (a, b) in acc_blocks.iter_mut().zip(incoming_blocks) {
        *a = f(*a, *b);
    }
    if acc_rest.is_empty() {
        return;
    }
    let (mut a, mut b) = ([0; A], [0; B]);
    a[..acc_rest.len()].copy_from_slice(acc_rest);
    b[..incoming_rest.len()].copy_from_slice(incoming_rest);
    acc_rest.copy_from_slice(&f(a, b)[..acc_rest.len()]);
}

/// `acc = round(acc op incoming)`, both binary16.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn combine_rounded(acc: &mut [u8], incoming: &[u8], op: impl Combine<f32>) {
    blocks(acc, incoming, |a: Halves, b: Halves| {
        narrow(apply(op, widen(a), widen(b)))
    });
}

/// `acc = acc op incoming`, with `acc` of f32 and `incoming` of binary16.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn combine_widened(acc: &mut [u8], incoming: &[u8], op: impl Combine<f32>) {
    blocks(acc, incoming, |a: Wides, b: Halves| {
        store(apply(op, load(a), widen(b)))
    });
}

/// From binary16 to f32.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn widen_all(out: &mut [u8], source: &[u8]) {
    blocks(out, source, |_: Wides, b: Halves| store(widen(b)));
}

/// From f32 to binary16, after a division.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn narrow_quotients(out: &mut [u8], source: &[u8], divisor: f32) {
    blocks(out, source, |_: Halves, b: Wides| {
        narrow(load(b).map(|wide| wide / divisor))
    });
}
