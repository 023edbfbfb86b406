//! Streamed replies.

use super::{
    ITEM_COST, MAX_READ, STREAM_WINDOW,
    bulk::{self, reply_lane},
    context::{CallContext, Cancellation},
    error::{Cause, Fault},
    state::{Core, Inner},
};
use crate::{
    Failure,
    membership::RecvOf,
    mesh::lock,
    transport::{RecvStream, StreamError, Transport},
    wire::rpc::{FailureCode, Frame, ItemReader, MAX_ITEM, Piece, item_header, stream_end},
};
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    marker::PhantomData,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll, Waker},
};
use tokio::task::AbortHandle;

/// Items between a handler and whoever takes them: the call itself where it is on the same rank, else who
/// writes them to the lane; and between who reads the lane and the call.
#[derive(Debug, Default)]
pub(super) struct Items {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Bytes>,
    /// Cost of the items that the call has not taken.
    untaken: usize,
    end: Option<Result<(), Cause>>,
    taker: Option<Waker>,
    giver: Option<Waker>,
}

fn cost(item: &Bytes) -> usize {
    item.len().saturating_add(ITEM_COST)
}

impl Items {
    /// Adds an item once there is room.
    fn poll_put(&self, cx: &mut Context<'_>, item: &mut Option<Bytes>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.end.is_some() {
            return Poll::Ready(());
        }
        if state.untaken >= STREAM_WINDOW {
            state.giver = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(item) = item.take() {
            state.untaken += cost(&item);
            state.queue.push_back(item);
        }
        let taker = state.taker.take();
        drop(state);
        if let Some(taker) = taker {
            taker.wake();
        }
        Poll::Ready(())
    }

    /// Adds an item that has come; false if there is no room.
    fn put(&self, item: Bytes) -> bool {
        let mut state = lock(&self.state);
        if state.untaken >= STREAM_WINDOW {
            return false;
        }
        state.untaken += cost(&item);
        state.queue.push_back(item);
        let taker = state.taker.take();
        drop(state);
        if let Some(taker) = taker {
            taker.wake();
        }
        true
    }

    /// Nothing is added any more. Only the first end counts.
    pub(super) fn end(&self, end: Result<(), Cause>) {
        let mut state = lock(&self.state);
        state.end.get_or_insert(end);
        let wake = [state.taker.take(), state.giver.take()];
        drop(state);
        wake.into_iter().flatten().for_each(Waker::wake);
    }

    /// The next item, or the end.
    pub(super) fn poll_get(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Cause>> {
        let mut state = lock(&self.state);
        if let Some(item) = state.queue.pop_front() {
            return Poll::Ready(Ok(Some(item)));
        }
        match &state.end {
            Some(end) => Poll::Ready(end.clone().map(|()| None)),
            None => {
                state.taker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Items of this cost have been taken: there is room again. Returns who is to be woken.
    pub(super) fn taken(&self, cost: usize) -> Option<Waker> {
        let mut state = lock(&self.state);
        state.untaken = state.untaken.saturating_sub(cost);
        state.giver.take()
    }
}

/// Gives a streamed reply to its caller, item by item. Clones give to the same reply.
pub struct ItemSender<Item> {
    items: Arc<Items>,
    cancellation: Cancellation,
    max_body: usize,
    item: PhantomData<fn(&Item)>,
}

impl<Item> Clone for ItemSender<Item> {
    fn clone(&self) -> Self {
        ItemSender {
            items: self.items.clone(),
            cancellation: self.cancellation.clone(),
            ..*self
        }
    }
}

impl<Item> fmt::Debug for ItemSender<Item> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemSender").finish_non_exhaustive()
    }
}

/// An item could not be given to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// The call is not wanted any more.
    #[error("the call is over")]
    Over,
    /// The item could not be encoded.
    #[error("an item could not be encoded: {what}")]
    Encode {
        /// What went wrong.
        what: String,
    },
    /// The item is too long.
    #[error("an item of {length} bytes is above the limit of {limit} (RpcOptions::max_body)")]
    TooLarge {
        /// Its length in bytes.
        length: usize,
        /// The limit.
        limit: usize,
    },
}

impl<Item> ItemSender<Item> {
    pub(super) fn new<T: Transport>(items: Arc<Items>, context: &CallContext<T>) -> Self {
        let max_body = context.inner.upgrade().map_or(0, |inner| inner.max_body);
        ItemSender {
            items,
            cancellation: context.cancellation(),
            max_body,
            item: PhantomData,
        }
    }

