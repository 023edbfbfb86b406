//! Whatever bytes arrive: no decoder panics, and none takes more memory than the limits allow.
//!
//! The same functions are fuzzed by the targets in `fuzz/`; here they get a fixed number of damaged and of
//! random inputs, the same ones in every run.
#![allow(clippy::unwrap_used)]

#[path = "decoders/counting.rs"]
mod counting;
mod decoders;
#[path = "decoders/samples.rs"]
mod samples;

use bytes::Bytes;
use decoders::{EAGER_LIMIT, FRAME_LIMIT};
use nexar_core::wire::{
    WireError,
    message::{Frame, FrameReader},
    rpc,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Inputs per decoder and kind.
const INPUTS: usize = 10_000;

/// Longest random input, in bytes.
const MAX_INPUT: usize = 600;

/// The most that the decoding of `input` bytes may hold: a list is given 1 MiB at most on the strength of
/// its announced length, and beyond that what the bytes themselves become in memory.
fn memory_limit(input: usize) -> usize {
    (1 << 20) + 512 * input + (16 << 10)
}

/// Gives `decode` damaged samples, whole ones and random bytes.
fn try_everything(samples: &[Vec<u8>], decode: fn(&[u8])) {
    let mut rng = StdRng::seed_from_u64(2026);
    let check = |input: &[u8]| {
        let (peak, ()) = counting::peak_of(|| decode(input));
        let limit = memory_limit(input.len());
        assert!(
            peak <= limit,
            "{peak} bytes of memory, more than {limit}, for {input:02x?}"
        );
    };
    samples.iter().for_each(|sample| check(sample));
    for _ in 0..INPUTS {
        let sample = &samples[rng.random_range(0..samples.len())];
        check(&damaged(sample, &mut rng));
        check(&random(&mut rng));
    }
}

fn random(rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = vec![0; rng.random_range(0..MAX_INPUT)];
    rng.fill(&mut bytes[..]);
    bytes
}

/// `sample` with one to four changes: of bits, to extreme values, in length, or of its order.
fn damaged(sample: &[u8], rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..6) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.random()),
            4 => {
                // The longest integer that there is, where a length may be expected.
                let end = bytes.len().min(at + 9);
                bytes[at..end].fill(0xff);
            }
            _ => bytes.rotate_left(at),
        }
    }
    bytes
}

#[test]
fn control_frames() {
    try_everything(&samples::control(), decoders::control);
}

#[test]
fn join_frames() {
    try_everything(&samples::join(), decoders::join);
}

#[test]
fn collective_headers() {
    try_everything(&samples::collective_header(), decoders::collective_header);
}

#[test]
fn message_headers() {
    try_everything(&samples::message_header(), decoders::message_header);
}

#[test]
fn preambles() {
    try_everything(&samples::preamble(), decoders::preamble);
}

#[test]
fn message_lanes_in_pieces() {
    try_everything(&samples::message_lane(), decoders::message_lane);
}

#[test]
fn rpc_headers() {
    try_everything(&samples::rpc_header(), decoders::rpc_header);
}

#[test]
fn rpc_lanes_in_pieces() {
    try_everything(&samples::rpc_lane(), decoders::rpc_lane);
}

#[test]
fn streamed_replies_in_pieces() {
    try_everything(&samples::rpc_items(), decoders::rpc_items);
}

#[test]
fn frames_in_pieces() {
    try_everything(&samples::read_frame(), decoders::read_frame);
}

#[test]
fn samples_are_accepted() {
    let whole = |sample: &[u8]| decoders::stream_frames([Bytes::copy_from_slice(&sample[3..])]);
    let (frames, end) = whole(&samples::read_frame()[0]);
    assert_eq!((frames.len(), end), (samples::control().len(), None));
    let lane = Bytes::copy_from_slice(&samples::message_lane()[0][3..]);
    let (frames, end) = decoders::lane_frames([lane]);
    assert_eq!((frames.len(), end), (samples::message_header().len(), None));
    let lane = Bytes::copy_from_slice(&samples::rpc_lane()[0][3..]);
    let (frames, end) = decoders::rpc_frames([lane]);
    assert_eq!((frames.len(), end), (samples::rpc_header().len(), None));
    for items in samples::rpc_items() {
        let (pieces, end) = decoders::rpc_pieces([Bytes::copy_from_slice(&items[3..])]);
        assert_eq!((pieces.len(), end), (5, None));
    }
}

