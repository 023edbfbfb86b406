//! TCP without encryption.

use crate::{
    Result,
    keys::Keys,
    subject::{Host, Link, Receiver, Sender, Subject},
};
use bytes::Bytes;
use nexar_bench::report::plan;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// More does not stay in the cache.
const BUFFER: usize = 256 << 10;

pub(crate) struct Tcp;

impl Subject for Tcp {
    type Listener = TcpListener;
    type Sender = Writing<OwnedWriteHalf>;
    type Receiver = Reading<OwnedReadHalf>;
    type Host = Nothing;

    fn name(&self) -> String {
        plan::TCP.into()
    }

    async fn listen(&self, _: &Keys) -> Result<(TcpListener, SocketAddr)> {
        listen().await
    }

    async fn accept(&self, listener: TcpListener) -> Result<Link<Self>> {
        link(listener.accept().await?.0)
    }

    async fn dial(&self, address: SocketAddr, _: &Keys) -> Result<Link<Self>> {
        link(TcpStream::connect(address).await?)
    }
}

pub(super) async fn listen() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn link(stream: TcpStream) -> Result<Link<Tcp>> {
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    Ok(Link {
        sender: Writing(write),
        receiver: Reading::new(read),
        host: Nothing,
    })
}

/// Sends by writing.
pub(crate) struct Writing<W>(pub(super) W);

impl<W: AsyncWrite + Unpin + Send> Sender for Writing<W> {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        self.0.write_all(&data).await?;
        Ok(self.0.flush().await?)
    }
}

/// Receives by reading into a buffer.
pub(crate) struct Reading<R> {
    stream: R,
    buffer: Vec<u8>,
}

impl<R> Reading<R> {
    pub(super) fn new(stream: R) -> Self {
        Reading {
            stream,
            buffer: vec![0; BUFFER],
        }
    }
}

impl<R: AsyncRead + Unpin + Send> Receiver for Reading<R> {
    async fn recv(&mut self, max: usize) -> Result<usize> {
        let length = max.min(BUFFER);
        match self.stream.read(&mut self.buffer[..length]).await? {
            0 => Err("the stream has ended".into()),
            count => Ok(count),
        }
    }
}

/// The streams need nothing else.
pub(crate) struct Nothing;

impl Host for Nothing {
    async fn close(self) {}
}
