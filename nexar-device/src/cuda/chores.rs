//! A thread for what may block: freeing memory, and dropping what is not the adapter's.

use super::error::CudaError;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

type Chore = Box<dyn FnOnce() + Send>;

/// How long an allocation waits for memory that is being freed.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// The way to the thread, which ends when the last is dropped and all is done.
#[derive(Debug, Clone)]
pub(super) struct Chores(mpsc::Sender<Chore>);

impl Chores {
    pub(super) fn start() -> Result<Chores, CudaError> {
        let (sender, chores) = mpsc::channel::<Chore>();
        start_thread("freeing memory", "nexar-cuda-free", move || {
            for chore in chores {
                // A destructor that is not ours may panic; the other chores are still to be done.
                let _ = catch_unwind(AssertUnwindSafe(chore));
            }
        })?;
        Ok(Chores(sender))
    }

    /// Does it on the thread, after all that was given to it before.
    pub(super) fn give(&self, chore: impl FnOnce() + Send + 'static) {
        if let Err(mpsc::SendError(chore)) = self.0.send(Box::new(chore)) {
            chore();
        }
    }

    /// Waits until all that was given before is done.
    pub(super) fn flush(&self) {
        let (done, waiting) = mpsc::channel();
        self.give(move || {
            let _ = done.send(());
        });
        let _ = waiting.recv_timeout(FLUSH_LIMIT);
    }
}

pub(super) fn start_thread(
    purpose: &'static str,
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), CudaError> {
    let started = thread::Builder::new().name(name.into()).spawn(run);
    started.map(drop).map_err(|error| CudaError::Thread {
        purpose,
        source: Arc::new(error),
    })
}
