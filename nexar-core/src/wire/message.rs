//! The frames on a message lane.
//!
//! A lane carries, in one direction between two ranks, the small messages of a communicator, the
//! announcements of its large ones, and the answers to what came on the lane in the other direction.
//! Every frame is a header of 28 bytes; only an eager message has a body behind it.
//!
//! | byte 1 | frame | byte 2 | 4..12 | 12..20 | 20..28 |
//! |---|---|---|---|---|---|
//! | 1 | [`Frame::Eager`] | element type | tag | length | message |
//! | 2 | [`Frame::Announce`] | element type | tag | length | message |
//! | 3 | [`Frame::Withdraw`] | 0 | 0 | 0 | message |
//! | 4 | [`Frame::ClearToSend`] | 0 | transfer | 0 | message |
//! | 5 | [`Frame::Keep`] | 0 | 0 | 0 | message |
//! | 6 | [`Frame::Taken`] | 0 | 0 | 0 | message |
//! | 7 | [`Frame::Credit`] | 0 | 0 | bytes | 0 |
//!
//! Byte 0 is 0x6d, byte 3 is 0. The element type is the number of a [`DataType`], or 0 for bare bytes; the length
//! is a multiple of its size. Messages are numbered from 0 for each communicator, sender and
//! receiver. A large message's body comes on a bulk lane whose preamble has the number of the transfer.

use super::{WireError, preamble::u64_at};
use crate::DataType;
use bytes::{Buf, Bytes};

/// Length of a header.
pub const HEADER_LEN: usize = 28;

const MAGIC: u8 = 0x6d;

/// A frame on a message lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// A message whose body follows.
    Eager {
        /// The element type; `None` for bare bytes.
        dtype: Option<DataType>,
        /// The tag.
        tag: u64,
        /// Length of the body in bytes.
        length: u64,
        /// Number of the message.
        message: u64,
    },
    /// A message whose body comes on a bulk lane, once the receiver has asked for it.
    Announce {
        /// The element type; `None` for bare bytes.
        dtype: Option<DataType>,
        /// The tag.
        tag: u64,
        /// Length of the body in bytes.
        length: u64,
        /// Number of the message.
        message: u64,
    },
    /// An announced message does not come after all.
    Withdraw {
        /// Number of the message.
        message: u64,
    },
    /// Answer to an announcement: a receive waits for the body.
    ClearToSend {
        /// Number of the message.
        message: u64,
        /// What the bulk lane is to call itself; never used twice.
        transfer: u64,
    },
    /// The receive that waited for the body is gone: the sender keeps the message until it is asked
    /// again.
    Keep {
        /// Number of the message.
        message: u64,
    },
    /// An announced message has been received completely.
    Taken {
        /// Number of the message.
        message: u64,
    },
    /// Room for eager messages has become free at the sender of this frame.
    Credit {
        /// How much.
        bytes: u64,
    },
}

impl Frame {
    /// The bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let (kind, fields) = match *self {
            Frame::Eager {
                tag,
                length,
                message,
                ..
            } => (1, [tag, length, message]),
            Frame::Announce {
                tag,
                length,
                message,
                ..
            } => (2, [tag, length, message]),
            Frame::Withdraw { message } => (3, [0, 0, message]),
            Frame::ClearToSend { message, transfer } => (4, [transfer, 0, message]),
            Frame::Keep { message } => (5, [0, 0, message]),
            Frame::Taken { message } => (6, [0, 0, message]),
            Frame::Credit { bytes } => (7, [0, bytes, 0]),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = MAGIC;
        bytes[1] = kind;
        bytes[2] = self.dtype().map_or(0, |dtype| dtype as u8);
        for (to, field) in bytes[4..].chunks_exact_mut(8).zip(fields) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// The value of the bytes. An eager body longer than `eager_limit` is refused, and a length that is not a whole
    /// number of elements.
    pub fn decode(bytes: &[u8; HEADER_LEN], eager_limit: usize) -> Result<Self, WireError> {
        let [first, second, third] = [4, 12, 20].map(|at| u64_at(bytes, at));
        let dtype = DataType::from_wire(bytes[2]);
        let frame = match bytes[1] {
            1 => Frame::Eager {
                dtype,
                tag: first,
                length: second,
                message: third,
            },
            2 => Frame::Announce {
                dtype,
                tag: first,
                length: second,
                message: third,
            },
            3 => Frame::Withdraw { message: third },
            4 => Frame::ClearToSend {
                message: third,
                transfer: first,
            },
            5 => Frame::Keep { message: third },
            6 => Frame::Taken { message: third },
            7 => Frame::Credit { bytes: second },
            _ => return Err(WireError::Malformed("message frame")),
        };
        if frame.encode() != *bytes {
            return Err(WireError::Malformed("message frame"));
        }
        if let Some(dtype) = dtype
            && second % dtype.size() as u64 != 0
        {
            return Err(WireError::Malformed("length of a typed message"));
        }
        match frame {
            Frame::Eager { length, .. } if length > eager_limit as u64 => Err(WireError::TooLong {
                what: "small message",
                length,
                limit: eager_limit as u64,
            }),
            frame => Ok(frame),
        }
    }

