//! Whoever waits drives the connections.
//!
//! A QUIC implementation moves its datagrams in futures (quinn has one for the endpoint and one for each
//! connection, s2n-quic one event loop) and expects that something polls them. Here they lie in one shared
//! set, [`Drivers`], and exactly one party polls the set at any time:
//!
//! - **A waiter**: a task of the application inside [`Drivers::drive`]. It reads the socket directly and,
//!   while there is nothing to read, yields the core and looks again, for a bounded time since the last
//!   datagram. A message then costs no wake-up of another thread, which is what most of a small message's
//!   time would be. For a while it then sleeps on the socket itself ([`Nap`]), at most a quarter of a millisecond in
//!   a row; when nothing comes for longer, it hands the set over.
//! - **The background**: a task on the transport's own thread. It polls the set whenever nobody else does,
//!   and sleeps on the readiness of the socket and on the earliest timer.
//!
//! # Rules
//!
//! 1. The futures are polled only under the lock of [`Core`], and only by the current
//!    [`Owner`](state::Owner). A party that lost the ownership notices at its next round.
//! 2. Wakers of the set do nothing but note what is ready under the lock of [`State`], which
//!    is a leaf: nothing is called, dropped or locked under it: the backends wake and spawn under their own locks.
//! 3. The socket never registers for readiness by itself. When it has nothing, it notes who asked; the
//!    owner has them ask again ([`Socket::retry`]). Only the background arms the readiness of the file
//!    descriptor, as the last step before it sleeps.
//! 4. A waiter that is done leaves the set to nobody: mostly the same task comes back within microseconds,
//!    and waking another thread would cost more than the message. The background takes over after one
//!    or two [`TICK`](state::TICK)s, which are longer where waiters come and go, and at once if a future of the
//!    set is woken. A waiter that lets other tasks of its runtime run stays the owner for as long, and one that is
//!    inside its poll for twenty, if the background looks at ticks at all: not while a waiter that has just
//!    taken over is in its first poll.

mod background;
mod executor;
mod nap;
mod readiness;
mod socket;
mod state;
mod timers;
mod waiter;

pub(crate) use socket::Socket;
pub(crate) use timers::Timer;

use background::BackgroundDriver;
use executor::{BoxFuture, Core};
use nap::Nap;
use readiness::Readiness;
use state::State;
use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    time::{Duration, Instant},
};
use timers::Timers;
use tokio::runtime::{Handle, Id as RuntimeId};

/// Rounds that a waiter makes for others once it is done.
const MAX_FLUSH_ROUNDS: usize = 4;

/// The shared set of driver futures of one endpoint.
pub(crate) struct Drivers {
    state: Mutex<State>,
    core: Mutex<Core>,
    timers: Timers,
    socket: Arc<Socket>,
    weak: Weak<Drivers>,
    nap: Nap,
    /// How long a waiter looks for datagrams before it sleeps.
    spin: Duration,
    /// The background's runtime, whose own tasks never drive: they would only be in its way.
    background: RuntimeId,
    /// A waiter that is not polled was woken: the owner lets other tasks run soon.
    give_way: AtomicBool,
}

impl Drivers {
    /// An empty set, whose background part is spawned on `handle`.
    pub(crate) fn start(
        socket: Arc<Socket>,
        spin: Duration,
        handle: &Handle,
    ) -> io::Result<Arc<Self>> {
        let readiness = {
            let _context = handle.enter();
            Readiness::new(&socket)?
        };
        let nap = Nap::new()?;
        let drivers = Arc::new_cyclic(|weak| Drivers {
            state: Mutex::default(),
            core: Mutex::new(Core::new(readiness)),
            timers: Timers::default(),
            socket,
            weak: weak.clone(),
            nap,
            spin,
            background: handle.id(),
            give_way: AtomicBool::new(false),
        });
        handle.spawn(BackgroundDriver::new(drivers.clone()));
        Ok(drivers)
    }

    /// Takes a future into the set. It is dropped if the set is closed.
    pub(crate) fn spawn(&self, future: BoxFuture) {
        let mut refused = None;
        self.update(|state| {
            let (waker, back) = state.spawn(future);
            refused = back;
            waker
        });
        drop(refused);
    }

    /// Whether the current task may drive.
    fn may_drive(&self) -> bool {
        !Handle::try_current().is_ok_and(|here| here.id() == self.background)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The futures, unless somebody polls them right now.
    fn try_core(&self) -> Option<MutexGuard<'_, Core>> {
        match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(core)) => Some(core.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Changes the state, then wakes whom the change says.
    fn update(&self, change: impl FnOnce(&mut State) -> Option<Waker>) {
        let waker = change(&mut self.state());
        if let Some(waker) = waker {
            waker.wake();
        }
        self.nap.interrupt();
    }

    /// One round of a waiter: due timers, the socket, then every future that is ready, once. Tells
    /// whether a datagram was moved. Does nothing while a former owner is still in its last round.
    fn round(&self, now: Instant) -> bool {
        let Some(mut core) = self.try_core() else {
            return false;
        };
        core.disarm();
        let before = self.socket.moved();
        self.timers.fire(now);
        self.socket.retry();
        self.poll_ready(&mut core);
        self.socket.moved() != before
    }

    /// Polls the futures that are ready, once each.
    fn poll_ready(&self, core: &mut Core) {
        let (spawned, ready) = self.state().take_ready();
        core.poll(spawned, ready, self);
    }

    /// Sends what a waiter that is done has written last. What is left after some rounds is the
    /// background's.
    fn flush(&self) {
        for _ in 0..MAX_FLUSH_ROUNDS {
            if !self.state().has_work() {
                return;
            }
            let Some(mut core) = self.try_core() else {
                return;
            };
            self.poll_ready(&mut core);
        }
    }

    /// `waiter` has become ready to run while it was not polled: a driving waiter lets it run soon.
    fn ask_to_give_way(&self, waiter: u64) {
        if self.state().is_driven_by_other(waiter) {
            self.give_way.store(true, Ordering::Relaxed);
            self.nap.interrupt();
        }
    }

    fn asked_to_give_way(&self) -> bool {
        self.give_way.load(Ordering::Relaxed) && self.give_way.swap(false, Ordering::Relaxed)
    }

    /// Drops all futures, now and in future, and closes the socket: the thread of the background ends.
    fn shut_down(&self) {
        let spawned = self.state().close();
        drop(spawned);
        let remains = self
            .core
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        drop(remains);
        self.socket.close();
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drivers")
            .field("spin", &self.spin)
            .finish_non_exhaustive()
    }
}
