//! Loops over byte slices that hold elements at any alignment.

use super::level::{Level, Task};
use std::marker::PhantomData;

/// A scalar that is stored in little-endian bytes.
pub(super) trait Lane: Copy {
    /// The bytes of one scalar.
    type Bytes: Copy;
    /// The bytes of the number zero.
    const ZERO: Self::Bytes;

    /// Views bytes as whole scalars; a rest at the end is left out.
    fn split(bytes: &[u8]) -> &[Self::Bytes];
    /// Like [`split`](Lane::split).
    fn split_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
    /// The scalar of these bytes.
    fn load(bytes: Self::Bytes) -> Self;
    /// The bytes of this scalar.
    fn store(self) -> Self::Bytes;
}

macro_rules! lanes {
    ($($type:ty),*) => {$(
        impl Lane for $type {
            type Bytes = [u8; size_of::<$type>()];
            const ZERO: Self::Bytes = [0; size_of::<$type>()];

            #[inline(always)]
            fn split(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }

            #[inline(always)]
            fn split_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }

            #[inline(always)]
            fn load(bytes: Self::Bytes) -> Self {
                <$type>::from_le_bytes(bytes)
            }

            #[inline(always)]
            fn store(self) -> Self::Bytes {
                self.to_le_bytes()
            }
        }
    )*};
}

lanes!(u8, u16, u32, u64, i8, i16, i32, i64, i128, f32, f64);

/// How an element is combined with another: `a = a op b`. Implementations are `#[inline(always)]`.
pub(super) trait Combine<A, B = A>: Copy {
    fn combine(self, a: A, b: B) -> A;
}

/// How an element becomes another one. Implementations are `#[inline(always)]`.
pub(super) trait Convert<A, B>: Copy {
    fn convert(self, b: B) -> A;
}

struct Zip<'a, A, B, F> {
    acc: &'a mut [u8],
    incoming: &'a [u8],
    f: F,
    lanes: PhantomData<(A, B)>,
}

impl<A: Lane, B: Lane, F: Combine<A, B>> Task for Zip<'_, A, B, F> {
    #[inline(always)]
    fn run(self) {
        for (a, b) in A::split_mut(self.acc)
            .iter_mut()
            .zip(B::split(self.incoming))
        {
            *a = self.f.combine(A::load(*a), B::load(*b)).store();
        }
    }
}

struct Map<'a, A, B, F> {
    out: &'a mut [u8],
    source: &'a [u8],
    f: F,
    lanes: PhantomData<(A, B)>,
}

impl<A: Lane, B: Lane, F: Convert<A, B>> Task for Map<'_, A, B, F> {
    #[inline(always)]
    fn run(self) {
        for (a, b) in A::split_mut(self.out).iter_mut().zip(B::split(self.source)) {
            *a = self.f.convert(B::load(*b)).store();
        }
    }
}

struct Update<'a, A, F> {
    buffer: &'a mut [u8],
    f: F,
    lanes: PhantomData<A>,
}

impl<A: Lane, F: Convert<A, A>> Task for Update<'_, A, F> {
    #[inline(always)]
    fn run(self) {
        for a in A::split_mut(self.buffer) {
            *a = self.f.convert(A::load(*a)).store();
        }
    }
}

/// `acc[i] = f(acc[i], incoming[i])` for as many elements as both slices hold.
pub(super) fn zip<A: Lane, B: Lane>(
    level: Level,
    acc: &mut [u8],
    incoming: &[u8],
    f: impl Combine<A, B>,
) {
    level.run(Zip {
        acc,
        incoming,
        f,
        lanes: PhantomData,
    });
}

/// `out[i] = f(source[i])` for as many elements as both slices hold.
pub(super) fn map<A: Lane, B: Lane>(
    level: Level,
    out: &mut [u8],
    source: &[u8],
    f: impl Convert<A, B>,
) {
    level.run(Map {
        out,
        source,
        f,
        lanes: PhantomData,
    });
}

/// `buffer[i] = f(buffer[i])`.
pub(super) fn update<A: Lane>(level: Level, buffer: &mut [u8], f: impl Convert<A, A>) {
    level.run(Update {
        buffer,
        f,
        lanes: PhantomData,
    });
}
