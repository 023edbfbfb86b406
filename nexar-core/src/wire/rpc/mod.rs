//! The frames of remote calls.
//!
//! A lane carries, in one direction between two ranks, the calls of a communicator and the answers to the
//! calls that came on the lane in the other direction. Every frame is a header of 24 bytes; a request has
//! the name of its method behind it, and small requests, small replies and failures a body.
//!
//! | byte 1 | frame | 2 | 3 | 4..8 | 8..16 | 16..24 |
//! |---|---|---|---|---|---|---|
//! | 1 to 4 | [`Frame::Request`], 1 more for a streamed reply, 2 more for a large body | depth | name length | time budget | call | length |
//! | 5 | [`Frame::Reply`] | 0 | 0 | 0 | call | length |
//! | 6 | [`Frame::Reply`] with a large body | 0 | 0 | 0 | call | length |
//! | 7 | [`Frame::Failed`] | code | 0 | 0 | call | length |
//! | 8 | [`Frame::StreamOver`] | 0 | 0 | 0 | call | 0 |
//! | 9 | [`Frame::Cancel`] | 0 | 0 | 0 | call | 0 |
//! | 10 | [`Frame::AskRequest`] | 0 | 0 | 0 | call | 0 |
//! | 11 | [`Frame::AskReply`] | 0 | 0 | 0 | call | 0 |
//! | 12 | [`Frame::Credit`] | 0 | 0 | 0 | call | bytes |
//!
//! Byte 0 is 0x72. Calls are numbered by the caller. A large body comes on a lane of its own once it has
//! been asked for; a streamed reply is a lane of its own, which [`ItemReader`] takes apart.

mod body;

pub use body::{BodyReader, ItemReader, MAX_ITEM, Piece, item_header, stream_end};

use super::{
    WireError,
    preamble::{u32_at, u64_at},
};
use bytes::{Buf, Bytes};

/// Length of a header.
pub const HEADER_LEN: usize = 24;

/// Longest name of a method, in bytes.
pub const MAX_NAME: usize = u8::MAX as usize;

/// Longest text of a failure, in bytes.
pub const MAX_TEXT: usize = 4096;

const MAGIC: u8 = 0x72;

/// Why a call failed at the callee.
///
/// The discriminants are part of the wire format and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum FailureCode {
    /// There is no such method. The text has the names of similar ones, a line each.
    NoSuchMethod = 1,
    /// The handler returned an error, which is the text.
    Handler = 2,
    /// The handler panicked with this message.
    Panicked = 3,
    /// The time limit of the call passed.
    TimedOut = 4,
    /// The caller has cancelled the call.
    Cancelled = 5,
    /// A body is too large. The text has its length and the limit, 8 bytes each.
    TooLarge = 6,
    /// The request does not decode.
    Decode = 7,
    /// The reply does not encode.
    Encode = 8,
    /// The method streams its reply and the call does not expect that, or the other way round.
    OtherKind = 9,
    /// The callee does not run handlers any more.
    NotServed = 10,
}

impl FailureCode {
    /// Every code.
    pub const ALL: [FailureCode; 10] = [
        FailureCode::NoSuchMethod,
        FailureCode::Handler,
        FailureCode::Panicked,
        FailureCode::TimedOut,
        FailureCode::Cancelled,
        FailureCode::TooLarge,
        FailureCode::Decode,
        FailureCode::Encode,
        FailureCode::OtherKind,
        FailureCode::NotServed,
    ];

    fn from_wire(number: u8) -> Option<FailureCode> {
        Self::ALL.into_iter().find(|code| *code as u8 == number)
    }
}

