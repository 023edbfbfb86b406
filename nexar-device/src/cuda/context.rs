//! A device's primary context, which its streams, events and memory belong to.

use super::{
    chores::Chores,
    driver::{self, Driver, Handle},
    error::CudaError,
};
use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::Arc,
};

/// The primary context of a device: the one that the CUDA runtime, and with it everybody, uses. It is retained
/// as long as this exists.
#[derive(Debug)]
pub(super) struct Context {
    driver: Arc<Driver>,
    ordinal: u32,
    device: c_int,
    handle: usize,
    chores: Chores,
}

impl Context {
    pub(super) fn retain(
        driver: &Arc<Driver>,
        ordinal: u32,
        chores: &Chores,
    ) -> Result<Arc<Context>, CudaError> {
        let device = driver.device(ordinal)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the device exists, and `handle` is there to be written.
        unsafe { driver.primary_ctx_retain(&mut handle, device)? };
        Ok(Arc::new(Context {
            driver: Arc::clone(driver),
            ordinal,
            device,
            handle: handle.addr(),
            chores: chores.clone(),
        }))
    }

    pub(super) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(super) fn chores(&self) -> &Chores {
        &self.chores
    }

    /// Makes the context the calling thread's, until the result is dropped.
    pub(super) fn bind(&self) -> Result<Bound<'_>, CudaError> {
        let driver = &*self.driver;
        let mut before = ptr::null_mut();
        // SAFETY: `before` is there to be written.
        unsafe { driver.ctx_get_current(&mut before)? };
        let own = handle(self.handle);
        if before != own {
            // SAFETY: the context is retained.
            unsafe { driver.ctx_set_current(own)? };
        }
        Ok(Bound {
            driver,
            own,
            before,
        })
    }

    /// Frees on the thread for chores, with the context bound.
    pub(super) fn give(self: &Arc<Self>, free: impl FnOnce(&Driver) + Send + 'static) {
        let context = Arc::clone(self);
        self.chores.give(move || {
            // Where the context is lost, so is what was to be freed.
            if let Ok(bound) = context.bind() {
                free(&bound);
            }
        });
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let (driver, device) = (Arc::clone(&self.driver), self.device);
        self.chores.give(move || {
            // SAFETY: it was retained once, and all that belongs to it is freed.
            let _ = unsafe { driver.primary_ctx_release(device) };
        });
    }
}

/// The driver, with a context that is the calling thread's.
pub(super) struct Bound<'a> {
    driver: &'a Driver,
    own: Handle,
    /// The thread's context before.
    before: Handle,
}

impl std::ops::Deref for Bound<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if self.before != self.own {
            // SAFETY: it was the thread's context; if it is gone, the driver refuses.
            let _ = unsafe { self.driver.ctx_set_current(self.before) };
        }
    }
}

/// The driver's handle with this number.
pub(super) fn handle(number: usize) -> Handle {
    ptr::without_provenance_mut(number)
}

/// What the driver knows of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// Memory of a device.
    Device(u32),
    /// Host memory, or memory that the driver does not know.
    Host,
}

/// Where an address lies. A context need not be bound, but some drivers want it.
pub(super) fn locate(driver: &Driver, address: u64) -> Result<Location, CudaError> {
    const MEMORY_TYPE: c_uint = 2;
    const DEVICE_ORDINAL: c_uint = 9;
    const DEVICE: c_uint = 2;
    const UNIFIED: c_uint = 4;

    let mut attributes = [MEMORY_TYPE, DEVICE_ORDINAL];
    let (mut kind, mut ordinal): (c_uint, c_int) = (0, -1);
    let mut data: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
    // SAFETY: there are two attributes, and a place of the right type for each.
    let found = unsafe {
        driver.pointer_get_attributes(2, attributes.as_mut_ptr(), data.as_mut_ptr(), address)
    };
    match found {
        Err(error) if error.code() != Some(driver::INVALID_VALUE) => Err(error),
        Ok(()) if matches!(kind, DEVICE | UNIFIED) => Ok(match u32::try_from(ordinal) {
            Ok(ordinal) => Location::Device(ordinal),
            Err(_) => Location::Host,
        }),
        _ => Ok(Location::Host),
    }
}
