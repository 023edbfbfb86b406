//! Memory of the devices and pinned memory, and the bytes behind it.
//!
//! Addresses of devices lie in a reserved range where the host cannot read, with gaps between allocations, and are never
//! used again. The bytes are elsewhere.

use crate::{
    codes::{self, Code},
    ops::Work,
};
use std::{
    alloc::{Layout, alloc, dealloc},
    collections::BTreeMap,
    ffi::{c_int, c_void},
    ptr,
    sync::Arc,
};

/// What memory holds that nobody has written, or that was freed.
const POISON: u8 = 0xDB;

/// Addresses of all allocations that a stub ever makes.
const RESERVED: usize = 1 << 36;
/// At least so many addresses between two allocations.
const GAP: u64 = 1 << 16;
const ALIGNMENT: u64 = 512;
const PAGE: usize = 4096;

/// One end of a copy.
pub(crate) enum Place {
    Device { context: usize, address: u64 },
    Host(usize),
    Staged(Arc<[u8]>),
}

/// Bytes of our own: of a device, or pinned.
pub(crate) struct Backing {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: the bytes are reached through pointers only, in the order that the tested program asks for.
unsafe impl Send for Backing {}
// SAFETY: as above.
unsafe impl Sync for Backing {}

impl Backing {
    fn new(len: usize) -> Result<Backing, Code> {
        let layout = Layout::from_size_align(len, PAGE).map_err(|_| codes::OUT_OF_MEMORY)?;
        // SAFETY: allocations have at least one byte.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(codes::OUT_OF_MEMORY);
        }
        // SAFETY: so many bytes were allocated.
        unsafe { ptr::write_bytes(start, POISON, len) };
        Ok(Backing { start, layout })
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: they were allocated so, and nothing else frees them.
        unsafe {
            ptr::write_bytes(self.start, POISON, self.layout.size());
            dealloc(self.start, self.layout);
        }
    }
}

struct Allocation {
    context: usize,
    id: u64,
    len: usize,
    backing: Arc<Backing>,
    /// False until the stream comes to its allocation.
    usable: bool,
}

/// Pinned host memory.
pub(crate) struct Pinned {
    pub(crate) context: usize,
    pub(crate) len: usize,
    id: u64,
    /// None for memory that was registered.
    backing: Option<Arc<Backing>>,
}

impl Pinned {
    pub(crate) fn is_registered(&self) -> bool {
        self.backing.is_none()
    }
}

/// What an address belongs to.
pub(crate) struct Found {
    pub(crate) context: usize,
    pub(crate) on_device: bool,
    pub(crate) id: u64,
    pub(crate) start: u64,
    pub(crate) len: usize,
}

#[derive(Default)]
pub(crate) struct Memory {
    /// Start of the reserved range, 0 before it is.
    base: u64,
    next: u64,
    last_id: u64,
    allocations: BTreeMap<u64, Allocation>,
    pinned: BTreeMap<u64, Pinned>,
}

impl Memory {
    /// Reserves the addresses of the devices.
    pub(crate) fn reserve(&mut self) -> Result<(), Code> {
        if self.base == 0 {
            self.base = reserve(RESERVED)?;
            self.next = self.base + GAP;
        }
        Ok(())
    }

    pub(crate) fn is_device_address(&self, address: u64) -> bool {
        (self.base..self.base + RESERVED as u64).contains(&address)
    }

    pub(crate) fn allocate(
        &mut self,
        context: usize,
        len: usize,
        limit: u64,
        usable: bool,
    ) -> Result<u64, Code> {
        let own = self.allocations.values().filter(|a| a.context == context);
        let used: u64 = own.map(|a| a.len as u64).sum();
        let fits = (used.checked_add(len as u64)).is_some_and(|total| total <= limit);
        let address = self.next;
        let end = (address.checked_add(len as u64)).filter(|end| *end + 2 * GAP < self.end());
        let (true, Some(end)) = (fits, end) else {
            return Err(codes::OUT_OF_MEMORY);
        };
        let backing = Arc::new(Backing::new(len)?);
        self.next = (end + GAP).next_multiple_of(ALIGNMENT);
        let id = self.new_id();
        let allocation = Allocation {
            context,
            id,
            len,
            backing,
            usable,
        };
        self.allocations.insert(address, allocation);
        Ok(address)
    }

