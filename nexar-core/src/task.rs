//! Waiting for work that runs on another runtime.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{runtime::Handle, task::JoinHandle};

/// Runs a future on `runtime`, which has timers and I/O whatever the caller runs on. Dropping the result
/// aborts it. The output is `None` where that runtime has shut down, or the future panicked.
pub fn run_on<F>(runtime: &Handle, future: F) -> RunOn<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    RunOn(runtime.spawn(future))
}

/// See [`run_on`].
#[derive(Debug)]
pub struct RunOn<O>(JoinHandle<O>);

impl<O> Future for RunOn<O> {
    type Output = Option<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<O>> {
        Pin::new(&mut self.0).poll(cx).map(Result::ok)
    }
}

impl<O> Drop for RunOn<O> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
