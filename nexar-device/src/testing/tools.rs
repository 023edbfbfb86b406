//! What the cases have in common.

use super::Harness;
use crate::{
    adapter::{Access, Capabilities, DeviceAdapter, ExecutionQueue},
    region::{MemorySpace, Region},
};
use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    ops::Range,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

pub(super) type Queue<H> = <<H as Harness>::Adapter as DeviceAdapter>::Queue;
pub(super) type Slot<H> = <Queue<H> as ExecutionQueue>::Slot;

/// What a case works with.
#[doc(hidden)]
pub struct Case<H: Harness> {
    pub(super) harness: Arc<H>,
    pub(super) adapter: H::Adapter,
    pub(super) space: MemorySpace,
    /// The space is reached by copies, not in place.
    pub(super) staged: bool,
}

impl<H: Harness> Case<H> {
    pub(super) fn new(harness: &Arc<H>, space: MemorySpace) -> Self {
        let adapter = harness.adapter();
        let region = adapter.allocate(space, 1).expect("allocate a byte");
        let access = adapter.open(region).expect("open a byte");
        Case {
            harness: Arc::clone(harness),
            staged: matches!(access, Access::Staged(_)),
            adapter,
            space,
        }
    }

    pub(super) fn allocate(&self, len: usize) -> Memory {
        let region = self.adapter.allocate(self.space, len);
        Memory::new(region.unwrap_or_else(|error| panic!("allocating {len} bytes: {error}")))
    }

    /// Memory with these contents.
    pub(super) async fn memory(&self, content: &[u8]) -> Memory {
        let memory = self.allocate(content.len());
        self.put(&memory, content).await;
        memory
    }

