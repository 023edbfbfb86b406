//! Memory of NVIDIA GPUs (feature `cuda`).
//!
//! [`CudaAdapter`] reaches the memory of all GPUs of the process: it allocates [`CudaBuffer`]s, takes over memory that
//! candle, burn, torch or a program of one's own has allocated, and copies between it and the host through pinned
//! slots, several copies at a time.
//!
//! The driver's library is loaded when an adapter is made, not when a program is linked: a program with this
//! feature builds and starts on machines without a GPU, and says there what is missing. Nothing but the driver is
//! needed, which has to support CUDA 11.0 or later; no toolkit, no runtime library.
//!
//! ```
//! use nexar_device::{
//!     MemorySpace,
//!     cuda::{CudaAdapter, CudaBuffer, CudaError},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let adapter = match CudaAdapter::new() {
//!     Ok(adapter) => adapter,
//!     Err(error @ (CudaError::LibraryNotFound { .. } | CudaError::NoDevice { .. })) => {
//!         println!("no GPU here: {error}");
//!         return Ok(());
//!     }
//!     Err(error) => return Err(error.into()),
//! };
//! let mut buffer = CudaBuffer::<f32>::zeroed(&adapter, MemorySpace::Device(0), 3)?;
//! buffer.copy_from(&[1.0, 2.0, 3.0]).await?;
//! let mut back = [0.0; 3];
//! buffer.copy_to(&mut back).await?;
//! assert_eq!(back, [1.0, 2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # The driver's library
//!
//! It is `libcuda.so.1` or `libcuda.so`, on Windows `nvcuda.dll`, as the system finds it; or what the environment
//! variable `NEXAR_CUDA_DRIVER` names; or, before all, [`CudaAdapterBuilder::driver_path`]. It is never unloaded.
//!
//! # Memory of others
//!
//! Pointers and streams are numbers here, so that they can come from any library, of any version. The steps are
//! always the same: take the pointer, the length and the stream from the library, make a [`Region`] that
//! owns what keeps the memory alive, and a buffer of it.
//!
//! ```
//! use nexar_device::{
//!     DeviceError, MemorySpace, Region,
//!     cuda::{CudaAdapter, CudaBuffer},
//! };
//!
//! /// `len` values at `pointer` on device 0, which `tensor` keeps alive.
//! ///
//! /// # Safety
//! ///
//! /// That of `Region::from_raw` and `DeviceBuffer::from_region`.
//! unsafe fn share<T: Send + 'static>(
//!     adapter: &CudaAdapter,
//!     tensor: T,
//!     pointer: u64,
//!     len: usize,
//!     stream: u64,
//! ) -> Result<CudaBuffer<f32>, DeviceError> {
//!     let address = std::ptr::without_provenance_mut(pointer as usize);
//!     // SAFETY: the caller's.
//!     unsafe {
//!         let space = MemorySpace::Device(0);
//!         let region = Region::from_raw(address, len * size_of::<f32>(), space, stream, tensor);
//!         CudaBuffer::from_region(adapter, region)
//!     }
//! }
//! ```
//!
//! - **candle**: `storage_and_layout` of a contiguous tensor gives the storage, `as_cuda_slice` the slice, and
//!   `device_ptr` the pointer; add the layout's start offset, which counts elements. The stream is that of the
//!   `CudaDevice`: the `cu_stream()` of its `cuda_stream()` as a number, which may be 2, the default stream of the calling thread. The tensor is what keeps the memory alive.
//!   What an operation writes shows in the tensor, and in all that share its storage.
//! - **burn**, with cubecl's CUDA runtime: `get_resource` of the client gives the pointer and the length of a
//!   binding. Its stream is not public: synchronise the client first, and pass 0.
//! - **torch**, through Python or tch: `data_ptr()`, `numel()` and
//!   `torch.cuda.current_stream().cuda_stream`, for contiguous tensors. Keep the tensor. Where its allocator makes
//!   expandable segments, a tensor may lie in several allocations of the driver and is then refused.
//!
//! # Streams
//!
//! Operations come after the work that is on the buffer's [stream](crate::DeviceBuffer::stream) when they are called:
//! an event is recorded there at once, on the calling thread, and the adapter's own streams wait for it. The
//! stream is not used afterwards, and nothing of ours is enqueued on it. It belongs to the primary context of the
//! buffer's device, as all streams of the CUDA runtime do, and is not being captured into a graph.
//!
//! | number | stream |
//! |---|---|
//! | 0, 1 | the default stream of all threads, which comes after all streams that were not created as non-blocking |
//! | 2 | the default stream of the calling thread |
//! | another | the handle of a `CUstream` or `cudaStream_t` |
//!
//! When the future of an operation is done, so is its last copy: what is enqueued then comes after it, on any
//! stream. The adapter's streams are non-blocking, so they never wait for work on the default stream, nor it for them.
//!
//! # Several GPUs
//!
//! One adapter serves all devices that the driver shows (see `CUDA_VISIBLE_DEVICES`); [`MemorySpace::Device`] has the
//! driver's number. A device's primary context is retained when it is first used, and until the adapter and all
//! buffers of the device are dropped. The calling thread needs no context of its own; if it has one, that is the
//! current one again after each call.
//!
//! # Costs and bounds
//!
//! Each device has [`slots`](CudaAdapterBuilder::slots) pinned slots, allocated when they are first needed and kept
//! until the adapter is dropped, near the GPU where the system tells (Linux). A queue that has none in use gets one
//! even when all are taken, so that there are at most as many slots as configured, plus one for each queue that is
//! open at the same time. Queues that wait for more are served in the order in which they came. Each queue has two
//! streams, which are reused. An adapter has two threads: one asks for the events of copies that somebody waits for, and
//! sleeps when there are none; the other frees memory and drops what kept a region alive, since both may
//! block.
//!
//! # Errors
//!
//! Making an adapter fails with a [`CudaError`]; later it is the source of a [`DeviceError::Backend`]:
//!
//! ```
//! use nexar_device::{DeviceError, cuda::CudaError};
//!
//! fn is_out_of_memory(error: &DeviceError) -> bool {
//!     let DeviceError::Backend { source, .. } = error else {
//!         return false;
//!     };
//!     let error = source.downcast_ref::<CudaError>();
//!     error.is_some_and(|error| error.code() == Some(2))
//! }
//! ```
//!
//! An error of work that runs on the device, such as an illegal address in a kernel of one's own, breaks the device's
//! context: the driver reports it in whatever is called next, and in everything after it, until the process ends.
//! Operations then fail, and none hangs. What was under way is given back once the driver has refused several times to
//! tell about it. What the driver refuses to free then, memory of the device and pinned slots, is back when the process
//! ends; nothing else is lost.

