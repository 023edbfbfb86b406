//! The staging slots that all queues of a device share.

use super::{allocation::zeroed, lock};
use crate::adapter::DeviceError;
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

/// The slots: some are free, and queues may wait for them.
#[derive(Debug)]
pub(super) struct Pool {
    slot_len: usize,
    /// How many there should be.
    slots: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Box<[u8]>>,
    /// Slots that exist, free or not. Only where none is free, there are more than there should be.
    allocated: usize,
    /// How many slots of each queue are in use. No entry means none.
    in_use: HashMap<u64, usize>,
    /// Queues that have found no slot, the first to come first, and the task that waits.
    waiting: VecDeque<(u64, Waker)>,
    next_queue: u64,
}

impl State {
    /// Wakes whoever may get a slot now.
    fn wakers(&self, slots: usize) -> Vec<Waker> {
        let available = self.free.len() + slots.saturating_sub(self.allocated);
        let helped = |(place, (queue, _)): &(usize, &(u64, Waker))| {
            *place < available || !self.in_use.contains_key(queue)
        };
        let waiting = self.waiting.iter().enumerate().filter(helped);
        waiting.map(|(_, (_, waker))| waker.clone()).collect()
    }
}

impl Pool {
    pub(super) fn new(slot_len: usize, slots: usize) -> Pool {
        Pool {
            slot_len,
            slots,
            state: Mutex::default(),
        }
    }

    /// Slots in use and slots that exist.
    pub(super) fn usage(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.in_use.values().sum(), state.allocated)
    }

    /// A number for a new queue.
    pub(super) fn enter(&self) -> u64 {
        let mut state = lock(&self.state);
        state.next_queue += 1;
        state.next_queue
    }

    /// The queue waits no longer.
    pub(super) fn leave(&self, queue: u64) {
        self.change(|state| state.waiting.retain(|(other, _)| *other != queue));
    }

    pub(super) fn poll_slot(
        self: &Arc<Self>,
        queue: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Slot, DeviceError>> {
        self.change(|state| {
            let place = state.waiting.iter().position(|(other, _)| *other == queue);
            let ahead = place.unwrap_or(state.waiting.len());
            let available = state.free.len() + self.slots.saturating_sub(state.allocated);
            if state.in_use.contains_key(&queue) && available <= ahead {
                match place {
                    Some(place) => state.waiting[place].1.clone_from(cx.waker()),
                    None => state.waiting.push_back((queue, cx.waker().clone())),
                }
                return Poll::Pending;
            }
            let bytes = match state.free.pop() {
                Some(bytes) => bytes,
                None => {
                    let bytes = zeroed(self.slot_len)?;
                    state.allocated += 1;
                    bytes
                }
            };
            state.waiting.retain(|(other, _)| *other != queue);
            *state.in_use.entry(queue).or_default() += 1;
            let pool = Arc::clone(self);
            Poll::Ready(Ok(Slot { bytes, queue, pool }))
        })
    }

    fn give_back(&self, queue: u64, bytes: Box<[u8]>) {
        self.change(|state| {
            if let Some(in_use) = state.in_use.get_mut(&queue) {
                *in_use -= 1;
                if *in_use == 0 {
                    state.in_use.remove(&queue);
                }
            }
            match state.allocated > self.slots {
                true => state.allocated -= 1,
                false => state.free.push(bytes),
            }
        });
    }

    /// Changes the state, then wakes those whom it helps.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = lock(&self.state);
        let result = change(&mut state);
        let wakers = state.wakers(self.slots);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

/// A staging slot of a [`MemoryDevice`](crate::testing::MemoryDevice). Dropping it frees it.
pub struct Slot {
    bytes: Box<[u8]>,
    queue: u64,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Slot {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.pool.give_back(self.queue, bytes);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}
