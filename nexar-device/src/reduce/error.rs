//! Errors of the reductions, and the checks that give them.

use super::Accumulator;
use nexar_core::{DataType, ReduceOp, UnsupportedReduction};

/// Why buffers cannot be reduced. Nothing has been changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// The operation is not defined for the element type.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedReduction),
    /// The accumulator is not the one that [`accumulator`](super::accumulator) gives.
    #[error(
        "{accumulator:?} is not the accumulator of {} on {}: ask `accumulator` which is",
        name(.op), name(.dtype)
    )]
    Accumulator {
        /// The accumulator that was passed.
        accumulator: Accumulator,
        /// The element type, where one was passed.
        dtype: Option<DataType>,
        /// The operation, where one was passed.
        op: Option<ReduceOp>,
    },
    /// The two buffers do not hold the same number of elements.
    #[error("buffers of {acc} and {other} bytes do not hold the same number of elements")]
    Length {
        /// Length in bytes of the accumulating buffer, or of the destination.
        acc: usize,
        /// Length in bytes of the other buffer.
        other: usize,
    },
    /// A buffer ends within an element.
    #[error("{length} bytes are no whole number of elements of {size} bytes")]
    PartialElement {
        /// Length of the buffer in bytes.
        length: usize,
        /// Size of an element in bytes.
        size: usize,
    },
    /// The world size is 0.
    #[error("cannot finish a reduction over a world of no ranks")]
    EmptyWorld,
}

fn name(value: &Option<impl std::fmt::Display>) -> String {
    value
        .as_ref()
        .map_or_else(|| "anything".to_owned(), ToString::to_string)
}

pub(super) fn check_whole(length: usize, size: usize) -> Result<(), ReduceError> {
    if length.is_multiple_of(size) {
        Ok(())
    } else {
        Err(ReduceError::PartialElement { length, size })
    }
}

pub(super) fn check_equal(acc: usize, other: usize) -> Result<(), ReduceError> {
    if acc == other {
        Ok(())
    } else {
        Err(ReduceError::Length { acc, other })
    }
}

/// Checks buffers of elements of different sizes.
pub(super) fn check_pair(
    acc: usize,
    acc_size: usize,
    other: usize,
    other_size: usize,
) -> Result<(), ReduceError> {
    check_whole(acc, acc_size)?;
    check_whole(other, other_size)?;
    if acc / acc_size == other / other_size {
        Ok(())
    } else {
        Err(ReduceError::Length { acc, other })
    }
}

pub(super) fn check_world(world: usize) -> Result<(), ReduceError> {
    if world == 0 {
        Err(ReduceError::EmptyWorld)
    } else {
        Ok(())
    }
}

pub(super) fn check_accumulator(
    fits: bool,
    accumulator: Accumulator,
    dtype: Option<DataType>,
    op: Option<ReduceOp>,
) -> Result<(), ReduceError> {
    if fits {
        Ok(())
    } else {
        Err(ReduceError::Accumulator {
            accumulator,
            dtype,
            op,
        })
    }
}
