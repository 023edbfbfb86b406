//! The queue of one region.

use crate::{
    adapter::{MappedFiles, NAME},
    slots::Slot,
    worker::{Copy, Direction, Job},
};
use nexar_device::{DeviceError, ExecutionQueue, Region};
use std::{
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct FileQueue {
    pub(crate) files: MappedFiles,
    /// Every copy has it, too: the last of them frees the memory, not the queue.
    pub(crate) region: Arc<Region>,
    /// What the pool of slots knows it by.
    pub(crate) number: u64,
    /// What was enqueued before the queue was opened; see `Workers::enqueued`.
    pub(crate) after: [u64; 2],
}

impl FileQueue {
    fn enqueue(
        &self,
        direction: Direction,
        range: Range<usize>,
        slot: Slot,
        at: usize,
    ) -> Transfer {
        let (done, transfer) = oneshot::channel();
        // What a caller can get wrong is an error of the transfer; the slot is freed by being dropped.
        let room = slot.as_ref().len().saturating_sub(at);
        let region = self.region.len();
        if range.start > range.end || range.end > region || range.len() > room {
            let error = DeviceError::OutOfRange {
                start: range.start,
                end: range.end,
                region,
                slot: room,
            };
            drop(slot);
            // The receiver is here.
            let _ = done.send(Err(error));
            return Transfer(transfer);
        }
        let copy = Copy {
            region: Arc::clone(&self.region),
            range,
            slot,
            at,
            after: self.after[1 - direction as usize],
            done,
        };
        self.files.workers().enqueue(direction, Job::Copy(copy));
        Transfer(transfer)
    }
}

impl ExecutionQueue for FileQueue {
    type Slot = Slot;
    type Transfer = Transfer;

    fn region_len(&self) -> usize {
        self.region.len()
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<Slot, DeviceError>> {
        self.files.pool().poll_slot(self.number, cx)
    }

    fn copy_out(&mut self, range: Range<usize>, slot: Slot, at: usize) -> Transfer {
        self.enqueue(Direction::Out, range, slot, at)
    }

    fn copy_in(&mut self, slot: Slot, at: usize, range: Range<usize>) -> Transfer {
        self.enqueue(Direction::In, range, slot, at)
    }

    // Neither `fill` nor `reduce`: the defaults say that there are none, and so do the capabilities.
}

impl Drop for FileQueue {
    fn drop(&mut self) {
        // Nothing else is to do: the jobs have all that they need.
        self.files.pool().leave(self.number);
    }
}

/// A copy under way. Dropping it changes nothing for the copy.
#[derive(Debug)]
pub(crate) struct Transfer(oneshot::Receiver<Result<Slot, DeviceError>>);

impl Future for Transfer {
    type Output = Result<Slot, DeviceError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The receiver wakes the task that polled last, as it has to.
        let received = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(received.unwrap_or_else(|gone| {
            Err(DeviceError::Backend {
                adapter: NAME,
                operation: "a copy",
                source: Arc::new(gone),
            })
        }))
    }
}
