//! The two threads that copy: one from the files, one to them.
//!
//! A page that is not in memory makes whoever touches it wait for the disk. Only these threads touch the mappings, so
//! no asynchronous task ever does.

use crate::{file::MappedFile, slots::Slot};
use nexar_device::{DeviceError, Region};
use std::{
    collections::VecDeque,
    io,
    ops::Range,
    ptr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};
use tokio::sync::oneshot;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the file.
    Out,
    /// To the file.
    In,
}

#[derive(Debug)]
pub(crate) enum Job {
    Copy(Copy),
    /// A part of a file is free, and what it holds is to reach the disk.
    Flush(Arc<MappedFile>, Range<usize>),
}

/// A copy owns all that it touches: whoever has enqueued it may drop everything.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) region: Arc<Region>,
    /// Lies in the region, and is as long as the part of the slot from `at` on, or shorter.
    pub(crate) range: Range<usize>,
    pub(crate) slot: Slot,
    pub(crate) at: usize,
    /// Jobs of the other direction that come first, by their number.
    pub(crate) after: u64,
    pub(crate) done: oneshot::Sender<Result<Slot, DeviceError>>,
}

/// What the threads have to do.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: [VecDeque<Job>; 2],
    /// How many there have been, and how many are done, by direction.
    enqueued: [u64; 2],
    done: [u64; 2],
    closed: bool,
}

impl Workers {
    /// Starts the threads. They end when they are closed and have done what there is to do.
    pub(crate) fn start() -> io::Result<Arc<Workers>> {
        let workers = Arc::<Workers>::default();
        for direction in [Direction::Out, Direction::In] {
            let own = Arc::clone(&workers);
            let thread = thread::Builder::new().name(format!("files {direction:?}"));
            if let Err(error) = thread.spawn(move || own.run(direction)) {
                workers.close();
                return Err(error);
            }
        }
        Ok(workers)
    }

    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// What was enqueued until now in the two directions.
    ///
    /// `DeviceAdapter::open` promises that a queue comes after the copies of queues of the same memory that were
    /// dropped. It is more than enough that a copy comes after all that was enqueued before its queue was opened. In
    /// its own direction that is so anyway, and in the other one by this number. Nothing waits for ever: the oldest job of
    /// all has nothing to wait for.
    pub(crate) fn enqueued(&self) -> [u64; 2] {
        self.state().enqueued
    }

    pub(crate) fn enqueue(&self, direction: Direction, job: Job) {
        let mut state = self.state();
        state.enqueued[direction as usize] += 1;
        state.jobs[direction as usize].push_back(job);
        drop(state);
        self.changed.notify_all();
    }

    fn run(&self, direction: Direction) {
        while let Some(job) = self.next(direction) {
            let finished = match job {
                Job::Copy(copy) => Some(copy.carry_out(direction)),
                Job::Flush(file, part) => {
                    if let Err(error) = file.flush(part) {
                        // Nobody is left to return it to.
                        eprintln!("mapped file: {error}");
                    }
                    None
                }
            };
            self.state().done[direction as usize] += 1;
            self.changed.notify_all();
            if let Some((region, slot, done)) = finished {
                // In this order, so that the region is free when the copy is known to be over. If nobody waits for the
                // slot, it comes back here, and is free, too.
                drop(region);
                let _ = done.send(Ok(slot));
            }
        }
    }

    fn next(&self, direction: Direction) -> Option<Job> {
        let mut state = self.state();
        loop {
            let (own, other) = (direction as usize, 1 - direction as usize);
            let after = match state.jobs[own].front() {
                Some(Job::Copy(copy)) => copy.after,
                _ => 0,
            };
            if state.done[other] >= after
                && let Some(job) = state.jobs[own].pop_front()
            {
                return Some(job);
            }
            if state.closed && state.jobs[own].is_empty() {
                return None;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Finished = (
    Arc<Region>,
    Slot,
    oneshot::Sender<Result<Slot, DeviceError>>,
);

impl Copy {
    fn carry_out(mut self, direction: Direction) -> Finished {
        let mapped = self.region.address().wrapping_add(self.range.start);
        let host = &mut self.slot.as_mut()[self.at..self.at + self.range.len()];
        // SAFETY: the range lies in a region of the mapping, which the copy keeps alive, and that nobody but the
        // queue's copies uses; the slot belongs to the copy.
        unsafe {
            match direction {
                Direction::Out => ptr::copy_nonoverlapping(mapped, host.as_mut_ptr(), host.len()),
                Direction::In => ptr::copy_nonoverlapping(host.as_ptr(), mapped, host.len()),
            }
        }
        (self.region, self.slot, self.done)
    }
}
