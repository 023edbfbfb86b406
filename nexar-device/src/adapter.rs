//! The traits that an adapter for a kind of memory implements.

use crate::region::{HostView, Region};
use std::{
    convert::Infallible,
    error::Error as StdError,
    fmt,
    future::{Future, Ready},
    ops::Range,
    sync::Arc,
    task::{Context, Poll},
};

/// How the host reaches the memory of one kind of device. Clones are handles to the same adapter.
pub trait DeviceAdapter: Clone + fmt::Debug + Send + Sync + 'static {
    /// Copies between the device's memory and the host; [`Infallible`] where the host reaches all
    /// memory directly and no queue ever exists.
    type Queue: ExecutionQueue;

    /// A short name for tables and logs, such as `cpu`.
    fn name(&self) -> &str;

    /// Finds out where `region` lies and opens the way to it: a direct view where the host can
    /// address it, otherwise a queue of copies.
    ///
    /// The queue's copies come after all work that is on [`Region::stream`] at the time of this call.
    /// The call does not wait for that work, and the adapter does not use the stream afterwards: call
    /// it on the thread that enqueued the work, before anything else is enqueued.
    ///
    /// # Errors
    ///
    /// The device or its driver refuses. The region is then dropped.
    fn open(&self, region: Region) -> Result<Access<Self::Queue>, DeviceError>;
}

/// The way to a region; see [`DeviceAdapter::open`].
#[derive(Debug)]
pub enum Access<Q> {
    /// The host reads and writes the region in place.
    Host(HostView),
    /// The region is copied piece by piece through slots that the host can reach.
    Staged(Q),
}

/// An in-order queue of copies between one region of device memory and staging slots.
///
/// A slot is host memory that the device copies from and to without the help of the CPU. There are few,
/// and they are shared by all queues of an adapter; their number times their size is the staging memory
/// that an adapter needs. A piece goes through these steps, several pieces at a time:
///
/// 1. [`poll_slot`](ExecutionQueue::poll_slot): wait for a free slot;
/// 2. [`copy_out`](ExecutionQueue::copy_out): device to slot;
/// 3. the host sends, receives and reduces in the slot;
/// 4. [`copy_in`](ExecutionQueue::copy_in): slot to device; dropping the slot frees it.
///
/// A copy owns its slot until it is complete, so that the host cannot touch memory that the device is
/// working on. Copies in one direction run in the order in which they were enqueued; copies in opposite
/// directions may overlap.
///
/// Dropping the queue or a transfer is safe at any time: the implementation keeps the region and the
/// slots alive until the device is done with them, without blocking the caller.
pub trait ExecutionQueue: fmt::Debug + Send + 'static {
    /// Host memory that the device can reach. Its length is that of the longest piece.
    type Slot: AsRef<[u8]> + AsMut<[u8]> + Send + 'static;

    /// A copy that is under way; it gives the slot back when it is complete.
    type Transfer: Future<Output = Result<Self::Slot, DeviceError>> + Send + Unpin + 'static;

    /// Length of the region in bytes.
    fn region_len(&self) -> usize;

    /// Ready once a slot is free. Pending is back-pressure: all slots are in use.
    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Slot, DeviceError>>;

    /// Enqueues a copy of the bytes `range` of the region to the start of `slot`.
    ///
    /// The transfer fails with [`DeviceError::OutOfRange`] if the range does not lie in the region or
    /// does not fit into the slot.
    fn copy_out(&mut self, range: Range<usize>, slot: Self::Slot) -> Self::Transfer;

    /// Enqueues a copy from the start of `slot` to the bytes `range` of the region.
    ///
    /// The transfer fails with [`DeviceError::OutOfRange`] if the range does not lie in the region or
    /// is longer than the slot.
    fn copy_in(&mut self, slot: Self::Slot, range: Range<usize>) -> Self::Transfer;
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

    fn copy_out(&mut self, _: Range<usize>, _: Self::Slot) -> Self::Transfer {
        match *self {}
    }

    fn copy_in(&mut self, _: Self::Slot, _: Range<usize>) -> Self::Transfer {
        match *self {}
    }
}

/// Why device memory cannot be reached.
#[derive(Debug, Clone, thiserror::Error)]
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
        /// Length of the slot.
        slot: usize,
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