/// A frame on a lane of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// A call.
    Request {
        /// Its number, which grows with every call to the same rank.
        call: u64,
        /// The reply is to be streamed.
        streamed: bool,
        /// The body comes on a lane of its own, once it has been asked for.
        large: bool,
        /// 0 for a call that no handler makes; otherwise one more than that of the call being handled.
        depth: u8,
        /// Length of the method's name, which follows.
        name: u8,
        /// Milliseconds in which it is to be answered.
        budget: u32,
        /// Length of the body, which follows if it is not large.
        length: u64,
    },
    /// The answer to a call.
    Reply {
        /// The call.
        call: u64,
        /// The body comes on a lane of its own, once it has been asked for.
        large: bool,
        /// Length of the body, which follows if it is not large.
        length: u64,
    },
    /// The answer to a call that failed.
    Failed {
        /// The call.
        call: u64,
        /// Why.
        code: FailureCode,
        /// Length of the text, which follows.
        length: u64,
    },
    /// A streamed reply has been written; its lane says how it ended.
    StreamOver {
        /// The call.
        call: u64,
    },
    /// The caller does not want the answer any more. It is answered all the same.
    Cancel {
        /// The call.
        call: u64,
    },
    /// The callee is ready for the large body of a request.
    AskRequest {
        /// The call.
        call: u64,
    },
    /// The caller is ready for the large body of a reply.
    AskReply {
        /// The call.
        call: u64,
    },
    /// The caller has taken items of a streamed reply.
    Credit {
        /// The call.
        call: u64,
        /// Their cost.
        bytes: u64,
    },
}

impl Frame {
    /// The bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let (kind, small, budget, call, last) = match *self {
            Frame::Request {
                call,
                streamed,
                large,
                depth,
                name,
                budget,
                length,
            } => {
                let kind = 1 + u8::from(streamed) + 2 * u8::from(large);
                (kind, [depth, name], budget, call, length)
            }
            Frame::Reply {
                call,
                large,
                length,
            } => (5 + u8::from(large), [0; 2], 0, call, length),
            Frame::Failed { call, code, length } => (7, [code as u8, 0], 0, call, length),
            Frame::StreamOver { call } => (8, [0; 2], 0, call, 0),
            Frame::Cancel { call } => (9, [0; 2], 0, call, 0),
            Frame::AskRequest { call } => (10, [0; 2], 0, call, 0),
            Frame::AskReply { call } => (11, [0; 2], 0, call, 0),
            Frame::Credit { call, bytes } => (12, [0; 2], 0, call, bytes),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&[MAGIC, kind, small[0], small[1]]);
        bytes[4..8].copy_from_slice(&budget.to_le_bytes());
        bytes[8..16].copy_from_slice(&call.to_le_bytes());
        bytes[16..].copy_from_slice(&last.to_le_bytes());
        bytes
    }

    /// The value of the bytes. A body behind the header that is longer than `inline_limit` is refused, and
    /// so is a text longer than [`MAX_TEXT`].
    pub fn decode(bytes: &[u8; HEADER_LEN], inline_limit: usize) -> Result<Self, WireError> {
        let malformed = WireError::Malformed("frame of a call");
        let (call, last) = (u64_at(bytes, 8), u64_at(bytes, 16));
        let frame = match bytes[1] {
            kind @ 1..=4 => Frame::Request {
                call,
                streamed: (kind - 1) & 1 != 0,
                large: (kind - 1) & 2 != 0,
                depth: bytes[2],
                name: bytes[3],
                budget: u32_at(bytes, 4),
                length: last,
            },
            kind @ 5..=6 => Frame::Reply {
                call,
                large: kind == 6,
                length: last,
            },
            7 => Frame::Failed {
                call,
                code: FailureCode::from_wire(bytes[2]).ok_or(malformed.clone())?,
                length: last,
            },
            8 => Frame::StreamOver { call },
            9 => Frame::Cancel { call },
            10 => Frame::AskRequest { call },
            11 => Frame::AskReply { call },
            12 => Frame::Credit { call, bytes: last },
            _ => return Err(malformed),
        };
        if frame.encode() != *bytes || matches!(frame, Frame::Request { name: 0, .. }) {
            return Err(malformed);
        }
        let (what, limit) = match frame {
            Frame::Failed { .. } => ("text of a failure", MAX_TEXT),
            _ => ("small body of a call", inline_limit),
        };
        let length = frame.inline();
        if length > limit as u64 {
            let limit = limit as u64;
            return Err(WireError::TooLong {
                what,
                length,
                limit,
            });
        }
        Ok(frame)
    }

    /// Length of the body behind the header.
    fn inline(&self) -> u64 {
        match *self {
            Frame::Request { large, length, .. } | Frame::Reply { large, length, .. } if !large => {
                length
            }
            Frame::Failed { length, .. } => length,
            _ => 0,
        }
    }

    fn name(&self) -> usize {
        match *self {
            Frame::Request { name, .. } => name.into(),
            _ => 0,
        }
    }

    /// Bytes behind the header.
    fn payload(&self) -> usize {
        usize::try_from(self.inline())
            .unwrap_or(usize::MAX)
            .saturating_add(self.name())
    }
}

