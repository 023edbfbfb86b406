//! Host memory.

use crate::{
    adapter::{Access, Capabilities, DeviceAdapter, DeviceError},
    region::{MemorySpace, Region},
};
use std::convert::Infallible;

/// The adapter for host memory: every region is used in place, nothing is copied.
///
/// ```
/// use nexar_device::{Access, CpuAdapter, DeviceAdapter, MemorySpace, Region};
///
/// let mut memory = vec![1u8, 2, 3];
/// let (address, length) = (memory.as_mut_ptr(), memory.len());
/// // SAFETY: the region takes the only owner of the memory along.
/// let region = unsafe { Region::from_raw(address, length, MemorySpace::Host, 0, memory) };
/// if let Access::Host(mut view) = CpuAdapter.open(region)? {
///     view.as_mut()[1] = 20;
///     assert_eq!(view.as_ref(), [1, 20, 3]);
/// }
/// # Ok::<(), nexar_device::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuAdapter;

impl CpuAdapter {
    fn check(self, space: MemorySpace, length: usize) -> Result<(), DeviceError> {
        if space == MemorySpace::Host {
            return Ok(());
        }
        Err(DeviceError::Unreachable {
            adapter: "cpu",
            what: format!("{length} bytes"),
            space,
        })
    }
}

// SAFETY: every allocation is one of its own, and a region is only in the view that `open` returns.
unsafe impl DeviceAdapter for CpuAdapter {
    type Queue = Infallible;

    fn name(&self) -> &'static str {
        "cpu"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn space_of(&self, _: *const u8) -> Option<MemorySpace> {
        Some(MemorySpace::Host)
    }

    fn allocate(&self, space: MemorySpace, length: usize) -> Result<Region, DeviceError> {
        self.check(space, length)?;
        let too_long = |_| DeviceError::Length {
            bytes: length,
            what: "allocation that this host has memory for".into(),
        };
        // In units of 16 bytes, which aligns it for every element type.
        let mut memory: Vec<u128> = Vec::new();
        memory
            .try_reserve_exact(length.div_ceil(16))
            .map_err(too_long)?;
        memory.resize(length.div_ceil(16), 0);
        let address = memory.as_mut_ptr().cast();
        // SAFETY: the region takes the only owner of the memory along, which is zero.
        Ok(unsafe { Region::from_raw(address, length, space, 0, memory) })
    }

    fn open(&self, region: Region) -> Result<Access<Infallible>, DeviceError> {
        self.check(region.space(), region.len())?;
        // SAFETY: `Region::from_raw` promises memory of its space, which is the host's, and there are
        // no streams in it.
        Ok(Access::Host(unsafe { region.into_host_view() }))
    }
}
