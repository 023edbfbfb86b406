//! What each rank puts in, and what has to come out.
//!
//! Inputs are pseudo-random and differ per rank and element. They are chosen for the operation so that the
//! result is exact in the element type whatever the order of the ranks: integers use all their bits and
//! wrap, floats are small whole numbers (for products powers of two).

use nexar_collectives::{Element, ReduceOp, bf16, f16};
use std::ops::Range;

/// Where a value belongs: its rank and its index in that rank's data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) index: usize,
}

impl Place {
    /// A number that looks random (the finalizer of splitmix64).
    fn hash(self) -> u64 {
        let rank = (self.rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut z = rank ^ (self.index as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number that all ranks share for this index.
    fn shared(self) -> u64 {
        Place {
            rank: usize::MAX - 1,
            ..self
        }
        .hash()
    }

    /// Truth values such that an `and` of all ranks is true, and an `or` false, every now and then.
    fn truth(self, op: ReduceOp, world: usize) -> bool {
        let hash = self.hash();
        let rare = hash.is_multiple_of(world as u64 + 1);
        match op {
            ReduceOp::LogicalAnd | ReduceOp::BitAnd | ReduceOp::Min => !rare,
            ReduceOp::LogicalOr | ReduceOp::BitOr | ReduceOp::Max => rare,
            _ => hash & 1 == 1,
        }
    }
}

/// An element type for which the right result is known.
pub(crate) trait Value: Element + Default {
    /// What a rank puts in; without a reduction any value.
    fn input(op: Option<ReduceOp>, world: usize, place: Place) -> Self;

    /// The reduction of what some of the ranks put in at `index`; of all for an average. An operation that the
    /// type does not have gives the default.
    fn reduced(op: ReduceOp, world: usize, ranks: Range<usize>, index: usize) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn input(op: Option<ReduceOp>, world: usize, place: Place) -> Self {
                let hash = place.hash();
                // Sparse and dense bits keep the result of many ranks from being all zeros or ones.
                (match op {
                    Some(ReduceOp::Product) => hash | 1,
                    Some(ReduceOp::BitAnd) => hash | hash.rotate_left(23) | hash.rotate_left(47),
                    Some(ReduceOp::BitOr) => hash & hash.rotate_left(23) & hash.rotate_left(47),
                    Some(
                        op @ (ReduceOp::LogicalAnd | ReduceOp::LogicalOr | ReduceOp::LogicalXor),
                    ) => if place.truth(op, world) { hash | 1 } else { 0 },
                    _ => hash,
                }) as $type
            }

            fn reduced(op: ReduceOp, world: usize, ranks: Range<usize>, index: usize) -> Self {
                let inputs =
                    ranks.map(|rank| Self::input(Some(op), world, Place { rank, index }));
                let truths = inputs.clone().map(|value| value != 0);
                let folded = match op {
                    ReduceOp::Sum => inputs.reduce(<$type>::wrapping_add),
                    ReduceOp::Product => inputs.reduce(<$type>::wrapping_mul),
                    ReduceOp::Min => inputs.min(),
                    ReduceOp::Max => inputs.max(),
                    ReduceOp::Average => {
                        Some((inputs.map(|value| value as i128).sum::<i128>() / world as i128) as $type)
                    }
                    ReduceOp::BitAnd => inputs.reduce(|a, b| a & b),
                    ReduceOp::BitOr => inputs.reduce(|a, b| a | b),
                    ReduceOp::BitXor => inputs.reduce(|a, b| a ^ b),
                    ReduceOp::LogicalAnd => truths.reduce(|a, b| a & b).map(Into::into),
                    ReduceOp::LogicalOr => truths.reduce(|a, b| a | b).map(Into::into),
                    ReduceOp::LogicalXor => truths.reduce(|a, b| a ^ b).map(Into::into),
                    _ => None,
                };
                folded.unwrap_or_default()
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Value for bool {
    fn input(op: Option<ReduceOp>, world: usize, place: Place) -> Self {
        place.truth(op.unwrap_or(ReduceOp::BitXor), world)
    }

    fn reduced(op: ReduceOp, world: usize, ranks: Range<usize>, index: usize) -> Self {
        let mut inputs = ranks.map(|rank| Self::input(Some(op), world, Place { rank, index }));
        match op {
            ReduceOp::Min | ReduceOp::BitAnd | ReduceOp::LogicalAnd => inputs.all(|value| value),
            ReduceOp::Max | ReduceOp::BitOr | ReduceOp::LogicalOr => inputs.any(|value| value),
            _ => inputs.fold(false, |a, b| a ^ b),
        }
    }
}

/// How many ranks take part in a product or differ in an average: more would leave the range of `f16`.
const WINDOW: usize = 12;

/// The place of a rank in the window of this index, if it is in it.
fn window(world: usize, place: Place) -> Option<usize> {
    let size = world.min(WINDOW);
    let shift = (place.shared() >> 32) as usize % world;
    Some((place.rank + shift) % world).filter(|at| *at < size)
}

/// A whole number from `-limit` to `limit`.
fn whole(hash: u64, limit: u64) -> f64 {
    (hash % (2 * limit + 1)) as f64 - limit as f64
}

/// What a rank puts in where the type holds whole numbers of `digits` bits.
fn float_input(op: Option<ReduceOp>, world: usize, place: Place, digits: u32) -> f64 {
    let (hash, limit) = (place.hash(), 1u64 << digits);
    match op {
        Some(ReduceOp::Sum) => whole(hash, (limit / world as u64).max(1)),
        // The deviations of the ranks in the window add up to 0, so the average is a whole number.
        Some(ReduceOp::Average) => {
            let size = world.min(WINDOW) as f64;
            let deviation = window(world, place).map_or(0.0, |at| 2.0 * at as f64 - (size - 1.0));
            let sum_limit = (limit / world as u64).clamp(8, 1 << 16);
            whole(place.shared(), sum_limit) + deviation
        }
        Some(ReduceOp::Product) => {
            let exponent = window(world, place).map_or(0, |_| (hash % 3) as i32 - 1);
            let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
            sign * f64::from(exponent).exp2()
        }
        _ => whole(hash, limit - 1),
    }
}

fn float_reduced(op: ReduceOp, world: usize, inputs: impl Iterator<Item = f64>) -> f64 {
    let folded = match op {
        ReduceOp::Sum => inputs.reduce(|a, b| a + b),
        ReduceOp::Average => inputs.reduce(|a, b| a + b).map(|sum| sum / world as f64),
        ReduceOp::Product => inputs.reduce(|a, b| a * b),
        ReduceOp::Min => inputs.reduce(f64::min),
        ReduceOp::Max => inputs.reduce(f64::max),
        _ => None,
    };
    folded.unwrap_or_default()
}

macro_rules! floats {
    ($($type:ty, $digits:literal, $from:expr, $to:expr;)*) => {$(
        impl Value for $type {
            fn input(op: Option<ReduceOp>, world: usize, place: Place) -> Self {
                $from(float_input(op, world, place, $digits))
            }

            fn reduced(op: ReduceOp, world: usize, ranks: Range<usize>, index: usize) -> Self {
                let place = |rank| Place { rank, index };
                let inputs = ranks.map(|rank| $to(Self::input(Some(op), world, place(rank))));
                $from(float_reduced(op, world, inputs))
            }
        }
    )*};
}

floats! {
    bf16, 8, bf16::from_f64, bf16::to_f64;
    f16, 11, f16::from_f64, f16::to_f64;
    f32, 24, |value: f64| value as f32, f64::from;
    f64, 40, |value: f64| value, |value: f64| value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexar_collectives::DataType;

    const WORLDS: [usize; 7] = [1, 2, 3, 5, 8, 32, 100];

    /// Every float result is a value of the type itself, so that rounding plays no part.
    #[test]
    fn float_results_are_exact() {
        fn check<E: Value>(digits: u32, to: impl Fn(E) -> f64) {
            for op in ReduceOp::ALL
                .into_iter()
                .filter(|op| op.supports(E::DATA_TYPE))
            {
                for world in WORLDS {
                    for index in 0..500 {
                        let inputs = (0..world).map(|rank| {
                            let place = Place { rank, index };
                            let value = float_input(Some(op), world, place, digits);
                            assert_eq!(to(E::input(Some(op), world, place)), value, "{op} {world}");
                            value
                        });
                        let inputs: Vec<f64> = inputs.collect();
                        for end in [world / 2 + 1, world] {
                            if op == ReduceOp::Average && end < world {
                                continue;
                            }
                            let exact = float_reduced(op, world, inputs[..end].iter().copied());
                            let reduced = to(E::reduced(op, world, 0..end, index));
                            assert_eq!(reduced, exact, "{op} of {end} of {world}");
                            assert!(exact.is_finite());
                            assert!(exact != 0.0 || exact.is_sign_positive());
                        }
                    }
                }
            }
        }
        check::<f64>(40, |value| value);
        check::<f32>(24, f64::from);
        check::<f16>(11, f16::to_f64);
        check::<bf16>(8, bf16::to_f64);
    }

    #[test]
    fn integer_results() {
        let place = |rank| Place { rank, index: 4 };
        let input = |rank| i8::input(Some(ReduceOp::Average), 3, place(rank));
        let sum: i32 = (0..3).map(|rank| i32::from(input(rank))).sum();
        assert_eq!(
            i32::from(i8::reduced(ReduceOp::Average, 3, 0..3, 4)),
            sum / 3
        );
        let input = |rank| u64::input(Some(ReduceOp::Sum), 2, place(rank));
        assert_eq!(
            u64::reduced(ReduceOp::Sum, 2, 0..2, 4),
            input(0).wrapping_add(input(1))
        );
    }

    /// A result that never changes would not notice blocks in the wrong place.
    #[test]
    fn results_vary() {
        fn check<E: Value>() {
            for op in ReduceOp::ALL
                .into_iter()
                .filter(|op| op.supports(E::DATA_TYPE))
            {
                for world in [1, 2, 3, 8] {
                    let first = E::reduced(op, world, 0..world, 0);
                    let varies =
                        (1..500).any(|index| E::reduced(op, world, 0..world, index) != first);
                    assert!(varies, "{op} of {world} {}", E::DATA_TYPE);
                    let first = E::input(Some(op), world, Place { rank: 0, index: 0 });
                    let differs = (1..world).any(|rank| {
                        (0..64)
                            .any(|index| E::input(Some(op), world, Place { rank, index }) != first)
                    });
                    assert!(world == 1 || differs, "{op} of {world} {}", E::DATA_TYPE);
                }
            }
        }
        check::<bool>();
        check::<u8>();
        check::<i64>();
        check::<bf16>();
        check::<f32>();
        assert_eq!(DataType::ALL.len(), 13);
    }
}
