//! Datagrams on their way from the socket to the two endpoints.

use super::ids::{Prefixes, Target};
use crate::{driver::Socket, settings};
use quinn_udp::{BATCH_SIZE, RecvMeta};
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification, SocketAddress, datagram::Header},
    io::rx,
    path::{LocalAddress, RemoteAddress, Tuple},
};
use std::{
    io::{self, IoSliceMut},
    net::{Ipv4Addr, SocketAddr},
    task::{Context, Poll},
};

/// Bytes of a receive buffer: the largest datagram, or several that the kernel has joined.
const BUFFER: usize = settings::MAX_RECEIVED_DATAGRAM as usize;

/// One batch of received datagrams.
pub(super) struct Inbox {
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    datagrams: Vec<Datagram>,
    prefixes: Prefixes,
    port: u16,
    /// Whose turn it is.
    reader: Target,
}

struct Datagram {
    start: usize,
    end: usize,
    header: Header<Tuple>,
    target: Target,
}

impl Inbox {
    pub(super) fn new(local: SocketAddr, prefixes: Prefixes) -> Self {
        Inbox {
            buffers: vec![0; BUFFER * BATCH_SIZE],
            metas: [RecvMeta::default(); BATCH_SIZE],
            datagrams: Vec::new(),
            prefixes,
            port: local.port(),
            reader: Target::Either,
        }
    }

    /// Receives a batch; what was in the box before is gone.
    pub(super) fn poll_fill(
        &mut self,
        socket: &Socket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.datagrams.clear();
        let mut buffers = self.buffers.chunks_mut(BUFFER);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        let received = std::task::ready!(socket.poll_recv(cx, &mut slices, &mut self.metas))?;
        for (i, meta) in self.metas.iter().take(received).enumerate() {
            let (first, end) = (i * BUFFER, i * BUFFER + meta.len);
            for start in (first..end).step_by(meta.stride.max(1)) {
                let end = end.min(start + meta.stride);
                let target = self.prefixes.target(&self.buffers[start..end]);
                self.datagrams.push(Datagram {
                    start,
                    end,
                    header: header(meta, target, self.port),
                    target,
                });
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The box as the endpoint `reader` sees it, if it holds something for that.
    pub(super) fn of(&mut self, reader: Target) -> Option<&mut Self> {
        self.reader = reader;
        (!rx::Queue::is_empty(self)).then_some(self)
    }
}

impl Datagram {
    fn is_for(&self, reader: Target) -> bool {
        self.target == reader || self.target == Target::Either
    }
}

impl rx::Queue for Inbox {
    type Handle = Tuple;

    fn for_each<F: FnMut(Header<Tuple>, &mut [u8])>(&mut self, mut on_packet: F) {
        for datagram in &self.datagrams {
            if datagram.is_for(self.reader) {
                let bytes = &mut self.buffers[datagram.start..datagram.end];
                on_packet(datagram.header, bytes);
            }
        }
    }

    fn is_empty(&self) -> bool {
        !self.datagrams.iter().any(|it| it.is_for(self.reader))
    }
}

/// A server answers from the address at which it was asked. A client leaves its own to the system, so that its
/// connections go on when the address of the host changes.
fn header(meta: &RecvMeta, target: Target, port: u16) -> Header<Tuple> {
    let asked = meta.dst_ip.filter(|_| target == Target::Server);
    let local = asked.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    Header {
        path: Tuple {
            remote_address: RemoteAddress::from(SocketAddress::from(meta.addr)),
            local_address: LocalAddress::from(SocketAddress::from((local, port))),
        },
        ecn: ExplicitCongestionNotification::new(meta.ecn.map_or(0, |ecn| ecn as u8)),
    }
}
