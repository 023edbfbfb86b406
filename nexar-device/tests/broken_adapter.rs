//! The conformance suite finds an adapter that misbehaves, by the right cases.
#![allow(clippy::expect_used)]

use nexar_core::{DataType, ReduceOp};
use nexar_device::{
    Access, Capabilities, DeviceAdapter, DeviceError, ExecutionQueue, MemorySpace, Region,
    testing::{CASES, Harness, Limits, MemoryDevice, MemoryQueue, Slot, Transfer, Work, run_case},
};
use std::{
    any::Any,
    future::Future,
    mem,
    ops::Range,
    panic::catch_unwind,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    thread,
    time::Duration,
};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    /// Nothing.
    None,
    /// Transfers are complete before the data has moved.
    CompletesEarly,
    /// A dropped queue frees the region although copies are under way.
    FreesEarly,
    /// A dropped transfer does not happen.
    ForgetsDropped,
    /// Every 50th slot is never free again.
    LosesSlots,
    /// The first slot of a queue is none beyond the number, and who waits for it is not woken.
    NoFirstSlot,
    /// Nobody is woken where a slot is free.
    ForgetsWakers,
    /// Copies begin at the start of the slot.
    IgnoresAt,
    /// What lies behind the region counts as a part of it.
    IgnoresLength,
    /// Copies do not wait for the work of the stream.
    IgnoresStream,
    /// Copies do not wait for those of dropped queues.
    IgnoresDroppedQueues,
    /// New memory holds what was there before.
    DirtyMemory,
    /// Fill writes zeros.
    FillsZero,
}

/// The simulated device with a lie.
#[derive(Debug, Clone)]
struct Broken {
    device: MemoryDevice,
    lie: Lie,
    /// Slots that were given away.
    slots: Arc<AtomicUsize>,
}

/// Bytes behind each region that count as a part of it, where that is the lie.
const BEHIND: usize = 64;

struct BrokenHarness(Lie);

impl Harness for BrokenHarness {
    type Adapter = Broken;

    fn adapter(&self) -> Broken {
        let device = MemoryDevice::builder()
            .slot_len(512)
            .fill(true)
            .reduce(true);
        Broken {
            device: device.build(),
            lie: self.0,
            slots: Arc::default(),
        }
    }

    fn spaces(&self) -> Vec<MemorySpace> {
        vec![MemorySpace::Device(0)]
    }

    fn write(&self, broken: &Broken, _: MemorySpace, address: u64, data: &[u8]) -> bool {
        broken.device.write(address, data).is_ok()
    }

    fn read(&self, broken: &Broken, _: MemorySpace, address: u64, target: &mut [u8]) -> bool {
        broken.device.read(address, target).is_ok()
    }

    fn enqueue_write(
        &self,
        broken: &Broken,
        _: MemorySpace,
        address: u64,
        data: &[u8],
    ) -> Option<Work> {
        let stream = broken.device.stream();
        let hold = Box::new(broken.device.hold(stream).ok()?);
        let enqueued = broken
            .device
            .enqueue_write_bytes(stream, address, data, Duration::ZERO);
        enqueued.ok()?;
        Some(Work { stream, hold })
    }

    fn pause(&self, broken: &Broken) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(broken.device.pause()))
    }

    fn live_bytes(&self, broken: &Broken, _: MemorySpace) -> Option<usize> {
        Some(broken.device.usage().live_bytes)
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        // Where a lie makes a case hang.
        limits.case_time = Duration::from_millis(match self.0 {
            Lie::LosesSlots | Lie::NoFirstSlot | Lie::ForgetsWakers => 300,
            _ => 30_000,
        });
        limits
    }
}

/// The cases that fail with this lie.
fn failing(lie: Lie) -> Vec<&'static str> {
    let fails = |case: &&&str| catch_unwind(|| run_case(case, BrokenHarness(lie))).is_err();
    CASES.iter().filter(fails).copied().collect()
}

/// These cases fail; others may, for with this lie much is a matter of chance.
#[track_caller]
fn assert_among_failing(lie: Lie, sure: &[&str]) {
    let failing = failing(lie);
    let passed = sure.iter().filter(|case| !failing.contains(case));
    let passed: Vec<_> = passed.collect();
    assert!(passed.is_empty(), "{passed:?} did not find that it {lie:?}");
}

#[test]
fn the_wrapper_without_a_lie_passes() {
    assert_eq!(failing(Lie::None), [""; 0]);
}

