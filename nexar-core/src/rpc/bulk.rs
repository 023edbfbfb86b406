//! Large bodies, each on a lane of its own.
//!
//! They are written and read by tasks of the background runtime, so that no lane is left unread, which
//! would use up the connection's flow control.

use super::{
    BULK_PRIORITY, MAX_READ,
    call::{Answer, Wanted},
    error::Fault,
    state::{Core, Inner},
};
use crate::{
    lane::BulkLane,
    membership::RecvOf,
    transport::{RecvStream, StreamError, Transport},
    wire::{
        LaneKind,
        rpc::{BodyReader, Frame},
    },
};
use bytes::Bytes;
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;

/// The number of the lane of a large request.
pub(super) fn request_lane(call: u64) -> u64 {
    call << 1
}

/// The number of the lane of a large or streamed reply.
pub(super) fn reply_lane(call: u64) -> u64 {
    request_lane(call) | 1
}

/// Opens a lane to a member.
pub(super) async fn open<T: Transport>(
    inner: &Weak<Inner<T>>,
    member: usize,
    number: u64,
) -> Result<BulkLane<crate::membership::SendOf<T>>, StreamError> {
    let group = inner.upgrade().map(|inner| Arc::clone(&inner.group));
    let group = group.ok_or(StreamError::Closed)?;
    let lane = group
        .try_open_lane(member, LaneKind::RpcBulk, number)
        .await?;
    Ok(BulkLane::new(lane, BULK_PRIORITY))
}

/// Writes a body on a lane of its own. Where that breaks, the other side says why, or the control stream.
async fn push<T: Transport>(inner: Weak<Inner<T>>, member: usize, number: u64, body: Bytes) {
    let written = async {
        let mut lane = open(&inner, member, number).await?;
        lane.write_all(body).await?;
        lane.finish()
    };
    if let Err(error @ StreamError::Connection(_)) = written.await
        && let Some(inner) = inner.upgrade()
    {
        inner.with(|core| core.broke(member, &error));
    }
}

/// What becomes of a body that is fetched; nothing if its sender is gone.
type Fetched = Option<Result<Bytes, Fault>>;

/// Asks for a body and reads it.
async fn fetch<T: Transport>(
    inner: &Weak<Inner<T>>,
    member: usize,
    (number, ask): (u64, Frame),
    length: u64,
) -> Fetched {
    let transfers = inner.upgrade()?.with(|core| core.transfers(member));
    let _turn = transfers.acquire_owned().await.ok()?;
    let (lane, came) = oneshot::channel();
    inner
        .upgrade()?
        .with(|core| core.ask(member, number, &ask, lane));
    let mut lane = came.await.ok()?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut body = BodyReader::new(length);
    while body.missing() > 0 {
        match lane.read(MAX_READ.min(body.missing())).await {
            Ok(Some(mut chunk)) => {
                if !body.take(&mut chunk) {
                    return Some(Err(Fault::no_memory(length)));
                }
            }
            Ok(None) => {
                let what = "the lane of a large body ended before its end";
                inner.upgrade()?.with(|core| core.violated(member, what));
                return None;
            }
            Err(error) => {
                if matches!(error, StreamError::Connection(_)) {
                    inner.upgrade()?.with(|core| core.broke(member, &error));
                }
                return None;
            }
        }
    }
    // The end of the stream has usually come, too; taking it spares the peer a word.
    let _ =
        std::future::poll_fn(|cx| std::task::Poll::Ready(lane.poll_read(cx, 1).is_ready())).await;
    Some(Ok(body.into_bytes()))
}

impl<T: Transport> Core<'_, T> {
    fn transfers(&self, member: usize) -> Arc<tokio::sync::Semaphore> {
        Arc::clone(&self.state.peers[member].transfers)
    }

    /// Asks a member for a body, whose lane is to go to `lane`.
    fn ask(&mut self, member: usize, number: u64, ask: &Frame, lane: oneshot::Sender<RecvOf<T>>) {
        let peer = &mut self.state.peers[member];
        if peer.is_gone() || self.state.failure.is_some() {
            return;
        }
        peer.wanted.insert(number, Wanted::Body(lane));
        peer.queue.push(&ask.encode(), Bytes::new());
        self.write(member);
    }

    /// A lane of its own has come. One that nobody wants any more is dropped, which stops it.
    pub(super) fn take_bulk_lane(&mut self, member: usize, number: u64, lane: RecvOf<T>) {
        match self.state.peers[member].wanted.remove(&number) {
            // Whoever asked may be gone.
            Some(Wanted::Body(to)) => drop(to.send(lane)),
            Some(Wanted::Items(items)) => self.read_items(member, items, lane),
            None => {}
        }
    }

    /// The callee asks for the body of a request.
    pub(super) fn send_request_body(&mut self, member: usize, call: u64) {
        if let Some(body) = self.asked_request(member, call) {
            let push = push(self.inner.hub.inner(), member, request_lane(call), body);
            let task = self.inner.hub.background().spawn(push);
            self.set_call_task(call, task.abort_handle());
        }
    }

    /// A large reply is announced: it is fetched.
    pub(super) fn fetch_reply(&mut self, member: usize, call: u64, length: u64) {
        let limit = self.inner.max_body;
        if length > limit as u64 {
            return self.reply_refused(member, call, Fault::too_large(length, limit));
        }
        let inner = self.inner.hub.inner();
        let task = self.inner.hub.background().spawn(async move {
            let lane = (reply_lane(call), Frame::AskReply { call });
            let fetched = fetch(&inner, member, lane, length).await;
            let Some(inner) = inner.upgrade() else { return };
            inner.with(|core| match fetched {
                Some(Ok(body)) => core.reply_came(call, body),
                Some(Err(fault)) => core.reply_refused(member, call, fault),
                None => {}
            });
        });
        self.set_call_task(call, task.abort_handle());
    }

    fn reply_came(&mut self, call: u64, body: Bytes) {
        self.forget_call_task(call);
        self.answered(call, Answer::Reply(body));
    }

    /// A handler can run once the body of its request is here: it is fetched.
    pub(super) fn fetch_request(
        &mut self,
        member: usize,
        call: u64,
        length: u64,
    ) -> tokio::task::AbortHandle {
        let inner = self.inner.hub.inner();
        let task = self.inner.hub.background().spawn(async move {
            let lane = (request_lane(call), Frame::AskRequest { call });
            let fetched = fetch(&inner, member, lane, length).await;
            let Some(inner) = inner.upgrade() else { return };
            inner.with(|core| core.request_came(member, call, fetched));
        });
        task.abort_handle()
    }

    /// Writes a large reply that the caller has asked for.
    pub(super) fn send_reply_body(
        &mut self,
        member: usize,
        call: u64,
        body: Bytes,
    ) -> tokio::task::AbortHandle {
        let inner = self.inner.hub.inner();
        let task = self.inner.hub.background().spawn(async move {
            push(inner.clone(), member, reply_lane(call), body).await;
            if let Some(inner) = inner.upgrade() {
                inner.with(|core| core.reply_written(member, call));
            }
        });
        task.abort_handle()
    }
}
