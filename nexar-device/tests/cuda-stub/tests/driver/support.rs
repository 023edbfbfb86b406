//! The calls of a program that uses CUDA.

use libloading::Library;
use nexar_cuda_stub::Stub;
use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    mem::ManuallyDrop,
    path::Path,
    ptr, thread,
    time::{Duration, Instant},
};

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const INVALID_CONTEXT: c_int = 201;
pub(crate) const INVALID_HANDLE: c_int = 400;
pub(crate) const NOT_READY: c_int = 600;
pub(crate) const ILLEGAL_ADDRESS: c_int = 700;

/// What memory holds that nobody has written.
pub(crate) const POISON: u8 = 0xDB;

pub(crate) const LEGACY: Handle = 0;
pub(crate) const PER_THREAD: Handle = 2;
pub(crate) const BLOCKING: c_uint = 0;
pub(crate) const NON_BLOCKING: c_uint = 1;

/// Handles are numbers, so that threads can share them.
pub(crate) type Handle = usize;

macro_rules! calls {
    ($($name:ident = $symbol:literal($($arg:ident: $type:ty),*);)*) => {
        /// The functions of the driver. They return their codes.
        pub(crate) struct Raw {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
            _library: ManuallyDrop<Library>,
        }

        impl Raw {
            pub(crate) fn load(path: &Path) -> Raw {
                // SAFETY: it is the stub, whose functions have the types of the driver's.
                unsafe {
                    let library = ManuallyDrop::new(Library::new(path).unwrap());
                    Raw {
                        $($name: *library.get($symbol).unwrap(),)*
                        _library: library,
                    }
                }
            }

            $(#[must_use]
            #[allow(dead_code, reason = "the whole interface")]
            pub(crate) fn $name(&self, $($arg: $type),*) -> c_int {
                // SAFETY: the tests pass what the function asks for.
                unsafe { (self.$name)($($arg),*) }
            })*
        }
    };
}

