//! A simulated device.

mod allocation;
mod engine;
mod options;
mod queue;
mod slots;

pub use options::MemoryDeviceBuilder;
pub use queue::{MemoryQueue, Transfer};
pub use slots::Slot;

use crate::{
    adapter::{Access, Capabilities, DeviceAdapter, DeviceError},
    buffer::DeviceBuffer,
    cpu::CpuAdapter,
    region::{MemorySpace, Region},
};
use allocation::{Allocation, Memory};
use engine::{Engine, StreamWork};
use nexar_core::Element;
use options::Options;
use queue::Target;
use slots::Pool;
use std::{
    error::Error as StdError,
    fmt, ptr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

const NAME: &str = "memory device";

/// A device that exists in host memory only: for tests of code that works on device memory, on machines that have
/// no such device.
///
/// Its addresses mean nothing to the host. Copies are carried out by a thread for each direction, some time after they
/// were enqueued; they do not begin while the device is [paused](Self::pause). There are [streams](Self::stream), which
/// have work of their own. It also reaches host memory, in place. What a [builder](Self::builder) does not say is:
/// one device, four slots of 4096 bytes, no delay, no limit to the bandwidth, no fault, neither fill nor reduction.
///
/// Clones are handles to the same device. Its threads start with the first use and end with the last handle. Memory of
/// a simulated device takes as much host memory.
///
/// ```
/// use nexar_device::{DeviceBuffer, MemorySpace, testing::MemoryDevice};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nexar_device::DeviceError> {
/// let device = MemoryDevice::builder().slot_len(16).slots(2).build();
/// let buffer = DeviceBuffer::from_slice(&device, MemorySpace::Device(0), &[7u32; 10]).await?;
/// let mut back = [0; 10];
/// buffer.copy_to(&mut back).await?;
/// assert_eq!(back, [7; 10]);
/// assert_eq!(device.usage().copies_in, 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryDevice(Arc<Handle>);

/// The threads outlive it only until they have done what they have to do.
struct Handle {
    shared: Arc<Shared>,
    started: OnceLock<Result<(), DeviceError>>,
    next_stream: AtomicU64,
}

struct Shared {
    options: Options,
    memory: Memory,
    pool: Arc<Pool>,
    engine: Engine,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.engine.close();
    }
}

impl MemoryDevice {
    /// A device as the builder makes it if nothing is said.
    pub fn new() -> MemoryDevice {
        MemoryDevice::builder().build()
    }

    /// Options for a device.
    pub fn builder() -> MemoryDeviceBuilder {
        MemoryDeviceBuilder::default()
    }

    fn with(options: Options) -> MemoryDevice {
        MemoryDevice(Arc::new(Handle {
            shared: Arc::new(Shared {
                memory: Memory::new(options.devices),
                pool: Arc::new(Pool::new(options.slot_len, options.slots)),
                engine: Engine::default(),
                options,
            }),
            started: OnceLock::new(),
            next_stream: AtomicU64::new(1),
        }))
    }

    /// What is in use at the moment, and what was done.
    pub fn usage(&self) -> Usage {
        let shared = self.shared();
        let (live_regions, live_bytes) = shared.memory.usage();
        let (slots_in_use, slots_allocated) = shared.pool.usage();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [copies_out, copies_in] = shared.engine.copies.each_ref().map(load);
        let [bytes_out, bytes_in] = shared.engine.bytes.each_ref().map(load);
        Usage {
            live_regions,
            live_bytes,
            slots_in_use,
            slots_allocated,
            copies_out,
            copies_in,
            bytes_out,
            bytes_in,
        }
    }

    /// A stream that nothing was enqueued on: its number for [`DeviceBuffer::on_stream`] and
    /// [`enqueue_write`](Self::enqueue_write). Stream 0 exists from the start, and is a stream like any other.
    pub fn stream(&self) -> u64 {
        self.0.next_stream.fetch_add(1, Ordering::Relaxed)
    }

