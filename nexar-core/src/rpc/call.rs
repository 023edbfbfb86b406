//! Calls that this rank makes.

use super::{
    CROWD, INLINE_LIMIT,
    context::current_depth,
    error::{Cause, Fault, RpcFailure},
    items::Items,
    peer::{cost, kind_of},
    state::{Core, Inner},
};
use crate::{
    Failure,
    transport::Transport,
    wire::rpc::{FailureCode, Frame},
};
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    task::{AbortHandle, yield_now},
    time::Instant,
};

/// Time limits beyond this are cut, so that they can be added to any point in time.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A call of this rank, from its beginning until its future is gone and the callee has answered.
pub(super) struct Call {
    pub(super) to: usize,
    kind: usize,
    cost: usize,
    pub(super) deadline: Instant,
    /// Its request has been handed to the lane.
    sent: bool,
    /// The callee has answered, so that its room is free.
    over: bool,
    /// Its future is gone.
    abandoned: bool,
    waker: Option<Waker>,
    /// Its task did not follow a wake-up: others are to read the lanes.
    pub(super) lazy: bool,
    answer: Option<Answer>,
    /// A large request, until it is asked for.
    body: Option<Bytes>,
    /// Writes the request or reads the reply.
    task: Option<AbortHandle>,
    /// What comes of a streamed reply.
    items: Option<Arc<Items>>,
}

pub(super) enum Answer {
    Reply(Bytes),
    Failed(Cause),
    /// What there is to know is among the items.
    Streamed,
}

/// A lane that the other side is to open.
pub(super) enum Wanted<R> {
    /// Of a large body.
    Body(oneshot::Sender<R>),
    /// Of a streamed reply to a call.
    Items(Arc<Items>),
}

/// What is called with what.
pub(super) struct Request<'a> {
    pub(super) to: usize,
    pub(super) method: &'a str,
    pub(super) body: Bytes,
    pub(super) limit: Duration,
    pub(super) depth: Option<u8>,
    /// Where the items go, if the reply is to be streamed.
    pub(super) items: Option<Arc<Items>>,
}

/// The end of the time that begins now.
pub(super) fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit.min(LONGEST)
}

impl Call {
    /// Whether its future waits for an answer that may still come.
    pub(super) fn waits(&self) -> bool {
        self.answer.is_none() && !self.abandoned
    }
}

/// A call whose future, or stream, is there. Dropping it cancels the call.
pub(super) struct Guard<'a, T: Transport> {
    inner: &'a Inner<T>,
    id: u64,
    done: bool,
}

impl<T: Transport> Guard<'_, T> {
    /// The call goes on without this.
    pub(super) fn detach(mut self) -> u64 {
        self.done = true;
        self.id
    }
}

impl<T: Transport> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if !self.done {
            self.inner.with(|core| core.drop_call(self.id));
        }
    }
}

