//! Moves the datagrams of both endpoints over the one socket.
//!
//! s2n-quic has an endpoint that dials and one that answers. Here they share a socket, so that a process is
//! reached, and dials, at one address; see [`ids`](super::ids) for how datagrams find their endpoint.

use super::{
    ids::{Prefixes, Target},
    inbox::Inbox,
    link::Links,
    outbox::Outbox,
};
use crate::driver::{Drivers, Socket, Timer};
use s2n_quic::provider::io;
use s2n_quic_core::{
    endpoint::Endpoint,
    inet::SocketAddress,
    path::{Tuple, mtu},
    time::{Clock, StdClock, Timestamp},
};
use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Instant,
};
use tokio::sync::watch;

/// Batches that one poll moves before others of the set may run.
const MAX_ROUNDS: usize = 16;

/// An endpoint without its type.
pub(super) trait Machine: Send {
    fn receive(&mut self, inbox: &mut Inbox, clock: &StdClock);
    fn transmit(&mut self, outbox: &mut Outbox, clock: &StdClock);
    /// How often the application has called; an error when the endpoint is done.
    fn poll_wakeups(&mut self, cx: &mut Context<'_>, clock: &StdClock)
    -> Poll<Result<usize, Done>>;
    fn timeout(&self) -> Option<Timestamp>;
}

/// The application has dropped everything that belongs to an endpoint.
pub(super) struct Done;

struct Engine<E>(E);

impl<E: Endpoint<PathHandle = Tuple>> Machine for Engine<E> {
    fn receive(&mut self, inbox: &mut Inbox, clock: &StdClock) {
        self.0.receive(inbox, clock);
    }

    fn transmit(&mut self, outbox: &mut Outbox, clock: &StdClock) {
        self.0.transmit(outbox, clock);
    }

    fn poll_wakeups(
        &mut self,
        cx: &mut Context<'_>,
        clock: &StdClock,
    ) -> Poll<Result<usize, Done>> {
        self.0.poll_wakeups(cx, clock).map_err(|_| Done)
    }

    fn timeout(&self) -> Option<Timestamp> {
        self.0.timeout()
    }
}

/// Takes the endpoint that s2n-quic builds, for the event loop.
#[derive(Clone)]
pub(super) struct Capture {
    local: SocketAddr,
    mtu: mtu::Config,
    machine: Arc<Mutex<Option<Box<dyn Machine>>>>,
}

impl Capture {
    /// `mtu` bounds the datagrams of all paths.
    pub(super) fn new(local: SocketAddr, mtu: mtu::Config) -> Self {
        Capture {
            local,
            mtu,
            machine: Arc::default(),
        }
    }

    pub(super) fn take(&self) -> Option<Box<dyn Machine>> {
        self.machine
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl io::Provider for Capture {
    type PathHandle = Tuple;
    type Error = Infallible;

    fn start<E: Endpoint<PathHandle = Tuple>>(
        self,
        mut endpoint: E,
    ) -> Result<SocketAddress, Infallible> {
        endpoint.set_mtu_config(self.mtu);
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        *machine = Some(Box::new(Engine(endpoint)));
        Ok(self.local.into())
    }
}

/// The two endpoints of a transport.
pub(super) struct Machines {
    pub(super) prefixes: Prefixes,
    pub(super) server: Box<dyn Machine>,
    pub(super) server_links: Arc<Links>,
    pub(super) client: Box<dyn Machine>,
    pub(super) client_links: Arc<Links>,
}

/// One endpoint within the loop.
struct Side {
    machine: Option<Box<dyn Machine>>,
    target: Target,
    links: Arc<Links>,
}

impl Side {
    fn poll_wakeups(&mut self, cx: &mut Context<'_>, clock: &StdClock) -> bool {
        let Some(machine) = &mut self.machine else {
            return false;
        };
        match machine.poll_wakeups(cx, clock) {
            Poll::Ready(Ok(_)) => true,
            Poll::Ready(Err(Done)) => {
                self.machine = None;
                true
            }
            Poll::Pending => false,
        }
    }
}

/// The future that does all of an s2n-quic transport's work.
pub(super) struct EventLoop {
    sides: [Side; 2],
    socket: Arc<Socket>,
    inbox: Inbox,
    outbox: Outbox,
    clock: StdClock,
    timer: Timer,
    deadline: Option<Instant>,
    /// No connection is open or closing.
    idle: watch::Sender<bool>,
}

impl EventLoop {
    pub(super) fn new(
        machines: Machines,
        socket: Arc<Socket>,
        drivers: Arc<Drivers>,
        idle: watch::Sender<bool>,
    ) -> Self {
        let client = Side {
            machine: Some(machines.client),
            target: Target::Client,
            links: machines.client_links,
        };
        let server = Side {
            machine: Some(machines.server),
            target: Target::Server,
            links: machines.server_links,
        };
        EventLoop {
            // The client first: it takes the resets of its connections, the server answers the others.
            sides: [client, server],
            inbox: Inbox::new(socket.local_addr(), machines.prefixes),
            outbox: Outbox::new(socket.clone()),
            socket,
            clock: StdClock::default(),
            timer: Timer::new(drivers, Instant::now()),
            deadline: None,
            idle,
        }
    }

    /// Moves one batch in each direction; false if there was nothing to do.
    fn round(&mut self, cx: &mut Context<'_>) -> bool {
        let mut work = false;
        match self.inbox.poll_fill(&self.socket, cx) {
            Poll::Ready(Ok(())) => {
                work = true;
                for side in &mut self.sides {
                    if let (Some(machine), Some(inbox)) =
                        (&mut side.machine, self.inbox.of(side.target))
                    {
                        machine.receive(inbox, &self.clock);
                    }
                    side.links.salvage();
                }
            }
            // An unreachable peer, as ICMP reports it, concerns nobody else.
            Poll::Ready(Err(error)) => tracing::debug!(%error, "cannot receive"),
            Poll::Pending => {}
        }
        for side in &mut self.sides {
            work |= side.poll_wakeups(cx, &self.clock);
        }
        if self.outbox.poll_ready(cx).is_ready() {
            work |= self
                .deadline
                .is_some_and(|deadline| deadline <= Instant::now());
            for side in &mut self.sides {
                if let Some(machine) = &mut side.machine {
                    machine.transmit(&mut self.outbox, &self.clock);
                    s2n_quic_core::io::tx::Queue::flush(&mut self.outbox);
                }
            }
            self.deadline = self.next_deadline();
        } else {
            // Nothing can be sent before the socket has room, whatever is due.
            self.deadline = None;
        }
        work
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        let machines = self.sides.iter().filter_map(|side| side.machine.as_ref());
        let earliest = machines.filter_map(|machine| machine.timeout()).min();
        self.idle.send_if_modified(|idle| {
            std::mem::replace(idle, earliest.is_none()) != earliest.is_none()
        });
        let wait = earliest?.saturating_duration_since(self.clock.get_time());
        Some(Instant::now() + wait)
    }
}

impl Future for EventLoop {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..MAX_ROUNDS {
            if this.round(cx) {
                continue;
            }
            let Some(deadline) = this.deadline else {
                return Poll::Pending;
            };
            this.timer.reset(deadline);
            if this.timer.poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
