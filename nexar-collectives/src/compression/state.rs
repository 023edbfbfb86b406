//! What a compressed all-reduce keeps between calls, and its steps between the exchanges.

use super::{Aggregation, CompressionError, Compressor};
use crate::{Error, ReduceOp, Result, digest::digest_named};
use std::{fmt, ops::Range};

/// A [`Compressor`], and what it has left out so far of one tensor: make one for each tensor, on each rank.
///
/// It changes only when a call succeeds; one that fails or whose future is dropped leaves it as it was, and the caller's data
/// too. Since a failed call may have succeeded on other ranks, ranks can then be one [`round`](Self::round) apart;
/// [`restore`](Self::restore) aligns them.
///
/// # Memory
///
/// Three times that of the tensor (two without error feedback), and the payloads: own and received, n + 1 times
/// the compressed length for those that are gathered, about twice the compressed length for the others. It is kept for the next call.
pub struct Compression<C> {
    compressor: C,
    feedback: bool,
    round: u64,
    /// What the payloads so far did not hold. Empty before the first success.
    residual: Vec<f32>,
    /// Input and residual; after the compression what its payload does not hold: the next residual.
    work: Vec<f32>,
    result: Vec<f32>,
    /// Bytes for other ranks.
    pub(super) outgoing: Vec<u8>,
    /// Bytes from all ranks.
    pub(super) incoming: Vec<u8>,
}

/// The form of one call: what follows from values that all ranks share, and this rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) aggregation: Aggregation,
    rank: usize,
    world: usize,
    count: usize,
    /// Elements of a rank's piece; the last ones can be shorter or empty. The whole vector if it is not cut.
    piece: usize,
    /// Bytes of the payload of a piece; where a piece is shorter, the rest is zero.
    pub(super) slot: usize,
}

impl Shape {
    /// The elements of a rank's piece.
    pub(super) fn piece(&self, rank: usize) -> Range<usize> {
        let end = |pieces: usize| pieces.saturating_mul(self.piece).min(self.count);
        end(rank)..end(rank + 1)
    }
}

/// A rank has sent a payload that its compressor cannot have made.
#[derive(Debug)]
pub(super) struct BadPayload {
    pub(super) rank: usize,
    pub(super) error: CompressionError,
}

impl<C: Compressor> Compression<C> {
    /// Compression with error feedback.
    pub fn new(compressor: C) -> Self {
        Compression {
            compressor,
            feedback: true,
            round: 0,
            residual: Vec::new(),
            work: Vec::new(),
            result: Vec::new(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
        }
    }

    /// Compression that forgets what it leaves out.
    pub fn without_feedback(compressor: C) -> Self {
        Compression {
            feedback: false,
            ..Compression::new(compressor)
        }
    }

    /// The compressor.
    pub fn compressor(&self) -> &C {
        &self.compressor
    }

    /// How many calls have succeeded.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// What this rank's inputs held and its payloads so far did not: to be saved with a checkpoint. Empty before
    /// the first call and without error feedback.
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }

    /// Continues from a checkpoint: a residual, which may be empty and does not matter without error feedback, and the
    /// number of the next round, which must be the same on all ranks. With an empty residual it starts anew, and
    /// takes a tensor of another length.
    pub fn restore(&mut self, residual: Vec<f32>, round: u64) {
        if self.feedback {
            self.residual = residual;
        }
        self.round = round;
    }

    /// Checks a call and lays it out.
    pub(super) fn shape(
        &self,
        count: usize,
        op: ReduceOp,
        rank: usize,
        world: usize,
    ) -> Result<Shape> {
        if !matches!(op, ReduceOp::Sum | ReduceOp::Average) {
            return Err(invalid(format!(
                "{op} of compressed data: only sum and average are possible"
            )));
        }
        if !self.residual.is_empty() && self.residual.len() != count {
            return Err(invalid(format!(
                "{count} elements, but this compression belongs to a tensor of {}: each tensor has its own",
                self.residual.len()
            )));
        }
        let aggregation = self.compressor.aggregation();
        let piece = match aggregation {
            Aggregation::ReduceScatter { align } => {
                let align = align.max(1);
                count
                    .div_ceil(align)
                    .div_ceil(world)
                    .saturating_mul(align)
                    .min(count)
            }
            Aggregation::Gather | Aggregation::AllReduce => count,
        };
        let slot = self.compressor.compressed_len(piece)?;
        if slot.checked_mul(world).is_none() {
            return Err(invalid(format!("{world} payloads of {slot} bytes")));
        }
        Ok(Shape {
            aggregation,
            rank,
            world,
            count,
            piece,
            slot,
        })
    }

    /// Stands for everything about a call that must be the same on all ranks.
    pub(super) fn digest(&self, count: usize, op: ReduceOp) -> u64 {
        let settings = self.compressor.digest(self.round);
        digest_named(self.compressor.name(), [settings, count as u64, op as u64])
    }

    /// Takes the input, with what was left of those before.
    pub(super) fn load(&mut self, data: &[f32]) {
        self.work.clear();
        self.work.extend_from_slice(data);
        for (value, rest) in self.work.iter_mut().zip(&self.residual) {
            *value += rest;
        }
    }

    /// Fills `outgoing` with the payload of the whole vector.
    pub(super) fn pack(&mut self, shape: &Shape) -> Result<(), CompressionError> {
        refill(&mut self.outgoing, shape.slot);
        self.compressor
            .compress(&mut self.work, self.round, &mut self.outgoing)
    }