impl<T: Transport> Inner<T> {
    /// Hands a request to the lane, for which it may have to wait.
    pub(super) async fn send(&self, request: &Request<'_>) -> Result<Guard<'_, T>, Cause> {
        let length = request.body.len();
        if length > self.max_body {
            return Err(RpcFailure::TooLarge {
                length: length as u64,
                limit: self.max_body as u64,
            }
            .into());
        }
        let depth = request.depth.unwrap_or_else(current_depth);
        let (id, placed) = self.with(|core| {
            let id = core.begin(request, depth);
            (id, core.place(id, request, depth))
        });
        let guard = Guard {
            inner: self,
            id,
            done: false,
        };
        let crowded = match placed {
            Poll::Ready(placed) => placed?,
            Poll::Pending => {
                let place = poll_fn(|cx| {
                    self.with(|core| {
                        core.pump();
                        let placed = core.place(id, request, depth);
                        core.wait_if_pending(id, cx, placed)
                    })
                });
                self.group.transport().drive(place).await?
            }
        };
        if crowded {
            // Others are about to call, too: their requests go out together.
            yield_now().await;
        }
        Ok(guard)
    }

    /// Makes a call and waits for its reply.
    pub(super) async fn call(&self, request: Request<'_>) -> Result<Bytes, Cause> {
        let mut guard = self.send(&request).await?;
        let id = guard.id;
        let mut answer = pin!(poll_fn(|cx| self.poll_answer(id, cx)));
        // A call to the own rank, or a quick callee.
        let once = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx)));
        let answer = match once.await {
            Poll::Ready(answer) => answer,
            Poll::Pending => self.group.transport().drive(answer).await,
        };
        guard.done = true;
        match answer {
            Answer::Reply(bytes) => Ok(bytes),
            Answer::Failed(cause) => Err(cause),
            Answer::Streamed => Err(RpcFailure::OtherKind { streams: true }.into()),
        }
    }

    fn poll_answer(&self, id: u64, cx: &Context<'_>) -> Poll<Answer> {
        self.with(|core| {
            // What the pump finds for this call needs no wake-up.
            match core.state.calls.get_mut(&id) {
                Some(call) => {
                    call.lazy = false;
                    core.after.stale.extend(call.waker.take());
                    if call.answer.is_none() {
                        core.pump();
                    }
                }
                None => return Poll::Ready(Answer::Failed(Cause::Failed(Failure::ShutDown))),
            }
            let answer = core.state.calls.get_mut(&id).and_then(|c| c.answer.take());
            match answer {
                Some(answer) => {
                    core.drop_call(id);
                    Poll::Ready(answer)
                }
                None => core.wait_if_pending(id, cx, Poll::Pending),
            }
        })
    }
}

