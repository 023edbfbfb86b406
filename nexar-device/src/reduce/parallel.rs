//! The functions of [`reduce`](super) on several threads, for large buffers while CPUs are idle.
//!
//! Each does what the function of the same name in [`reduce`](super) does, with the same results bit by bit and
//! the same errors. The difference is what it costs:
//!
//! - A buffer of less than 8 MiB, which a single thread is through with before others have started, is left to
//!   the calling thread. Nothing else happens then.
//! - For a larger one it asks how many CPUs are idle: those that this process may use
//!   ([`available_parallelism`](std::thread::available_parallelism)), less the tasks that are running or ready
//!   to run on the whole machine at this moment (Linux: the fourth field of `/proc/loadavg`, some microseconds).
//!   Where the system does not tell, it takes half of the CPUs to be idle. It starts one thread for each idle CPU, 7
//!   at most, which is what memory has bandwidth for, and none where none is idle.
//! - The threads take chunks of 512 KiB in turn. The calling thread takes part from the start and does
//!   everything where the others come late, or cannot be started. It returns when all have ended: it waits
//!   as long as the slowest takes for its last chunk.
//!
//! A start costs some 20 to 50 microseconds for each thread, and allocations.
//!
//! ```
//! use nexar_core::{DataType, ReduceOp};
//! use nexar_device::reduce;
//!
//! let mut acc = vec![1; 16 << 20];
//! let incoming = vec![2; 16 << 20];
//! reduce::parallel::reduce(DataType::U8, ReduceOp::Sum, &mut acc, &incoming)?;
//! assert!(acc.iter().all(|byte| *byte == 3));
//! # Ok::<(), reduce::ReduceError>(())
//! ```

use super::{Accumulator, ReduceError, check, divisor, level::Level, select, threads::Split};
use nexar_core::{DataType, ReduceOp};

/// [`reduce::reduce`](super::reduce()) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn reduce(
    dtype: DataType,
    op: ReduceOp,
    acc: &mut [u8],
    incoming: &[u8],
) -> Result<(), ReduceError> {
    check::reduce(dtype, op, acc.len(), incoming.len())?;
    let size = dtype.size();
    Split::of(acc.len()).pair((acc, size), (incoming, size), |acc, incoming| {
        select::reduce(Level::best(), dtype, op, acc, incoming)
    });
    Ok(())
}

/// [`reduce::widen`](super::widen) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn widen(
    dtype: DataType,
    accumulator: Accumulator,
    acc: &mut [u8],
    source: &[u8],
) -> Result<(), ReduceError> {
    check::widen(dtype, accumulator, acc.len(), source.len())?;
    let (acc, source) = ((acc, accumulator.size()), (source, dtype.size()));
    Split::of(acc.0.len()).pair(acc, source, |acc, source| {
        select::widen(Level::best(), dtype, acc, source)
    });
    Ok(())
}

/// [`reduce::accumulate`](super::accumulate) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn accumulate(
    dtype: DataType,
    accumulator: Accumulator,
    op: ReduceOp,
    acc: &mut [u8],
    incoming: &[u8],
) -> Result<(), ReduceError> {
    check::accumulate(dtype, accumulator, op, acc.len(), incoming.len())?;
    let (acc, incoming) = ((acc, accumulator.size()), (incoming, dtype.size()));
    Split::of(acc.0.len()).pair(acc, incoming, |acc, incoming| {
        select::accumulate(Level::best(), dtype, op, acc, incoming)
    });
    Ok(())
}

/// [`reduce::combine`](super::combine) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn combine(
    accumulator: Accumulator,
    op: ReduceOp,
    acc: &mut [u8],
    incoming: &[u8],
) -> Result<(), ReduceError> {
    check::combine(accumulator, op, acc.len(), incoming.len())?;
    let size = accumulator.size();
    Split::of(acc.len()).pair((acc, size), (incoming, size), |acc, incoming| {
        select::combine(Level::best(), accumulator, op, acc, incoming)
    });
    Ok(())
}

/// [`reduce::finish`](super::finish) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn finish(
    dtype: DataType,
    accumulator: Accumulator,
    op: ReduceOp,
    world: usize,
    out: &mut [u8],
    acc: &[u8],
) -> Result<(), ReduceError> {
    check::finish(dtype, accumulator, op, world, out.len(), acc.len())?;
    let divisor = divisor(op, world);
    let (out, acc) = ((out, dtype.size()), (acc, accumulator.size()));
    Split::of(acc.0.len()).pair(out, acc, |out, acc| {
        select::finish(Level::best(), dtype, divisor, out, acc)
    });
    Ok(())
}

/// [`reduce::finish_in_place`](super::finish_in_place) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn finish_in_place(
    dtype: DataType,
    op: ReduceOp,
    world: usize,
    buffer: &mut [u8],
) -> Result<(), ReduceError> {
    check::finish_in_place(dtype, op, world, buffer.len())?;
    if op == ReduceOp::Average {
        Split::of(buffer.len()).one((buffer, dtype.size()), |buffer| {
            select::divide(Level::best(), dtype, world, buffer)
        });
    }
    Ok(())
}

/// [`reduce::normalize_bool`](super::normalize_bool) on idle CPUs.
pub fn normalize_bool(bytes: &mut [u8]) {
    Split::of(bytes.len()).one((bytes, 1), |bytes| {
        select::normalize_bool(Level::best(), bytes)
    });
}

/// [`reduce::copy_bool`](super::copy_bool) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn copy_bool(out: &mut [u8], incoming: &[u8]) -> Result<(), ReduceError> {
    check::equal(out.len(), incoming.len())?;
    Split::of(out.len()).pair((out, 1), (incoming, 1), |out, incoming| {
        select::copy_bool(Level::best(), out, incoming)
    });
    Ok(())
}

/// [`reduce::canonicalize_nan`](super::canonicalize_nan) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn canonicalize_nan(dtype: DataType, buffer: &mut [u8]) -> Result<(), ReduceError> {
    check::whole(buffer.len(), dtype.size())?;
    if dtype.is_float() {
        Split::of(buffer.len()).one((buffer, dtype.size()), |buffer| {
            select::canonicalize_nan(Level::best(), dtype, buffer)
        });
    }
    Ok(())
}

/// [`reduce::cast`](super::cast()) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn cast(
    from: DataType,
    to: DataType,
    out: &mut [u8],
    source: &[u8],
) -> Result<(), ReduceError> {
    check::cast(from, to, out.len(), source.len())?;
    let bytes = out.len().max(source.len());
    let (out, source) = ((out, to.size()), (source, from.size()));
    Split::of(bytes).pair(out, source, |out, source| {
        select::cast(Level::best(), from, to, out, source)
    });
    Ok(())
}

/// [`reduce::fill`](super::fill()) on idle CPUs.
///
/// # Errors
///
/// As there.
pub fn fill(dtype: DataType, buffer: &mut [u8], element: &[u8]) -> Result<(), ReduceError> {
    check::fill(dtype, buffer.len(), element.len())?;
    Split::of(buffer.len()).one((buffer, dtype.size()), |buffer| {
        select::fill(Level::best(), dtype, element, buffer)
    });
    Ok(())
}

/// Copies bytes on idle CPUs.
///
/// # Errors
///
/// The slices differ in length. `out` is then unchanged.
pub fn copy(out: &mut [u8], source: &[u8]) -> Result<(), ReduceError> {
    check::equal(out.len(), source.len())?;
    Split::of(out.len()).pair((out, 1), (source, 1), |out, source| {
        out.copy_from_slice(source)
    });
    Ok(())
}
