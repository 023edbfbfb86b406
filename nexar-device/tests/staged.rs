//! The adapter traits carry a device whose memory the host cannot reach: the same code runs on it and on
//! host memory.
#![allow(clippy::unwrap_used, clippy::panic)]

use nexar_device::{
    Access, Capabilities, CpuAdapter, DeviceAdapter, DeviceError, ExecutionQueue, MemorySpace,
    Region,
};
use std::{
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, mpsc as std_mpsc},
    task::{Context, Poll, ready},
    thread,
};
use tokio::sync::{mpsc, oneshot};

const SLOTS: usize = 3;
const SLOT_SIZE: usize = 16;

type Memory = Arc<Mutex<HashMap<usize, Vec<u8>>>>;
type Job = Box<dyn FnOnce() + Send>;

/// A device with memory of its own, named by addresses that mean nothing to the host, and one thread that
/// copies.
#[derive(Debug, Clone)]
struct Far {
    memory: Memory,
    jobs: std_mpsc::Sender<Job>,
    free: mpsc::UnboundedSender<Box<[u8]>>,
    slots: Arc<Mutex<mpsc::UnboundedReceiver<Box<[u8]>>>>,
}

impl Far {
    fn new() -> Far {
        let (jobs, queued) = std_mpsc::channel::<Job>();
        thread::spawn(move || queued.into_iter().for_each(|job| job()));
        let (free, slots) = mpsc::unbounded_channel();
        (0..SLOTS).for_each(|_| free.send(vec![0; SLOT_SIZE].into()).unwrap());
        Far {
            memory: Memory::default(),
            jobs,
            free,
            slots: Arc::new(Mutex::new(slots)),
        }
    }

    /// Device memory with these contents. `keep_alive` is what the region owns.
    fn allocate(&self, address: usize, bytes: Vec<u8>, keep_alive: impl Send + 'static) -> Region {
        let length = bytes.len();
        self.memory.lock().unwrap().insert(address, bytes);
        let address = std::ptr::without_provenance_mut(address);
        // SAFETY: the memory is never freed, and the test touches it only through the region.
        unsafe { Region::from_raw(address, length, MemorySpace::Device(0), 7, keep_alive) }
    }

    fn contents(&self, address: usize) -> Vec<u8> {
        self.memory.lock().unwrap()[&address].clone()
    }
}

impl DeviceAdapter for Far {
    type Queue = FarQueue;

    fn name(&self) -> &'static str {
        "far"
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.slot_len = SLOT_SIZE;
        capabilities.slots = SLOTS;
        capabilities
    }

    fn space_of(&self, address: *const u8) -> Option<MemorySpace> {
        let known = self.memory.lock().unwrap().contains_key(&address.addr());
        known.then_some(MemorySpace::Device(0))
    }

    fn allocate(&self, _: MemorySpace, length: usize) -> Result<Region, DeviceError> {
        Ok(Far::allocate(self, 0x1000, vec![0; length], ()))
    }

    fn open(&self, region: Region) -> Result<Access<FarQueue>, DeviceError> {
        assert_eq!(region.stream(), 7);
        Ok(Access::Staged(FarQueue {
            device: self.clone(),
            region: Arc::new(Mutex::new(region)),
        }))
    }
}

#[derive(Debug)]
struct FarQueue {
    device: Far,
    region: Arc<Mutex<Region>>,
}

/// Goes back to the pool when it is dropped.
struct Slot {
    bytes: Box<[u8]>,
    free: mpsc::UnboundedSender<Box<[u8]>>,
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
        let _ = self.free.send(std::mem::take(&mut self.bytes));
    }
}

struct Transfer(oneshot::Receiver<Result<Slot, DeviceError>>);

impl Future for Transfer {
    type Output = Result<Slot, DeviceError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|result| result.unwrap())
    }
}

impl FarQueue {
    fn enqueue(
        &self,
        range: Range<usize>,
        mut slot: Slot,
        at: usize,
        copy: fn(device: &mut [u8], slot: &mut [u8]),
    ) -> Transfer {
        let (done, transfer) = oneshot::channel();
        let (memory, region) = (self.device.memory.clone(), self.region.clone());
        let job = move || {
            let region = region.lock().unwrap();
            let mut memory = memory.lock().unwrap();
            let bytes = memory.get_mut(&region.address().addr()).unwrap();
            let length = range.len();
            let result = match (
                bytes.get_mut(range.clone()),
                slot.bytes.get_mut(at..at + length),
            ) {
                (Some(device), Some(host)) => {
                    copy(device, host);
                    Ok(slot)
                }
                _ => Err(DeviceError::OutOfRange {
                    start: range.start,
                    end: range.end,
                    region: region.len(),
                    slot: slot.bytes.len() - at,
                }),
            };
            let _ = done.send(result);
        };
        self.device.jobs.send(Box::new(job)).unwrap();
        Transfer(transfer)
    }
}

