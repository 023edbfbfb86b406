//! A device: what belongs to it, its memory, and the way to a region of it.

use super::{
    chores::Chores,
    completion::{Completion, Flight, Held},
    context::{Context, Location, handle, locate},
    driver::{self, Driver, Handle},
    error::{ADAPTER, CudaError},
    handles::{Direction, Event, Events, StreamPair, Streams},
    lock,
    slots::SlotPool,
};
use crate::{
    adapter::DeviceError,
    region::{MemorySpace, Region},
};
use std::{
    ptr,
    sync::{Arc, Mutex, OnceLock},
};

/// A device that is in use.
#[derive(Debug)]
pub(super) struct Device {
    context: Arc<Context>,
    events: Arc<Events>,
    streams: Arc<Streams>,
    slots: Arc<SlotPool>,
    completion: Completion,
    /// The last work of queues that were dropped while it was under way. New queues come after it.
    tails: Mutex<Vec<Arc<Flight>>>,
}

impl Device {
    pub(super) fn start(
        driver: &Arc<Driver>,
        ordinal: u32,
        slots: (usize, usize),
        chores: &Chores,
        completion: &Completion,
    ) -> Result<Device, CudaError> {
        let context = Context::retain(driver, ordinal, chores)?;
        let device = driver.device(ordinal)?;
        // SAFETY: the driver writes no more bytes than it is told.
        let id = driver.text(|to, len| unsafe { driver.device_get_pci_bus_id(to, len, device) });
        let (slot_len, limit) = slots;
        Ok(Device {
            events: Events::new(&context),
            streams: Streams::new(&context),
            slots: SlotPool::new(&context, id.ok(), slot_len, limit),
            completion: completion.clone(),
            tails: Mutex::default(),
            context,
        })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn slots(&self) -> &Arc<SlotPool> {
        &self.slots
    }

    pub(super) fn completion(&self) -> &Completion {
        &self.completion
    }

    /// Memory of the device, all zero for whatever is enqueued afterwards on any stream.
    pub(super) fn allocate(self: &Arc<Self>, length: usize) -> Result<Region, CudaError> {
        let space = MemorySpace::Device(self.context.ordinal());
        if length == 0 {
            // SAFETY: an empty region needs no memory.
            return Ok(unsafe { Region::from_raw(ptr::null_mut(), 0, space, 0, ()) });
        }
        let memory = self.allocate_raw(length).or_else(|error| {
            if error.code() != Some(driver::OUT_OF_MEMORY) {
                return Err(error);
            }
            self.context.chores().flush();
            self.allocate_raw(length)
        })?;
        let bound = self.context.bind()?;
        let streams = self.streams.take(&bound)?;
        let stream = streams.handle(Direction::In);
        let zeroed = {
            // SAFETY: the memory is as long, and nobody else knows it.
            unsafe { bound.memset_d8_async(memory.address, 0, length, stream) }
                // SAFETY: the stream exists.
                .and_then(|()| unsafe { bound.stream_synchronize(stream) })
        };
        if let Err(error) = zeroed {
            self.context.give(move |driver| {
                // The device may still be at it.
                // SAFETY: the stream exists.
                let _ = unsafe { driver.stream_synchronize(streams.handle(Direction::In)) };
                drop((memory, streams));
            });
            return Err(error);
        }
        let address = ptr::without_provenance_mut(memory.address as usize);
        // SAFETY: the region takes the only owner of the memory along, which is zero.
        Ok(unsafe { Region::from_raw(address, length, space, 0, memory) })
    }

    fn allocate_raw(self: &Arc<Self>, length: usize) -> Result<Allocation, CudaError> {
        let bound = self.context.bind()?;
        let mut address = 0;
        // SAFETY: `address` is there to be written.
        unsafe { bound.mem_alloc(&mut address, length)? };
        Ok(Allocation {
            address,
            device: Arc::clone(self),
        })
    }

    /// Opens the way to a region that says that it lies on this device.
    pub(super) fn open(self: &Arc<Self>, region: Region) -> Result<Opened, DeviceError> {
        self.check(&region)?;
        let ready = self.mark(region.stream() as usize);
        let ready = ready.map_err(|e| e.during("waiting for the stream of the region"))?;
        let mut tails = lock(&self.tails);
        tails.retain(|tail| !tail.is_over());
        Ok(Opened {
            region,
            ready,
            before: tails.clone(),
            streams: OnceLock::new(),
            device: Arc::clone(self),
        })
    }

    /// An event that comes after the work that is on a stream now.
    fn mark(&self, stream: usize) -> Result<Event, CudaError> {
        let bound = self.context.bind()?;
        let ready = self.events.take(&bound)?;
        // SAFETY: the event exists, and the stream too, as the region's maker promised.
        unsafe { bound.event_record(ready.handle(), handle(stream))? };
        Ok(ready)
    }

    /// Whether the region lies in one allocation on this device.
    fn check(&self, region: &Region) -> Result<(), DeviceError> {
        if region.is_empty() {
            return Ok(());
        }
        let operation = "finding out where the region lies";
        let address = region.address().addr() as u64;
        let bound = self.context.bind().map_err(|e| e.during(operation))?;
        let found = locate(&bound, address).map_err(|e| e.during(operation))?;
        if found != Location::Device(self.context.ordinal()) {
            return Err(unreachable(region, ""));
        }
        let (mut start, mut length) = (0, 0);
        // SAFETY: both are there to be written.
        match unsafe { bound.mem_get_address_range(&mut start, &mut length, address) } {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.code(),
                    Some(driver::INVALID_VALUE | driver::NOT_FOUND)
                ) =>
            {
                return Err(unreachable(region, ""));
            }
            Err(error) => return Err(error.during(operation)),
        }
        let left = address
            .checked_sub(start)
            .and_then(|before| (length as u64).checked_sub(before));
        match left {
            Some(left) if region.len() as u64 <= left => Ok(()),
            _ => {
                let note = format!(", where an allocation of {length} bytes begins at {start:#x},");
                Err(unreachable(region, &note))
            }
        }
    }

