//! Bytes that are right, to be damaged.

use bytes::Bytes;
use nexar_core::{
    Algorithm, Call, Collective, DataType, Failure, ReduceOp, RefuseReason,
    transport::PeerId,
    wire::{
        self, LaneKind, Preamble,
        control::Control,
        header,
        join::{Answer, Hello, Join, Member, Opening, Table},
        message::Frame,
        rpc,
    },
};
use serde::Serialize;
use std::time::Duration;

fn call() -> Call {
    Call {
        collective: Collective::Broadcast,
        sequence: 300,
        dtype: Some(DataType::Bf16),
        op: Some(ReduceOp::Max),
        count: 1 << 40,
        root: Some(3),
        algorithm: Algorithm::ScatterAllGather,
        element: 0,
        digest: 9,
        exchange: None,
    }
}

fn controls() -> Vec<Control> {
    let communicator = 70_000;
    let reason = String::from("nothing heard");
    let failures = [
        Failure::PeerLost { rank: 5, reason },
        Failure::Mismatch {
            first: (0, Box::new(call())),
            second: (200, Box::new(call())),
        },
        Failure::TimedOut {
            limit: Duration::from_millis(1500),
            missing: vec![1, 2, 300],
            waiting_for_device: vec![4],
        },
        Failure::ShutDown,
    ];
    let aborts = failures.map(|failure| Control::Abort {
        communicator,
        failure,
    });
    let others = [
        Control::Heartbeat,
        Control::Probe,
        Control::Waiting {
            communicator,
            call: call(),
        },
        Control::Position {
            waits_for_device: Some(3),
            communicator,
            calls: u64::MAX,
        },
        Control::Goodbye,
    ];
    others.into_iter().chain(aborts).collect()
}

/// The body of a frame.
fn body(message: &impl Serialize) -> Vec<u8> {
    frame(message)[4..].to_vec()
}

fn frame(message: &impl Serialize) -> Bytes {
    wire::encode_frame(message, wire::MAX_JOIN_FRAME).unwrap()
}

pub(crate) fn control() -> Vec<Vec<u8>> {
    controls().iter().map(body).collect()
}

pub(crate) fn join() -> Vec<Vec<u8>> {
    let address = |text: &str| text.parse().unwrap();
    let member = |name: &str, text| Member {
        address: address(text),
        identity: PeerId::new(name),
    };
    let join = Join {
        version: wire::PROTOCOL_VERSION,
        job: "night".into(),
        world_size: 4,
        rank: Some(2),
        address: address("192.0.2.1:29400"),
        detection_ms: 4_000,
    };
    let hello = Hello {
        version: 1,
        session: [0xa5; 16],
        rank: 3,
    };
    let members = vec![
        member("night/a/0", "192.0.2.1:1"),
        member("night/b/0", "[2001:db8::1]:2"),
    ];
    let refusal = RefuseReason::Missing {
        ranks: vec![1, 3],
        limit_ms: 60_000,
    };
    vec![
        body(&Opening::Join(join)),
        body(&Opening::Hello(hello)),
        body(&Answer::Table(Table {
            session: [7; 16],
            rank: 1,
            members,
        })),
        body(&Answer::Refuse(refusal)),
        body(&Answer::Probe),
        body(&Answer::Welcome),
    ]
}

pub(crate) fn collective_header() -> Vec<Vec<u8>> {
    vec![header::encode(&call()).to_vec()]
}

fn frames() -> [Frame; 7] {
    [
        Frame::Eager {
            dtype: None,
            tag: 9,
            length: 40,
            message: 1,
        },
        Frame::Announce {
            dtype: None,
            tag: 9,
            length: 1 << 50,
            message: 2,
        },
        Frame::Eager {
            dtype: Some(DataType::F64),
            tag: 10,
            length: 24,
            message: 3,
        },
        Frame::Announce {
            dtype: Some(DataType::Bool),
            tag: 11,
            length: (1 << 40) + 1,
            message: 4,
        },
        Frame::ClearToSend {
            message: 2,
            transfer: 11,
        },
        Frame::Taken { message: 2 },
        Frame::Credit { bytes: 4096 },
    ]
}

