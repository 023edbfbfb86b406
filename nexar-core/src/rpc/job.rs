//! Running one handler.

use super::{
    context::{CallContext, Control, at_depth},
    error::Fault,
    items::Items,
    runtime::Runtime,
    state::Inner,
};
use crate::{transport::Transport, wire::rpc::FailureCode};
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
};

/// What a handler is started with.
pub(super) struct Job<T: Transport> {
    pub(super) context: CallContext<T>,
    pub(super) body: Bytes,
    pub(super) items: Option<Arc<Items>>,
    pub(super) answer: Pledge<T>,
}

/// The promise that a call is answered, kept even if the handler vanishes with its runtime.
pub(super) struct Pledge<T: Transport> {
    inner: Weak<Inner<T>>,
    member: usize,
    call: u64,
    kept: bool,
}

impl<T: Transport> Pledge<T> {
    pub(super) fn new(inner: Weak<Inner<T>>, member: usize, call: u64) -> Self {
        Pledge {
            inner,
            member,
            call,
            kept: false,
        }
    }

    fn keep(&mut self, outcome: Result<Bytes, Fault>) {
        self.kept = true;
        if let Some(inner) = self.inner.upgrade() {
            inner.with(|core| core.handled(self.member, self.call, outcome));
        }
    }
}

impl<T: Transport> Drop for Pledge<T> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let Some(inner) = self.inner.upgrade() else {
            return;
        };
        // Elsewhere: this may be inside of what starts handlers, and the next one may vanish as well.
        let (member, call) = (self.member, self.call);
        let background = inner.hub.background().clone();
        background.spawn(async move {
            let reason = "the runtime of its handler has ended";
            let fault = Fault::new(FailureCode::NotServed, reason);
            inner.with(|core| core.handled(member, call, Err(fault)));
        });
    }
}

impl<T: Transport> Job<T> {
    /// Runs the handler of a method on a runtime.
    pub(super) fn spawn<Fut>(
        self,
        runtime: &Runtime,
        handler: impl FnOnce(CallContext<T>, Bytes, Option<Arc<Items>>) -> Fut + Send + 'static,
    ) where
        Fut: Future<Output = Result<Bytes, Fault>> + Send,
    {
        let Job {
            context,
            body,
            items,
            mut answer,
        } = self;
        runtime.spawn(async move {
            let (control, depth) = (Arc::clone(&context.control), context.depth);
            let work = async { handler(context, body, items).await };
            answer.keep(supervise(&control, depth, work).await);
        });
    }
}

/// Runs a handler until it is done, panics or is not wanted any more.
async fn supervise(
    control: &Control,
    depth: u8,
    work: impl Future<Output = Result<Bytes, Fault>>,
) -> Result<Bytes, Fault> {
    let mut work = pin!(Some(work));
    let within = depth.saturating_add(1);
    let outcome = poll_fn(|cx| {
        if let Some(why) = control.over() {
            return Poll::Ready(Err(Fault::bare(why)));
        }
        let Some(future) = work.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(Fault::bare(FailureCode::Cancelled)));
        };
        let polled = catch_unwind(AssertUnwindSafe(|| at_depth(within, || future.poll(cx))));
        match polled {
            Ok(Poll::Ready(outcome)) => Poll::Ready(outcome),
            Ok(Poll::Pending) => control.poll_over(cx).map(|why| Err(Fault::bare(why))),
            Err(panic) => Poll::Ready(Err(Fault::panicked(&*panic))),
        }
    })
    .await;
    // What the handler held is gone before its caller hears of the end.
    let dropped = catch_unwind(AssertUnwindSafe(|| at_depth(within, || work.set(None))));
    match dropped {
        Ok(()) => outcome,
        Err(panic) => outcome.and(Err(Fault::panicked(&*panic))),
    }
}
