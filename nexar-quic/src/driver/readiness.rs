//! How the background learns that the socket can go on, without being woken for each datagram while
//! somebody else reads them.

use super::socket::Socket;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

pub(super) use platform::Readiness;

/// Linux: an epoll instance of our own that contains the socket, inside the one of the background's
/// runtime. Taking the socket's events out of ours is one system call from any thread, and while they
/// are out the background's thread sleeps through all traffic.
#[cfg(target_os = "linux")]
mod platform {
    use super::{Arc, Context, Poll, Socket, io};
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use std::os::fd::OwnedFd;
    use tokio::io::{Interest, unix::AsyncFd};

    pub(in super::super) struct Readiness {
        inner: AsyncFd<OwnedFd>,
        socket: Arc<Socket>,
        armed: EventFlags,
    }

    impl Readiness {
        /// Must be called within the background's runtime.
        pub(in super::super) fn new(socket: &Arc<Socket>) -> io::Result<Self> {
            let inner = epoll::create(CreateFlags::CLOEXEC)?;
            let none = EventFlags::empty();
            socket.with(|io| Ok(epoll::add(&inner, io, EventData::new_u64(0), none)?))?;
            // SAFETY: an `OwnedFd` is an open descriptor, always the same one, and closes when the
            // `AsyncFd` drops it; nobody else knows it.
            let inner = unsafe { AsyncFd::register_with_interest(inner, Interest::READABLE) }?;
            Ok(Readiness {
                inner,
                socket: socket.clone(),
                armed: EventFlags::empty(),
            })
        }

        /// Ready if the socket can be read, or written where `want_write`, since the last call.
        /// Pending: the task is woken when it can, even if it can already.
        pub(in super::super) fn poll_ready(
            &mut self,
            cx: &mut Context<'_>,
            want_write: bool,
        ) -> Poll<io::Result<()>> {
            let mut fired = false;
            while let Poll::Ready(guard) = self.inner.poll_read_ready(cx) {
                guard?.clear_ready();
                fired = true;
            }
            if fired && !self.armed.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let write = if want_write {
                EventFlags::OUT
            } else {
                EventFlags::empty()
            };
            // The kernel looks at the socket once more when the events are set.
            self.arm(EventFlags::IN | write)?;
            Poll::Pending
        }

        /// From now on the background is not woken.
        pub(in super::super) fn disarm(&mut self) {
            if let Err(error) = self.arm(EventFlags::empty()) {
                tracing::debug!(%error, "cannot disarm the socket");
            }
        }

        fn arm(&mut self, events: EventFlags) -> io::Result<()> {
            if self.armed != events {
                let inner = self.inner.get_ref();
                let data = EventData::new_u64(0);
                self.socket
                    .with(|io| Ok(epoll::modify(inner, io, data, events)?))?;
                self.armed = events;
            }
            Ok(())
        }
    }
}

/// Elsewhere: a second handle of the socket in the background's runtime, which is woken for every
/// datagram, whoever reads it.
#[cfg(not(target_os = "linux"))]
mod platform {
    use super::{Arc, Context, Poll, Socket, io};
    use tokio::{io::Interest, net::UdpSocket};

    pub(in super::super) struct Readiness {
        io: UdpSocket,
        armed: bool,
    }

    impl Readiness {
        /// Must be called within the background's runtime.
        pub(in super::super) fn new(socket: &Arc<Socket>) -> io::Result<Self> {
            Ok(Readiness {
                io: UdpSocket::from_std(socket.with(std::net::UdpSocket::try_clone)?)?,
                armed: false,
            })
        }

        /// Ready if the socket may be readable, or writable where `want_write`. The first call after
        /// [`disarm`](Self::disarm) forgets what tokio knows, which others may have used up, and is
        /// ready once, so that the socket is tried again afterwards and no datagram is overlooked.
        pub(in super::super) fn poll_ready(
            &mut self,
            cx: &mut Context<'_>,
            want_write: bool,
        ) -> Poll<io::Result<()>> {
            if !self.armed {
                let forget = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = self.io.try_io(Interest::READABLE, forget);
                let _ = self.io.try_io(Interest::WRITABLE, forget);
                self.armed = true;
                return Poll::Ready(Ok(()));
            }
            let readable = self.io.poll_recv_ready(cx)?.is_ready();
            let writable = want_write && self.io.poll_send_ready(cx)?.is_ready();
            if readable || writable {
                self.armed = false;
                return Poll::Ready(Ok(()));
            }
            Poll::Pending
        }

        pub(in super::super) fn disarm(&mut self) {
            self.armed = false;
        }
    }
}
