//! Waiting for work that runs on another runtime, and for futures without one.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};
use tokio::{runtime::Handle, task::JoinHandle};

/// Polls a future on this thread, which sleeps in between, until it is done. For futures that need no particular
/// runtime, such as those of this project.
///
/// ```
/// assert_eq!(nexar_core::task::block_on(async { 3 }), 3);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // It also returns without reason, which costs one more poll.
            Poll::Pending => thread::park(),
        }
    }
}

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
