//! The wire format.
//!
//! A connection between two ranks carries:
//!
//! - one bidirectional **control stream**, opened by the dialler: frames of a 4-byte little-endian length
//!   and a [postcard](https://docs.rs/postcard) body. The first is a [`join::Opening`], answered by a
//!   [`join::Answer`]; between ranks, [`control::Control`] frames follow in both directions;
//! - unidirectional **lanes**, each opened with a [`Preamble`] that says which communicator and kind of
//!   traffic it carries. A collective on a lane starts with a [`header`] and goes on with bare elements,
//!   whose number both sides know; a message lane carries [`message::Frame`]s, a lane of calls [`rpc::Frame`]s.
//!
//! All integers of fixed layout are little-endian. Every length is checked against a limit before memory
//! is allocated for it, and decoding never panics.

pub mod control;
pub mod header;
pub mod join;
pub mod message;
mod preamble;
pub mod rpc;

pub(crate) use preamble::u64_at;
pub use preamble::{LaneKind, Preamble};

use crate::transport::{RecvStream, SendStream, StreamError};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// Version of the wire format; ranks with different versions refuse each other.
pub const PROTOCOL_VERSION: u16 = 1;

/// Largest world size. The table of a world of this size fits [`MAX_JOIN_FRAME`].
pub const MAX_WORLD_SIZE: usize = 1 << 14;

/// Largest frame on a control stream between ranks, in bytes.
pub const MAX_CONTROL_FRAME: usize = 256 << 10;

/// Largest frame between a process that joins and the seed, in bytes.
pub const MAX_JOIN_FRAME: usize = 8 << 20;

/// Bytes that are not what the protocol says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The announced length is above the limit.
    #[error("{what} of {length} bytes is above the limit of {limit}")]
    TooLong {
        /// What was announced.
        what: &'static str,
        /// Its length.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// The bytes do not decode.
    #[error("malformed {0}")]
    Malformed(&'static str),
}

/// A failure to read or write a frame.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The bytes make no sense.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// A frame with `message`, ready to be written.
pub fn encode_frame<M: Serialize>(message: &M, limit: usize) -> Result<Bytes, WireError> {
    let frame = postcard::to_extend(message, vec![0; 4])
        .map_err(|_| WireError::Malformed("frame to send"))?;
    let mut frame: Vec<u8> = frame;
    let length = frame.len() - 4;
    if length > limit {
        return Err(WireError::TooLong {
            what: "frame to send",
            length: length as u64,
            limit: limit as u64,
        });
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame.into())
}

/// Decodes the body of a frame. Trailing bytes are an error.
pub fn decode_body<M: DeserializeOwned>(body: &[u8]) -> Result<M, WireError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(WireError::Malformed("frame")),
    }
}

/// Writes one frame.
///
/// # Cancel safety
///
/// Not safe: a part of the frame may have been written.
pub async fn write_frame<S: SendStream, M: Serialize + Sync>(
    stream: &mut S,
    message: &M,
    limit: usize,
) -> Result<(), FrameError> {
    let frame = encode_frame(message, limit)?;
    Ok(stream.write_all(frame).await?)
}

/// Reads one frame; `None` at the end of the stream. Memory is bounded by `limit`.
///
/// # Cancel safety
///
/// Not safe: a part of the frame may have been consumed.
pub async fn read_frame<R: RecvStream, M: DeserializeOwned>(
    stream: &mut R,
    limit: usize,
) -> Result<Option<M>, FrameError> {
    let mut length = [0; 4];
    match stream.read(4).await? {
        None => return Ok(None),
        Some(bytes) => {
            length[..bytes.len()].copy_from_slice(&bytes);
            stream.read_exact(&mut length[bytes.len()..]).await?;
        }
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(WireError::TooLong {
            what: "frame",
            length: length as u64,
            limit: limit as u64,
        }
        .into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(decode_body(&body)?))
}
