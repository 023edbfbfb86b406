//! What the tests share: drivers, and the calls of a program that uses CUDA by itself.

use libloading::Library;
use nexar_cuda_stub::Stub;
use nexar_device::{
    Access, DeviceAdapter, DeviceError, ExecutionQueue, MemorySpace, Region,
    cuda::{CudaAdapter, CudaAdapterBuilder, CudaError, CudaQueue, CudaSlot},
};
use std::{
    ffi::{c_int, c_uint, c_void},
    future::poll_fn,
    mem::ManuallyDrop,
    path::Path,
    ptr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Much longer than anything takes here.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A driver and an adapter for it.
pub(crate) struct Bench {
    pub(crate) adapter: CudaAdapter,
    pub(crate) raw: Arc<Raw>,
    /// None on the real driver.
    pub(crate) stub: Option<Stub>,
}

/// The drivers to test on: a new stub with so many devices, and the real one if there is one with as many.
pub(crate) fn benches(
    devices: u32,
    configure: impl Fn(CudaAdapterBuilder) -> CudaAdapterBuilder,
) -> Vec<Bench> {
    let mut benches = vec![stub_bench(devices, &configure)];
    match real_bench(devices, &configure) {
        Ok(bench) => benches.push(bench),
        Err(reason) => println!("skipped: {reason}"),
    }
    benches
}

/// The real driver, or why it cannot be tested on.
pub(crate) fn real_bench(
    devices: u32,
    configure: impl Fn(CudaAdapterBuilder) -> CudaAdapterBuilder,
) -> Result<Bench, String> {
    match configure(CudaAdapter::builder()).build() {
        Ok(adapter) if adapter.device_count() >= devices => Ok(Bench {
            adapter,
            raw: Arc::new(Raw::load(Path::new("libcuda.so.1"))),
            stub: None,
        }),
        Ok(adapter) => Err(format!(
            "no CUDA driver with {devices} devices (it has {})",
            adapter.device_count()
        )),
        Err(error) => Err(format!("no CUDA driver with a device ({error})")),
    }
}

/// The stub alone, for what the real driver cannot be made to do.
pub(crate) fn stub_bench(
    devices: u32,
    configure: impl Fn(CudaAdapterBuilder) -> CudaAdapterBuilder,
) -> Bench {
    let stub = Stub::new();
    stub.set("devices", devices.into());
    // SAFETY: the stub behaves like a driver.
    let builder = unsafe { CudaAdapter::builder().driver_path(stub.path()) };
    Bench {
        adapter: configure(builder).build().unwrap(),
        raw: Arc::new(Raw::load(stub.path())),
        stub: Some(stub),
    }
}

/// Few and small slots, so that everything waits for everything.
pub(crate) fn small(builder: CudaAdapterBuilder) -> CudaAdapterBuilder {
    builder.slot_len(64).slots(3)
}

impl Bench {
    pub(crate) fn set(&self, name: &str, value: u64) {
        if let Some(stub) = &self.stub {
            stub.set(name, value);
        }
    }

    /// A counter of the stub; 0 on the real driver.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.stub.as_ref().map_or(0, |stub| stub.counter(name))
    }

    /// Memory of a device with these contents, which the adapter does not own.
    pub(crate) fn memory(&self, device: u32, bytes: &[u8]) -> Memory {
        let memory = Memory::new(&self.raw, device, bytes.len());
        memory.write(0, bytes);
        memory
    }

    pub(crate) fn queue(&self, region: Region) -> CudaQueue {
        queue(&self.adapter, region)
    }

    /// Drops the adapter; then nothing of it is left in the driver, and nothing was wrong.
    pub(crate) fn finish(self) {
        drop(self.adapter);
        let Some(stub) = self.stub else { return };
        for name in LEAKS {
            eventually(name, || stub.counter(name) == 0);
        }
        for name in WRONG {
            assert_eq!(stub.counter(name), 0, "{name}");
        }
    }
}

/// What is to be 0 in the end.
const LEAKS: [&str; 5] = [
    "live_device_buffers",
    "live_pinned",
    "live_streams",
    "live_events",
    "retained_contexts",
];

/// What is always 0.
const WRONG: [&str; 4] = [
    "pageable_copies",
    "write_combined",
    "illegal_accesses",
    "freed_in_use",
];

pub(crate) fn queue(adapter: &CudaAdapter, region: Region) -> CudaQueue {
    match adapter.open(region).unwrap() {
        Access::Staged(queue) => queue,
        Access::Host(_) => panic!("device memory is staged"),
    }
}

