//! Copies from and to memory that is not pinned, by the driver itself.

use super::Result;
use libloading::Library;
use nexar_collectives::cuda::CudaBuffer;
use std::{ffi::c_void, path::Path};

type CopyOut = unsafe extern "C" fn(*mut c_void, u64, usize) -> i32;
type CopyIn = unsafe extern "C" fn(u64, *const c_void, usize) -> i32;

/// The driver's functions, and the memory of a buffer.
pub(crate) struct Pageable {
    copy_out: CopyOut,
    copy_in: CopyIn,
    address: u64,
    bytes: usize,
    _driver: Library,
}

impl Pageable {
    /// None if the driver does not have the functions. The buffer is used later, too.
    pub(crate) fn new(path: Option<&Path>, buffer: &CudaBuffer<f32>) -> Option<Pageable> {
        let path = path.unwrap_or(Path::new("libcuda.so.1"));
        // SAFETY: the library is the driver, which is loaded already; the signatures are the driver's.
        unsafe {
            let driver = Library::new(path).ok()?;
            let copy_out = *driver.get::<CopyOut>(b"cuMemcpyDtoH_v2\0").ok()?;
            let copy_in = *driver.get::<CopyIn>(b"cuMemcpyHtoD_v2\0").ok()?;
            let retain = *driver
                .get::<unsafe extern "C" fn(*mut *mut c_void, i32) -> i32>(
                    b"cuDevicePrimaryCtxRetain\0",
                )
                .ok()?;
            let bind = *driver
                .get::<unsafe extern "C" fn(*mut c_void) -> i32>(b"cuCtxSetCurrent\0")
                .ok()?;
            let nexar_collectives::MemorySpace::Device(ordinal) = buffer.space() else {
                return None;
            };
            let mut context = std::ptr::null_mut();
            // It stays retained and current to the end of the process.
            if retain(&mut context, ordinal as i32) != 0 || bind(context) != 0 {
                return None;
            }
            Some(Pageable {
                copy_out,
                copy_in,
                address: buffer.address(),
                bytes: buffer.len() * size_of::<f32>(),
                _driver: driver,
            })
        }
    }

    pub(crate) fn copy_out(&mut self, to: &mut [f32]) -> Result<()> {
        let bytes = self.bytes.min(size_of_val(to));
        // SAFETY: both have as many bytes.
        check(unsafe { (self.copy_out)(to.as_mut_ptr().cast(), self.address, bytes) })
    }

    pub(crate) fn copy_in(&mut self, from: &[f32]) -> Result<()> {
        let bytes = self.bytes.min(size_of_val(from));
        // SAFETY: as above.
        check(unsafe { (self.copy_in)(self.address, from.as_ptr().cast(), bytes) })
    }
}

fn check(code: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(format!("the driver's copy failed with code {code}").into()),
    }
}
