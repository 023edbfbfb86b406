//! The driver's library, and its functions as a table.

use super::error::{CudaError, Tried};
use libloading::Library;
use std::{
    env,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    fmt,
    mem::ManuallyDrop,
    path::{Path, PathBuf},
    ptr,
};

/// The environment variable with the path of the driver's library.
pub(super) const PATH_VARIABLE: &str = "NEXAR_CUDA_DRIVER";

#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// The first version of CUDA whose drivers have all functions of the table.
const VERSION_WANTED: &str = "11.0";

const SUCCESS: c_int = 0;
pub(super) const INVALID_VALUE: c_int = 1;
pub(super) const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
pub(super) const INVALID_CONTEXT: c_int = 201;
pub(super) const NOT_FOUND: c_int = 500;
const NOT_READY: c_int = 600;

/// A context, a stream or an event: opaque to all but the driver.
pub(super) type Handle = *mut c_void;

macro_rules! functions {
    ($($name:ident = $symbol:literal($($arg:ident: $type:ty),*);)*) => {
        /// The functions of the driver that the adapter uses.
        struct Functions {
            get_error_name: unsafe extern "system" fn(c_int, *mut *const c_char) -> c_int,
            get_error_string: unsafe extern "system" fn(c_int, *mut *const c_char) -> c_int,
            event_query: unsafe extern "system" fn(Handle) -> c_int,
            $($name: unsafe extern "system" fn($($type),*) -> c_int,)*
        }

        impl Functions {
            /// # Safety
            ///
            /// What the library exports under the names of the driver's functions is these functions.
            unsafe fn load(library: &Library, path: &Path) -> Result<Functions, CudaError> {
                Ok(Functions {
                    // SAFETY: the types are those of the driver's interface.
                    get_error_name: unsafe { symbol(library, path, "cuGetErrorName")? },
                    // SAFETY: as above.
                    get_error_string: unsafe { symbol(library, path, "cuGetErrorString")? },
                    // SAFETY: as above.
                    event_query: unsafe { symbol(library, path, "cuEventQuery")? },
                    // SAFETY: as above.
                    $($name: unsafe { symbol(library, path, $symbol)? },)*
                })
            }
        }

        /// Each function asks for what the driver's documentation of the same name asks for.
        impl Driver {
            $(pub(super) unsafe fn $name(&self, $($arg: $type),*) -> Result<(), CudaError> {
                // SAFETY: the caller passes what the function asks for.
                self.check($symbol, unsafe { (self.functions.$name)($($arg),*) })
            })*
        }
    };
}