    pub(super) fn queue(&self, region: Region) -> Queue<H> {
        match self.adapter.open(region).expect("open a region") {
            Access::Staged(queue) => queue,
            Access::Host(_) => panic!("a part of {} is reached in place", self.space),
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.adapter.capabilities().slots
    }

    pub(super) fn slot_len(&self) -> usize {
        self.adapter.capabilities().slot_len
    }

    pub(super) fn has(&self, has: impl FnOnce(Capabilities) -> bool) -> bool {
        has(self.adapter.capabilities())
    }

    /// Writes all of the memory while nothing is under way.
    pub(super) async fn put(&self, memory: &Memory, content: &[u8]) {
        assert_eq!(content.len(), memory.len());
        if self
            .harness
            .write(&self.adapter, self.space, memory.address(), content)
        {
            return;
        }
        self.write(memory.region(), content).await;
    }

    /// All of the memory while nothing is under way.
    pub(super) async fn get(&self, memory: &Memory) -> Vec<u8> {
        let mut content = vec![0xEE; memory.len()];
        let (space, address) = (self.space, memory.address());
        if self
            .harness
            .read(&self.adapter, space, address, &mut content)
        {
            return content;
        }
        self.read(memory.region()).await
    }

    /// All of the memory, after the copies of queues that are dropped.
    pub(super) async fn get_after(&self, memory: &Memory) -> Vec<u8> {
        self.read(memory.region()).await
    }

    /// Copies `content` to the region, by its view or its queue, piece by piece.
    pub(super) async fn write(&self, region: Region, content: &[u8]) {
        let mut queue = match self.adapter.open(region).expect("open a region") {
            Access::Host(mut view) => return view.as_mut().copy_from_slice(content),
            Access::Staged(queue) => queue,
        };
        for range in pieces(content.len(), self.slot_len()) {
            let mut slot = slot(&mut queue).await;
            slot.as_mut()[..range.len()].copy_from_slice(&content[range.clone()]);
            queue.copy_in(slot, 0, range).await.expect("copy in");
        }
    }

    /// The content of the region, by its view or its queue, with several pieces under way.
    pub(super) async fn read(&self, region: Region) -> Vec<u8> {
        let mut queue = match self.adapter.open(region).expect("open a region") {
            Access::Host(view) => return view.as_ref().to_vec(),
            Access::Staged(queue) => queue,
        };
        let mut content = Vec::new();
        let mut left: VecDeque<_> = pieces(queue.region_len(), self.slot_len()).collect();
        let mut under_way = VecDeque::new();
        while !left.is_empty() || !under_way.is_empty() {
            let slot = match left.is_empty() {
                true => None,
                // Whoever has slots does not wait for others: all may do so.
                false if under_way.is_empty() => Some(slot(&mut queue).await),
                false => try_slot(&mut queue).await,
            };
            if let (Some(slot), Some(range)) = (slot, left.front().cloned()) {
                left.pop_front();
                under_way.push_back((range.len(), queue.copy_out(range, slot, 0)));
            } else if let Some((len, copy)) = under_way.pop_front() {
                let slot = copy.await.expect("copy out");
                content.extend_from_slice(&slot.as_ref()[..len]);
            }
        }
        content
    }

    /// Checks that as many slots as there should be are free, or will be. There may be more: an adapter may keep those
    /// that were queues' first ones.
    pub(super) async fn check_slots(&self) {
        let mut queue = self.queue(self.allocate(1).region());
        let mut all = Vec::new();
        while all.len() < self.slots() {
            all.push(slot(&mut queue).await);
        }
    }
}

/// Memory that a case has several regions of, one after the other.
pub(super) struct Memory {
    owner: Arc<(Region, mpsc::Sender<()>)>,
    freed: Mutex<mpsc::Receiver<()>>,
    stream: u64,
}

impl Memory {
    fn new(region: Region) -> Memory {
        let (alive, freed) = mpsc::channel();
        Memory {
            stream: region.stream(),
            owner: Arc::new((region, alive)),
            freed: Mutex::new(freed),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.owner.0.len()
    }

    pub(super) fn address(&self) -> u64 {
        self.owner.0.address().addr() as u64
    }

    /// All of it.
    pub(super) fn region(&self) -> Region {
        self.part(0..self.len())
    }

    pub(super) fn on(&self, stream: u64) -> Region {
        self.make(0..self.len(), stream)
    }

    pub(super) fn part(&self, range: Range<usize>) -> Region {
        self.make(range, self.stream)
    }

    fn make(&self, range: Range<usize>, stream: u64) -> Region {
        let region = &self.owner.0;
        assert!(range.start <= range.end && range.end <= region.len());
        let address = region.address().wrapping_add(range.start);
        let owner = Arc::clone(&self.owner);
        // SAFETY: the range lies in a live region that is kept alive; a case uses overlapping regions only in an order
        // that the adapter has to keep.
        unsafe { Region::from_raw(address, range.len(), region.space(), stream, owner) }
    }

    /// Gives the memory up: only what is under way keeps it.
    pub(super) fn give_up(self) -> Freed {
        Freed(self.freed.into_inner().expect("nobody locks it"))
    }
}

/// Tells when memory is free.
pub(super) struct Freed(mpsc::Receiver<()>);

impl Freed {
    pub(super) fn is_free(&self) -> bool {
        self.0.try_recv() == Err(mpsc::TryRecvError::Disconnected)
    }

    /// Waits until nothing keeps the memory.
    pub(super) fn wait(self, limit: Duration) {
        let waited = self.0.recv_timeout(limit);
        assert_eq!(
            waited,
            Err(mpsc::RecvTimeoutError::Disconnected),
            "the region is kept for ever"
        );
    }
}

/// The ranges of pieces of `piece` bytes.
pub(super) fn pieces(len: usize, piece: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len)
        .step_by(piece.max(1))
        .map(move |start| start..len.min(start + piece))
}

/// Content that differs from seed to seed, in every byte.
pub(super) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at % 251 * 7 + at / 251 * 3 + seed * 29 + 1) as u8;
    (0..len).map(byte).collect()
}

