//! Where handlers run.

use std::{future::Future, io, sync::OnceLock, thread};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A runtime of the program, or one on a thread of its own. Which one is decided when the first handler is
/// registered.
pub(super) struct Runtime {
    given: Option<Handle>,
    chosen: OnceLock<Chosen>,
}

struct Chosen {
    handle: Handle,
    /// The thread of its own ends when this is dropped.
    _stop: Option<oneshot::Sender<()>>,
}

impl Runtime {
    pub(super) fn new(given: Option<Handle>) -> Self {
        Runtime {
            given,
            chosen: OnceLock::new(),
        }
    }

    /// Sees to it that there is a runtime. To be called where handlers are registered: it prefers the runtime of
    /// the caller.
    pub(super) fn handle(&self) -> io::Result<&Handle> {
        if let Some(chosen) = self.chosen.get() {
            return Ok(&chosen.handle);
        }
        let current = || Handle::try_current().ok();
        let chosen = match self.given.clone().or_else(current) {
            Some(handle) => Chosen {
                handle,
                _stop: None,
            },
            None => Chosen::start()?,
        };
        Ok(&self.chosen.get_or_init(|| chosen).handle)
    }

    /// Runs a future; drops it where there is no runtime (any more).
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Ok(handle) = self.handle() {
            handle.spawn(future);
        }
    }
}

impl Chosen {
    /// A runtime on a thread of its own.
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
        Ok(Chosen {
            handle,
            _stop: Some(stop),
        })
    }
}
