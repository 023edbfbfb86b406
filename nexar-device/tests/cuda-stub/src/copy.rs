//! Copies and fills as they are asked for.

use crate::{
    codes::{self, Code},
    context,
    driver::{Guard, State, wait_for},
    memory::Place,
    ops::Work,
    stream::{self, StreamRef},
};
use std::{ptr, slice, sync::Arc};

/// Copies from pageable memory that are longer return when they are done.
const STAGED_AT_ONCE: usize = 64 << 10;

/// # Safety
///
/// There are so many bytes at `from`.
pub(crate) unsafe fn to_device(
    mut state: Guard,
    to: u64,
    from: usize,
    len: usize,
    stream: usize,
) -> Result<(), Code> {
    let stream = stream::find(&mut state, stream)?;
    check_device(&state, stream.context, to)?;
    check_host(&state, from)?;
    if len == 0 {
        return mark(&mut state, stream);
    }
    let pageable = !state.memory.is_pinned(from, len);
    let from = match pageable {
        true => {
            let start = ptr::with_exposed_provenance::<u8>(from);
            // SAFETY: the caller's.
            Place::Staged(Arc::from(unsafe { slice::from_raw_parts(start, len) }))
        }
        false => Place::Host(from),
    };
    let context = stream.context;
    let to = Place::Device {
        context,
        address: to,
    };
    let wait = pageable && len > STAGED_AT_ONCE;
    enqueue(state, stream, Work::Copy { to, from, len }, pageable, wait)
}

pub(crate) fn to_host(
    mut state: Guard,
    to: usize,
    from: u64,
    len: usize,
    stream: usize,
) -> Result<(), Code> {
    let stream = stream::find(&mut state, stream)?;
    check_device(&state, stream.context, from)?;
    check_host(&state, to)?;
    if len == 0 {
        return mark(&mut state, stream);
    }
    let pageable = !state.memory.is_pinned(to, len);
    let to = Place::Host(to);
    let context = stream.context;
    let from = Place::Device {
        context,
        address: from,
    };
    let work = Work::Copy { to, from, len };
    enqueue(state, stream, work, pageable, pageable)
}

fn enqueue(
    mut state: Guard,
    stream: StreamRef,
    work: Work,
    pageable: bool,
    wait: bool,
) -> Result<(), Code> {
    if pageable {
        state.counters.add("pageable_copies", 1);
        state.counters.add("synchronizing_calls", 1);
    }
    let id = stream::push(&mut state, stream, work, 0);
    if wait {
        state = wait_for(state, &[id]);
        context::check(&state, stream.context)?;
    }
    Ok(())
}

/// Copies between two contexts, or within one.
pub(crate) fn between(
    state: &mut State,
    (to_context, to): (usize, u64),
    (from_context, from): (usize, u64),
    len: usize,
    stream: StreamRef,
) -> Result<(), Code> {
    check_device(state, to_context, to)?;
    check_device(state, from_context, from)?;
    if len == 0 {
        return mark(state, stream);
    }
    let place = |context, address| Place::Device { context, address };
    let (to, from) = (place(to_context, to), place(from_context, from));
    stream::push(state, stream, Work::Copy { to, from, len }, 0);
    Ok(())
}

/// Between contexts that are given by their handles.
pub(crate) fn peer(
    state: &mut State,
    to: (usize, u64),
    from: (usize, u64),
    len: usize,
    stream: usize,
) -> Result<(), Code> {
    let stream = stream::find(state, stream)?;
    let side = |(handle, address)| -> Result<(usize, u64), Code> {
        let context = context::of_handle(state, handle)?;
        context::check(state, context)?;
        Ok((context, address))
    };
    let (to, from) = (side(to)?, side(from)?);
    between(state, to, from, len, stream)
}

pub(crate) fn fill(
    state: &mut State,
    address: u64,
    byte: u8,
    len: usize,
    stream: usize,
) -> Result<(), Code> {
    let stream = stream::find(state, stream)?;
    let context = stream.context;
    if context != context::current(state)? {
        return Err(codes::INVALID_HANDLE);
    }
    check_device(state, context, address)?;
    if len == 0 {
        return mark(state, stream);
    }
    let to = Place::Device { context, address };
    stream::push(state, stream, Work::Fill { to, byte, len }, 0);
    Ok(())
}

fn mark(state: &mut State, stream: StreamRef) -> Result<(), Code> {
    stream::push(state, stream, Work::Mark, 0);
    Ok(())
}

/// Memory of another context is refused at once; what is no memory breaks the context when the copy runs.
fn check_device(state: &State, context: usize, address: u64) -> Result<(), Code> {
    match state.memory.find(address) {
        Some(found) if found.on_device && found.context != context => Err(codes::INVALID_VALUE),
        _ => Ok(()),
    }
}

fn check_host(state: &State, address: usize) -> Result<(), Code> {
    match address == 0 || state.memory.is_device_address(address as u64) {
        true => Err(codes::INVALID_VALUE),
        false => Ok(()),
    }
}
