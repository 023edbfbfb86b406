//! The 16-bit floats: conversion and what is built on it.
//!
//! The conversions have no branches and use integer arithmetic that every instruction set vectorises;
//! for binary16 the CPU's own instructions take over where it has them (`native`).

use super::{
    float::{Binary16, Brain16},
    lanes::{Combine, Convert},
};

/// A 16-bit float format.
pub(super) trait Half: Copy {
    /// To binary32, exactly.
    fn widen(half: u16) -> f32;
    /// From binary32, to nearest with ties to even. A NaN stays one, and becomes quiet.
    fn narrow(wide: f32) -> u16;
}

const SIGN: u32 = 0x8000_0000;
const F32_INFINITY: u32 = 0x7f80_0000;

impl Half for Binary16 {
    #[inline(always)]
    fn widen(half: u16) -> f32 {
        /// Moves the exponent from the bias of binary16 (15) to that of binary32 (127).
        const REBIAS: u32 = (127 - 15) << 23;
        /// 2^-14, the smallest normal number of binary16.
        const SMALLEST_NORMAL: u32 = 113 << 23;
        let half = half as u32;
        let shifted = (half & 0x7fff) << 13;
        let exponent = half & 0x7c00;
        let normal = shifted + REBIAS;
        // Exponent all ones: once more the same step reaches binary32's all ones. NaN becomes quiet.
        let quiet = if shifted > (0x7c00 << 13) {
            0x0040_0000
        } else {
            0
        };
        let special = (shifted + 2 * REBIAS) | quiet;
        // Subnormal m * 2^-24: attach the mantissa to 2^-14, then take 2^-14 away again.
        let subnormal = f32::from_bits(shifted + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL);
        let finite = if exponent == 0 {
            subnormal.to_bits()
        } else {
            normal
        };
        let magnitude = if exponent == 0x7c00 { special } else { finite };
        f32::from_bits(magnitude | ((half & 0x8000) << 16))
    }

    #[inline(always)]
    fn narrow(wide: f32) -> u16 {
        /// 2^-14, the smallest normal number of binary16.
        const SMALLEST_NORMAL: i32 = 113 << 23;
        /// 2^16: everything from here on is infinite. (From 65520 on the rounding gives infinity.)
        const OVERFLOW: i32 = (127 + 16) << 23;
        /// A float whose last mantissa bit is worth 2^-24, as that of a subnormal binary16 is: an
        /// addition rounds to it.
        const ALIGN: u32 = (127 - 1) << 23;
        let bits = wide.to_bits();
        let sign = (bits & SIGN) >> 16;
        // The magnitude has no sign bit, and signed comparisons are what old vector units have.
        let magnitude = (bits & !SIGN) as i32;
        let aligned = f32::from_bits(magnitude as u32) + f32::from_bits(ALIGN);
        let subnormal = aligned.to_bits().wrapping_sub(ALIGN);
        let odd = (magnitude as u32 >> 13) & 1;
        let rebiased = (magnitude as u32).wrapping_sub((127 - 15) << 23);
        let normal = rebiased.wrapping_add(0xfff + odd) >> 13;
        let payload = (magnitude as u32 >> 13) & 0x3ff;
        let special = if magnitude > F32_INFINITY as i32 {
            0x7e00 | payload
        } else {
            0x7c00
        };
        let finite = if magnitude < SMALLEST_NORMAL {
            subnormal
        } else {
            normal
        };
        let half = if magnitude >= OVERFLOW {
            special
        } else {
            finite
        };
        (half | sign) as u16
    }
}

impl Half for Brain16 {
    #[inline(always)]
    fn widen(half: u16) -> f32 {
        f32::from_bits((half as u32) << 16)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> u16 {
        let bits = wide.to_bits();
        let odd = (bits >> 16) & 1;
        let rounded = bits.wrapping_add(0x7fff + odd) >> 16;
        let quiet = (bits >> 16) | 0x0040;
        let is_nan = (bits & !SIGN) as i32 > F32_INFINITY as i32;
        (if is_nan { quiet } else { rounded }) as u16
    }
}

/// Arithmetic with one rounding per step: `a = round(a op b)`.
#[derive(Clone, Copy)]
pub(super) struct Rounded<H, O>(pub(super) H, pub(super) O);

impl<H: Half, O: Combine<f32>> Combine<u16> for Rounded<H, O> {
    #[inline(always)]
    fn combine(self, a: u16, b: u16) -> u16 {
        H::narrow(self.1.combine(H::widen(a), H::widen(b)))
    }
}

/// Arithmetic in an f32 accumulator.
#[derive(Clone, Copy)]
pub(super) struct Widened<H, O>(pub(super) H, pub(super) O);

impl<H: Half, O: Combine<f32>> Combine<f32, u16> for Widened<H, O> {
    #[inline(always)]
    fn combine(self, a: f32, b: u16) -> f32 {
        self.1.combine(a, H::widen(b))
    }
}

/// Two bfloat16 at once, as a vector of 32-bit lanes holds them: neither half has to be moved to a lane of
/// its own and back.
#[derive(Clone, Copy)]
pub(super) struct RoundedPair<O>(pub(super) O);

impl<O: Combine<f32>> RoundedPair<O> {
    /// Where a NaN that comes out of arithmetic is one of the operands made quiet, or the canonical one: its lower
    /// half is zero then, as the operands' are, and rounding cannot carry it into another number.
    const NAN_IS_AN_OPERAND: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

    /// The result in the upper half, and anything below it.
    #[inline(always)]
    fn one(self, a: u32, b: u32) -> u32 {
        let wide = self.0.combine(f32::from_bits(a), f32::from_bits(b));
        let bits = wide.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        if Self::NAN_IS_AN_OPERAND || !wide.is_nan() {
            rounded
        } else {
            bits | 0x0040_0000
        }
    }
}

impl<O: Combine<f32>> Combine<u32> for RoundedPair<O> {
    #[inline(always)]
    fn combine(self, a: u32, b: u32) -> u32 {
        const UPPER: u32 = 0xffff_0000;
        let lower = self.one(a << 16, b << 16) >> 16;
        let upper = self.one(a & UPPER, b & UPPER) & UPPER;
        upper | lower
    }
}

/// From a 16-bit float through f32.
#[derive(Clone, Copy)]
pub(super) struct FromHalf<H, F>(pub(super) H, pub(super) F);

impl<A, H: Half, F: Convert<A, f32>> Convert<A, u16> for FromHalf<H, F> {
    #[inline(always)]
    fn convert(self, half: u16) -> A {
        self.1.convert(H::widen(half))
    }
}

/// To a 16-bit float through f32, which is rounded.
#[derive(Clone, Copy)]
pub(super) struct ToHalf<H, F>(pub(super) H, pub(super) F);

impl<B, H: Half, F: Convert<f32, B>> Convert<u16, B> for ToHalf<H, F> {
    #[inline(always)]
    fn convert(self, b: B) -> u16 {
        H::narrow(self.1.convert(b))
    }
}
