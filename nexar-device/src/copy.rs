//! Copies of whole regions, through slots, several at a time.

use crate::adapter::{DeviceError, ExecutionQueue};
use std::{
    collections::VecDeque,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Copies that one reader or writer has under way: two at least where there are two slots, so that they overlap, and the other
/// half is left to others.
fn share_of(slots: usize) -> usize {
    slots / 2 + 1
}

/// Reads a region from its first byte to its last. It takes half of all slots and one at most; what it has read never
/// waits for another slot.
///
/// ```
/// use nexar_device::{CopyOut, DeviceError, ExecutionQueue};
/// use std::{future::poll_fn, task::{Poll, ready}};
///
/// /// The bytes of the region of a queue, of an adapter with so many slots.
/// async fn bytes<Q: ExecutionQueue>(queue: Q, slots: usize) -> Result<Vec<u8>, DeviceError> {
///     let (mut copy, mut bytes) = (CopyOut::new(queue, slots), Vec::new());
///     poll_fn(|cx| {
///         loop {
///             let piece = ready!(copy.poll_bytes(cx))?;
///             if piece.is_empty() {
///                 return Poll::Ready(Ok(()));
///             }
///             bytes.extend_from_slice(piece);
///             let length = piece.len();
///             copy.consume(length);
///         }
///     })
///     .await?;
///     Ok(bytes)
/// }
/// ```
#[derive(Debug)]
pub struct CopyOut<Q: ExecutionQueue> {
    queue: Q,
    share: usize,
    /// The first byte that is not being copied yet.
    next: usize,
    /// With their lengths.
    copies: VecDeque<(usize, Q::Transfer)>,
    /// A copy that has ended, and what of it was not used yet.
    here: Option<(Q::Slot, Range<usize>)>,
}

impl<Q: ExecutionQueue> CopyOut<Q> {
    /// Of the region of `queue`, whose adapter has so many [`slots`](crate::Capabilities::slots).
    pub fn new(queue: Q, slots: usize) -> Self {
        CopyOut {
            queue,
            share: share_of(slots),
            next: 0,
            copies: VecDeque::new(),
            here: None,
        }
    }

    /// Begins again with the first byte.
    pub fn restart(&mut self) {
        self.next = 0;
        self.copies.clear();
        self.here = None;
    }

    /// Begins copies, as far as there are slots for them. Pending if one more is wanted.
    ///
    /// # Errors
    ///
    /// Those of [`ExecutionQueue::poll_slot`].
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DeviceError>> {
        let length = self.queue.region_len();
        while self.next < length
            && self.copies.len() + usize::from(self.here.is_some()) < self.share
        {
            let slot = ready!(self.queue.poll_slot(cx))?;
            let end = length.min(self.next + slot.as_ref().len());
            let copy = self.queue.copy_out(self.next..end, slot, 0);
            self.copies.push_back((end - self.next, copy));
            self.next = end;
        }
        Poll::Ready(Ok(()))
    }

    /// The bytes that come next and were not [consumed](Self::consume): at least one, none at the end.
    ///
    /// # Errors
    ///
    /// Those of the device. It then has to be [restarted](Self::restart): the bytes of a copy that failed do not come again.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Result<&[u8], DeviceError>> {
        while self.here.is_none() {
            let ahead = self.poll_ahead(cx)?;
            match self.copies.front_mut() {
                Some((length, copy)) => {
                    let (copied, length) = (ready!(Pin::new(copy).poll(cx)), *length);
                    self.copies.pop_front();
                    self.here = Some((copied?, 0..length));
                }
                None if ahead.is_pending() => return Poll::Pending,
                None => return Poll::Ready(Ok(&[])),
            }
        }
        let here = self.here.as_ref();
        Poll::Ready(Ok(
            // None of a slot that has come back shorter than it was.
            here.map_or(&[], |(slot, left)| {
                slot.as_ref().get(left.clone()).unwrap_or(&[])
            }),
        ))
    }

    /// So many bytes were used.
    pub fn consume(&mut self, length: usize) {
        if let Some((_, left)) = &mut self.here {
            left.start = left.end.min(left.start.saturating_add(length));
            if left.start == left.end {
                self.here = None;
            }
        }
    }
}

