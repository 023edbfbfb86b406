//! The staging slots, and who waits for one.
//!
//! The rules of `ExecutionQueue::poll_slot`: a queue without a slot in use gets one at once, beyond the number if
//! need be, so that no operation waits for another one to end. Otherwise a queue may have to wait; the trait has
//! a slot go to it once one is free, and the task that polled last is woken. Here they are served in turn.

use nexar_device::DeviceError;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) slot_len: usize,
    pub(crate) slots: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Box<[u8]>>,
    in_use: usize,
    /// Slots in use by queue. Those that are beyond the number are among them.
    held: HashMap<u64, usize>,
    /// Queues that have asked in vain, in turn, each with the task that asked last.
    waiting: VecDeque<(u64, Waker)>,
    last_queue: u64,
}

impl Pool {
    pub(crate) fn new(slot_len: usize, slots: usize) -> Pool {
        Pool {
            slot_len,
            slots,
            state: Mutex::default(),
        }
    }

    /// A number for a queue.
    pub(crate) fn enter(&self) -> u64 {
        let mut state = self.state();
        state.last_queue += 1;
        state.last_queue
    }

    /// A queue is dropped and passes its turn on. Its slots may be in use a little longer.
    pub(crate) fn leave(&self, queue: u64) {
        let mut state = self.state();
        state.waiting.retain(|(other, _)| *other != queue);
        self.wake(state);
    }

    pub(crate) fn poll_slot(
        self: &Arc<Self>,
        queue: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Slot, DeviceError>> {
        let mut state = self.state();
        let turn = state.waiting.iter().position(|(other, _)| *other == queue);
        let ahead = turn.unwrap_or(state.waiting.len());
        let has_one = state.held.contains_key(&queue);
        if has_one && self.available(&state) <= ahead {
            match turn {
                Some(turn) => state.waiting[turn].1.clone_from(cx.waker()),
                None => state.waiting.push_back((queue, cx.waker().clone())),
            }
            return Poll::Pending;
        }
        state.waiting.retain(|(other, _)| *other != queue);
        *state.held.entry(queue).or_default() += 1;
        state.in_use += 1;
        let bytes = state.free.pop();
        self.wake(state);
        Poll::Ready(Ok(Slot {
            bytes: bytes.unwrap_or_else(|| vec![0; self.slot_len].into()),
            queue,
            pool: Arc::clone(self),
        }))
    }

    fn take_back(&self, queue: u64, bytes: Box<[u8]>) {
        let mut state = self.state();
        state.in_use -= 1;
        if let Some(held) = state.held.get_mut(&queue) {
            *held -= 1;
            if *held == 0 {
                state.held.remove(&queue);
            }
        }
        // Those beyond the number are given to the allocator again.
        if state.in_use + state.free.len() < self.slots {
            state.free.push(bytes);
        }
        self.wake(state);
    }

    fn available(&self, state: &State) -> usize {
        self.slots.saturating_sub(state.in_use)
    }

    /// Wakes whoever would get a slot now. Wakers run code of others: not while the lock is held.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let available = self.available(&state);
        let waiting = state.waiting.iter().enumerate();
        let served = waiting
            .filter(|(turn, (queue, _))| *turn < available || !state.held.contains_key(queue));
        let wakers: Vec<Waker> = served.map(|(_, (_, waker))| waker.clone()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot. Dropping it, wherever that happens, frees it.
#[derive(Debug)]
pub(crate) struct Slot {
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
        self.pool.take_back(self.queue, bytes);
    }
}
