//! A waiter's short sleep on the socket itself.
//!
//! Handing the set to the background costs four switches between threads until the next datagram has reached
//! the waiter: the background arms the readiness and sleeps, is woken, and wakes the waiter. A waiter that
//! sleeps in the kernel until the socket has something costs two.

pub(super) use platform::Nap;

/// Linux: `ppoll` on the socket and an `eventfd`.
#[cfg(target_os = "linux")]
mod platform {
    use super::super::socket::Socket;
    use rustix::{
        event::{self, EventfdFlags, PollFd, PollFlags, Timespec},
        io::{read, write},
    };
    use std::{
        io,
        os::fd::OwnedFd,
        sync::atomic::{AtomicBool, Ordering},
        time::Duration,
    };

    /// Where the driving waiter sleeps; there is at most one.
    #[derive(Debug)]
    pub(in super::super) struct Nap {
        asleep: AtomicBool,
        alarm: OwnedFd,
    }

    impl Nap {
        pub(in super::super) fn new() -> io::Result<Self> {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            Ok(Nap {
                asleep: AtomicBool::new(false),
                alarm: event::eventfd(0, flags)?,
            })
        }

        /// Blocks the thread until the socket can be read (or written where `want_write`), until
        /// [`interrupt`](Self::interrupt), or for `longest`. Does not sleep if `is_needed`, which is asked
        /// when interruptions already count. False if this system cannot sleep so.
        pub(in super::super) fn sleep(
            &self,
            socket: &Socket,
            want_write: bool,
            longest: Duration,
            is_needed: impl FnOnce() -> bool,
        ) -> bool {
            self.asleep.store(true, Ordering::SeqCst);
            let slept = if is_needed() {
                Ok(())
            } else {
                self.poll(socket, want_write, longest)
            };
            if !self.asleep.swap(false, Ordering::SeqCst) {
                // Somebody rang, or is about to: then the next sleep ends at once.
                let _ = read(&self.alarm, &mut [0; 8]);
            }
            slept.is_ok()
        }

        fn poll(&self, socket: &Socket, want_write: bool, longest: Duration) -> io::Result<()> {
            let mut events = PollFlags::IN;
            if want_write {
                events |= PollFlags::OUT;
            }
            let longest = Timespec {
                tv_sec: 0,
                tv_nsec: longest.subsec_nanos().into(),
            };
            socket.with(|io| {
                let mut descriptors = [
                    PollFd::new(io, events),
                    PollFd::new(&self.alarm, PollFlags::IN),
                ];
                match event::poll(&mut descriptors, Some(&longest)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            })
        }

        /// Wakes whoever sleeps here. Without effect on a sleep that begins later.
        pub(in super::super) fn interrupt(&self) {
            if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
                let _ = write(&self.alarm, &1u64.to_ne_bytes());
            }
        }
    }
}

/// Elsewhere waiters hand over.
#[cfg(not(target_os = "linux"))]
mod platform {
    use super::super::socket::Socket;
    use std::{io, time::Duration};

    #[derive(Debug)]
    pub(in super::super) struct Nap;

    impl Nap {
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(Nap)
        }

        pub(in super::super) fn sleep(
            &self,
            _socket: &Socket,
            _want_write: bool,
            _longest: Duration,
            _is_needed: impl FnOnce() -> bool,
        ) -> bool {
            false
        }

        pub(in super::super) fn interrupt(&self) {}
    }
}
