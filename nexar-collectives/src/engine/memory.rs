//! The memory and the arithmetic of one operation.

use super::request::Combine;
use crate::schedule::{Buffer, Span, Store};
use nexar_core::{DataType, ReduceOp};
use nexar_device::reduce::{self, Accumulator, ReduceError};

/// The buffers of an operation, as bytes. Spans are in elements of `element` bytes.
#[derive(Debug)]
pub(crate) struct Memory<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) output: &'a mut [u8],
    pub(crate) scratch: Vec<u8>,
    pub(crate) element: usize,
}

impl Memory<'_> {
    /// Length of a span in bytes.
    pub(crate) fn length(&self, span: Span) -> usize {
        span.len * self.element
    }

    fn range(&self, span: Span) -> std::ops::Range<usize> {
        let start = span.start * self.element;
        start..start + self.length(span)
    }

    /// The bytes of a span.
    pub(crate) fn read(&self, span: Span) -> &[u8] {
        let range = self.range(span);
        match span.buffer {
            Buffer::Input => &self.input[range],
            Buffer::Output => &self.output[range],
            Buffer::Scratch => &self.scratch[range],
        }
    }

    /// The bytes of a span, to be changed. The input is never changed.
    fn write(&mut self, span: Span) -> &mut [u8] {
        let range = self.range(span);
        match span.buffer {
            Buffer::Input => &mut [],
            Buffer::Output => &mut self.output[range],
            Buffer::Scratch => &mut self.scratch[range],
        }
    }

    /// Copies within the memory.
    pub(crate) fn copy(&mut self, from: Span, to: Span) {
        let (source, target) = (self.range(from), self.range(to));
        match (from.buffer, to.buffer) {
            (Buffer::Input, Buffer::Output) => {
                self.output[target].copy_from_slice(&self.input[source]);
            }
            (Buffer::Input, Buffer::Scratch) => {
                self.scratch[target].copy_from_slice(&self.input[source]);
            }
            (Buffer::Output, Buffer::Output) => self.output.copy_within(source, target.start),
            (Buffer::Scratch, Buffer::Scratch) => self.scratch.copy_within(source, target.start),
            (Buffer::Output, Buffer::Scratch) => {
                self.scratch[target].copy_from_slice(&self.output[source]);
            }
            (Buffer::Scratch, Buffer::Output) => {
                self.output[target].copy_from_slice(&self.scratch[source]);
            }
            (_, Buffer::Input) => {}
        }
    }
}

/// How the elements of an operation are combined.
#[derive(Clone, Copy)]
pub(crate) enum Arithmetic<'a> {
    /// Not at all; bools are checked when they arrive.
    None { dtype: Option<DataType> },
    /// In their own type.
    Narrow { dtype: DataType, op: ReduceOp },
    /// Wide where they are combined, narrow on the wire.
    WideAtSite {
        dtype: DataType,
        op: ReduceOp,
        accumulator: Accumulator,
    },
    /// The memory holds wide elements already.
    Wide {
        op: ReduceOp,
        accumulator: Accumulator,
    },
    /// By a function.
    Custom(&'a Combine),
}

/// A wide accumulator for a span that is being combined.
#[derive(Debug)]
struct Site {
    span: Span,
    sums: Vec<u8>,
}

/// Stores what arrives.
pub(crate) struct Combiner<'a> {
    pub(crate) arithmetic: Arithmetic<'a>,
    pub(crate) world: usize,
    /// Spans between their first and their last contribution; few at a time.
    sites: Vec<Site>,
    idle: Vec<Vec<u8>>,
}

impl<'a> Combiner<'a> {
    pub(crate) fn new(arithmetic: Arithmetic<'a>, world: usize) -> Self {
        Combiner {
            arithmetic,
            world,
            sites: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Stores `data`, whole elements, at `offset` bytes in `span`.
    pub(crate) fn store(
        &mut self,
        memory: &mut Memory<'_>,
        span: Span,
        store: Store,
        offset: usize,
        data: &[u8],
    ) -> Result<(), ReduceError> {
        let element = memory.element;
        let (first, incoming_first) = match store {
            Store::Copy => return self.copy(&mut memory.write(span)[offset..][..data.len()], data),
            Store::Reduce {
                first,
                incoming_first,
                ..
            } => (first, incoming_first),
        };
        match self.arithmetic {
            Arithmetic::None { .. } => Ok(()),
            Arithmetic::Custom(combine) => {
                let acc = &mut memory.write(span)[offset..][..data.len()];
                combine(acc, data, incoming_first);
                Ok(())
            }
            // The order of the operands does not matter to the built-in reductions.
            Arithmetic::Narrow { dtype, op } => {
                let acc = &mut memory.write(span)[offset..][..data.len()];
                reduce::reduce(dtype, op, acc, data)
            }
            Arithmetic::Wide { op, accumulator } => {
                let acc = &mut memory.write(span)[offset..][..data.len()];
                reduce::combine(accumulator, op, acc, data)
            }
            Arithmetic::WideAtSite {
                dtype,
                op,
                accumulator,
            } => {
                let width = accumulator.size();
                let at = self.site(span, span.len * width);
                let start = offset / element * width;
                let sums = &mut self.sites[at].sums[start..][..data.len() / element * width];
                if first {
                    let own = &memory.read(span)[offset..][..data.len()];
                    reduce::widen(dtype, accumulator, sums, own)?;
                }
                reduce::accumulate(dtype, accumulator, op, sums, data)
            }
        }
    }

    fn copy(&self, target: &mut [u8], data: &[u8]) -> Result<(), ReduceError> {
        match self.arithmetic {
            Arithmetic::None {
                dtype: Some(DataType::Bool),
            }
            | Arithmetic::Narrow {
                dtype: DataType::Bool,
                ..
            } => reduce::copy_bool(target, data),
            _ => {
                target.copy_from_slice(data);
                Ok(())
            }
        }
    }

    fn site(&mut self, span: Span, length: usize) -> usize {
        if let Some(at) = self.sites.iter().position(|site| site.span == span) {
            return at;
        }
        let mut sums = self.idle.pop().unwrap_or_default();
        sums.resize(length, 0);
        self.sites.push(Site { span, sums });
        self.sites.len() - 1
    }

    /// A receive for `span` is complete.
    pub(crate) fn complete(
        &mut self,
        memory: &mut Memory<'_>,
        span: Span,
        store: Store,
    ) -> Result<(), ReduceError> {
        let Store::Reduce { last: true, .. } = store else {
            return Ok(());
        };
        match self.arithmetic {
            Arithmetic::None { .. } | Arithmetic::Wide { .. } | Arithmetic::Custom(_) => Ok(()),
            Arithmetic::Narrow { dtype, op } => {
                reduce::finish_in_place(dtype, op, self.world, memory.write(span))
            }
            Arithmetic::WideAtSite {
                dtype,
                op,
                accumulator,
            } => {
                let Some(at) = self.sites.iter().position(|site| site.span == span) else {
                    return Ok(());
                };
                let Site { sums, .. } = self.sites.swap_remove(at);
                let out = memory.write(span);
                reduce::finish(dtype, accumulator, op, self.world, out, &sums)?;
                self.idle.push(sums);
                Ok(())
            }
        }
    }
}
