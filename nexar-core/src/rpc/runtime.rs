//! Where handlers run.

use std::{future::Future, io, sync::OnceLock, thread};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A runtime of the program, or one on a thread of its own that starts when it is first needed.
pub(super) struct Runtime {
    given: Option<Handle>,
    own: OnceLock<Own>,
}

struct Own {
    handle: Handle,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Runtime {
    pub(super) fn new(given: Option<Handle>) -> Self {
        Runtime {
            given: given.or_else(|| Handle::try_current().ok()),
            own: OnceLock::new(),
        }
    }

    /// Sees to it that there is a runtime.
    pub(super) fn handle(&self) -> io::Result<&Handle> {
        if let Some(handle) = &self.given {
            return Ok(handle);
        }
        if let Some(own) = self.own.get() {
            return Ok(&own.handle);
        }
        let own = Own::start()?;
        Ok(&self.own.get_or_init(|| own).handle)
    }

    /// Runs a future; drops it where there is no runtime (any more).
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Ok(handle) = self.handle() {
            handle.spawn(future);
        }
    }
}

impl Own {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("nexar-rpc".into())
            .spawn(move || {
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            })?;
        let _stop = stop;
        Ok(Own { handle, _stop })
    }
}
