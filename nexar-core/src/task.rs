//! Waiting for work that runs on another runtime, and for futures without one.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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
    /// The flag keeps a wake-up that comes while the future itself parks this thread.
    struct Unpark(Thread, AtomicBool);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            if !self.1.swap(true, Ordering::Release) {
                self.0.unpark();
            }
        }
    }
    let unpark = Arc::new(Unpark(thread::current(), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while !unpark.1.swap(false, Ordering::Acquire) {
            thread::park();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, sync::Mutex};

    /// A future whose own poll blocks on another one loses no wake-up that comes meanwhile.
    #[test]
    fn blocking_inside_of_blocking_keeps_wake_ups() {
        let outer: Arc<Mutex<Option<Waker>>> = Arc::default();
        let mut polls = 0;
        block_on(poll_fn(|cx| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(());
            }
            *outer.lock().unwrap() = Some(cx.waker().clone());
            let mut parked = false;
            block_on(poll_fn(|inner| {
                if parked {
                    return Poll::Ready(());
                }
                parked = true;
                // Both want this thread, which takes note of it once.
                outer.lock().unwrap().take().unwrap().wake();
                inner.waker().wake_by_ref();
                Poll::Pending
            }));
            Poll::Pending
        }));
        assert_eq!(polls, 2);
    }
}
