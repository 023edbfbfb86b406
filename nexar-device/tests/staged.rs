//! The adapter traits carry a device whose memory the host cannot reach: the same code runs on it and on
//! host memory.
#![allow(clippy::unwrap_used, clippy::panic)]

use nexar_core::{DataType, Element, ReduceOp};
use nexar_device::{
    Access, CopyIn, CopyOut, CpuAdapter, DeviceAdapter, DeviceBuffer, DeviceError, ExecutionQueue,
    MemorySpace, Region,
    testing::{MemoryDevice, MemoryQueue, Slot},
};
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::mpsc,
    task::Poll,
    time::{Duration, Instant},
};

const SLOTS: usize = 3;
const SLOT_LEN: usize = 16;
const DEVICE: MemorySpace = MemorySpace::Device(0);

fn device() -> MemoryDevice {
    MemoryDevice::builder()
        .slot_len(SLOT_LEN)
        .slots(SLOTS)
        .build()
}

/// Device memory with these contents, and its address.
fn region(device: &MemoryDevice, bytes: &[u8]) -> (Region, u64) {
    let region = device.allocate(DEVICE, bytes.len()).unwrap();
    let address = region.address().addr() as u64;
    device.write(address, bytes).unwrap();
    (region, address)
}

fn contents(device: &MemoryDevice, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read(address, &mut bytes).unwrap();
    bytes
}

/// The region once more, at the end of whose use the receiver hears that its sender is gone.
fn observed(region: Region) -> (Region, mpsc::Receiver<()>) {
    let (alive, freed) = mpsc::channel::<()>();
    let (address, length, space) = (region.address(), region.len(), region.space());
    // SAFETY: the region goes along, and is used only through the new one.
    let region = unsafe { Region::from_raw(address, length, space, 0, (region, alive)) };
    (region, freed)
}

fn open(device: &MemoryDevice, region: Region) -> MemoryQueue {
    match device.open(region).unwrap() {
        Access::Staged(queue) => queue,
        Access::Host(_) => panic!("device memory is staged"),
    }
}

async fn slot(queue: &mut MemoryQueue) -> Slot {
    poll_fn(|cx| queue.poll_slot(cx)).await.unwrap()
}

async fn has_slot(queue: &mut MemoryQueue) -> Option<Slot> {
    poll_fn(|cx| match queue.poll_slot(cx) {
        Poll::Ready(slot) => Poll::Ready(Some(slot.unwrap())),
        Poll::Pending => Poll::Ready(None),
    })
    .await
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
    for length in [0, 1, SLOT_LEN, SLOT_LEN + 1, 7 * SLOT_LEN + 5] {
        let before: Vec<u8> = (0..length as u8).collect();
        let expected: Vec<u8> = (1..=length as u8).collect();

        let mut host = before.clone();
        // SAFETY: `host` outlives the region and is not used while that lives.
        let in_host =
            unsafe { Region::from_raw(host.as_mut_ptr(), length, MemorySpace::Host, 0, ()) };
        increment(&CpuAdapter, in_host).await.unwrap();
        assert_eq!(host, expected);

        let device = device();
        let (in_device, address) = region(&device, &before);
        let kept = observed(in_device).0;
        let after = async {
            // The memory is read before it is freed.
            let mut queue = open(&device, kept);
            let mut back = Vec::new();
            while back.len() < length {
                let end = length.min(back.len() + SLOT_LEN);
                let piece = slot(&mut queue).await;
                let piece = queue.copy_out(back.len()..end, piece, 0).await.unwrap();
                back.extend_from_slice(&piece.as_ref()[..end - back.len()]);
            }
            back
        };
        // SAFETY: `kept` keeps the memory and is used after this.
        let first = unsafe { Region::from_raw(address as *mut u8, length, DEVICE, 0, ()) };
        increment(&device, first).await.unwrap();
        assert_eq!(after.await, expected);
        assert_eq!(device.usage().live_bytes, 0);
    }
}

#[tokio::test]
async fn a_range_outside_the_region_is_an_error_and_frees_the_slot() {
    let device = device();
    let mut queue = open(&device, region(&device, &[1; 20]).0);
    for range in [19..21, 0..SLOT_LEN + 1, 2 * SLOT_LEN..2 * SLOT_LEN + 1] {
        let slot = slot(&mut queue).await;
        let Err(error) = queue.copy_out(range.clone(), slot, 0).await else {
            panic!("{range:?} does not fit");
        };
        assert!(
            matches!(error, DeviceError::OutOfRange { start, end, region: 20, slot: SLOT_LEN }
            if start == range.start && end == range.end)
        );
    }
    let mut all = Vec::new();
    while all.len() < SLOTS {
        all.push(slot(&mut queue).await);
    }
    assert_eq!(device.usage().slots_allocated, SLOTS);
}

