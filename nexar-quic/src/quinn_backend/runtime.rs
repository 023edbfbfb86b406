//! Socket, timers and tasks as quinn sees them.

use crate::driver::{Drivers, Socket, Timer};
use quinn::{
    AsyncTimer, AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use std::{
    future::Future,
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

/// Puts quinn's futures and timers into the shared set.
#[derive(Debug)]
pub(super) struct Runtime(pub(super) Arc<Drivers>);

impl quinn::Runtime for Runtime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer::new(self.0.clone(), deadline))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(future);
    }

    /// Not used: the endpoint gets its socket ready-made and is never rebound.
    fn wrap_udp_socket(&self, _socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl AsyncTimer for Timer {
    fn reset(self: Pin<&mut Self>, deadline: Instant) {
        Timer::reset(self.get_mut(), deadline);
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Timer::poll(self.get_mut(), cx)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller(self))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        Socket::try_send(self, transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Socket::poll_recv(self, cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(Socket::local_addr(self))
    }

    fn max_transmit_segments(&self) -> usize {
        self.max_segments()
    }

    /// One receive buffer holds the largest datagram, and a batch that the kernel has joined is not
    /// larger than that. With the kernel's number of segments quinn would reserve 64 times as much.
    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        Socket::may_fragment(self)
    }
}

/// Tells one connection whether the socket has room.
#[derive(Debug)]
struct Poller(Arc<Socket>);

impl UdpPoller for Poller {
    /// quinn asks before every send, and again after one that would have blocked.
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_writable(cx).map(Ok)
    }
}
