//! Elements that all ranks draw alike.

use super::{
    Aggregation, CompressionError, Compressor, check_len, check_ratio, kept, random::SplitMix64,
};
use crate::digest::digest;

/// Keeps `k = ⌈ratio · count⌉` elements (at least one), exactly, which are drawn anew in each round and
/// are the same on all ranks, so that only values travel and are summed like those of a plain all-reduce.
///
/// The values are not scaled up. With error feedback that is right: an element that is not drawn is
/// carried into the next round. Without error feedback, the result's expectation is k/count times
/// the sum; multiply it by count/k for an unbiased estimate.
///
/// A NaN or an infinity reaches the result in the round that draws its element; until then the residual keeps it.
///
/// # Error
///
/// It leaves out `(1 - k/count) ‖x‖²` in expectation over the draws: a contraction with δ = k/count.
///
/// # Payload
///
/// `k` values (f32), by ascending index. The indices follow from seed and round, by SplitMix64 and selection sampling (D. E. Knuth, The
/// Art of Computer Programming, volume 2, algorithm 3.4.2 S).
///
/// # Cost
///
/// Two passes over the vector, with a random number for each element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomK {
    ratio: f64,
    seed: u64,
}

/// Bytes of a value.
const VALUE: usize = size_of::<f32>();

impl RandomK {
    /// Keeps this part of the elements, drawn from `seed`. Both are the same on all ranks.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Setting`] unless `ratio` is above 0 and at most 1.
    pub fn new(ratio: f64, seed: u64) -> Result<RandomK, CompressionError> {
        check_ratio("random-k", ratio)?;
        Ok(RandomK { ratio, seed })
    }

    fn draw(&self, round: u64, count: usize) -> Draw {
        Draw {
            generator: SplitMix64::new(digest([self.seed, round])),
            index: 0,
            count,
            wanted: kept(self.ratio, count),
        }
    }
}

/// The indices of one round, ascending.
struct Draw {
    generator: SplitMix64,
    index: usize,
    count: usize,
    /// How many are still to be drawn.
    wanted: usize,
}

impl Iterator for Draw {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while self.wanted > 0 && self.index < self.count {
            let index = self.index;
            self.index += 1;
            // Each element is drawn with the probability that the rest of the sample needs.
            if self.generator.below(self.count - index) < self.wanted {
                self.wanted -= 1;
                return Some(index);
            }
        }
        None
    }
}

impl Compressor for RandomK {
    fn name(&self) -> &'static str {
        "random-k"
    }

    fn digest(&self, round: u64) -> u64 {
        digest([self.ratio.to_bits(), self.seed, round])
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::AllReduce
    }

    fn compressed_len(&self, count: usize) -> Result<usize, CompressionError> {
        let limit = usize::MAX / VALUE;
        let too_many = CompressionError::TooManyElements { count, limit };
        kept(self.ratio, count).checked_mul(VALUE).ok_or(too_many)
    }

    fn compress(
        &self,
        values: &mut [f32],
        round: u64,
        payload: &mut [u8],
    ) -> Result<(), CompressionError> {
        check_len(self.compressed_len(values.len())?, payload.len())?;
        let kept = payload.chunks_exact_mut(VALUE);
        for (kept, index) in kept.zip(self.draw(round, values.len())) {
            if let Some(value) = values.get_mut(index) {
                kept.copy_from_slice(&value.to_le_bytes());
                *value = 0.0;
            }
        }
        Ok(())
    }

    fn decompress_add(
        &self,
        payload: &[u8],
        round: u64,
        sum: &mut [f32],
    ) -> Result<(), CompressionError> {
        check_len(self.compressed_len(sum.len())?, payload.len())?;
        let kept = payload.as_chunks::<VALUE>().0;
        for (value, index) in kept.iter().zip(self.draw(round, sum.len())) {
            if let Some(element) = sum.get_mut(index) {
                *element += f32::from_le_bytes(*value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_pinned() {
        let random_k = RandomK::new(0.3, 42).unwrap();
        let drawn = [0, 1].map(|round| random_k.draw(round, 20).collect::<Vec<_>>());
        assert_eq!(drawn, [[3, 7, 8, 11, 15, 17], [0, 3, 5, 12, 15, 17]]);
    }

    #[test]
    fn draws_are_full_ascending_and_even() {
        let random_k = RandomK::new(0.1, 7).unwrap();
        let (count, rounds) = (50, 4000);
        let mut times = vec![0u32; count];
        for round in 0..rounds {
            let drawn: Vec<usize> = random_k.draw(round, count).collect();
            assert_eq!(drawn.len(), 5);
            assert!(drawn.is_sorted_by(|a, b| a < b));
            drawn.iter().for_each(|index| times[*index] += 1);
        }
        // 400 expected of each, with a standard deviation of 19.
        assert!(times.iter().all(|n| (300..500).contains(n)), "{times:?}");
    }

    #[test]
    fn what_is_drawn_travels_and_the_rest_stays() {
        let random_k = RandomK::new(0.5, 1).unwrap();
        let mut values: Vec<f32> = (1..=9).map(|x| x as f32).collect();
        let mut payload = vec![0; random_k.compressed_len(9).unwrap()];
        assert_eq!(payload.len(), 20);
        random_k.compress(&mut values, 3, &mut payload).unwrap();
        assert_eq!(values.iter().filter(|x| **x == 0.0).count(), 5);
        random_k.decompress_add(&payload, 3, &mut values).unwrap();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    }

    #[test]
    fn a_payload_of_another_length_is_refused() {
        let random_k = RandomK::new(0.5, 1).unwrap();
        let refused = random_k.decompress_add(&[0; 9], 0, &mut [0.0; 4]);
        let (expected, actual) = (8, 9);
        assert_eq!(refused, Err(CompressionError::Length { expected, actual }));
        assert!(RandomK::new(0.0, 1).is_err());
    }
}
