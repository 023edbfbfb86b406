//! quinn's runtime: everything on the background thread.

use quinn::{AsyncTimer, AsyncUdpSocket};
use std::{future::Future, io, net::UdpSocket, pin::Pin, sync::Arc, time::Instant};
use tokio::runtime::Handle;

#[derive(Debug)]
pub(crate) struct Runtime(Handle);

impl Runtime {
    pub(crate) fn new(handle: &Handle) -> Self {
        Runtime(handle.clone())
    }
}

impl quinn::Runtime for Runtime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let _context = self.0.enter();
        quinn::TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(future);
    }

    fn wrap_udp_socket(&self, _socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
