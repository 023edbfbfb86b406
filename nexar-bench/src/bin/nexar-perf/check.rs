//! Filling buffers with known values and comparing them.
//!
//! Values repeat after [`PERIOD`] elements, so that they are computed once and large buffers are filled and
//! compared at memory speed. The period is a prime: a block in the wrong place still differs.

use nexar_collectives::Element;
use std::{fmt::Debug, ops::Range};

/// The largest prime below 2^16.
const PERIOD: usize = 65_521;

/// Wrong elements of one comparison that are kept for the message.
pub(crate) const MAX_MISTAKES: usize = 4;

/// The values of a long buffer.
pub(crate) struct Pattern<E> {
    period: Vec<E>,
}

/// An element that is not what it should be.
#[derive(Debug, PartialEq)]
pub(crate) struct Mistake {
    pub(crate) index: usize,
    pub(crate) got: String,
    pub(crate) expected: String,
}

/// The outcome of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) wrong: u64,
    /// The first few.
    pub(crate) mistakes: Vec<Mistake>,
}

impl<E: Element> Pattern<E> {
    /// The pattern of a buffer of `len` elements whose first period is given by `value`.
    pub(crate) fn new(len: usize, value: impl Fn(usize) -> E) -> Self {
        Pattern {
            period: (0..len.min(PERIOD)).map(value).collect(),
        }
    }

    /// Pieces of `range` that lie within a period: the offset from its start, and the values.
    fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = (usize, &[E])> {
        let mut next = range.start;
        std::iter::from_fn(move || {
            let (at, left) = (next % self.period.len().max(1), range.end - next);
            let values = self.period.get(at..)?;
            let values = &values[..values.len().min(left)];
            let offset = next - range.start;
            next += values.len();
            (!values.is_empty()).then_some((offset, values))
        })
    }

    /// Fills `buffer`, which starts at element `start` of the pattern.
    pub(crate) fn fill(&self, start: usize, buffer: &mut [E]) {
        for (offset, values) in self.pieces(start..start + buffer.len()) {
            buffer[offset..offset + values.len()].copy_from_slice(values);
        }
    }

    /// Compares `buffer`, which starts at element `start` of the pattern, bit by bit. Mistakes are counted
    /// from `first`.
    pub(crate) fn compare(&self, start: usize, buffer: &[E], first: usize, verdict: &mut Verdict) {
        for (offset, expected) in self.pieces(start..start + buffer.len()) {
            let got = &buffer[offset..offset + expected.len()];
            if E::as_bytes(got) == E::as_bytes(expected) {
                continue;
            }
            for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
                let one = std::slice::from_ref;
                if E::as_bytes(one(got)) != E::as_bytes(one(expected)) {
                    verdict.add(first + offset + i, got, expected);
                }
            }
        }
    }
}

impl Verdict {
    /// Adds the outcome of another comparison.
    pub(crate) fn merge(&mut self, other: Verdict) {
        self.wrong += other.wrong;
        let left = MAX_MISTAKES.saturating_sub(self.mistakes.len());
        self.mistakes.extend(other.mistakes.into_iter().take(left));
    }

    pub(crate) fn add(&mut self, index: usize, got: &impl Debug, expected: &impl Debug) {
        self.wrong += 1;
        if self.mistakes.len() < MAX_MISTAKES {
            let (got, expected) = (format!("{got:?}"), format!("{expected:?}"));
            self.mistakes.push(Mistake {
                index,
                got,
                expected,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_compares_equal() {
        let len = 3 * PERIOD + 5;
        let pattern = Pattern::new(len, |index| index as u32);
        let mut buffer = vec![0; len - 7];
        pattern.fill(7, &mut buffer);
        assert_eq!(buffer[..2], [7, 8]);
        assert_eq!(buffer[PERIOD - 7..PERIOD - 5], [0, 1]);
        let mut verdict = Verdict::default();
        pattern.compare(7, &buffer, 0, &mut verdict);
        assert_eq!(verdict.wrong, 0);
    }

    #[test]
    fn every_wrong_element_is_counted_and_the_first_are_named() {
        let len = 2 * PERIOD;
        let pattern = Pattern::new(len, |index| index as f32);
        let mut buffer = vec![0.0; len];
        pattern.fill(0, &mut buffer);
        buffer[PERIOD + 1..PERIOD + 11].fill(-0.5);
        buffer[0] = -0.0;
        let mut verdict = Verdict::default();
        pattern.compare(0, &buffer, 100, &mut verdict);
        assert_eq!((verdict.wrong, verdict.mistakes.len()), (11, MAX_MISTAKES));
        let expected = Mistake {
            index: PERIOD + 101,
            got: "-0.5".into(),
            expected: "1.0".into(),
        };
        assert_eq!(verdict.mistakes[1], expected);
    }

    #[test]
    fn empty_buffers_are_right() {
        let pattern = Pattern::new(0, |_| 1u8);
        let mut verdict = Verdict::default();
        pattern.fill(0, &mut []);
        pattern.compare(0, &[], 0, &mut verdict);
        assert_eq!(verdict.wrong, 0);
    }
}