    /// Queues that are opened later come after this work.
    pub(super) fn add_tails(&self, flights: impl IntoIterator<Item = Arc<Flight>>) {
        let mut tails = lock(&self.tails);
        tails.retain(|tail| !tail.is_over());
        let flights = flights.into_iter();
        tails.extend(flights.filter(|flight| !flight.is_over()));
    }
}

/// Lets what is enqueued on both streams from now on wait for the event as it has been recorded.
fn wait(driver: &Driver, streams: &StreamPair, event: &Event) -> Result<(), CudaError> {
    for direction in Direction::BOTH {
        // SAFETY: the stream and the event exist.
        unsafe { driver.stream_wait_event(streams.handle(direction), event.handle(), 0)? };
    }
    Ok(())
}

pub(super) fn unreachable(region: &Region, note: &str) -> DeviceError {
    DeviceError::Unreachable {
        adapter: ADAPTER,
        what: format!("{} bytes at {:?}{note}", region.len(), region.address()),
        space: region.space(),
    }
}

/// Memory of a device, which is freed when this is dropped.
struct Allocation {
    address: u64,
    device: Arc<Device>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let address = self.address;
        self.device.context.give(move |driver| {
            // SAFETY: the driver allocated it, and nobody uses it any more.
            let _ = unsafe { driver.mem_free(address) };
        });
    }
}

/// A region that is open: its memory is kept as long as this, which is as long as any copy of it is under way.
#[derive(Debug)]
pub(super) struct Opened {
    region: Region,
    /// The work that was on the region's stream, and that of queues that were dropped before.
    ready: Event,
    before: Vec<Arc<Flight>>,
    /// From the first work on: a region may wait for its turn for long, and streams are never given up.
    streams: OnceLock<StreamPair>,
    device: Arc<Device>,
}

impl Opened {
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn chores(&self) -> &Chores {
        self.device.context.chores()
    }

    /// Streams whose work comes after everything that it has to come after.
    fn streams(&self, driver: &Driver) -> Result<&StreamPair, CudaError> {
        if let Some(streams) = self.streams.get() {
            return Ok(streams);
        }
        let streams = self.device.streams.take(driver)?;
        wait(driver, &streams, &self.ready)?;
        for flight in self.before.iter().filter(|flight| !flight.is_over()) {
            wait(driver, &streams, flight.event())?;
        }
        Ok(self.streams.get_or_init(|| streams))
    }

    /// Enqueues work with `start`, which gets the driver and the stream, and what tells when it is done. On an
    /// error nobody knows what the device does with `held`, so that is given back when the stream is idle.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        direction: Direction,
        mut held: Held,
        start: impl FnOnce(&Driver, Handle, &mut Held) -> Result<(), CudaError>,
    ) -> Result<(Arc<Flight>, Held), CudaError> {
        let bound = self.device.context.bind()?;
        let event = self.device.events.take(&bound)?;
        let stream = self.streams(&bound)?.handle(direction);
        let started = start(&bound, stream, &mut held).and_then(|()| {
            // SAFETY: the event and the stream exist.
            unsafe { bound.event_record(event.handle(), stream) }
        });
        match started {
            Ok(()) => Ok((Flight::new(event), held)),
            Err(error) => {
                self.drain(stream.addr(), held);
                Err(error)
            }
        }
    }

    /// Gives `held` back when the stream has nothing more to do.
    fn drain(&self, stream: usize, held: Held) {
        let device = Arc::clone(&self.device);
        self.chores().give(move || {
            let bound = device.context.bind();
            // SAFETY: the stream exists: it is one of the region's that is held.
            let idle = bound.and_then(|bound| unsafe { bound.stream_synchronize(handle(stream)) });
            match idle {
                Ok(()) => held.release(),
                Err(_) => held.release_lost(),
            }
        });
    }
}
