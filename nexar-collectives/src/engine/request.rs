//! What the engine is asked to do.

use crate::schedule::{Operation, Parts, Plan};
use nexar_core::{Call, Collective, DataType, ReduceOp, mesh::Exchanges};
use nexar_device::{
    Access, Capabilities, HostView,
    reduce::{self, Accumulator},
};
use std::convert::Infallible;

/// Combines elements of a type that is not built in: `acc = acc op incoming`, or `incoming op acc` if the
/// last argument is true. Both have the same number of whole elements, at any alignment.
pub(crate) type Combine = dyn Fn(&mut [u8], &[u8], bool) + Send + Sync;

/// The elements of a call, and what is done with them.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    /// A token without meaning.
    Token,
    /// They are moved as they are.
    Moved(DataType),
    /// They are combined by a built-in reduction that is defined for them.
    Reduced(DataType, ReduceOp),
    /// They are combined by a function, which is associative.
    Custom {
        /// Bytes of an element.
        size: usize,
        /// The function is not commutative.
        ordered: bool,
        combine: &'a Combine,
    },
}

impl Elements<'_> {
    pub(super) fn size(&self) -> usize {
        match self {
            Elements::Token => 1,
            Elements::Moved(dtype) | Elements::Reduced(dtype, _) => dtype.size(),
            Elements::Custom { size, .. } => *size,
        }
    }

    pub(super) fn dtype(&self) -> Option<DataType> {
        match self {
            Elements::Moved(dtype) | Elements::Reduced(dtype, _) => Some(*dtype),
            Elements::Token | Elements::Custom { .. } => None,
        }
    }

    pub(super) fn op(&self) -> Option<ReduceOp> {
        match self {
            Elements::Reduced(_, op) => Some(*op),
            _ => None,
        }
    }

    pub(super) fn is_ordered(&self) -> bool {
        matches!(self, Elements::Custom { ordered: true, .. })
    }

    /// The wide type in which the elements are accumulated, if not in their own.
    pub(super) fn accumulator(&self) -> Option<Accumulator> {
        reduce::accumulator(self.dtype()?, self.op()?)
    }
}

/// What an operation reads and leaves as it is.
#[derive(Debug)]
pub(crate) enum Source<'a, Q = Infallible> {
    /// Memory that Rust knows.
    Host(&'a [u8]),
    /// Memory that the host reaches, given by its address.
    View(HostView),
    /// Memory that is copied piece by piece.
    Staged {
        queue: Q,
        /// What its adapter can do.
        staging: Capabilities,
    },
}

/// What an operation writes.
#[derive(Debug)]
pub(crate) enum Target<'a, Q = Infallible> {
    /// Memory that Rust knows.
    Host(&'a mut [u8]),
    /// Memory that the host reaches, given by its address.
    View(HostView),
    /// Memory that is copied piece by piece.
    Staged {
        queue: Q,
        /// What the memory is to hold at the start; what it holds already, if none.
        from: Option<Q>,
        /// What its adapter can do.
        staging: Capabilities,
    },
}

impl<Q> Source<'_, Q> {
    /// What an adapter has opened, with what it can do.
    pub(crate) fn opened(access: Access<Q>, staging: Capabilities) -> Self {
        match access {
            Access::Host(view) => Source::View(view),
            Access::Staged(queue) => Source::Staged { queue, staging },
        }
    }

    pub(crate) const fn none() -> Self {
        Source::Host(&[])
    }
}

impl<Q> Target<'_, Q> {
    /// What an adapter has opened, with what it can do.
    pub(crate) fn opened(access: Access<Q>, staging: Capabilities) -> Self {
        match access {
            Access::Host(view) => Target::View(view),
            Access::Staged(queue) => Target::Staged {
                queue,
                from: None,
                staging,
            },
        }
    }

    pub(crate) const fn none() -> Self {
        Target::Host(&mut [])
    }
}

/// One collective call on this rank, with its buffers as bytes. Lengths and reduction have been checked.
pub(crate) struct Request<'a, Q = Infallible> {
    /// What the user called.
    pub(crate) collective: Collective,
    pub(crate) operation: Operation,
    pub(crate) elements: Elements<'a>,
    /// See [`Call::digest`].
    pub(crate) digest: u64,
    /// See [`Call::exchange`].
    pub(crate) exchanges: Option<Exchanges>,
    pub(crate) input: Source<'a, Q>,
    pub(crate) output: Target<'a, Q>,
}

impl<Q> Request<'_, Q> {
    pub(super) fn call(&self, sequence: u64, plan: Plan) -> Call {
        let custom = matches!(self.elements, Elements::Custom { .. });
        let token = matches!(self.elements, Elements::Token);
        Call {
            collective: self.collective,
            sequence,
            dtype: self.elements.dtype(),
            element: if custom {
                self.elements.size() as u32
            } else {
                0
            },
            op: self.elements.op(),
            count: if token { 0 } else { count(&self.operation) },
            root: root(&self.operation),
            algorithm: plan.algorithm,
            digest: self.digest,
            exchange: None,
        }
    }
}

/// The number of elements that all ranks have in common; 0 where there is none.
fn count(operation: &Operation) -> u64 {
    let count = match operation {
        Operation::Broadcast { count, .. }
        | Operation::Reduce { count, .. }
        | Operation::AllReduce { count }
        | Operation::Scan { count, .. }
        | Operation::AllToAll { count, .. } => *count,
        Operation::AllGather { parts, .. }
        | Operation::Gather { parts, .. }
        | Operation::Scatter { parts, .. }
        | Operation::ReduceScatter { parts, .. } => match parts {
            Parts::Even(count) => *count,
            Parts::Uneven(_) => 0,
        },
        Operation::Barrier | Operation::Exchange { .. } => 0,
    };
    count as u64
}

fn root(operation: &Operation) -> Option<u32> {
    match operation {
        Operation::Broadcast { root, .. }
        | Operation::Reduce { root, .. }
        | Operation::Gather { root, .. }
        | Operation::Scatter { root, .. } => Some(*root as u32),
        _ => None,
    }
}
