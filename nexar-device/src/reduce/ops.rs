//! The reductions of one element.

use super::lanes::{Combine, Convert};

#[derive(Clone, Copy)]
pub(super) struct Sum;
#[derive(Clone, Copy)]
pub(super) struct Product;
#[derive(Clone, Copy)]
pub(super) struct Min;
#[derive(Clone, Copy)]
pub(super) struct Max;
#[derive(Clone, Copy)]
pub(super) struct BitAnd;
#[derive(Clone, Copy)]
pub(super) struct BitOr;
#[derive(Clone, Copy)]
pub(super) struct BitXor;
#[derive(Clone, Copy)]
pub(super) struct LogicalAnd;
#[derive(Clone, Copy)]
pub(super) struct LogicalOr;
#[derive(Clone, Copy)]
pub(super) struct LogicalXor;

macro_rules! combine {
    ($op:ty, $($type:ty),* => |$a:ident, $b:ident| $value:expr) => {$(
        impl Combine<$type> for $op {
            #[inline(always)]
            fn combine(self, $a: $type, $b: $type) -> $type {
                $value
            }
        }
    )*};
}

// A wrapping sum or product has the same bits for signed and unsigned integers.
combine!(Sum, f32, f64 => |a, b| a + b);
combine!(Product, f32, f64 => |a, b| a * b);
combine!(Sum, u8, u16, u32, u64 => |a, b| a.wrapping_add(b));
combine!(Product, u8, u16, u32, u64 => |a, b| a.wrapping_mul(b));

combine!(Min, u8, u16, u32, u64, i8, i16, i32, i64 => |a, b| if b < a { b } else { a });
combine!(Max, u8, u16, u32, u64, i8, i16, i32, i64 => |a, b| if b > a { b } else { a });

combine!(BitAnd, u8 => |a, b| a & b);
combine!(BitOr, u8 => |a, b| a | b);
combine!(BitXor, u8 => |a, b| a ^ b);

combine!(LogicalAnd, u8, u16, u32, u64 => |a, b| ((a != 0) & (b != 0)).into());
combine!(LogicalOr, u8, u16, u32, u64 => |a, b| ((a | b) != 0).into());
combine!(LogicalXor, u8, u16, u32, u64 => |a, b| ((a != 0) ^ (b != 0)).into());

/// Integer averages add in a wider type.
impl<B: Into<i64>> Combine<i64, B> for Sum {
    #[inline(always)]
    fn combine(self, a: i64, b: B) -> i64 {
        a.wrapping_add(b.into())
    }
}

impl<B: Into<i128>> Combine<i128, B> for Sum {
    #[inline(always)]
    fn combine(self, a: i128, b: B) -> i128 {
        a.wrapping_add(b.into())
    }
}

/// To a wider integer.
#[derive(Clone, Copy)]
pub(super) struct Widen;

impl<B: Into<i64>> Convert<i64, B> for Widen {
    #[inline(always)]
    fn convert(self, b: B) -> i64 {
        b.into()
    }
}

impl<B: Into<i128>> Convert<i128, B> for Widen {
    #[inline(always)]
    fn convert(self, b: B) -> i128 {
        b.into()
    }
}

/// Division by the world size, into the type of the result.
#[derive(Clone, Copy)]
pub(super) struct Divide<T>(pub(super) T);

macro_rules! divide {
    ($($wide:ty => $($narrow:ty),*;)*) => {$($(
        impl Convert<$narrow, $wide> for Divide<$wide> {
            #[inline(always)]
            fn convert(self, sum: $wide) -> $narrow {
                (sum / self.0) as $narrow
            }
        }
    )*)*};
}

divide! {
    f32 => f32;
    f64 => f64;
    i64 => u8, u16, u32;
    i128 => u64;
}

/// Multiplication by the reciprocal of a power of two, which gives what the division gives.
#[derive(Clone, Copy)]
pub(super) struct Scale<T>(pub(super) T);

impl Convert<f32, f32> for Scale<f32> {
    #[inline(always)]
    fn convert(self, sum: f32) -> f32 {
        sum * self.0
    }
}

impl Convert<f64, f64> for Scale<f64> {
    #[inline(always)]
    fn convert(self, sum: f64) -> f64 {
        sum * self.0
    }
}

/// Any non-zero byte to 1.
#[derive(Clone, Copy)]
pub(super) struct Truth;

impl Convert<u8, u8> for Truth {
    #[inline(always)]
    fn convert(self, byte: u8) -> u8 {
        (byte != 0).into()
    }
}

/// One value for all.
#[derive(Clone, Copy)]
pub(super) struct Constant<T>(pub(super) T);

impl<T: Copy> Convert<T, T> for Constant<T> {
    #[inline(always)]
    fn convert(self, _: T) -> T {
        self.0
    }
}
