//! The adapter for host memory and the simulated device pass the conformance suite.

use nexar_device::{
    CpuAdapter, MemorySpace,
    testing::{Harness, MemoryDevice, MemoryDeviceBuilder, Work},
};
use std::{any::Any, time::Duration};

struct Cpu;

impl Harness for Cpu {
    type Adapter = CpuAdapter;

    fn adapter(&self) -> CpuAdapter {
        CpuAdapter
    }

    fn spaces(&self) -> Vec<MemorySpace> {
        vec![MemorySpace::Host]
    }
}

/// A device with these options, whatever it can tell and do.
struct Simulated(MemoryDeviceBuilder);

impl Harness for Simulated {
    type Adapter = MemoryDevice;

    fn adapter(&self) -> MemoryDevice {
        self.0.clone().build()
    }

    fn spaces(&self) -> Vec<MemorySpace> {
        vec![
            MemorySpace::Host,
            MemorySpace::Device(0),
            MemorySpace::Device(2),
        ]
    }

    fn write(&self, device: &MemoryDevice, space: MemorySpace, address: u64, data: &[u8]) -> bool {
        space != MemorySpace::Host && device.write(address, data).is_ok()
    }

    fn read(
        &self,
        device: &MemoryDevice,
        space: MemorySpace,
        address: u64,
        target: &mut [u8],
    ) -> bool {
        space != MemorySpace::Host && device.read(address, target).is_ok()
    }

    fn enqueue_write(
        &self,
        device: &MemoryDevice,
        _: MemorySpace,
        address: u64,
        data: &[u8],
    ) -> Option<Work> {
        let stream = device.stream();
        let hold = Box::new(device.hold(stream).ok()?);
        let delay = Duration::from_micros(10);
        let enqueued = device.enqueue_write_bytes(stream, address, data, delay);
        enqueued.ok()?;
        Some(Work { stream, hold })
    }

    fn pause(&self, device: &MemoryDevice) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(device.pause()))
    }

    fn live_bytes(&self, device: &MemoryDevice, space: MemorySpace) -> Option<usize> {
        (space != MemorySpace::Host).then(|| device.usage().live_bytes)
    }
}

/// A device of which nothing is known but what the traits say.
struct Bare(MemoryDeviceBuilder);

impl Harness for Bare {
    type Adapter = MemoryDevice;

    fn adapter(&self) -> MemoryDevice {
        self.0.clone().build()
    }

    fn spaces(&self) -> Vec<MemorySpace> {
        vec![MemorySpace::Device(0)]
    }
}

fn device() -> MemoryDeviceBuilder {
    MemoryDevice::builder().devices(3).slot_len(1024)
}

mod cpu {
    nexar_device::adapter_conformance!(super::Cpu);
}

mod simulated {
    nexar_device::adapter_conformance!(super::Simulated(super::device()));
}

/// Copies take their time, and the device can fill and reduce.
mod slow {
    const DELAY: std::time::Duration = std::time::Duration::from_micros(50);

    nexar_device::adapter_conformance!(super::Simulated(
        super::device()
            .slots(6)
            .delay(5, DELAY)
            .fill(true)
            .reduce(true)
    ));
}

mod one_slot {
    nexar_device::adapter_conformance!(super::Bare(super::device().slots(1)));
}
