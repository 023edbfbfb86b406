//! Calls that this rank answers.

use super::{
    INLINE_LIMIT,
    call::{Answer, Outgoing, deadline},
    context::{CallContext, Control},
    error::{Cause, Fault},
    items::Items,
    job::{Job, Pledge},
    peer::{cost, kind_of},
    registry::Method,
    state::Core,
};
use crate::{
    Failure,
    transport::Transport,
    wire::rpc::{Arrival, FailureCode, Frame},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tokio::{task::AbortHandle, time::Instant};

/// A call from a member, until it is answered and the answer is written.
pub(super) struct Serving<T: Transport> {
    pub(super) control: Arc<Control>,
    pub(super) deadline: Instant,
    method: Result<Arc<dyn Method<T>>, Fault>,
    body: Body,
    depth: u8,
    cost: usize,
    streamed: bool,
    phase: Phase,
    /// Reads the request, or writes the reply.
    task: Option<AbortHandle>,
    /// Items of a streamed reply.
    items: Option<Arc<Items>>,
}

enum Body {
    Here(Bytes),
    /// Still at the caller: its length.
    There(u64),
}

#[derive(PartialEq, Eq)]
enum Phase {
    /// In the backlog.
    New,
    /// Its body is being fetched.
    Fetching,
    /// The handler runs.
    Running,
    /// The handler has ended, and the items of its reply are being written.
    Streaming,
    /// The large reply, until it is asked for.
    Replying(Bytes),
}

/// A call that has come.
struct Incoming {
    member: usize,
    call: u64,
    depth: u8,
    streamed: bool,
    deadline: Instant,
    length: u64,
}

impl<T: Transport> Core<'_, T> {
    /// A request has come; an error says what is wrong with it.
    pub(super) fn take_request(
        &mut self,
        member: usize,
        arrival: Arrival,
    ) -> Result<(), &'static str> {
        let Frame::Request {
            call,
            streamed,
            large,
            depth,
            budget,
            length,
            ..
        } = arrival.frame
        else {
            return Ok(());
        };
        if large && length <= INLINE_LIMIT as u64 {
            return Err("a small body that claims to be large");
        }
        let peer = &mut self.state.peers[member];
        if call < peer.next_call {
            return Err("a call out of turn");
        }
        peer.next_call = call.saturating_add(1);
        let incoming = Incoming {
            member,
            call,
            depth,
            streamed,
            deadline: deadline(Duration::from_millis(budget.into())),
            length,
        };
        let body = match large {
            true => Body::There(length),
            false => Body::Here(arrival.body),
        };
        self.watch(incoming.deadline, Duration::from_millis(budget.into()));
        self.take_call(&incoming, &arrival.name, body, None)
    }

    /// A call of this rank to itself.
    pub(super) fn take_own(&mut self, outgoing: &Outgoing<'_>) {
        let request = outgoing.request;
        let incoming = Incoming {
            member: self.inner.group.rank(),
            call: outgoing.id,
            depth: outgoing.depth,
            streamed: request.items.is_some(),
            deadline: deadline(outgoing.limit),
            length: request.body.len() as u64,
        };
        let body = Body::Here(request.body.clone());
        let items = request.items.clone();
        // Its caller keeps to the bounds.
        let _ = self.take_call(&incoming, request.method.as_bytes(), body, items);
    }

    fn take_call(
        &mut self,
        incoming: &Incoming,
        name: &[u8],
        body: Body,
        items: Option<Arc<Items>>,
    ) -> Result<(), &'static str> {
        let Incoming {
            member,
            call,
            depth,
            streamed,
            deadline,
            length,
        } = *incoming;
        let method = self.method_for(name, streamed, length);
        let cost = match &body {
            Body::Here(bytes) => cost(bytes.len(), bytes.len() > INLINE_LIMIT),
            Body::There(_) => cost(0, true),
        };
        let kind = kind_of(depth);
        let peer = &mut self.state.peers[member];
        if !peer.taken[kind].has_room(cost) {
            return Err("more calls than it may have");
        }
        peer.taken[kind].add(cost);
        peer.backlog[kind].push_back(call);
        peer.serving.insert(
            call,
            Serving {
                control: Arc::default(),
                deadline,
                method,
                body,
                depth,
                cost,
                streamed,
                phase: Phase::New,
                task: None,
                items,
            },
        );
        self.start_some(member);
        Ok(())
    }

    /// The method of a call, if it can be handled.
    fn method_for(
        &self,
        name: &[u8],
        streamed: bool,
        length: u64,
    ) -> Result<Arc<dyn Method<T>>, Fault> {
        let limit = self.inner.max_body;
        if self.state.closed {
            let reason = "it is shutting down";
            return Err(Fault::new(FailureCode::NotServed, reason));
        }
        if length > limit as u64 {
            return Err(Fault::too_large(length, limit));
        }
        let methods = &self.inner.methods;
        let no_such = || Fault::new(FailureCode::NoSuchMethod, methods.similar(name));
        let method = methods.find(name).ok_or_else(no_such)?;
        if method.streams() == streamed {
            return Ok(method);
        }
        let other = if streamed { "whole" } else { "" };
        Err(Fault::new(FailureCode::OtherKind, other))
    }

    /// Begins with calls from a member, as far as the bounds allow.
    pub(super) fn start_some(&mut self, member: usize) {
        loop {
            let peer = &mut self.state.peers[member];
            if !peer.listens() {
                return;
            }
            if let Some(call) = peer.backlog[1].pop_front() {
                self.start(member, call);
                continue;
            }
            if peer.backlog[0].is_empty() {
                return;
            }
            if self.state.running >= self.inner.max_handlers {
                if !std::mem::replace(&mut peer.starved, true) {
                    self.state.starved.push_back(member);
                }
                return;
            }
            if let Some(call) = peer.backlog[0].pop_front() {
                self.start(member, call);
            }
        }
    }

    /// A handler has ended: one member in turn gets its place.
    fn start_starved(&mut self) {
        while self.state.running < self.inner.max_handlers
            && let Some(member) = self.state.starved.pop_front()
        {
            let peer = &mut self.state.peers[member];
            peer.starved = false;
            if !peer.listens() {
                // It goes on when its answers are written.
                continue;
            }
            if let Some(call) = peer.backlog[0].pop_front() {
                let more = !peer.backlog[0].is_empty();
                if more {
                    peer.starved = true;
                    self.state.starved.push_back(member);
                }
                self.start(member, call);
            }
        }
    }

    fn start(&mut self, member: usize, call: u64) {
        let Some(serving) = self.state.peers[member].serving.get_mut(&call) else {
            return;
        };
        self.state.handlers += 1;
        if let Err(fault) = &serving.method {
            let fault = fault.clone();
            return self.handled(member, call, Err(fault));
        }
        self.state.running += usize::from(kind_of(serving.depth) == 0);
        match &mut serving.body {
            Body::Here(bytes) => {
                let bytes = std::mem::take(bytes);
                serving.phase = Phase::Running;
                self.run(member, call, bytes);
            }
            Body::There(length) => {
                let length = *length;
                serving.phase = Phase::Fetching;
                let task = self.fetch_request(member, call, length);
                self.set_serving_task(member, call, Some(task));
            }
        }
    }

    /// The large body of a request is here, or cannot be had.
    pub(super) fn request_came(
        &mut self,
        member: usize,
        call: u64,
        fetched: Option<Result<Bytes, Fault>>,
    ) {
        let serving = self.state.peers[member].serving.get_mut(&call);
        if serving.is_none_or(|serving| serving.phase != Phase::Fetching) {
            return;
        }
        self.set_serving_task(member, call, None);
        match fetched {
            Some(Ok(body)) => self.run(member, call, body),
            Some(Err(fault)) => self.handled(member, call, Err(fault)),
            None => self.handled(member, call, Err(Fault::bare(FailureCode::Cancelled))),
        }
    }

    fn set_serving_task(&mut self, member: usize, call: u64, task: Option<AbortHandle>) {
        if let Some(serving) = self.state.peers[member].serving.get_mut(&call) {
            serving.task = task;
        }
    }

    fn run(&mut self, member: usize, call: u64, body: Bytes) {
        let own = member == self.inner.group.rank();
        let Some(serving) = self.state.peers[member].serving.get_mut(&call) else {
            return;
        };
        serving.phase = Phase::Running;
        if serving.streamed && !own {
            let items = serving.items.insert(Arc::default()).clone();
            let task = super::items::spawn_writer(self.inner, member, call, items);
            serving.task = Some(task);
        }
        let Ok(method) = &serving.method else { return };
        let inner = self.inner.hub.inner();
        let job = Job {
            context: CallContext {
                inner: inner.clone(),
                source: member,
                depth: serving.depth,
                deadline: serving.deadline,
                control: Arc::clone(&serving.control),
            },
            body,
            items: serving.items.clone(),
            answer: Pledge::new(inner, member, call),
        };
        self.after.start.push((Arc::clone(method), job));
        if !own {
            self.handler_starts();
        }
    }

    /// A handler has ended, or the call ends without one.
    pub(super) fn handled(&mut self, member: usize, call: u64, outcome: Result<Bytes, Fault>) {
        self.state.handlers = self.state.handlers.saturating_sub(1);
        let Some(serving) = self.state.peers[member].serving.get_mut(&call) else {
            return;
        };
        let limit = self.inner.max_body;
        let outcome = match outcome {
            Ok(reply) if reply.len() > limit => Err(Fault::too_large(reply.len() as u64, limit)),
            outcome => outcome,
        };
        if member == self.inner.group.rank() {
            return self.answer_own(call, outcome);
        }
        if let Some(items) = &serving.items
            && serving.task.is_some()
        {
            // The one who writes the items goes on.
            let outcome = outcome.map(drop).map_err(Cause::Fault);
            self.after.ended.push((items.clone(), outcome));
            serving.phase = Phase::Streaming;
            return;
        }
        match outcome {
            Ok(reply) if reply.len() > INLINE_LIMIT => {
                let length = reply.len() as u64;
                serving.phase = Phase::Replying(reply);
                let large = true;
                let frame = Frame::Reply {
                    call,
                    large,
                    length,
                };
                self.answer(member, &frame, Bytes::new());
            }
            Ok(reply) => {
                let frame = Frame::Reply {
                    call,
                    large: false,
                    length: reply.len() as u64,
                };
                self.done(member, call);
                self.answer(member, &frame, reply);
            }
            Err(Fault { code, text }) => {
                let frame = Frame::Failed {
                    call,
                    code,
                    length: text.len() as u64,
                };
                self.done(member, call);
                self.answer(member, &frame, text);
            }
        }
        self.wake_drains();
    }

    fn answer_own(&mut self, call: u64, outcome: Result<Bytes, Fault>) {
        let own = self.inner.group.rank();
        let serving = self.done(own, call);
        let streamed = serving.is_some_and(|serving| serving.items.is_some());
        let items = self.items_of_call(call);
        // The future of the call may be gone.
        if self.callee_done(own, call).is_ok() {
            let answer = match outcome {
                Ok(_) if streamed => {
                    if let Some(items) = items {
                        self.after.ended.push((items, Ok(())));
                    }
                    Answer::Streamed
                }
                Ok(reply) => Answer::Reply(reply),
                Err(fault) => Answer::Failed(fault.into_cause()),
            };
            self.answered(call, answer);
        }
        self.wake_drains();
    }

    /// A call has been answered: its place is free.
    fn done(&mut self, member: usize, call: u64) -> Option<Serving<T>> {
        let peer = &mut self.state.peers[member];
        let serving = peer.serving.remove(&call)?;
        let kind = kind_of(serving.depth);
        peer.taken[kind].remove(serving.cost);
        if serving.phase != Phase::New && kind == 0 {
            self.state.running = self.state.running.saturating_sub(1);
            self.start_starved();
        }
        Some(serving)
    }

    /// Queues an answer, if there is still somebody to hear it.
    fn answer(&mut self, member: usize, frame: &Frame, body: Bytes) {
        let alone = self.state.handlers == 0 && !self.state.attendance.active;
        let peer = &mut self.state.peers[member];
        if peer.left.is_some() || self.state.failure.is_some() {
            return;
        }
        peer.queue.push(&frame.encode(), body);
        if alone {
            self.write(member);
        } else {
            // Others are about to answer, too: what they say goes out together.
            self.inner.hub.set_ready(member);
        }
    }

    /// The caller asks for the body of a reply.
    pub(super) fn asked_reply(&mut self, member: usize, call: u64) {
        let serving = self.state.peers[member].serving.get_mut(&call);
        let body = serving.and_then(|serving| match &mut serving.phase {
            Phase::Replying(body) if serving.task.is_none() => Some(std::mem::take(body)),
            _ => None,
        });
        if let Some(body) = body {
            let task = self.send_reply_body(member, call, body);
            self.set_serving_task(member, call, Some(task));
        }
    }

    /// A large reply has been written.
    pub(super) fn reply_written(&mut self, member: usize, call: u64) {
        self.done(member, call);
        self.wake_drains();
    }

    /// All items of a streamed reply have been written, or nobody wants them.
    pub(super) fn items_written(&mut self, member: usize, call: u64) {
        if let Some(serving) = self.state.peers[member].serving.get_mut(&call) {
            serving.task = None;
            if serving.phase == Phase::Streaming {
                self.done(member, call);
                self.answer(member, &Frame::StreamOver { call }, Bytes::new());
            }
        }
        self.wake_drains();
    }

    /// The caller has taken items of a streamed reply.
    pub(super) fn give_credit(&mut self, member: usize, call: u64, bytes: u64) {
        let serving = self.state.peers[member].serving.get(&call);
        if let Some(items) = serving.and_then(|serving| serving.items.clone()) {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.after.wake.extend(items.taken(bytes));
        }
    }

    /// A call is not wanted any more, or its time is over.
    pub(super) fn stop_serving(&mut self, member: usize, call: u64, why: FailureCode) {
        let Some(serving) = self.state.peers[member].serving.get_mut(&call) else {
            return;
        };
        let cancelled = why == FailureCode::Cancelled;
        match serving.phase {
            Phase::New => {
                let kind = kind_of(serving.depth);
                self.state.peers[member].backlog[kind].retain(|waiting| *waiting != call);
                self.state.handlers += 1;
                self.handled(member, call, Err(Fault::bare(why)));
            }
            Phase::Fetching => {
                if let Some(task) = serving.task.take() {
                    task.abort();
                }
                self.state.peers[member]
                    .wanted
                    .remove(&super::bulk::request_lane(call));
                self.handled(member, call, Err(Fault::bare(why)));
            }
            Phase::Running => {
                // Nobody wants the items that have been written.
                if let Some(task) = serving.task.take_if(|_| cancelled) {
                    task.abort();
                }
                if let Some(items) = serving.items.clone().filter(|_| cancelled) {
                    let end = Err(Cause::Failed(Failure::ShutDown));
                    self.after.ended.push((items, end));
                }
                let control = Arc::clone(&serving.control);
                self.after.stop.push((control, why));
            }
            Phase::Streaming if !cancelled => {}
            Phase::Streaming | Phase::Replying(_) => {
                if let Some(task) = serving.task.take() {
                    task.abort();
                }
                let streamed = serving.phase == Phase::Streaming;
                self.done(member, call);
                if streamed {
                    self.answer(member, &Frame::StreamOver { call }, Bytes::new());
                }
                self.wake_drains();
            }
        }
    }

    /// Nobody waits for the answers to a member's calls any more.
    pub(super) fn abandon_served(&mut self, member: usize) {
        let calls: Vec<u64> = self.state.peers[member].serving.keys().copied().collect();
        for call in calls {
            self.stop_serving(member, call, FailureCode::Cancelled);
        }
    }
}
