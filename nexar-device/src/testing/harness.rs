//! What the author of an adapter tells the suite.

use crate::{adapter::DeviceAdapter, region::MemorySpace};
use std::{any::Any, time::Duration};

/// Makes the adapter that the suite tests.
///
/// Only the type, [`adapter`](Self::adapter) and [`spaces`](Self::spaces) have to be given. Where a method with a
/// default says that something cannot be done, the cases that need it are skipped, and say so; those that can do
/// without do it in another way.
pub trait Harness: Send + Sync + 'static {
    /// The adapter.
    type Adapter: DeviceAdapter;

    /// The adapter, with nothing under way. Is called once for each case and space; it may be the same each time.
    fn adapter(&self) -> Self::Adapter;

    /// The memory spaces of the adapter. Each case runs in each of them.
    fn spaces(&self) -> Vec<MemorySpace>;

    /// A memory space that the adapter does not have; `None` if it has all.
    fn unknown_space(&self) -> Option<MemorySpace> {
        Some(MemorySpace::Device(u32::MAX))
    }

    /// Writes memory of `space` without the adapter's queues, whatever they do at the moment, and says so; false, the
    /// default, where that cannot be done.
    fn write(
        &self,
        adapter: &Self::Adapter,
        space: MemorySpace,
        address: u64,
        data: &[u8],
    ) -> bool {
        let _ = (adapter, space, address, data);
        false
    }

    /// Reads memory of `space` as it is, without the adapter's queues, and says so; false, the default, where that
    /// cannot be done.
    fn read(
        &self,
        adapter: &Self::Adapter,
        space: MemorySpace,
        address: u64,
        target: &mut [u8],
    ) -> bool {
        let _ = (adapter, space, address, target);
        false
    }

    /// Enqueues that memory of `space` is written, on a stream that it makes for that, without waiting. It is not
    /// written before [`Work::hold`] is dropped. `None`, the default, where there are no streams.
    fn enqueue_write(
        &self,
        adapter: &Self::Adapter,
        space: MemorySpace,
        address: u64,
        data: &[u8],
    ) -> Option<Work> {
        let _ = (adapter, space, address, data);
        None
    }

    /// Keeps the device from beginning a copy until the result is dropped; the cases allocate nothing meanwhile.
    /// `None`, the default, where that cannot be done: then the cases about what happens in between pass if all copies are over at once.
    fn pause(&self, adapter: &Self::Adapter) -> Option<Box<dyn Any + Send>> {
        let _ = adapter;
        None
    }

    /// Bytes of memory of `space` that the adapter has allocated and not freed. `None`, the default, where nobody
    /// counts them. Other tests must not change them.
    fn live_bytes(&self, adapter: &Self::Adapter, space: MemorySpace) -> Option<usize> {
        let _ = (adapter, space);
        None
    }

    /// Limits of the cases.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Why the case of this name does not apply to the adapter, if so. The reason is printed.
    fn skip(&self, case: &str) -> Option<String> {
        let _ = case;
        None
    }
}

/// Work that is pending on a stream; see [`Harness::enqueue_write`].
pub struct Work {
    /// The number of the stream, for [`Region::stream`](crate::Region::stream).
    pub stream: u64,
    /// Keeps the stream from going on until it is dropped. Where that cannot be done, the work is slow, and this is
    /// what keeps the stream alive.
    pub hold: Box<dyn Any + Send>,
}

/// Limits of the cases.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Within what time a case must be done, in each space. Only there so that a hang becomes a failure. Default 60 s.
    pub case_time: Duration,
    /// Threads that work at a time. Default 4.
    pub threads: usize,
    /// How often the cases repeat what could go well by chance. Default 20.
    pub rounds: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            case_time: Duration::from_secs(60),
            threads: 4,
            rounds: 20,
        }
    }
}
