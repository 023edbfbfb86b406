//! Who takes in calls while many come.
//!
//! The background runtime takes in the first call after a pause. From then on a task beside the handlers
//! does, for as long as calls keep coming: it waits for them as operations wait, so that it drives the
//! transport, starts the handlers on its own runtime, lets them run, and writes what they have answered
//! together. So neither a call nor its answer has to wake another thread.

use super::state::{Core, Inner};
use crate::transport::Transport;
use std::{
    future::poll_fn,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};
use tokio::task::yield_now;

/// Its number among the operations that read the lanes: higher than that of any call.
const ATTENDANT: u64 = u64::MAX;

/// The state of the task.
#[derive(Default)]
pub(super) struct Attendance {
    /// There is one.
    pub(super) active: bool,
    waker: Option<Waker>,
    /// Handlers have been started that it has not let run.
    fresh: bool,
    /// A call has come since the clock ticked last.
    busy: bool,
    /// It is to end.
    over: bool,
}

/// Ends the attendance with its task.
struct Attendant<T: Transport>(Weak<Inner<T>>);

impl<T: Transport> Drop for Attendant<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.with(|core| {
                core.resign(ATTENDANT);
                let attendance = std::mem::take(&mut core.state.attendance);
                core.after.stale.extend(attendance.waker);
            });
        }
    }
}

impl<T: Transport> Inner<T> {
    /// Starts the task.
    pub(super) fn attend(&self) {
        let attendant = Attendant(self.hub.inner());
        let transport = Arc::clone(self.group.transport());
        self.runtime.spawn(async move {
            // They have just been started.
            yield_now().await;
            let come = || {
                poll_fn(|cx| match attendant.0.upgrade() {
                    Some(inner) => inner.with(|core| core.poll_attend(cx)),
                    None => Poll::Ready(false),
                })
            };
            while transport.drive(come()).await {
                yield_now().await;
            }
        });
    }
}

impl<T: Transport> Core<'_, T> {
    /// Ready with whether to go on, once handlers have been started or nothing is left to do.
    fn poll_attend(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let waker = self.state.attendance.waker.take();
        self.after.stale.extend(waker);
        self.pump();
        let attendance = &mut self.state.attendance;
        if attendance.over || self.state.failure.is_some() {
            return Poll::Ready(false);
        }
        if std::mem::take(&mut attendance.fresh) {
            return Poll::Ready(true);
        }
        attendance.waker = Some(cx.waker().clone());
        let (former, woken) = self.inner.hub.lead(ATTENDANT, cx.waker());
        self.after.stale.extend(former);
        if woken {
            self.after.wake.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// A handler is being started for another rank.
    pub(super) fn handler_starts(&mut self) {
        let attendance = &mut self.state.attendance;
        (attendance.fresh, attendance.busy) = (true, true);
        if std::mem::replace(&mut attendance.active, true) {
            self.after.wake.extend(attendance.waker.take());
        } else {
            self.after.attend = true;
        }
    }

    /// Looks, with the clock, whether calls still come.
    pub(super) fn check_attendance(&mut self) {
        if self.state.attendance.active && !std::mem::take(&mut self.state.attendance.busy) {
            self.end_attendance();
        }
    }

    pub(super) fn end_attendance(&mut self) {
        let attendance = &mut self.state.attendance;
        attendance.over = attendance.active;
        self.after.wake.extend(attendance.waker.take());
    }

    /// The task, if it waits, as one who may read the lanes.
    pub(super) fn attendant(&self) -> Option<(u64, Waker)> {
        let waker = self.state.attendance.waker.clone()?;
        Some((ATTENDANT, waker))
    }
}
