//! Streams and events: they only know the operations that new ones have to come after.

use crate::{
    codes::{self, Code},
    context,
    driver::{Guard, State, wait_for},
    ops::{OpId, Work},
};
use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

const LEGACY: usize = 1;
const PER_THREAD: usize = 2;
const NON_BLOCKING: u32 = 1;

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

pub(crate) struct Stream {
    pub(crate) context: usize,
    /// It and the legacy default stream wait for each other.
    blocking: bool,
    /// It has been destroyed, but not its work.
    destroyed: bool,
    /// The thread whose default stream it is.
    thread: Option<usize>,
    last: OpId,
}

pub(crate) struct Event {
    pub(crate) context: usize,
    /// What it was recorded as last.
    record: OpId,
}

/// A stream that exists.
#[derive(Clone, Copy)]
pub(crate) struct StreamRef {
    pub(crate) context: usize,
    /// None for the legacy default stream.
    key: Option<usize>,
}

/// The stream of a handle. Those that are not handles belong to the current context.
pub(crate) fn find(state: &mut State, handle: usize) -> Result<StreamRef, Code> {
    let current = context::current(state)?;
    let found = match handle {
        0 | LEGACY => StreamRef {
            context: current,
            key: None,
        },
        PER_THREAD => StreamRef {
            context: current,
            key: Some(of_thread(state, current)),
        },
        _ => match state.streams.get(&handle) {
            Some(stream) if !stream.destroyed && stream.thread.is_none() => StreamRef {
                context: stream.context,
                key: Some(handle),
            },
            _ => return Err(codes::INVALID_HANDLE),
        },
    };
    context::check(state, found.context)?;
    Ok(found)
}

fn of_thread(state: &mut State, context: usize) -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static THREAD: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    let thread = Some(THREAD.get());
    let mut streams = state.streams.iter();
    if let Some((key, _)) = streams.find(|(_, s)| s.context == context && s.thread == thread) {
        return *key;
    }
    insert(state, context, true, thread)
}

fn insert(state: &mut State, context: usize, blocking: bool, thread: Option<usize>) -> usize {
    let key = state.new_handle();
    let stream = Stream {
        context,
        blocking,
        destroyed: false,
        thread,
        last: 0,
    };
    state.streams.insert(key, stream);
    key
}

/// Adds work to a stream. `after` comes before it too.
pub(crate) fn push(state: &mut State, stream: StreamRef, work: Work, after: OpId) -> OpId {
    let context = stream.context;
    let legacy = state.devices[context].legacy;
    let mut before = vec![after];
    match stream.key.and_then(|key| state.streams.get(&key)) {
        Some(stream) => {
            before.push(stream.last);
            if stream.blocking {
                before.push(legacy);
            }
        }
        None => {
            before.push(legacy);
            let streams = state.streams.values();
            let blocking = streams.filter(|s| s.context == context && s.blocking);
            before.extend(blocking.map(|s| s.last));
        }
    }
    let id = state.enqueue(context, work, &before);
    match stream.key.and_then(|key| state.streams.get_mut(&key)) {
        Some(stream) => stream.last = id,
        None => state.devices[context].legacy = id,
    }
    id
}

pub(crate) fn create(state: &mut State, flags: u32) -> Result<usize, Code> {
    let context = context::current(state)?;
    if flags & !NON_BLOCKING != 0 {
        return Err(codes::INVALID_VALUE);
    }
    state.counters.add("live_streams", 1);
    let ops = &state.ops;
    (state.streams).retain(|_, stream| !stream.destroyed || ops.is_pending(stream.last));
    Ok(insert(state, context, flags & NON_BLOCKING == 0, None))
}

/// Its work goes on.
pub(crate) fn destroy(state: &mut State, handle: usize) -> Result<(), Code> {
    let stream = find(state, handle)?;
    match stream.key.and_then(|key| state.streams.get_mut(&key)) {
        Some(stream) if stream.thread.is_none() => stream.destroyed = true,
        _ => return Err(codes::INVALID_HANDLE),
    }
    state.counters.subtract("live_streams", 1);
    Ok(())
}

/// Blocks until all work of the stream is done.
pub(crate) fn synchronize(mut state: Guard, handle: usize) -> Result<(), Code> {
    let stream = find(&mut state, handle)?;
    let last = push(&mut state, stream, Work::Mark, 0);
    let state = wait_for(state, &[last]);
    context::check(&state, stream.context)
}

pub(crate) fn wait_event(
    state: &mut State,
    stream: usize,
    event: usize,
    flags: u32,
) -> Result<(), Code> {
    let stream = find(state, stream)?;
    let (_, record) = find_event(state, event)?;
    if flags != 0 {
        return Err(codes::INVALID_VALUE);
    }
    push(state, stream, Work::Mark, record);
    Ok(())
}

pub(crate) fn create_event(state: &mut State, flags: u32) -> Result<usize, Code> {
    let context = context::current(state)?;
    let known = flags & !7 == 0;
    if !known || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
        return Err(codes::INVALID_VALUE);
    }
    state.counters.add("live_events", 1);
    let handle = state.new_handle();
    state.events.insert(handle, Event { context, record: 0 });
    Ok(handle)
}

/// Context and last record of an event.
fn find_event(state: &State, handle: usize) -> Result<(usize, OpId), Code> {
    context::current(state)?;
    let event = state.events.get(&handle).ok_or(codes::INVALID_HANDLE)?;
    context::check(state, event.context)?;
    Ok((event.context, event.record))
}

pub(crate) fn destroy_event(state: &mut State, handle: usize) -> Result<(), Code> {
    find_event(state, handle)?;
    state.events.remove(&handle);
    state.counters.subtract("live_events", 1);
    Ok(())
}

pub(crate) fn record(state: &mut State, handle: usize, stream: usize) -> Result<(), Code> {
    let (context, _) = find_event(state, handle)?;
    let stream = find(state, stream)?;
    if stream.context != context {
        return Err(codes::INVALID_HANDLE);
    }
    let id = push(state, stream, Work::Mark, 0);
    if let Some(event) = state.events.get_mut(&handle) {
        event.record = id;
    }
    Ok(())
}

pub(crate) fn query(state: &State, handle: usize) -> Result<(), Code> {
    let (_, record) = find_event(state, handle)?;
    match state.ops.is_pending(record) {
        true => Err(codes::NOT_READY),
        false => Ok(()),
    }
}

/// Blocks until what was recorded last is done.
pub(crate) fn synchronize_event(state: Guard, handle: usize) -> Result<(), Code> {
    let (context, record) = find_event(&state, handle)?;
    let state = wait_for(state, &[record]);
    context::check(&state, context)
}
