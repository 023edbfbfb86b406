//! What can be wrong with settings and payloads.

use crate::Error;

/// Why a vector could not be compressed, or a payload not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// A setting of a compressor does not make sense.
    #[error("{compressor}: {reason}")]
    Setting {
        /// The compressor.
        compressor: &'static str,
        /// What is wrong, and what it should be.
        reason: String,
    },
    /// The vector is too long for the encoding: split it.
    #[error("{count} elements, but the encoding takes at most {limit}")]
    TooManyElements {
        /// Elements of the vector.
        count: usize,
        /// Elements that the encoding takes.
        limit: usize,
    },
    /// A payload is not as long as that of a vector of this length.
    #[error("a payload of {actual} bytes instead of {expected}")]
    Length {
        /// The right length.
        expected: usize,
        /// That of the payload.
        actual: usize,
    },
    /// A sparse payload holds an element that the vector does not have.
    #[error("a payload with element {index} of a vector of {count}")]
    Index {
        /// The element.
        index: u32,
        /// Length of the vector.
        count: usize,
    },
    /// The elements of a sparse payload are not in ascending order.
    #[error("a payload with element {index} out of order")]
    Order {
        /// The first that is not behind the one before it.
        index: u32,
    },
}

impl From<CompressionError> for Error {
    fn from(error: CompressionError) -> Error {
        Error::InvalidArgument {
            operation: "all_reduce_compressed",
            reason: error.to_string(),
        }
    }
}
