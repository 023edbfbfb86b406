//! Loops over binary16 with the conversion instructions of the CPU.
//!
//! Blocks of as many elements as one instruction converts; the rest is padded to a block, so that every
//! element takes the same path.

use super::{
    lanes::{Combine, Convert, Lane},
    level::Task,
};
use std::marker::PhantomData;

type Halves<const N: usize> = [[u8; 2]; N];

/// Conversions of `N` elements at once. A value proves that the CPU has the instructions.
pub(super) trait Native<const N: usize>: Copy {
    /// To binary32, exactly; a NaN becomes quiet.
    fn widen(self, halves: Halves<N>) -> [f32; N];
    /// To binary16, to nearest with ties to even; a NaN becomes quiet.
    fn narrow(self, wides: [f32; N]) -> Halves<N>;
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{Halves, Native};
    use std::{
        arch::x86_64::{
            __m128i, __m256, __m256i, __m512, _MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps,
            _mm256_cvtps_ph, _mm512_cvtph_ps, _mm512_cvtps_ph,
        },
        mem::transmute,
    };

    macro_rules! native {
        ($name:ident, $proof:literal, $lanes:literal, $half:ty, $wide:ty, $widen:ident, $narrow:ident) => {
            #[doc = $proof]
            #[derive(Clone, Copy)]
            pub(in super::super) struct $name(());

            impl $name {
                /// # Safety
                ///
                /// The CPU has the instructions.
                pub(in super::super) unsafe fn new() -> Self {
                    $name(())
                }
            }

            impl Native<$lanes> for $name {
                #[inline(always)]
                fn widen(self, halves: Halves<$lanes>) -> [f32; $lanes] {
                    // SAFETY: `self` proves that the CPU has the instruction; arrays and vectors have
                    // the same size, and every bit pattern is valid.
                    unsafe {
                        transmute::<$wide, [f32; $lanes]>($widen(
                            transmute::<Halves<$lanes>, $half>(halves),
                        ))
                    }
                }

                #[inline(always)]
                fn narrow(self, wides: [f32; $lanes]) -> Halves<$lanes> {
                    const ROUNDING: i32 = _MM_FROUND_TO_NEAREST_INT;
                    // SAFETY: as above.
                    unsafe {
                        transmute::<$half, Halves<$lanes>>($narrow::<ROUNDING>(transmute::<
                            [f32; $lanes],
                            $wide,
                        >(wides)))
                    }
                }
            }
        };
    }

    native!(
        Eight,
        "The CPU has AVX and F16C.",
        8,
        __m128i,
        __m256,
        _mm256_cvtph_ps,
        _mm256_cvtps_ph
    );
    native!(
        Sixteen,
        "The CPU has AVX-512F.",
        16,
        __m256i,
        __m512,
        _mm512_cvtph_ps,
        _mm512_cvtps_ph
    );
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{Eight, Sixteen};

#[cfg(all(
    target_arch = "aarch64",
    target_endian = "little",
    target_feature = "neon"
))]
mod aarch64 {
    use super::{Halves, Native};
    use std::{
        arch::aarch64::{float16x4_t, float32x4_t, vcvt_f16_f32, vcvt_f32_f16},
        mem::transmute,
    };

    /// Every CPU of this target has the instructions.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Neon;

    impl Native<8> for Neon {
        #[inline(always)]
        fn widen(self, halves: Halves<8>) -> [f32; 8] {
            // SAFETY: NEON is in the target's baseline; arrays and vectors have the same size, and every
            // bit pattern is valid.
            unsafe {
                let [low, high] = transmute::<Halves<8>, [float16x4_t; 2]>(halves);
                transmute::<[float32x4_t; 2], [f32; 8]>([vcvt_f32_f16(low), vcvt_f32_f16(high)])
            }
        }

        #[inline(always)]
        fn narrow(self, wides: [f32; 8]) -> Halves<8> {
            // SAFETY: as above.
            unsafe {
                let [low, high] = transmute::<[f32; 8], [float32x4_t; 2]>(wides);
                transmute::<[float16x4_t; 2], Halves<8>>([vcvt_f16_f32(low), vcvt_f16_f32(high)])
            }
        }
    }
}

#[cfg(all(
    target_arch = "aarch64",
    target_endian = "little",
    target_feature = "neon"
))]
pub(super) use aarch64::Neon;

/// What becomes of a block of elements. Implementations are `#[inline(always)]`.
trait Block<A: Lane, B: Lane, const N: usize>: Copy {
    fn block(self, a: [A::Bytes; N], b: [B::Bytes; N]) -> [A::Bytes; N];
}

struct Blocks<'a, A, B, F, const N: usize> {
    acc: &'a mut [u8],
    incoming: &'a [u8],
    f: F,
    lanes: PhantomData<(A, B)>,
}

