//! The threads of a simulated device: one for the copies in each direction, and one for its streams.

use super::{
    Options, Shared, Slot,
    allocation::Allocation,
    lock,
    queue::{Completion, Target},
};
use crate::{adapter::DeviceError, reduce};
use nexar_core::{DataType, ReduceOp};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the device.
    Out,
    /// To the device.
    In,
}

/// What the thread of a direction does with the bytes of a region.
pub(super) enum Work {
    Slot(SlotWork),
    Fill(Range<usize>, u8),
}

/// What it does with those of a slot, too, from `at` on.
pub(super) struct SlotWork {
    pub(super) range: Range<usize>,
    pub(super) slot: Slot,
    pub(super) at: usize,
    pub(super) operation: Operation,
    pub(super) completion: Completion,
}

#[derive(Clone, Copy)]
pub(super) enum Operation {
    Out,
    In,
    Reduce(DataType, ReduceOp),
}

impl Operation {
    pub(super) fn direction(self) -> Direction {
        match self {
            Operation::Out => Direction::Out,
            Operation::In | Operation::Reduce(..) => Direction::In,
        }
    }
}

pub(super) struct Job {
    target: Arc<Target>,
    /// Bytes that cross between the host and the device.
    bytes: usize,
    work: Work,
    enqueued: Instant,
    number: u64,
}

/// What comes before the copies of a queue.
#[derive(Debug)]
pub(super) enum After {
    /// The copy with this number.
    Copy(u64),
    /// So many pieces of work of this stream.
    Stream(u64, u64),
}

/// A piece of work of a stream.
pub(super) enum StreamWork {
    /// Writes the bytes at this offset, so long after what comes before it.
    Write(Arc<Allocation>, usize, Vec<u8>, Duration),
    /// Waits until this is true.
    Hold(Arc<AtomicBool>),
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<StreamWork>,
    done: u64,
    /// When the first piece of work of the queue came to be the first.
    since: Option<Instant>,
}

/// A copy that is not complete.
struct Pending {
    span: Range<u64>,
    /// Whether its queue is dropped.
    dropped: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    lanes: [VecDeque<Job>; 2],
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
    streams: BTreeMap<u64, Stream>,
    /// Who keeps copies from beginning.
    pauses: usize,
    /// Nothing comes any more.
    closed: bool,
}

impl State {
    fn is_ready(&self, job: &Job) -> bool {
        job.target.after.iter().all(|after| match after {
            After::Copy(number) => !self.pending.contains_key(number),
            After::Stream(stream, count) => {
                let done = self.streams.get(stream).map(|stream| stream.done);
                done.is_none_or(|done| done >= *count)
            }
        })
    }
}

/// What is to be done, and who does it.
#[derive(Default)]
pub(super) struct Engine {
    state: Mutex<State>,
    changed: Condvar,
    /// Copies that have begun.
    begun: AtomicU64,
    pub(super) copies: [AtomicU64; 2],
    pub(super) bytes: [AtomicU64; 2],
}

