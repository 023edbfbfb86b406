//! What is checked before a buffer is touched.

use super::{Accumulator, ReduceError, accumulator};
use nexar_core::{DataType, ReduceOp};

type Check = Result<(), ReduceError>;

pub(super) fn reduce(dtype: DataType, op: ReduceOp, acc: usize, incoming: usize) -> Check {
    op.check(dtype)?;
    whole(acc, dtype.size())?;
    equal(acc, incoming)
}

pub(super) fn widen(dtype: DataType, wide: Accumulator, acc: usize, source: usize) -> Check {
    // What has an accumulator at all has one for averages, and there is one for all its operations.
    let fits = accumulator(dtype, ReduceOp::Average) == Some(wide);
    fitting(fits, wide, Some(dtype), None)?;
    pair(acc, wide.size(), source, dtype.size())
}

pub(super) fn accumulate(
    dtype: DataType,
    wide: Accumulator,
    op: ReduceOp,
    acc: usize,
    incoming: usize,
) -> Check {
    op.check(dtype)?;
    let fits = accumulator(dtype, op) == Some(wide);
    fitting(fits, wide, Some(dtype), Some(op))?;
    pair(acc, wide.size(), incoming, dtype.size())
}

pub(super) fn combine(wide: Accumulator, op: ReduceOp, acc: usize, incoming: usize) -> Check {
    let fits = match wide {
        Accumulator::F32 => matches!(op, ReduceOp::Sum | ReduceOp::Product | ReduceOp::Average),
        Accumulator::I64 | Accumulator::I128 => op == ReduceOp::Average,
    };
    fitting(fits, wide, None, Some(op))?;
    whole(acc, wide.size())?;
    equal(acc, incoming)
}

pub(super) fn finish(
    dtype: DataType,
    wide: Accumulator,
    op: ReduceOp,
    world: usize,
    out: usize,
    acc: usize,
) -> Check {
    accumulate(dtype, wide, op, acc, out)?;
    self::world(world)
}

pub(super) fn finish_in_place(dtype: DataType, op: ReduceOp, world: usize, buffer: usize) -> Check {
    op.check(dtype)?;
    whole(buffer, dtype.size())?;
    self::world(world)
}

pub(super) fn cast(from: DataType, to: DataType, out: usize, source: usize) -> Check {
    if !(from.is_float() && to.is_float()) {
        return Err(ReduceError::Cast { from, to });
    }
    pair(out, to.size(), source, from.size())
}

pub(super) fn fill(dtype: DataType, buffer: usize, element: usize) -> Check {
    if element != dtype.size() {
        let length = element;
        return Err(ReduceError::Element { dtype, length });
    }
    whole(buffer, dtype.size())
}

pub(super) fn whole(length: usize, size: usize) -> Check {
    if length.is_multiple_of(size) {
        Ok(())
    } else {
        Err(ReduceError::PartialElement { length, size })
    }
}

pub(super) fn equal(acc: usize, other: usize) -> Check {
    if acc == other {
        Ok(())
    } else {
        Err(ReduceError::Length { acc, other })
    }
}

/// Buffers of elements of different sizes.
fn pair(acc: usize, acc_size: usize, other: usize, other_size: usize) -> Check {
    whole(acc, acc_size)?;
    whole(other, other_size)?;
    if acc / acc_size == other / other_size {
        Ok(())
    } else {
        Err(ReduceError::Length { acc, other })
    }
}

fn world(world: usize) -> Check {
    if world == 0 {
        Err(ReduceError::EmptyWorld)
    } else {
        Ok(())
    }
}

fn fitting(
    fits: bool,
    accumulator: Accumulator,
    dtype: Option<DataType>,
    op: Option<ReduceOp>,
) -> Check {
    if fits {
        Ok(())
    } else {
        Err(ReduceError::Accumulator {
            accumulator,
            dtype,
            op,
        })
    }
}