#[test]
fn the_end_of_a_region_is_found() {
    let expected = [
        "copies_of_a_part",
        "out_of_range_is_an_error_and_frees_the_slot",
        "fill_sets_the_bytes",
        "reductions_on_the_device",
    ];
    assert_eq!(failing(Lie::IgnoresLength), expected);
}

#[test]
fn ignored_places_in_the_slot_are_found() {
    let expected = [
        "copies_out_of_every_length",
        "copies_in_of_every_length",
        "out_of_range_is_an_error_and_frees_the_slot",
    ];
    assert_eq!(failing(Lie::IgnoresAt), expected);
}

#[test]
fn memory_that_is_freed_early_is_found() {
    let expected = [
        "a_dropped_queue_keeps_the_region_until_its_copies_are_over",
        "a_dropped_buffer_keeps_the_memory_until_its_copies_are_over",
    ];
    assert_eq!(failing(Lie::FreesEarly), expected);
}

#[test]
fn forgotten_copies_are_found() {
    let expected = [
        "fill_sets_the_bytes",
        "reductions_on_the_device",
        "copies_in_keep_their_order",
        "copies_come_after_those_of_dropped_queues",
        "a_dropped_transfer_is_carried_out",
        "a_dropped_queue_keeps_the_region_until_its_copies_are_over",
        "a_dropped_transfer_keeps_its_slot_until_it_is_over",
    ];
    assert_eq!(failing(Lie::ForgetsDropped), expected);
}

#[test]
fn overtaken_streams_are_found() {
    let expected = [
        "copies_out_come_after_the_work_of_the_stream",
        "copies_in_come_after_the_work_of_the_stream",
    ];
    assert_eq!(failing(Lie::IgnoresStream), expected);
}

#[test]
fn memory_that_is_not_zero_is_found() {
    let expected = ["new_memory_is_zero", "new_buffers_are_zero"];
    assert_eq!(failing(Lie::DirtyMemory), expected);
}

#[test]
fn fills_with_other_bytes_are_found() {
    let expected = ["fill_sets_the_bytes"];
    assert_eq!(failing(Lie::FillsZero), expected);
}

#[test]
fn early_completion_is_found() {
    let sure = [
        "copies_out_of_every_length",
        "copies_in_of_every_length",
        "copies_of_a_part",
        "reductions_on_the_device",
        "the_first_slot_comes_at_once",
        "the_last_task_that_polled_is_woken",
        "copies_in_keep_their_order",
        "a_complete_copy_is_there_for_the_next",
        "copies_out_come_after_the_work_of_the_stream",
        "copies_in_come_after_the_work_of_the_stream",
        "copies_come_after_those_of_dropped_queues",
        "a_dropped_transfer_is_carried_out",
        "a_dropped_queue_keeps_the_region_until_its_copies_are_over",
        "a_dropped_transfer_keeps_its_slot_until_it_is_over",
        "an_operation_that_is_dropped_anywhere_loses_nothing",
        "opposite_directions_at_once",
        "many_queues_on_one_thread",
        "parts_of_one_region_by_many_threads",
        "buffers_by_many_threads",
        "buffers_of_every_type",
        "bools_are_valid_whatever_the_memory_holds",
        "buffers_are_split",
        "buffers_check_lengths",
    ];
    assert_among_failing(Lie::CompletesEarly, &sure);
}

#[test]
fn lost_slots_are_found() {
    let sure = [
        "copies_out_of_every_length",
        "copies_in_of_every_length",
        "slots_are_lent_again_and_again",
        "waiting_queues_take_turns",
        "copies_in_keep_their_order",
        "a_dropped_transfer_keeps_its_slot_until_it_is_over",
        "an_operation_that_is_dropped_anywhere_loses_nothing",
        "many_queues_on_one_thread",
        "parts_of_one_region_by_many_threads",
        "buffers_by_many_threads",
        "buffers_of_every_type",
    ];
    assert_among_failing(Lie::LosesSlots, &sure);
}

#[test]
fn first_slots_that_wait_are_found() {
    let sure = [
        "the_first_slot_comes_at_once",
        "the_last_task_that_polled_is_woken",
        "a_queue_that_has_given_its_slots_back_is_woken",
        "waiting_queues_take_turns",
        "a_dropped_queue_passes_its_turn_on",
        "a_dropped_transfer_keeps_its_slot_until_it_is_over",
    ];
    assert_among_failing(Lie::NoFirstSlot, &sure);
}

#[test]
fn forgotten_wakers_are_found() {
    let sure = [
        "the_last_task_that_polled_is_woken",
        "a_queue_that_has_given_its_slots_back_is_woken",
        "waiting_queues_take_turns",
        "a_dropped_queue_passes_its_turn_on",
    ];
    assert_among_failing(Lie::ForgetsWakers, &sure);
}