calls! {
    init = "cuInit"(flags: c_uint);
    version = "cuDriverGetVersion"(version: *mut c_int);
    error_name = "cuGetErrorName"(code: c_int, name: *mut *const c_char);
    error_string = "cuGetErrorString"(code: c_int, text: *mut *const c_char);
    device_count = "cuDeviceGetCount"(count: *mut c_int);
    device = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
    device_name = "cuDeviceGetName"(name: *mut c_char, len: c_int, device: c_int);
    device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: c_int);
    device_bus_id = "cuDeviceGetPCIBusId"(id: *mut c_char, len: c_int, device: c_int);
    retain = "cuDevicePrimaryCtxRetain"(context: *mut Handle, device: c_int);
    release = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
    get_current = "cuCtxGetCurrent"(context: *mut Handle);
    set_current = "cuCtxSetCurrent"(context: Handle);
    synchronize_context = "cuCtxSynchronize"();
    alloc = "cuMemAlloc_v2"(address: *mut u64, bytes: usize);
    free = "cuMemFree_v2"(address: u64);
    alloc_async = "cuMemAllocAsync"(address: *mut u64, bytes: usize, stream: Handle);
    free_async = "cuMemFreeAsync"(address: u64, stream: Handle);
    host_alloc = "cuMemHostAlloc"(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost"(address: *mut c_void);
    register = "cuMemHostRegister_v2"(address: *mut c_void, bytes: usize, flags: c_uint);
    unregister = "cuMemHostUnregister"(address: *mut c_void);
    to_device = "cuMemcpyHtoDAsync_v2"(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    to_host = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    within = "cuMemcpyDtoDAsync_v2"(to: u64, from: u64, bytes: usize, stream: Handle);
    peer = "cuMemcpyPeerAsync"(
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle);
    fill = "cuMemsetD8Async"(to: u64, byte: u8, bytes: usize, stream: Handle);
    stream_create = "cuStreamCreate"(stream: *mut Handle, flags: c_uint);
    stream_create_with_priority =
        "cuStreamCreateWithPriority"(stream: *mut Handle, flags: c_uint, priority: c_int);
    stream_destroy = "cuStreamDestroy_v2"(stream: Handle);
    synchronize = "cuStreamSynchronize"(stream: Handle);
    wait_event = "cuStreamWaitEvent"(stream: Handle, event: Handle, flags: c_uint);
    event_create = "cuEventCreate"(event: *mut Handle, flags: c_uint);
    event_destroy = "cuEventDestroy_v2"(event: Handle);
    record = "cuEventRecord"(event: Handle, stream: Handle);
    query = "cuEventQuery"(event: Handle);
    synchronize_event = "cuEventSynchronize"(event: Handle);
    attribute = "cuPointerGetAttribute"(value: *mut c_void, attribute: c_uint, address: u64);
    attributes = "cuPointerGetAttributes"(
        count: c_uint, attributes: *const c_uint, values: *const *mut c_void, address: u64);
    range = "cuMemGetAddressRange_v2"(start: *mut u64, bytes: *mut usize, address: u64);
}

/// A stub, initialised, with the context of device 0 as the thread's.
pub(crate) struct Bench {
    pub(crate) stub: Stub,
    pub(crate) raw: Raw,
    pub(crate) context: Handle,
}

pub(crate) fn eventually(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it does not happen"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// The value that a call writes; the call succeeds.
pub(crate) fn value<T: Copy>(start: T, call: impl FnOnce(*mut T) -> c_int) -> T {
    let mut value = start;
    assert_eq!(call(&mut value), SUCCESS);
    value
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let stub = Stub::new();
        let raw = Raw::load(stub.path());
        assert_eq!(raw.init(0), SUCCESS);
        let context = value(0, |to| raw.retain(to, 0));
        assert_eq!(raw.set_current(context), SUCCESS);
        Bench { stub, raw, context }
    }

    pub(crate) fn alloc(&self, len: usize) -> u64 {
        value(0, |to| self.raw.alloc(to, len))
    }

    /// Pinned memory with these bytes.
    pub(crate) fn pinned(&self, bytes: &[u8]) -> Pinned {
        let start = value(ptr::null_mut(), |to| {
            self.raw.host_alloc(to, bytes.len(), 1)
        });
        let pinned = Pinned {
            start: start.cast(),
            len: bytes.len(),
        };
        pinned.write(bytes);
        pinned
    }

    pub(crate) fn stream(&self, flags: c_uint) -> Handle {
        value(0, |to| self.raw.stream_create(to, flags))
    }

    pub(crate) fn event(&self) -> Handle {
        value(0, |to| self.raw.event_create(to, 2))
    }

    pub(crate) fn to_device(&self, to: u64, from: Pinned, stream: Handle) {
        let code = self.raw.to_device(to, from.pointer(), from.len, stream);
        assert_eq!(code, SUCCESS);
    }

    pub(crate) fn to_host(&self, to: Pinned, from: u64, stream: Handle) {
        let code = self.raw.to_host(to.pointer(), from, to.len, stream);
        assert_eq!(code, SUCCESS);
    }

    /// What is at an address of the device once all work is done.
    pub(crate) fn contents(&self, address: u64, len: usize) -> Vec<u8> {
        assert_eq!(self.raw.synchronize_context(), SUCCESS);
        let mut bytes = vec![0; len];
        let to = bytes.as_mut_ptr().cast();
        assert_eq!(self.raw.to_host(to, address, len, LEGACY), SUCCESS);
        bytes
    }

    /// Copies and fills stop, those under way too, until [`go_on`](Self::go_on).
    pub(crate) fn hold(&self) {
        self.stub.set("hold", 1);
    }

    pub(crate) fn go_on(&self) {
        self.stub.set("hold", 0);
    }

    pub(crate) fn record(&self, event: Handle, stream: Handle) {
        assert_eq!(self.raw.record(event, stream), SUCCESS);
    }

    pub(crate) fn wait_event(&self, stream: Handle, event: Handle) {
        assert_eq!(self.raw.wait_event(stream, event, 0), SUCCESS);
    }

    pub(crate) fn synchronize(&self, stream: Handle) {
        assert_eq!(self.raw.synchronize(stream), SUCCESS);
    }

    pub(crate) fn fill(&self, memory: u64, byte: u8, len: usize, stream: Handle) {
        assert_eq!(self.raw.fill(memory, byte, len, stream), SUCCESS);
    }

    /// Waits until a counter has a value that a thread gives it.
    pub(crate) fn until(&self, key: &str, count: u64) {
        eventually(|| self.count(key) == count);
    }

    pub(crate) fn count(&self, key: &str) -> u64 {
        self.stub.counter(key)
    }
}

/// Pinned memory, which stays until the process ends.
#[derive(Clone, Copy)]
pub(crate) struct Pinned {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

impl Pinned {
    pub(crate) fn pointer(self) -> *mut c_void {
        self.start.cast()
    }

    pub(crate) fn write(self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len);
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: the driver has allocated so many bytes.
            unsafe { self.start.add(index).write_volatile(*byte) };
        }
    }

    pub(crate) fn read(self) -> Vec<u8> {
        // SAFETY: as above; a worker may write one of them meanwhile, which a volatile read survives.
        let read = |index| unsafe { self.start.add(index).read_volatile() };
        (0..self.len).map(read).collect()
    }
}