    /// The element type of the message that the frame begins.
    fn dtype(&self) -> Option<DataType> {
        match self {
            Frame::Eager { dtype, .. } | Frame::Announce { dtype, .. } => *dtype,
            _ => None,
        }
    }

    fn body_length(&self) -> usize {
        match self {
            Frame::Eager { length, .. } => usize::try_from(*length).unwrap_or(usize::MAX),
            _ => 0,
        }
    }
}

/// A frame and, for an eager message, its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The frame.
    pub frame: Frame,
    /// The body; empty for anything but an eager message.
    pub body: Bytes,
    /// Whether the body is a part of the chunk that was fed, and keeps all of that chunk in memory.
    pub borrowed: bool,
}

/// Takes a lane apart into frames, whatever the chunks in which it arrives.
///
/// It holds at most one header and one body, which is no longer than the limit.
///
/// ```
/// use nexar_core::wire::message::{Frame, FrameReader};
/// let mut reader = FrameReader::new(100);
/// let mut chunk = [
///     &Frame::Eager { dtype: None, tag: 5, length: 3, message: 0 }.encode()[..],
///     b"abc",
/// ].concat().into();
/// let arrival = reader.next(&mut chunk)?.ok_or("incomplete")?;
/// assert_eq!(&arrival.body[..], b"abc");
/// assert_eq!(reader.next(&mut chunk)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FrameReader {
    eager_limit: usize,
    header: [u8; HEADER_LEN],
    filled: usize,
    /// A frame whose body has not arrived completely.
    pending: Option<(Frame, Vec<u8>)>,
}

impl FrameReader {
    /// A reader at the beginning of a lane. Eager bodies longer than `eager_limit` are refused.
    pub fn new(eager_limit: usize) -> Self {
        FrameReader {
            eager_limit,
            header: [0; HEADER_LEN],
            filled: 0,
            pending: None,
        }
    }

    /// The next frame, if it is complete with what is at the beginning of `data`; what is used is removed
    /// from `data`. Without a frame, all of `data` is.
    ///
    /// # Errors
    ///
    /// The bytes are no frame. Nothing after them can be read.
    pub fn next(&mut self, data: &mut Bytes) -> Result<Option<Arrival>, WireError> {
        let (frame, mut body) = match self.pending.take() {
            Some(pending) => pending,
            None => {
                let Some(frame) = self.next_header(data)? else {
                    return Ok(None);
                };
                let length = frame.body_length();
                if data.len() >= length {
                    let body = if length == 0 {
                        Bytes::new()
                    } else {
                        data.split_to(length)
                    };
                    return Ok(Some(Arrival {
                        frame,
                        body,
                        borrowed: true,
                    }));
                }
                (frame, Vec::with_capacity(length))
            }
        };
        let take = (frame.body_length() - body.len()).min(data.len());
        body.extend_from_slice(&data[..take]);
        data.advance(take);
        if body.len() < frame.body_length() {
            self.pending = Some((frame, body));
            return Ok(None);
        }
        Ok(Some(Arrival {
            frame,
            body: body.into(),
            borrowed: false,
        }))
    }

    /// Whether the lane may end here.
    pub fn at_boundary(&self) -> bool {
        self.filled == 0 && self.pending.is_none()
    }

