//! The traits that an adapter for a kind of memory implements.

use crate::region::{HostView, MemorySpace, Region};
use nexar_core::{DataType, ReduceOp};
use std::{
    convert::Infallible,
    error::Error as StdError,
    fmt,
    future::{Future, Ready},
    ops::Range,
    sync::Arc,
    task::{Context, Poll},
};

/// The memory of one kind of device: how it is allocated, and how the host reaches it. What is done with it, in
/// which order, is the business of an [`ExecutionQueue`]. Clones are handles to the same adapter.
///
/// `nexar_device::testing` (feature `testing`) has a conformance suite for adapters.
///
/// # Safety
///
/// - [`allocate`](Self::allocate) gives memory that nobody else uses, of the length asked for.
/// - [`open`](Self::open) uses a region only through what it returns, and through copies that were enqueued there: the same
///   memory is opened again and again, by owners that see to it that only one writes at a time. A direct view is of the whole
///   region.
pub unsafe trait DeviceAdapter: Clone + fmt::Debug + Send + Sync + 'static {
    /// What copies between the device's memory and the host; [`Infallible`] where the host reaches all
    /// memory directly and no queue ever exists.
    type Queue: ExecutionQueue;

    /// A short name for tables and logs, such as `cpu`.
    fn name(&self) -> &'static str;

    /// What the adapter can do. It does not change.
    fn capabilities(&self) -> Capabilities;

    /// The memory space in which an address lies; `None` if it is not the adapter's. The adapter
    /// reaches host memory at any address, but need not know which addresses exist.
    fn space_of(&self, address: *const u8) -> Option<MemorySpace>;

    /// Allocates `length` bytes in `space`, all zero, aligned for every element type. They are freed when the last that
    /// uses the region is done with it, or soon after, by another thread.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unreachable`] if the adapter has no such space; another if the space has no such memory.
    fn allocate(&self, space: MemorySpace, length: usize) -> Result<Region, DeviceError>;

    /// Finds out where `region` lies and opens the way to it: a direct view where the host can
    /// address it, otherwise a queue of copies.
    ///
    /// The queue's copies come after all work that is on [`Region::stream`] at the time of this call, and after
    /// the copies of queues of the same memory that were dropped before it. The call does not wait for any of
    /// it, and the adapter does not use the stream afterwards: call it on the thread that enqueued the work,
    /// before anything else is enqueued.
    ///
    /// # Errors
    ///
    /// The region does not lie where it says, or the device or its driver refuses. The region is then dropped. One
    /// without bytes can be opened whatever its address.
    fn open(&self, region: Region) -> Result<Access<Self::Queue>, DeviceError>;
}

/// What an adapter can do; see [`DeviceAdapter::capabilities`].
///
/// ```
/// use nexar_device::Capabilities;
///
/// let mut capabilities = Capabilities::default();
/// capabilities.slot_len = 1 << 18;
/// capabilities.slots = 16;
/// assert!(!capabilities.reduce);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Length of a staging slot in bytes: that of the longest copy. A multiple of 16. 0 where no queue exists.
    pub slot_len: usize,
    /// Staging slots that all queues share. A queue that waits for its first slot gets one beyond them.
    pub slots: usize,
    /// Queues have [`ExecutionQueue::fill`].
    pub fill: bool,
    /// Queues have [`ExecutionQueue::reduce`].
    pub reduce: bool,
}

/// The way to a region; see [`DeviceAdapter::open`].
#[derive(Debug)]
pub enum Access<Q> {
    /// The host reads and writes the region in place.
    Host(HostView),
    /// The region is copied piece by piece through slots that the host can reach.
    Staged(Q),
}