/// Checks all bytes; names the first that is wrong.
pub(super) fn check(found: &[u8], expected: &[u8], what: impl Fn() -> String) {
    assert_eq!(found.len(), expected.len(), "{}", what());
    let wrong = found.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = wrong {
        let (is, should) = (found[at], expected[at]);
        panic!("{}: byte {at} is {is} and should be {should}", what());
    }
}

/// Waits for a slot.
pub(super) async fn slot<Q: ExecutionQueue>(queue: &mut Q) -> Q::Slot {
    poll_fn(|cx| queue.poll_slot(cx)).await.expect("a slot")
}

/// A slot, if there is one.
pub(super) async fn try_slot<Q: ExecutionQueue>(queue: &mut Q) -> Option<Q::Slot> {
    let slot = poll_once(poll_fn(|cx| queue.poll_slot(cx))).await;
    slot.map(|slot| slot.expect("a slot"))
}

/// A slot with these bytes from `at` on.
pub(super) async fn filled<Q: ExecutionQueue>(queue: &mut Q, at: usize, data: &[u8]) -> Q::Slot {
    let mut slot = slot(queue).await;
    slot.as_mut()[at..at + data.len()].copy_from_slice(data);
    slot
}

/// Polls `future` once; a future that is not ready is dropped.
pub(super) async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Waits for all `futures`.
pub(super) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        match outputs.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// A task that says whether it was woken.
pub(super) struct Task {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Task {
    pub(super) fn new() -> Arc<Task> {
        Arc::new(Task {
            thread: thread::current(),
            woken: AtomicBool::new(false),
        })
    }

    /// Polls once with this task.
    pub(super) fn poll<T>(self: &Arc<Self>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let waker = Waker::from(Arc::clone(self));
        poll(&mut Context::from_waker(&waker))
    }

    /// Waits until the task is woken, on the thread that made it; false if it is not in time.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        while !self.woken.swap(false, Ordering::Acquire) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
    }
}

/// Runs a future on this thread; `None` if it is not done in time.
pub(super) fn block_on<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    let deadline = Instant::now() + limit;
    let mut future = pin!(future);
    let task = Task::new();
    loop {
        if let Poll::Ready(output) = task.poll(|cx| future.as_mut().poll(cx)) {
            return Some(output);
        }
        if !task.wait(deadline) {
            return None;
        }
    }
}

/// Adds 1 to every byte of the region in pieces of at most `piece` bytes, with as many slots as it gets.
pub(super) async fn increment<D: DeviceAdapter>(adapter: &D, region: Region, piece: usize) {
    let add_one = |bytes: &mut [u8]| {
        bytes
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_add(1))
    };
    let mut queue = match adapter.open(region).expect("open a region") {
        Access::Host(mut view) => return add_one(view.as_mut()),
        Access::Staged(queue) => queue,
    };
    let piece = piece.min(adapter.capabilities().slot_len);
    let mut left: VecDeque<_> = pieces(queue.region_len(), piece).collect();
    let (mut outgoing, mut returning) = (VecDeque::new(), VecDeque::new());
    while !left.is_empty() || !outgoing.is_empty() || !returning.is_empty() {
        let alone = outgoing.is_empty() && returning.is_empty();
        let free = match left.is_empty() {
            true => None,
            false if alone => Some(slot(&mut queue).await),
            false => try_slot(&mut queue).await,
        };
        if let (Some(slot), Some(range)) = (free, left.front().cloned()) {
            left.pop_front();
            outgoing.push_back((range.clone(), queue.copy_out(range, slot, 0)));
        } else if let Some((range, copy)) = outgoing.pop_front() {
            let mut slot = copy.await.expect("copy out");
            add_one(&mut slot.as_mut()[..range.len()]);
            returning.push_back(queue.copy_in(slot, 0, range));
        } else if let Some(copy) = returning.pop_front() {
            copy.await.expect("copy in");
        }
    }
}