pub(crate) async fn slot(queue: &mut CudaQueue) -> CudaSlot {
    poll_fn(|cx| queue.poll_slot(cx)).await.unwrap()
}

/// Copies `bytes` to the region, from byte `at` on, through one slot.
pub(crate) async fn write(
    queue: &mut CudaQueue,
    at: usize,
    bytes: &[u8],
) -> Result<(), DeviceError> {
    let mut slot = slot(queue).await;
    slot.as_mut()[..bytes.len()].copy_from_slice(bytes);
    queue.copy_in(slot, 0, at..at + bytes.len()).await.map(drop)
}

/// The bytes of the region from byte `at` on, through one slot.
pub(crate) async fn read(
    queue: &mut CudaQueue,
    at: usize,
    len: usize,
) -> Result<Vec<u8>, DeviceError> {
    let slot = slot(queue).await;
    let slot = queue.copy_out(at..at + len, slot, 0).await?;
    Ok(slot.as_ref()[..len].to_vec())
}

/// The error of the driver in an error of the adapter.
pub(crate) fn driver_error(error: &DeviceError) -> (&'static str, i32) {
    let DeviceError::Backend { source, .. } = error else {
        panic!("{error:?} is not one of the driver");
    };
    match source.downcast_ref::<CudaError>() {
        Some(CudaError::Driver { call, code, .. }) => (call, *code),
        _ => panic!("{error:?} is not one of the driver"),
    }
}

/// Waits for what another thread is about to do.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what} does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Numbers that look random, the same ones in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

type Handle = *mut c_void;

macro_rules! calls {
    ($($name:ident = $symbol:literal($($arg:ident: $type:ty),*);)*) => {
        /// The driver as another library of the program uses it.
        pub(crate) struct Raw {
            $($name: unsafe extern "system" fn($($type),*) -> c_int,)*
            _library: ManuallyDrop<Library>,
        }

        impl Raw {
            pub(crate) fn load(path: &Path) -> Raw {
                // SAFETY: it is a driver, or a stub of one; the types are those of its interface.
                unsafe {
                    let library = ManuallyDrop::new(Library::new(path).unwrap());
                    Raw {
                        $($name: *library.get($symbol).unwrap(),)*
                        _library: library,
                    }
                }
            }

            $(fn $name(&self, $($arg: $type),*) {
                // SAFETY: the tests pass what the driver asks for.
                let code = unsafe { (self.$name)($($arg),*) };
                assert!(code == 0 || thread::panicking(), "{}: {code}", $symbol);
            })*
        }
    };
}

