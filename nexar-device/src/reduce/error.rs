//! Errors of the reductions.

use super::Accumulator;
use nexar_core::{DataType, ReduceOp, UnsupportedReduction};

/// Why buffers cannot be reduced, cast or filled. Nothing has been changed then.
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
    /// Only float types are cast.
    #[error("no cast from {from} to {to}: only between f16, bf16, f32 and f64")]
    Cast {
        /// The type of the source.
        from: DataType,
        /// The type of the destination.
        to: DataType,
    },
    /// What is to fill a buffer is not one element.
    #[error("an element of {dtype} has {} bytes, not {length}", .dtype.size())]
    Element {
        /// The type of the buffer's elements.
        dtype: DataType,
        /// Length in bytes of what was passed.
        length: usize,
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
