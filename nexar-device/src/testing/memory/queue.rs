//! The queue of a simulated device, and its transfers.

use super::{
    MemoryDevice, Slot,
    allocation::Allocation,
    engine::{After, Direction, Job, Operation, SlotWork, Work},
    lock,
};
use crate::{
    adapter::{DeviceError, ExecutionQueue},
    region::Region,
};
use nexar_core::{DataType, ReduceOp};
use std::{
    fmt,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// What the copies of a queue share. The last of them, or the queue, drops it, and the region with it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) region: Region,
    pub(super) memory: Arc<Allocation>,
    /// Where the region begins in the memory.
    pub(super) offset: usize,
    /// What has to be done before the first copy.
    pub(super) after: Vec<After>,
    pub(super) dropped: Arc<AtomicBool>,
}

impl Target {
    /// The addresses of the region.
    pub(super) fn span(&self) -> Range<u64> {
        let start = self.region.address().addr() as u64;
        start..start + self.region.len() as u64
    }

    /// Works on the bytes `range` of the region, which were found to lie in it.
    pub(super) fn with<R>(
        &self,
        range: Range<usize>,
        work: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let range = self.offset + range.start..self.offset + range.end;
        self.memory.with(range, work)
    }
}

/// The queue of a [`MemoryDevice`](crate::testing::MemoryDevice).
pub struct MemoryQueue {
    pub(super) device: MemoryDevice,
    pub(super) target: Arc<Target>,
    /// What the pool knows it by.
    pub(super) number: u64,
}

impl MemoryQueue {
    fn check(&self, range: &Range<usize>, room: usize) -> Result<(), DeviceError> {
        let region = self.target.region.len();
        if range.start <= range.end && range.end <= region && range.len() <= room {
            return Ok(());
        }
        Err(DeviceError::OutOfRange {
            start: range.start,
            end: range.end,
            region,
            slot: room,
        })
    }

    fn transfer(
        &self,
        range: Range<usize>,
        slot: Slot,
        at: usize,
        operation: Operation,
    ) -> Transfer {
        let (completion, transfer) = Completion::new();
        if let Err(error) = self.check(&range, slot.as_ref().len().saturating_sub(at)) {
            drop(slot);
            completion.complete(Err(error));
            return transfer;
        }
        let bytes = range.len();
        let work = Work::Slot(SlotWork {
            range,
            slot,
            at,
            operation,
            completion,
        });
        let job = Job::new(Arc::clone(&self.target), bytes, work);
        let engine = &self.device.shared().engine;
        engine.enqueue(operation.direction(), job);
        transfer
    }
}

impl ExecutionQueue for MemoryQueue {
    type Slot = Slot;
    type Transfer = Transfer;

    fn region_len(&self) -> usize {
        self.target.region.len()
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<Slot, DeviceError>> {
        self.device.shared().pool.poll_slot(self.number, cx)
    }

    fn copy_out(&mut self, range: Range<usize>, slot: Slot, at: usize) -> Transfer {
        self.transfer(range, slot, at, Operation::Out)
    }

    fn copy_in(&mut self, slot: Slot, at: usize, range: Range<usize>) -> Transfer {
        self.transfer(range, slot, at, Operation::In)
    }

    fn fill(&mut self, range: Range<usize>, byte: u8) -> Result<(), DeviceError> {
        if !self.device.shared().options.fill {
            return Err(DeviceError::Unsupported { operation: "fill" });
        }
        self.check(&range, usize::MAX)?;
        let target = Arc::clone(&self.target);
        let job = Job::new(target, 0, Work::Fill(range, byte));
        self.device.shared().engine.enqueue(Direction::In, job);
        Ok(())
    }

    fn reduce(
        &mut self,
        slot: Slot,
        at: usize,
        range: Range<usize>,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<Transfer, DeviceError> {
        if !self.device.shared().options.reduce {
            return Err(DeviceError::Unsupported {
                operation: "reduction on the device",
            });
        }
        Ok(self.transfer(range, slot, at, Operation::Reduce(dtype, op)))
    }
}

impl Drop for MemoryQueue {
    fn drop(&mut self) {
        self.target.dropped.store(true, Ordering::Release);
        self.device.shared().pool.leave(self.number);
    }
}

impl fmt::Debug for MemoryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryQueue")
            .field("region", &self.target.region)
            .finish_non_exhaustive()
    }
}

type Outcome = Result<Slot, DeviceError>;

#[derive(Default)]
struct Landing {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// A copy that is under way on a [`MemoryDevice`](crate::testing::MemoryDevice). Once it has given its slot back, it
/// is pending for ever.
pub struct Transfer(Arc<Mutex<Landing>>);

/// The device's end of a transfer.
pub(super) struct Completion(Arc<Mutex<Landing>>);

impl Completion {
    fn new() -> (Completion, Transfer) {
        let landing = Arc::<Mutex<Landing>>::default();
        (Completion(Arc::clone(&landing)), Transfer(landing))
    }

    /// Nobody may be there for the slot: then it is freed.
    pub(super) fn complete(self, outcome: Outcome) {
        let mut landing = lock(&self.0);
        landing.outcome = Some(outcome);
        let waker = landing.waker.take();
        drop(landing);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Transfer {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut landing = lock(&self.0);
        match landing.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                landing.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}
