//! The conformance suite for adapters, on the stub and, where there is one with a device, on the real driver.

use crate::support::{Bench, Pinned, Stream, peek, poke, real_bench, stub_bench};
use nexar_device::{
    MemorySpace,
    cuda::{CudaAdapter, CudaAdapterBuilder},
    testing::{CASES, Harness, Work, run_case},
};
use std::{any::Any, io::Write, sync::Arc, thread};

/// Bytes that a copy on the real driver moves for a millisecond or more.
const SLOW: usize = 64 << 20;

/// A bench whose adapter is tested. What is left of it in the end is looked for, too.
struct Tested(Option<Arc<Bench>>);

impl Tested {
    fn new(bench: Bench) -> Tested {
        Tested(Some(Arc::new(bench)))
    }

    /// The stub with copies that take up to so many microseconds.
    fn stub(slots: usize, delay_max_us: u64) -> Tested {
        let bench = stub_bench(2, |builder| small(builder).slots(slots));
        bench.set("delay_max_us", delay_max_us);
        Tested::new(bench)
    }

    fn bench(&self) -> &Arc<Bench> {
        self.0.as_ref().expect("it is there until the end")
    }
}

impl Drop for Tested {
    fn drop(&mut self) {
        let bench = self.0.take().and_then(Arc::into_inner);
        if !thread::panicking() {
            bench.expect("no hold is left").finish();
        }
    }
}

/// Keeps the stub's devices from copying. It cannot be done on the real driver.
struct Hold(Arc<Bench>);

fn hold(bench: &Arc<Bench>) -> Option<Hold> {
    bench.stub.as_ref()?.set("hold", 1);
    Some(Hold(Arc::clone(bench)))
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.set("hold", 0);
    }
}

/// A stream that is waited for when this is dropped, so that what it uses can be freed then.
struct Waited(Stream);

impl Drop for Waited {
    fn drop(&mut self) {
        self.0.wait();
    }
}

fn small(builder: CudaAdapterBuilder) -> CudaAdapterBuilder {
    builder.slot_len(1024)
}

impl Harness for Tested {
    type Adapter = CudaAdapter;

    fn adapter(&self) -> CudaAdapter {
        self.bench().adapter.clone()
    }

    fn spaces(&self) -> Vec<MemorySpace> {
        let devices = self.bench().adapter.device_count().min(2);
        let devices = (0..devices).map(MemorySpace::Device);
        [MemorySpace::Host].into_iter().chain(devices).collect()
    }

    fn write(&self, _: &CudaAdapter, space: MemorySpace, address: u64, data: &[u8]) -> bool {
        let MemorySpace::Device(device) = space else {
            return false;
        };
        poke(&self.bench().raw, device, address, data);
        true
    }

    fn read(&self, _: &CudaAdapter, space: MemorySpace, address: u64, target: &mut [u8]) -> bool {
        let MemorySpace::Device(device) = space else {
            return false;
        };
        peek(&self.bench().raw, device, address, target);
        true
    }

    fn enqueue_write(
        &self,
        _: &CudaAdapter,
        space: MemorySpace,
        address: u64,
        data: &[u8],
    ) -> Option<Work> {
        let MemorySpace::Device(device) = space else {
            return None;
        };
        let bench = self.bench();
        let pinned = Pinned::new(&bench.raw, device, data);
        let stream = Stream::new(&bench.raw, device);
        let hold = hold(bench);
        // The real driver cannot be held: there the work is slow.
        let slow = hold.is_none().then(|| {
            let zeros = vec![0; SLOW];
            let source = Pinned::new(&bench.raw, device, &zeros);
            let target = bench.memory(device, &zeros);
            stream.write(target.address, source.address, SLOW);
            (source, target)
        });
        stream.write(address, pinned.address, data.len());
        Some(Work {
            stream: stream.number,
            hold: Box::new((hold, Waited(stream), pinned, slow)),
        })
    }

    fn pause(&self, _: &CudaAdapter) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(hold(self.bench())?))
    }

    fn live_bytes(&self, _: &CudaAdapter, space: MemorySpace) -> Option<usize> {
        let stub = self.bench().stub.as_ref()?;
        let device = matches!(space, MemorySpace::Device(_));
        device.then(|| stub.counter("live_device_bytes") as usize)
    }
}

mod many_slots {
    nexar_device::adapter_conformance!(super::Tested::stub(6, 60));
}

mod one_slot {
    nexar_device::adapter_conformance!(super::Tested::stub(1, 0));
}

#[test]
fn the_real_driver() {
    for case in CASES {
        match real_bench(1, small) {
            Ok(bench) => run_case(case, Tested::new(bench)),
            Err(reason) => {
                // Seen although the test succeeds: the output of the macros would be captured.
                let line = format!("skipped: {reason}\n");
                let _ = std::io::stderr().write_all(line.as_bytes());
                return;
            }
        }
    }
}
