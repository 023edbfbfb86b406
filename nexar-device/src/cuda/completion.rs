//! Work that is under way, and the thread that wakes whoever waits for it.

use super::{
    chores::start_thread, device::Opened, error::CudaError, handles::Event, lock, slots::CudaSlot,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    task::{Context as TaskContext, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

/// How long the thread asks again and again after something has happened.
const SPIN: Duration = Duration::from_micros(50);

/// Then it sleeps an eighth of the time since, within these bounds.
const NAP_MIN: Duration = Duration::from_micros(10);
const NAP_MAX: Duration = Duration::from_millis(1);

/// So many errors in a row of asking for one event mean that the device is lost, and nothing is under way on it.
const LOST: u32 = 16;

/// A piece of work on a stream, which is done when its event is.
#[derive(Debug)]
pub(super) struct Flight {
    event: Event,
    state: Mutex<FlightState>,
}

#[derive(Debug, Default)]
struct FlightState {
    outcome: Option<Result<(), CudaError>>,
    waker: Option<Waker>,
    /// Whether the thread asks for the event.
    watched: bool,
}

impl Flight {
    /// The work before `event`, which has been recorded.
    pub(super) fn new(event: Event) -> Arc<Flight> {
        Arc::new(Flight {
            event,
            state: Mutex::default(),
        })
    }

    /// Whether the device is done with it. It may not be, even when the outcome is an error: the driver failed to
    /// tell.
    pub(super) fn is_over(&self) -> bool {
        matches!(lock(&self.state).outcome, Some(Ok(())))
            || self.event.is_complete().is_ok_and(|over| over)
    }

    pub(super) fn event(&self) -> &Event {
        &self.event
    }

    /// What became of it; none while it is under way.
    pub(super) fn outcome(&self) -> Option<Result<(), CudaError>> {
        if let Some(outcome) = &lock(&self.state).outcome {
            return Some(outcome.clone());
        }
        let outcome = match self.event.is_complete() {
            Ok(false) => return None,
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        Some(lock(&self.state).outcome.get_or_insert(outcome).clone())
    }

    /// As [`outcome`](Self::outcome); the task is woken when there is one.
    pub(super) fn poll(
        self: &Arc<Self>,
        cx: &mut TaskContext<'_>,
        completion: &Completion,
    ) -> Poll<Result<(), CudaError>> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        let mut state = lock(&self.state);
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let old = state.waker.replace(cx.waker().clone());
        if !state.watched {
            state.watched = true;
            completion.send(Entry::Watched(Arc::clone(self)));
        }
        // What a waker does when it is dropped is not ours.
        drop(state);
        drop(old);
        Poll::Pending
    }

    fn wake(&self) {
        let waker = lock(&self.state).waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// What the device may still read and write.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) slot: Option<CudaSlot>,
    pub(super) opened: Arc<Opened>,
}

impl Held {
    /// Gives the slot back. What belongs to the region is dropped where it may block.
    pub(super) fn release(self) {
        drop(self.slot);
        let Some(opened) = Arc::into_inner(self.opened) else {
            return;
        };
        let chores = opened.chores().clone();
        chores.give(move || drop(opened));
    }

    /// As [`release`](Self::release), where nobody knows whether the device is done with the slot.
    pub(super) fn release_lost(mut self) {
        if let Some(slot) = self.slot.take() {
            slot.retire();
        }
        self.release();
    }
}

#[derive(Debug)]
enum Entry {
    /// Somebody waits for it.
    Watched(Arc<Flight>),
    /// Nobody waits, but this is kept until it is done.
    Kept(Arc<Flight>, Held, u32),
}

impl Entry {
    /// Goes on with what is not done.
    fn settle(self) -> Option<Entry> {
        match self {
            Entry::Watched(flight) => match flight.outcome() {
                None => Some(Entry::Watched(flight)),
                Some(_) => {
                    flight.wake();
                    None
                }
            },
            Entry::Kept(flight, held, errors) => match flight.event.is_complete() {
                Ok(true) => {
                    held.release();
                    None
                }
                Ok(false) => Some(Entry::Kept(flight, held, 0)),
                Err(_) if errors < LOST => Some(Entry::Kept(flight, held, errors + 1)),
                Err(_) => {
                    held.release_lost();
                    None
                }
            },
        }
    }
}

/// The way to the thread, which ends when the last is dropped and nothing is under way.
#[derive(Debug, Clone)]
pub(super) struct Completion(mpsc::Sender<Entry>);

impl Completion {
    pub(super) fn start() -> Result<Completion, CudaError> {
        let (sender, entries) = mpsc::channel();
        start_thread("completed copies", "nexar-cuda-poll", move || run(&entries))?;
        Ok(Completion(sender))
    }

    /// Keeps what the device may still read and write until the work is done.
    pub(super) fn keep(&self, flight: Arc<Flight>, held: Held) {
        self.send(Entry::Kept(flight, held, 0));
    }

    fn send(&self, entry: Entry) {
        // The thread ends only after the last sender.
        let _ = self.0.send(entry);
    }
}

fn run(entries: &mpsc::Receiver<Entry>) {
    let mut under_way: Vec<Entry> = Vec::new();
    let mut since = Instant::now();
    loop {
        if under_way.is_empty() {
            let Ok(entry) = entries.recv() else {
                return;
            };
            under_way.push(entry);
            since = Instant::now();
        }
        under_way.extend(entries.try_iter());
        let before = under_way.len();
        let settle = |entry: Entry| {
            // Wakers are not ours; one that panics is to harm nobody else.
            catch_unwind(AssertUnwindSafe(|| entry.settle())).unwrap_or_default()
        };
        under_way = under_way.into_iter().filter_map(settle).collect();
        if under_way.len() < before {
            since = Instant::now();
        } else {
            under_way.extend(pause(entries, since.elapsed()));
        }
    }
}

/// Waits for a moment, or for more work.
fn pause(entries: &mpsc::Receiver<Entry>, idle: Duration) -> Option<Entry> {
    if idle < SPIN {
        thread::yield_now();
        return None;
    }
    let nap = (idle / 8).clamp(NAP_MIN, NAP_MAX);
    match entries.recv_timeout(nap) {
        Ok(entry) => Some(entry),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            thread::sleep(nap);
            None
        }
    }
}
