//! Datagrams on their way from the two endpoints to the socket.

use crate::{driver::Socket, settings};
use quinn_udp::{EcnCodepoint, Transmit};
use s2n_quic_core::{
    inet::ExplicitCongestionNotification,
    io::tx::{self, PayloadBuffer},
    path::{Handle, Tuple},
};
use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

const BUFFER: usize = settings::MAX_DATAGRAM as usize;

/// Datagrams of one path that go to the kernel in one call, each but the last of the same size. They
/// are encrypted into this buffer and sent from it.
pub(super) struct Outbox {
    socket: Arc<Socket>,
    buffer: Vec<u8>,
    len: usize,
    segment: usize,
    count: usize,
    to: Option<(Tuple, ExplicitCongestionNotification)>,
    /// The socket takes no more; the batch waits.
    blocked: bool,
}

impl Outbox {
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Outbox {
            socket,
            buffer: vec![0; BUFFER],
            len: 0,
            segment: 0,
            count: 0,
            to: None,
            blocked: false,
        }
    }

    /// Sends what was left over; ready when the box has room.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.blocked {
            std::task::ready!(self.socket.poll_writable(cx));
            self.send();
        }
        Poll::Ready(())
    }

    /// Sends the batch, unless the socket would block.
    fn send(&mut self) {
        let Some((path, ecn)) = self.to else {
            return;
        };
        let segment_size = (self.count > 1).then_some(self.segment);
        let local = SocketAddr::from(path.local_address().0).ip();
        let result = self.socket.try_send(&Transmit {
            destination: path.remote_address().0.into(),
            ecn: EcnCodepoint::from_bits(ecn as u8),
            contents: &self.buffer[..self.len],
            segment_size,
            src_ip: (!local.is_unspecified()).then_some(local),
        });
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.blocked = true;
                return;
            }
            // Lost, like a datagram that the network drops.
            Err(error) => tracing::debug!(%error, "a datagram cannot be sent"),
            Ok(()) => {}
        }
        self.blocked = false;
        self.len = 0;
        self.count = 0;
        self.to = None;
    }

    /// Whether a datagram of this size may follow those in the box.
    fn can_join<M: tx::Message<Handle = Tuple>>(
        &self,
        message: &M,
        ecn: ExplicitCongestionNotification,
    ) -> bool {
        let Some((path, batch_ecn)) = &self.to else {
            return true;
        };
        *batch_ecn == ecn
            && path.strict_eq(message.path_handle())
            && self.len == self.count * self.segment
            && self.count < self.socket.max_segments()
            && self.len + self.segment <= BUFFER
            && message.can_gso(self.segment, self.count)
    }
}

impl tx::Queue for Outbox {
    type Handle = Tuple;

    const SUPPORTS_ECN: bool = true;

    fn push<M: tx::Message<Handle = Tuple>>(
        &mut self,
        mut message: M,
    ) -> Result<tx::Outcome, tx::Error> {
        let ecn = message.ecn();
        if !self.can_join(&message, ecn) {
            self.send();
        }
        if self.blocked {
            return Err(tx::Error::AtCapacity);
        }
        let limit = match self.count {
            0 => BUFFER,
            _ => self.len + self.segment,
        };
        let path = *message.path_handle();
        let buffer = PayloadBuffer::new(&mut self.buffer[self.len..limit]);
        let len = message.write_payload(buffer, self.count)?;
        if self.count == 0 {
            self.segment = len;
            self.to = Some((path, ecn));
        }
        self.len += len;
        self.count += 1;
        Ok(tx::Outcome {
            len,
            index: self.count - 1,
        })
    }

    fn flush(&mut self) {
        if !self.blocked {
            self.send();
        }
    }

    fn capacity(&self) -> usize {
        if self.blocked { 0 } else { usize::MAX }
    }
}
