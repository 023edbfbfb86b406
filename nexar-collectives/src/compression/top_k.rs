//! The largest elements.

use super::{Aggregation, CompressionError, Compressor, check_len, check_ratio, kept};
use crate::digest::digest;

/// Keeps the `k = ⌈ratio · count⌉` elements of largest magnitude (at least one), exactly. Of elements of equal
/// magnitude those with the lowest index come first.
///
/// NaN is larger than every other value, then come the infinities: they reach the result before anything else does.
///
/// # Error
///
/// It leaves out at most `(1 - k/count) ‖x‖²`, since what it keeps is no smaller than the average: a
/// contraction with δ = k/count. With error feedback and inputs of norm at most G the residual's norm stays below
/// `G q/(1 - q)`, `q = √(1 - δ)`.
///
/// # Payload
///
/// `k` times index (u32) and value (f32), by ascending index. Takes at most 2³² - 1 elements.
///
/// # Cost
///
/// Four passes over the vector, whatever k is, and no memory of its own. One pass over k elements for each
/// rank's payload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopK {
    ratio: f64,
}

/// Bytes of an index and a value.
const ENTRY: usize = 8;
/// Shift and width of the digits by which magnitudes are compared, the highest first: 31 bits in all.
const DIGITS: [(u32, u32); 3] = [(20, 11), (10, 10), (0, 10)];

impl TopK {
    /// Keeps this part of the elements.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Setting`] unless `ratio` is above 0 and at most 1.
    pub fn new(ratio: f64) -> Result<TopK, CompressionError> {
        check_ratio("top-k", ratio)?;
        Ok(TopK { ratio })
    }
}

impl Compressor for TopK {
    fn name(&self) -> &'static str {
        "top-k"
    }

    fn digest(&self, _round: u64) -> u64 {
        digest([self.ratio.to_bits()])
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::Gather
    }

    fn compressed_len(&self, count: usize) -> Result<usize, CompressionError> {
        let too_many = CompressionError::TooManyElements {
            count,
            limit: u32::MAX as usize,
        };
        if u32::try_from(count).is_err() {
            return Err(too_many);
        }
        kept(self.ratio, count).checked_mul(ENTRY).ok_or(too_many)
    }

    fn compress(
        &self,
        values: &mut [f32],
        _round: u64,
        payload: &mut [u8],
    ) -> Result<(), CompressionError> {
        check_len(self.compressed_len(values.len())?, payload.len())?;
        let (threshold, mut equal) = threshold(values, kept(self.ratio, values.len()));
        let mut entries = payload.chunks_exact_mut(ENTRY);
        for (index, value) in values.iter_mut().enumerate() {
            let magnitude = magnitude(*value);
            if magnitude < threshold || (magnitude == threshold && equal == 0) {
                continue;
            }
            let Some(entry) = entries.next() else { break };
            let (at, kept) = entry.split_at_mut(4);
            at.copy_from_slice(&(index as u32).to_le_bytes());
            kept.copy_from_slice(&value.to_le_bytes());
            *value = 0.0;
            equal -= usize::from(magnitude == threshold);
        }
        Ok(())
    }

    fn decompress_add(
        &self,
        payload: &[u8],
        _round: u64,
        sum: &mut [f32],
    ) -> Result<(), CompressionError> {
        let count = sum.len();
        check_len(self.compressed_len(count)?, payload.len())?;
        let mut behind = 0;
        for entry in payload.as_chunks::<ENTRY>().0 {
            let [a, b, c, d, value @ ..] = *entry;
            let index = u32::from_le_bytes([a, b, c, d]);
            if (index as usize) < behind {
                return Err(CompressionError::Order { index });
            }
            let Some(element) = sum.get_mut(index as usize) else {
                return Err(CompressionError::Index { index, count });
            };
            *element += f32::from_le_bytes(value);
            behind = index as usize + 1;
        }
        Ok(())
    }
}

