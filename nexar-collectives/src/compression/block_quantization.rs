//! Eight bits of each element.

use super::{Aggregation, CompressionError, Compressor, check_len};
use crate::digest::digest;

/// Rounds each element to one of 255 values, `-127 s` to `127 s` in steps of `s`, where the scale `s` of each block
/// of elements is its largest magnitude divided by 127. Rounds to nearest, half to even. Blocks keep a
/// large element from spoiling more than its neighbourhood (T. Dettmers, "8-Bit Approximations for Parallelism in
/// Deep Learning", ICLR 2016; T. Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022).
///
/// A block with a NaN or an infinity is all NaN in the result, and its residual starts again from 0.
///
/// # Error
///
/// At most `s/2` for each element and stage, beyond which the arithmetic itself rounds by less than `s/32768`. For a
/// sum over n ranks that makes `Σ sᵢ/2` over the ranks but the one that adds the block up, and `S/2` for the scale `S` of the
/// sum. Blocks in which every magnitude is below 1.5e-36 travel as zeros.
/// A contraction with `δ ≥ 1 - (block - 1)/64516`, as long as blocks have fewer than 64517 elements.
///
/// # Payload
///
/// For each block the scale (f32), then a signed byte for each element.
///
/// # Cost
///
/// Two passes over the vector to compress, one to decompress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockQuantization {
    block: usize,
}

/// Bytes of a scale.
const SCALE: usize = size_of::<f32>();
/// The largest step.
const STEPS: f32 = 127.0;
/// Bits of positive infinity: magnitudes from here up are not finite.
const INFINITE: u32 = f32::INFINITY.to_bits();
/// Added to a number below 2²² in magnitude, it leaves no bits for a fraction: the sum is rounded to the nearest integer, half
/// to even, and the low byte of its bits is the integer's.
const ROUND: f32 = 12_582_912.0;

impl BlockQuantization {
    /// Blocks of this many elements. 256 costs 1.6 % for the scales.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Setting`] unless `block` is from 1 to 65536.
    pub fn new(block: usize) -> Result<BlockQuantization, CompressionError> {
        if (1..=1 << 16).contains(&block) {
            return Ok(BlockQuantization { block });
        }
        Err(CompressionError::Setting {
            compressor: "block-quantization",
            reason: format!("blocks of {block} elements, but there can be 1 to 65536"),
        })
    }
}

impl Compressor for BlockQuantization {
    fn name(&self) -> &'static str {
        "block-quantization"
    }

    fn digest(&self, _round: u64) -> u64 {
        digest([self.block as u64])
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::ReduceScatter { align: self.block }
    }

    fn compressed_len(&self, count: usize) -> Result<usize, CompressionError> {
        let scales = count.div_ceil(self.block).checked_mul(SCALE);
        let len = scales.and_then(|scales| scales.checked_add(count));
        let limit = usize::MAX / (1 + SCALE);
        len.ok_or(CompressionError::TooManyElements { count, limit })
    }

    fn compress(
        &self,
        values: &mut [f32],
        _round: u64,
        payload: &mut [u8],
    ) -> Result<(), CompressionError> {
        check_len(self.compressed_len(values.len())?, payload.len())?;
        let payloads = payload.chunks_mut(SCALE + self.block);
        for (block, payload) in values.chunks_mut(self.block).zip(payloads) {
            if let Some((scale, steps)) = payload.split_first_chunk_mut() {
                *scale = quantize(block, steps).to_le_bytes();
            }
        }
        Ok(())
    }

    fn decompress_add(
        &self,
        payload: &[u8],
        _round: u64,
        sum: &mut [f32],
    ) -> Result<(), CompressionError> {
        check_len(self.compressed_len(sum.len())?, payload.len())?;
        let payloads = payload.chunks(SCALE + self.block);
        for (block, payload) in sum.chunks_mut(self.block).zip(payloads) {
            let Some((scale, steps)) = payload.split_first_chunk() else {
                break;
            };
            let scale = f32::from_le_bytes(*scale);
            for (element, step) in block.iter_mut().zip(steps) {
                *element += f32::from(*step as i8) * scale;
            }
        }
        Ok(())
    }
}