mod chores;
mod completion;
mod context;
mod device;
mod driver;
mod error;
mod handles;
mod numa;
mod queue;
mod slots;

pub use error::{CudaError, Tried};
pub use queue::{CudaQueue, CudaTransfer};
pub use slots::CudaSlot;

use crate::{
    adapter::{Access, Capabilities, DeviceAdapter, DeviceError},
    buffer::DeviceBuffer,
    cpu::CpuAdapter,
    region::{MemorySpace, Region},
};
use chores::Chores;
use completion::Completion;
use context::{Location, locate};
use device::{Device, unreachable};
use driver::Driver;
use error::ADAPTER;
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Elements in the memory of a GPU.
pub type CudaBuffer<E> = DeviceBuffer<E, CudaAdapter>;

const SLOT_LEN: usize = 512 << 10;
const SLOTS: usize = 8;
const MAX_SLOT_LEN: usize = 1 << 30;
const MAX_SLOTS: usize = 4096;

/// The adapter for the memory of NVIDIA GPUs; see the [module](self).
///
/// Clones are handles to the same adapter. Device `n` of the driver is [`MemorySpace::Device`]`(n)`; regions of host
/// memory are used in place.
#[derive(Clone)]
pub struct CudaAdapter(Arc<Shared>);

struct Shared {
    driver: Arc<Driver>,
    /// Those that are in use.
    devices: Vec<Mutex<Option<Arc<Device>>>>,
    slot_len: usize,
    slots: usize,
    chores: Chores,
    completion: Completion,
}

