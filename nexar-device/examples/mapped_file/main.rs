//! An adapter of one's own: files as device memory, with nothing but the public traits.
//!
//! A tensor that is larger than memory can live in a file that is mapped into the address space. The host could touch
//! it in place, but each page that is not in memory yet makes the thread wait for the disk, and a thread that runs
//! asynchronous tasks must not wait. So the mapping counts as the memory of a device: threads of the adapter copy
//! between it and staging slots, and tasks touch only the slots.
//!
//! ```text
//! cargo run -p nexar-device --features testing --example mapped_file
//! cargo test -p nexar-device --features testing --example mapped_file
//! ```
//!
//! The first prints what it has done, such as:
//!
//! ```text
//! 1000003 elements take 4000064 bytes in the memory of device 0
//! scaled in 62 pieces, at most 4 under way
//! element 2 became 5 and is 5 in the file
//! ```
//!
//! The second runs the conformance suite for adapters, one test for each case.
//!
//! # In which order to write one
//!
//! The traits are in `nexar-device`, and the suite is in its feature `testing`, for the dev-dependencies. Write the
//! [`Harness`](nexar_device::testing::Harness) first, at the end of this file, then make one group of cases pass
//! after the other.
//!
//! 1. `file.rs` and `adapter.rs`: allocating, and which address lies where. `an_unknown_space_is_an_error`,
//!    `memory_of_no_bytes`. Every case allocates and opens a region before anything else.
//! 2. `slots.rs`: a slot for each that asks. `slots_are_as_long_and_as_many_as_they_say`,
//!    `the_first_slot_comes_at_once`.
//! 3. `queue.rs` and `worker.rs`: copies. `copies_out_of_every_length`, `copies_in_of_every_length`,
//!    `out_of_range_is_an_error_and_frees_the_slot`; then `regions_do_not_overlap`, `buffers_of_every_type`.
//! 4. Waiting for slots: `waiting_queues_take_turns`, `a_dropped_queue_passes_its_turn_on`.
//! 5. What is dropped: `copies_come_after_those_of_dropped_queues`,
//!    `a_dropped_queue_keeps_the_region_until_its_copies_are_over`; then the rest of the suite.
//!
//! # What the contracts mean
//!
//! * *Nothing blocks.* All methods of a queue only enqueue; the two threads in `worker.rs` do the waiting.
//!   Allocating may wait, as it may anywhere.
//! * *A copy owns its slot and its region* until it is over, so that dropping the queue, the transfer, the buffer or
//!   all of them is safe at any time. A job carries both; there is no other bookkeeping.
//! * *Order.* One thread for each direction keeps the order within it. Between directions there is none, but for one
//!   rule: a queue comes after copies of queues of the same memory that were dropped before it was opened.
//! * *Slots* are few, so that queues wait for them; each gets its first one at once, so that none waits for ever.
//! * *What callers get wrong* is an error, and never a copy outside the region.
//!
//! # What it does not do
//!
//! The mapping is as safe as the file: whoever else cuts the file short, or a disk that is full, ends the process with
//! a signal, because the space is only reserved when it is written.

mod adapter;
mod file;
mod queue;
mod slots;
mod worker;

use adapter::MappedFiles;
use nexar_device::{Access, DeviceAdapter, DeviceBuffer, DeviceError, ExecutionQueue, MemorySpace};
use std::{
    collections::VecDeque, error::Error, future::poll_fn, ops::Range, path::PathBuf, process,
    task::Poll,
};

/// What an operation did.
#[derive(Debug, Default, PartialEq)]
struct Pieces {
    count: usize,
    most_under_way: usize,
}

/// Applies `f` to every element of the buffer, piece by piece, with as many slots as there are.
async fn for_each<D: DeviceAdapter>(
    buffer: &mut DeviceBuffer<f32, D>,
    f: impl Fn(f32) -> f32,
) -> Result<Pieces, DeviceError> {
    let apply = |bytes: &mut [u8]| {
        // Bytes of a slot need not be aligned for elements.
        for bytes in bytes.as_chunks_mut().0 {
            *bytes = f(f32::from_le_bytes(*bytes)).to_le_bytes();
        }
    };
    // SAFETY: the buffer is borrowed exclusively, and every pattern of bits is an f32.
    let mut queue = match unsafe { buffer.open()? } {
        Access::Host(mut view) => {
            apply(view.as_mut());
            return Ok(Pieces::default());
        }
        Access::Staged(queue) => queue,
    };
    // Pieces on their way out of the file, and on their way back.
    let mut outgoing: VecDeque<(Range<usize>, _)> = VecDeque::new();
    let mut returning = VecDeque::new();
    let (mut start, mut pieces) = (0, Pieces::default());
    while start < queue.region_len() || !outgoing.is_empty() || !returning.is_empty() {
        let under_way = outgoing.len() + returning.len();
        pieces.most_under_way = pieces.most_under_way.max(under_way);
        if start < queue.region_len()
            && let Some(slot) = next_slot(&mut queue, under_way).await?
        {
            let end = queue.region_len().min(start + slot.as_ref().len());
            outgoing.push_back((start..end, queue.copy_out(start..end, slot, 0)));
            start = end;
            pieces.count += 1;
        } else if let Some((range, copy)) = outgoing.pop_front() {
            let mut slot = copy.await?;
            apply(&mut slot.as_mut()[..range.len()]);
            returning.push_back(queue.copy_in(slot, 0, range));
        } else if let Some(copy) = returning.pop_front() {
            copy.await?;
        }
    }
    Ok(pieces)
}