#[test]
fn an_announced_length_above_the_limit_takes_no_memory() {
    for length in [FRAME_LIMIT + 1, 1 << 20, u32::MAX as usize] {
        let announced = Bytes::from((length as u32).to_le_bytes().to_vec());
        let (peak, (frames, end)) =
            counting::peak_of(|| decoders::stream_frames([announced, Bytes::from_static(b"x")]));
        assert!(frames.is_empty());
        assert_eq!(
            end.unwrap(),
            WireError::TooLong {
                what: "frame",
                length: length as u64,
                limit: FRAME_LIMIT as u64
            }
            .to_string()
        );
        assert!(peak < FRAME_LIMIT, "{peak}");
    }
    for length in [EAGER_LIMIT as u64 + 1, 1 << 40, u64::MAX] {
        let header = Frame::Eager {
            dtype: None,
            tag: 1,
            length,
            message: 0,
        }
        .encode();
        let mut header = Bytes::copy_from_slice(&header);
        let mut reader = FrameReader::new(EAGER_LIMIT);
        let (peak, refused) = counting::peak_of(|| reader.next(&mut header));
        let what = "small message";
        assert_eq!(
            refused,
            Err(WireError::TooLong {
                what,
                length,
                limit: EAGER_LIMIT as u64
            })
        );
        assert!(peak < EAGER_LIMIT, "{peak}");
    }
}

#[test]
fn an_announced_length_within_the_limit_takes_no_more_than_that() {
    let announced = Bytes::from((FRAME_LIMIT as u32).to_le_bytes().to_vec());
    let (peak, (frames, end)) = counting::peak_of(|| decoders::stream_frames([announced]));
    assert!(frames.is_empty() && end.is_some());
    assert!((FRAME_LIMIT..FRAME_LIMIT + 1024).contains(&peak), "{peak}");

    let eager = Frame::Eager {
        dtype: None,
        tag: 1,
        length: EAGER_LIMIT as u64,
        message: 0,
    };
    let mut header = Bytes::copy_from_slice(&eager.encode());
    let mut reader = FrameReader::new(EAGER_LIMIT);
    let (peak, nothing) = counting::peak_of(|| reader.next(&mut header));
    assert_eq!(nothing, Ok(None));
    assert!((EAGER_LIMIT..EAGER_LIMIT + 1024).contains(&peak), "{peak}");
}

#[test]
fn bodies_of_calls_take_memory_as_they_come() {
    let length = 1 << 30;
    let mut body = rpc::BodyReader::new(length);
    let piece = Bytes::from(vec![7; 256 << 10]);
    let (peak, ()) = counting::peak_of(|| {
        for _ in 0..20 {
            assert!(body.take(&mut piece.clone()));
        }
    });
    assert_eq!(body.missing(), length - 20 * piece.len());
    assert!(peak <= 3 * 20 * piece.len() + (1 << 20), "{peak}");

    let large = rpc::Frame::Request {
        call: 1,
        streamed: false,
        large: false,
        depth: 0,
        name: 1,
        budget: 1,
        length: EAGER_LIMIT as u64 + 1,
    };
    let mut header = Bytes::copy_from_slice(&large.encode());
    let mut reader = rpc::FrameReader::new(EAGER_LIMIT);
    let (peak, refused) = counting::peak_of(|| reader.next(&mut header));
    assert!(
        matches!(refused, Err(WireError::TooLong { .. })),
        "{refused:?}"
    );
    assert!(peak < EAGER_LIMIT, "{peak}");
}