/// Writes a region from its first byte on. It takes half of all slots and one at most.
///
/// ```
/// use nexar_device::{CopyIn, DeviceError, ExecutionQueue};
/// use std::{future::poll_fn, task::{Poll, ready}};
///
/// /// Sets the first bytes of the region of a queue, of an adapter with so many slots.
/// async fn set<Q: ExecutionQueue>(queue: Q, slots: usize, length: usize) -> Result<(), DeviceError> {
///     let mut copy = CopyIn::new(queue, slots);
///     copy.restart(length);
///     poll_fn(|cx| {
///         while copy.left() > 0 {
///             ready!(copy.poll_room(cx))?;
///             let room = copy.room();
///             room.fill(7);
///             let filled = room.len();
///             copy.commit(filled);
///         }
///         copy.poll_done(cx)
///     })
///     .await
/// }
/// ```
#[derive(Debug)]
pub struct CopyIn<Q: ExecutionQueue> {
    queue: Q,
    share: usize,
    /// What is to be written, and how much of it was committed.
    length: usize,
    next: usize,
    /// What is being filled, and how far it is.
    filling: Option<(Q::Slot, usize)>,
    copies: VecDeque<Q::Transfer>,
}

impl<Q: ExecutionQueue> CopyIn<Q> {
    /// Of the region of `queue`, whose adapter has so many [`slots`](crate::Capabilities::slots): all of it, unless
    /// [restarted](Self::restart) with another length.
    pub fn new(queue: Q, slots: usize) -> Self {
        CopyIn {
            length: queue.region_len(),
            queue,
            share: share_of(slots),
            next: 0,
            filling: None,
            copies: VecDeque::new(),
        }
    }

    /// Begins again with the first byte, to write `length` of them, or as many as the region has.
    pub fn restart(&mut self, length: usize) {
        (self.length, self.next) = (length.min(self.queue.region_len()), 0);
        self.filling = None;
        // They are carried out all the same, before those that follow.
        self.copies.clear();
    }

    /// Bytes that were not committed yet.
    pub fn left(&self) -> usize {
        self.length - self.next
    }

    /// Ready when there is [room](Self::room) for the bytes that come next, or all were committed.
    ///
    /// # Errors
    ///
    /// Those of the device, of earlier copies as well.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DeviceError>> {
        ready!(self.poll_copies(cx, self.share))?;
        if self.filling.is_none() && self.left() > 0 {
            let slot = ready!(self.queue.poll_slot(cx))?;
            self.filling = Some((slot, 0));
        }
        Poll::Ready(Ok(()))
    }

    /// Where the bytes go that come next: at least one after [`poll_room`](Self::poll_room), none once all were committed.
    pub fn room(&mut self) -> &mut [u8] {
        let left = self.left();
        let Some((slot, filled)) = &mut self.filling else {
            return &mut [];
        };
        let room = slot.as_mut().get_mut(*filled..).unwrap_or(&mut []);
        let length = room.len().min(left);
        &mut room[..length]
    }

    /// So many bytes of the [room](Self::room) hold what is to be written.
    pub fn commit(&mut self, length: usize) {
        let Some((slot, filled)) = self.filling.take() else {
            return;
        };
        let room = slot.as_ref().len().saturating_sub(filled);
        let length = length.min(room).min(self.left());
        self.next += length;
        let full = filled + length;
        if self.left() > 0 && full < slot.as_ref().len() {
            self.filling = Some((slot, full));
        } else {
            let range = self.next - full..self.next;
            self.copies.push_back(self.queue.copy_in(slot, 0, range));
        }
    }

    /// Ready when everything that was committed is in the region.
    ///
    /// # Errors
    ///
    /// Those of the device, here and in [`poll_room`](Self::poll_room), each of them once. It then has to be
    /// [restarted](Self::restart).
    pub fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DeviceError>> {
        self.poll_copies(cx, 1)
    }

    /// Ready when fewer than so many copies are under way.
    fn poll_copies(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Result<(), DeviceError>> {
        while let Some(copy) = self.copies.front_mut() {
            match Pin::new(copy).poll(cx) {
                Poll::Ready(copied) => {
                    self.copies.pop_front();
                    copied?;
                }
                Poll::Pending if self.copies.len() < most => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}
