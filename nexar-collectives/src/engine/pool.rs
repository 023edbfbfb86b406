//! Buffers for outgoing chunks, reused from operation to operation.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Chunks of up to this size are allocated each time: that costs less than a pooled buffer.
const SMALL: usize = 2 << 10;

/// Idle buffers that are kept, each at most one chunk long: 16 MiB for each communicator.
const MAX_IDLE: usize = 64;

/// A pool of chunk buffers. Clones share the buffers.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChunkPool(Arc<Mutex<Vec<Vec<u8>>>>);

impl ChunkPool {
    /// The concatenation of `parts`, to be handed to a transport.
    pub(crate) fn bytes(&self, parts: [&[u8]; 2]) -> Bytes {
        let length = parts[0].len() + parts[1].len();
        if length <= SMALL {
            let mut chunk = Vec::with_capacity(length);
            chunk.extend_from_slice(parts[0]);
            chunk.extend_from_slice(parts[1]);
            return chunk.into();
        }
        let mut chunk = self.idle().pop().unwrap_or_default();
        chunk.clear();
        chunk.extend_from_slice(parts[0]);
        chunk.extend_from_slice(parts[1]);
        Bytes::from_owner(Chunk {
            chunk,
            pool: self.clone(),
        })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer that returns to its pool when the transport is done with it.
struct Chunk {
    chunk: Vec<u8>,
    pool: ChunkPool,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut idle = self.pool.idle();
        if idle.len() < MAX_IDLE {
            idle.push(std::mem::take(&mut self.chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_the_pool_is_bounded() {
        let pool = ChunkPool::default();
        let body = vec![7u8; SMALL];
        let chunks: Vec<Bytes> = (0..MAX_IDLE + 9)
            .map(|_| pool.bytes([&[1, 2], &body]))
            .collect();
        assert_eq!(&chunks[3][..4], &[1, 2, 7, 7]);
        assert_eq!(chunks[3].len(), SMALL + 2);
        drop(chunks);
        assert_eq!(pool.idle().len(), MAX_IDLE);
        assert_eq!(&pool.bytes([&[], &[9]])[..], &[9]);
    }
}