functions! {
    init = "cuInit"(flags: c_uint);
    driver_get_version = "cuDriverGetVersion"(version: *mut c_int);
    device_get_count = "cuDeviceGetCount"(count: *mut c_int);
    device_get = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
    device_get_name = "cuDeviceGetName"(name: *mut c_char, len: c_int, device: c_int);
    device_get_pci_bus_id = "cuDeviceGetPCIBusId"(id: *mut c_char, len: c_int, device: c_int);
    primary_ctx_retain = "cuDevicePrimaryCtxRetain"(context: *mut Handle, device: c_int);
    primary_ctx_release = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
    ctx_get_current = "cuCtxGetCurrent"(context: *mut Handle);
    ctx_set_current = "cuCtxSetCurrent"(context: Handle);
    mem_alloc = "cuMemAlloc_v2"(address: *mut u64, bytes: usize);
    mem_free = "cuMemFree_v2"(address: u64);
    mem_host_alloc = "cuMemHostAlloc"(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    mem_free_host = "cuMemFreeHost"(address: *mut c_void);
    memcpy_htod_async =
        "cuMemcpyHtoDAsync_v2"(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    memcpy_dtoh_async =
        "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    memset_d8_async = "cuMemsetD8Async"(to: u64, byte: u8, bytes: usize, stream: Handle);
    stream_create = "cuStreamCreate"(stream: *mut Handle, flags: c_uint);
    stream_destroy = "cuStreamDestroy_v2"(stream: Handle);
    stream_synchronize = "cuStreamSynchronize"(stream: Handle);
    stream_wait_event = "cuStreamWaitEvent"(stream: Handle, event: Handle, flags: c_uint);
    event_create = "cuEventCreate"(event: *mut Handle, flags: c_uint);
    event_destroy = "cuEventDestroy_v2"(event: Handle);
    event_record = "cuEventRecord"(event: Handle, stream: Handle);
    pointer_get_attributes = "cuPointerGetAttributes"(
        count: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, address: u64);
    mem_get_address_range =
        "cuMemGetAddressRange_v2"(start: *mut u64, bytes: *mut usize, address: u64);
}

/// # Safety
///
/// `T` is the type of the function that the library exports under this name.
unsafe fn symbol<T: Copy>(
    library: &Library,
    path: &Path,
    symbol: &'static str,
) -> Result<T, CudaError> {
    // SAFETY: the caller knows the type.
    let found = unsafe { library.get::<T>(symbol) };
    found
        .map(|function| *function)
        .map_err(|_| CudaError::SymbolMissing {
            library: path.to_owned(),
            symbol,
            wanted: VERSION_WANTED,
        })
}

/// A driver that is loaded and initialised.
pub(super) struct Driver {
    path: PathBuf,
    functions: Functions,
    devices: u32,
    /// Never unloaded: threads of the driver may still run in it.
    _library: ManuallyDrop<Library>,
}

impl Driver {
    /// Loads and initialises the library at `path`, or else at [`PATH_VARIABLE`], or else that of the system.
    ///
    /// # Safety
    ///
    /// The library is that of a CUDA driver, or one that behaves like it.
    pub(super) unsafe fn load(path: Option<PathBuf>) -> Result<Driver, CudaError> {
        let chosen = path.or_else(|| {
            let path = env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty());
            path.map(PathBuf::from)
        });
        let candidates = match chosen {
            Some(path) => vec![path],
            None => NAMES.iter().map(PathBuf::from).collect(),
        };
        let mut tried = Vec::new();
        for path in candidates {
            // SAFETY: the caller knows that it is a driver.
            match unsafe { Library::new(&path) } {
                // SAFETY: as above.
                Ok(library) => return unsafe { Driver::start(library, path) },
                Err(error) => tried.push(Tried {
                    reason: reason(&error, &path),
                    library: path,
                }),
            }
        }
        Err(CudaError::LibraryNotFound { tried })
    }

    /// # Safety
    ///
    /// As for [`load`](Self::load).
    unsafe fn start(library: Library, path: PathBuf) -> Result<Driver, CudaError> {
        let library = ManuallyDrop::new(library);
        let mut driver = Driver {
            // SAFETY: the caller knows that it is a driver.
            functions: unsafe { Functions::load(&library, &path)? },
            path,
            devices: 0,
            _library: library,
        };
        let mut count = 0;
        // SAFETY: the driver wants to be initialised before anything else, with 0.
        let counted = unsafe { driver.init(0) }
            // SAFETY: `count` is there to be written.
            .and_then(|()| unsafe { driver.device_get_count(&mut count) });
        match counted {
            Err(error) if error.code() != Some(NO_DEVICE) => Err(error),
            Ok(()) if count > 0 => {
                driver.devices = count.unsigned_abs();
                Ok(driver)
            }
            _ => Err(CudaError::NoDevice {
                library: driver.path,
            }),
        }
    }

    pub(super) fn devices(&self) -> u32 {
        self.devices
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn version(&self) -> Result<(u32, u32), CudaError> {
        let mut version = 0;
        // SAFETY: `version` is there to be written.
        unsafe { self.driver_get_version(&mut version)? };
        let version = version.unsigned_abs();
        Ok((version / 1000, version % 1000 / 10))
    }

    /// The driver's handle of a device.
    pub(super) fn device(&self, ordinal: u32) -> Result<c_int, CudaError> {
        let number = c_int::try_from(ordinal).ok();
        let Some(number) = number.filter(|_| ordinal < self.devices) else {
            let count = self.devices;
            return Err(CudaError::NoSuchDevice { ordinal, count });
        };
        let mut device = 0;
        // SAFETY: `device` is there to be written.
        unsafe { self.device_get(&mut device, number)? };
        Ok(device)
    }

    /// The text that a function writes into a buffer of the given length.
    pub(super) fn text(
        &self,
        write: impl FnOnce(*mut c_char, c_int) -> Result<(), CudaError>,
    ) -> Result<String, CudaError> {
        const LENGTH: c_int = 256;
        let mut bytes = [0u8; LENGTH as usize];
        write(bytes.as_mut_ptr().cast(), LENGTH - 1)?;
        // The last byte is 0, whatever has been written.
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Whether all work that the event was recorded after is done.
    ///
    /// # Safety
    ///
    /// The event exists.
    pub(super) unsafe fn event_is_complete(&self, event: Handle) -> Result<bool, CudaError> {
        // SAFETY: the caller's.
        let code = unsafe { (self.functions.event_query)(event) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.check("cuEventQuery", code).map(|()| true)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(CudaError::Driver {
            call,
            code,
            name: self.words(self.functions.get_error_name, code),
            text: self.words(self.functions.get_error_string, code),
        })
    }

    fn words(
        &self,
        get: unsafe extern "system" fn(c_int, *mut *const c_char) -> c_int,
        code: c_int,
    ) -> String {
        let mut words = ptr::null();
        // SAFETY: `words` is there to be written.
        let status = unsafe { get(code, &mut words) };
        if status != SUCCESS || words.is_null() {
            return "unknown".into();
        }
        // SAFETY: the driver points to a string of its own, which stays.
        let words = unsafe { CStr::from_ptr(words) };
        words.to_string_lossy().into_owned()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("path", &self.path)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

/// What the system's loader says of a library, without the name with which it begins.
fn reason(error: &libloading::Error, library: &Path) -> String {
    let said = match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    let name = format!("{}: ", library.display());
    match said.strip_prefix(&name) {
        Some(rest) => rest.to_owned(),
        None => said,
    }
}
