//! Host memory.

use crate::{
    adapter::{Access, DeviceAdapter, DeviceError},
    region::Region,
};
use std::convert::Infallible;

/// The adapter for host memory: every region is used in place, nothing is copied.
///
/// ```
/// use nexar_device::{Access, CpuAdapter, DeviceAdapter, Region};
///
/// let mut memory = vec![1u8, 2, 3];
/// let (address, length) = (memory.as_mut_ptr(), memory.len());
/// // SAFETY: the region takes the only owner of the memory along.
/// let region = unsafe { Region::from_raw(address, length, 0, memory) };
/// if let Access::Host(mut view) = CpuAdapter.open(region)? {
///     view.as_mut()[1] = 20;
///     assert_eq!(view.as_ref(), [1, 20, 3]);
/// }
/// # Ok::<(), nexar_device::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuAdapter;

impl DeviceAdapter for CpuAdapter {
    type Queue = Infallible;

    fn name(&self) -> &str {
        "cpu"
    }

    fn open(&self, region: Region) -> Result<Access<Infallible>, DeviceError> {
        // SAFETY: `Region::from_raw` promises memory of a space that this adapter knows, which is
        // host memory, and there are no streams in it.
        Ok(Access::Host(unsafe { region.into_host_view() }))
    }
}
