//! The background's part: it drives whenever nobody else does.

use super::{
    Drivers,
    state::{Duty, Quiet, TICK},
};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::time::{Sleep, sleep_until};

/// Rounds in one poll, before other tasks of the background's thread may run.
const MAX_ROUNDS: usize = 32;

/// A task on the background's thread, for as long as the thread lives.
pub(super) struct BackgroundDriver {
    drivers: Arc<Drivers>,
    alarm: Alarm,
    quiet: Quiet,
}

impl BackgroundDriver {
    pub(super) fn new(drivers: Arc<Drivers>) -> Self {
        BackgroundDriver {
            drivers,
            alarm: Alarm::default(),
            quiet: Quiet::default(),
        }
    }

    /// Polls the set until nothing is left to do.
    fn drive(&mut self, cx: &mut Context<'_>) -> Outcome {
        self.drivers.socket.retry();
        for _ in 0..MAX_ROUNDS {
            if !self.drivers.state().background_owns() {
                return Outcome::Done;
            }
            let Some(mut core) = self.drivers.try_core() else {
                // A former owner is in its round, and takes the set back after it unless it is done.
                return self.alarm.wait_for_tick(cx);
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
                    return self.alarm.wait_for_tick(cx);
                }
                Poll::Pending => {}
            }
            drop(core);
            match self.drivers.timers.earliest() {
                Some(deadline) if self.alarm.set(deadline, cx) => continue,
                Some(_) => {}
                None => self.alarm.clear(),
            }
            return Outcome::Done;
        }
        Outcome::Unfinished
    }
}

/// How a turn of the background has ended.
enum Outcome {
    /// Nothing was left to do.
    Done,
    /// Others should run first.
    Unfinished,
    /// Nothing can be done before the alarm, whatever is ready.
    Blocked,
}

impl Future for BackgroundDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let expired = this.alarm.expired(cx);
        let duty = this
            .drivers
            .state()
            .background_polled(cx.waker(), &mut this.quiet, expired);
        match duty {
            Duty::End => return Poll::Ready(()),
            Duty::Rest => return Poll::Pending,
            Duty::Watch => {
                let tick = this.quiet.interval();
                if (expired || !this.alarm.is_within(tick))
                    && this.alarm.set(Instant::now() + tick, cx)
                {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            Duty::Drive => {}
        }
        let outcome = this.drive(cx);
        let may_sleep = this.drivers.state().background_sleeps();
        match outcome {
            Outcome::Blocked => {}
            Outcome::Done if may_sleep => {}
            Outcome::Done | Outcome::Unfinished => cx.waker().wake_by_ref(),
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

    fn wait_for_tick(&mut self, cx: &mut Context<'_>) -> Outcome {
        match self.set(Instant::now() + TICK, cx) {
            true => Outcome::Unfinished,
            false => Outcome::Blocked,
        }
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
