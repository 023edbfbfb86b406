//! Calls in which every rank has a vector of the same length.

use super::{Input, Output, Place, check_len, invalid, request};
use crate::{
    engine::{Elements, Request},
    schedule::Operation,
};
use nexar_core::{Collective, ReduceOp, Result};

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
                &[0],
                &mut [],
            )
        }
    }

    pub(crate) fn broadcast<'a>(
        self,
        elements: Elements<'a>,
        data: Output<'a>,
        root: usize,
    ) -> Result<Request<'a>> {
        let collective = Collective::Broadcast;
        self.check_root(collective, root)?;
        let count = data.len;
        let operation = Operation::Broadcast { root, count };
        Ok(request(collective, operation, elements, &[], data.bytes))
    }

    /// In place on the root; the data of the others stays as it is.
    pub(crate) fn reduce<'a>(
        self,
        elements: Elements<'a>,
        data: Output<'a>,
        root: usize,
    ) -> Result<Request<'a>> {
        let collective = Collective::Reduce;
        self.check_root(collective, root)?;
        let count = data.len;
        let operation = Operation::Reduce { root, count };
        let (input, output): (&[u8], &mut [u8]) = if self.rank == root {
            (&[], data.bytes)
        } else {
            (data.bytes, &mut [])
        };
        Ok(request(collective, operation, elements, input, output))
    }

    /// The output matters on the root only.
    pub(crate) fn reduce_into<'a>(
        self,
        elements: Elements<'a>,
        input: Input<'a>,
        output: Output<'a>,
        root: usize,
    ) -> Result<Request<'a>> {
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
                &mut [],
            ));
        }
        copy(collective, input, &output)?.copy_to(output.bytes);
        Ok(request(collective, operation, elements, &[], output.bytes))
    }

    pub(crate) fn all_reduce<'a>(self, elements: Elements<'a>, data: Output<'a>) -> Request<'a> {
        let operation = Operation::AllReduce { count: data.len };
        request(Collective::AllReduce, operation, elements, &[], data.bytes)
    }

    pub(crate) fn all_reduce_into<'a>(
        self,
        elements: Elements<'a>,
        input: Input<'a>,
        output: Output<'a>,
    ) -> Result<Request<'a>> {
        copy(Collective::AllReduce, input, &output)?.copy_to(output.bytes);
        Ok(self.all_reduce(elements, output))
    }

    pub(crate) fn scan<'a>(
        self,
        elements: Elements<'a>,
        data: Output<'a>,
        exclusive: bool,
    ) -> Result<Request<'a>> {
        // The data of rank 0 of an exclusive scan stays as it is.
        let (input, output): (&[u8], &mut [u8]) = match exclusive && self.rank == 0 {
            true => (data.bytes, &mut []),
            false => (&[], data.bytes),
        };
        scan(elements, data.len, exclusive, input, output)
    }

    pub(crate) fn scan_into<'a>(
        self,
        elements: Elements<'a>,
        input: Input<'a>,
        output: Output<'a>,
        exclusive: bool,
    ) -> Result<Request<'a>> {
        let source = copy(scan_kind(exclusive), input, &output)?;
        if exclusive && self.rank == 0 {
            return scan(elements, input.len, exclusive, input.bytes, &mut []);
        }
        let request = self.scan(elements, output, exclusive)?;
        source.copy_to(request.output);
        Ok(request)
    }
}

const fn scan_kind(exclusive: bool) -> Collective {
    match exclusive {
        false => Collective::Scan,
        true => Collective::ExclusiveScan,
    }
}

fn scan<'a>(
    elements: Elements<'a>,
    count: usize,
    exclusive: bool,
    input: &'a [u8],
    output: &'a mut [u8],
) -> Result<Request<'a>> {
    let collective = scan_kind(exclusive);
    if matches!(elements, Elements::Reduced(_, ReduceOp::Average)) {
        let reason = "an average is not defined over the first ranks only: use the sum";
        return Err(invalid(collective, reason));
    }
    let operation = Operation::Scan { count, exclusive };
    Ok(request(collective, operation, elements, input, output))
}

/// Checks that a call out of place has buffers of one length.
fn copy<'a>(collective: Collective, input: Input<'a>, output: &Output<'_>) -> Result<Source<'a>> {
    check_len(collective, "output", output.len, input.len)?;
    Ok(Source(input.bytes))
}

struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn copy_to(self, target: &mut [u8]) {
        target.copy_from_slice(self.0);
    }
}
