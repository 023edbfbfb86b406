//! Headers that lie: a peer that speaks the protocol well but for one header, written by hand. What it
//! claims is refused before memory is set aside for it, with an error that names the rank.

use crate::{
    Error, Failure,
    membership::RecvOf,
    messaging::{EAGER_LIMIT, MessageFailure, Messenger, Source, Tag},
    testing::{
        End, Harness,
        group::{RawRank, failure, group_with_raw, join_as_seed, join_by, patient},
        tools::{Pattern, peak_address_space},
    },
    transport::{Connection, ConnectionError, RecvStream, SendStream, Transport, UniAcceptor},
    wire::{
        LaneKind, Preamble,
        message::{Frame, HEADER_LEN},
    },
};
use bytes::Bytes;
use std::sync::Arc;

/// What liars claim to send, in bytes. Nobody has so much memory, though some systems would promise it.
const CLAIM: u64 = 1 << 40;

fn eager(tag: u64, length: u64, message: u64) -> Frame {
    Frame::Eager {
        dtype: None,
        tag,
        length,
        message,
    }
}

fn announce(tag: u64, length: u64, message: u64) -> Frame {
    Frame::Announce {
        dtype: None,
        tag,
        length,
        message,
    }
}

/// Writes by hand. The other side may have had enough before all is written.
async fn write<S: SendStream>(stream: &mut S, bytes: &[u8]) {
    let _ = stream.write_all(Bytes::copy_from_slice(bytes)).await;
}

/// What becomes of a communicator when a liar writes `bytes` to its message lane, and perhaps ends it.
async fn consequence<T: Transport>(
    zero: &Messenger<T>,
    raw: &RawRank<T>,
    bytes: &[u8],
    ends: bool,
) -> Failure {
    let before = peak_address_space();
    let mut lane = raw.lane(zero.group().id(), LaneKind::Message, 0).await;
    let lie = async {
        write(&mut lane, bytes).await;
        if ends {
            let _ = lane.finish();
        }
    };
    let (received, ()) = tokio::join!(zero.recv(1, 99, 10), lie);
    assert!(
        peak_address_space() - before < CLAIM / 2,
        "memory was set aside for the claim"
    );
    failure(received)
}

fn assert_protocol(failure: &Failure, text: &str) {
    match failure {
        Failure::Protocol { rank: 1, what } => assert!(what.contains(text), "{what}"),
        failure => panic!("expected {text:?}, got {failure}"),
    }
}

pub async fn a_message_that_lies_about_its_length<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let (zero, raw) = group_with_raw::<H>(a, b, patient(&*harness)).await;
    let lengths = [EAGER_LIMIT as u64 + 1, CLAIM, u64::MAX];
    for (id, length) in (10..).zip(lengths) {
        // No byte of the body comes: the header is enough.
        let liar = zero.communicator(id);
        let failure = consequence(&liar, &raw, &eager(1, length, 0).encode(), false).await;
        assert_protocol(&failure, "above the limit");
    }
    // The other communicators of the two ranks go on.
    let mut lane = raw.lane(1, LaneKind::Message, 0).await;
    let honest = [&eager(1, 6, 0).encode()[..], b"honest"].concat();
    write(&mut lane, &honest).await;
    let received = zero.messenger.recv(1, 1, 10).await;
    assert_eq!(received.expect("receive").1, b"honest");
}

pub async fn a_message_that_is_cut_short<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let (zero, raw) = group_with_raw::<H>(a, b, patient(&*harness)).await;
    let half_a_body = [&eager(1, 6, 0).encode()[..], b"hal"].concat();
    let half_a_header = &announce(1, 100_000, 0).encode()[..13];
    for (id, bytes) in (10..).zip([&half_a_body[..], half_a_header]) {
        let liar = zero.communicator(id);
        let failure = consequence(&liar, &raw, bytes, true).await;
        assert_protocol(&failure, "half a message");
    }
}

pub async fn a_number_that_comes_twice<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let (zero, raw) = group_with_raw::<H>(a, b, patient(&*harness)).await;
    let twice = [eager(1, 0, 0).encode(), eager(1, 0, 0).encode()].concat();
    let failure = consequence(&zero.messenger, &raw, &twice, false).await;
    assert_protocol(&failure, "out of turn");
}

/// Reads the frames from rank 0 until one of them asks for a message; the number of the transfer.
async fn asked_for<T: Transport>(raw: &mut RawRank<T>, lane: &mut Option<RecvOf<T>>) -> u64 {
    let lane = match lane {
        Some(lane) => lane,
        None => {
            let mut came = raw.new.uni.accept().await.expect("accept");
            let mut preamble = [0; Preamble::LEN];
            came.read_exact(&mut preamble).await.expect("read");
            lane.insert(came)
        }
    };
    loop {
        let mut header = [0; HEADER_LEN];
        lane.read_exact(&mut header).await.expect("read");
        match Frame::decode(&header, 0).expect("a frame") {
            Frame::ClearToSend { transfer, .. } => return transfer,
            Frame::Keep { .. } | Frame::Taken { .. } => {}
            frame => panic!("expected to be asked for a message, got {frame:?}"),
        }
    }
}

