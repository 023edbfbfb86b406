//! Messages to be sent, chunk by chunk.

use super::{MAX_CHUNK, body::BodyReader, error::MessageFailure};
use crate::DataType;
use bytes::{Bytes, BytesMut};
use std::task::{Context, Poll, ready};

/// A message to be sent.
pub(super) struct Outgoing<'a> {
    pub(super) to: usize,
    pub(super) tag: u64,
    pub(super) dtype: Option<DataType>,
    /// In bytes.
    pub(super) length: usize,
    pub(super) body: Content<'a>,
}

/// The bytes of a message.
pub(super) enum Content<'a> {
    Owned(Bytes),
    Slice(&'a [u8]),
    /// Pieces that belong together.
    Parts(&'a [&'a [u8]]),
    /// What is read when it is needed.
    Reader(&'a mut dyn BodyReader),
}

impl<'a> Outgoing<'a> {
    /// None if the length of the message cannot be represented.
    pub(super) fn new(
        to: usize,
        tag: u64,
        dtype: Option<DataType>,
        body: Content<'a>,
    ) -> Option<Self> {
        let length = match &body {
            Content::Owned(bytes) => bytes.len(),
            Content::Slice(slice) => slice.len(),
            Content::Parts(parts) => sum(parts.iter().map(|part| part.len()))?,
            Content::Reader(reader) => reader.length(),
        };
        Some(Outgoing {
            to,
            tag,
            dtype,
            length,
            body,
        })
    }

    /// A transfer is over. It may be wanted again.
    pub(super) fn pause(&mut self) {
        if let Content::Reader(reader) = &mut self.body {
            reader.pause();
        }
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        match &self.body {
            Content::Owned(bytes) => bytes.clone(),
            Content::Slice(slice) => Bytes::copy_from_slice(slice),
            Content::Parts(parts) => parts.concat().into(),
            // Those that have to be at hand have been taken in before.
            Content::Reader(_) => Bytes::new(),
        }
    }

    /// Keeps the message beyond the borrow.
    pub(super) fn own(&mut self) -> Result<(), MessageFailure> {
        let parts: &[&[u8]] = match &self.body {
            Content::Owned(_) | Content::Reader(_) => return Ok(()),
            Content::Slice(slice) => &[slice],
            Content::Parts(parts) => parts,
        };
        let mut bytes = reserve(self.length)?;
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        self.body = Content::Owned(bytes.into());
        Ok(())
    }
}

pub(super) fn reserve(length: usize) -> Result<Vec<u8>, MessageFailure> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(length);
    reserved.map_err(|_| MessageFailure::OutOfMemory { length })?;
    Ok(bytes)
}

fn sum(lengths: impl IntoIterator<Item = usize>) -> Option<usize> {
    let mut lengths = lengths.into_iter();
    lengths.try_fold(0_usize, |sum, length| sum.checked_add(length))
}

/// Hands out a message chunk by chunk.
pub(super) enum Chunks<'a> {
    Owned(Bytes),
    Parts {
        first: &'a [u8],
        rest: &'a [&'a [u8]],
    },
    Reader {
        reader: &'a mut dyn BodyReader,
        left: usize,
    },
}

impl<'a> Chunks<'a> {
    /// From the first byte on.
    pub(super) fn new(message: &'a mut Outgoing<'_>) -> Self {
        match &mut message.body {
            Content::Owned(bytes) => Chunks::Owned(bytes.clone()),
            Content::Slice(slice) => Chunks::Parts {
                first: slice,
                rest: &[],
            },
            Content::Parts(parts) => Chunks::Parts {
                first: &[],
                rest: parts,
            },
            Content::Reader(reader) => {
                reader.begin();
                Chunks::Reader {
                    reader: &mut **reader,
                    left: message.length,
                }
            }
        }
    }

    /// Goes on with what can be done ahead.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) {
        if let Chunks::Reader { reader, .. } = self {
            reader.advance(cx);
        }
    }

    /// The next chunk; an empty one after the last.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, MessageFailure>> {
        Poll::Ready(Ok(match self {
            Chunks::Reader { left: 0, .. } => Bytes::new(),
            Chunks::Reader { reader, left } => {
                let limit = MAX_CHUNK.min(*left);
                let chunk = ready!(reader.poll_read(cx, limit))?;
                if chunk.is_empty() || chunk.len() > limit {
                    let reason = format!("{} bytes were read instead of 1 to {limit}", chunk.len());
                    return Poll::Ready(Err(MessageFailure::Device { reason }));
                }
                *left -= chunk.len();
                chunk
            }
            Chunks::Owned(bytes) => bytes.split_to(bytes.len().min(MAX_CHUNK)),
            Chunks::Parts { first, rest } => {
                let mut chunk = BytesMut::new();
                while chunk.len() < MAX_CHUNK {
                    if first.is_empty() {
                        let Some((next, others)) = rest.split_first() else {
                            break;
                        };
                        (*first, *rest) = (next, others);
                    }
                    let (taken, left) = first.split_at(first.len().min(MAX_CHUNK - chunk.len()));
                    chunk.extend_from_slice(taken);
                    *first = left;
                }
                chunk.freeze()
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_cannot_be_represented_is_no_length() {
        assert_eq!(sum([]), Some(0));
        assert_eq!(sum([5, 0, 7]), Some(12));
        assert_eq!(sum([usize::MAX - 1, 1]), Some(usize::MAX));
        assert_eq!(sum([usize::MAX / 2 + 1, 7, usize::MAX / 2]), None);
    }
}