/// How an adapter is to be; see [`CudaAdapter::builder`].
#[derive(Debug, Clone)]
pub struct CudaAdapterBuilder {
    driver_path: Option<PathBuf>,
    slot_len: usize,
    slots: usize,
}

impl CudaAdapterBuilder {
    /// The library of the driver, instead of the system's.
    ///
    /// # Safety
    ///
    /// The library is that of a CUDA driver, or one that behaves like it: its functions are called as the driver's.
    pub unsafe fn driver_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.driver_path = Some(path.into());
        self
    }

    /// Length of a staging slot in bytes, 512 KiB unless set: a multiple of 16, at most 1 GiB. Longer slots cost
    /// fewer calls; shorter ones let the copies, the network and the host overlap more for a given size.
    pub fn slot_len(mut self, bytes: usize) -> Self {
        self.slot_len = bytes;
        self
    }

    /// Number of staging slots for each device, 8 unless set: at least 1, at most 4096.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Loads the driver.
    ///
    /// # Errors
    ///
    /// [`CudaError::SlotLength`], [`CudaError::Slots`], and those of [`CudaAdapter::new`].
    pub fn build(self) -> Result<CudaAdapter, CudaError> {
        let (slot_len, slots) = (self.slot_len, self.slots);
        if slot_len == 0 || !slot_len.is_multiple_of(16) || slot_len > MAX_SLOT_LEN {
            return Err(CudaError::SlotLength { bytes: slot_len });
        }
        if slots == 0 || slots > MAX_SLOTS {
            return Err(CudaError::Slots { slots });
        }
        // SAFETY: the system's library is a CUDA driver; so is another, as whoever chose it has promised.
        let driver = Arc::new(unsafe { Driver::load(self.driver_path)? });
        Ok(CudaAdapter(Arc::new(Shared {
            devices: (0..driver.devices()).map(|_| Mutex::default()).collect(),
            driver,
            slot_len,
            slots,
            chores: Chores::start()?,
            completion: Completion::start()?,
        })))
    }
}

impl CudaAdapter {
    /// The adapter for all devices of the system's driver.
    ///
    /// It loads and initialises the driver, which takes up to some hundred milliseconds. A device is set up when it is
    /// first used.
    ///
    /// # Errors
    ///
    /// [`CudaError::LibraryNotFound`], [`CudaError::SymbolMissing`], [`CudaError::NoDevice`];
    /// [`CudaError::Driver`] if the driver does not start, [`CudaError::Thread`] if no thread does.
    pub fn new() -> Result<CudaAdapter, CudaError> {
        CudaAdapter::builder().build()
    }