fn cause<R>(result: crate::Result<R>) -> MessageFailure {
    match result {
        Err(Error::Message(error)) => error.cause,
        Err(error) => panic!("expected the failure of one message, got {error}"),
        Ok(_) => panic!("received a message that nobody has"),
    }
}

pub async fn an_announcement_that_lies<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    const LARGE: usize = 100_000;
    let (zero, mut raw) = group_with_raw::<H>(a, b, patient(&*harness)).await;
    let zero = &zero.messenger;
    let mut lane = raw.lane(1, LaneKind::Message, 0).await;
    let before = peak_address_space();

    // It is longer than the receive allows; longer than anything.
    write(&mut lane, &announce(1, CLAIM, 0).encode()).await;
    let truncated = MessageFailure::Truncated {
        dtype: None,
        source: 1,
        tag: 1,
        length: CLAIM as usize,
        capacity: LARGE,
    };
    assert_eq!(cause(zero.recv(1, 1, LARGE).await), truncated);
    write(&mut lane, &announce(2, u64::MAX, 1).encode()).await;
    let length = usize::MAX;
    let nowhere_to_put = MessageFailure::OutOfMemory { length };
    assert_eq!(cause(zero.recv(1, 2, length).await), nowhere_to_put);
    assert!(peak_address_space() - before < CLAIM / 2);

    // The announced body of a later message is right, though a lane that nobody asked for came before.
    let mut answers = None;
    asked_for(&mut raw, &mut answers).await;
    write(&mut lane, &Frame::Withdraw { message: 1 }.encode()).await;
    let mut unasked = raw.lane(1, LaneKind::Bulk, 12_345).await;
    write(&mut unasked, b"nobody wants this").await;
    write(&mut lane, &announce(3, LARGE as u64, 2).encode()).await;
    let pattern = Pattern::new(91);
    let honest = async {
        let transfer = asked_for(&mut raw, &mut answers).await;
        let mut bulk = raw.lane(1, LaneKind::Bulk, transfer).await;
        pattern.write(&mut bulk, 0, LARGE).await;
        bulk.finish().expect("finish");
        bulk
    };
    let (received, _bulk) = tokio::join!(zero.recv(1, 3, LARGE), honest);
    assert!(received.expect("receive").1 == pattern.message(LARGE));
    assert_eq!(zero.try_probe(Source::Any, Tag::Any).expect("probe"), None);

    // A body that ends early.
    write(&mut lane, &announce(4, LARGE as u64, 3).encode()).await;
    let short = async {
        let transfer = asked_for(&mut raw, &mut answers).await;
        let mut bulk = raw.lane(1, LaneKind::Bulk, transfer).await;
        pattern.write(&mut bulk, 0, LARGE - 1).await;
        bulk.finish().expect("finish");
        bulk
    };
    let (received, _bulk) = tokio::join!(zero.recv(1, 4, LARGE), short);
    assert_protocol(&failure(received), "ended before its end");
}

pub async fn a_control_frame_that_lies<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let (zero, mut raw) = group_with_raw::<H>(a, b, patient(&*harness)).await;
    let lie = async { write(&mut raw.control.0, &u32::MAX.to_le_bytes()).await };
    let (received, ()) = tokio::join!(zero.messenger.recv(1, 1, 10), lie);
    match failure(received) {
        Failure::PeerLost { rank: 1, reason } => assert!(
            reason.contains("broke the protocol") && reason.contains("above the limit"),
            "{reason}"
        ),
        failure => panic!("{failure}"),
    }
    raw.new.connection.closed().await;
}

pub async fn an_opening_that_lies<H: Harness>(
    harness: Arc<H>,
    a: End<H::Transport>,
    b: End<H::Transport>,
) {
    let limits = patient(&*harness);
    let (a, b) = (Arc::new(a.transport), Arc::new(b.transport));
    let seed = a.local_addr();
    let second = async {
        let liar = b.connect(seed, None).await.expect("connect");
        let (mut send, _recv) = liar.connection.open_bi().await.expect("open");
        write(&mut send, &u32::MAX.to_le_bytes()).await;
        match liar.connection.closed().await {
            ConnectionError::ClosedByPeer { reason, .. } => {
                assert_eq!(reason, "protocol violation");
            }
            error => panic!("expected to be closed by the seed, got {error:?}"),
        }
        // The group forms all the same.
        join_by(&b, seed, limits).await
    };
    let (_zero, one) = tokio::join!(join_as_seed(&a, limits), second);
    one.expect("rank 1 joins");
}