    /// Gives an item that is encoded already.
    pub(super) async fn send_bytes(&self, item: Bytes) -> Result<(), ItemError> {
        let (length, limit) = (item.len(), self.max_body.min(MAX_ITEM));
        if self.cancellation.is_cancelled() {
            return Err(ItemError::Over);
        }
        if length > limit {
            return Err(ItemError::TooLarge { length, limit });
        }
        let mut item = Some(item);
        poll_fn(|cx| self.items.poll_put(cx, &mut item)).await;
        match item {
            None => Ok(()),
            Some(_) => Err(ItemError::Over),
        }
    }
}

impl<Item: Serialize> ItemSender<Item> {
    /// Gives an item to the caller. It waits while the caller has more than [`STREAM_WINDOW`] bytes of
    /// items that it has not taken.
    ///
    /// # Errors
    ///
    /// An item that does not encode, or is too long; the call is over.
    ///
    /// # Cancel safety
    ///
    /// The item is given as a whole or not at all.
    pub async fn send(&self, item: &Item) -> Result<(), ItemError> {
        let encoded = postcard::to_allocvec(item).map_err(|error| ItemError::Encode {
            what: error.to_string(),
        })?;
        self.send_bytes(encoded.into()).await
    }
}

/// Writes the items of a reply on a lane of its own.
pub(super) fn spawn_writer<T: Transport>(
    inner: &Inner<T>,
    member: usize,
    call: u64,
    items: Arc<Items>,
) -> AbortHandle {
    let weak = inner.hub.inner();
    let task = inner.hub.background().spawn(async move {
        let written = write(&weak, member, call, &items).await;
        // Where the lane broke, the handler need not go on.
        items.end(Err(Cause::Failed(Failure::ShutDown)));
        let Some(inner) = weak.upgrade() else { return };
        inner.with(|core| {
            if let Err(error @ StreamError::Connection(_)) = written {
                core.broke(member, &error);
            }
            core.items_written(member, call);
        });
    });
    task.abort_handle()
}

/// Small items are written together up to about this many bytes.
const TOGETHER: usize = 64 << 10;

async fn write<T: Transport>(
    inner: &Weak<Inner<T>>,
    member: usize,
    call: u64,
    items: &Items,
) -> Result<(), StreamError> {
    let mut lane = bulk::open(inner, member, reply_lane(call)).await?;
    let mut batch = BytesMut::new();
    loop {
        let next = poll_fn(|cx| match items.poll_get(cx) {
            // What has been gathered goes out before waiting.
            Poll::Pending if !batch.is_empty() => Poll::Ready(None),
            next => next.map(Some),
        });
        match next.await {
            Some(Ok(Some(item))) => {
                batch.extend_from_slice(&item_header(item.len()));
                if item.len() <= TOGETHER {
                    batch.extend_from_slice(&item);
                } else {
                    lane.write_all(batch.split().freeze()).await?;
                    lane.write_all(item).await?;
                }
                if batch.len() < TOGETHER {
                    continue;
                }
            }
            Some(end) => {
                let (end, text) = end_frame(call, end);
                batch.extend_from_slice(&stream_end(&end));
                batch.extend_from_slice(&text);
                lane.write_all(batch.freeze()).await?;
                return lane.finish();
            }
            None => {}
        }
        lane.write_all(batch.split().freeze()).await?;
    }
}

fn end_frame(call: u64, end: Result<Option<Bytes>, Cause>) -> (Frame, Bytes) {
    let Fault { code, text } = match end {
        Ok(_) => {
            let frame = Frame::Reply {
                call,
                large: false,
                length: 0,
            };
            return (frame, Bytes::new());
        }
        Err(Cause::Fault(fault)) => fault,
        Err(_) => Fault::bare(FailureCode::Cancelled),
    };
    let length = text.len() as u64;
    (Frame::Failed { call, code, length }, text)
}

impl<T: Transport> Core<'_, T> {
    /// The lane of a streamed reply has come.
    pub(super) fn read_items(&mut self, member: usize, items: Arc<Items>, lane: RecvOf<T>) {
        let inner = self.inner.hub.inner();
        let limit = self.inner.max_body;
        self.inner.hub.background().spawn(async move {
            let Err(broken) = read(&items, lane, limit).await else {
                return;
            };
            let Some(inner) = inner.upgrade() else { return };
            inner.with(|core| match broken {
                Broken::Protocol(what) => core.violated(member, what),
                Broken::Stream(error @ StreamError::Connection(_)) => core.broke(member, &error),
                Broken::Stream(_) => {
                    let fault = Fault::bare(FailureCode::Cancelled);
                    core.after.ended.push((items, Err(fault.into_cause())));
                }
            });
        });
    }
}

/// Why the lane of a streamed reply could not be read to its end.
enum Broken {
    Protocol(String),
    Stream(StreamError),
}

/// Reads a lane to its end, or until nobody is there to take the items.
async fn read<R: RecvStream>(items: &Arc<Items>, mut lane: R, limit: usize) -> Result<(), Broken> {
    let mut reader = ItemReader::new(limit);
    while Arc::strong_count(items) > 1 {
        let chunk = lane.read(MAX_READ).await.map_err(Broken::Stream)?;
        let Some(mut chunk) = chunk else {
            let what = "a streamed reply without an end";
            return Err(Broken::Protocol(what.into()));
        };
        loop {
            let piece = reader.next(&mut chunk);
            let end = match piece.map_err(|error| Broken::Protocol(error.to_string()))? {
                None => break,
                Some(Piece::Item(item)) => {
                    if !items.put(item) {
                        let what = "items beyond the window of a streamed reply";
                        return Err(Broken::Protocol(what.into()));
                    }
                    continue;
                }
                Some(Piece::Complete) => Ok(()),
                Some(Piece::Failed(code, text)) => Err(Fault { code, text }.into_cause()),
            };
            items.end(end);
            return Ok(());
        }
    }
    Ok(())
}
