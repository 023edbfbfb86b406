//! The state of the driver, and how calls and workers share it.

use crate::{
    codes::{self, Code},
    context::{self, Device},
    control::{Counters, Faults, Settings},
    memory::Memory,
    ops::{OpId, Ops},
    stream::{Event, Stream},
    worker,
};
use std::{
    collections::HashMap,
    process,
    sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError},
};

/// All that the driver knows.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) faults: Faults,
    /// Empty until `cuInit`. Each has one context, its primary one.
    pub(crate) devices: Vec<Device>,
    pub(crate) initialised: bool,
    pub(crate) memory: Memory,
    pub(crate) streams: HashMap<usize, Stream>,
    pub(crate) events: HashMap<usize, Event>,
    pub(crate) ops: Ops,
    /// Threads that carry work out, running ones and sleeping ones.
    pub(crate) workers: usize,
    handles: usize,
}

impl State {
    /// A number that was never a handle before. Nothing can be read there.
    pub(crate) fn new_handle(&mut self) -> usize {
        self.handles += 1;
        0x100 + self.handles * 8
    }
}

/// The state, locked.
pub(crate) type Guard = MutexGuard<'static, State>;

struct Driver {
    state: Mutex<State>,
    /// There is work for a worker.
    work: Condvar,
    /// Work is done.
    done: Condvar,
}

static DRIVER: LazyLock<Driver> = LazyLock::new(|| Driver {
    state: Mutex::default(),
    work: Condvar::new(),
    done: Condvar::new(),
});

pub(crate) fn lock() -> Guard {
    DRIVER.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beginning of each call: counts it, and fails it if that is wanted.
pub(crate) fn enter(call: &'static str) -> Result<Guard, Code> {
    /// They work without `cuInit`.
    const ALWAYS: [&str; 4] = [
        "cuInit",
        "cuDriverGetVersion",
        "cuGetErrorName",
        "cuGetErrorString",
    ];
    let mut state = lock();
    state.counters.count_call(call);
    if let Some(code) = state.faults.strike(call) {
        if codes::is_sticky(code) {
            context::break_current(&mut state, code);
        }
        return Err(code);
    }
    if !state.initialised && !ALWAYS.contains(&call) {
        return Err(codes::NOT_INITIALIZED);
    }
    Ok(state)
}

/// Blocks until the work is done.
pub(crate) fn wait_for(mut state: Guard, work: &[OpId]) -> Guard {
    while work.iter().any(|id| state.ops.is_pending(*id)) {
        state = DRIVER
            .done
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
    }
    state
}

/// Tells those who wait that work is done.
pub(crate) fn announce() {
    DRIVER.done.notify_all();
}

/// Wakes a worker, or starts one.
pub(crate) fn wake_worker(state: &mut State) {
    worker::start_missing(state);
    DRIVER.work.notify_one();
}

pub(crate) fn work_signal() -> &'static Condvar {
    &DRIVER.work
}

/// Ends the process: the stub itself is at fault.
pub(crate) fn abort(what: &str) -> ! {
    eprintln!("nexar-cuda-stub: internal error: {what}");
    process::abort()
}
