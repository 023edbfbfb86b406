//! Passing on what the ranks write, line by line.

use super::{LaunchError, Lines};
use std::{
    io::{self, Write},
    thread,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

/// Batches of lines that wait for a slow standard output. A batch has at most the size of one read
/// and one line, with its prefixes.
const QUEUE: usize = 16;

/// Bytes per read from a rank.
const READ: usize = 16 << 10;

/// How long to wait for the end of the output once all ranks have ended: processes that they have
/// left behind may keep it open.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// Where the lines of one stream of all ranks go. A thread of its own writes them, so that a reader
/// who does not read holds up the ranks, but not the launcher.
struct Sink {
    lines: mpsc::Sender<Vec<u8>>,
    done: oneshot::Receiver<()>,
}

impl Sink {
    fn start(mut target: impl Write + Send + 'static) -> Result<Self, LaunchError> {
        let (lines, mut queue) = mpsc::channel::<Vec<u8>>(QUEUE);
        let (finished, done) = oneshot::channel();
        let write = move || {
            while let Some(batch) = queue.blocking_recv() {
                if target
                    .write_all(&batch)
                    .and_then(|()| target.flush())
                    .is_err()
                {
                    break;
                }
            }
            let _ = finished.send(());
        };
        thread::Builder::new()
            .name("output".into())
            .spawn(write)
            .map_err(LaunchError::system("starting a thread for output"))?;
        Ok(Sink { lines, done })
    }
}

pub(super) struct Output {
    stdout: Sink,
    stderr: Sink,
    readers: JoinSet<()>,
}

impl Output {
    pub(super) fn start() -> Result<Self, LaunchError> {
        let (stdout, stderr) = (Sink::start(io::stdout())?, Sink::start(io::stderr())?);
        Ok(Output {
            stdout,
            stderr,
            readers: JoinSet::new(),
        })
    }

    pub(super) fn add_stdout(
        &mut self,
        rank: usize,
        style: Lines,
        source: Option<impl AsyncRead + Send + Unpin + 'static>,
    ) {
        if let Some(source) = source {
            self.readers
                .spawn(pump(rank, style, source, self.stdout.lines.clone()));
        }
    }

    pub(super) fn add_stderr(
        &mut self,
        rank: usize,
        source: Option<impl AsyncRead + Send + Unpin + 'static>,
    ) {
        if let Some(source) = source {
            self.readers.spawn(pump(
                rank,
                Lines::Prefixed,
                source,
                self.stderr.lines.clone(),
            ));
        }
    }

    /// Waits until everything is written.
    pub(super) async fn finish(self) {
        let Output {
            stdout,
            stderr,
            mut readers,
        } = self;
        let _ = timeout(DRAIN_LIMIT, async {
            while readers.join_next().await.is_some() {}
        })
        .await;
        readers.shutdown().await;
        for sink in [stdout, stderr] {
            drop(sink.lines);
            let _ = sink.done.await;
        }
    }
}

/// Reads lines until the end, or until nobody takes them any more: then the rank's next write fails as if
/// it had written to the closed standard output itself.
async fn pump(
    rank: usize,
    style: Lines,
    mut source: impl AsyncRead + Unpin,
    lines: mpsc::Sender<Vec<u8>>,
) {
    let mut splitter = Splitter::new(rank, style);
    let mut buffer = vec![0; READ];
    loop {
        let read = source.read(&mut buffer).await.unwrap_or(0);
        let batch = match read {
            0 => splitter.finish(),
            _ => splitter.push(&buffer[..read]),
        };
        if !batch.is_empty() && lines.send(batch).await.is_err() || read == 0 {
            return;
        }
    }
}

/// Cuts a stream of bytes into lines and puts the prefix before each.
struct Splitter {
    prefix: Vec<u8>,
    /// A line whose end has not come yet.
    partial: Vec<u8>,
}

impl Splitter {
    fn new(rank: usize, style: Lines) -> Self {
        let prefix = match style {
            Lines::Prefixed => format!("[{rank}] ").into_bytes(),
            Lines::Plain => Vec::new(),
        };
        Splitter {
            prefix,
            partial: Vec::new(),
        }
    }

    /// The lines that are complete with `bytes`.
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(bytes.len() + self.partial.len());
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (mut text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            while self.partial.len() + text.len() > Lines::MAX_LINE {
                let (head, tail) = text.split_at(Lines::MAX_LINE - self.partial.len());
                self.partial.extend_from_slice(head);
                self.emit(&mut whole);
                text = tail;
            }
            self.partial.extend_from_slice(text);
            if ended {
                self.emit(&mut whole);
            }
        }
        whole
    }

    /// What is left at the end of the stream.
    fn finish(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        if !self.partial.is_empty() {
            self.emit(&mut whole);
        }
        whole
    }

    fn emit(&mut self, whole: &mut Vec<u8>) {
        whole.extend_from_slice(&self.prefix);
        whole.append(&mut self.partial);
        whole.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_are_put_together_across_reads() {
        let mut splitter = Splitter::new(7, Lines::Prefixed);
        assert_eq!(text(splitter.push(b"one\n\ntw")), "[7] one\n[7] \n");
        assert_eq!(text(splitter.push(b"o")), "");
        assert_eq!(text(splitter.push(b"\nthree")), "[7] two\n");
        assert_eq!(text(splitter.finish()), "[7] three\n");
        assert_eq!(text(splitter.finish()), "");
    }

    #[test]
    fn long_lines_are_broken() {
        let mut splitter = Splitter::new(0, Lines::Plain);
        let long = vec![b'x'; Lines::MAX_LINE * 2 + 5];
        let mut out = Vec::new();
        for read in long.chunks(READ) {
            out.extend(splitter.push(read));
            assert!(splitter.partial.len() <= Lines::MAX_LINE);
        }
        out.extend(splitter.finish());
        let lengths: Vec<_> = text(out).lines().map(str::len).collect();
        assert_eq!(lengths, [Lines::MAX_LINE, Lines::MAX_LINE, 5]);
    }

    #[test]
    fn a_line_of_the_longest_length_stays_whole() {
        let mut splitter = Splitter::new(1, Lines::Prefixed);
        let mut line = vec![b'y'; Lines::MAX_LINE];
        line.push(b'\n');
        assert_eq!(splitter.push(&line).len(), line.len() + "[1] ".len());
    }
}
