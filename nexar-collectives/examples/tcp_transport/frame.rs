//! What travels on the TCP connection: frames with one common header.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | what it is |
//! | 4 | length of the body, at most [`MAX_BODY`] |
//! | 8 | the stream that it is about |
//! | 8 | a value: a code, a number of bytes |
//! | length | the body |

use bytes::Bytes;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest body, and so the longest piece of one stream that the others wait for.
pub(crate) const MAX_BODY: usize = 64 << 10;

/// What a frame of data costs besides its bytes.
pub(crate) const OVERHEAD: u64 = 256;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum What {
    /// First on a connection. Value: the port on which the sender listens. Body: its identity.
    Hello,
    /// Body: the next bytes of the stream, at least one.
    Data,
    /// The stream ends here.
    Finish,
    /// Everything up to the end of the stream has arrived.
    Acked,
    /// The sender abandons the stream. Value: its code.
    Reset,
    /// The receiver is done with the stream, also where it has read it to its end. Value: its code.
    Stop,
    /// Data of the stream has been read or discarded. Value: what it had cost.
    Credit,
    /// Both directions of a stream are over; its opener may open another one of its kind.
    Ended,
    /// Last on a connection. Value: the code. Body: the reason.
    Close,
}

/// A stream: which side has opened it, of which kind it is, and how many of these the side had opened before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamId(pub(crate) u64);

/// Kinds of streams.
pub(crate) const UNI: usize = 0;
pub(crate) const BI: usize = 1;

impl StreamId {
    pub(crate) fn new(by_dialler: bool, kind: usize, index: u64) -> Self {
        StreamId(index << 2 | (kind as u64) << 1 | u64::from(by_dialler))
    }

    pub(crate) fn by_dialler(self) -> bool {
        self.0 & 1 == 1
    }

    pub(crate) fn kind(self) -> usize {
        if self.0 & 2 == 0 { UNI } else { BI }
    }

    pub(crate) fn index(self) -> u64 {
        self.0 >> 2
    }
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) what: What,
    pub(crate) id: StreamId,
    pub(crate) value: u64,
    pub(crate) body: Bytes,
}

/// The peer does not keep to the protocol. Other kinds of errors come from the socket.
pub(crate) fn violation(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Frame {
    pub(crate) fn new(what: What, id: StreamId, value: u64, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Frame {
            what,
            id,
            value,
            body,
        }
    }

    /// What it takes of the windows: only data does, and a little more than its bytes, so that many small
    /// frames take no more memory than few large ones.
    pub(crate) fn cost(&self) -> u64 {
        match self.what {
            What::Data => self.body.len() as u64 + OVERHEAD,
            _ => 0,
        }
    }

    pub(crate) async fn write<W: AsyncWrite + Unpin>(&self, to: &mut W) -> io::Result<()> {
        to.write_u8(self.what as u8).await?;
        to.write_u32(self.body.len() as u32).await?;
        to.write_u64(self.id.0).await?;
        to.write_u64(self.value).await?;
        to.write_all(&self.body).await
    }

    /// Reads the next frame. The length is checked before anything is allocated.
    pub(crate) async fn read<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Frame> {
        use What::*;
        const ALL: [What; 9] = [
            Hello, Data, Finish, Acked, Reset, Stop, Credit, Ended, Close,
        ];
        let what = ALL.get(usize::from(from.read_u8().await?));
        let what = *what.ok_or_else(|| violation("no frame of this protocol"))?;
        let len = from.read_u32().await? as usize;
        if len > MAX_BODY || (len == 0 && what == Data) {
            return Err(violation("a frame of impossible length"));
        }
        let id = StreamId(from.read_u64().await?);
        let value = from.read_u64().await?;
        let mut body = vec![0; len];
        from.read_exact(&mut body).await?;
        Ok(Frame::new(what, id, value, body))
    }
}
