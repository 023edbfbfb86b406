//! The functions of the driver as C sees them.
//!
//! Handles and addresses are numbers here, which C passes as it does pointers. A panic aborts the process with a
//! message, as in every function of this kind.

use crate::{
    alloc,
    codes::{self, Code, SUCCESS},
    context, copy,
    driver::enter,
    stream,
};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

/// Version 12.0.
const VERSION: c_int = 12_000;

/// Where a result is to be written: a pointer that C passes.
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Refuses null, before anything is done that would be lost.
    fn check(&self) -> Result<(), Code> {
        match self.0.is_null() {
            true => Err(codes::INVALID_VALUE),
            false => Ok(()),
        }
    }

    fn put(self, value: T) -> Result<(), Code> {
        self.check()?;
        // SAFETY: only callers of the functions below make one, and promise that there is room.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// Writes text with its end, as much as there is room for.
fn put_text(text: &str, to: *mut c_char, len: c_int) -> Result<(), Code> {
    let room = usize::try_from(len).unwrap_or(0);
    if to.is_null() || room == 0 {
        return Err(codes::INVALID_VALUE);
    }
    let bytes = &text.as_bytes()[..text.len().min(room - 1)];
    // SAFETY: only callers of the functions below pass pointers, and promise that there is so much room.
    unsafe {
        to.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
        to.add(bytes.len()).write(0);
    }
    Ok(())
}

macro_rules! exports {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) |$state:pat_param| $body:expr;)*) => {
        /// Names of all functions of the driver.
        pub(crate) const CALLS: &[&str] = &[$(stringify!($name)),*];

        $(
            /// # Safety
            ///
            /// What the driver's documentation of the function asks for.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                let run = || -> Result<(), Code> {
                    let $state = enter(stringify!($name))?;
                    $body
                };
                run().err().unwrap_or(SUCCESS)
            }
        )*
    };
}