impl ExecutionQueue for FarQueue {
    type Slot = Slot;
    type Transfer = Transfer;

    fn region_len(&self) -> usize {
        self.region.lock().unwrap().len()
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<Slot, DeviceError>> {
        let bytes = ready!(self.device.slots.lock().unwrap().poll_recv(cx)).unwrap();
        Poll::Ready(Ok(Slot {
            bytes,
            free: self.device.free.clone(),
        }))
    }

    fn copy_out(&mut self, range: Range<usize>, slot: Slot, at: usize) -> Transfer {
        self.enqueue(range, slot, at, |device, slot| slot.copy_from_slice(device))
    }

    fn copy_in(&mut self, slot: Slot, at: usize, range: Range<usize>) -> Transfer {
        self.enqueue(range, slot, at, |device, slot| device.copy_from_slice(slot))
    }
}

/// Adds 1 to every byte, as many pieces at a time as there are slots.
async fn increment<D: DeviceAdapter>(device: &D, region: Region) -> Result<(), DeviceError> {
    let add_one = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte += 1);
    let mut queue = match device.open(region)? {
        Access::Host(mut view) => {
            add_one(view.as_mut());
            return Ok(());
        }
        Access::Staged(queue) => queue,
    };
    let (mut outgoing, mut returning) = (VecDeque::new(), VecDeque::new());
    let mut start = 0;
    while start < queue.region_len() || !outgoing.is_empty() || !returning.is_empty() {
        if start < queue.region_len() && outgoing.len() + returning.len() < SLOTS {
            let slot = poll_fn(|cx| queue.poll_slot(cx)).await?;
            let end = queue.region_len().min(start + slot.as_ref().len());
            outgoing.push_back((start..end, queue.copy_out(start..end, slot, 0)));
            start = end;
        } else if let Some((range, transfer)) = outgoing.pop_front() {
            let mut slot = transfer.await?;
            add_one(&mut slot.as_mut()[..range.len()]);
            returning.push_back(queue.copy_in(slot, 0, range));
        } else if let Some(transfer) = returning.pop_front() {
            transfer.await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_same_code_runs_on_both_kinds_of_memory() {
    for length in [0, 1, SLOT_SIZE, SLOT_SIZE + 1, 7 * SLOT_SIZE + 5] {
        let before: Vec<u8> = (0..length as u8).collect();
        let expected: Vec<u8> = (1..=length as u8).collect();

        let mut host = before.clone();
        // SAFETY: `host` outlives the region and is not used while that lives.
        let region =
            unsafe { Region::from_raw(host.as_mut_ptr(), length, MemorySpace::Host, 0, ()) };
        increment(&CpuAdapter, region).await.unwrap();
        assert_eq!(host, expected);

        let far = Far::new();
        increment(&far, far.allocate(0x1000, before, ()))
            .await
            .unwrap();
        assert_eq!(far.contents(0x1000), expected);
    }
}

#[tokio::test]
async fn a_range_outside_the_region_is_an_error_and_frees_the_slot() {
    let far = Far::new();
    let Ok(Access::Staged(mut queue)) = far.open(far.allocate(0x1000, vec![1; 20], ())) else {
        panic!("far memory is staged");
    };
    for range in [19..21, 0..SLOT_SIZE + 1, 2 * SLOT_SIZE..2 * SLOT_SIZE + 1] {
        let slot = poll_fn(|cx| queue.poll_slot(cx)).await.unwrap();
        let Err(error) = queue.copy_out(range.clone(), slot, 0).await else {
            panic!("{range:?} does not fit");
        };
        assert!(
            matches!(error, DeviceError::OutOfRange { start, end, region: 20, slot: SLOT_SIZE }
            if start == range.start && end == range.end)
        );
    }
    let mut all = Vec::new();
    while all.len() < SLOTS {
        all.push(poll_fn(|cx| queue.poll_slot(cx)).await.unwrap());
    }
}

/// A copy that nobody waits for keeps region and slot until it is done.
#[tokio::test]
async fn dropping_queue_and_transfer_leaves_the_copy_its_memory() {
    let far = Far::new();
    let (alive, freed) = oneshot::channel::<()>();
    let (release, held) = std_mpsc::channel::<()>();
    let Ok(Access::Staged(mut queue)) = far.open(far.allocate(0x1000, vec![1; 20], alive)) else {
        panic!("far memory is staged");
    };
    let mut freed = freed;
    let slot = poll_fn(|cx| queue.poll_slot(cx)).await.unwrap();
    // The device is busy until it is released.
    far.jobs
        .send(Box::new(move || held.recv().unwrap()))
        .unwrap();
    let transfer = queue.copy_in(slot, 0, 3..5);
    drop(queue);
    drop(transfer);
    assert_eq!(freed.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    release.send(()).unwrap();
    assert!(freed.await.is_err(), "the region drops what keeps it alive");
    assert_eq!(far.contents(0x1000)[..6], [1, 1, 1, 0, 0, 1]);
}
