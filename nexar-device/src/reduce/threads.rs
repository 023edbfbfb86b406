//! Dividing buffers among threads.

use std::{
    io::Read,
    sync::{Mutex, OnceLock, PoisonError},
    thread,
};

/// Shorter buffers are left to the calling thread.
const MIN_BYTES: usize = 8 << 20;
/// Bytes of the longer buffer that a thread takes at once.
const CHUNK_BYTES: usize = 512 << 10;
/// Memory has no bandwidth for more.
const MAX_THREADS: usize = 8;

/// How buffers are divided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    /// Threads, the calling one included.
    pub(super) threads: usize,
    /// Bytes of the longer buffer that a thread takes at once.
    pub(super) chunk: usize,
}

impl Split {
    /// For an operation whose longer buffer has so many bytes.
    pub(super) fn of(bytes: usize) -> Split {
        let threads = if bytes < MIN_BYTES {
            1
        } else {
            (1 + idle_cpus()).min(MAX_THREADS)
        };
        Split {
            threads,
            chunk: CHUNK_BYTES,
        }
    }

    /// Runs `f` on chunks of a buffer, which is given with the size of its elements.
    pub(super) fn one(self, buffer: (&mut [u8], usize), f: impl Fn(&mut [u8]) + Sync) {
        let (buffer, size) = buffer;
        if self.threads == 1 {
            return f(buffer);
        }
        let chunk = self.elements(size) * size;
        self.each(buffer.chunks_mut(chunk), f);
    }

    /// Runs `f` on chunks of two buffers with the same number of elements.
    pub(super) fn pair(
        self,
        acc: (&mut [u8], usize),
        incoming: (&[u8], usize),
        f: impl Fn(&mut [u8], &[u8]) + Sync,
    ) {
        let ((acc, acc_size), (incoming, incoming_size)) = (acc, incoming);
        if self.threads == 1 {
            return f(acc, incoming);
        }
        let elements = self.elements(acc_size.max(incoming_size));
        let acc = acc.chunks_mut(elements * acc_size);
        let incoming = incoming.chunks(elements * incoming_size);
        self.each(acc.zip(incoming), |(acc, incoming)| f(acc, incoming));
    }

    fn elements(self, size: usize) -> usize {
        (self.chunk / size).max(1)
    }

    /// Runs `f` on all chunks. The threads take one after the other, so that one that starts late or is
    /// interrupted holds nobody up for longer than a chunk takes.
    fn each<C: Send>(self, chunks: impl Iterator<Item = C> + Send, f: impl Fn(C) + Sync) {
        let chunks = Mutex::new(chunks);
        let work = || {
            loop {
                let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
                match next {
                    Some(chunk) => f(chunk),
                    None => break,
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads {
                // Without a thread its chunks are left to the others.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }
}

/// CPUs on which nothing runs at this moment.
fn idle_cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    let cpus = *CPUS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from));
    match runnable_tasks() {
        Some(runnable) => cpus.saturating_sub(runnable),
        None => cpus / 2,
    }
}

/// Tasks of the whole machine that are running or ready to run, this one included.
fn runnable_tasks() -> Option<usize> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let mut text = [0; 128];
    let length = std::fs::File::open("/proc/loadavg")
        .ok()?
        .read(&mut text)
        .ok()?;
    runnable(std::str::from_utf8(&text[..length]).ok()?)
}

/// From a text such as `0.20 0.18 0.12 1/80 11206`.
fn runnable(loadavg: &str) -> Option<usize> {
    let (runnable, _) = loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?;
    // The reader is running, whatever the text says.
    runnable.parse().ok().map(|tasks: usize| tasks.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runnable_tasks_are_read() {
        assert_eq!(runnable("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable("0.20 0.18 0.12 0/80 11206\n"), Some(1));
        for broken in [
            "",
            "0.20",
            "0.20 0.18 0.12 3 11206",
            "0.20 0.18 0.12 x/80 11206",
        ] {
            assert_eq!(runnable(broken), None, "{broken}");
        }
    }

    #[test]
    fn short_buffers_stay_on_one_thread() {
        assert_eq!(Split::of(MIN_BYTES - 1).threads, 1);
        assert!((1..=MAX_THREADS).contains(&Split::of(MIN_BYTES).threads));
    }

    #[test]
    fn every_element_comes_once_and_whole() {
        for (threads, chunk, elements) in
            [(1, 8, 5), (2, 1, 1), (2, 7, 100), (3, 64, 1000), (5, 1, 0)]
        {
            let split = Split { threads, chunk };
            let mut acc: Vec<u8> = (0..elements * 2).map(|i| i as u8).collect();
            let incoming: Vec<u8> = (0..elements * 8).map(|i| i as u8).collect();
            split.pair((&mut acc, 2), (&incoming, 8), |acc, incoming| {
                assert_eq!(acc.len() * 4, incoming.len());
                for (a, b) in acc.chunks_exact_mut(2).zip(incoming.chunks_exact(8)) {
                    a[0] = a[0].wrapping_add(b[0]);
                }
            });
            split.one((&mut acc, 2), |acc| {
                assert_eq!(acc.len() % 2, 0);
                acc.chunks_exact_mut(2).for_each(|a| a[1] ^= 0xff);
            });
            let expected: Vec<u8> = (0..elements)
                .flat_map(|i| {
                    [
                        ((i * 2) as u8).wrapping_add((i * 8) as u8),
                        !((i * 2 + 1) as u8),
                    ]
                })
                .collect();
            assert_eq!(acc, expected, "{split:?}");
        }
    }
}
