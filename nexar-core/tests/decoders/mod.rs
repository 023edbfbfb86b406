//! Everything that decodes bytes from the wire, as functions of arbitrary bytes.
//!
//! Each function feeds `data` to one decoder and asserts what must hold whatever the bytes are: no panic,
//! no length beyond the limits, and that a value which was accepted survives being encoded again.
//! The fuzz targets in `fuzz/` call the same functions.

use bytes::Bytes;
use nexar_core::{
    DataType,
    transport::{RecvStream, StreamError},
    wire::{
        self, Preamble, WireError,
        control::Control,
        header,
        join::{Alive, Answer, Opening},
        message::{self, Frame, FrameReader},
        rpc,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt::Debug,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// The limit on frames in [`read_frame`], in bytes.
pub(crate) const FRAME_LIMIT: usize = 4096;

/// The limit on eager messages in [`message_lane`], on small bodies in [`rpc_lane`] and on items in
/// [`rpc_items`], in bytes.
pub(crate) const EAGER_LIMIT: usize = 1024;

/// A frame between two ranks.
pub(crate) fn control(data: &[u8]) {
    body::<Control>(data);
}

/// The frames between a process that joins and the seed, in both directions.
pub(crate) fn join(data: &[u8]) {
    body::<Opening>(data);
    body::<Answer>(data);
    body::<Alive>(data);
}

fn body<M: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    let Ok(message) = wire::decode_body::<M>(data) else {
        return;
    };
    // Integers have several encodings of which the shortest is written, so it does not grow.
    let frame = wire::encode_frame(&message, data.len()).map_err(|error| error.to_string());
    assert!(frame.is_ok(), "{message:?}: {frame:?}");
    let again = frame.ok().map(|frame| wire::decode_body(&frame[4..]));
    assert_eq!(again, Some(Ok(message)));
}

/// The header of a collective.
pub(crate) fn collective_header(data: &[u8]) {
    for bytes in data.as_chunks::<{ header::HEADER_LEN }>().0 {
        if let Ok(call) = header::decode(bytes) {
            assert_eq!(header::decode(&header::encode(&call)), Ok(call));
        }
    }
}

/// The header of a frame on a message lane.
pub(crate) fn message_header(data: &[u8]) {
    for bytes in data.as_chunks::<{ message::HEADER_LEN }>().0 {
        if let Ok(frame) = Frame::decode(bytes, EAGER_LIMIT) {
            assert_eq!(frame.encode(), *bytes, "{frame:?}");
            if let Frame::Eager { length, .. } = frame {
                assert!(length <= EAGER_LIMIT as u64, "{frame:?}");
            }
            if let Frame::Eager { dtype, length, .. } | Frame::Announce { dtype, length, .. } =
                frame
            {
                let element = dtype.map_or(1, DataType::size) as u64;
                assert_eq!(length % element, 0, "{frame:?}");
            }
        }
    }
}

/// The first bytes of a lane.
pub(crate) fn preamble(data: &[u8]) {
    for bytes in data.as_chunks::<{ Preamble::LEN }>().0 {
        if let Ok(preamble) = Preamble::decode(bytes) {
            assert_eq!(preamble.encode(), *bytes, "{preamble:?}");
        }
    }
}

/// A message lane in arbitrary pieces: the same frames come out as when it arrives at once.
pub(crate) fn message_lane(data: &[u8]) {
    let (pieces, lane) = Pieces::split(data);
    let whole = lane_frames([Bytes::copy_from_slice(lane)]);
    let parts = lane_frames(pieces.cut(lane));
    assert_eq!(whole, parts);
}

/// The frames of a lane up to the first that is malformed, and what is wrong with that.
pub(crate) fn lane_frames(
    chunks: impl IntoIterator<Item = Bytes>,
) -> (Vec<(Frame, Bytes)>, Option<WireError>) {
    let mut reader = FrameReader::new(EAGER_LIMIT);
    let mut frames = Vec::new();
    for mut chunk in chunks {
        loop {
            match reader.next(&mut chunk) {
                Ok(Some(arrival)) => {
                    assert!(arrival.body.len() <= EAGER_LIMIT);
                    frames.push((arrival.frame, arrival.body));
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(chunk.is_empty(), "{} bytes were not taken", chunk.len());
    }
    (frames, None)
}

/// The header of a frame on a lane of calls.
pub(crate) fn rpc_header(data: &[u8]) {
    for bytes in data.as_chunks::<{ rpc::HEADER_LEN }>().0 {
        if let Ok(frame) = rpc::Frame::decode(bytes, EAGER_LIMIT) {
            assert_eq!(frame.encode(), *bytes, "{frame:?}");
        }
    }
}

/// A lane of calls in arbitrary pieces: the same frames come out as when it arrives at once.
pub(crate) fn rpc_lane(data: &[u8]) {
    let (pieces, lane) = Pieces::split(data);
    let whole = rpc_frames([Bytes::copy_from_slice(lane)]);
    let parts = rpc_frames(pieces.cut(lane));
    assert_eq!(whole, parts);
}

/// The frames of a lane of calls up to the first that is malformed, and what is wrong with that.
pub(crate) fn rpc_frames(
    chunks: impl IntoIterator<Item = Bytes>,
) -> (Vec<rpc::Arrival>, Option<WireError>) {
    let mut reader = rpc::FrameReader::new(EAGER_LIMIT);
    let mut frames = Vec::new();
    for mut chunk in chunks {
        loop {
            match reader.next(&mut chunk) {
                Ok(Some(arrival)) => {
                    assert!(arrival.body.len() <= EAGER_LIMIT.max(rpc::MAX_TEXT));
                    assert!(arrival.name.len() <= rpc::MAX_NAME);
                    frames.push(arrival);
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(chunk.is_empty(), "{} bytes were not taken", chunk.len());
    }
    (frames, None)
}

/// A streamed reply in arbitrary pieces: the same items come out as when it arrives at once.
pub(crate) fn rpc_items(data: &[u8]) {
    let (pieces, lane) = Pieces::split(data);
    let whole = rpc_pieces([Bytes::copy_from_slice(lane)]);
    let parts = rpc_pieces(pieces.cut(lane));
    assert_eq!(whole, parts);
}

/// The items of a streamed reply up to its end or the first that is malformed, and what is wrong with that.
pub(crate) fn rpc_pieces(
    chunks: impl IntoIterator<Item = Bytes>,
) -> (Vec<rpc::Piece>, Option<WireError>) {
    let mut reader = rpc::ItemReader::new(EAGER_LIMIT);
    let mut pieces = Vec::new();
    for mut chunk in chunks {
        loop {
            match reader.next(&mut chunk) {
                Ok(Some(rpc::Piece::Item(item))) => {
                    assert!(item.len() <= EAGER_LIMIT);
                    pieces.push(rpc::Piece::Item(item));
                }
                Ok(Some(end)) => {
                    pieces.push(end);
                    return (pieces, None);
                }
                Ok(None) => break,
                Err(error) => return (pieces, Some(error)),
            }
        }
        assert!(chunk.is_empty(), "{} bytes were not taken", chunk.len());
    }
    (pieces, None)
}

/// A stream of frames in arbitrary pieces: the same frames come out as when it arrives at once.
pub(crate) fn read_frame(data: &[u8]) {
    let (pieces, stream) = Pieces::split(data);
    let whole = stream_frames([Bytes::copy_from_slice(stream)]);
    let parts = stream_frames(pieces.cut(stream));
    assert_eq!(whole, parts);
}

/// The frames of a stream up to its end or the first failure.
pub(crate) fn stream_frames(
    chunks: impl IntoIterator<Item = Bytes>,
) -> (Vec<Control>, Option<String>) {
    let mut stream = Script::new(chunks);
    let mut frames = Vec::new();
    loop {
        match ready(wire::read_frame::<_, Control>(&mut stream, FRAME_LIMIT)) {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error.to_string())),
        }
    }
}

/// The lengths of pieces, repeated for as long as there is data.
struct Pieces<'a>(&'a [u8]);

impl<'a> Pieces<'a> {
    /// The first byte says how many of the next bytes are lengths; the rest is the data.
    fn split(data: &'a [u8]) -> (Self, &'a [u8]) {
        let Some((count, rest)) = data.split_first() else {
            return (Pieces(&[]), &[]);
        };
        let (lengths, rest) = rest.split_at(rest.len().min(usize::from(count % 8)));
        (Pieces(lengths), rest)
    }

    fn cut(&self, data: &[u8]) -> Vec<Bytes> {
        let mut lengths = self.0.iter().cycle();
        let mut rest = data;
        let mut chunks = Vec::new();
        while !rest.is_empty() {
            let length = lengths
                .next()
                .map_or(rest.len(), |length| usize::from(*length).max(1));
            let (chunk, behind) = rest.split_at(length.min(rest.len()));
            chunks.push(Bytes::copy_from_slice(chunk));
            rest = behind;
        }
        chunks
    }
}

/// A stream whose chunks are known, and that has nothing to read between two of them.
#[derive(Debug)]
struct Script {
    /// The last one comes first.
    chunks: Vec<Bytes>,
    pause: bool,
}

impl Script {
    fn new(chunks: impl IntoIterator<Item = Bytes>) -> Self {
        let mut chunks: Vec<Bytes> = chunks
            .into_iter()
            .filter(|chunk| !chunk.is_empty())
            .collect();
        chunks.reverse();
        Script {
            chunks,
            pause: false,
        }
    }
}

impl RecvStream for Script {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        self.pause = !self.pause;
        if self.pause {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(mut chunk) = self.chunks.pop() else {
            return Poll::Ready(Ok(None));
        };
        let bytes = chunk.split_to(max.min(chunk.len()));
        if !chunk.is_empty() {
            self.chunks.push(chunk);
        }
        Poll::Ready(Ok(Some(bytes)))
    }

    fn stop(&mut self, _code: u64) {
        self.chunks.clear();
    }
}

/// The output of a future that waits for nothing but [`Script`].
fn ready<O>(future: impl Future<Output = O>) -> O {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}
