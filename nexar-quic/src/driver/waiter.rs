//! The part of a task that waits.

use super::Drivers;
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};
use tokio::task::unconstrained;

thread_local! {
    /// How many waiters were last polled by this thread.
    static WAITERS_HERE: Arc<AtomicUsize> = Arc::default();
}

/// Longest time that one poll of a waiter takes before other tasks of its runtime may run.
const MAX_POLL: Duration = Duration::from_micros(500);

/// Longest time that a waiter sleeps on the socket in a row.
const NAP: Duration = Duration::from_micros(250);

/// How long after its future was last woken a waiter that no longer looks stays on the socket before it hands over.
/// One whose future is not woken drives for others, most of them on the background's thread.
const LINGER: Duration = Duration::from_millis(2);

impl Drivers {
    /// Runs `future`, and drives the connections while it is pending. On the background's own runtime it only
    /// runs `future`.
    ///
    /// # Cancel safety
    ///
    /// As `future`: dropping it at any point hands the connections over.
    pub(crate) async fn drive<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        if !self.may_drive() {
            return future.await;
        }
        let mut future = pin!(unconstrained(future));
        let mut waiter = Waiter::new(self);
        poll_fn(|cx| waiter.poll(future.as_mut(), cx)).await
    }
}

/// Wakes a waiter.
pub(super) struct Signal {
    pub(super) id: u64,
    drivers: Arc<Drivers>,
    /// The future wants to be polled.
    woken: AtomicBool,
    /// The waiter is inside its poll and looks at `woken` before it leaves.
    polling: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Signal {
    fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }

    /// Sleeps until a datagram comes, a timer is due or somebody has something for this waiter. False if that
    /// cannot be done.
    fn nap(&self) -> bool {
        let drivers = &*self.drivers;
        let mut longest = NAP;
        if let Some(deadline) = drivers.timers.earliest() {
            longest = longest.min(deadline.saturating_duration_since(Instant::now()));
        }
        let is_needed = || self.woken.load(Ordering::SeqCst) || drivers.state().has_work();
        let want_write = drivers.socket.has_blocked_senders();
        drivers
            .nap
            .sleep(&drivers.socket, want_write, longest, is_needed)
    }

    /// Has the waiter's task polled.
    pub(super) fn wake_task(&self) {
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// `woken` is set before `polling` is read, and [`Waiter::leave_poll`] does it the other way round:
    /// at least one of both sides sees the other.
    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.polling.load(Ordering::SeqCst) {
            self.drivers.nap.interrupt();
        } else {
            self.drivers.ask_to_give_way(self.id);
            self.wake_task();
        }
    }
}

/// What a waiter does after a rest.
enum Rest {
    /// It looks for datagrams again.
    Look,
    /// It lets the other tasks of its runtime run.
    GiveWay,
    /// It leaves the set to the background.
    HandOver,
}

/// A task inside [`Drivers::drive`].
struct Waiter {
    signal: Arc<Signal>,
    waker: Waker,
    /// When a datagram was last moved, or the future last woken, under this waiter.
    last_progress: Option<Instant>,
    /// When the future was last polled.
    last_polled: Instant,
    home: Home,
}

impl Waiter {
    fn new(drivers: &Arc<Drivers>) -> Self {
        let signal = Arc::new(Signal {
            id: drivers.state().new_waiter(),
            drivers: drivers.clone(),
            woken: AtomicBool::new(true),
            polling: AtomicBool::new(false),
            task: Mutex::new(None),
        });
        let waker = signal.clone().into();
        Waiter {
            signal,
            waker,
            last_progress: None,
            last_polled: Instant::now(),
            home: Home::default(),
        }
    }

    fn poll<F: Future>(
        &mut self,
        mut future: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let signal = self.signal.clone();
        let drivers = &*signal.drivers;
        signal.set_task(cx.waker());
        signal.polling.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        loop {
            let driving = drivers.state().claim(&signal);
            if signal.woken.swap(false, Ordering::SeqCst) {
                let mut cx = Context::from_waker(&self.waker);
                if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                    if driving {
                        drivers.flush();
                    }
                    return Poll::Ready(output);
                }
                self.last_polled = Instant::now();
            }
            if !driving {
                if self.leave_poll() {
                    return Poll::Pending;
                }
                continue;
            }
            let progress = drivers.round(Instant::now());
            let now = Instant::now();
            let mut give_way = now - begun >= MAX_POLL || drivers.asked_to_give_way();
            if progress || signal.woken.load(Ordering::SeqCst) {
                self.last_progress = Some(now);
            } else {
                match self.rest(now, give_way) {
                    Rest::Look => {}
                    Rest::GiveWay => give_way = true,
                    Rest::HandOver => {
                        self.last_progress = None;
                        self.home.leave();
                        drivers.update(|state| state.sleep(signal.id));
                        if self.leave_poll() {
                            return Poll::Pending;
                        }
                        continue;
                    }
                }
            }
            if give_way {
                drivers.update(|state| state.pause());
                signal.polling.store(false, Ordering::SeqCst);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Passes the time where there was nothing to do, briefly.
    fn rest(&mut self, now: Instant, give_way: bool) -> Rest {
        let quiet = now - *self.last_progress.get_or_insert(now);
        let is_shared = self.home.is_shared();
        if quiet < self.signal.drivers.spin {
            if is_shared {
                return Rest::GiveWay;
            }
            thread::yield_now();
            return Rest::Look;
        }
        let lingers = !is_shared && now - self.last_polled < LINGER;
        match lingers && (give_way || self.signal.nap()) {
            true => Rest::Look,
            false => Rest::HandOver,
        }
    }

    /// Ends the poll; false if the future was woken meanwhile and must be polled first.
    fn leave_poll(&self) -> bool {
        self.signal.polling.store(false, Ordering::SeqCst);
        if self.signal.woken.load(Ordering::SeqCst) {
            self.signal.polling.store(true, Ordering::SeqCst);
            return false;
        }
        true
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let (next, background) = self.signal.drivers.state().leave(self.signal.id);
        if let Some(next) = next {
            next.wake_task();
        }
        if let Some(background) = background {
            background.wake();
        }
    }
}

/// The thread that polls a waiter. Spinning in one poll would keep the other waiters of the same thread
/// from running, perhaps the very peer that is waited for; they take turns instead.
#[derive(Default)]
struct Home(Option<Arc<AtomicUsize>>);

impl Home {
    /// Moves to the current thread, and tells whether other waiters live there.
    fn is_shared(&mut self) -> bool {
        WAITERS_HERE.with(|here| {
            if !self.0.as_ref().is_some_and(|home| Arc::ptr_eq(home, here)) {
                self.leave();
                here.fetch_add(1, Ordering::Relaxed);
                self.0 = Some(here.clone());
            }
            here.load(Ordering::Relaxed) > 1
        })
    }

    fn leave(&mut self) {
        if let Some(home) = self.0.take() {
            home.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.leave();
    }
}
