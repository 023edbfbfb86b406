//! The options of a simulated device.

use super::{MemoryDevice, allocation::MAX_DEVICES, backend, engine::Direction};
use crate::adapter::DeviceError;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) slot_len: usize,
    pub(super) slots: usize,
    pub(super) devices: u32,
    pub(super) seed: u64,
    pub(super) max_delay: Duration,
    /// In bytes per second, by direction; 0 without a limit.
    pub(super) bandwidth: [u64; 2],
    pub(super) fail_after: Option<u64>,
    pub(super) fill: bool,
    pub(super) reduce: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            slot_len: 4096,
            slots: 4,
            devices: 1,
            seed: 0,
            max_delay: Duration::ZERO,
            bandwidth: [0; 2],
            fail_after: None,
            fill: false,
            reduce: false,
        }
    }
}

impl Options {
    /// How long a copy takes that has no delay.
    pub(super) fn duration(&self, direction: Direction, bytes: usize) -> Duration {
        match self.bandwidth[direction as usize] {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        }
    }

    /// The error of a copy before which `begun` others have begun.
    pub(super) fn fault(&self, begun: u64) -> Option<DeviceError> {
        let sound = self.fail_after.filter(|sound| begun >= *sound)?;
        Some(backend("a copy", Fault { sound }))
    }
}

/// What a device says that was told to fail.
#[derive(Debug, thiserror::Error)]
#[error("the device was told to fail after {sound} copies")]
struct Fault {
    sound: u64,
}

/// Options for a [`MemoryDevice`].
#[derive(Debug, Clone, Default)]
pub struct MemoryDeviceBuilder(Options);

impl MemoryDeviceBuilder {
    /// Length of a slot in bytes, rounded up to a multiple of 16; at least 16.
    pub fn slot_len(mut self, bytes: usize) -> Self {
        let bytes = bytes.clamp(16, isize::MAX as usize - 15);
        self.0.slot_len = bytes.next_multiple_of(16);
        self
    }

    /// Number of slots that all queues share; at least 1.
    pub fn slots(mut self, slots: usize) -> Self {
        self.0.slots = slots.max(1);
        self
    }

    /// Number of devices, which are [`MemorySpace::Device`](crate::MemorySpace::Device) from 0 on; from 1 to 65536.
    pub fn devices(mut self, devices: u32) -> Self {
        self.0.devices = devices.clamp(1, MAX_DEVICES);
        self
    }

    /// Every copy takes longer by a random time up to `max`, at most an hour. The same `seed` gives the same times.
    pub fn delay(mut self, seed: u64, max: Duration) -> Self {
        self.0.seed = seed;
        self.0.max_delay = max.min(Duration::from_secs(3600));
        self
    }

    /// How many bytes per second the copies in each direction move together; 0 without a limit.
    pub fn bandwidth(mut self, out_of_device: u64, into_device: u64) -> Self {
        self.0.bandwidth = [out_of_device, into_device];
        self
    }

    /// All copies fail but the first so many.
    pub fn fail_after(mut self, copies: u64) -> Self {
        self.0.fail_after = Some(copies);
        self
    }

    /// Whether queues have [`ExecutionQueue::fill`](crate::ExecutionQueue::fill).
    pub fn fill(mut self, fill: bool) -> Self {
        self.0.fill = fill;
        self
    }

    /// Whether queues have [`ExecutionQueue::reduce`](crate::ExecutionQueue::reduce).
    pub fn reduce(mut self, reduce: bool) -> Self {
        self.0.reduce = reduce;
        self
    }

    /// The device.
    pub fn build(self) -> MemoryDevice {
        MemoryDevice::with(self.0)
    }
}