/// A slot, or none where the pieces under way should go on first. Who has slots does not wait for more while it could
/// give some back: all that share the slots may do so.
async fn next_slot<Q: ExecutionQueue>(
    queue: &mut Q,
    under_way: usize,
) -> Result<Option<Q::Slot>, DeviceError> {
    poll_fn(|cx| match queue.poll_slot(cx) {
        Poll::Ready(slot) => Poll::Ready(slot.map(Some)),
        Poll::Pending if under_way > 0 => Poll::Ready(Ok(None)),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// A file in the directory for such files, which is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("nexar-mapped-file-{}-{name}", process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may never have been created.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    const LEN: usize = 1_000_003;
    let file = Scratch::new("main");
    let files = MappedFiles::create(&[&file.0], 8 << 20, 64 << 10, 4)?;
    let values: Vec<f32> = (0..LEN).map(|at| at as f32).collect();
    let space = MemorySpace::Device(0);
    let mut buffer = DeviceBuffer::from_slice(&files, space, &values).await?;
    let used = files.used_bytes(space);
    println!("{LEN} elements take {used} bytes in {space}");

    let pieces = for_each(&mut buffer, |value| 2.0 * value + 1.0).await?;
    let (count, most) = (pieces.count, pieces.most_under_way);
    println!("scaled in {count} pieces, at most {most} under way");

    let mut back = vec![0.0; LEN];
    buffer.copy_to(&mut back).await?;
    // Now the file has what the buffer had, whoever reads it.
    drop(buffer);
    let bytes = std::fs::read(&file.0)?;
    let in_file = bytes
        .as_chunks()
        .0
        .get(2)
        .map(|bytes| f32::from_le_bytes(*bytes));
    let in_file = in_file.ok_or("the file is too short")?;
    println!("element 2 became {} and is {in_file} in the file", back[2]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexar_device::testing::Harness;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static FILES: AtomicUsize = AtomicUsize::new(0);

    fn scratch() -> [Scratch; 2] {
        [(); 2].map(|()| {
            let number = FILES.fetch_add(1, Ordering::Relaxed);
            Scratch::new(&number.to_string())
        })
    }

    /// Two files, with several slots that are shorter than most regions.
    struct FileHarness([Scratch; 2]);

    impl Harness for FileHarness {
        type Adapter = MappedFiles;

        fn adapter(&self) -> MappedFiles {
            let paths = self.0.each_ref().map(|file| &file.0);
            MappedFiles::create(&paths, 4 << 20, 4096, 5).expect("files")
        }

        fn spaces(&self) -> Vec<MemorySpace> {
            vec![MemorySpace::Device(0), MemorySpace::Device(1)]
        }

        fn live_bytes(&self, files: &MappedFiles, space: MemorySpace) -> Option<usize> {
            Some(files.used_bytes(space))
        }
    }

    nexar_device::adapter_conformance!(FileHarness(scratch()));

    #[tokio::test]
    async fn operations_use_several_slots() {
        let [file, _rest] = scratch();
        let files = MappedFiles::create(&[&file.0], 1 << 20, 64, 4).expect("a file");
        for len in [0_usize, 1, 15, 16, 17, 1000] {
            let values: Vec<f32> = (0..len).map(|at| at as f32).collect();
            let space = MemorySpace::Device(0);
            let buffer = DeviceBuffer::from_slice(&files, space, &values).await;
            let mut buffer = buffer.expect("a buffer");
            let pieces = for_each(&mut buffer, |value| value - 0.5).await;
            let pieces = pieces.expect("an operation");
            assert_eq!(pieces.count, len.div_ceil(16));
            assert_eq!(pieces.most_under_way, pieces.count.min(4));
            let mut back = vec![0.0; len];
            buffer.copy_to(&mut back).await.expect("a copy");
            let expected: Vec<f32> = values.iter().map(|value| value - 0.5).collect();
            assert_eq!(back, expected);
        }
        assert_eq!(files.used_bytes(MemorySpace::Device(0)), 0);
    }

    /// Whoever reads the file finds what the buffer held, also after the adapter is gone.
    #[tokio::test]
    async fn what_was_written_is_in_the_file() {
        let [file, _rest] = scratch();
        let files = MappedFiles::create(&[&file.0], 1 << 20, 64, 4).expect("a file");
        let values: Vec<u32> = (0..1000).map(|at| at * 7 + 1).collect();
        let buffer = DeviceBuffer::from_slice(&files, MemorySpace::Device(0), &values).await;
        drop(buffer.expect("a buffer"));
        drop(files);
        let bytes = std::fs::read(&file.0).expect("the file");
        let found = bytes
            .as_chunks()
            .0
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes));
        assert!(found.take(1000).eq(values));
    }

    /// Parts that are given back in any order become one again.
    #[test]
    fn a_full_file_is_an_error_until_memory_is_freed() {
        let [file, _rest] = scratch();
        let files = MappedFiles::create(&[&file.0], 64 * 10, 64, 1).expect("a file");
        let take = |len| files.allocate(MemorySpace::Device(0), len);
        for order in [[0, 2, 1], [2, 0, 1], [1, 0, 2], [0, 1, 2], [2, 1, 0]] {
            let mut parts = [100, 190, 300].map(|len| Some(take(len).expect("it fits")));
            let full = take(1);
            assert!(matches!(full, Err(DeviceError::Length { bytes: 1, .. })));
            order.iter().for_each(|at| parts[*at] = None);
            assert!(take(640).is_ok(), "all of it, after {order:?}");
        }
    }
}
