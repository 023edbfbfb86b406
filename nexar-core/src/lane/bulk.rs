//! A lane for one large body.

use crate::transport::{SendStream, StreamError};
use bytes::Bytes;

/// Code with which a lane is reset whose body was given up.
const RESET_GIVEN_UP: u64 = 2;

/// Longest chunk that is handed to a stream at once.
const MAX_CHUNK: usize = 256 << 10;

/// The lane of a large body. Dropping it before the whole body is written resets it, since the end of a
/// stream would look like the end of the body.
pub(crate) struct BulkLane<S: SendStream> {
    stream: S,
    complete: bool,
}

impl<S: SendStream> BulkLane<S> {
    /// A lane that has just been opened.
    pub(crate) fn new(mut stream: S, priority: i32) -> Self {
        stream.set_priority(priority);
        BulkLane {
            stream,
            complete: false,
        }
    }

    /// Writes all of `data`.
    pub(crate) async fn write_all(&mut self, mut data: Bytes) -> Result<(), StreamError> {
        while !data.is_empty() {
            let chunk = data.split_to(data.len().min(MAX_CHUNK));
            self.stream.write_all(chunk).await?;
        }
        Ok(())
    }

    /// The body is complete.
    pub(crate) fn finish(&mut self) -> Result<(), StreamError> {
        self.complete = true;
        self.stream.finish()
    }
}

impl<S: SendStream> Drop for BulkLane<S> {
    fn drop(&mut self) {
        if !self.complete {
            self.stream.reset(RESET_GIVEN_UP);
        }
    }
}