    fn next_header(&mut self, data: &mut Bytes) -> Result<Option<Frame>, WireError> {
        let take = (HEADER_LEN - self.filled).min(data.len());
        self.header[self.filled..self.filled + take].copy_from_slice(&data[..take]);
        data.advance(take);
        self.filled += take;
        if self.filled < HEADER_LEN {
            return Ok(None);
        }
        self.filled = 0;
        Frame::decode(&self.header, self.eager_limit).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<(Frame, &'static [u8])> {
        let (message, transfer) = (5, u64::MAX - 1);
        vec![
            (
                Frame::Announce {
                    dtype: None,
                    tag: u64::MAX,
                    length: u64::MAX,
                    message,
                },
                b"",
            ),
            (
                Frame::Eager {
                    dtype: Some(DataType::I16),
                    tag: 7,
                    length: 6,
                    message,
                },
                b"abcdef",
            ),
            (
                Frame::Eager {
                    dtype: Some(DataType::F64),
                    tag: 8,
                    length: 0,
                    message,
                },
                b"",
            ),
            (Frame::Withdraw { message }, b""),
            (Frame::ClearToSend { message, transfer }, b""),
            (Frame::Keep { message }, b""),
            (Frame::Taken { message }, b""),
            (Frame::Credit { bytes: 1 << 40 }, b""),
        ]
    }

    #[test]
    fn frames_round_trip() {
        for (frame, _) in frames() {
            assert_eq!(Frame::decode(&frame.encode(), 6), Ok(frame));
        }
    }

    #[test]
    fn lies_are_refused() {
        let long = Frame::Eager {
            dtype: None,
            tag: 1,
            length: 101,
            message: 0,
        };
        assert!(Frame::decode(&long.encode(), 101).is_ok());
        assert!(Frame::decode(&long.encode(), 100).is_err());
        let taken = Frame::Taken { message: 3 }.encode();
        for (at, value) in [(0, 1), (1, 0), (1, 8), (2, 1), (3, 1), (4, 1), (19, 1)] {
            let mut bad = taken;
            bad[at] = value;
            assert!(Frame::decode(&bad, 100).is_err(), "byte {at}");
        }
    }

    #[test]
    fn element_types_travel_in_a_byte_of_their_own() {
        let (tag, message) = (0x0102_0304_0506_0708, 9);
        for dtype in DataType::ALL {
            for length in 0..=16 {
                let whole = length % dtype.size() as u64 == 0;
                let dtype = Some(dtype);
                let frames = [
                    Frame::Eager {
                        dtype,
                        tag,
                        length,
                        message,
                    },
                    Frame::Announce {
                        dtype,
                        tag,
                        length,
                        message,
                    },
                ];
                for frame in frames {
                    let bytes = frame.encode();
                    assert_eq!(bytes[2], dtype.map_or(0, |dtype| dtype as u8));
                    let decoded = Frame::decode(&bytes, 100);
                    assert_eq!(decoded.ok(), whole.then_some(frame), "{frame:?}");
                }
            }
        }
        let announced = Frame::Announce {
            dtype: None,
            tag,
            length: 8,
            message,
        };
        for number in (0..=255).filter(|number| DataType::from_wire(*number).is_none()) {
            let mut bytes = announced.encode();
            bytes[2] = number;
            assert_eq!(Frame::decode(&bytes, 100).is_ok(), number == 0, "{number}");
        }
    }

    #[test]
    fn a_lane_reads_the_same_in_any_pieces() {
        let mut lane = Vec::new();
        for (frame, body) in frames() {
            lane.extend_from_slice(&frame.encode());
            lane.extend_from_slice(body);
        }
        for piece in [1, 2, 3, 27, 28, 29, 31, 64, 1000] {
            let mut reader = FrameReader::new(6);
            let mut seen = Vec::new();
            for chunk in lane.chunks(piece) {
                let mut chunk = Bytes::copy_from_slice(chunk);
                while let Some(arrival) = reader.next(&mut chunk).unwrap() {
                    seen.push((arrival.frame, arrival.body));
                }
                assert!(chunk.is_empty());
            }
            assert!(reader.at_boundary());
            let expected: Vec<_> = frames()
                .into_iter()
                .map(|(frame, body)| (frame, Bytes::from_static(body)))
                .collect();
            assert_eq!(seen, expected, "pieces of {piece}");
        }
    }
}
