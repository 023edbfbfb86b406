//! Allocating and freeing, and what is known of an address.

use crate::{
    codes::{self, Code},
    context,
    driver::{Guard, State, wait_for},
    ops::Work,
    stream,
};
use std::ffi::{c_int, c_uint, c_void};

const WRITE_COMBINED: u32 = 4;

pub(crate) fn allocate(state: &mut State, len: usize) -> Result<u64, Code> {
    let context = context::current(state)?;
    new_allocation(state, context, len, true)
}

fn new_allocation(
    state: &mut State,
    context: usize,
    len: usize,
    usable: bool,
) -> Result<u64, Code> {
    if len == 0 {
        return Err(codes::INVALID_VALUE);
    }
    let limit = state.settings.memory;
    let address = state.memory.allocate(context, len, limit, usable)?;
    state.counters.add("live_device_buffers", 1);
    state.counters.add("live_device_bytes", len as u64);
    Ok(address)
}

/// Waits for all work of the context, as the driver does.
pub(crate) fn free(mut state: Guard, address: u64) -> Result<(), Code> {
    let (context, len) = own_allocation(&state, address)?;
    if !state.ops.users(address, len).is_empty() {
        state.counters.add("freed_in_use", 1);
    }
    let work = state.ops.of_context(context);
    state = wait_for(state, &work);
    context::check(&state, context)?;
    if state.memory.allocation_len(address).is_none() {
        return Err(codes::INVALID_VALUE);
    }
    state.memory.free(address);
    state.counters.subtract("live_device_buffers", 1);
    state.counters.subtract("live_device_bytes", len as u64);
    Ok(())
}

/// Context and length of the allocation that begins here, if it is one of the current context.
fn own_allocation(state: &State, address: u64) -> Result<(usize, usize), Code> {
    let context = context::current(state)?;
    match state.memory.find(address) {
        Some(found) if found.on_device && found.start == address && found.context == context => {
            Ok((context, found.len))
        }
        _ => Err(codes::INVALID_VALUE),
    }
}

pub(crate) fn allocate_async(state: &mut State, len: usize, stream: usize) -> Result<u64, Code> {
    let stream = stream::find(state, stream)?;
    let address = new_allocation(state, stream.context, len, false)?;
    stream::push(state, stream, Work::Alloc(address), 0);
    Ok(address)
}

pub(crate) fn free_async(state: &mut State, address: u64, stream: usize) -> Result<(), Code> {
    let stream = stream::find(state, stream)?;
    match state.memory.find(address) {
        Some(found) if found.on_device && found.start == address => {}
        _ => return Err(codes::INVALID_VALUE),
    }
    stream::push(state, stream, Work::Free(address), 0);
    Ok(())
}

pub(crate) fn allocate_pinned(state: &mut State, len: usize, flags: u32) -> Result<usize, Code> {
    let context = context::current(state)?;
    if len == 0 || flags & !7 != 0 {
        return Err(codes::INVALID_VALUE);
    }
    let start = state.memory.allocate_pinned(context, len)?;
    count_pinned(state, len);
    if flags & WRITE_COMBINED != 0 {
        state.counters.add("write_combined", 1);
    }
    Ok(start)
}

fn count_pinned(state: &mut State, len: usize) {
    state.counters.add("live_pinned", 1);
    state.counters.add("live_pinned_bytes", len as u64);
}

pub(crate) fn register(
    state: &mut State,
    start: usize,
    len: usize,
    flags: u32,
) -> Result<(), Code> {
    let context = context::current(state)?;
    let on_device = state.memory.is_device_address(start as u64);
    if start == 0 || len == 0 || flags & !15 != 0 || on_device {
        return Err(codes::INVALID_VALUE);
    }
    state.memory.register(context, start, len)?;
    count_pinned(state, len);
    Ok(())
}

pub(crate) fn free_pinned(state: Guard, start: usize) -> Result<(), Code> {
    unpin(state, start, false, codes::INVALID_VALUE)
}

pub(crate) fn unregister(state: Guard, start: usize) -> Result<(), Code> {
    unpin(state, start, true, codes::HOST_MEMORY_NOT_REGISTERED)
}

