//! Devices, their primary contexts, and the context of the calling thread.

use crate::{
    codes::{self, Code},
    driver::{Guard, State, wait_for},
    ops::OpId,
};
use std::{cell::Cell, ffi::c_int, time::Instant};

/// What carries copies out. Those of one engine share its bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// From the device to the host.
    Out,
    /// From the host to the device.
    In,
    /// Within a device, and between two.
    Inner,
}

/// A device and its primary context.
pub(crate) struct Device {
    pub(crate) handle: usize,
    retained: u64,
    error: Option<Code>,
    /// Last work of the legacy default stream.
    pub(crate) legacy: OpId,
    /// When each engine is free, if nothing else is given to it.
    pub(crate) free_at: [Instant; 3],
}

thread_local! {
    /// Handle of the context, 0 for none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

pub(crate) fn init(state: &mut State, flags: u32) -> Result<(), Code> {
    if flags != 0 {
        return Err(codes::INVALID_VALUE);
    }
    if state.settings.devices == 0 {
        return Err(codes::NO_DEVICE);
    }
    if state.initialised {
        return Ok(());
    }
    state.memory.reserve()?;
    for _ in 0..state.settings.devices {
        let device = Device {
            handle: state.new_handle(),
            retained: 0,
            error: None,
            legacy: 0,
            free_at: [Instant::now(); 3],
        };
        state.devices.push(device);
    }
    state.initialised = true;
    Ok(())
}

/// The index of a device.
pub(crate) fn device(state: &State, device: c_int) -> Result<usize, Code> {
    let index = usize::try_from(device).map_err(|_| codes::INVALID_DEVICE)?;
    match index < state.devices.len() {
        true => Ok(index),
        false => Err(codes::INVALID_DEVICE),
    }
}

pub(crate) fn retain(state: &mut State, device: usize) -> Result<usize, Code> {
    let device = &mut state.devices[device];
    match device.error {
        Some(code) => Err(code),
        None => {
            device.retained += 1;
            Ok(device.handle)
        }
    }
}

/// The last release destroys all that belongs to the context.
pub(crate) fn release(mut state: Guard, device: usize) -> Result<(), Code> {
    match state.devices[device].retained {
        0 => return Err(codes::INVALID_CONTEXT),
        1 => {
            let work = state.ops.of_context(device);
            state = wait_for(state, &work);
        }
        _ => {}
    }
    let record = &mut state.devices[device];
    record.retained = record.retained.saturating_sub(1);
    if record.retained == 0 {
        record.legacy = 0;
        state.streams.retain(|_, stream| stream.context != device);
        state.events.retain(|_, event| event.context != device);
        state.memory.destroy_context(device);
    }
    Ok(())
}

pub(crate) fn retained(state: &State) -> u64 {
    state.devices.iter().map(|device| device.retained).sum()
}

pub(crate) fn current_handle() -> usize {
    CURRENT.get()
}

pub(crate) fn set_current(state: &State, handle: usize) -> Result<(), Code> {
    if handle != 0 {
        let context = of_handle(state, handle)?;
        if state.devices[context].retained == 0 {
            return Err(codes::INVALID_CONTEXT);
        }
    }
    CURRENT.set(handle);
    Ok(())
}

/// The context with this handle, whatever its state.
pub(crate) fn of_handle(state: &State, handle: usize) -> Result<usize, Code> {
    let mut devices = state.devices.iter();
    devices
        .position(|device| device.handle == handle)
        .ok_or(codes::INVALID_CONTEXT)
}

/// The calling thread's context, which works.
pub(crate) fn current(state: &State) -> Result<usize, Code> {
    let context = of_handle(state, CURRENT.get())?;
    check(state, context)?;
    Ok(context)
}

/// Whether the context works.
pub(crate) fn check(state: &State, context: usize) -> Result<(), Code> {
    let device = &state.devices[context];
    match device.error {
        Some(code) => Err(code),
        None if device.retained == 0 => Err(codes::CONTEXT_IS_DESTROYED),
        None => Ok(()),
    }
}

pub(crate) fn is_broken(state: &State, context: usize) -> bool {
    state.devices[context].error.is_some()
}

/// All calls in this context fail with the code from now on, until the process ends.
pub(crate) fn break_context(state: &mut State, context: usize, code: Code) {
    state.devices[context].error.get_or_insert(code);
}

pub(crate) fn break_current(state: &mut State, code: Code) {
    if let Ok(context) = of_handle(state, CURRENT.get()) {
        break_context(state, context, code);
    }
}

/// Blocks until all work of the current context is done.
pub(crate) fn synchronize(state: Guard) -> Result<(), Code> {
    let context = current(&state)?;
    let work = state.ops.of_context(context);
    let state = wait_for(state, &work);
    check(&state, context)
}

/// Values of `CUdevice_attribute`; those that are not known are 0.
pub(crate) fn attribute(device: usize, attribute: c_int) -> Result<c_int, Code> {
    const LAST: c_int = 150;
    match attribute {
        // Threads per block.
        1 => Ok(1024),
        // Overlap, mapping of host memory, concurrent kernels.
        15 | 19 | 31 => Ok(1),
        // Multiprocessors.
        16 => Ok(2),
        // PCI bus, device, domain.
        33 => Ok(c_int::try_from(device)
            .unwrap_or(c_int::MAX)
            .saturating_add(1)),
        34 | 50 => Ok(0),
        // Copy engines.
        40 => Ok(2),
        // Unified addresses.
        41 => Ok(1),
        // Compute capability 8.0.
        75 => Ok(8),
        76 => Ok(0),
        // Stream priorities, pinned pointers on the device, registering, memory pools.
        78 | 91 | 99 | 115 => Ok(1),
        _ if (1..LAST).contains(&attribute) => Ok(0),
        _ => Err(codes::INVALID_VALUE),
    }
}
