//! Memory at addresses that mean nothing to the host.

use super::lock;
use crate::{adapter::DeviceError, region::MemorySpace};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};

/// Every address of a device has this bit, which none of the host's has.
const DEVICE: u64 = 1 << 63;

/// Bits of an address within its device.
const OFFSET_BITS: u32 = 44;

/// Devices that the other bits can tell apart.
pub(super) const MAX_DEVICES: u32 = 1 << 16;

const ALIGNMENT: u64 = 256;

/// Memory of one device.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) address: u64,
    pub(super) bytes: Mutex<Box<[u8]>>,
    length: u64,
}

/// All memory of all devices.
#[derive(Debug)]
pub(super) struct Memory(Mutex<State>);

#[derive(Debug)]
struct State {
    live: BTreeMap<u64, Arc<Allocation>>,
    live_bytes: usize,
    /// The next free address of each device. No address is used twice, so that a stale one is found out.
    next: Vec<u64>,
}

impl Memory {
    pub(super) fn new(devices: u32) -> Memory {
        let first = |device| DEVICE | u64::from(device) << OFFSET_BITS | ALIGNMENT;
        Memory(Mutex::new(State {
            live: BTreeMap::new(),
            live_bytes: 0,
            next: (0..devices).map(first).collect(),
        }))
    }

    /// Live allocations and their bytes.
    pub(super) fn usage(&self) -> (usize, usize) {
        let state = lock(&self.0);
        (state.live.len(), state.live_bytes)
    }

    /// Whether the address can be one of a device.
    pub(super) fn is_foreign(address: u64) -> bool {
        address & DEVICE != 0
    }

    /// New memory, all zero; none if there is no such device.
    pub(super) fn allocate(
        &self,
        device: u32,
        length: usize,
    ) -> Result<Option<Arc<Allocation>>, DeviceError> {
        // In address space, at least one byte that no region has follows each.
        let room = (length as u64).checked_add(ALIGNMENT);
        let Some(room) = room.filter(|room| *room < 1 << (OFFSET_BITS - 1)) else {
            return Err(too_long(length));
        };
        let bytes = zeroed(length)?;
        let mut state = lock(&self.0);
        let Some(next) = state.next.get_mut(device as usize) else {
            return Ok(None);
        };
        let address = *next;
        let after = address + room.next_multiple_of(ALIGNMENT);
        if after & ((1 << OFFSET_BITS) - 1) < address & ((1 << OFFSET_BITS) - 1) {
            return Err(too_long(length));
        }
        *next = after;
        let allocation = Arc::new(Allocation {
            address,
            bytes: Mutex::new(bytes),
            length: length as u64,
        });
        state.live.insert(address, Arc::clone(&allocation));
        state.live_bytes += length;
        Ok(Some(allocation))
    }

    pub(super) fn free(&self, address: u64) {
        let mut state = lock(&self.0);
        if let Some(allocation) = state.live.remove(&address) {
            state.live_bytes -= allocation.length as usize;
        }
    }

    /// The live allocation in which all these bytes lie, and where in it.
    pub(super) fn find(&self, address: u64, length: usize) -> Option<(Arc<Allocation>, usize)> {
        let state = lock(&self.0);
        let (_, allocation) = state.live.range(..=address).next_back()?;
        let offset = address - allocation.address;
        let end = offset.checked_add(length as u64)?;
        // An allocation without bytes has an address all the same.
        let lies_in = end <= allocation.length && offset < allocation.length.max(1);
        lies_in.then(|| (Arc::clone(allocation), offset as usize))
    }
}

impl Allocation {
    /// An allocation that has no bytes, for regions that have none.
    pub(super) fn empty() -> Arc<Allocation> {
        Arc::new(Allocation {
            address: DEVICE,
            bytes: Mutex::default(),
            length: 0,
        })
    }

    pub(super) fn space(&self) -> MemorySpace {
        MemorySpace::Device(((self.address & !DEVICE) >> OFFSET_BITS) as u32)
    }

    /// Works on the bytes `range`; on nothing if there are no such bytes.
    pub(super) fn with<R>(
        &self,
        range: Range<usize>,
        work: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        lock(&self.bytes).get_mut(range).map(work)
    }
}

/// Bytes that are zero, where there is memory for them.
pub(super) fn zeroed(length: usize) -> Result<Box<[u8]>, DeviceError> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(length)
        .map_err(|_| too_long(length))?;
    bytes.resize(length, 0);
    Ok(bytes.into())
}

fn too_long(length: usize) -> DeviceError {
    DeviceError::Length {
        bytes: length,
        what: "allocation that a simulated device has memory for".into(),
    }
}
