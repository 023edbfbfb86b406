//! Order and NaN of the float formats, on their bits.
//!
//! Minimum and maximum are those of integers: unlike comparisons of floats they know -0.0 < +0.0, and
//! the loops vectorise on every instruction set.

use super::lanes::{Combine, Convert};

/// IEEE 754 binary16: 5 bits of exponent, 10 of mantissa.
#[derive(Clone, Copy)]
pub(super) struct Binary16;

/// bfloat16: the upper half of binary32.
#[derive(Clone, Copy)]
pub(super) struct Brain16;

/// IEEE 754 binary32.
#[derive(Clone, Copy)]
pub(super) struct Binary32;

/// IEEE 754 binary64.
#[derive(Clone, Copy)]
pub(super) struct Binary64;

/// Minimum or maximum in a format. A NaN in either operand gives the canonical one.
#[derive(Clone, Copy)]
pub(super) struct Ordered<H, O>(pub(super) H, pub(super) O);

/// Any NaN to the canonical one: quiet, positive, no payload.
#[derive(Clone, Copy)]
pub(super) struct Canonical<H>(pub(super) H);

macro_rules! format {
    ($format:ident: $bits:ident, $signed:ident, infinity $infinity:literal, nan $nan:literal) => {
        impl $format {
            #[inline(always)]
            fn is_nan(bits: $bits) -> bool {
                const INFINITY: $signed = $infinity;
                (bits as $signed & $signed::MAX) > INFINITY
            }

            /// From sign and magnitude to two's complement, and back.
            #[inline(always)]
            fn flip(bits: $signed) -> $signed {
                bits ^ ((bits >> ($bits::BITS - 1)) & $signed::MAX)
            }
        }

        impl<O: Combine<$signed>> Combine<$bits> for Ordered<$format, O> {
            #[inline(always)]
            fn combine(self, a: $bits, b: $bits) -> $bits {
                let (x, y) = ($format::flip(a as $signed), $format::flip(b as $signed));
                let chosen = $format::flip(self.1.combine(x, y)) as $bits;
                if $format::is_nan(a) | $format::is_nan(b) {
                    $nan
                } else {
                    chosen
                }
            }
        }

        impl Convert<$bits, $bits> for Canonical<$format> {
            #[inline(always)]
            fn convert(self, bits: $bits) -> $bits {
                if $format::is_nan(bits) { $nan } else { bits }
            }
        }
    };
}

format!(Binary16: u16, i16, infinity 0x7c00, nan 0x7e00);
format!(Brain16: u16, i16, infinity 0x7f80, nan 0x7fc0);
format!(Binary32: u32, i32, infinity 0x7f80_0000, nan 0x7fc0_0000);
format!(Binary64: u64, i64, infinity 0x7ff0_0000_0000_0000, nan 0x7ff8_0000_0000_0000);