    /// Fills `outgoing` with a payload for each rank, of its piece. The own piece is left as it is.
    pub(super) fn pack_pieces(&mut self, shape: &Shape) -> Result<(), CompressionError> {
        refill(&mut self.outgoing, shape.slot * shape.world);
        for rank in (0..shape.world).filter(|rank| *rank != shape.rank) {
            let range = shape.piece(rank);
            let payload = slot(&mut self.outgoing, shape.slot, rank);
            let len = self.compressor.compressed_len(range.len())?;
            let payload = prefix_mut(payload, len)?;
            let piece = &mut self.work[range];
            self.compressor.compress(piece, self.round, payload)?;
        }
        Ok(())
    }

    /// Makes `incoming` as long as the payloads of all ranks.
    pub(super) fn expect_from_all(&mut self, shape: &Shape) {
        refill(&mut self.incoming, shape.slot * shape.world);
    }

    /// Adds up the own piece, `incoming` holding that of every other rank, and fills the start of `outgoing`
    /// with the payload of the sum. What the payload does not hold is the residual of the piece.
    pub(super) fn reduce_piece(&mut self, shape: &Shape) -> Result<(), BadPayload> {
        let own = shape.piece(shape.rank);
        let local = |error| BadPayload {
            rank: shape.rank,
            error,
        };
        let len = self.compressor.compressed_len(own.len()).map_err(local)?;
        let sum = &mut self.result;
        sum.clear();
        sum.resize(own.len(), 0.0);
        for rank in 0..shape.world {
            if rank == shape.rank {
                add(sum, &self.work[own.clone()]);
                continue;
            }
            let payload = slot(&mut self.incoming, shape.slot, rank);
            prefix_mut(payload, len)
                .and_then(|payload| self.compressor.decompress_add(payload, self.round, sum))
                .map_err(|error| BadPayload { rank, error })?;
        }
        refill(&mut self.outgoing, shape.slot);
        prefix_mut(&mut self.outgoing, len)
            .and_then(|payload| self.compressor.compress(sum, self.round, payload))
            .map_err(local)?;
        self.work[own].copy_from_slice(sum);
        Ok(())
    }

    /// Sets the result to the sum of the payloads in `incoming`, one of each rank.
    pub(super) fn sum_payloads(&mut self, shape: &Shape) -> Result<(), BadPayload> {
        self.clear_result(shape);
        for rank in 0..shape.world {
            let payload = slot(&mut self.incoming, shape.slot, rank);
            self.compressor
                .decompress_add(payload, self.round, &mut self.result)
                .map_err(|error| BadPayload { rank, error })?;
        }
        Ok(())
    }

    /// Sets the result to the pieces whose payloads are in `incoming`.
    pub(super) fn join_pieces(&mut self, shape: &Shape) -> Result<(), BadPayload> {
        self.clear_result(shape);
        for rank in 0..shape.world {
            let range = shape.piece(rank);
            let payload = slot(&mut self.incoming, shape.slot, rank);
            let len = self.compressor.compressed_len(range.len());
            let piece = &mut self.result[range];
            len.and_then(|len| prefix_mut(payload, len))
                .and_then(|payload| self.compressor.decompress_add(payload, self.round, piece))
                .map_err(|error| BadPayload { rank, error })?;
        }
        Ok(())
    }

    /// Sets the result to what the sum of all payloads, in `outgoing`, stands for.
    pub(super) fn unpack_sum(&mut self, shape: &Shape) -> Result<(), CompressionError> {
        self.clear_result(shape);
        self.compressor
            .decompress_add(&self.outgoing, self.round, &mut self.result)
    }

    /// Hands out the result, and keeps what was left out for the next call.
    pub(super) fn commit(&mut self, shape: &Shape, op: ReduceOp, data: &mut [f32]) {
        let divisor = match op {
            ReduceOp::Average => shape.world as f32,
            _ => 1.0,
        };
        for (value, sum) in data.iter_mut().zip(&self.result) {
            let result = sum / divisor;
            // Which of its many forms a NaN has could depend on the processor.
            *value = if result.is_nan() { f32::NAN } else { result };
        }
        if self.feedback {
            std::mem::swap(&mut self.residual, &mut self.work);
        }
        self.round = self.round.wrapping_add(1);
    }

    fn clear_result(&mut self, shape: &Shape) {
        self.result.clear();
        self.result.resize(shape.count, 0.0);
    }
}

pub(super) fn invalid(reason: String) -> Error {
    Error::InvalidArgument {
        operation: "all_reduce_compressed",
        reason,
    }
}

/// Zeros, `len` of them.
fn refill(bytes: &mut Vec<u8>, len: usize) {
    bytes.clear();
    bytes.resize(len, 0);
}

/// The bytes of a rank.
fn slot(bytes: &mut [u8], len: usize, rank: usize) -> &mut [u8] {
    &mut bytes[rank * len..(rank + 1) * len]
}

/// The first `len` bytes, for a payload that may be shorter than its slot.
fn prefix_mut(slot: &mut [u8], len: usize) -> Result<&mut [u8], CompressionError> {
    let actual = slot.len();
    let expected = len;
    slot.get_mut(..len)
        .ok_or(CompressionError::Length { expected, actual })
}

fn add(sum: &mut [f32], values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value;
    }
}

impl<C: Compressor> fmt::Debug for Compression<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compression")
            .field("compressor", &self.compressor.name())
            .field("feedback", &self.feedback)
            .field("round", &self.round)
            .field("elements", &self.residual.len())
            .finish_non_exhaustive()
    }
}