/// An in-order queue of work on one region of device memory, above all of copies between it and staging slots.
///
/// A slot is host memory that the device copies from and to without the help of the CPU. There are few,
/// and they are shared by all queues of an adapter. A piece goes through these steps, several pieces at a time:
///
/// 1. [`poll_slot`](ExecutionQueue::poll_slot): wait for a free slot;
/// 2. [`copy_out`](ExecutionQueue::copy_out): device to slot;
/// 3. the host sends, receives and reduces in the slot;
/// 4. [`copy_in`](ExecutionQueue::copy_in): slot to device; dropping the slot frees it.
///
/// A copy owns its slot until it is complete, so that the host cannot touch memory that the device is
/// working on. Methods only enqueue; none blocks. Work in one direction runs in the order in which it was
/// enqueued; copies in opposite directions may overlap: where one needs the bytes of another, wait for that
/// one first. What a complete copy has written is there for whatever is enqueued later, on any stream.
///
/// Dropping the queue or a transfer is safe at any time: the implementation keeps the region and the
/// slots alive until the device is done with them, without blocking the caller. Work that is enqueued is
/// carried out all the same.
///
/// After an error of a transfer the contents of its slot and of its range are unspecified; the slot is freed.
pub trait ExecutionQueue: fmt::Debug + Send + 'static {
    /// Host memory that the device can reach, [`Capabilities::slot_len`] bytes long. What it holds at first is
    /// unspecified. It can be used with every queue of the adapter, whichever it came from.
    type Slot: AsRef<[u8]> + AsMut<[u8]> + Send + 'static;

    /// A piece of work with a slot that is under way; it gives the slot back when it is complete. A transfer may
    /// be polled by one task after the other; the last one is woken.
    type Transfer: Future<Output = Result<Self::Slot, DeviceError>> + Send + Unpin + 'static;

    /// Length of the region in bytes.
    fn region_len(&self) -> usize;

    /// Ready once a slot is free. Pending is back-pressure: all slots are in use. A queue none of whose slots
    /// is in use gets one at once, whatever other queues hold, so that operations never wait for each other. Otherwise
    /// those that wait get slots in the order in which they began to wait; who waits keeps its place until it gets
    /// one or is dropped.
    ///
    /// The last task that has polled is woken when polling again may help.
    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Slot, DeviceError>>;

    /// Enqueues a copy of the bytes `range` of the region to `slot`, from its byte `at` on. The other bytes of the slot
    /// stay as they are.
    ///
    /// The transfer fails with [`DeviceError::OutOfRange`] if the range does not lie in the region or
    /// does not fit into the slot.
    fn copy_out(&mut self, range: Range<usize>, slot: Self::Slot, at: usize) -> Self::Transfer;

    /// Enqueues a copy from `slot`, from its byte `at` on, to the bytes `range` of the region.
    ///
    /// The transfer fails with [`DeviceError::OutOfRange`] if the range does not lie in the region or
    /// the slot does not have as many bytes.
    fn copy_in(&mut self, slot: Self::Slot, at: usize, range: Range<usize>) -> Self::Transfer;

    /// Enqueues setting the bytes `range` of the region to `byte`, in the order of copies to the device.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`]; [`DeviceError::Unsupported`] without [`Capabilities::fill`].
    fn fill(&mut self, range: Range<usize>, byte: u8) -> Result<(), DeviceError> {
        let _ = (range, byte);
        Err(DeviceError::Unsupported { operation: "fill" })
    }

    /// Enqueues the reduction of the elements in `slot`, from its byte `at` on, into those in the bytes `range` of
    /// the region, on the device, in the order of copies to the device.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] without [`Capabilities::reduce`]; the slot is then freed. What else is wrong
    /// is an error of the transfer.
    fn reduce(
        &mut self,
        slot: Self::Slot,
        at: usize,
        range: Range<usize>,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<Self::Transfer, DeviceError> {
        let _ = (slot, at, range, dtype, op);
        Err(DeviceError::Unsupported {
            operation: "reduction on the device",
        })
    }
}

/// The queue of an adapter that never needs one.
impl ExecutionQueue for Infallible {
    type Slot = [u8; 0];
    type Transfer = Ready<Result<[u8; 0], DeviceError>>;

    fn region_len(&self) -> usize {
        match *self {}
    }

    fn poll_slot(&mut self, _: &mut Context<'_>) -> Poll<Result<Self::Slot, DeviceError>> {
        match *self {}
    }

    fn copy_out(&mut self, _: Range<usize>, _: Self::Slot, _: usize) -> Self::Transfer {
        match *self {}
    }

    fn copy_in(&mut self, _: Self::Slot, _: usize, _: Range<usize>) -> Self::Transfer {
        match *self {}
    }
}

/// Why device memory cannot be reached.
///
/// `Debug` shows the message, as `Display` does: a `main` that returns this error prints it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A copy does not lie in the region, or is longer than its slot.
    #[error(
        "bytes {start}..{end} do not lie in a region of {region} bytes or exceed a slot of {slot} bytes"
    )]
    OutOfRange {
        /// First byte.
        start: usize,
        /// End of the bytes.
        end: usize,
        /// Length of the region.
        region: usize,
        /// Length of the slot that is left.
        slot: usize,
    },
    /// The adapter has no such memory space, or the memory does not lie in it.
    #[error("the adapter {adapter} does not reach {what} in {space}")]
    Unreachable {
        /// The adapter's name.
        adapter: &'static str,
        /// What was to be reached.
        what: String,
        /// The memory space.
        space: MemorySpace,
    },
    /// A buffer is longer than memory can be, or holds a part of an element.
    #[error("{bytes} bytes are no {what}")]
    Length {
        /// The length in bytes.
        bytes: usize,
        /// What it should be.
        what: String,
    },
    /// The adapter lacks an optional capability; see [`Capabilities`].
    #[error("the adapter has no {operation}")]
    Unsupported {
        /// What it lacks.
        operation: &'static str,
    },
    /// The device or its driver reports an error.
    #[error("{adapter}: {operation} failed: {source}")]
    Backend {
        /// The adapter's name.
        adapter: &'static str,
        /// What was being done.
        operation: &'static str,
        /// What the driver said.
        source: Arc<dyn StdError + Send + Sync>,
    },
}

impl fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<DeviceError> for nexar_core::Error {
    fn from(error: DeviceError) -> Self {
        nexar_core::Error::Device {
            operation: "device memory",
            source: Arc::new(error),
        }
    }
}
