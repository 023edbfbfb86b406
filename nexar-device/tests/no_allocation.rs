//! Reductions allocate nothing, and host memory is used where it lies.
#![allow(clippy::unwrap_used, clippy::panic)]

use nexar_core::{DataType, ReduceOp};
use nexar_device::{Access, CpuAdapter, DeviceAdapter, MemorySpace, Region, reduce};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    /// Allocations of this thread: those of the test harness are none of our business.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: what the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: what the caller promises.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `f` runs.
fn allocations(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

#[test]
fn allocations_are_counted() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn reductions_allocate_nothing() {
    for dtype in DataType::ALL {
        for op in ReduceOp::ALL.into_iter().filter(|op| op.supports(dtype)) {
            let size = dtype.size();
            let (mut acc, incoming) = (vec![1; 101 * size], vec![1; 101 * size]);
            let wide = reduce::accumulator(dtype, op);
            let mut partial = vec![0; 101 * wide.map_or(0, reduce::Accumulator::size)];
            let other = partial.clone();
            let count = allocations(|| {
                reduce::reduce(dtype, op, &mut acc, &incoming).unwrap();
                reduce::finish_in_place(dtype, op, 3, &mut acc).unwrap();
                reduce::canonicalize_nan(dtype, &mut acc).unwrap();
                reduce::fill(dtype, &mut acc, &incoming[..size]).unwrap();
                if let Some(wide) = wide {
                    reduce::widen(dtype, wide, &mut partial, &incoming).unwrap();
                    reduce::accumulate(dtype, wide, op, &mut partial, &incoming).unwrap();
                    reduce::combine(wide, op, &mut partial, &other).unwrap();
                    reduce::finish(dtype, wide, op, 3, &mut acc, &partial).unwrap();
                }
            });
            assert_eq!(count, 0, "{op} of {dtype}");
        }
    }
    let (mut out, source) = (vec![0; 101 * 8], vec![1; 101 * 8]);
    let floats = || DataType::ALL.into_iter().filter(|dtype| dtype.is_float());
    for (from, to) in floats().flat_map(|from| floats().map(move |to| (from, to))) {
        let (out, source) = (&mut out[..101 * to.size()], &source[..101 * from.size()]);
        let count = allocations(|| reduce::cast(from, to, out, source).unwrap());
        assert_eq!(count, 0, "{from} to {to}");
    }
    let count = allocations(|| {
        reduce::normalize_bool(&mut out);
        reduce::copy_bool(&mut out, &source).unwrap();
    });
    assert_eq!(count, 0);
}

/// Below the size from which on they ask for help.
#[test]
fn short_buffers_cost_no_threads() {
    let (mut acc, incoming) = (vec![1; 1 << 20], vec![1; 1 << 20]);
    let count = allocations(|| {
        let (dtype, op) = (DataType::F32, ReduceOp::Sum);
        reduce::parallel::reduce(dtype, op, &mut acc, &incoming).unwrap();
        reduce::parallel::fill(dtype, &mut acc, &[0; 4]).unwrap();
        reduce::parallel::copy(&mut acc, &incoming).unwrap();
    });
    assert_eq!(count, 0);
}

#[test]
fn host_memory_is_used_in_place() {
    let mut memory = vec![1u8; 64];
    let address = memory.as_mut_ptr();
    // SAFETY: the region takes the only owner of the memory along.
    let region = unsafe { Region::from_raw(address, 64, MemorySpace::Host, 0, memory) };
    let count = allocations(|| {
        let Ok(Access::Host(mut view)) = CpuAdapter.open(region) else {
            panic!("host memory is directly reachable");
        };
        assert_eq!(view.as_mut().as_mut_ptr(), address);
        reduce::reduce(DataType::U8, ReduceOp::Sum, view.as_mut(), &[2; 64]).unwrap();
        assert_eq!(view.as_ref(), [3; 64]);
    });
    assert_eq!(count, 0);
}
