//! What a handler knows of the call that it handles.

use super::{Caller, state::Inner};
use crate::{mesh::lock, transport::Transport, wire::rpc::FailureCode};
use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

thread_local! {
    /// Depth of the calls that the code now running on this thread makes.
    static DEPTH: Cell<u8> = const { Cell::new(0) };
}

/// Runs a part of a handler, whose calls are of this depth.
pub(super) fn at_depth<O>(depth: u8, work: impl FnOnce() -> O) -> O {
    struct Restore(u8);
    impl Drop for Restore {
        fn drop(&mut self) {
            DEPTH.set(self.0);
        }
    }
    let _restore = Restore(DEPTH.replace(depth));
    work()
}

/// Depth of a call that is made now.
pub(super) fn current_depth() -> u8 {
    DEPTH.get()
}

/// Whether a call is still wanted.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// 0, or the [`FailureCode`] with which it ended.
    over: AtomicU8,
    /// The handler's task.
    task: Mutex<Option<Waker>>,
    others: Notify,
}

impl Control {
    /// The call is not wanted any more. Only the first reason counts.
    pub(super) fn cancel(&self, why: FailureCode) {
        let first = self
            .over
            .compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            if let Some(task) = lock(&self.task).take() {
                task.wake();
            }
            self.others.notify_waiters();
        }
    }

    pub(super) fn over(&self) -> Option<FailureCode> {
        let code = self.over.load(Ordering::Acquire);
        FailureCode::ALL.into_iter().find(|c| *c as u8 == code)
    }

    /// Ready once the call is not wanted any more. For the handler's task only.
    pub(super) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<FailureCode> {
        let mut task = lock(&self.task);
        if !task.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        drop(task);
        match self.over() {
            Some(why) => Poll::Ready(why),
            None => Poll::Pending,
        }
    }
}

/// Tells whether a call is still wanted, also where its handler has left work to others, such as
/// [`spawn_blocking`](tokio::task::spawn_blocking).
#[derive(Debug, Clone)]
pub struct Cancellation(pub(super) Arc<Control>);

impl Cancellation {
    /// Whether the caller has dropped the call, exited or left, the time limit has passed, or this rank
    /// shuts down.
    pub fn is_cancelled(&self) -> bool {
        self.0.over().is_some()
    }

    /// Waits for that.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn cancelled(&self) {
        loop {
            let notified = self.0.others.notified();
            if self.is_cancelled() {
                return;
            }
            notified.await;
        }
    }
}

/// The call that a handler handles.
pub struct CallContext<T: Transport> {
    pub(super) inner: Weak<Inner<T>>,
    pub(super) source: usize,
    pub(super) depth: u8,
    pub(super) deadline: Instant,
    pub(super) control: Arc<Control>,
}

impl<T: Transport> Clone for CallContext<T> {
    fn clone(&self) -> Self {
        CallContext {
            inner: self.inner.clone(),
            control: self.control.clone(),
            ..*self
        }
    }
}

impl<T: Transport> CallContext<T> {
    /// The rank that calls, which may be this one.
    pub fn source(&self) -> usize {
        self.source
    }

    /// How many handlers wait for this call: 0 for one that no handler made.
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// How much of the call's time is left.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Tells when the call is not wanted any more. The handler itself need not look: its future is dropped
    /// then, at its next await.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation(Arc::clone(&self.control))
    }

    /// For calls that this one needs, to whichever rank: within the time that is left, and counted as
    /// made by a handler on whichever task. None where this rank's calls have been shut down.
    ///
    /// Handlers that keep the communicator itself instead keep it alive, and are kept alive by it.
    pub fn caller(&self) -> Option<Caller<T>> {
        Some(Caller {
            inner: self.inner.upgrade()?,
            limit: self.remaining(),
            depth: Some(self.depth.saturating_add(1)),
        })
    }
}

impl<T: Transport> fmt::Debug for CallContext<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("source", &self.source)
            .field("depth", &self.depth)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
