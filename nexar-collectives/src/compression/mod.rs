//! Compressed all-reduce: fewer bytes on the wire for results that are not exact.
//!
//! A [`Compressor`] turns a vector of `f32` into a shorter payload, and a [`Compression`] carries what was left
//! out from one call into the next (*error feedback*), so that nothing of a gradient is lost, it only comes later.
//! It pays where the network is slow: it costs a few nanoseconds for each element, which the bytes that it saves must
//! outweigh. The plain `all_reduce` is exact; use that wherever it is fast enough.
//!
//! | compressor | keeps | bytes that a rank sends, n ranks, c elements | of the plain all-reduce, n = 4 |
//! |---|---|---|---|
//! | [`TopK`] | the k largest elements | `8 k (n-1)` | 4 % for k = c/100 |
//! | [`RandomK`] | k elements that are drawn anew each time | `8 k (n-1)/n` | 1 % for k = c/100 |
//! | [`BlockQuantization`] | 8 bits of each element | `2 (1 + 4/block) c (n-1)/n` | 25.4 % for blocks of 256 |
//!
//! The plain all-reduce of many elements sends `8 c (n-1)/n` bytes. `TopK` grows with n: beyond `c/k` ranks it sends more than the plain one.
//! `RandomK` is summed by an all-reduce of k elements; where those are few, that sends up to `4 k ⌈log₂ n⌉` bytes in
//! favour of fewer rounds. `BlockQuantization` rounds each rank's piece up to a whole number of blocks.
//!
//! # Error feedback
//!
//! Each rank keeps a *residual*: what its past inputs held and the payloads did not. It is added to the next input
//! before that is compressed. Over any number of calls, the results of a rank's `Compression` then add up to the
//! inputs of all ranks, less the residuals of the moment, up to rounding. The method is that of
//! F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
//! Speech DNNs" (Interspeech 2014), for sparse gradients of A. F. Aji and K. Heafield, "Sparse Communication for
//! Distributed Gradient Descent" (EMNLP 2017). S. U. Stich, J.-B. Cordonnier and M. Jaggi, "Sparsified SGD with
//! Memory" (NeurIPS 2018), and S. P. Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression
//! Schemes" (ICML 2019), prove that stochastic gradient descent then converges at the rate it has without compression, for
//! every compressor that is a contraction: one which leaves out at most `(1 - δ)‖x‖²`, with a δ above 0 that
//! each compressor here states.

mod all_reduce;
mod block_quantization;
mod error;
mod random;
mod random_k;
mod state;
#[cfg(test)]
mod tests;
mod top_k;

pub(crate) use all_reduce::{LABEL, all_reduce};
pub use block_quantization::BlockQuantization;
pub use error::CompressionError;
pub use random_k::RandomK;
pub use state::Compression;
pub use top_k::TopK;

/// A lossy encoding of vectors of `f32`, whose length depends on nothing but theirs.
///
/// All ranks use the same one with the same settings. The compressors here have no state and no I/O; one of your own
/// must keep to the same:
///
/// - equal input gives equal payloads on every rank, and equal payloads equal results;
/// - [`decompress_add`](Self::decompress_add) takes bytes that another process has sent: whatever they are, it returns a
///   value or an error and does not panic.
///
/// `round` is a number that is the same on all ranks and grows by one with each call, for
/// compressors that draw random numbers.
pub trait Compressor: Send + Sync {
    /// A short name, such as `top-k`.
    fn name(&self) -> &'static str;

    /// A number that stands for the settings, and for `round` if the encoding depends on it. Ranks with different
    /// ones cannot understand each other; calls in which they differ fail as a mismatch.
    fn digest(&self, round: u64) -> u64;

    /// How the payloads of all ranks become one result.
    fn aggregation(&self) -> Aggregation;

    /// Bytes of the payload of `count` elements. A shorter vector never has a longer payload.
    ///
    /// # Errors
    ///
    /// [`CompressionError::TooManyElements`] if there is no payload for so many.
    fn compressed_len(&self, count: usize) -> Result<usize, CompressionError>;

    /// Fills `payload` with the encoding of `values` and leaves in `values` what the payload does not hold: the
    /// input less what [`decompress_add`](Self::decompress_add) would add for this payload.
    ///
    /// # Errors
    ///
    /// [`CompressionError`] if `payload` has not the length that [`compressed_len`](Self::compressed_len) says;
    /// both slices are then unchanged.
    fn compress(
        &self,
        values: &mut [f32],
        round: u64,
        payload: &mut [u8],
    ) -> Result<(), CompressionError>;

    /// Adds the vector that `payload` stands for to `sum`.
    ///
    /// # Errors
    ///
    /// [`CompressionError`] if the payload does not stand for a vector of this length; part of it may have been added.
    fn decompress_add(
        &self,
        payload: &[u8],
        round: u64,
        sum: &mut [f32],
    ) -> Result<(), CompressionError>;
}

/// How the payloads of all ranks become one result. In all three ways every rank gets the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Aggregation {
    /// Every rank gets the payloads of all ranks, and adds them up in rank order. For payloads that are so small that it does
    /// not matter that each goes to every rank.
    Gather,
    /// The vector is cut into a piece for each rank, whose length is a multiple of `align` (but for the last one).
    /// Each rank adds up its piece, its own contribution uncompressed and in rank order, and sends the compressed sum
    /// to all. For payloads that are about as long for a sum as for its summands.
    ReduceScatter {
        /// What the length of a piece is a multiple of.
        align: usize,
    },
    /// The payload is a vector of little-endian `f32` in which every rank has the same thing at the same place, so that
    /// the payload of the sum is the sum of the payloads.
    AllReduce,
}

impl<C: Compressor + ?Sized> Compressor for Box<C> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn digest(&self, round: u64) -> u64 {
        (**self).digest(round)
    }

    fn aggregation(&self) -> Aggregation {
        (**self).aggregation()
    }

    fn compressed_len(&self, count: usize) -> Result<usize, CompressionError> {
        (**self).compressed_len(count)
    }

    fn compress(
        &self,
        values: &mut [f32],
        round: u64,
        payload: &mut [u8],
    ) -> Result<(), CompressionError> {
        (**self).compress(values, round, payload)
    }

    fn decompress_add(
        &self,
        payload: &[u8],
        round: u64,
        sum: &mut [f32],
    ) -> Result<(), CompressionError> {
        (**self).decompress_add(payload, round, sum)
    }
}

/// Elements that a sparse compressor keeps: `⌈ratio · count⌉` in f64, at least 1 of any.
fn kept(ratio: f64, count: usize) -> usize {
    let kept = (ratio * count as f64).ceil() as usize;
    kept.max(1).min(count)
}

/// Refuses ratios that are not above 0 and up to 1.
fn check_ratio(compressor: &'static str, ratio: f64) -> Result<(), CompressionError> {
    if ratio > 0.0 && ratio <= 1.0 {
        return Ok(());
    }
    Err(CompressionError::Setting {
        compressor,
        reason: format!("the ratio is {ratio}, but should be above 0 and at most 1"),
    })
}

/// Refuses a payload of the wrong length.
fn check_len(expected: usize, actual: usize) -> Result<(), CompressionError> {
    if expected == actual {
        return Ok(());
    }
    Err(CompressionError::Length { expected, actual })
}
