//! What the caller has of a streamed reply.

use super::{
    Caller, ITEM_COST, RETURN_CREDIT, decode,
    error::{Cause, RpcFailure},
    items::Items,
    state::Inner,
};
use crate::{Failure, Result, transport::Transport, wire::rpc::Frame};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::{
    fmt,
    future::{Future, poll_fn},
    marker::PhantomData,
    pin::pin,
    sync::Arc,
    task::Poll,
};

/// A streamed reply that comes item by item. Dropping it cancels the call.
pub struct Replies<T: Transport, Item> {
    caller: Caller<T>,
    callee: usize,
    method: Box<str>,
    id: u64,
    items: Arc<Items>,
    /// Cost of the items that were taken and not reported.
    taken: usize,
    over: bool,
    item: PhantomData<fn() -> Item>,
}

impl<T: Transport, Item> Replies<T, Item> {
    pub(super) fn new(
        caller: Caller<T>,
        callee: usize,
        method: &str,
        id: u64,
        items: Arc<Items>,
    ) -> Self {
        Replies {
            caller,
            callee,
            method: method.into(),
            id,
            items,
            taken: 0,
            over: false,
            item: PhantomData,
        }
    }

    /// The rank that replies.
    pub fn callee(&self) -> usize {
        self.callee
    }

    fn inner(&self) -> &Inner<T> {
        &self.caller.inner
    }

    async fn next_bytes(&mut self) -> Result<Option<Bytes>, Cause> {
        if self.over {
            return Ok(None);
        }
        let items = Arc::clone(&self.items);
        let next = {
            let mut next = pin!(poll_fn(|cx| items.poll_get(cx)));
            let once = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx)));
            match once.await {
                Poll::Ready(next) => next,
                Poll::Pending => self.inner().group.transport().drive(next).await,
            }
        };
        match &next {
            Ok(Some(item)) => self.give_credit(item.len().saturating_add(ITEM_COST)),
            Ok(None) | Err(_) => self.over = true,
        }
        next
    }

    /// Tells the callee, once it is worth it, that there is room again.
    fn give_credit(&mut self, cost: usize) {
        if let Some(giver) = self.items.taken(cost) {
            giver.wake();
        }
        self.taken += cost;
        if self.taken < RETURN_CREDIT || self.callee == self.inner().group.rank() {
            return;
        }
        let frame = Frame::Credit {
            call: self.id,
            bytes: std::mem::take(&mut self.taken) as u64,
        };
        let callee = self.callee;
        self.inner().with(|core| core.send_credit(callee, &frame));
    }
}

impl<T: Transport, Item: DeserializeOwned> Replies<T, Item> {
    /// The next item; nothing once the handler has ended well.
    ///
    /// # Errors
    ///
    /// Those of [`Rpc::call`](super::Rpc::call). Items that came before a failure come before its error.
    /// After an error there are no more items.
    ///
    /// # Cancel safety
    ///
    /// No item is lost.
    pub async fn next(&mut self) -> Result<Option<Item>> {
        let next = match self.next_bytes().await {
            Ok(Some(bytes)) => decode(&bytes)
                .map(Some)
                .map_err(|what| RpcFailure::Decode { what }.into()),
            Ok(None) => Ok(None),
            Err(cause) => Err(cause),
        };
        next.map_err(|cause| self.caller.error(self.callee, &self.method, cause))
    }
}

impl<T: Transport, Item> Drop for Replies<T, Item> {
    fn drop(&mut self) {
        // What was still to come is not wanted.
        self.items.end(Err(Cause::Failed(Failure::ShutDown)));
        self.caller.inner.with(|core| core.drop_call(self.id));
    }
}

impl<T: Transport, Item> fmt::Debug for Replies<T, Item> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("callee", &self.callee)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}