#[test]
fn overtaken_queues_are_found() {
    let sure = ["copies_come_after_those_of_dropped_queues"];
    assert_among_failing(Lie::IgnoresDroppedQueues, &sure);
}

impl DeviceAdapter for Broken {
    type Queue = BrokenQueue;

    fn name(&self) -> &'static str {
        "broken"
    }

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn space_of(&self, address: *const u8) -> Option<MemorySpace> {
        self.device.space_of(address)
    }

    fn allocate(&self, space: MemorySpace, length: usize) -> Result<Region, DeviceError> {
        let region = match self.lie {
            Lie::IgnoresLength if length < isize::MAX as usize => {
                let longer = self.device.allocate(space, length + BEHIND)?;
                let address = longer.address();
                // SAFETY: it is a part of a region that goes along.
                unsafe { Region::from_raw(address, length, space, 0, longer) }
            }
            _ => self.device.allocate(space, length)?,
        };
        if self.lie == Lie::DirtyMemory {
            let address = region.address().addr() as u64;
            self.device.write(address, &vec![0xA5; length])?;
        }
        Ok(region)
    }

    fn open(&self, region: Region) -> Result<Access<BrokenQueue>, DeviceError> {
        let stream = match self.lie {
            Lie::IgnoresStream => 0,
            _ => region.stream(),
        };
        let (address, space, len) = (region.address(), region.space(), region.len());
        let region = Arc::new(region);
        let keep: Box<dyn Any + Send> = match self.lie {
            Lie::FreesEarly => Box::new(()),
            _ => Box::new(Arc::clone(&region)),
        };
        let longer = match self.lie {
            Lie::IgnoresLength if len > 0 => BEHIND,
            _ => 0,
        };
        // SAFETY: the region goes along, but where that is a lie; the simulated device bears it.
        let inner = unsafe { Region::from_raw(address, len + longer, space, stream, keep) };
        match self.device.open(inner)? {
            Access::Staged(inner) => Ok(Access::Staged(BrokenQueue {
                inner: Arc::new(Mutex::new(inner)),
                broken: self.clone(),
                address: address.addr() as u64,
                len,
                _region: region,
            })),
            Access::Host(view) => Ok(Access::Host(view)),
        }
    }
}

#[derive(Debug)]
struct BrokenQueue {
    inner: Arc<Mutex<MemoryQueue>>,
    broken: Broken,
    address: u64,
    len: usize,
    _region: Arc<Region>,
}

/// A slot, or what passes for one.
enum BrokenSlot {
    Real(Slot),
    Early(Box<[u8]>),
}

impl AsRef<[u8]> for BrokenSlot {
    fn as_ref(&self) -> &[u8] {
        match self {
            BrokenSlot::Real(slot) => slot.as_ref(),
            BrokenSlot::Early(bytes) => bytes,
        }
    }
}

impl AsMut<[u8]> for BrokenSlot {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            BrokenSlot::Real(slot) => slot.as_mut(),
            BrokenSlot::Early(bytes) => bytes,
        }
    }
}

#[derive(Debug, Clone)]
struct Copy {
    out: bool,
    range: Range<usize>,
    at: usize,
}

enum BrokenTransfer {
    Real(Transfer),
    Early(Option<Result<BrokenSlot, DeviceError>>),
    /// It does not begin before it is polled.
    Lazy(Arc<Mutex<MemoryQueue>>, Copy, Option<Slot>),
}

impl Future for BrokenTransfer {
    type Output = Result<BrokenSlot, DeviceError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let BrokenTransfer::Lazy(queue, copy, slot) = &mut *self
            && let Some(slot) = slot.take()
        {
            let transfer = enqueue(queue, copy, slot);
            *self = BrokenTransfer::Real(transfer);
        }
        match &mut *self {
            BrokenTransfer::Real(inner) => {
                let outcome = Pin::new(inner).poll(cx);
                outcome.map(|outcome| outcome.map(BrokenSlot::Real))
            }
            BrokenTransfer::Early(outcome) => match outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => Poll::Pending,
            },
            BrokenTransfer::Lazy(..) => Poll::Pending,
        }
    }
}

fn enqueue(queue: &Mutex<MemoryQueue>, copy: &Copy, slot: Slot) -> Transfer {
    let mut queue = queue.lock().expect("nobody panics with the queue");
    match copy.out {
        true => queue.copy_out(copy.range.clone(), slot, copy.at),
        false => queue.copy_in(slot, copy.at, copy.range.clone()),
    }
}

