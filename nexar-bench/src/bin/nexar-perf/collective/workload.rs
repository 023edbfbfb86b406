//! A collective with its buffers.

use super::{
    expected::{Source, expected, neighbors},
    kind::Kind,
    shape::Shape,
};
use crate::{
    check::{Pattern, Verdict},
    measure::Operation,
    rank::RankError,
    sweep::allocate,
    values::{Place, Value},
};
use nexar_collectives::{Communicator, ReduceOp, Result};

/// What is run, apart from the size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) op: ReduceOp,
    pub(crate) root: usize,
    /// Number of tensors of an all-reduce of many.
    pub(crate) tensors: usize,
}

/// A collective with buffers for the largest size.
pub(crate) struct Workload<'a, E> {
    comm: &'a Communicator,
    task: Task,
    shape: Shape,
    /// Empty where the collective works in place, in the output.
    input: Vec<E>,
    output: Vec<E>,
    /// Lengths of the ranks' blocks.
    counts: Vec<usize>,
    /// The length of this rank's block, for each rank.
    own_counts: Vec<usize>,
}

impl<'a, E: Value> Workload<'a, E> {
    /// A workload for sizes up to `bytes`.
    pub(crate) fn new(
        comm: &'a Communicator,
        task: Task,
        bytes: usize,
    ) -> std::result::Result<Self, RankError> {
        let (rank, world_size) = (comm.rank(), comm.world_size());
        let shape = Shape::new(task.kind, bytes, E::DATA_TYPE.size(), world_size, task.root);
        let mut work = Workload {
            comm,
            task,
            shape,
            input: allocate(shape.input(rank))?,
            output: allocate(shape.output(rank))?,
            counts: vec![0; world_size],
            own_counts: vec![0; world_size],
        };
        work.resize(bytes);
        Ok(work)
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Goes on with another size.
    pub(crate) fn resize(&mut self, bytes: usize) {
        let (element, world_size) = (E::DATA_TYPE.size(), self.comm.world_size());
        let shape = Shape::new(self.task.kind, bytes, element, world_size, self.task.root);
        for (rank, count) in self.counts.iter_mut().enumerate() {
            *count = shape.block(rank).len();
        }
        self.own_counts.fill(self.counts[self.comm.rank()]);
        self.shape = shape;
    }

    /// Fills the buffers with zeros, which no reduction turns into something slow or infinite when it
    /// runs over and over.
    pub(crate) fn clear(&mut self) {
        let rank = self.comm.rank();
        self.input[..self.shape.input(rank)].fill(E::default());
        self.output[..self.shape.output(rank)].fill(E::default());
    }

    /// Runs the collective once on known values and compares the result.
    pub(crate) async fn check(&mut self, verdict: &mut Verdict) -> Result<()> {
        self.clear();
        let (rank, shape) = (self.comm.rank(), self.shape);
        let own = self.pattern(&Source::Input(rank));
        if self.input.is_empty() {
            own.fill(0, &mut self.output[..shape.output(rank)]);
        } else {
            own.fill(0, &mut self.input[..shape.input(rank)]);
        }
        self.run().await?;
        self.compare(verdict);
        own.compare(0, &self.input[..shape.input(rank)], 0, verdict);
        Ok(())
    }

    fn compare(&self, verdict: &mut Verdict) {
        let Task { kind, root, .. } = self.task;
        let (rank, world_size) = (self.comm.rank(), self.comm.world_size());
        for piece in expected(kind, &self.shape, rank, world_size, root) {
            let output = &self.output[piece.at.clone()];
            let pattern = self.pattern(&piece.source);
            pattern.compare(piece.from, output, piece.at.start, verdict);
        }
    }

    fn pattern(&self, source: &Source) -> Pattern<E> {
        let (Task { kind, op, .. }, world) = (self.task, self.comm.world_size());
        let length = self.shape.largest_input();
        let reduction = kind.describe().reduces.then_some(op);
        match source {
            Source::Input(rank) => Pattern::new(length, |index| {
                let rank = *rank;
                E::input(reduction, world, Place { rank, index })
            }),
            Source::Reduced(ranks) => {
                Pattern::new(length, |index| E::reduced(op, world, ranks.clone(), index))
            }
        }
    }
}

impl<E: Value> Operation for Workload<'_, E> {
    fn comm(&self) -> &Communicator {
        self.comm
    }