    /// How the adapter is to be.
    ///
    /// ```
    /// use nexar_device::cuda::{CudaAdapter, CudaError};
    ///
    /// match CudaAdapter::builder().slot_len(1 << 20).slots(4).build() {
    ///     Ok(adapter) => println!("{} GPUs", adapter.device_count()),
    ///     Err(CudaError::LibraryNotFound { tried }) => println!("no driver: {tried:?}"),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    pub fn builder() -> CudaAdapterBuilder {
        CudaAdapterBuilder {
            driver_path: None,
            slot_len: SLOT_LEN,
            slots: SLOTS,
        }
    }

    /// Number of devices, at least 1.
    pub fn device_count(&self) -> u32 {
        self.0.driver.devices()
    }

    /// The name of a device, such as `NVIDIA H100 PCIe`.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoSuchDevice`], [`CudaError::Driver`].
    pub fn device_name(&self, ordinal: u32) -> Result<String, CudaError> {
        let driver = &self.0.driver;
        let device = driver.device(ordinal)?;
        // SAFETY: the driver writes no more bytes than it is told.
        driver.text(|to, len| unsafe { driver.device_get_name(to, len, device) })
    }

    /// The version of CUDA that the driver supports: major and minor.
    ///
    /// # Errors
    ///
    /// [`CudaError::Driver`].
    pub fn driver_version(&self) -> Result<(u32, u32), CudaError> {
        self.0.driver.version()
    }

    fn device(&self, ordinal: u32) -> Result<Arc<Device>, CudaError> {
        let shared = &*self.0;
        let Some(device) = shared.devices.get(ordinal as usize) else {
            let count = self.device_count();
            return Err(CudaError::NoSuchDevice { ordinal, count });
        };
        let mut device = lock(device);
        if let Some(device) = &*device {
            return Ok(Arc::clone(device));
        }
        let slots = (shared.slot_len, shared.slots);
        let started = Device::start(
            &shared.driver,
            ordinal,
            slots,
            &shared.chores,
            &shared.completion,
        )?;
        Ok(Arc::clone(device.insert(Arc::new(started))))
    }

    fn locate(&self, address: u64) -> Result<Location, CudaError> {
        let driver = &*self.0.driver;
        let mut devices = self.0.devices.iter();
        let in_use = devices.find_map(|device| lock(device).clone());
        if let Some(device) = in_use {
            let bound = device.context().bind()?;
            return locate(&bound, address);
        }
        match locate(driver, address) {
            Err(error) if error.code() == Some(driver::INVALID_CONTEXT) => {
                let device = self.device(0)?;
                let bound = device.context().bind()?;
                locate(&bound, address)
            }
            located => located,
        }
    }

    fn open_host(&self, region: Region) -> Result<Access<CudaQueue>, DeviceError> {
        let location = match region.is_empty() {
            true => Ok(Location::Host),
            false => self.locate(region.address().addr() as u64),
        };
        match location {
            // SAFETY: `Region::from_raw` promises memory of its space, which is the host's; it has no streams.
            Ok(Location::Host) => Ok(Access::Host(unsafe { region.into_host_view() })),
            Ok(Location::Device(_)) => Err(unreachable(&region, "")),
            Err(error) => Err(error.during("finding out where the region lies")),
        }
    }
}

// SAFETY: the driver gives memory that nobody else uses; a region is only in what `open` returns and in copies that are
// enqueued there.
unsafe impl DeviceAdapter for CudaAdapter {
    type Queue = CudaQueue;

    fn name(&self) -> &'static str {
        ADAPTER
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            slot_len: self.0.slot_len,
            slots: self.0.slots,
            fill: true,
            reduce: false,
        }
    }

    /// The driver tells; memory that it does not know is the host's. Pinned memory is the host's too, managed
    /// memory that of the device for which it was allocated.
    fn space_of(&self, address: *const u8) -> Option<MemorySpace> {
        match self.locate(address.addr() as u64).ok()? {
            Location::Device(ordinal) => Some(MemorySpace::Device(ordinal)),
            Location::Host => Some(MemorySpace::Host),
        }
    }

    /// Blocks until the memory is zero, which does not wait for work of others. It is freed on a thread of the
    /// adapter, since the driver may wait there for the device.
    fn allocate(&self, space: MemorySpace, length: usize) -> Result<Region, DeviceError> {
        let MemorySpace::Device(ordinal) = space else {
            return CpuAdapter.allocate(space, length);
        };
        let allocated = self
            .device(ordinal)
            .and_then(|device| device.allocate(length));
        allocated.map_err(|error| match error {
            CudaError::NoSuchDevice { .. } => DeviceError::Unreachable {
                adapter: ADAPTER,
                what: format!("{length} bytes"),
                space,
            },
            error => error.during("allocating device memory"),
        })
    }

    fn open(&self, region: Region) -> Result<Access<CudaQueue>, DeviceError> {
        let MemorySpace::Device(ordinal) = region.space() else {
            return self.open_host(region);
        };
        match self.device(ordinal) {
            Ok(device) => Ok(Access::Staged(CudaQueue::new(device.open(region)?))),
            Err(CudaError::NoSuchDevice { .. }) => Err(unreachable(&region, "")),
            Err(error) => Err(error.during("opening the device")),
        }
    }
}

impl fmt::Debug for CudaAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaAdapter")
            .field("driver", &self.0.driver.path())
            .field("devices", &self.device_count())
            .field("slot_len", &self.0.slot_len)
            .field("slots", &self.0.slots)
            .finish_non_exhaustive()
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
