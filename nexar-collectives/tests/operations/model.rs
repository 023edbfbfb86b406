//! Element types with test values, a serial model of the reductions, and buffers that notice writes beside
//! them.

use nexar_collectives::{Element, ReduceOp, bf16, f16};
use std::ops::Range;

/// An element type with test values and a model of the reductions.
pub(crate) trait Modelled: Element {
    /// A value for a rank and index, different between neighbours in both, that reductions of floats get
    /// exactly.
    fn value(rank: usize, index: usize) -> Self;
    /// A value for a rank and index with any bits, to be moved.
    fn any(rank: usize, index: usize) -> Self;
    /// The reduction of the ranks' values in one place.
    fn reduced(op: ReduceOp, values: &[Self]) -> Self;
    /// Bits, so that comparisons are exact.
    fn bits(self) -> u64;
}

/// Well spread bits for a rank and index.
fn spread(rank: usize, index: usize) -> u64 {
    (rank as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add((index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03))
        .rotate_left(23)
}

macro_rules! modelled_integers {
    ($($t:ty),*) => {$(
        impl Modelled for $t {
            fn value(rank: usize, index: usize) -> $t {
                // Over the whole range, so that sums wrap.
                spread(rank, index) as $t
            }

            fn any(rank: usize, index: usize) -> $t {
                spread(rank, index) as $t
            }

            fn reduced(op: ReduceOp, values: &[$t]) -> $t {
                let truth = |x: $t| x != 0;
                let fold = |f: fn($t, $t) -> $t| values.iter().copied().reduce(f).unwrap();
                match op {
                    ReduceOp::Sum => fold(<$t>::wrapping_add),
                    ReduceOp::Product => fold(<$t>::wrapping_mul),
                    ReduceOp::Min => fold(<$t>::min),
                    ReduceOp::Max => fold(<$t>::max),
                    ReduceOp::Average => {
                        let sum: i128 = values.iter().map(|x| *x as i128).sum();
                        (sum / values.len() as i128) as $t
                    }
                    ReduceOp::BitAnd => fold(|a, b| a & b),
                    ReduceOp::BitOr => fold(|a, b| a | b),
                    ReduceOp::BitXor => fold(|a, b| a ^ b),
                    ReduceOp::LogicalAnd => values.iter().all(|x| truth(*x)) as $t,
                    ReduceOp::LogicalOr => values.iter().any(|x| truth(*x)) as $t,
                    ReduceOp::LogicalXor => {
                        (values.iter().filter(|x| truth(**x)).count() % 2) as $t
                    }
                    _ => unreachable!(),
                }
            }

            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}

modelled_integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! modelled_floats {
    ($($t:ty: $bits:ty, $wide:ty, $narrow:expr, $widen:expr);*) => {$(
        impl Modelled for $t {
            fn value(rank: usize, index: usize) -> $t {
                // Sums and products of these over a few ranks are exact in every float type.
                const VALUES: [$wide; 7] = [1.0, -2.0, 0.5, 3.0, -1.0, 2.0, -0.5];
                ($narrow)(VALUES[(rank * 3 + index) % 7])
            }

            fn any(rank: usize, index: usize) -> $t {
                <$t>::from_bits(spread(rank, index) as $bits)
            }

            fn reduced(op: ReduceOp, values: &[$t]) -> $t {
                let wide = values.iter().copied().map($widen);
                let count = values.len() as $wide;
                ($narrow)(match op {
                    ReduceOp::Sum => wide.sum::<$wide>(),
                    ReduceOp::Product => wide.product::<$wide>(),
                    ReduceOp::Min => wide.reduce(<$wide>::min).unwrap(),
                    ReduceOp::Max => wide.reduce(<$wide>::max).unwrap(),
                    ReduceOp::Average => wide.sum::<$wide>() / count,
                    _ => unreachable!(),
                })
            }

            fn bits(self) -> u64 {
                self.to_bits() as u64
            }
        }
    )*};
}

modelled_floats!(
    f32: u32, f32, |x: f32| x, |x: f32| x;
    f64: u64, f64, |x: f64| x, |x: f64| x;
    f16: u16, f32, f16::from_f32, f16::to_f32;
    bf16: u16, f32, bf16::from_f32, bf16::to_f32
);

impl Modelled for bool {
    fn value(rank: usize, index: usize) -> bool {
        (rank * 5 + index * 3) % 4 != 1
    }

    fn any(rank: usize, index: usize) -> bool {
        spread(rank, index).is_multiple_of(2)
    }

    fn reduced(op: ReduceOp, values: &[bool]) -> bool {
        match op {
            ReduceOp::Min | ReduceOp::BitAnd | ReduceOp::LogicalAnd => values.iter().all(|x| *x),
            ReduceOp::Max | ReduceOp::BitOr | ReduceOp::LogicalOr => values.iter().any(|x| *x),
            ReduceOp::BitXor | ReduceOp::LogicalXor => {
                values.iter().filter(|x| **x).count() % 2 == 1
            }
            _ => unreachable!(),
        }
    }

    fn bits(self) -> u64 {
        self as u64
    }
}

/// A rank's values that are reduced.
pub(crate) fn values<E: Modelled>(rank: usize, range: Range<usize>) -> Vec<E> {
    range.map(|index| E::value(rank, index)).collect()
}

/// A rank's values that are moved.
pub(crate) fn any<E: Modelled>(rank: usize, range: Range<usize>) -> Vec<E> {
    range.map(|index| E::any(rank, index)).collect()
}

/// The reduction of the values of some ranks. A single one is as it was, a truth value other than 0 and 1 too.
pub(crate) fn reduced<E: Modelled>(
    op: ReduceOp,
    ranks: Range<usize>,
    range: Range<usize>,
) -> Vec<E> {
    let mut all = Vec::with_capacity(ranks.len());
    range
        .map(|index| {
            all.clear();
            all.extend(ranks.clone().map(|rank| E::value(rank, index)));
            match all[..] {
                [alone] => alone,
                _ => E::reduced(op, &all),
            }
        })
        .collect()
}

/// Elements before and after a [`Framed`] slice.
const FRAME: [usize; 2] = [3, 8];

/// A slice in the middle of a buffer whose other elements must stay as they are.
#[derive(Debug)]
pub(crate) struct Framed<E>(Vec<E>);

impl<E: Modelled> Framed<E> {
    pub(crate) fn new(data: &[E]) -> Self {
        let frame = any::<E>(77, 0..FRAME[0] + FRAME[1]);
        let (before, after) = frame.split_at(FRAME[0]);
        Framed([before, data, after].concat())
    }

    /// A slice to be filled.
    pub(crate) fn empty(count: usize) -> Self {
        Self::new(&any::<E>(99, 0..count))
    }

    fn range(&self) -> Range<usize> {
        FRAME[0]..self.0.len() - FRAME[1]
    }

    pub(crate) fn slice(&self) -> &[E] {
        &self.0[self.range()]
    }

    pub(crate) fn slice_mut(&mut self) -> &mut [E] {
        let range = self.range();
        &mut self.0[range]
    }

    /// The slice has these bits, and nothing beside it has changed.
    #[track_caller]
    pub(crate) fn expect(&self, expected: &[E], what: &str) {
        let range = self.range();
        same(self.slice(), expected, what);
        let frame = any::<E>(77, 0..FRAME[0] + FRAME[1]);
        same(&self.0[..range.start], &frame[..FRAME[0]], what);
        same(&self.0[range.end..], &frame[FRAME[0]..], what);
    }

    /// Nothing has been written.
    #[track_caller]
    pub(crate) fn expect_untouched(&self, what: &str) {
        self.expect(&any::<E>(99, 0..self.range().len()), what);
    }
}

#[track_caller]
pub(crate) fn same<E: Modelled>(found: &[E], expected: &[E], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if found == expected && !E::DATA_TYPE.is_float() {
        return;
    }
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!(
            a.bits() == b.bits(),
            "{what}, element {index}: {a:?} instead of {b:?}"
        );
    }
}