impl BrokenQueue {
    fn copy(&self, mut copy: Copy, slot: BrokenSlot) -> BrokenTransfer {
        if self.broken.lie == Lie::IgnoresAt {
            copy.at = 0;
        }
        match (self.broken.lie, slot) {
            (_, BrokenSlot::Early(bytes)) => self.copy_at_once(&copy, bytes),
            (Lie::CompletesEarly, BrokenSlot::Real(slot)) => {
                let bytes = slot.as_ref().into();
                let mut transfer = enqueue(&self.inner, &copy, slot);
                let mut cx = Context::from_waker(Waker::noop());
                let outcome = match Pin::new(&mut transfer).poll(&mut cx) {
                    Poll::Ready(Err(error)) => Err(error),
                    _ => Ok(BrokenSlot::Early(bytes)),
                };
                BrokenTransfer::Early(Some(outcome))
            }
            (Lie::ForgetsDropped, BrokenSlot::Real(slot)) => {
                BrokenTransfer::Lazy(Arc::clone(&self.inner), copy, Some(slot))
            }
            (_, BrokenSlot::Real(slot)) => BrokenTransfer::Real(enqueue(&self.inner, &copy, slot)),
        }
    }

    /// A copy with a slot that is none.
    fn copy_at_once(&self, copy: &Copy, mut bytes: Box<[u8]>) -> BrokenTransfer {
        let address = self.address + copy.range.start as u64;
        let host = bytes.get_mut(copy.at..copy.at + copy.range.len());
        let copied = match (host, copy.out) {
            (Some(host), true) => self.broken.device.read(address, host),
            (Some(host), false) => self.broken.device.write(address, host),
            (None, _) => Ok(()),
        };
        let outcome = copied.map(|()| BrokenSlot::Early(bytes));
        BrokenTransfer::Early(Some(outcome))
    }

    fn inner(&self) -> MutexGuard<'_, MemoryQueue> {
        self.inner.lock().expect("nobody panics with the queue")
    }
}

impl ExecutionQueue for BrokenQueue {
    type Slot = BrokenSlot;
    type Transfer = BrokenTransfer;

    fn region_len(&self) -> usize {
        self.len
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<BrokenSlot, DeviceError>> {
        let (device, slots) = (&self.broken.device, &self.broken.slots);
        if self.broken.lie == Lie::NoFirstSlot {
            let in_use = device.usage().slots_in_use;
            if in_use >= device.capabilities().slots {
                return Poll::Pending;
            }
        }
        let mut silent = Context::from_waker(Waker::noop());
        let cx = match self.broken.lie {
            Lie::ForgetsWakers => &mut silent,
            _ => cx,
        };
        let mut slot = ready!(self.inner().poll_slot(cx))?;
        let number = slots.fetch_add(1, Ordering::Relaxed);
        if self.broken.lie == Lie::LosesSlots && number % 50 == 49 {
            mem::forget(slot);
            slot = ready!(self.inner().poll_slot(cx))?;
        }
        Poll::Ready(Ok(BrokenSlot::Real(slot)))
    }

    fn copy_out(&mut self, range: Range<usize>, slot: BrokenSlot, at: usize) -> BrokenTransfer {
        let out = true;
        self.copy(Copy { out, range, at }, slot)
    }

    fn copy_in(&mut self, slot: BrokenSlot, at: usize, range: Range<usize>) -> BrokenTransfer {
        let out = false;
        self.copy(Copy { out, range, at }, slot)
    }

    fn fill(&mut self, range: Range<usize>, byte: u8) -> Result<(), DeviceError> {
        let byte = match self.broken.lie {
            Lie::FillsZero => 0,
            _ => byte,
        };
        self.inner().fill(range, byte)
    }

    fn reduce(
        &mut self,
        slot: BrokenSlot,
        at: usize,
        range: Range<usize>,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<BrokenTransfer, DeviceError> {
        match slot {
            BrokenSlot::Real(slot) => {
                let transfer = self.inner().reduce(slot, at, range, dtype, op)?;
                Ok(BrokenTransfer::Real(transfer))
            }
            BrokenSlot::Early(bytes) => {
                let outcome = Ok(BrokenSlot::Early(bytes));
                Ok(BrokenTransfer::Early(Some(outcome)))
            }
        }
    }
}

impl Drop for BrokenQueue {
    fn drop(&mut self) {
        if self.broken.lie == Lie::IgnoresDroppedQueues {
            // The device comes to know it too late.
            let inner = Arc::clone(&self.inner);
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                drop(inner);
            });
        }
    }
}
