//! The thread on which a transport does its own work.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Mutex, PoisonError, mpsc},
    thread,
};
use tokio::{
    runtime::{Builder, Handle},
    sync::{oneshot, watch},
    task::JoinHandle,
};

type LastJob = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One thread with a `current_thread` runtime. It runs until [`stop`](Self::stop), whatever the
/// application's own threads do.
pub(crate) struct Background {
    handle: Handle,
    stop: Mutex<Option<oneshot::Sender<LastJob>>>,
    gone: watch::Receiver<()>,
}

impl Background {
    /// Starts the thread.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (ready, handle) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<LastJob>();
        let (alive, gone) = watch::channel(());
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let runtime = match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let _ = ready.send(Ok(runtime.handle().clone()));
                runtime.block_on(async {
                    if let Ok(last_job) = stopped.await {
                        last_job.await;
                    }
                });
                // Drops what is still spawned before the waiters are told.
                drop(runtime);
                drop(alive);
            })?;
        let handle = handle
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the background thread did not start")))?;
        Ok(Background {
            handle,
            stop: Mutex::new(Some(stop)),
            gone,
        })
    }

    /// The thread's runtime.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs `work` on the thread and waits for it; `None` if the thread ends before. Dropping the future
    /// abandons the work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut task = AbortOnDrop(self.handle.spawn(work));
        (&mut task.0).await.ok()
    }

    /// Runs `last_job`, then drops everything that was spawned and ends the thread. Does not wait for
    /// it. Only the first call counts.
    pub(crate) fn stop(&self, last_job: impl Future<Output = ()> + Send + 'static) {
        let stop = self
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(stop) = stop {
            // The receiver lives as long as the thread.
            let _ = stop.send(Box::pin(last_job));
        }
    }

    /// Waits for the end of the thread.
    pub(crate) async fn stopped(&self) {
        let mut gone = self.gone.clone();
        while gone.changed().await.is_ok() {}
    }
}

/// Aborts the task when the caller loses interest in it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
