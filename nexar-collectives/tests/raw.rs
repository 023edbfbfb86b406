//! The operations on memory that is given by its address.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use common::{MemoryCommunicator, WORLDS, memory_world, on_all, share};
use nexar_collectives::{
    Communicator, DataType, Error, MemorySpace, RawSlice, RawSliceMut, ReduceOp, Result,
    TimeLimits, transport::Transport,
};
use std::sync::Arc;

const SUM: ReduceOp = ReduceOp::Sum;

/// Integers in memory at any alignment, with a byte before and after that must stay as they are.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new(data: &[i32], start: usize) -> Buffer {
        let mut bytes = vec![0xa5; start];
        bytes.extend(data.iter().flat_map(|x| x.to_le_bytes()));
        bytes.push(0x5a);
        Buffer { bytes, start }
    }

    fn count(&self) -> usize {
        (self.bytes.len() - self.start - 1) / 4
    }

    fn input(&self) -> RawSlice {
        RawSlice {
            pointer: self.bytes[self.start..].as_ptr(),
            count: self.count(),
            dtype: DataType::I32,
            space: MemorySpace::Host,
            stream: 0,
        }
    }

    fn output(&mut self) -> RawSliceMut {
        RawSliceMut {
            count: self.count(),
            pointer: self.bytes[self.start..].as_mut_ptr(),
            dtype: DataType::I32,
            space: MemorySpace::Host,
            stream: 0,
        }
    }

    #[track_caller]
    fn expect(&self, expected: &[i32], what: &str) {
        let (before, rest) = self.bytes.split_at(self.start);
        let (data, after) = rest.split_at(rest.len() - 1);
        assert!(
            before.iter().all(|x| *x == 0xa5) && after == [0x5a],
            "{what}"
        );
        let words = data.chunks_exact(4).map(|word| word.try_into().unwrap());
        let data: Vec<i32> = words.map(i32::from_le_bytes).collect();
        assert_eq!(data, expected, "{what}");
    }
}

/// Every operation with buffers that start at an address with this remainder.
async fn every_operation<T: Transport>(comm: &Communicator<T>, count: usize, start: usize) {
    let (n, rank) = (comm.world_size(), comm.rank());
    let value = |rank: usize, index: usize| (rank * 1000 + index) as i32;
    let values = |rank: usize, from: usize, count: usize| -> Vec<i32> {
        (from..from + count)
            .map(|index| value(rank, index))
            .collect()
    };
    let sums = |ranks: std::ops::Range<usize>, from: usize| -> Vec<i32> {
        let sum = |index| ranks.clone().map(|rank| value(rank, index)).sum();
        (from..from + count).map(sum).collect()
    };
    let what = format!("{count} at {start} on {rank} of {n}");
    let own = values(rank, 0, count);
    let root = n - 1;
    let at_root = |found: &Buffer, expected: &[i32], otherwise: &[i32]| {
        found.expect(if rank == root { expected } else { otherwise }, &what);
    };

    let mut data = Buffer::new(&own, start);
    // SAFETY: here and below: the buffers live until the call is done, and nobody else has them.
    unsafe { comm.broadcast_raw(data.output(), root) }
        .await
        .unwrap();
    data.expect(&values(root, 0, count), &what);

    let mut data = Buffer::new(&own, start);
    // SAFETY: see above.
    unsafe { comm.reduce_raw(data.output(), SUM, root) }
        .await
        .unwrap();
    at_root(&data, &sums(0..n, 0), &own);

    let mut data = Buffer::new(&own, start);
    // SAFETY: see above.
    unsafe { comm.all_reduce_raw(data.output(), SUM) }
        .await
        .unwrap();
    data.expect(&sums(0..n, 0), &what);

    let mut data = Buffer::new(&own, start);
    // SAFETY: see above.
    unsafe { comm.scan_raw(data.output(), SUM) }.await.unwrap();
    data.expect(&sums(0..rank + 1, 0), &what);

    let mut data = Buffer::new(&own, start);
    // SAFETY: see above.
    unsafe { comm.exclusive_scan_raw(data.output(), SUM) }
        .await
        .unwrap();
    let expected = if rank == 0 {
        own.clone()
    } else {
        sums(0..rank, 0)
    };
    data.expect(&expected, &what);

    let input = Buffer::new(&own, start);
    let mut long = Buffer::new(&vec![-1; count * n], 3 - start);
    // SAFETY: see above.
    unsafe { comm.all_gather_raw(input.input(), long.output()) }
        .await
        .unwrap();
    let all: Vec<i32> = (0..n).flat_map(|rank| values(rank, 0, count)).collect();
    long.expect(&all, &what);

    let empty = if rank == root { count * n } else { 0 };
    let mut long = Buffer::new(&vec![-1; empty], 3 - start);
    // SAFETY: see above.
    unsafe { comm.gather_raw(input.input(), long.output(), root) }
        .await
        .unwrap();
    at_root(&long, &all, &[]);

    let long = Buffer::new(&values(rank, 0, count * n), start);
    let mut block = Buffer::new(&vec![-1; count], 3 - start);
    // SAFETY: see above.
    unsafe { comm.scatter_raw(long.input(), block.output(), root) }
        .await
        .unwrap();
    block.expect(&values(root, rank * count, count), &what);

    let mut block = Buffer::new(&vec![-1; count], 3 - start);
    // SAFETY: see above.
    unsafe { comm.reduce_scatter_raw(long.input(), block.output(), SUM) }
        .await
        .unwrap();
    block.expect(&sums(0..n, rank * count), &what);

    let mut exchanged = Buffer::new(&vec![-1; count * n], 3 - start);
    // SAFETY: see above.
    unsafe { comm.all_to_all_raw(long.input(), exchanged.output()) }
        .await
        .unwrap();
    let blocks = (0..n).flat_map(|from| values(from, rank * count, count));
    exchanged.expect(&blocks.collect::<Vec<i32>>(), &what);
    long.expect(&values(rank, 0, count * n), &what);
}

