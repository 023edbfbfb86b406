//! Calls in which vectors consist of a block for each rank.

use super::{Input, Output, Place, check_len, request};
use crate::{
    digest::digest,
    engine::{Elements, Request, Source, Target},
    schedule::{Operation, Parts},
};
use nexar_core::{Collective, Exchange, Result, mesh::Exchanges};

impl Place {
    pub(crate) fn all_gather<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::AllGather;
        self.check_blocks(collective, ("output", output.len), ("input", input.len))?;
        let operation = Operation::AllGather {
            parts: Parts::Even(input.len),
            in_place: false,
        };
        Ok(request(
            collective,
            operation,
            elements,
            input.bytes,
            output.bytes,
        ))
    }

    /// The own block is in its place.
    pub(crate) fn all_gather_in_place<'a, Q>(
        self,
        elements: Elements<'a>,
        data: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::AllGather;
        let operation = Operation::AllGather {
            parts: Parts::Even(self.block(collective, "the buffer", data.len)?),
            in_place: true,
        };
        Ok(request(
            collective,
            operation,
            elements,
            Source::none(),
            data.bytes,
        ))
    }

    pub(crate) fn all_gather_v<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
        counts: &[usize],
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::AllGatherV;
        let parts = self.parts(collective, counts)?;
        check_len(collective, "input", input.len, counts[self.rank])?;
        check_len(collective, "output", output.len, parts.total(self.world))?;
        let operation = Operation::AllGather {
            parts,
            in_place: false,
        };
        Ok(Request {
            digest: digest_counts(counts),
            ..request(collective, operation, elements, input.bytes, output.bytes)
        })
    }

    /// The output matters on the root only.
    pub(crate) fn gather<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
        root: usize,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::Gather;
        self.check_root(collective, root)?;
        let mut target = Target::none();
        if self.rank == root {
            self.check_blocks(collective, ("output", output.len), ("input", input.len))?;
            target = output.bytes;
        }
        let operation = Operation::Gather {
            root,
            parts: Parts::Even(input.len),
        };
        Ok(request(
            collective,
            operation,
            elements,
            input.bytes,
            target,
        ))
    }

    /// The output and the counts matter on the root only.
    pub(crate) fn gather_v<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
        counts: &[usize],
        root: usize,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::GatherV;
        self.check_root(collective, root)?;
        let own = self.own_part(collective, input.len)?;
        let (parts, target, exchanges) = if self.rank == root {
            let parts = self.parts(collective, counts)?;
            check_len(collective, "input", input.len, counts[root])?;
            check_len(collective, "output", output.len, parts.total(self.world))?;
            let expects = |rank: usize| (0, counts[rank]);
            (parts, output.bytes, self.exchanges_of(expects))
        } else {
            let sends = |rank| if rank == root { (input.len, 0) } else { (0, 0) };
            (own, Target::none(), self.exchanges_of(sends))
        };
        let operation = Operation::Gather { root, parts };
        Ok(Request {
            exchanges: Some(exchanges),
            ..request(collective, operation, elements, input.bytes, target)
        })
    }

    /// The input matters on the root only.
    pub(crate) fn scatter<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
        root: usize,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::Scatter;
        self.check_root(collective, root)?;
        let mut source = Source::none();
        if self.rank == root {
            self.check_blocks(collective, ("input", input.len), ("output", output.len))?;
            source = input.bytes;
        }
        let operation = Operation::Scatter {
            root,
            parts: Parts::Even(output.len),
        };
        Ok(request(
            collective,
            operation,
            elements,
            source,
            output.bytes,
        ))
    }

    /// The input and the counts matter on the root only.
    pub(crate) fn scatter_v<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        counts: &[usize],
        output: Output<'a, Q>,
        root: usize,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::ScatterV;
        self.check_root(collective, root)?;
        let own = self.own_part(collective, output.len)?;
        let (parts, source, exchanges) = if self.rank == root {
            let parts = self.parts(collective, counts)?;
            check_len(collective, "output", output.len, counts[root])?;
            check_len(collective, "input", input.len, parts.total(self.world))?;
            let sends = |rank: usize| (counts[rank], 0);
            (parts, input.bytes, self.exchanges_of(sends))
        } else {
            let expects = |rank| {
                if rank == root {
                    (0, output.len)
                } else {
                    (0, 0)
                }
            };
            (own, Source::none(), self.exchanges_of(expects))
        };
        let operation = Operation::Scatter { root, parts };
        Ok(Request {
            exchanges: Some(exchanges),
            ..request(collective, operation, elements, source, output.bytes)
        })
    }

    pub(crate) fn reduce_scatter<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::ReduceScatter;
        self.check_blocks(collective, ("input", input.len), ("output", output.len))?;
        let operation = Operation::ReduceScatter {
            parts: Parts::Even(output.len),
            in_place: false,
        };
        Ok(request(
            collective,
            operation,
            elements,
            input.bytes,
            output.bytes,
        ))
    }

    /// The result is in the own block.
    pub(crate) fn reduce_scatter_in_place<'a, Q>(
        self,
        elements: Elements<'a>,
        data: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::ReduceScatter;
        let operation = Operation::ReduceScatter {
            parts: Parts::Even(self.block(collective, "the buffer", data.len)?),
            in_place: true,
        };
        Ok(request(
            collective,
            operation,
            elements,
            Source::none(),
            data.bytes,
        ))
    }

    pub(crate) fn reduce_scatter_v<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
        counts: &[usize],
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::ReduceScatterV;
        let parts = self.parts(collective, counts)?;
        check_len(collective, "input", input.len, parts.total(self.world))?;
        check_len(collective, "output", output.len, counts[self.rank])?;
        let operation = Operation::ReduceScatter {
            parts,
            in_place: false,
        };
        Ok(Request {
            digest: digest_counts(counts),
            ..request(collective, operation, elements, input.bytes, output.bytes)
        })
    }

    pub(crate) fn all_to_all<'a, Q>(
        self,
        elements: Elements<'a>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::AllToAll;
        let count = self.block(collective, "input", input.len)?;
        check_len(collective, "output", output.len, input.len)?;
        let operation = Operation::AllToAll {
            count,
            in_place: false,
        };
        Ok(request(
            collective,
            operation,
            elements,
            input.bytes,
            output.bytes,
        ))
    }

    pub(crate) fn all_to_all_in_place<'a, Q>(
        self,
        elements: Elements<'a>,
        data: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::AllToAll;
        let operation = Operation::AllToAll {
            count: self.block(collective, "the buffer", data.len)?,
            in_place: true,
        };
        Ok(request(
            collective,
            operation,
            elements,
            Source::none(),
            data.bytes,
        ))
    }

    /// What a rank knows of the blocks of all where it only knows its own.
    fn own_part(self, collective: Collective, len: usize) -> Result<Parts> {
        let mut counts = vec![0; self.world];
        counts[self.rank] = len;
        self.parts(collective, &counts)
    }

    /// One block at most between each two ranks: sent, expected.
    fn exchanges_of(self, counts: impl Fn(usize) -> (usize, usize)) -> Exchanges {
        let exchange = |rank| {
            let (sends, expects) = counts(rank);
            Some(Exchange {
                sends: sends as u64,
                expects: expects as u64,
                blocks: 1,
            })
        };
        (0..self.world).map(exchange).collect()
    }
}

fn digest_counts(counts: &[usize]) -> u64 {
    digest(counts.iter().map(|count| *count as u64))
}
