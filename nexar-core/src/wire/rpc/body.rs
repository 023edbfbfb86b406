//! Large bodies and streamed replies.

use super::{FailureCode, Frame, FrameReader, HEADER_LEN, fill};
use crate::wire::WireError;
use bytes::{Buf, Bytes};

/// Stands for the end of a streamed reply where the length of an item is expected.
const END: u32 = u32::MAX;

/// Longest item of a streamed reply, in bytes.
pub const MAX_ITEM: usize = END as usize - 1;

/// Memory that is taken for a body on the strength of its announced length alone.
const FIRST_ALLOCATION: usize = 1 << 20;

/// A body of a known length that arrives in pieces. It takes no more memory than three times what has
/// arrived, and 1 MiB.
#[derive(Debug)]
pub struct BodyReader {
    length: usize,
    bytes: Vec<u8>,
}

impl BodyReader {
    /// Nothing has arrived of a body of `length` bytes.
    pub fn new(length: usize) -> Self {
        BodyReader {
            length,
            bytes: Vec::new(),
        }
    }

    /// How much is still to come.
    pub fn missing(&self) -> usize {
        self.length - self.bytes.len()
    }

    /// Takes what belongs to the body from the beginning of `data`; false if there is no memory for it.
    pub fn take(&mut self, data: &mut Bytes) -> bool {
        let take = self.missing().min(data.len());
        let held = self.bytes.len();
        if self.bytes.capacity() - held < take {
            let more = held.max(FIRST_ALLOCATION).max(take).min(self.missing());
            if self.bytes.try_reserve_exact(more).is_err() {
                return false;
            }
        }
        self.bytes.extend_from_slice(&data[..take]);
        data.advance(take);
        true
    }

    /// What has arrived.
    pub fn into_bytes(self) -> Bytes {
        self.bytes.into()
    }
}

/// A piece of a streamed reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Piece {
    /// An item.
    Item(Bytes),
    /// All items have come.
    Complete,
    /// The reply ends with a failure: why, and its text.
    Failed(FailureCode, Bytes),
}

/// The bytes before an item of this length, which is at most [`MAX_ITEM`].
pub fn item_header(length: usize) -> [u8; 4] {
    (length.min(MAX_ITEM) as u32).to_le_bytes()
}

/// The last bytes of a streamed reply: END and a [`Frame::Reply`] or [`Frame::Failed`], behind which comes
/// the text of a failure.
pub fn stream_end(frame: &Frame) -> [u8; 4 + HEADER_LEN] {
    let mut bytes = [0; 4 + HEADER_LEN];
    bytes[..4].copy_from_slice(&END.to_le_bytes());
    bytes[4..].copy_from_slice(&frame.encode());
    bytes
}

/// Takes the lane of a streamed reply apart, whatever the chunks in which it arrives.
///
/// It holds at most one item; see [`BodyReader`].
#[derive(Debug)]
pub struct ItemReader {
    limit: usize,
    head: [u8; 4],
    filled: usize,
    item: Option<BodyReader>,
    /// The end has come.
    end: Option<FrameReader>,
}

impl ItemReader {
    /// A reader at the beginning of a lane. Items longer than `limit` bytes are refused.
    pub fn new(limit: usize) -> Self {
        ItemReader {
            limit: limit.min(MAX_ITEM),
            head: [0; 4],
            filled: 0,
            item: None,
            end: None,
        }
    }

    /// The next piece, if it is complete with what is at the beginning of `data`; what is used is removed
    /// from `data`. Without a piece, all of `data` is.
    ///
    /// # Errors
    ///
    /// The bytes make no sense. Nothing after them can be read.
    pub fn next(&mut self, data: &mut Bytes) -> Result<Option<Piece>, WireError> {
        if let Some(end) = &mut self.end {
            let Some(arrival) = end.next(data)? else {
                return Ok(None);
            };
            return match arrival.frame {
                Frame::Reply {
                    large: false,
                    length: 0,
                    ..
                } => Ok(Some(Piece::Complete)),
                Frame::Failed { code, .. } => Ok(Some(Piece::Failed(code, arrival.body))),
                _ => Err(WireError::Malformed("end of a streamed reply")),
            };
        }
        let item = match &mut self.item {
            Some(item) => item,
            None => {
                if !fill(&mut self.head, &mut self.filled, data) {
                    return Ok(None);
                }
                self.filled = 0;
                let length = u32::from_le_bytes(self.head);
                if length == END {
                    self.end = Some(FrameReader::new(0));
                    return self.next(data);
                }
                if length as usize > self.limit {
                    return Err(WireError::TooLong {
                        what: "item of a streamed reply",
                        length: length.into(),
                        limit: self.limit as u64,
                    });
                }
                self.item.insert(BodyReader::new(length as usize))
            }
        };
        if !item.take(data) {
            return Err(WireError::Malformed("item that fits no memory"));
        }
        if item.missing() > 0 {
            return Ok(None);
        }
        let item = self.item.take().map(BodyReader::into_bytes);
        Ok(item.map(Piece::Item))
    }
}