/// A copy that nobody waits for keeps region and slot until it is done.
#[tokio::test]
async fn dropping_queue_and_transfer_leaves_the_copy_its_memory() {
    let device = device();
    let (kept, address) = region(&device, &[1; 20]);
    let (region, freed) = observed(kept);
    let mut queue = open(&device, region);
    let slot = slot(&mut queue).await;
    let paused = device.pause();
    let transfer = queue.copy_in(slot, 0, 3..5);
    drop((queue, transfer));
    assert_eq!(freed.try_recv(), Err(mpsc::TryRecvError::Empty));
    assert_eq!(device.usage().live_regions, 1);
    assert_eq!(device.usage().slots_in_use, 1);
    assert_eq!(contents(&device, address, 6), [1; 6]);
    drop(paused);
    assert!(
        freed.recv().is_err(),
        "the region drops what keeps it alive"
    );
}

#[tokio::test]
async fn an_operation_comes_after_the_work_of_its_stream_and_after_dropped_operations() {
    let device = device();
    let (stream, other) = (device.stream(), device.stream());
    let mut buffer = DeviceBuffer::from_slice(&device, DEVICE, &[1u8; 20])
        .await
        .unwrap();
    // SAFETY: the stream exists.
    buffer = unsafe { buffer.on_stream(stream) };
    let held = device.hold(stream).unwrap();
    let held_too = device.hold(other).unwrap();
    device
        .enqueue_write(stream, &buffer, &[2; 20], Duration::from_millis(1))
        .unwrap();
    device
        .enqueue_write(other, &buffer, &[9; 20], Duration::ZERO)
        .unwrap();
    let mut first = Box::pin(buffer.copy_from(&[3; 20]));
    let polled = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending()));
    assert!(polled.await, "the stream is held");
    drop(first);
    let mut back = [0; 20];
    let mut second = Box::pin(buffer.copy_to(&mut back));
    let polled = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending()));
    assert!(polled.await, "the stream is held");
    drop(held);
    second.await.unwrap();
    assert_eq!(back, [3; 20]);
    drop(held_too);
}

/// Waiting queues get slots in the order in which they came; one that is dropped passes its turn on.
#[tokio::test]
async fn slots_are_given_in_turn() {
    let device = MemoryDevice::builder().slots(4).build();
    let open = || open(&device, region(&device, &[0; 4]).0);
    let (mut rich, mut gone, mut poor) = (open(), open(), open());
    let (kept, freed) = (slot(&mut rich).await, slot(&mut rich).await);
    let own = (slot(&mut gone).await, slot(&mut poor).await);
    assert!(has_slot(&mut gone).await.is_none());
    assert!(has_slot(&mut poor).await.is_none());
    drop(freed);
    assert!(has_slot(&mut rich).await.is_none(), "it is for `gone`");
    assert!(has_slot(&mut poor).await.is_none(), "it is for `gone`");
    drop(gone);
    let second = slot(&mut poor).await;
    assert_eq!(device.usage().slots_in_use, 4);
    // Who has none gets one at once, beyond the number.
    let mut late = open();
    let first = slot(&mut late).await;
    assert_eq!(device.usage().slots_allocated, 5);
    drop((kept, own, second, first));
    assert_eq!(device.usage().slots_in_use, 0);
    assert_eq!(device.usage().slots_allocated, 4);
}

