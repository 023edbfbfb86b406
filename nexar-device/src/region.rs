//! Memory that is handed to an operation by its address.

use std::{
    fmt,
    ops::Range,
    ptr::NonNull,
    slice,
    sync::{Arc, Mutex},
};

/// Where memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MemorySpace {
    /// The host's memory.
    #[default]
    Host,
    /// The memory of a device, by the number that the adapter gives it.
    Device(u32),
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemorySpace::Host => f.write_str("host memory"),
            MemorySpace::Device(number) => write!(f, "the memory of device {number}"),
        }
    }
}

/// What keeps memory alive. The mutex makes it shareable; nobody locks it.
type Owner = Arc<Mutex<dyn Send>>;

/// A region of memory in some memory space, together with what keeps it alive.
///
/// A Rust slice is always host memory and needs no region. This is for memory that Rust has no type
/// for: a device pointer, or a pointer that came through a foreign interface.
pub struct Region {
    address: NonNull<u8>,
    length: usize,
    space: MemorySpace,
    stream: u64,
    owner: Owner,
}

impl Region {
    /// The region of `length` bytes at `address` in `space`.
    ///
    /// `stream` is the device stream in whose order the memory is written, as the number of its handle;
    /// 0 for host memory, and for the default stream of a device. `keep_alive` is dropped once nothing
    /// reads or writes the region any more, on any thread; pass the owner of the memory, or `()` where something else
    /// keeps it alive as long.
    ///
    /// # Safety
    ///
    /// Until `keep_alive` is dropped (a [`DeviceBuffer`](crate::DeviceBuffer::from_region) of the region asks for less):
    ///
    /// - the region lies in one live allocation of `space`, as the adapter that it is given to numbers
    ///   spaces, and its bytes are initialised;
    /// - nobody else reads or writes it, work that was enqueued on `stream` before this call excepted.
    ///
    /// `address` may be null only if `length` is 0.
    pub unsafe fn from_raw(
        address: *mut u8,
        length: usize,
        space: MemorySpace,
        stream: u64,
        keep_alive: impl Send + 'static,
    ) -> Region {
        Region {
            address: NonNull::new(address).unwrap_or(NonNull::dangling()),
            length,
            space,
            stream,
            owner: Arc::new(Mutex::new(keep_alive)),
        }
    }

    /// The first byte. It is not for the host to dereference unless the memory space allows it.
    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where the region lies.
    pub fn space(&self) -> MemorySpace {
        self.space
    }

    /// The device stream in whose order the memory is written.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    pub(crate) fn set_stream(&mut self, stream: u64) {
        self.stream = stream;
    }

    /// A part of the region, which keeps all of it alive; what of `range` lies beyond the region is left out. Who calls this
    /// sees to it that the two are not used at the same time, or overlap nowhere.
    pub(crate) fn part(&self, range: Range<usize>) -> Region {
        let end = range.end.min(self.length);
        let start = range.start.min(end);
        let address = self.address.as_ptr().wrapping_add(start);
        Region {
            address: NonNull::new(address).unwrap_or(NonNull::dangling()),
            length: end - start,
            space: self.space,
            stream: self.stream,
            owner: Arc::clone(&self.owner),
        }
    }

    /// Both as one region, if they are parts of one and the other begins where this ends.
    pub(crate) fn join(&self, other: &Region) -> Option<Region> {
        let adjoin = self.address.as_ptr().wrapping_add(self.length) == other.address.as_ptr();
        if !adjoin || !Arc::ptr_eq(&self.owner, &other.owner) || self.space != other.space {
            return None;
        }
        Some(Region {
            address: self.address,
            length: self.length + other.length,
            space: self.space,
            stream: self.stream,
            owner: Arc::clone(&self.owner),
        })
    }

    /// The region as bytes that the host may read and write.
    ///
    /// # Safety
    ///
    /// The host can address the region, and no work on [`stream`](Region::stream) is pending.
    pub unsafe fn into_host_view(self) -> HostView {
        HostView(self)
    }
}

// SAFETY: `from_raw` makes the region the only access to its memory, and what keeps it alive is `Send`.
unsafe impl Send for Region {}

// SAFETY: a shared region only tells where it is.
unsafe impl Sync for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("address", &self.address)
            .field("length", &self.length)
            .field("space", &self.space)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// A region that the host reads and writes directly.
#[derive(Debug)]
pub struct HostView(Region);

impl AsRef<[u8]> for HostView {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `from_raw` and `into_host_view` promise that the bytes are alive, initialised and
        // reachable, and that only this value gives access to them.
        unsafe { slice::from_raw_parts(self.0.address.as_ptr(), self.0.length) }
    }
}

impl AsMut<[u8]> for HostView {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`; the exclusive borrow of this value is handed on.
        unsafe { slice::from_raw_parts_mut(self.0.address.as_ptr(), self.0.length) }
    }
}