/// Waits for the work that uses the memory. Memory that is not pinned in this way gives `otherwise`.
fn unpin(mut state: Guard, start: usize, registered: bool, otherwise: Code) -> Result<(), Code> {
    context::current(&state)?;
    let pinned = state.memory.pinned(start);
    let pinned = pinned.filter(|pinned| pinned.is_registered() == registered);
    let pinned = pinned.ok_or(otherwise)?;
    let (context, len) = (pinned.context, pinned.len);
    context::check(&state, context)?;
    let users = state.ops.users(start as u64, len);
    if !users.is_empty() {
        state.counters.add("freed_in_use", 1);
        state = wait_for(state, &users);
        context::check(&state, context)?;
    }
    if state.memory.pinned(start).is_none() {
        return Err(otherwise);
    }
    state.memory.unpin(start);
    state.counters.subtract("live_pinned", 1);
    state.counters.subtract("live_pinned_bytes", len as u64);
    Ok(())
}

/// Start and length of the allocation of a device that the address is in.
pub(crate) fn range(state: &State, address: u64) -> Result<(u64, usize), Code> {
    context::current(state)?;
    match state.memory.find(address) {
        Some(found) if found.on_device => Ok((found.start, found.len)),
        _ => Err(codes::NOT_FOUND),
    }
}

/// The value of a `CUpointer_attribute`, with the size that it has in the driver.
pub(crate) enum Attribute {
    Pointer(u64),
    Int(c_int),
    Bool(bool),
}

/// An attribute of an address; the second value is false where the address does not have it.
pub(crate) fn attribute(
    state: &State,
    attribute: c_uint,
    address: u64,
) -> Result<(Attribute, bool), Code> {
    use Attribute::{Bool, Int, Pointer};
    const NO_DEVICE: c_int = -2;
    let found = state.memory.find(address);
    let found = found.as_ref();
    let known = found.is_some();
    let value = match attribute {
        // Context.
        1 => Pointer(found.map_or(0, |f| state.devices[f.context].handle as u64)),
        // Memory type: none, host, device.
        2 => Int(found.map_or(0, |f| if f.on_device { 2 } else { 1 })),
        // Pointer for devices.
        3 => Pointer(if known { address } else { 0 }),
        // Pointer for the host.
        4 => {
            let host = found.is_some_and(|f| !f.on_device);
            return Ok((Pointer(if host { address } else { 0 }), host));
        }
        // Whether synchronous calls always are.
        6 => Bool(false),
        // Number of the allocation.
        7 | 20 => Pointer(found.map_or(0, |f| f.id)),
        // Whether it is managed.
        8 => Bool(false),
        // Device.
        9 => Int(found.map_or(NO_DEVICE, |f| {
            c_int::try_from(f.context).unwrap_or(NO_DEVICE)
        })),
        // Whether it can be sent to other processes.
        10 => Bool(found.is_some_and(|f| f.on_device)),
        // The allocation, and its mapping.
        11 | 19 => Pointer(found.map_or(0, |f| f.start)),
        12 | 18 => Pointer(found.map_or(0, |f| f.len as u64)),
        // Whether it is mapped.
        13 => Bool(known),
        // Types of handles, whether other devices of the bus reach it, memory pool.
        14 => Pointer(0),
        15 => Bool(false),
        // Read and write.
        16 => Int(if known { 3 } else { 0 }),
        17 => Pointer(0),
        _ => return Err(codes::INVALID_VALUE),
    };
    Ok((value, known))
}

impl Attribute {
    /// # Safety
    ///
    /// There is room for the value.
    pub(crate) unsafe fn write(self, to: *mut c_void) {
        // SAFETY: the caller's; nothing is known of its alignment.
        unsafe {
            match self {
                Attribute::Pointer(value) => to.cast::<u64>().write_unaligned(value),
                Attribute::Int(value) => to.cast::<c_int>().write_unaligned(value),
                Attribute::Bool(value) => to.cast::<u8>().write(value.into()),
            }
        }
    }
}