impl<T: Transport> Core<'_, T> {
    fn begin(&mut self, request: &Request<'_>, depth: u8) -> u64 {
        let id = self.state.next_call;
        self.state.next_call += 1;
        let length = request.body.len();
        let deadline = deadline(request.limit);
        let call = Call {
            to: request.to,
            kind: kind_of(depth),
            cost: cost(length, length > INLINE_LIMIT),
            deadline,
            sent: false,
            over: false,
            abandoned: false,
            waker: None,
            lazy: false,
            answer: None,
            body: None,
            task: None,
            items: request.items.clone(),
        };
        self.state.calls.insert(id, call);
        self.watch(deadline, request.limit);
        id
    }

    /// Queues a request in turn; whether others are likely to follow soon.
    fn place(&mut self, id: u64, request: &Request<'_>, depth: u8) -> Poll<Result<bool, Cause>> {
        if self.inner.hub.is_changed() {
            self.pump();
        }
        let to = request.to;
        if let Some(failure) = self.refusal(to) {
            return Poll::Ready(Err(Cause::Failed(failure)));
        }
        let Some(call) = self.state.calls.get_mut(&id) else {
            return Poll::Ready(Err(Cause::Failed(Failure::ShutDown)));
        };
        if let Some(Answer::Failed(cause)) = call.answer.take() {
            return Poll::Ready(Err(cause));
        }
        let (kind, cost) = (call.kind, call.cost);
        let peer = &mut self.state.peers[to];
        let waiting = &mut peer.waiting[kind];
        let first = waiting.front().is_none_or(|first| *first == id);
        if !first || !peer.made[kind].has_room(cost) {
            if !waiting.contains(&id) {
                waiting.push_back(id);
            }
            return Poll::Pending;
        }
        let waited = waiting.pop_front().is_some();
        let next = waiting.front().copied();
        peer.made[kind].add(cost);
        call.sent = true;
        let limit = match waited {
            true => call.deadline.saturating_duration_since(Instant::now()),
            false => request.limit,
        };
        if let Some(next) = next {
            self.wake(next);
        }
        let outgoing = Outgoing {
            id,
            depth,
            limit,
            request,
        };
        if to == self.inner.group.rank() {
            self.take_own(&outgoing);
            return Poll::Ready(Ok(false));
        }
        self.queue_request(&outgoing);
        let crowded = self.state.calls.len() >= CROWD;
        if crowded {
            self.inner.hub.mark_ready(to);
        } else {
            self.write(to);
        }
        Poll::Ready(Ok(crowded))
    }

    /// Why a member cannot be called.
    fn refusal(&self, to: usize) -> Option<Failure> {
        if let Some(failure) = &self.state.failure {
            return Some(failure.clone());
        }
        if self.state.closed {
            return Some(Failure::ShutDown);
        }
        let left = self.state.peers[to].left.is_some();
        left.then_some(Failure::PeerLeft { rank: to })
    }

    fn queue_request(&mut self, outgoing: &Outgoing<'_>) {
        let Outgoing { id, request, .. } = *outgoing;
        let length = request.body.len();
        let large = length > INLINE_LIMIT;
        let frame = Frame::Request {
            call: id,
            streamed: request.items.is_some(),
            large,
            depth: outgoing.depth,
            name: u8::try_from(request.method.len()).unwrap_or_default(),
            budget: outgoing.budget(),
            length: length as u64,
        };
        let peer = &mut self.state.peers[request.to];
        if let Some(items) = &request.items {
            let lane = Wanted::Items(Arc::clone(items));
            peer.wanted.insert(super::bulk::reply_lane(id), lane);
        }
        let body = match large {
            true => Bytes::new(),
            false => request.body.clone(),
        };
        let name = request.method.as_bytes();
        peer.queue.push_named(&frame.encode(), name, body);
        if large && let Some(call) = self.state.calls.get_mut(&id) {
            call.body = Some(request.body.clone());
        }
    }

    pub(super) fn wait_if_pending<R>(
        &mut self,
        id: u64,
        cx: &Context<'_>,
        polled: Poll<R>,
    ) -> Poll<R> {
        if polled.is_pending()
            && let Some(call) = self.state.calls.get_mut(&id)
        {
            call.waker = Some(cx.waker().clone());
            let (former, woken) = self.inner.hub.lead(id, cx.waker());
            self.after.stale.extend(former);
            if woken {
                self.after.wake.push(cx.waker().clone());
            }
        }
        polled
    }

    fn wake(&mut self, id: u64) {
        if let Some(call) = self.state.calls.get_mut(&id) {
            self.after.wake.extend(call.waker.take());
        }
    }

    /// A call has its answer, from wherever. Only the first one counts.
    pub(super) fn answered(&mut self, id: u64, answer: Answer) {
        let Some(call) = self.state.calls.get_mut(&id) else {
            return;
        };
        if !call.waits() {
            return;
        }
        if let (Some(items), Answer::Failed(cause)) = (&call.items, &answer) {
            self.after.ended.push((items.clone(), Err(cause.clone())));
        }
        call.answer = Some(answer);
        self.after.wake.extend(call.waker.take());
    }

    pub(super) fn call_timed_out(&mut self, id: u64) {
        self.answered(id, Answer::Failed(Cause::TimedOut));
    }

    /// The callee has answered a call: the room of its request is free. Whether somebody wants the answer.
    pub(super) fn callee_done(&mut self, member: usize, id: u64) -> Result<bool, &'static str> {
        let calls = &mut self.state.calls;
        let call = calls
            .get_mut(&id)
            .filter(|call| call.to == member && call.sent && !call.over)
            .ok_or("an answer to no call")?;
        call.over = true;
        let wanted = call.waits();
        let (kind, cost, abandoned) = (call.kind, call.cost, call.abandoned);
        if abandoned {
            calls.remove(&id);
        }
        let peer = &mut self.state.peers[member];
        peer.made[kind].remove(cost);
        if let Some(&next) = peer.waiting[kind].front() {
            self.wake(next);
        }
        Ok(wanted)
    }

    /// Where the items of a streamed reply go.
    pub(super) fn items_of_call(&self, id: u64) -> Option<Arc<Items>> {
        self.state.calls.get(&id)?.items.clone()
    }

    pub(super) fn set_call_task(&mut self, id: u64, task: AbortHandle) {
        if let Some(call) = self.state.calls.get_mut(&id) {
            call.task = Some(task);
        }
    }

    pub(super) fn forget_call_task(&mut self, id: u64) {
        if let Some(call) = self.state.calls.get_mut(&id) {
            call.task = None;
        }
    }

    /// The large body of a request that a member asks for, if it is still to be had.
    pub(super) fn asked_request(&mut self, member: usize, id: u64) -> Option<Bytes> {
        let call = self.state.calls.get_mut(&id)?;
        call.body.take_if(|_| call.to == member)
    }

    /// The future of a call is gone, or has its answer: what is still under way is cancelled.
    pub(super) fn drop_call(&mut self, id: u64) {
        self.resign(id);
        let Some(call) = self.state.calls.get_mut(&id) else {
            return;
        };
        let (to, kind) = (call.to, call.kind);
        call.abandoned = true;
        call.body = None;
        self.after.stale.extend(call.waker.take());
        let task = call.task.take();
        if let Some(task) = &task {
            task.abort();
        }
        let (sent, over) = (call.sent, call.over);
        let streamed = call.items.take().is_some();
        let peer = &mut self.state.peers[to];
        if task.is_some() || streamed {
            peer.wanted.remove(&super::bulk::reply_lane(id));
        }
        let ended = self.state.failure.is_some() || peer.left.is_some() || peer.ended;
        if !sent {
            peer.waiting[kind].retain(|waiting| *waiting != id);
            if let Some(&next) = peer.waiting[kind].front() {
                self.wake(next);
            }
        }
        if !sent || over || ended {
            self.state.calls.remove(&id);
        }
        // A large reply may be half read. Where this rank shuts down, its callees have been told.
        let tell = !ended && !self.state.closed;
        if sent && tell && (!over || task.is_some()) {
            self.cancel(to, id);
        }
    }

    /// Tells all callees that their answers are not wanted.
    pub(super) fn cancel_all(&mut self) {
        let calls = self.state.calls.iter().filter(|(_, c)| c.sent && !c.over);
        let open: Vec<_> = calls.map(|(id, call)| (call.to, *id)).collect();
        for (to, id) in open {
            self.cancel(to, id);
        }
    }

    /// Tells the callee that an answer is not wanted.
    pub(super) fn cancel(&mut self, to: usize, id: u64) {
        if to == self.inner.group.rank() {
            return self.stop_serving(to, id, FailureCode::Cancelled);
        }
        let frame = Frame::Cancel { call: id };
        self.state.peers[to]
            .queue
            .push(&frame.encode(), Bytes::new());
        self.write(to);
    }

    /// Tells the callee that there is room for more items of a streamed reply.
    pub(super) fn send_credit(&mut self, to: usize, frame: &Frame) {
        if self.refusal(to).is_none() {
            self.state.peers[to]
                .queue
                .push(&frame.encode(), Bytes::new());
            self.write(to);
        }
    }

    /// A call, or the attendant, does not read the lanes any more.
    pub(super) fn resign(&mut self, id: u64) {
        let calls = &self.state.calls;
        let next = || {
            let mut newest_first = calls
                .iter()
                .rev()
                .filter(|(other, c)| **other != id && !c.lazy);
            let call = newest_first.find_map(|(id, c)| Some((*id, c.waker.clone()?)));
            call.or_else(|| self.attendant().filter(|(other, _)| *other != id))
        };
        let (former, wake) = self.inner.hub.resign(id, next);
        self.after.stale.extend(former);
        self.after.wake.extend(wake);
    }

    /// Nothing can come any more from a member, or from any: what nobody waits for is forgotten.
    pub(super) fn forget_abandoned(&mut self, from: Option<usize>) {
        let affected = |call: &Call| from.is_none_or(|member| call.to == member);
        let calls = &mut self.state.calls;
        calls.retain(|_, call| !call.abandoned || !affected(call));
    }

    /// Ends a call whose large reply cannot be had.
    pub(super) fn reply_refused(&mut self, member: usize, id: u64, fault: Fault) {
        self.forget_call_task(id);
        self.answered(id, Answer::Failed(fault.into_cause()));
        self.cancel(member, id);
    }
}

/// A request on its way.
pub(super) struct Outgoing<'a> {
    pub(super) id: u64,
    pub(super) depth: u8,
    pub(super) limit: Duration,
    pub(super) request: &'a Request<'a>,
}

impl Outgoing<'_> {
    /// Milliseconds in which it is to be answered.
    fn budget(&self) -> u32 {
        u32::try_from(self.limit.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
    }
}
