//! The collectives on the memory of a device: a simulated one, and CUDA.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "cuda")]
mod cuda;
mod failures;
mod messages;
mod operations;
mod stalls;
mod started;

use nexar_collectives::{DeviceAdapter, MemorySpace};
use nexar_device::testing::MemoryDevice;
use std::time::Duration;

/// An adapter and the space of a rank.
#[derive(Debug, Clone)]
pub(crate) struct Devices<D: DeviceAdapter> {
    pub(crate) adapter: D,
    pub(crate) space: MemorySpace,
}

/// A simulated device whose copies take a random time.
fn simulated(rank: usize, slots: usize, slot_len: usize) -> Devices<MemoryDevice> {
    let adapter = MemoryDevice::builder()
        .slots(slots)
        .slot_len(slot_len)
        .delay(rank as u64, Duration::from_micros(50))
        .build();
    Devices {
        adapter,
        space: MemorySpace::Device(0),
    }
}

#[tokio::test]
async fn every_operation_with_one_slot() {
    operations::every_operation(|rank| simulated(rank, 1, 64), 64).await;
}

#[tokio::test]
async fn every_operation_with_a_few_slots() {
    operations::every_operation(|rank| simulated(rank, 4, 112), 112).await;
}

#[tokio::test]
async fn every_operation_with_long_slots() {
    operations::every_operation(|rank| simulated(rank, 3, 4096), 300).await;
}