/// Orders values by their absolute value: infinity above the finite ones, NaN above it.
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// The magnitude of the k-th largest element, and how many of that magnitude are among the k largest. Digit by digit,
/// counting only the elements that agree with the result so far (radix selection).
fn threshold(values: &[f32], k: usize) -> (u32, usize) {
    let (mut found, mut wanted) = (0u32, k);
    for (shift, width) in DIGITS {
        let mut counts = [0usize; 1 << 11];
        for value in values {
            let digits = magnitude(*value) >> shift;
            if digits >> width == found {
                counts[(digits & ((1 << width) - 1)) as usize] += 1;
            }
        }
        let mut digit = (1u32 << width) - 1;
        while digit > 0 && counts[digit as usize] < wanted {
            wanted -= counts[digit as usize];
            digit -= 1;
        }
        found = (found << width) | digit;
    }
    (found, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(payload: &[u8]) -> Vec<(u32, f32)> {
        let entry = |entry: &[u8; ENTRY]| {
            let [a, b, c, d, value @ ..] = *entry;
            (u32::from_le_bytes([a, b, c, d]), f32::from_le_bytes(value))
        };
        payload.as_chunks::<ENTRY>().0.iter().map(entry).collect()
    }

    fn compressed(ratio: f64, values: &mut [f32]) -> Vec<(u32, f32)> {
        let top_k = TopK::new(ratio).unwrap();
        let mut payload = vec![0xee; top_k.compressed_len(values.len()).unwrap()];
        top_k.compress(values, 0, &mut payload).unwrap();
        entries(&payload)
    }

    #[test]
    fn keeps_the_largest_in_order_of_index() {
        let mut values = [0.5, -4.0, 3.0, 0.0, 2.0];
        assert_eq!(compressed(0.4, &mut values), [(1, -4.0), (2, 3.0)]);
        assert_eq!(values, [0.5, 0.0, 0.0, 0.0, 2.0]);
    }

    #[test]
    fn ties_go_to_the_lowest_index() {
        let mut values = [1.0, -2.0, 2.0, -2.0, 2.0, 3.0];
        let kept = compressed(0.5, &mut values);
        assert_eq!(kept, [(1, -2.0), (2, 2.0), (5, 3.0)]);
        let mut zeros = [0.0; 5];
        assert_eq!(compressed(0.4, &mut zeros), [(0, 0.0), (1, 0.0)]);
    }

    #[test]
    fn nan_and_infinity_come_first() {
        let mut values = [f32::MAX, f32::INFINITY, 1.0, f32::NAN, f32::NEG_INFINITY];
        let kept = compressed(0.6, &mut values);
        assert_eq!(kept.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [1, 3, 4]);
        assert!(kept[1].1.is_nan());
        assert_eq!(values, [f32::MAX, 0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn keeps_at_least_one_of_any_and_none_of_none() {
        let top_k = TopK::new(0.001).unwrap();
        let lengths = [0, 1, 1000, 1001].map(|count| top_k.compressed_len(count).unwrap());
        assert_eq!(lengths, [0, 8, 8, 16]);
        assert_eq!(compressed(0.001, &mut []), []);
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn refuses_more_than_an_index_can_name() {
        let top_k = TopK::new(0.5).unwrap();
        assert_eq!(top_k.compressed_len(u32::MAX as usize), Ok(8 << 31));
        let refused = top_k.compressed_len(1 << 32);
        let limit = u32::MAX as usize;
        assert_eq!(
            refused,
            Err(CompressionError::TooManyElements {
                count: 1 << 32,
                limit
            })
        );
    }

    #[test]
    fn payloads_that_no_rank_made_are_refused() {
        let top_k = TopK::new(0.5).unwrap();
        let payload = |indices: [u32; 2]| {
            let entry = |i: u32| [i.to_le_bytes(), 1f32.to_le_bytes()].concat();
            indices.map(entry).concat()
        };
        let decode = |payload: &[u8]| top_k.decompress_add(payload, 0, &mut [0.0; 4]);
        assert_eq!(decode(&payload([0, 3])), Ok(()));
        let beyond = CompressionError::Index { index: 4, count: 4 };
        assert_eq!(decode(&payload([0, 4])), Err(beyond));
        let twice = CompressionError::Order { index: 2 };
        assert_eq!(decode(&payload([2, 2])), Err(twice));
        let (expected, actual) = (16, 15);
        let short = CompressionError::Length { expected, actual };
        assert_eq!(decode(&payload([0, 1])[1..]), Err(short));
    }

    #[test]
    fn ratios_that_make_no_sense_are_refused() {
        for ratio in [0.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = TopK::new(ratio).unwrap_err().to_string();
            assert!(error.starts_with("top-k: the ratio is"), "{error}");
        }
    }
}
