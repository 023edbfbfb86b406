//! Conversions between the float types.

use super::lanes::Convert;

/// The value as it is.
#[derive(Clone, Copy)]
pub(super) struct Same;

impl Convert<f32, f32> for Same {
    #[inline(always)]
    fn convert(self, x: f32) -> f32 {
        x
    }
}

/// Makes a NaN quiet.
#[derive(Clone, Copy)]
pub(super) struct Quiet;

impl Convert<f32, f32> for Quiet {
    #[inline(always)]
    fn convert(self, x: f32) -> f32 {
        let quiet = if x.is_nan() { 0x0040_0000 } else { 0 };
        f32::from_bits(x.to_bits() | quiet)
    }
}

/// Between binary32 and binary64, to nearest with ties to even. The CPU's conversions make a NaN quiet.
#[derive(Clone, Copy)]
pub(super) struct Resize;

impl Convert<f64, f32> for Resize {
    #[inline(always)]
    fn convert(self, x: f32) -> f64 {
        x.into()
    }
}

impl Convert<f32, f64> for Resize {
    #[inline(always)]
    fn convert(self, x: f64) -> f32 {
        x as f32
    }
}

/// From binary64 to a binary32 that rounds to a 16-bit float as the binary64 itself would.
///
/// All but the first `KEPT` bits of the fraction are cut off; the last one kept is set if any of them was
/// (rounding to odd). With two bits more than the 16-bit float has, a tie stays a tie and what lies beside it
/// stays there, so that only the rounding to 16 bits counts. What the conversion to binary32 then rounds
/// after all, close to its subnormal numbers, becomes zero or infinity in 16 bits either way.
#[derive(Clone, Copy)]
pub(super) struct RoundToOdd<const KEPT: u32>;

impl<const KEPT: u32> Convert<f32, f64> for RoundToOdd<KEPT> {
    #[inline(always)]
    fn convert(self, x: f64) -> f32 {
        let last: u64 = 1 << (f64::MANTISSA_DIGITS - 1 - KEPT);
        let bits = x.to_bits();
        let odd = if bits & (last - 1) == 0 { 0 } else { last };
        f64::from_bits((bits & !(last - 1)) | odd) as f32
    }
}