impl<A: Lane, B: Lane, F: Block<A, B, N>, const N: usize> Task for Blocks<'_, A, B, F, N> {
    #[inline(always)]
    fn run(self) {
        let (acc, acc_rest) = A::split_mut(self.acc).as_chunks_mut::<N>();
        let (incoming, incoming_rest) = B::split(self.incoming).as_chunks::<N>();
        for (a, b) in acc.iter_mut().zip(incoming) {
            *a = self.f.block(*a, *b);
        }
        let rest = acc_rest.len().min(incoming_rest.len());
        if rest > 0 {
            let (mut a, mut b) = ([A::ZERO; N], [B::ZERO; N]);
            a[..rest].copy_from_slice(&acc_rest[..rest]);
            b[..rest].copy_from_slice(&incoming_rest[..rest]);
            acc_rest[..rest].copy_from_slice(&self.f.block(a, b)[..rest]);
        }
    }
}

#[derive(Clone, Copy)]
struct Rounded<C, O>(C, O);

impl<C: Native<N>, O: Combine<f32>, const N: usize> Block<u16, u16, N> for Rounded<C, O> {
    #[inline(always)]
    fn block(self, a: Halves<N>, b: Halves<N>) -> Halves<N> {
        let (a, b) = (self.0.widen(a), self.0.widen(b));
        self.0
            .narrow(std::array::from_fn(|i| self.1.combine(a[i], b[i])))
    }
}

#[derive(Clone, Copy)]
struct Widened<C, O>(C, O);

impl<C: Native<N>, O: Combine<f32>, const N: usize> Block<f32, u16, N> for Widened<C, O> {
    #[inline(always)]
    fn block(self, a: [[u8; 4]; N], b: Halves<N>) -> [[u8; 4]; N] {
        let b = self.0.widen(b);
        std::array::from_fn(|i| self.1.combine(f32::load(a[i]), b[i]).store())
    }
}

#[derive(Clone, Copy)]
struct FromHalf<C, F>(C, F);

impl<A: Lane, C: Native<N>, F: Convert<A, f32>, const N: usize> Block<A, u16, N>
    for FromHalf<C, F>
{
    #[inline(always)]
    fn block(self, _: [A::Bytes; N], b: Halves<N>) -> [A::Bytes; N] {
        let wides = self.0.widen(b);
        std::array::from_fn(|i| self.1.convert(wides[i]).store())
    }
}

#[derive(Clone, Copy)]
struct ToHalf<C, F>(C, F);

impl<B: Lane, C: Native<N>, F: Convert<f32, B>, const N: usize> Block<u16, B, N> for ToHalf<C, F> {
    #[inline(always)]
    fn block(self, _: Halves<N>, b: [B::Bytes; N]) -> Halves<N> {
        self.0
            .narrow(std::array::from_fn(|i| self.1.convert(B::load(b[i]))))
    }
}

fn blocks<'a, A: Lane + 'a, B: Lane + 'a, F: Block<A, B, N> + 'a, const N: usize>(
    acc: &'a mut [u8],
    incoming: &'a [u8],
    f: F,
) -> impl Task + 'a {
    Blocks::<A, B, F, N> {
        acc,
        incoming,
        f,
        lanes: PhantomData,
    }
}

/// `acc = round(acc op incoming)`, both binary16.
pub(super) fn combine_rounded<'a, const N: usize>(
    native: impl Native<N> + 'a,
    acc: &'a mut [u8],
    incoming: &'a [u8],
    op: impl Combine<f32> + 'a,
) -> impl Task + 'a {
    blocks::<u16, u16, _, N>(acc, incoming, Rounded(native, op))
}

/// `acc = acc op incoming`, with `acc` of f32 and `incoming` of binary16.
pub(super) fn combine_widened<'a, const N: usize>(
    native: impl Native<N> + 'a,
    acc: &'a mut [u8],
    incoming: &'a [u8],
    op: impl Combine<f32> + 'a,
) -> impl Task + 'a {
    blocks::<f32, u16, _, N>(acc, incoming, Widened(native, op))
}

/// `out = f(source)`, with `source` of binary16.
pub(super) fn from_half<'a, A: Lane + 'a, const N: usize>(
    native: impl Native<N> + 'a,
    out: &'a mut [u8],
    source: &'a [u8],
    f: impl Convert<A, f32> + 'a,
) -> impl Task + 'a {
    blocks::<A, u16, _, N>(out, source, FromHalf(native, f))
}

/// `out = round(f(source))`, with `out` of binary16.
pub(super) fn to_half<'a, B: Lane + 'a, const N: usize>(
    native: impl Native<N> + 'a,
    out: &'a mut [u8],
    source: &'a [u8],
    f: impl Convert<f32, B> + 'a,
) -> impl Task + 'a {
    blocks::<u16, B, _, N>(out, source, ToHalf(native, f))
}