exports! {
    cuInit(flags: c_uint) |mut state| context::init(&mut state, flags);
    cuDriverGetVersion(version: Out<c_int>) |_state| version.put(VERSION);
    cuGetErrorName(code: c_int, name: Out<*const c_char>) |_state| {
        match codes::describe(code) {
            Some((words, _)) => name.put(words.as_ptr()),
            None => name.put(std::ptr::null()).and(Err(codes::INVALID_VALUE)),
        }
    };
    cuGetErrorString(code: c_int, text: Out<*const c_char>) |_state| {
        match codes::describe(code) {
            Some((_, words)) => text.put(words.as_ptr()),
            None => text.put(std::ptr::null()).and(Err(codes::INVALID_VALUE)),
        }
    };

    cuDeviceGetCount(count: Out<c_int>) |state| {
        count.put(c_int::try_from(state.devices.len()).unwrap_or(c_int::MAX))
    };
    cuDeviceGet(device: Out<c_int>, ordinal: c_int) |state| {
        context::device(&state, ordinal)?;
        device.put(ordinal)
    };
    cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) |state| {
        let device = context::device(&state, device)?;
        put_text(&format!("Stub GPU {device}"), name, len)
    };
    cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) |state| {
        let device = context::device(&state, device)?;
        value.put(context::attribute(device, attribute)?)
    };
    cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: c_int) |state| {
        let device = context::device(&state, device)?;
        put_text(&format!("0000:{:02X}:00.0", device + 1), id, len)
    };

    cuDevicePrimaryCtxRetain(context: Out<usize>, device: c_int) |mut state| {
        context.check()?;
        let device = context::device(&state, device)?;
        context.put(context::retain(&mut state, device)?)
    };
    cuDevicePrimaryCtxRelease_v2(device: c_int) |state| {
        let device = context::device(&state, device)?;
        context::release(state, device)
    };
    cuCtxGetCurrent(context: Out<usize>) |_state| context.put(context::current_handle());
    cuCtxSetCurrent(context: usize) |state| context::set_current(&state, context);
    cuCtxSynchronize() |state| context::synchronize(state);

    cuMemAlloc_v2(address: Out<u64>, bytes: usize) |mut state| {
        address.check()?;
        address.put(alloc::allocate(&mut state, bytes)?)
    };
    cuMemFree_v2(address: u64) |state| alloc::free(state, address);
    cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: usize) |mut state| {
        address.check()?;
        address.put(alloc::allocate_async(&mut state, bytes, stream)?)
    };
    cuMemFreeAsync(address: u64, stream: usize) |mut state| {
        alloc::free_async(&mut state, address, stream)
    };
    cuMemHostAlloc(address: Out<usize>, bytes: usize, flags: c_uint) |mut state| {
        address.check()?;
        address.put(alloc::allocate_pinned(&mut state, bytes, flags)?)
    };
    cuMemFreeHost(address: usize) |state| alloc::free_pinned(state, address);
    cuMemHostRegister_v2(address: usize, bytes: usize, flags: c_uint) |mut state| {
        alloc::register(&mut state, address, bytes, flags)
    };
    cuMemHostUnregister(address: usize) |state| alloc::unregister(state, address);

    cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: usize) |state| {
        // SAFETY: the caller's.
        unsafe { copy::to_device(state, to, from, bytes, stream) }
    };
    cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: usize) |state| {
        copy::to_host(state, to, from, bytes, stream)
    };
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) |mut state| {
        let stream = stream::find(&mut state, stream)?;
        let context = stream.context;
        copy::between(&mut state, (context, to), (context, from), bytes, stream)
    };
    cuMemcpyPeerAsync(
        to: u64, to_context: usize, from: u64, from_context: usize, bytes: usize, stream: usize,
    ) |mut state| {
        let (to, from) = ((to_context, to), (from_context, from));
        copy::peer(&mut state, to, from, bytes, stream)
    };
    cuMemsetD8Async(to: u64, byte: c_uchar, bytes: usize, stream: usize) |mut state| {
        copy::fill(&mut state, to, byte, bytes, stream)
    };

    cuStreamCreate(stream: Out<usize>, flags: c_uint) |mut state| {
        stream.check()?;
        stream.put(stream::create(&mut state, flags)?)
    };
    cuStreamCreateWithPriority(stream: Out<usize>, flags: c_uint, _priority: c_int) |mut state| {
        stream.check()?;
        stream.put(stream::create(&mut state, flags)?)
    };
    cuStreamDestroy_v2(stream: usize) |mut state| stream::destroy(&mut state, stream);
    cuStreamSynchronize(stream: usize) |state| stream::synchronize(state, stream);
    cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint) |mut state| {
        stream::wait_event(&mut state, stream, event, flags)
    };

    cuEventCreate(event: Out<usize>, flags: c_uint) |mut state| {
        event.check()?;
        event.put(stream::create_event(&mut state, flags)?)
    };
    cuEventDestroy_v2(event: usize) |mut state| stream::destroy_event(&mut state, event);
    cuEventRecord(event: usize, stream: usize) |mut state| {
        stream::record(&mut state, event, stream)
    };
    cuEventQuery(event: usize) |state| stream::query(&state, event);
    cuEventSynchronize(event: usize) |state| stream::synchronize_event(state, event);

    cuPointerGetAttribute(value: *mut c_void, attribute: c_uint, address: u64) |state| {
        match alloc::attribute(&state, attribute, address)? {
            (found, true) if !value.is_null() => {
                // SAFETY: the caller's.
                unsafe { found.write(value) };
                Ok(())
            }
            _ => Err(codes::INVALID_VALUE),
        }
    };
    cuPointerGetAttributes(
        count: c_uint, attributes: *const c_uint, values: *const *mut c_void, address: u64,
    ) |state| {
        if attributes.is_null() || values.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        for index in 0..count as usize {
            // SAFETY: the caller's: both have so many elements.
            let (attribute, value) = unsafe { (*attributes.add(index), *values.add(index)) };
            let (found, _) = alloc::attribute(&state, attribute, address)?;
            if value.is_null() {
                return Err(codes::INVALID_VALUE);
            }
            // SAFETY: the caller's.
            unsafe { found.write(value) };
        }
        Ok(())
    };
    cuMemGetAddressRange_v2(start: Out<u64>, bytes: Out<usize>, address: u64) |state| {
        let (first, len) = alloc::range(&state, address)?;
        // Either may be null.
        let _ = (start.put(first), bytes.put(len));
        Ok(())
    };
}