calls! {
    retain = "cuDevicePrimaryCtxRetain"(context: *mut Handle, device: c_int);
    release = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
    get_current = "cuCtxGetCurrent"(context: *mut Handle);
    set_current = "cuCtxSetCurrent"(context: Handle);
    alloc = "cuMemAlloc_v2"(address: *mut u64, bytes: usize);
    free = "cuMemFree_v2"(address: u64);
    host_alloc = "cuMemHostAlloc"(address: *mut Handle, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost"(address: Handle);
    to_device = "cuMemcpyHtoDAsync_v2"(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    to_host = "cuMemcpyDtoHAsync_v2"(to: Handle, from: u64, bytes: usize, stream: Handle);
    stream_create = "cuStreamCreate"(stream: *mut Handle, flags: c_uint);
    stream_destroy = "cuStreamDestroy_v2"(stream: Handle);
    synchronize = "cuStreamSynchronize"(stream: Handle);
}

impl Raw {
    pub(crate) fn current(&self) -> usize {
        let mut context = ptr::null_mut();
        self.get_current(&mut context);
        context.addr()
    }

    /// Does something with the device's primary context as the thread's.
    pub(crate) fn with<T>(&self, device: u32, run: impl FnOnce() -> T) -> T {
        let device = device as c_int;
        let (mut context, mut before) = (ptr::null_mut(), ptr::null_mut());
        self.get_current(&mut before);
        self.retain(&mut context, device);
        self.set_current(context);
        let result = run();
        self.set_current(before);
        self.release(device);
        result
    }
}

/// Memory of a device that a program has allocated by itself.
pub(crate) struct Memory {
    raw: Arc<Raw>,
    pub(crate) device: u32,
    pub(crate) address: u64,
    pub(crate) len: usize,
    /// Held, so that the context stays.
    _retained: Retained,
}

struct Retained(Arc<Raw>, u32);

impl Retained {
    fn new(raw: &Arc<Raw>, device: u32) -> Retained {
        raw.retain(&mut ptr::null_mut(), device as c_int);
        Retained(Arc::clone(raw), device)
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        self.0.release(self.1 as c_int);
    }
}

impl Memory {
    fn new(raw: &Arc<Raw>, device: u32, len: usize) -> Memory {
        let retained = Retained::new(raw, device);
        let mut address = 0;
        raw.with(device, || raw.alloc(&mut address, len.max(1)));
        Memory {
            raw: Arc::clone(raw),
            device,
            address,
            len,
            _retained: retained,
        }
    }

    /// The memory as a region, which is written on `stream` and owns `keep_alive`.
    pub(crate) fn region(&self, stream: u64, keep_alive: impl Send + 'static) -> Region {
        let address = ptr::without_provenance_mut(self.address as usize);
        let space = MemorySpace::Device(self.device);
        // SAFETY: the tests keep the memory as long as they use the region.
        unsafe { Region::from_raw(address, self.len, space, stream, keep_alive) }
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        poke(&self.raw, self.device, self.address + at as u64, bytes);
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        peek(&self.raw, self.device, self.address, &mut bytes);
        bytes
    }
}

/// Writes memory of a device on a stream of its own, and waits for that.
pub(crate) fn poke(raw: &Arc<Raw>, device: u32, address: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let pinned = Pinned::new(raw, device, bytes);
    let stream = Stream::new(raw, device);
    stream.write(address, pinned.address, bytes.len());
    stream.wait();
}

/// Reads memory of a device on a stream of its own.
pub(crate) fn peek(raw: &Arc<Raw>, device: u32, address: u64, bytes: &mut [u8]) {
    if bytes.is_empty() {
        return;
    }
    let len = bytes.len();
    let pinned = Pinned::new(raw, device, bytes);
    let stream = Stream::new(raw, device);
    raw.with(device, || {
        raw.to_host(pinned.address, address, len, stream.handle());
    });
    stream.wait();
    // SAFETY: the copy is done, and there are as many bytes.
    unsafe { ptr::copy_nonoverlapping(pinned.address.cast(), bytes.as_mut_ptr(), len) };
}

impl Drop for Memory {
    fn drop(&mut self) {
        let raw = &self.raw;
        raw.with(self.device, || raw.free(self.address));
    }
}

/// A stream of a program.
pub(crate) struct Stream {
    raw: Arc<Raw>,
    device: u32,
    pub(crate) number: u64,
    _retained: Retained,
}

impl Stream {
    /// A non-blocking stream.
    pub(crate) fn new(raw: &Arc<Raw>, device: u32) -> Stream {
        let retained = Retained::new(raw, device);
        let mut stream = ptr::null_mut();
        raw.with(device, || raw.stream_create(&mut stream, 1));
        Stream {
            raw: Arc::clone(raw),
            device,
            number: stream.addr() as u64,
            _retained: retained,
        }
    }

    fn handle(&self) -> Handle {
        ptr::without_provenance_mut(self.number as usize)
    }

    /// Enqueues a copy to the device.
    pub(crate) fn write(&self, to: u64, from: *const c_void, bytes: usize) {
        let raw = &self.raw;
        raw.with(self.device, || {
            raw.to_device(to, from, bytes, self.handle())
        });
    }

    pub(crate) fn wait(&self) {
        let raw = &self.raw;
        raw.with(self.device, || raw.synchronize(self.handle()));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let raw = &self.raw;
        raw.with(self.device, || raw.stream_destroy(self.handle()));
    }
}

/// Pinned memory of a program.
pub(crate) struct Pinned {
    raw: Arc<Raw>,
    device: u32,
    pub(crate) address: *mut c_void,
    _retained: Retained,
}

// SAFETY: it owns the memory, and the driver may be called by every thread.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(crate) fn new(raw: &Arc<Raw>, device: u32, bytes: &[u8]) -> Pinned {
        let retained = Retained::new(raw, device);
        let mut address = ptr::null_mut();
        raw.with(device, || raw.host_alloc(&mut address, bytes.len(), 1));
        // SAFETY: the driver has allocated as many bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), bytes.len()) };
        Pinned {
            raw: Arc::clone(raw),
            device,
            address,
            _retained: retained,
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let raw = &self.raw;
        raw.with(self.device, || raw.host_free(self.address));
    }
}
