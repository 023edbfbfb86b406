//! The runtime that quinn sees.

use super::{Drivers, executor::BoxFuture, timers::Timer};
use quinn::{AsyncTimer, AsyncUdpSocket};
use std::{io, net::UdpSocket, pin::Pin, sync::Arc, time::Instant};

/// Puts quinn's futures and timers into the shared set.
#[derive(Debug)]
pub(crate) struct Runtime(pub(crate) Arc<Drivers>);

impl quinn::Runtime for Runtime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer::new(self.0.clone(), deadline))
    }

    fn spawn(&self, future: BoxFuture) {
        let mut refused = None;
        self.0.update(|state| {
            let (waker, back) = state.spawn(future);
            refused = back;
            waker
        });
        drop(refused);
    }

    /// Not used: the endpoint gets its socket ready-made and is never rebound.
    fn wrap_udp_socket(&self, _socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
