//! From the arguments of a call to what the engine is asked to do. Everything that can be wrong with them is
//! found here, before any traffic.

mod blocks;
mod links;
mod vectors;

use crate::{
    engine::{Elements, Request, Source, Target},
    schedule::{Operation, Parts},
};
use nexar_core::{Collective, DataType, Element, Error, ReduceOp, Result};
use std::convert::Infallible;

/// The place of a rank in its communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) world: usize,
}

/// Elements that are combined by a built-in reduction, if it is defined for them.
pub(crate) fn reduced(dtype: DataType, op: ReduceOp) -> Result<Elements<'static>> {
    op.check(dtype)?;
    Ok(Elements::Reduced(dtype, op))
}

/// Elements that are moved.
pub(crate) fn moved<E: Element>() -> Elements<'static> {
    Elements::Moved(E::DATA_TYPE)
}

/// Elements that an operation reads, with their number.
#[derive(Debug)]
pub(crate) struct Input<'a, Q = Infallible> {
    pub(crate) bytes: Source<'a, Q>,
    pub(crate) len: usize,
}

impl<'a> Input<'a> {
    pub(crate) fn of<E: Element>(data: &'a [E]) -> Self {
        Input::host(E::as_bytes(data), data.len())
    }

    pub(crate) const fn host(bytes: &'a [u8], len: usize) -> Self {
        let bytes = Source::Host(bytes);
        Input { bytes, len }
    }
}

/// Elements that an operation may change, with their number.
#[derive(Debug)]
pub(crate) struct Output<'a, Q = Infallible> {
    pub(crate) bytes: Target<'a, Q>,
    pub(crate) len: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn of<E: Element>(data: &'a mut [E]) -> Self {
        let len = data.len();
        Output::host(bytes_of(data), len)
    }

    pub(crate) const fn host(bytes: &'a mut [u8], len: usize) -> Self {
        let bytes = Target::Host(bytes);
        Output { bytes, len }
    }
}

/// The bytes of elements, to be changed by the engine or the kernels of nexar-device.
pub(crate) fn bytes_of<E: Element>(data: &mut [E]) -> &mut [u8] {
    // SAFETY: the engine stores elements only through the kernels of nexar-device, or copies elements
    // of this type, and for bool both write 0 or 1 whatever a peer has sent.
    unsafe { nexar_core::as_bytes_mut(data) }
}

pub(crate) fn invalid(collective: Collective, reason: impl Into<String>) -> Error {
    Error::InvalidArgument {
        operation: collective.name(),
        reason: reason.into(),
    }
}

fn request<'a, Q>(
    collective: Collective,
    operation: Operation,
    elements: Elements<'a>,
    input: Source<'a, Q>,
    output: Target<'a, Q>,
) -> Request<'a, Q> {
    Request {
        collective,
        operation,
        elements,
        digest: 0,
        exchanges: None,
        input,
        output,
    }
}

impl Place {
    fn check_root(self, collective: Collective, root: usize) -> Result<()> {
        if root < self.world {
            return Ok(());
        }
        let reason = format!("root {root} does not exist in a world of {}", self.world);
        Err(invalid(collective, reason))
    }

    /// Checks that a buffer holds one block for each rank.
    fn check_blocks(
        self,
        collective: Collective,
        (long, long_len): (&str, usize),
        (short, short_len): (&str, usize),
    ) -> Result<()> {
        let world = self.world;
        if short_len.checked_mul(world) == Some(long_len) {
            return Ok(());
        }
        let reason = format!(
            "{long} has {long_len} elements, but should have {world} times the {short_len} of {short}"
        );
        Err(invalid(collective, reason))
    }

    /// The length of one block of a buffer that holds one for each rank.
    fn block(self, collective: Collective, name: &str, len: usize) -> Result<usize> {
        if len.is_multiple_of(self.world) {
            return Ok(len / self.world);
        }
        let reason = format!(
            "{name} has {len} elements, which is no multiple of the world size {}",
            self.world
        );
        Err(invalid(collective, reason))
    }

    /// Checks a list of counts, one for each rank.
    fn parts(self, collective: Collective, counts: &[usize]) -> Result<Parts> {
        check_number(collective, "counts", counts.len(), self.world)?;
        let too_many = || {
            invalid(
                collective,
                "the counts add up to more than a buffer can have",
            )
        };
        Parts::uneven(counts).ok_or_else(too_many)
    }
}

fn check_len(collective: Collective, name: &str, len: usize, expected: usize) -> Result<()> {
    if len == expected {
        return Ok(());
    }
    let reason = format!("{name} has {len} elements, but should have {expected}");
    Err(invalid(collective, reason))
}

fn check_number(collective: Collective, name: &str, number: usize, expected: usize) -> Result<()> {
    if number == expected {
        return Ok(());
    }
    let reason = format!("there are {number} {name}, but should be {expected}");
    Err(invalid(collective, reason))
}