pub(crate) fn message_header() -> Vec<Vec<u8>> {
    frames()
        .iter()
        .map(|frame| frame.encode().to_vec())
        .collect()
}

pub(crate) fn preamble() -> Vec<Vec<u8>> {
    LaneKind::ALL
        .iter()
        .map(|kind| {
            Preamble {
                communicator: 8,
                kind: *kind,
                message: 300,
            }
            .encode()
            .to_vec()
        })
        .collect()
}

/// Three bytes for the lengths of the pieces, then a whole lane.
pub(crate) fn message_lane() -> Vec<Vec<u8>> {
    let mut lane = vec![2, 29, 5];
    for frame in frames() {
        lane.extend_from_slice(&frame.encode());
        if let Frame::Eager { length, .. } = frame {
            lane.resize(lane.len() + length as usize, 0xee);
        }
    }
    vec![lane]
}

fn rpc_frames() -> Vec<rpc::Frame> {
    let request = |streamed, large, length| rpc::Frame::Request {
        call: 300,
        streamed,
        large,
        depth: 3,
        name: 7,
        budget: 60_000,
        length,
    };
    let reply = |large, length| rpc::Frame::Reply {
        call: 300,
        large,
        length,
    };
    let failed = |code| rpc::Frame::Failed {
        call: 300,
        code,
        length: 17,
    };
    let call = u64::MAX - 2;
    let mut frames = vec![
        request(false, false, 40),
        request(true, false, 0),
        request(false, true, 1 << 40),
        reply(false, 33),
        reply(true, 1 << 33),
        rpc::Frame::StreamOver { call },
        rpc::Frame::Cancel { call },
        rpc::Frame::AskRequest { call },
        rpc::Frame::AskReply { call },
        rpc::Frame::Credit { call, bytes: 9000 },
    ];
    frames.extend(rpc::FailureCode::ALL.map(failed));
    frames
}

pub(crate) fn rpc_header() -> Vec<Vec<u8>> {
    let frames = rpc_frames();
    frames.iter().map(|frame| frame.encode().to_vec()).collect()
}

/// Bytes behind the header of a frame.
fn behind(frame: &rpc::Frame) -> u64 {
    match *frame {
        rpc::Frame::Request {
            large,
            name,
            length,
            ..
        } => u64::from(name) + if large { 0 } else { length },
        rpc::Frame::Reply { large, length, .. } if !large => length,
        rpc::Frame::Failed { length, .. } => length,
        _ => 0,
    }
}

/// Three bytes for the lengths of the pieces, then a whole lane.
pub(crate) fn rpc_lane() -> Vec<Vec<u8>> {
    let mut lane = vec![2, 31, 6];
    for frame in rpc_frames() {
        lane.extend_from_slice(&frame.encode());
        lane.resize(lane.len() + behind(&frame) as usize, 0xdd);
    }
    vec![lane]
}

/// Three bytes for the lengths of the pieces, then items and one of the two ends.
pub(crate) fn rpc_items() -> Vec<Vec<u8>> {
    let mut items = vec![2, 3, 11];
    for length in [0, 1, 100, 1024] {
        items.extend_from_slice(&rpc::item_header(length));
        items.resize(items.len() + length, 0xcc);
    }
    let call = 4;
    let complete = rpc::stream_end(&rpc::Frame::Reply {
        call,
        large: false,
        length: 0,
    });
    let failed = rpc::stream_end(&rpc::Frame::Failed {
        call,
        code: rpc::FailureCode::Handler,
        length: 3,
    });
    vec![
        [&items[..], &complete].concat(),
        [&items[..], &failed, b"why"].concat(),
    ]
}

/// Three bytes for the lengths of the pieces, then a whole stream.
pub(crate) fn read_frame() -> Vec<Vec<u8>> {
    let mut stream = vec![2, 3, 7];
    for message in controls() {
        stream.extend_from_slice(&frame(&message));
    }
    vec![stream]
}
