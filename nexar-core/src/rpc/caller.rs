//! Making calls.

use super::{
    call::Request,
    error::{Cause, RpcError, RpcFailure},
    items::Items,
    registry::{check_name, invalid},
    replies::Replies,
    state::Inner,
};
use crate::{Error, Failure, OperationError, Result, transport::Transport};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, sync::Arc, time::Duration};

/// Makes calls with a time limit. Clones make the same calls.
///
/// It keeps the communicator alive, but not its calls: they end with their [`Rpc`](super::Rpc).
pub struct Caller<T: Transport> {
    pub(super) inner: Arc<Inner<T>>,
    pub(super) limit: Duration,
    /// Where it is not that of the code that calls.
    pub(super) depth: Option<u8>,
}

impl<T: Transport> Clone for Caller<T> {
    fn clone(&self) -> Self {
        Caller {
            inner: Arc::clone(&self.inner),
            ..*self
        }
    }
}

impl<T: Transport> Caller<T> {
    /// The time limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// With another time limit.
    pub fn within(self, limit: Duration) -> Self {
        Caller { limit, ..self }
    }

    /// See [`Rpc::call`](super::Rpc::call).
    pub async fn call<Request, Reply>(
        &self,
        rank: usize,
        method: &str,
        request: &Request,
    ) -> Result<Reply>
    where
        Request: Serialize + ?Sized,
        Reply: DeserializeOwned,
    {
        let body = self.encode(rank, method, request)?;
        let reply = self.call_raw(rank, method, body).await?;
        super::decode(&reply).map_err(|what| {
            let cause = RpcFailure::Decode { what };
            self.error(rank, method, cause.into())
        })
    }

    /// See [`Rpc::call_raw`](super::Rpc::call_raw).
    pub async fn call_raw(&self, rank: usize, method: &str, request: Bytes) -> Result<Bytes> {
        self.check(rank, method)?;
        let request = self.request(rank, method, request, None);
        let called = self.inner.call(request).await;
        called.map_err(|cause| self.error(rank, method, cause))
    }

    /// See [`Rpc::call_stream`](super::Rpc::call_stream).
    pub async fn call_stream<Request, Item>(
        &self,
        rank: usize,
        method: &str,
        request: &Request,
    ) -> Result<Replies<T, Item>>
    where
        Request: Serialize + ?Sized,
    {
        self.check(rank, method)?;
        let body = self.encode(rank, method, request)?;
        let items = Arc::<Items>::default();
        let request = self.request(rank, method, body, Some(Arc::clone(&items)));
        let sent = self.inner.send(&request).await;
        let guard = sent.map_err(|cause| self.error(rank, method, cause))?;
        let id = guard.detach();
        Ok(Replies::new(self.clone(), rank, method, id, items))
    }

    fn request<'a>(
        &self,
        to: usize,
        method: &'a str,
        body: Bytes,
        items: Option<Arc<Items>>,
    ) -> Request<'a> {
        Request {
            to,
            method,
            body,
            limit: self.limit,
            depth: self.depth,
            items,
        }
    }

    fn check(&self, rank: usize, method: &str) -> Result<()> {
        let size = self.inner.group.size();
        if rank >= size {
            let reason = format!("rank {rank} does not exist in a communicator of {size}");
            return Err(invalid("call", reason));
        }
        check_name("call", method)
    }

    fn encode<R: Serialize + ?Sized>(
        &self,
        rank: usize,
        method: &str,
        request: &R,
    ) -> Result<Bytes> {
        let encoded = postcard::to_allocvec(request).map_err(|error| {
            let what = error.to_string();
            self.error(rank, method, RpcFailure::Encode { what }.into())
        })?;
        Ok(encoded.into())
    }

    pub(super) fn failed(&self, operation: &'static str, failure: Failure) -> Error {
        let group = &self.inner.group;
        let (id, rank) = (group.id(), group.rank());
        Box::new(OperationError::new(operation, None, id, rank, failure)).into()
    }

    pub(super) fn error(&self, callee: usize, method: &str, cause: Cause) -> Error {
        let cause = match cause {
            Cause::Failed(failure) => RpcFailure::Failed { failure },
            Cause::Rpc(cause) => cause,
            Cause::TimedOut => RpcFailure::TimedOut { limit: self.limit },
            Cause::Fault(fault) => return self.error(callee, method, fault.into_cause()),
        };
        Box::new(RpcError {
            method: method.to_owned(),
            callee,
            communicator: self.inner.group.id(),
            rank: self.inner.group.rank(),
            cause,
        })
        .into()
    }
}

impl<T: Transport> fmt::Debug for Caller<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("group", &self.inner.group)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
