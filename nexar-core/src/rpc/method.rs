//! Handlers as methods that can be started.

use super::{
    context::CallContext, error::Fault, items::Items, job::Job, registry::Method, runtime::Runtime,
};
use crate::{transport::Transport, wire::rpc::FailureCode};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Display, future::Future, sync::Arc};

/// A method with one reply.
pub(super) struct Whole<F>(pub(super) F);

/// A method that streams its reply.
pub(super) struct Streaming<F>(pub(super) F);

impl<T, F, Fut> Method<T> for Whole<F>
where
    T: Transport,
    F: Fn(CallContext<T>, Bytes) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Bytes, Fault>> + Send + 'static,
{
    fn streams(&self) -> bool {
        false
    }

    fn start(self: Arc<Self>, job: Job<T>, runtime: &Runtime) {
        job.spawn(runtime, move |context, body, _| (self.0)(context, body));
    }
}

impl<T, F, Fut> Method<T> for Streaming<F>
where
    T: Transport,
    F: Fn(CallContext<T>, Bytes, Arc<Items>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Bytes, Fault>> + Send + 'static,
{
    fn streams(&self) -> bool {
        true
    }

    fn start(self: Arc<Self>, job: Job<T>, runtime: &Runtime) {
        job.spawn(runtime, move |context, body, items| {
            (self.0)(context, body, items.unwrap_or_default())
        });
    }
}

/// The request of a call.
pub(super) fn decode<R: DeserializeOwned>(body: &[u8]) -> Result<R, Fault> {
    super::decode(body).map_err(|what| Fault::new(FailureCode::Decode, what))
}

/// The body of a reply.
pub(super) fn encode<R: Serialize>(reply: &R) -> Result<Bytes, Fault> {
    let encoded = postcard::to_allocvec(reply);
    let fault = |error: postcard::Error| Fault::new(FailureCode::Encode, error.to_string());
    encoded.map(Bytes::from).map_err(fault)
}

/// The failure of a handler.
pub(super) fn failed(error: impl Display) -> Fault {
    Fault::new(FailureCode::Handler, error.to_string())
}