    fn end(&self) -> u64 {
        self.base + RESERVED as u64
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn set_usable(&mut self, address: u64) {
        if let Some(allocation) = self.allocations.get_mut(&address) {
            allocation.usable = true;
        }
    }

    /// Length of the allocation that begins here.
    pub(crate) fn allocation_len(&self, address: u64) -> Option<usize> {
        self.allocations.get(&address).map(|a| a.len)
    }

    pub(crate) fn free(&mut self, address: u64) {
        self.allocations.remove(&address);
    }

    pub(crate) fn allocate_pinned(&mut self, context: usize, len: usize) -> Result<usize, Code> {
        let backing = Arc::new(Backing::new(len)?);
        let start = backing.start.addr();
        self.insert_pinned(context, start, len, Some(backing));
        Ok(start)
    }

    pub(crate) fn register(
        &mut self,
        context: usize,
        start: usize,
        len: usize,
    ) -> Result<(), Code> {
        let end = (start as u64).checked_add(len as u64);
        let end = end.ok_or(codes::INVALID_VALUE)?;
        let mut before = self.pinned.range(..end);
        if before
            .next_back()
            .is_some_and(|(at, pinned)| at + pinned.len as u64 > start as u64)
        {
            return Err(codes::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.insert_pinned(context, start, len, None);
        Ok(())
    }

    fn insert_pinned(
        &mut self,
        context: usize,
        start: usize,
        len: usize,
        backing: Option<Arc<Backing>>,
    ) {
        let id = self.new_id();
        let pinned = Pinned {
            context,
            len,
            id,
            backing,
        };
        self.pinned.insert(start as u64, pinned);
    }

    /// The pinned memory that begins here.
    pub(crate) fn pinned(&self, start: usize) -> Option<&Pinned> {
        self.pinned.get(&(start as u64))
    }

    pub(crate) fn unpin(&mut self, start: usize) {
        self.pinned.remove(&(start as u64));
    }

    /// Whether all these bytes are in one piece of pinned memory.
    pub(crate) fn is_pinned(&self, start: usize, len: usize) -> bool {
        self.find(start as u64).is_some_and(|found| {
            !found.on_device && start as u64 - found.start + len as u64 <= found.len as u64
        })
    }

    pub(crate) fn find(&self, address: u64) -> Option<Found> {
        let allocation = self.allocations.range(..=address).next_back();
        let allocation = allocation.map(|(start, a)| Found {
            context: a.context,
            on_device: true,
            id: a.id,
            start: *start,
            len: a.len,
        });
        let pinned = self.pinned.range(..=address).next_back();
        let pinned = pinned.map(|(start, p)| Found {
            context: p.context,
            on_device: false,
            id: p.id,
            start: *start,
            len: p.len,
        });
        let mut candidates = allocation.into_iter().chain(pinned);
        candidates.find(|found| address - found.start < found.len as u64)
    }

    pub(crate) fn destroy_context(&mut self, context: usize) {
        self.allocations.retain(|_, a| a.context != context);
        self.pinned.retain(|_, pinned| pinned.context != context);
    }

    /// What is to be moved; none if an address of a device is illegal.
    pub(crate) fn job(&self, work: &Work) -> Option<Job> {
        match work {
            Work::Copy { to, from, len } => Some(Job {
                to: self.side(to, *len)?,
                from: Source::Side(self.side(from, *len)?),
                len: *len,
            }),
            Work::Fill { to, byte, len } => Some(Job {
                to: self.side(to, *len)?,
                from: Source::Byte(*byte),
                len: *len,
            }),
            _ => None,
        }
    }

    fn side(&self, place: &Place, len: usize) -> Option<Side> {
        match place {
            Place::Host(address) => Some(Side {
                start: ptr::with_exposed_provenance_mut(*address),
                _kept: None,
                _staged: None,
            }),
            Place::Staged(bytes) => Some(Side {
                start: bytes.as_ptr().cast_mut(),
                _kept: None,
                _staged: Some(Arc::clone(bytes)),
            }),
            Place::Device { context, address } => {
                let (start, found) = self.allocations.range(..=address).next_back()?;
                let at = usize::try_from(address - start).ok()?;
                let inside = at.checked_add(len)? <= found.len;
                (inside && found.usable && found.context == *context).then(|| Side {
                    start: found.backing.start.wrapping_add(at),
                    _kept: Some(Arc::clone(&found.backing)),
                    _staged: None,
                })
            }
        }
    }
}

/// Bytes to be moved.
pub(crate) struct Job {
    to: Side,
    from: Source,
    len: usize,
}

enum Source {
    Side(Side),
    Byte(u8),
}

struct Side {
    start: *mut u8,
    _kept: Option<Arc<Backing>>,
    _staged: Option<Arc<[u8]>>,
}

impl Job {
    pub(crate) fn run(self) {
        match &self.from {
            // SAFETY: memory of devices and staged bytes are kept by `self` and as long; host memory is there until
            // the work on it is done, as the driver's documentation demands of whoever enqueued it.
            Source::Side(from) => unsafe { ptr::copy(from.start, self.to.start, self.len) },
            // SAFETY: as above.
            Source::Byte(byte) => unsafe { ptr::write_bytes(self.to.start, *byte, self.len) },
        }
    }
}

/// Addresses at which nothing can be read or written.
fn reserve(len: usize) -> Result<u64, Code> {
    const PROT_NONE: c_int = 0;
    const MAP_PRIVATE: c_int = 2;
    const MAP_ANONYMOUS: c_int = if cfg!(any(target_os = "linux", target_os = "android")) {
        0x20
    } else {
        0x1000
    };
    // By hand, since `libc` and `rustix` have features: see Cargo.toml.
    unsafe extern "C" {
        fn mmap(
            address: *mut c_void,
            len: usize,
            protection: c_int,
            flags: c_int,
            file: c_int,
            offset: isize,
        ) -> *mut c_void;
    }
    // SAFETY: a new mapping touches nothing that is there.
    let start = unsafe {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        mmap(ptr::null_mut(), len, PROT_NONE, flags, -1, 0)
    };
    match start.addr() {
        usize::MAX => Err(codes::OPERATING_SYSTEM),
        start => Ok(start as u64),
    }
}
