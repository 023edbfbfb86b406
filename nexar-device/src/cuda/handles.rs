//! Events and streams, which are reused.

use super::{
    context::{Context, handle},
    driver::{Driver, Handle},
    error::CudaError,
    lock,
};
use std::{
    ffi::c_uint,
    mem, ptr,
    sync::{Arc, Mutex},
};

const DISABLE_TIMING: c_uint = 2;
const NON_BLOCKING: c_uint = 1;

/// The events of a device that are not in use. There are as many as were ever in use at the same time.
#[derive(Debug)]
pub(super) struct Events {
    context: Arc<Context>,
    free: Mutex<Vec<usize>>,
}

impl Events {
    pub(super) fn new(context: &Arc<Context>) -> Arc<Events> {
        Arc::new(Events {
            context: Arc::clone(context),
            free: Mutex::default(),
        })
    }

    /// An event, which goes back when it is dropped. The context is bound.
    pub(super) fn take(self: &Arc<Self>, driver: &Driver) -> Result<Event, CudaError> {
        let free = lock(&self.free).pop();
        let number = match free {
            Some(number) => number,
            None => {
                let mut event = ptr::null_mut();
                // SAFETY: `event` is there to be written.
                unsafe { driver.event_create(&mut event, DISABLE_TIMING)? };
                event.addr()
            }
        };
        Ok(Event {
            number,
            home: Arc::clone(self),
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let free = mem::take(self.free.get_mut().unwrap_or_else(|e| e.into_inner()));
        if free.is_empty() {
            return;
        }
        self.context.give(move |driver| {
            for number in free {
                // SAFETY: it is an event of this context, and nobody's any more.
                let _ = unsafe { driver.event_destroy(handle(number)) };
            }
        });
    }
}

/// A mark in a stream.
#[derive(Debug)]
pub(super) struct Event {
    number: usize,
    home: Arc<Events>,
}

impl Event {
    pub(super) fn handle(&self) -> Handle {
        handle(self.number)
    }

    /// Whether all work before the mark is done.
    pub(super) fn is_complete(&self) -> Result<bool, CudaError> {
        let bound = self.home.context.bind()?;
        // SAFETY: the event exists.
        unsafe { bound.event_is_complete(self.handle()) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        lock(&self.home.free).push(self.number);
    }
}

/// The streams of a device that are not in use. There are as many pairs as queues were ever open at the same time.
#[derive(Debug)]
pub(super) struct Streams {
    context: Arc<Context>,
    free: Mutex<Vec<[usize; 2]>>,
}

impl Streams {
    pub(super) fn new(context: &Arc<Context>) -> Arc<Streams> {
        Arc::new(Streams {
            context: Arc::clone(context),
            free: Mutex::default(),
        })
    }

    /// A pair of streams, which goes back when it is dropped. The context is bound.
    pub(super) fn take(self: &Arc<Self>, driver: &Driver) -> Result<StreamPair, CudaError> {
        let free = lock(&self.free).pop();
        let numbers = match free {
            Some(numbers) => numbers,
            None => {
                let out = create_stream(driver)?;
                let into = create_stream(driver).inspect_err(|_| {
                    // SAFETY: it has just been created, and nobody else knows it.
                    let _ = unsafe { driver.stream_destroy(handle(out)) };
                })?;
                [out, into]
            }
        };
        Ok(StreamPair {
            numbers,
            home: Arc::clone(self),
        })
    }
}

fn create_stream(driver: &Driver) -> Result<usize, CudaError> {
    let mut stream = ptr::null_mut();
    // SAFETY: `stream` is there to be written.
    unsafe { driver.stream_create(&mut stream, NON_BLOCKING)? };
    Ok(stream.addr())
}

impl Drop for Streams {
    fn drop(&mut self) {
        let free = mem::take(self.free.get_mut().unwrap_or_else(|e| e.into_inner()));
        if free.is_empty() {
            return;
        }
        self.context.give(move |driver| {
            for number in free.into_iter().flatten() {
                // SAFETY: it is a stream of this context, and nobody's any more.
                let _ = unsafe { driver.stream_destroy(handle(number)) };
            }
        });
    }
}

/// A stream for each direction, so that copies overlap. Neither waits for the default stream.
#[derive(Debug)]
pub(super) struct StreamPair {
    numbers: [usize; 2],
    home: Arc<Streams>,
}

impl StreamPair {
    pub(super) fn handle(&self, direction: Direction) -> Handle {
        handle(self.numbers[direction as usize])
    }
}

impl Drop for StreamPair {
    fn drop(&mut self) {
        lock(&self.home.free).push(self.numbers);
    }
}

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the device to the host.
    Out,
    /// From the host to the device.
    In,
}

impl Direction {
    pub(super) const BOTH: [Direction; 2] = [Direction::Out, Direction::In];
}