/// A frame with what is behind its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The frame.
    pub frame: Frame,
    /// The method's name, of a request. It may keep the chunk that was fed in memory.
    pub name: Bytes,
    /// The body, in memory of its own.
    pub body: Bytes,
}

/// Takes a lane apart into frames, whatever the chunks in which it arrives.
///
/// It holds at most one header, one name and one body, which is no longer than the limit.
///
/// ```
/// use nexar_core::wire::rpc::{Frame, FrameReader};
/// let mut reader = FrameReader::new(100);
/// let mut chunk = [&Frame::Reply { call: 5, large: false, length: 3 }.encode()[..], b"abc"].concat().into();
/// let arrival = reader.next(&mut chunk)?.ok_or("incomplete")?;
/// assert_eq!(&arrival.body[..], b"abc");
/// assert_eq!(reader.next(&mut chunk)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FrameReader {
    inline_limit: usize,
    header: [u8; HEADER_LEN],
    filled: usize,
    /// A frame of which not everything has arrived.
    pending: Option<(Frame, Vec<u8>)>,
}

impl FrameReader {
    /// A reader at the beginning of a lane. Bodies behind a header that are longer than `inline_limit` are
    /// refused.
    pub fn new(inline_limit: usize) -> Self {
        FrameReader {
            inline_limit,
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
        let (frame, mut payload) = match self.pending.take() {
            Some(pending) => pending,
            None => {
                if !fill(&mut self.header, &mut self.filled, data) {
                    return Ok(None);
                }
                self.filled = 0;
                let frame = Frame::decode(&self.header, self.inline_limit)?;
                let length = frame.payload();
                if data.len() >= length {
                    let name = match frame.name() {
                        0 => Bytes::new(),
                        name => data.split_to(name),
                    };
                    let body = Bytes::copy_from_slice(&data[..length - name.len()]);
                    data.advance(body.len());
                    return Ok(Some(Arrival { frame, name, body }));
                }
                (frame, Vec::with_capacity(length))
            }
        };
        let take = (frame.payload() - payload.len()).min(data.len());
        payload.extend_from_slice(&data[..take]);
        data.advance(take);
        if payload.len() < frame.payload() {
            self.pending = Some((frame, payload));
            return Ok(None);
        }
        let mut body = Bytes::from(payload);
        let name = body.split_to(frame.name());
        Ok(Some(Arrival { frame, name, body }))
    }

    /// Whether the lane may end here.
    pub fn at_boundary(&self) -> bool {
        self.filled == 0 && self.pending.is_none()
    }
}

/// Moves bytes from the beginning of `data` to where `buffer` is filled up to; whether it is full.
fn fill(buffer: &mut [u8], filled: &mut usize, data: &mut Bytes) -> bool {
    let take = (buffer.len() - *filled).min(data.len());
    buffer[*filled..*filled + take].copy_from_slice(&data[..take]);
    data.advance(take);
    *filled += take;
    *filled == buffer.len()
}
