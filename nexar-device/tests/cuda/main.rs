//! The CUDA adapter, on a stub of the driver and, where there is one with a device, on the real driver.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(feature = "testing")]
mod conformance;
mod copies;
mod devices;
mod dropping;
mod faults;
mod hot_path;
mod loading;
mod memory;
mod order;
mod slots;
mod support;