impl Engine {
    /// Starts the threads. They end when the engine is closed and has nothing left to do.
    pub(super) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
        let start = |name: &str, run: fn(&Shared)| {
            let shared = Arc::clone(shared);
            let thread = thread::Builder::new().name(format!("device {name}"));
            thread.spawn(move || run(&shared)).map(drop)
        };
        start("out", |shared| shared.engine.copy(shared, Direction::Out))?;
        start("in", |shared| shared.engine.copy(shared, Direction::In))?;
        start("streams", |shared| shared.engine.run_streams())
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.changed.notify_all();
        result
    }

    pub(super) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    pub(super) fn pause(&self) {
        self.change(|state| state.pauses += 1);
    }

    pub(super) fn resume(&self) {
        self.change(|state| state.pauses -= 1);
    }

    /// Lets the stream threads look again.
    pub(super) fn look(&self) {
        self.change(|_| ());
    }

    /// What is enqueued now and has to be done before the copies of a new queue: all of the stream, and copies of
    /// dropped queues on the same memory.
    pub(super) fn before(&self, stream: u64, span: &Range<u64>) -> Vec<After> {
        let state = lock(&self.state);
        let mut after: Vec<After> = state
            .pending
            .iter()
            .filter(|(_, copy)| copy.span.start < span.end && span.start < copy.span.end)
            .filter(|(_, copy)| copy.dropped.load(Ordering::Acquire))
            .map(|(number, _)| After::Copy(*number))
            .collect();
        if let Some(queue) = state.streams.get(&stream) {
            let count = queue.done + queue.queue.len() as u64;
            after.push(After::Stream(stream, count));
        }
        after
    }

    pub(super) fn enqueue(&self, direction: Direction, mut job: Job) {
        self.change(|state| {
            state.next_number += 1;
            job.number = state.next_number;
            let pending = Pending {
                span: job.target.span(),
                dropped: Arc::clone(&job.target.dropped),
            };
            state.pending.insert(job.number, pending);
            state.lanes[direction as usize].push_back(job);
        });
    }

    pub(super) fn enqueue_stream(&self, stream: u64, work: StreamWork) {
        self.change(|state| {
            let stream = state.streams.entry(stream).or_default();
            stream.queue.push_back(work);
            stream.since.get_or_insert_with(Instant::now);
        });
    }

    /// Carries out the copies of one direction, one after the other.
    fn copy(&self, shared: &Shared, direction: Direction) {
        let options = &shared.options;
        let mut random = options.seed ^ direction as u64;
        let mut busy_until = Instant::now();
        while let Some((job, earliest)) = self.next(direction) {
            // On a time line of its own, so that waking up late does not add up.
            busy_until = busy_until.max(earliest) + options.duration(direction, job.bytes);
            busy_until += options.max_delay.mul_f64(next_random(&mut random));
            thread::sleep(busy_until.saturating_duration_since(Instant::now()));
            self.carry_out(job, direction, options);
        }
    }

    /// The next job that nothing keeps from beginning, and since when that has been so. Those of one queue keep
    /// their order, because they all wait for the same.
    fn next(&self, direction: Direction) -> Option<(Job, Instant)> {
        let mut state = lock(&self.state);
        let mut woken = None;
        loop {
            let lane = &state.lanes[direction as usize];
            let ready = match state.pauses {
                0 => lane.iter().position(|job| state.is_ready(job)),
                _ => None,
            };
            let kept = !lane.is_empty();
            if let Some(job) = ready.and_then(|at| state.lanes[direction as usize].remove(at)) {
                let earliest = woken.map_or(job.enqueued, |woken| job.enqueued.max(woken));
                return Some((job, earliest));
            }
            if state.closed && !kept {
                return None;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            if kept {
                woken = Some(Instant::now());
            }
        }
    }

    fn carry_out(&self, job: Job, direction: Direction, options: &Options) {
        let Job {
            target,
            bytes,
            work,
            number,
            ..
        } = job;
        let landed = match work {
            Work::Fill(range, byte) => {
                target.with(range, |device| device.fill(byte));
                None
            }
            Work::Slot(work) => {
                let fault = options.fault(self.begun.fetch_add(1, Ordering::Relaxed));
                Some(work.perform(&target, fault))
            }
        };
        if let Some((_, Ok(_))) = &landed {
            self.copies[direction as usize].fetch_add(1, Ordering::Relaxed);
            self.bytes[direction as usize].fetch_add(bytes as u64, Ordering::Relaxed);
        }
        self.change(|state| state.pending.remove(&number));
        // Before anybody hears that the copy is complete: then the memory is free, too, if nobody else has it.
        drop(target);
        if let Some((completion, outcome)) = landed {
            completion.complete(outcome);
        }
    }

    fn run_streams(&self) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            let due = state.streams.values_mut().filter_map(|s| s.run(now)).min();
            self.changed.notify_all();
            if state.closed && state.streams.values().all(|s| s.queue.is_empty()) {
                return;
            }
            state = match due {
                None => self.changed.wait(state),
                Some(due) => {
                    let pause = due.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, pause);
                    waited
                        .map(|(state, _)| state)
                        .map_err(|poisoned| PoisonError::new(poisoned.into_inner().0))
                }
            }
            .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Stream {
    /// Does what is due; says when the next piece of work is.
    fn run(&mut self, now: Instant) -> Option<Instant> {
        while let Some(work) = self.queue.front() {
            let since = self.since.unwrap_or(now);
            match work {
                StreamWork::Hold(released) => {
                    if !released.load(Ordering::Acquire) {
                        return None;
                    }
                    self.since = Some(now);
                }
                StreamWork::Write(memory, offset, bytes, delay) => {
                    let due = since.checked_add(*delay)?;
                    if now < due {
                        return Some(due);
                    }
                    let range = *offset..*offset + bytes.len();
                    memory.with(range, |target| target.copy_from_slice(bytes));
                    self.since = Some(due);
                }
            }
            self.queue.pop_front();
            self.done += 1;
        }
        self.since = None;
        None
    }
}

impl Job {
    pub(super) fn new(target: Arc<Target>, bytes: usize, work: Work) -> Job {
        Job {
            target,
            bytes,
            work,
            enqueued: Instant::now(),
            number: 0,
        }
    }
}

impl SlotWork {
    /// Moves the data, or frees the slot with this error.
    fn perform(
        mut self,
        target: &Target,
        fault: Option<DeviceError>,
    ) -> (Completion, Result<Slot, DeviceError>) {
        if let Some(error) = fault {
            return (self.completion, Err(error));
        }
        let host = &mut self.slot.as_mut()[self.at..self.at + self.range.len()];
        let done = target.with(self.range, |device| {
            match self.operation {
                Operation::Out => host.copy_from_slice(device),
                Operation::In => device.copy_from_slice(host),
                Operation::Reduce(dtype, op) => return reduce::reduce(dtype, op, device, host),
            }
            Ok(())
        });
        let outcome = match done {
            Some(Err(error)) => Err(super::backend("a reduction", error)),
            _ => Ok(self.slot),
        };
        (self.completion, outcome)
    }
}

/// The next random number from 0 to 1 (SplitMix64).
fn next_random(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}
