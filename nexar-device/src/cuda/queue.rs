//! Copies between a region of device memory and slots.

use super::{
    completion::{Flight, Held},
    device::Opened,
    error::CudaError,
    handles::Direction,
    slots::{CudaSlot, Share},
};
use crate::adapter::{DeviceError, ExecutionQueue};
use std::{
    ffi::c_void,
    fmt,
    future::Future,
    mem,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Copies between a region of a device's memory and pinned slots; see [`ExecutionQueue`].
///
/// It has two streams of its own, one for each direction, so that queues do not wait for each other.
pub struct CudaQueue {
    opened: Arc<Opened>,
    share: Arc<Share>,
    /// The last work in each direction.
    last: [Option<Arc<Flight>>; 2],
}

impl CudaQueue {
    pub(super) fn new(opened: Opened) -> CudaQueue {
        CudaQueue {
            opened: Arc::new(opened),
            share: Arc::default(),
            last: [None, None],
        }
    }

    fn check(&self, range: &Range<usize>, slot: usize) -> Result<(), DeviceError> {
        let region = self.opened.region().len();
        if range.start <= range.end && range.end <= region && range.len() <= slot {
            return Ok(());
        }
        Err(DeviceError::OutOfRange {
            start: range.start,
            end: range.end,
            region,
            slot,
        })
    }

    /// The device address of a byte of the region.
    fn address(&self, at: usize) -> u64 {
        (self.opened.region().address().addr() + at) as u64
    }

    fn copy(
        &mut self,
        direction: Direction,
        range: Range<usize>,
        slot: CudaSlot,
        at: usize,
    ) -> Result<(Arc<Flight>, Held), DeviceError> {
        self.check(&range, slot.len().saturating_sub(at))?;
        let (device, bytes) = (self.address(range.start), range.len());
        let held = Held {
            slot: Some(slot),
            opened: Arc::clone(&self.opened),
        };
        let copying = self
            .opened
            .enqueue(direction, held, |driver, stream, held| {
                let Some(slot) = held.slot.as_mut().filter(|_| bytes > 0) else {
                    return Ok(());
                };
                let host: *mut c_void = slot.address(at);
                match direction {
                    // SAFETY: both sides have as many bytes from there on, as has been checked; they are held
                    // until the copy is done, and nobody else touches the slot.
                    Direction::Out => unsafe {
                        driver.memcpy_dtoh_async(host, device, bytes, stream)
                    },
                    // SAFETY: as above.
                    Direction::In => unsafe {
                        driver.memcpy_htod_async(device, host, bytes, stream)
                    },
                }
            });
        let copying = copying.map_err(|error| error.during(describe(direction)))?;
        self.last[direction as usize] = Some(Arc::clone(&copying.0));
        Ok(copying)
    }
}

fn describe(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "copy from the device",
        Direction::In => "copy to the device",
    }
}

impl ExecutionQueue for CudaQueue {
    type Slot = CudaSlot;
    type Transfer = CudaTransfer;

    fn region_len(&self) -> usize {
        self.opened.region().len()
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<CudaSlot, DeviceError>> {
        let slot = ready!(self.opened.device().slots().poll(&self.share, cx));
        Poll::Ready(slot.map_err(|error| error.during("allocating a staging slot")))
    }

    fn copy_out(&mut self, range: Range<usize>, slot: CudaSlot, at: usize) -> CudaTransfer {
        let copying = self.copy(Direction::Out, range, slot, at);
        CudaTransfer::new(Direction::Out, copying)
    }

    fn copy_in(&mut self, slot: CudaSlot, at: usize, range: Range<usize>) -> CudaTransfer {
        let copying = self.copy(Direction::In, range, slot, at);
        CudaTransfer::new(Direction::In, copying)
    }

    fn fill(&mut self, range: Range<usize>, byte: u8) -> Result<(), DeviceError> {
        self.check(&range, usize::MAX)?;
        let (device, bytes) = (self.address(range.start), range.len());
        if bytes == 0 {
            return Ok(());
        }
        let held = Held {
            slot: None,
            opened: Arc::clone(&self.opened),
        };
        let filling = self
            .opened
            .enqueue(Direction::In, held, |driver, stream, _| {
                // SAFETY: the region has as many bytes from there on, as has been checked; it is held until this
                // is done.
                unsafe { driver.memset_d8_async(device, byte, bytes, stream) }
            });
        let (flight, held) = filling.map_err(|error| error.during("fill"))?;
        self.last[Direction::In as usize] = Some(Arc::clone(&flight));
        self.opened.device().completion().keep(flight, held);
        Ok(())
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        self.opened.device().slots().forget(&self.share);
        let last = mem::take(&mut self.last).into_iter().flatten();
        self.opened.device().add_tails(last);
    }
}

impl fmt::Debug for CudaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaQueue")
            .field("region", self.opened.region())
            .finish_non_exhaustive()
    }
}

/// A copy that is under way; it gives the slot back when it is complete.
///
/// # Cancel safety
///
/// The copy is carried out whether this is polled or dropped.
#[derive(Debug)]
pub struct CudaTransfer {
    direction: Direction,
    state: State,
}

#[derive(Debug)]
enum State {
    Copying(Arc<Flight>, Held),
    Failed(DeviceError),
    /// The result has been handed out.
    Done,
}

impl CudaTransfer {
    fn new(
        direction: Direction,
        copying: Result<(Arc<Flight>, Held), DeviceError>,
    ) -> CudaTransfer {
        let state = match copying {
            Ok((flight, held)) => State::Copying(flight, held),
            Err(error) => State::Failed(error),
        };
        CudaTransfer { direction, state }
    }

    fn finished(&self) -> DeviceError {
        CudaError::TransferFinished.during(describe(self.direction))
    }

    /// What a copy that has ended gives.
    fn finish(
        &self,
        flight: Arc<Flight>,
        mut held: Held,
        outcome: Result<(), CudaError>,
    ) -> Result<CudaSlot, DeviceError> {
        let error = match outcome {
            Ok(()) => return held.slot.take().ok_or_else(|| self.finished()),
            Err(error) => error,
        };
        // The driver may fail to tell while the device still copies.
        let completion = held.opened.device().completion().clone();
        completion.keep(flight, held);
        Err(error.during(describe(self.direction)))
    }
}

impl Future for CudaTransfer {
    type Output = Result<CudaSlot, DeviceError>;

    /// Ready with an error when it has been ready before.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &self.state {
            State::Copying(flight, held) => {
                ready!(flight.poll(cx, held.opened.device().completion()))
            }
            State::Failed(error) => {
                let error = error.clone();
                self.state = State::Done;
                return Poll::Ready(Err(error));
            }
            State::Done => return Poll::Ready(Err(self.finished())),
        };
        match mem::replace(&mut self.state, State::Done) {
            State::Copying(flight, held) => Poll::Ready(self.finish(flight, held, outcome)),
            _ => Poll::Ready(Err(self.finished())),
        }
    }
}

impl Drop for CudaTransfer {
    fn drop(&mut self) {
        let State::Copying(flight, held) = mem::replace(&mut self.state, State::Done) else {
            return;
        };
        if flight.is_over() {
            return;
        }
        let completion = held.opened.device().completion().clone();
        completion.keep(flight, held);
    }
}
