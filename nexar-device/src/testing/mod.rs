//! A simulated device for tests.

mod memory;

pub use memory::{
    Held, MemoryDevice, MemoryDeviceBuilder, MemoryQueue, Paused, Slot, Transfer, Usage,
};
