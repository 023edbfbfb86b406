//! Calls in which every rank has a vector of the same length.

use super::{Input, Output, Place, check_len, invalid, request};
use crate::{
    engine::{Elements, Request, Source, Target},
    schedule::Operation,
};
use nexar_core::{Collective, Error, ReduceOp, Result};

impl Place {
    /// Waits for all.
    pub(crate) fn barrier(self) -> Request<'static> {
        self.labelled_barrier(Collective::Barrier, 0)
    }

    /// A barrier as a part of something else.
    pub(crate) fn labelled_barrier(self, collective: Collective, digest: u64) -> Request<'static> {
        Request {
            digest,
            ..request(
                collective,
                Operation::Barrier,
                Elements::Token,
                Source::Host(&[0]),
                Target::none(),
            )
        }
    }

    pub(crate) fn broadcast<'a, Q>(
        self,
        elements: Elements<'a>,
        data: Output<'a, Q>,
        root: usize,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::Broadcast;
        self.check_root(collective, root)?;
        let count = data.len;
        let operation = Operation::Broadcast { root, count };
        Ok(request(
            collective,
            operation,
            elements,
            Source::none(),
            data.bytes,
        ))
    }

    /// In place on the root; the data of the others stays as it is.
    pub(crate) fn reduce<'a, Q>(
        self,
        elements: Elements<'a>,
        data: Output<'a, Q>,
        root: usize,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::Reduce;
        self.check_root(collective, root)?;
        let count = data.len;
        let operation = Operation::Reduce { root, count };
        let (input, output) = if self.rank == root {
            (Source::none(), data.bytes)
        } else {
            (only_read(data.bytes), Target::none())
        };
        Ok(request(collective, operation, elements, input, output))
    }

    /// The output matters on the root only.
    pub(crate) fn reduce_into<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
        root: usize,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::Reduce;
        self.check_root(collective, root)?;
        let count = input.len;
        let operation = Operation::Reduce { root, count };
        if self.rank != root {
            return Ok(request(
                collective,
                operation,
                elements,
                input.bytes,
                Target::none(),
            ));
        }
        let output = copy(collective, input, output)?;
        Ok(request(
            collective,
            operation,
            elements,
            Source::none(),
            output.bytes,
        ))
    }

    pub(crate) fn all_reduce<'a, Q>(
        self,
        elements: Elements<'a>,
        data: Output<'a, Q>,
    ) -> Request<'a, Q> {
        let operation = Operation::AllReduce { count: data.len };
        request(
            Collective::AllReduce,
            operation,
            elements,
            Source::none(),
            data.bytes,
        )
    }

    pub(crate) fn all_reduce_into<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        Ok(self.all_reduce(elements, copy(Collective::AllReduce, input, output)?))
    }

    pub(crate) fn scan<'a, Q>(
        self,
        elements: Elements<'a>,
        data: Output<'a, Q>,
        exclusive: bool,
    ) -> Result<Request<'a, Q>> {
        // The data of rank 0 of an exclusive scan stays as it is.
        let (input, output) = match exclusive && self.rank == 0 {
            true => (only_read(data.bytes), Target::none()),
            false => (Source::none(), data.bytes),
        };
        scan(elements, data.len, exclusive, input, output)
    }

    pub(crate) fn scan_into<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
        exclusive: bool,
    ) -> Result<Request<'a, Q>> {
        let kind = scan_kind(exclusive);
        if exclusive && self.rank == 0 {
            check_len(kind, "output", output.len, input.len)?;
            return scan(elements, input.len, exclusive, input.bytes, Target::none());
        }
        check_scan(elements, kind)?;
        self.scan(elements, copy(kind, input, output)?, exclusive)
    }
}

/// What an operation in place only reads on this rank.
fn only_read<'a, Q>(data: Target<'a, Q>) -> Source<'a, Q> {
    match data {
        Target::Host(bytes) => Source::Host(bytes),
        Target::View(view) => Source::View(view),
        Target::Staged { queue, staging, .. } => Source::Staged { queue, staging },
    }
}

const fn scan_kind(exclusive: bool) -> Collective {
    match exclusive {
        false => Collective::Scan,
        true => Collective::ExclusiveScan,
    }
}

fn check_scan(elements: Elements<'_>, collective: Collective) -> Result<()> {
    if matches!(elements, Elements::Reduced(_, ReduceOp::Average)) {
        let reason = "an average is not defined over the first ranks only: use the sum";
        return Err(invalid(collective, reason));
    }
    Ok(())
}

fn scan<'a, Q>(
    elements: Elements<'a>,
    count: usize,
    exclusive: bool,
    input: Source<'a, Q>,
    output: Target<'a, Q>,
) -> Result<Request<'a, Q>> {
    let collective = scan_kind(exclusive);
    check_scan(elements, collective)?;
    let operation = Operation::Scan { count, exclusive };
    Ok(request(collective, operation, elements, input, output))
}

/// The output of a call out of place, which becomes one in place, with what it holds at the start.
fn copy<'a, Q>(
    collective: Collective,
    input: Input<'a, Q>,
    mut output: Output<'a, Q>,
) -> Result<Output<'a, Q>> {
    check_len(collective, "output", output.len, input.len)?;
    let source = match &input.bytes {
        Source::Host(bytes) => bytes,
        Source::View(view) => view.as_ref(),
        Source::Staged { .. } => &[],
    };
    match &mut output.bytes {
        Target::Host(bytes) if bytes.len() == source.len() => bytes.copy_from_slice(source),
        Target::View(view) if view.as_ref().len() == source.len() => {
            view.as_mut().copy_from_slice(source);
        }
        Target::Staged { from, .. } => match input.bytes {
            Source::Staged { queue, .. } => *from = Some(queue),
            Source::Host(_) | Source::View(_) if input.len == 0 => {}
            Source::Host(_) | Source::View(_) => return Err(apart(collective)),
        },
        Target::Host(_) | Target::View(_) => return Err(apart(collective)),
    }
    Ok(output)
}

fn apart(collective: Collective) -> Error {
    let reason = "input and output lie in different kinds of memory: copy the input to the output, \
                  and use the operation in place";
    invalid(collective, reason)
}