#[tokio::test]
async fn every_operation_at_every_alignment() {
    let work = |comm: Arc<MemoryCommunicator>| async move {
        for start in 0..4 {
            for count in [0, 1, 5] {
                every_operation(&comm, count, start).await;
            }
        }
        every_operation(&comm, 20_001, 1).await;
    };
    for world in WORLDS {
        let (_network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        on_all(&share(ranks), work).await;
    }
    let ranks = share(Communicator::local(2).await.unwrap());
    on_all(&ranks, |comm| async move {
        every_operation(&comm, 20_001, 1).await
    })
    .await;
}

const NOTHING: RawSlice = RawSlice {
    pointer: std::ptr::null(),
    count: 0,
    dtype: DataType::F64,
    space: MemorySpace::Host,
    stream: 0,
};

const NOTHING_MUT: RawSliceMut = RawSliceMut {
    pointer: std::ptr::null_mut(),
    count: 0,
    dtype: DataType::F64,
    space: MemorySpace::Host,
    stream: 0,
};

#[tokio::test]
async fn null_is_no_elements() {
    let (_network, _, ranks) = memory_world(2, TimeLimits::default()).await;
    on_all(&share(ranks), |comm| async move {
        // SAFETY: there is no memory.
        unsafe {
            comm.broadcast_raw(NOTHING_MUT, 0).await.unwrap();
            comm.reduce_raw(NOTHING_MUT, SUM, 1).await.unwrap();
            comm.all_reduce_raw(NOTHING_MUT, SUM).await.unwrap();
            comm.scan_raw(NOTHING_MUT, SUM).await.unwrap();
            comm.exclusive_scan_raw(NOTHING_MUT, SUM).await.unwrap();
            comm.all_gather_raw(NOTHING, NOTHING_MUT).await.unwrap();
            comm.gather_raw(NOTHING, NOTHING_MUT, 0).await.unwrap();
            comm.scatter_raw(NOTHING, NOTHING_MUT, 0).await.unwrap();
            comm.reduce_scatter_raw(NOTHING, NOTHING_MUT, SUM)
                .await
                .unwrap();
            comm.all_to_all_raw(NOTHING, NOTHING_MUT).await.unwrap();
        }
    })
    .await;
}

/// The result of every operation with these arguments. They are refused before the memory is touched, by one
/// rank alone.
async fn refused(
    comm: &MemoryCommunicator,
    input: RawSlice,
    output: RawSliceMut,
) -> Vec<Result<()>> {
    // SAFETY: nothing is accessed.
    unsafe {
        vec![
            comm.all_gather_raw(input, output).await,
            comm.gather_raw(input, output, 1).await,
            comm.scatter_raw(input, output, 1).await,
            comm.reduce_scatter_raw(input, output, SUM).await,
            comm.all_to_all_raw(input, output).await,
        ]
    }
}

async fn refused_in_place(comm: &MemoryCommunicator, data: RawSliceMut) -> Vec<Result<()>> {
    // SAFETY: nothing is accessed.
    unsafe {
        vec![
            comm.broadcast_raw(data, 0).await,
            comm.reduce_raw(data, SUM, 1).await,
            comm.all_reduce_raw(data, SUM).await,
            comm.scan_raw(data, SUM).await,
            comm.exclusive_scan_raw(data, SUM).await,
        ]
    }
}

#[track_caller]
fn assert_unreachable(results: Vec<Result<()>>, what: &str) {
    for result in results {
        assert!(
            matches!(result, Err(Error::Device { .. })),
            "{what}: {result:?}"
        );
    }
}

#[track_caller]
fn assert_invalid(results: Vec<Result<()>>, what: &str) {
    for (at, result) in results.into_iter().enumerate() {
        assert!(
            matches!(result, Err(Error::InvalidArgument { .. })),
            "{what}, call {at}: {result:?}"
        );
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused() {
    let (_network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let ranks = share(ranks);
    let comm = &ranks[1];
    let mut memory = [0u8; 3 * 8];
    let input = RawSlice {
        pointer: [0u8; 8].as_ptr(),
        count: 1,
        ..NOTHING
    };
    let output = RawSliceMut {
        pointer: memory.as_mut_ptr(),
        count: 3,
        ..NOTHING_MUT
    };
    // Null with elements.
    let null = RawSlice {
        pointer: std::ptr::null(),
        ..input
    };
    let null_mut = RawSliceMut {
        pointer: std::ptr::null_mut(),
        ..output
    };
    assert_invalid(refused(comm, null, output).await, "null input");
    assert_invalid(refused(comm, input, null_mut).await, "null output");
    assert_invalid(refused_in_place(comm, null_mut).await, "null data");
    // Another type, even of the same size.
    for dtype in [DataType::I64, DataType::F32] {
        let other = RawSlice { dtype, ..input };
        assert_invalid(refused(comm, other, output).await, "types");
    }
    // Memory of a device.
    let space = MemorySpace::Device(0);
    let device = RawSlice { space, ..input };
    let device_mut = RawSliceMut { space, ..output };
    assert_unreachable(refused(comm, device, output).await, "device input");
    assert_unreachable(refused(comm, input, device_mut).await, "device output");
    assert_unreachable(refused_in_place(comm, device_mut).await, "device data");
    // More than memory has.
    for count in [usize::MAX, usize::MAX / 8, isize::MAX as usize / 8 + 1] {
        let many = RawSliceMut { count, ..output };
        assert_invalid(refused(comm, input, many).await, "many");
        assert_invalid(refused_in_place(comm, many).await, "many");
    }
    // Lengths that do not fit, roots that do not exist, and reductions that there are not.
    let short = RawSliceMut { count: 2, ..output };
    let longer = RawSlice { count: 2, ..input };
    assert_invalid(refused(comm, longer, short).await, "lengths");
    // SAFETY: nothing is accessed.
    let (root, unsupported) = unsafe {
        (
            comm.broadcast_raw(output, 3).await,
            comm.all_reduce_raw(output, ReduceOp::BitXor).await,
        )
    };
    assert_invalid(vec![root], "root");
    assert!(matches!(unsupported, Err(Error::Unsupported(_))));
    assert_eq!(memory, [0; 24]);
    on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
}
