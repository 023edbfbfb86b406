//! The UDP socket as quinn sees it.

use crate::settings;
use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit, UdpSocketState},
};
use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{io::Interest, runtime::Handle};

#[derive(Debug)]
pub(crate) struct Socket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    pub(crate) fn new(socket: UdpSocket, handle: &Handle) -> io::Result<Self> {
        let _context = handle.enter();
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Socket {
            io: tokio::net::UdpSocket::from_std(socket)?,
            state,
        })
    }

    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.io.try_io(Interest::WRITABLE, || {
            self.state.send((&self.io).into(), transmit)
        })
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller(self))
    }

    /// A batch of more bytes than one UDP datagram can have would be refused as a whole, silently; it
    /// is sent in parts.
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let limit = usize::from(settings::MAX_DATAGRAM);
        let Some(segment) = transmit
            .segment_size
            .filter(|_| transmit.contents.len() > limit)
        else {
            return self.send(transmit);
        };
        let part = (limit / segment).max(1) * segment;
        for contents in transmit.contents.chunks(part) {
            self.send(&Transmit {
                contents,
                ..transmit.clone()
            })?;
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            let receive = || self.state.recv((&self.io).into(), bufs, meta);
            match self.io.try_io(Interest::READABLE, receive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// One receive buffer holds the largest datagram; a batch that the kernel has joined is not
    /// larger. Saying 64 here would make quinn reserve 64 times as much.
    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

#[derive(Debug)]
struct Poller(Arc<Socket>);

impl UdpPoller for Poller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.io.poll_send_ready(cx)
    }
}