#[tokio::test]
async fn the_device_fails_when_it_is_told_to() {
    let device = MemoryDevice::builder().slots(1).fail_after(1).build();
    let mut buffer = DeviceBuffer::from_slice(&device, DEVICE, &[1.5f32; 3])
        .await
        .unwrap();
    let error = buffer.copy_from(&[2.5; 3]).await.unwrap_err();
    let DeviceError::Backend { source, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(
        source.to_string(),
        "the device was told to fail after 1 copies"
    );
    assert_eq!(device.usage().slots_in_use, 0);
    assert_eq!(device.usage().copies_in, 1);
}

#[tokio::test]
async fn copies_take_as_long_as_the_bandwidth_says() {
    let device = MemoryDevice::builder()
        .slot_len(1000)
        .bandwidth(100_000, 0)
        .build();
    let buffer = DeviceBuffer::from_slice(&device, DEVICE, &[1u8; 5000])
        .await
        .unwrap();
    let begin = Instant::now();
    buffer.copy_to(&mut [0; 5000]).await.unwrap();
    let least = Duration::from_millis(50);
    assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn fill_and_reduction_keep_the_order_of_copies() {
    let device = MemoryDevice::builder().fill(true).reduce(true).build();
    let (region, address) = region(&device, &[9; 16]);
    let mut queue = open(&device, region);
    let mut slot = slot(&mut queue).await;
    slot.as_mut()[4..12].copy_from_slice(i32::as_bytes(&[5, -7]));
    queue.fill(0..12, 0).unwrap();
    let reduced = queue.reduce(slot, 4, 4..12, DataType::I32, ReduceOp::Sum);
    let slot = reduced.unwrap().await.unwrap();
    let expected = i32::as_bytes(&[0, 5, -7, 0x0909_0909]).to_vec();
    assert_eq!(contents(&device, address, 16), expected);
    let error = queue.reduce(slot, 0, 0..3, DataType::I32, ReduceOp::Sum);
    let error = error.unwrap().await.unwrap_err();
    assert!(matches!(error, DeviceError::Backend { .. }), "{error}");
    assert!(queue.fill(10..17, 0).is_err());
    assert_eq!(device.usage().slots_in_use, 0);
}

/// An adapter whose allocations are shorter than was asked for.
#[derive(Debug, Clone)]
struct Stingy;

// SAFETY: it is not: what it allocates is shorter than asked for, which is found before it is used.
unsafe impl DeviceAdapter for Stingy {
    type Queue = std::convert::Infallible;

    fn name(&self) -> &'static str {
        "stingy"
    }

    fn capabilities(&self) -> nexar_device::Capabilities {
        CpuAdapter.capabilities()
    }

    fn space_of(&self, address: *const u8) -> Option<MemorySpace> {
        CpuAdapter.space_of(address)
    }

    fn allocate(&self, space: MemorySpace, length: usize) -> Result<Region, DeviceError> {
        CpuAdapter.allocate(space, length / 4)
    }

    fn open(&self, region: Region) -> Result<Access<Self::Queue>, DeviceError> {
        CpuAdapter.open(region)
    }
}

/// An adapter is safe code: what it does wrong must not end in memory that is not there.
#[test]
fn an_allocation_that_is_too_short_is_an_error() {
    let buffer = DeviceBuffer::<u8, _>::zeroed(&Stingy, MemorySpace::Host, 100);
    assert!(
        matches!(buffer, Err(DeviceError::Length { .. })),
        "{buffer:?}"
    );
}

/// Whoever says that more was used or filled than there was.
#[tokio::test]
async fn counts_beyond_the_end_of_a_piece_end_there() {
    let device = device();
    let bytes: Vec<u8> = (0..20).collect();
    let mut copy = CopyOut::new(open(&device, region(&device, &bytes).0), SLOTS);
    for (used, left) in [
        (5, &bytes[..16]),
        (usize::MAX, &bytes[5..16]),
        (9, &bytes[16..]),
    ] {
        let found = poll_fn(|cx| copy.poll_bytes(cx).map_ok(<[u8]>::to_vec)).await;
        assert_eq!(found.unwrap(), left);
        copy.consume(used);
    }
    let found = poll_fn(|cx| copy.poll_bytes(cx).map_ok(<[u8]>::len)).await;
    assert_eq!(found.unwrap(), 0);

    let (region, address) = region(&device, &[0; 20]);
    let mut copy = CopyIn::new(open(&device, region), SLOTS);
    copy.commit(3);
    assert_eq!((copy.left(), copy.room().len()), (20, 0));
    for left in [20, 4] {
        poll_fn(|cx| copy.poll_room(cx)).await.unwrap();
        assert_eq!(copy.left(), left);
        copy.room().fill(left as u8);
        copy.commit(usize::MAX);
    }
    assert_eq!((copy.left(), copy.room().len()), (0, 0));
    poll_fn(|cx| copy.poll_done(cx)).await.unwrap();
    assert_eq!(
        contents(&device, address, 20),
        [[20; 16].as_slice(), &[4; 4]].concat()
    );
}
