//! Minimum and maximum with the place where it is found: elements of a value and a location, and how two of them
//! combine.
//!
//! The winner is the smallest under one total order, so that combining is associative and commutative, and every rank
//! gets the same bits in whatever order it combines:
//!
//! 1. NaN wins over every other value, for the minimum and for the maximum;
//! 2. then the smaller, or larger, value; -0.0 and 0.0 are equal here (unlike in `ReduceOp::Min` and `Max`, where no
//!    location tells them apart);
//! 3. of equal values, and of NaNs, the one with the lowest location;
//! 4. of equal values at the same location, the one with the lowest bits.

use nexar_core::{DataType, Element, as_bytes_mut};

/// Bytes of an element: the value's bits in the first 8, the rest of which are 0, and the location.
pub(crate) const LOCATED: usize = 16;

/// An element of a value and its location.
pub(crate) fn pack<E: Element>(value: E, location: u64) -> [u8; LOCATED] {
    let mut element = [0; LOCATED];
    let (bits, place) = element.split_at_mut(8);
    for (to, from) in bits.iter_mut().zip(E::as_bytes(&[value])) {
        *to = *from;
    }
    place.copy_from_slice(&location.to_le_bytes());
    element
}

/// Stores the value of an element, whatever its bytes are, and returns the location.
pub(crate) fn unpack<E: Element>(element: &[u8; LOCATED], value: &mut E) -> u64 {
    let (bits, location) = parts(E::DATA_TYPE, element);
    let bits = match E::DATA_TYPE {
        DataType::Bool => u64::from(bits != 0),
        _ => bits,
    };
    // SAFETY: a bool gets 0 or 1, as has just been ensured, and the other types take any bits.
    let stored = unsafe { as_bytes_mut(std::slice::from_mut(value)) };
    for (to, from) in stored.iter_mut().zip(bits.to_le_bytes()) {
        *to = from;
    }
    location
}

/// The one of two elements that wins, for values of `dtype`.
pub(crate) fn combine(
    dtype: DataType,
    want_max: bool,
    left: &[u8; LOCATED],
    right: &[u8; LOCATED],
) -> [u8; LOCATED] {
    let rank = |element| {
        let (bits, location) = parts(dtype, element);
        let toward = match (order(dtype, bits), want_max) {
            // `!` reverses the order of integers.
            (Some(place), true) => Some(!place),
            (place, _) => place,
        };
        // None, which is NaN, is below everything.
        (toward, location, bits)
    };
    if rank(right) < rank(left) {
        *right
    } else {
        *left
    }
}

/// The bits of the value, without what a type of this size does not have, and the location.
fn parts(dtype: DataType, element: &[u8; LOCATED]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, place @ ..] = *element;
    let spare = 64 - 8 * dtype.size() as u32;
    let bits = u64::from_le_bytes([a, b, c, d, e, f, g, h]) & (u64::MAX >> spare);
    (bits, u64::from_le_bytes(place))
}

/// An integer that is ordered like the value with these bits. None for a NaN.
fn order(dtype: DataType, bits: u64) -> Option<i64> {
    match dtype {
        DataType::F16 => float_order(bits, 15, 0x7c00),
        DataType::Bf16 => float_order(bits, 15, 0x7f80),
        DataType::F32 => float_order(bits, 31, 0x7f80_0000),
        DataType::F64 => float_order(bits, 63, 0x7ff0_0000_0000_0000),
        DataType::I8 => Some(i64::from(bits as i8)),
        DataType::I16 => Some(i64::from(bits as i16)),
        DataType::I32 => Some(i64::from(bits as i32)),
        DataType::I64 => Some(bits as i64),
        DataType::Bool => Some(i64::from(bits != 0)),
        // Unsigned: the top bit flipped, 0 becomes the smallest integer.
        _ => Some((bits ^ 1 << 63) as i64),
    }
}

