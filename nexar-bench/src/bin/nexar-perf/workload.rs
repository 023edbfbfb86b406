//! A collective with its buffers.

use crate::{
    args::Kind,
    check::{Pattern, Verdict},
    rank::RankError,
    shape::Shape,
    values::{Place, Value},
};
use nexar_collectives::{Communicator, ReduceOp, Result};

/// What is run, apart from the size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) op: ReduceOp,
    pub(crate) root: usize,
}

/// A collective with buffers for the largest size. All-reduce and broadcast work in place, in the output.
pub(crate) struct Workload<'a, E> {
    comm: &'a Communicator,
    task: Task,
    shape: Shape,
    input: Vec<E>,
    output: Vec<E>,
}

impl<'a, E: Value> Workload<'a, E> {
    /// A workload for sizes up to `bytes`.
    pub(crate) fn new(
        comm: &'a Communicator,
        task: Task,
        bytes: usize,
    ) -> std::result::Result<Self, RankError> {
        let shape = Shape::new(task.kind, bytes, E::DATA_TYPE.size(), comm.world_size());
        let input = match task.kind {
            Kind::AllGather | Kind::ReduceScatter => allocate(shape.input())?,
            _ => Vec::new(),
        };
        Ok(Workload {
            comm,
            task,
            shape,
            input,
            output: allocate(shape.output())?,
        })
    }

    pub(crate) fn comm(&self) -> &'a Communicator {
        self.comm
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Goes on with another size.
    pub(crate) fn resize(&mut self, bytes: usize) {
        let element = E::DATA_TYPE.size();
        self.shape = Shape::new(self.task.kind, bytes, element, self.comm.world_size());
    }

    /// Runs the collective once.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let (shape, comm, Task { op, root, .. }) = (self.shape, self.comm, self.task);
        let output = &mut self.output[..shape.output()];
        match self.task.kind {
            Kind::AllReduce => comm.all_reduce(output, op).await,
            Kind::Broadcast => comm.broadcast(output, root).await,
            Kind::AllGather => comm.all_gather(&self.input[..shape.input()], output).await,
            Kind::ReduceScatter => {
                comm.reduce_scatter(&self.input[..shape.input()], output, op)
                    .await
            }
            Kind::Barrier => comm.barrier().await,
        }
    }

    /// Fills the buffers with zeros, which no reduction turns into something slow or infinite when it
    /// runs over and over.
    pub(crate) fn clear(&mut self) {
        for buffer in [&mut self.input, &mut self.output] {
            let used = buffer
                .len()
                .min(self.shape.input().max(self.shape.output()));
            buffer[..used].fill(E::default());
        }
    }

    /// Runs the collective once on known values and compares the result.
    pub(crate) async fn check(&mut self, verdict: &mut Verdict) -> Result<()> {
        let own = self.contribution(self.comm.rank());
        let shape = self.shape;
        match self.task.kind {
            Kind::AllGather | Kind::ReduceScatter => own.fill(0, &mut self.input[..shape.input()]),
            _ => own.fill(0, &mut self.output[..shape.output()]),
        }
        self.run().await?;
        self.compare(verdict);
        if !self.input.is_empty() {
            own.compare(0, &self.input[..shape.input()], verdict);
        }
        Ok(())
    }

    fn reduction(&self) -> Option<ReduceOp> {
        self.task.kind.reduces().then_some(self.task.op)
    }

    /// What a rank puts in.
    fn contribution(&self, rank: usize) -> Pattern<E> {
        let (op, world) = (self.reduction(), self.comm.world_size());
        Pattern::new(self.shape.input(), |index| {
            E::input(op, world, Place { rank, index })
        })
    }

    fn compare(&self, verdict: &mut Verdict) {
        let (shape, world, op) = (self.shape, self.comm.world_size(), self.task.op);
        let output = &self.output[..shape.output()];
        let reduced = || Pattern::new(shape.input(), |index| E::reduced(op, world, index));
        match self.task.kind {
            Kind::AllReduce => reduced().compare(0, output, verdict),
            Kind::ReduceScatter => {
                reduced().compare(self.comm.rank() * shape.count, output, verdict);
            }
            Kind::Broadcast => self
                .contribution(self.task.root)
                .compare(0, output, verdict),
            Kind::AllGather => {
                for (rank, block) in output.chunks(shape.count.max(1)).enumerate() {
                    self.contribution(rank).compare(0, block, verdict);
                }
            }
            Kind::Barrier => {}
        }
    }
}

/// A buffer of zeros, or an error instead of an abort if there is not enough memory.
fn allocate<E: Value>(elements: usize) -> std::result::Result<Vec<E>, RankError> {
    let mut buffer = Vec::new();
    buffer
        .try_reserve_exact(elements)
        .map_err(|_| RankError::Memory {
            bytes: elements.saturating_mul(size_of::<E>()),
        })?;
    buffer.resize(elements, E::default());
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wrong_element_is_noticed_and_named() {
        let ranks = Communicator::local(1).await.unwrap();
        for kind in [
            Kind::AllReduce,
            Kind::AllGather,
            Kind::ReduceScatter,
            Kind::Broadcast,
        ] {
            let task = Task {
                kind,
                op: ReduceOp::Sum,
                root: 0,
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
}
