//! What the cases have in common.

use crate::transport::{RecvStream, SendStream, StreamError};
use bytes::{Bytes, BytesMut};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

/// Content that differs from stream to stream and repeats with a period that no buffer size shares.
pub(super) struct Pattern {
    table: Bytes,
}

const PERIOD: usize = 251;
const PIECE: usize = 1 << 16;

impl Pattern {
    pub(super) fn new(stream: u64) -> Self {
        let byte = |at: usize| ((at % PERIOD) as u64 * 7 + stream * 131 + 3) as u8;
        Pattern {
            table: (0..PIECE + PERIOD).map(byte).collect::<Vec<u8>>().into(),
        }
    }

    /// The content from `offset` on, at most `len` bytes of it.
    pub(super) fn piece(&self, offset: usize, len: usize) -> Bytes {
        let start = offset % PERIOD;
        self.table.slice(start..start + len.min(PIECE))
    }

    /// The first `len` bytes in pieces that share their memory.
    pub(super) fn pieces(&self, len: usize) -> Vec<&[u8]> {
        let piece = |at: usize| &self.table[at % PERIOD..][..PIECE.min(len - at)];
        (0..len).step_by(PIECE).map(piece).collect()
    }

    /// The first `len` bytes.
    pub(super) fn message(&self, len: usize) -> Bytes {
        let mut message = BytesMut::with_capacity(len);
        for piece in self.pieces(len) {
            message.extend_from_slice(piece);
        }
        message.freeze()
    }

    /// Writes the content from `from` to `to`.
    pub(super) async fn write<S: SendStream>(&self, stream: &mut S, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let piece = self.piece(at, to - at);
            at += piece.len();
            stream.write_all(piece).await.expect("write");
        }
    }

    /// Reads the content from `from` to `to` and checks every byte.
    pub(super) async fn read<R: RecvStream>(&self, stream: &mut R, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let bytes = stream.read(to - at).await.expect("read");
            let bytes = bytes.unwrap_or_else(|| panic!("the stream ends at byte {at} of {to}"));
            self.check(at, &bytes);
            at += bytes.len();
        }
    }

    /// Reads the content from `from` to `to`, then the end of the stream.
    pub(super) async fn read_to_end<R: RecvStream>(&self, stream: &mut R, from: usize, to: usize) {
        self.read(stream, from, to).await;
        let rest = stream.read(PIECE).await.expect("read the end");
        assert_eq!(rest, None, "bytes beyond the end at {to}");
    }

    /// Checks that `bytes` are the content from `offset` on.
    pub(super) fn check(&self, offset: usize, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "an empty chunk at byte {offset}");
        let mut at = offset;
        for part in bytes.chunks(PIECE) {
            assert!(
                part == self.piece(at, part.len()),
                "wrong content after byte {at}"
            );
            at += part.len();
        }
    }
}

/// Polls `future` once; a future that is not ready is dropped.
pub(super) async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    at_most(1, future).await
}

/// Polls `future` at most so often, while others have their turn; a future that is not ready then is
/// dropped.
pub(super) async fn at_most<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for poll in 0..polls {
        if poll > 0 {
            tokio::task::yield_now().await;
        }
        let once = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx)));
        if let Poll::Ready(output) = once.await {
            return Some(output);
        }
    }
    None
}

/// Waits for all `futures`.
pub(super) async fn join_all<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        match futures.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// How long a future must make no progress to count as waiting. A slow machine makes a case weaker, never
/// wrong.
const PATIENCE: Duration = Duration::from_millis(100);

/// The output of `future` unless it waits for something else to happen first.
pub(super) async fn unless_stuck<F: Future>(future: F) -> Option<F::Output> {
    tokio::time::timeout(PATIENCE, future).await.ok()
}

/// Writes the pattern until the stream takes no more while nobody reads; returns how much it took, and
/// fails beyond `limit`.
pub(super) async fn fill<S: SendStream>(stream: &mut S, pattern: &Pattern, limit: usize) -> usize {
    let mut taken = 0;
    loop {
        let mut piece = pattern.piece(taken, PIECE);
        let len = piece.len();
        let write = poll_fn(|cx| stream.poll_write(cx, &mut piece));
        match unless_stuck(write).await {
            Some(result) => result.expect("write"),
            None => return taken,
        }
        taken += len - piece.len();
        assert!(
            taken <= limit,
            "took {taken} bytes that nobody reads; the limit is {limit}"
        );
    }
}

/// Reads until the stream fails.
pub(super) async fn read_error<R: RecvStream>(stream: &mut R) -> StreamError {
    loop {
        match stream.read(PIECE).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended as if complete"),
            Err(error) => return error,
        }
    }
}

/// Writes until the stream fails.
pub(super) async fn write_error<S: SendStream>(stream: &mut S) -> StreamError {
    loop {
        if let Err(error) = stream.write_all(Bytes::from_static(&[5; 1000])).await {
            return error;
        }
    }
}

/// The most address space that this process has had at a time, in bytes; 0 where the system does not tell.
pub(super) fn peak_address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let kilobytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.unwrap_or(0u64) << 10
}
