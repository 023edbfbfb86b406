//! The threads that carry work out.

use crate::driver::{State, abort, lock, work_signal};
use std::{
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

/// A copy to the device and one from it run at the same time.
const WORKERS: usize = 2;

/// A worker that had nothing to do for so long ends, so that stubs that are not used any more have no threads.
const IDLE: Duration = Duration::from_secs(1);

/// Starts the workers that are missing.
pub(crate) fn start_missing(state: &mut State) {
    while state.workers < WORKERS {
        let started = thread::Builder::new()
            .name("cuda-stub".into())
            .spawn(|| run());
        match started {
            Ok(_) => state.workers += 1,
            Err(_) if state.workers > 0 => return,
            Err(error) => abort(&format!("a thread does not start: {error}")),
        }
    }
}

/// A panic aborts, as everywhere in the library.
extern "C" fn run() {
    let mut state = lock();
    let mut idle_since = Instant::now();
    loop {
        let now = Instant::now();
        let held = state.settings.hold != 0;
        let wait = match state.ops.next_due().filter(|_| !held) {
            Some(due) if due <= now => {
                let step = state.next_step();
                if state.ops.next_due().is_some() {
                    work_signal().notify_one();
                }
                if let Some((id, job)) = step {
                    drop(state);
                    job.run();
                    state = lock();
                    state.moved(id);
                }
                idle_since = now;
                continue;
            }
            Some(due) => due - now,
            None => match IDLE.checked_sub(now - idle_since) {
                Some(rest) if !rest.is_zero() => rest,
                _ => break,
            },
        };
        state = work_signal()
            .wait_timeout(state, wait)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    state.workers -= 1;
}