/// The order of an IEEE format, given the number of its sign bit and the bits of infinity: its magnitudes are ordered like integers.
fn float_order(bits: u64, sign: u32, infinity: u64) -> Option<i64> {
    let magnitude = bits & !(1 << sign);
    if magnitude > infinity {
        return None;
    }
    let negative = bits >> sign == 1;
    Some(if negative {
        -(magnitude as i64)
    } else {
        magnitude as i64
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexar_core::{bf16, f16};

    /// Both orders of the operands; the value and the location of the winner.
    fn winner<E: Element>(want_max: bool, left: (E, u64), right: (E, u64)) -> (E, u64) {
        let (a, b) = (pack(left.0, left.1), pack(right.0, right.1));
        let won = combine(E::DATA_TYPE, want_max, &a, &b);
        assert_eq!(won, combine(E::DATA_TYPE, want_max, &b, &a));
        let mut value = left.0;
        let location = unpack(&won, &mut value);
        (value, location)
    }

    /// Every pair of values that are given in ascending order, and every tie.
    fn check<E: Element>(ascending: &[E]) {
        for (i, low) in ascending.iter().enumerate() {
            for high in &ascending[i + 1..] {
                for (a, b) in [(3, u64::MAX), (u64::MAX, 3)] {
                    assert_eq!(winner(false, (*low, a), (*high, b)), (*low, a));
                    assert_eq!(winner(true, (*low, a), (*high, b)), (*high, b));
                }
            }
            for want_max in [false, true] {
                // Locations are unsigned.
                let tie = winner(want_max, (*low, u64::MAX), (*low, 7));
                assert_eq!(tie, (*low, 7), "{}", E::DATA_TYPE);
            }
        }
    }

    #[test]
    fn integers_and_bool() {
        check::<i8>(&[i8::MIN, -1, 0, 1, i8::MAX]);
        check::<i16>(&[i16::MIN, -300, -1, 0, 300, i16::MAX]);
        check::<i32>(&[i32::MIN, -70_000, 0, 70_000, i32::MAX]);
        check::<i64>(&[i64::MIN, -1, 0, 1 << 40, i64::MAX]);
        check::<u8>(&[0, 1, 127, 128, u8::MAX]);
        check::<u16>(&[0, 255, 256, 1 << 15, u16::MAX]);
        check::<u32>(&[0, 1 << 16, 1 << 31, u32::MAX]);
        check::<u64>(&[0, 1 << 32, 1 << 63, u64::MAX]);
        check(&[false, true]);
    }

    macro_rules! floats {
        ($name:ident, $t:ty, $from:expr) => {
            #[test]
            fn $name() {
                let from = $from;
                let (zero, one) = (from(0.0), from(1.0));
                check::<$t>(&[
                    <$t>::NEG_INFINITY,
                    <$t>::MIN,
                    from(-2.5),
                    from(-1.0),
                    -<$t>::MIN_POSITIVE,
                    zero,
                    <$t>::from_bits(1),
                    <$t>::MIN_POSITIVE,
                    one,
                    <$t>::MAX,
                    <$t>::INFINITY,
                ]);
                let nan = <$t>::NAN;
                let infinity = <$t>::INFINITY;
                for want_max in [false, true] {
                    for other in [one, infinity, -infinity, zero] {
                        let (value, location) = winner(want_max, (nan, 9), (other, 1));
                        assert!(value.is_nan() && location == 9);
                    }
                    let (value, location) = winner(want_max, (nan, 9), (-nan, 4));
                    assert!(value.is_nan() && location == 4);
                    // The two zeros are one value, each with its own sign.
                    let (value, location) = winner(want_max, (-zero, 5), (zero, 6));
                    assert!(value.is_sign_negative() && location == 5);
                    let (value, location) = winner(want_max, (-zero, 6), (zero, 5));
                    assert!(value.is_sign_positive() && location == 5);
                }
            }
        };
    }

    floats!(doubles, f64, |x: f64| x);
    floats!(singles, f32, |x: f32| x);
    floats!(halves, f16, f16::from_f32);
    floats!(brain_floats, bf16, bf16::from_f32);

    #[test]
    fn combining_is_associative_whatever_the_bytes() {
        // Spare bytes, bools beyond 1, NaNs, both zeros, equal locations.
        let words = [
            0u64,
            1,
            2,
            0x7fff,
            0x8000,
            0xff_7fc0_0001,
            1 << 63,
            u64::MAX,
        ];
        let element = |bits: u64, location: u64| {
            let mut element = [0; LOCATED];
            element[..8].copy_from_slice(&bits.to_le_bytes());
            element[8..].copy_from_slice(&location.to_le_bytes());
            element
        };
        let all: Vec<_> = words
            .iter()
            .flat_map(|bits| [element(*bits, 0), element(*bits, 1)])
            .collect();
        // Spare bytes do not count.
        let same = |dtype, a: &[u8; LOCATED], b: &[u8; LOCATED]| parts(dtype, a) == parts(dtype, b);
        for dtype in DataType::ALL {
            for want_max in [false, true] {
                let join = |a: &_, b: &_| combine(dtype, want_max, a, b);
                for a in &all {
                    for b in &all {
                        assert!(same(dtype, &join(a, b), &join(b, a)), "{dtype}");
                        for c in &all {
                            let left = join(&join(a, b), c);
                            assert!(same(dtype, &left, &join(a, &join(b, c))), "{dtype}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_bool_from_elsewhere_is_0_or_1() {
        let mut element = pack(true, 3);
        element[0] = 0x80;
        let mut value = false;
        assert_eq!(unpack(&element, &mut value), 3);
        assert!(value);
    }
}