/// Writes the steps of a block, leaves in it what they miss, and returns the scale.
fn quantize(block: &mut [f32], steps: &mut [u8]) -> f32 {
    let magnitudes = block.iter().map(|x| x.abs().to_bits());
    let largest = magnitudes.fold(0, u32::max);
    if largest >= INFINITE {
        block.fill(0.0);
        steps.fill(0);
        return f32::NAN;
    }
    let mut scale = f32::from_bits(largest) / STEPS;
    // The scale of the largest numbers may have been rounded up.
    if (scale * STEPS).is_infinite() {
        scale = scale.next_down();
    }
    // Below the normal numbers a scale has too few digits for its multiples to reach the values.
    if scale < f32::MIN_POSITIVE {
        steps.fill(0);
        return 0.0;
    }
    let inverse = 1.0 / scale;
    for (value, step) in block.iter_mut().zip(steps) {
        let rounded = *value * inverse + ROUND;
        *step = rounded.to_bits() as u8;
        *value -= (rounded - ROUND) * scale;
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(block: usize, values: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let quantization = BlockQuantization::new(block).unwrap();
        let mut payload = vec![0xee; quantization.compressed_len(values.len()).unwrap()];
        let mut rest = values.to_vec();
        quantization.compress(&mut rest, 0, &mut payload).unwrap();
        let mut decoded = vec![0.0; values.len()];
        quantization
            .decompress_add(&payload, 0, &mut decoded)
            .unwrap();
        (decoded, rest)
    }

    #[test]
    fn multiples_of_the_scale_are_exact() {
        let values: Vec<f32> = (-127..=127).map(|step| step as f32 * 0.25).collect();
        let (decoded, rest) = round_trip(255, &values);
        assert_eq!(decoded, values);
        assert!(rest.iter().all(|x| *x == 0.0));
    }

    #[test]
    fn halves_go_to_the_even_step_and_stay_as_the_rest() {
        let (decoded, rest) = round_trip(8, &[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -126.5]);
        assert_eq!(decoded, [127.0, 0.0, 2.0, 2.0, 0.0, -2.0, -126.0]);
        assert_eq!(rest, [0.0, 0.5, -0.5, 0.5, -0.5, 0.5, -0.5]);
    }

    #[test]
    fn each_block_has_its_scale() {
        let (decoded, _) = round_trip(2, &[127.0, 0.3, 1.27, 0.3, 0.0]);
        assert_eq!(decoded[..2], [127.0, 0.0]);
        assert!((decoded[3] - 0.3).abs() < 1e-6);
        assert_eq!(decoded[4], 0.0);
    }

    #[test]
    fn what_is_not_finite_makes_its_block_nan() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (decoded, rest) = round_trip(2, &[1.0, 127.0, 3.0, bad, 127.0]);
            assert_eq!(decoded[..2], [1.0, 127.0]);
            assert!(decoded[2].is_nan() && decoded[3].is_nan());
            assert_eq!(decoded[4], 127.0);
            assert_eq!(rest, [0.0; 5]);
        }
    }

    #[test]
    fn the_ends_of_the_range_of_f32() {
        let tiny = f32::MIN_POSITIVE;
        let (decoded, rest) = round_trip(4, &[tiny, -tiny / 3.0, 0.0, 126.0 * tiny]);
        assert_eq!(decoded, [0.0; 4]);
        assert_eq!(rest, [tiny, -tiny / 3.0, 0.0, 126.0 * tiny]);
        let (decoded, _) = round_trip(2, &[127.0 * tiny, -64.0 * tiny]);
        assert_eq!(decoded, [127.0 * tiny, -64.0 * tiny]);
        let (decoded, _) = round_trip(2, &[f32::MAX, f32::MIN]);
        assert!(
            decoded
                .iter()
                .all(|x| (x.abs() / f32::MAX - 1.0).abs() < 1e-6)
        );
    }

    #[test]
    fn lengths_and_settings() {
        let quantization = BlockQuantization::new(256).unwrap();
        let lengths = [0, 1, 256, 257].map(|count| quantization.compressed_len(count).unwrap());
        assert_eq!(lengths, [0, 5, 260, 265]);
        assert!(quantization.compressed_len(usize::MAX).is_err());
        assert!(BlockQuantization::new(0).is_err());
        assert!(BlockQuantization::new((1 << 16) + 1).is_err());
        let refused = quantization.decompress_add(&[0; 6], 0, &mut [0.0]);
        let (expected, actual) = (5, 6);
        assert_eq!(refused, Err(CompressionError::Length { expected, actual }));
    }
}
