//! The background's part: it drives whenever nobody else does.

use super::{Drivers, state::Duty};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::time::{Sleep, sleep_until};

/// How long the set may be without a visible owner before the background takes over.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Rounds in one poll, before other tasks of the background's thread may run.
const MAX_ROUNDS: usize = 32;

/// A task on the background's thread, for as long as the thread lives.
pub(super) struct BackgroundDriver {
    drivers: Arc<Drivers>,
    alarm: Alarm,
    seen: u64,
}

impl BackgroundDriver {
    pub(super) fn new(drivers: Arc<Drivers>) -> Self {
        BackgroundDriver {
            drivers,
            alarm: Alarm::default(),
            seen: 0,
        }
    }

    /// Polls the set until nothing is left to do; false if others should run first.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        self.drivers.socket.retry();
        for _ in 0..MAX_ROUNDS {
            if !self.drivers.state().background_owns() {
                return true;
            }
            let Some(mut core) = self.drivers.try_core() else {
                // A former owner is in its last round.
                return !self.alarm.set(Instant::now() + TICK, cx);
            };
            self.drivers.timers.fire(Instant::now());
            self.drivers.poll_ready(&mut core);
            if self.drivers.state().has_work() {
                continue;
            }
            match core.poll_readiness(cx, self.drivers.socket.has_blocked_senders()) {
                Poll::Ready(Ok(())) => {
                    self.drivers.socket.retry();
                    continue;
                }
                Poll::Ready(Err(error)) => {
                    tracing::warn!(%error, "the socket's readiness fails; it is polled instead");
                    return !self.alarm.set(Instant::now() + TICK, cx);
                }
                Poll::Pending => {}
            }
            drop(core);
            match self.drivers.timers.earliest() {
                Some(deadline) if self.alarm.set(deadline, cx) => continue,
                Some(_) => {}
                None => self.alarm.clear(),
            }
            return true;
        }
        false
    }
}

impl Future for BackgroundDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let expired = this.alarm.expired(cx);
        let duty = this
            .drivers
            .state()
            .background_polled(cx.waker(), &mut this.seen, expired);
        match duty {
            Duty::End => return Poll::Ready(()),
            Duty::Rest => return Poll::Pending,
            Duty::Watch => {
                if (expired || !this.alarm.is_within(TICK))
                    && this.alarm.set(Instant::now() + TICK, cx)
                {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            Duty::Drive => {}
        }
        let idle = this.drive(cx);
        if !this.drivers.state().background_sleeps() || !idle {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for BackgroundDriver {
    fn drop(&mut self) {
        self.drivers.shut_down();
    }
}

/// One timer of the background's runtime.
#[derive(Default)]
struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    set: bool,
}

impl Alarm {
    /// Sets the alarm. True if it has expired already; otherwise the task is woken when it does.
    fn set(&mut self, deadline: Instant, cx: &mut Context<'_>) -> bool {
        let deadline = deadline.into();
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        self.set = sleep.as_mut().poll(cx).is_pending();
        !self.set
    }

    fn clear(&mut self) {
        self.set = false;
    }

    fn is_within(&self, time: Duration) -> bool {
        let limit = tokio::time::Instant::now() + time;
        self.set
            && self
                .sleep
                .as_ref()
                .is_some_and(|sleep| sleep.deadline() <= limit)
    }

    /// Whether the alarm has gone off since it was set.
    fn expired(&mut self, cx: &mut Context<'_>) -> bool {
        let expired = self.set
            && self
                .sleep
                .as_mut()
                .is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        self.set &= !expired;
        expired
    }
}