    async fn run(&mut self) -> Result<()> {
        let (shape, comm) = (self.shape, self.comm);
        let (rank, world_size) = (comm.rank(), comm.world_size());
        let Task {
            op, root, tensors, ..
        } = self.task;
        let input = &self.input[..shape.input(rank)];
        let output = &mut self.output[..shape.output(rank)];
        let (counts, own_counts) = (&self.counts[..], &self.own_counts[..]);
        match self.task.kind {
            Kind::AllReduce => comm.all_reduce(output, op).await,
            Kind::AllReduceMany => comm.all_reduce_many(&mut split(output, tensors), op).await,
            Kind::Reduce => comm.reduce(output, op, root).await,
            Kind::Broadcast => comm.broadcast(output, root).await,
            Kind::AllGather => comm.all_gather(input, output).await,
            Kind::AllGatherV => comm.all_gather_v(input, output, counts).await,
            Kind::Gather => comm.gather(input, output, root).await,
            Kind::GatherV => comm.gather_v(input, output, counts, root).await,
            Kind::Scatter => comm.scatter(input, output, root).await,
            Kind::ScatterV => comm.scatter_v(input, counts, output, root).await,
            Kind::ReduceScatter => comm.reduce_scatter(input, output, op).await,
            Kind::ReduceScatterV => comm.reduce_scatter_v(input, output, counts, op).await,
            Kind::AllToAll => comm.all_to_all(input, output).await,
            Kind::AllToAllV => comm.all_to_all_v(input, counts, output, own_counts).await,
            Kind::NeighborAllToAll => {
                let neighbors = neighbors(rank, world_size);
                comm.neighbor_all_to_all(&neighbors, input, output).await
            }
            Kind::Scan => comm.scan(output, op).await,
            Kind::ExclusiveScan => comm.exclusive_scan(output, op).await,
            Kind::Barrier => comm.barrier().await,
        }
    }
}

/// Divides data into `parts` of about the same length, or as many as there are elements.
fn split<E>(mut data: &mut [E], parts: usize) -> Vec<&mut [E]> {
    let parts = parts.min(data.len()).max(1);
    let mut split = Vec::with_capacity(parts);
    for left in (1..=parts).rev() {
        let (part, rest) = data.split_at_mut(data.len() / left);
        split.push(part);
        data = rest;
    }
    split
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wrong_element_is_noticed_and_named() {
        let ranks = Communicator::local(1).await.unwrap();
        for kind in Kind::ALL.into_iter().filter(|kind| kind.has_data()) {
            let task = Task {
                kind,
                op: ReduceOp::Sum,
                root: 0,
                tensors: 7,
            };
            let mut work = Workload::<i32>::new(&ranks[0], task, 4096).unwrap();
            work.resize(400);
            let mut verdict = Verdict::default();
            work.check(&mut verdict).await.unwrap();
            assert_eq!(verdict.wrong, 0, "{kind}");
            work.output[77] ^= 1;
            work.output[100] ^= 1;
            work.compare(&mut verdict);
            assert_eq!(
                (verdict.wrong, verdict.mistakes[0].index),
                (1, 77),
                "{kind}"
            );
        }
    }

    #[test]
    fn tensors_make_up_the_data() {
        let lengths = |length, parts| -> Vec<usize> {
            let mut data = vec![0; length];
            split(&mut data, parts).iter().map(|p| p.len()).collect()
        };
        assert_eq!(lengths(10, 3), [3, 3, 4]);
        assert_eq!(lengths(2, 1000), [1, 1]);
        assert_eq!(lengths(0, 3), [0]);
    }
}
