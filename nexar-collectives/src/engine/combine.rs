//! The arithmetic of one operation.

use super::{memory::Memory, request::Combine};
use crate::schedule::{Span, Store};
use nexar_core::{DataType, ReduceOp};
use nexar_device::{
    ExecutionQueue,
    reduce::{self, Accumulator, ReduceError},
};

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

    /// Stores `data`, whole elements, at `offset` bytes in `span`. The memory is at hand.
    pub(crate) fn store<Q: ExecutionQueue>(
        &mut self,
        memory: &mut Memory<'_, Q>,
        span: Span,
        store: Store,
        offset: usize,
        data: &[u8],
    ) -> Result<(), ReduceError> {
        let element = memory.element;
        let target = memory.at_hand(span, offset, data.len());
        let Store::Reduce {
            first,
            last,
            incoming_first,
        } = store
        else {
            return self.copy(target, data);
        };
        match self.arithmetic {
            Arithmetic::None { .. } => Ok(()),
            Arithmetic::Custom(combine) => {
                combine(target, data, incoming_first);
                Ok(())
            }
            // The order of the operands does not matter to the built-in reductions.
            Arithmetic::Narrow { dtype, op } => {
                reduce::reduce(dtype, op, target, data)?;
                match last {
                    true => reduce::finish_in_place(dtype, op, self.world, target),
                    false => Ok(()),
                }
            }
            Arithmetic::Wide { op, accumulator } => reduce::combine(accumulator, op, target, data),
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
                    reduce::widen(dtype, accumulator, sums, target)?;
                }
                reduce::accumulate(dtype, accumulator, op, sums, data)?;
                match last {
                    true => reduce::finish(dtype, accumulator, op, self.world, target, sums),
                    false => Ok(()),
                }
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
    pub(crate) fn complete(&mut self, span: Span, store: Store) {
        if let Store::Reduce { last: true, .. } = store
            && let Some(at) = self.sites.iter().position(|site| site.span == span)
        {
            self.idle.push(self.sites.swap_remove(at).sums);
        }
    }
}