    /// Enqueues on `stream` that the elements from the buffer's first one on become `data`, `delay` after what comes
    /// before it on the stream. Returns at once.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unreachable`] if the buffer has fewer elements, or lies in host memory; whatever starting a
    /// thread gives.
    pub fn enqueue_write<E: Element>(
        &self,
        stream: u64,
        buffer: &DeviceBuffer<E, MemoryDevice>,
        data: &[E],
        delay: Duration,
    ) -> Result<(), DeviceError> {
        self.enqueue_write_bytes(stream, buffer.address(), E::as_bytes(data), delay)
    }

    /// As [`enqueue_write`](Self::enqueue_write), for bytes from `address` on.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unreachable`] if they do not lie in one live region of device memory; whatever starting a
    /// thread gives.
    pub fn enqueue_write_bytes(
        &self,
        stream: u64,
        address: u64,
        data: &[u8],
        delay: Duration,
    ) -> Result<(), DeviceError> {
        let (memory, offset) = self.find(address, data.len())?;
        self.start()?;
        let work = StreamWork::Write(memory, offset, data.to_vec(), delay);
        self.shared().engine.enqueue_stream(stream, work);
        Ok(())
    }

    /// Enqueues on `stream` that it waits until the result is dropped.
    ///
    /// # Errors
    ///
    /// Whatever starting a thread gives.
    pub fn hold(&self, stream: u64) -> Result<Held, DeviceError> {
        self.start()?;
        let released = Arc::new(AtomicBool::new(false));
        let work = StreamWork::Hold(Arc::clone(&released));
        self.shared().engine.enqueue_stream(stream, work);
        let device = self.clone();
        Ok(Held { device, released })
    }

    /// Lets no copy begin until the result is dropped.
    pub fn pause(&self) -> Paused {
        self.shared().engine.pause();
        Paused(self.clone())
    }

    /// Reads the bytes from `address` on, as they are at this moment.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unreachable`] if they do not lie in one live region of device memory.
    pub fn read(&self, address: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        let (memory, offset) = self.find(address, target.len())?;
        let range = offset..offset + target.len();
        memory.with(range, |bytes| target.copy_from_slice(bytes));
        Ok(())
    }

    /// Writes the bytes from `address` on, at this moment.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unreachable`] if they do not lie in one live region of device memory.
    pub fn write(&self, address: u64, source: &[u8]) -> Result<(), DeviceError> {
        let (memory, offset) = self.find(address, source.len())?;
        let range = offset..offset + source.len();
        memory.with(range, |bytes| bytes.copy_from_slice(source));
        Ok(())
    }

    fn find(&self, address: u64, length: usize) -> Result<(Arc<Allocation>, usize), DeviceError> {
        let found = self.shared().memory.find(address, length);
        found.ok_or_else(|| {
            let what = format!("{length} bytes at {address:#x}");
            unreachable(what, MemorySpace::Device(0))
        })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Starts the threads, at the first call.
    fn start(&self) -> Result<(), DeviceError> {
        let start = || {
            let started = Engine::start(self.shared());
            started.map_err(|error| backend("starting a thread", error))
        };
        self.0.started.get_or_init(start).clone()
    }

    /// The memory of a region, and where in it the region begins.
    fn locate(&self, region: &Region) -> Result<(Arc<Allocation>, usize), DeviceError> {
        if region.is_empty() {
            return Ok((Allocation::empty(), 0));
        }
        let address = region.address().addr() as u64;
        let found = self.shared().memory.find(address, region.len());
        let found = found.filter(|(memory, _)| memory.space() == region.space());
        found.ok_or_else(|| {
            let what = format!("{} bytes at {address:#x}", region.len());
            unreachable(what, region.space())
        })
    }
}

impl Default for MemoryDevice {
    fn default() -> Self {
        MemoryDevice::new()
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("options", &self.shared().options)
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}

// SAFETY: every allocation is one of its own; a region is only in what `open` returns and in copies that are enqueued
// there.
unsafe impl DeviceAdapter for MemoryDevice {
    type Queue = MemoryQueue;

    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let options = &self.shared().options;
        Capabilities {
            slot_len: options.slot_len,
            slots: options.slots,
            fill: options.fill,
            reduce: options.reduce,
        }
    }

