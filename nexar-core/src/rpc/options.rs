//! What users can set.

use tokio::runtime::Handle;

/// Settings of the calls of a communicator on this rank.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RpcOptions {
    /// Handlers that run at a time for calls that no handler makes; further ones wait for their turn.
    /// Default: 1024; 0 counts as 1. Calls that handlers make are not counted, since they could not end
    /// if they waited for those who wait for them.
    pub max_handlers: usize,
    /// Longest request, reply and streamed item in bytes, on this rank as caller and as callee.
    /// Default: 1 GiB.
    pub max_body: usize,
    /// Where handlers run. Default: on the runtime that is current when the first one is registered, and where
    /// there is none, on a thread of their own.
    pub runtime: Option<Handle>,
}

impl Default for RpcOptions {
    fn default() -> Self {
        RpcOptions {
            max_handlers: 1024,
            max_body: 1 << 30,
            runtime: None,
        }
    }
}

impl RpcOptions {
    /// With another number of handlers at a time.
    pub fn with_max_handlers(mut self, handlers: usize) -> Self {
        self.max_handlers = handlers;
        self
    }

    /// With another limit on bodies.
    pub fn with_max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// With a runtime for the handlers. It has to run for as long as they are wanted.
    pub fn with_runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }
}