    fn space_of(&self, address: *const u8) -> Option<MemorySpace> {
        let address = address.addr() as u64;
        if !Memory::is_foreign(address) {
            return Some(MemorySpace::Host);
        }
        let (memory, _) = self.shared().memory.find(address, 0)?;
        Some(memory.space())
    }

    fn allocate(&self, space: MemorySpace, length: usize) -> Result<Region, DeviceError> {
        let MemorySpace::Device(device) = space else {
            return CpuAdapter.allocate(space, length);
        };
        let Some(memory) = self.shared().memory.allocate(device, length)? else {
            return Err(unreachable(format!("{length} bytes"), space));
        };
        let address = ptr::without_provenance_mut(memory.address as usize);
        let owner = Owner(Arc::clone(self.shared()), memory.address);
        // SAFETY: the memory is live until its owner is dropped, is zero, and nobody else knows it.
        Ok(unsafe { Region::from_raw(address, length, space, 0, owner) })
    }

    fn open(&self, region: Region) -> Result<Access<MemoryQueue>, DeviceError> {
        let device = match region.space() {
            MemorySpace::Host => {
                // SAFETY: `Region::from_raw` promises host memory, which no stream works on.
                return Ok(Access::Host(unsafe { region.into_host_view() }));
            }
            MemorySpace::Device(device) => device,
        };
        if device >= self.shared().options.devices {
            return Err(unreachable(
                format!("{} bytes", region.len()),
                region.space(),
            ));
        }
        let (memory, offset) = self.locate(&region)?;
        self.start()?;
        let start = region.address().addr() as u64;
        let span = start..start.saturating_add(region.len() as u64);
        let target = Target {
            after: self.shared().engine.before(region.stream(), &span),
            region,
            memory,
            offset,
            dropped: Arc::default(),
        };
        Ok(Access::Staged(MemoryQueue {
            device: self.clone(),
            target: Arc::new(target),
            number: self.shared().pool.enter(),
        }))
    }
}

/// Frees device memory when it is dropped.
struct Owner(Arc<Shared>, u64);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.memory.free(self.1);
    }
}

/// A stream that [waits](MemoryDevice::hold) until this is dropped.
#[derive(Debug)]
pub struct Held {
    device: MemoryDevice,
    released: Arc<AtomicBool>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.released.store(true, Ordering::Release);
        self.device.shared().engine.look();
    }
}

/// A device that begins no copy [until this is dropped](MemoryDevice::pause).
#[derive(Debug)]
pub struct Paused(MemoryDevice);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.shared().engine.resume();
    }
}

/// What a [`MemoryDevice`] uses, and has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// Regions of device memory that are not freed.
    pub live_regions: usize,
    /// Their bytes.
    pub live_bytes: usize,
    /// Slots that somebody or a copy has.
    pub slots_in_use: usize,
    /// Slots that exist.
    pub slots_allocated: usize,
    /// Copies from the device that are complete.
    pub copies_out: u64,
    /// Copies and reductions to the device that are complete.
    pub copies_in: u64,
    /// Bytes copied from the device.
    pub bytes_out: u64,
    /// Bytes copied to the device, or reduced there.
    pub bytes_in: u64,
}

fn unreachable(what: String, space: MemorySpace) -> DeviceError {
    DeviceError::Unreachable {
        adapter: NAME,
        what,
        space,
    }
}

fn backend(operation: &'static str, error: impl StdError + Send + Sync + 'static) -> DeviceError {
    DeviceError::Backend {
        adapter: NAME,
        operation,
        source: Arc::new(error),
    }
}

/// Nobody leaves what a lock guards half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
