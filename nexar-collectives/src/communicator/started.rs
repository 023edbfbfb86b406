//! Collectives that go on by themselves.

use super::{
    Communicator, Shared,
    many::all_reduce_many,
    requests::{Input, Output, Place, moved, reduced},
};
use crate::engine::{Request, Turn};
use nexar_core::{
    Collective, Element, Error, Failure, OperationError, ReduceOp, Result,
    messaging::{Received, Source, Tag},
    transport::Transport,
};
use nexar_device::DeviceAdapter;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::task::JoinHandle;

#[doc = include_str!("../../docs/links.txt")]
#[doc = include_str!("../../docs/started.md")]
#[derive(Debug)]
#[must_use = "the result of the operation is lost without waiting for it"]
pub struct Started<O> {
    /// None once it has given its result.
    task: Option<JoinHandle<Result<O>>>,
    operation: &'static str,
    communicator: u64,
    rank: usize,
}

impl<O> Started<O> {
    /// Waits for the operation.
    ///
    /// # Errors
    ///
    /// Those of the operation. What was passed to it is lost then.
    pub async fn wait(self) -> Result<O> {
        self.await
    }

    /// Whether the operation is done, so that waiting for it returns at once.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<O> Future for Started<O> {
    type Output = Result<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<O>> {
        let Some(task) = &mut self.task else {
            let (operation, reason) = (self.operation, "its result was given out before".into());
            return Poll::Ready(Err(Error::InvalidArgument { operation, reason }));
        };
        let joined = ready!(Pin::new(task).poll(cx));
        self.task = None;
        Poll::Ready(joined.unwrap_or_else(|lost| {
            let failure = if lost.is_panic() {
                Failure::Aborted {
                    rank: self.rank,
                    reason: "the operation panicked".into(),
                }
            } else {
                Failure::ShutDown
            };
            let (id, rank) = (self.communicator, self.rank);
            let error = OperationError::new(self.operation, None, id, rank, failure);
            Err(Error::Operation(Box::new(error)))
        }))
    }
}

/// A vector to be filled.
fn zeros<E: Element>(operation: &'static str, length: Option<usize>) -> Result<Vec<E>> {
    let mut data = Vec::new();
    let reserved = length.and_then(|length| data.try_reserve_exact(length).ok().map(|()| length));
    let Some(length) = reserved else {
        let reason = "there is no memory for the result".into();
        return Err(Error::InvalidArgument { operation, reason });
    };
    data.resize(length, E::default());
    Ok(data)
}

fn sum(counts: &[usize]) -> Option<usize> {
    counts
        .iter()
        .try_fold(0usize, |sum, count| sum.checked_add(*count))
}

/// Operations that are started and go on by themselves. They take their buffers and give them back, or the
/// result, when they are done.
///
/// On one communicator they run one after the other, in the order in which they were started, also with regard
/// to calls that are awaited; on several communicators at the same time. All ranks start them in the same
/// order. Each is otherwise as the method without `start_`, with its costs and errors; errors come when the
/// operation is waited for.
impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    pub(crate) fn start<O, W>(
        &self,
        collective: Collective,
        work: impl FnOnce(Arc<Shared<T>>, Turn<T>) -> W + Send + 'static,
    ) -> Started<O>
    where
        O: Send + 'static,
        W: Future<Output = Result<O>> + Send + 'static,
    {
        let ticket = self.engine().ticket();
        let shared = Arc::clone(self.shared());
        let task = async move {
            let turn = ticket.turn().await;
            work(shared, turn).await
        };
        self.start_task(collective.name(), task)
    }

    /// Hands a future to the background thread, which polls those of one caller in the order in which they came.
    pub(super) fn start_task<O: Send + 'static>(
        &self,
        operation: &'static str,
        task: impl Future<Output = Result<O>> + Send + 'static,
    ) -> Started<O> {
        Started {
            task: Some(self.mesh.transport().background().spawn(task)),
            operation,
            communicator: self.id(),
            rank: self.rank(),
        }
    }

    /// Starts a call on owned buffers; `result` picks from them what is given back.
    fn start_call<O, R>(
        &self,
        collective: Collective,
        mut buffers: O,
        request: impl for<'a> FnOnce(Place, &'a mut O) -> Result<Request<'a>> + Send + 'static,
        result: fn(O) -> R,
    ) -> Started<R>
    where
        O: Send + 'static,
        R: Send + 'static,
    {
        self.start(collective, move |shared, mut turn| async move {
            let engine = &shared.engine;
            let request = request(engine.place(), &mut buffers)?;
            engine.run_in(&mut turn, request).await?;
            Ok(result(buffers))
        })
    }

    /// Starts a [`barrier`](Self::barrier).
    pub fn start_barrier(&self) -> Started<()> {
        self.start_call(
            Collective::Barrier,
            (),
            |place, _| Ok(place.barrier()),
            |_| (),
        )
    }

    /// Starts a [`broadcast`](Self::broadcast); gives the data.
    pub fn start_broadcast<E: Element>(&self, data: Vec<E>, root: usize) -> Started<Vec<E>> {
        self.start_call(
            Collective::Broadcast,
            data,
            move |place, data| place.broadcast(moved::<E>(), Output::of(data), root),
            |data| data,
        )
    }

    /// Starts a [`reduce`](Self::reduce); gives the data, which is the result on the
    /// root only.
    pub fn start_reduce<E: Element>(
        &self,
        data: Vec<E>,
        op: ReduceOp,
        root: usize,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::Reduce,
            data,
            move |place, data| place.reduce(reduced(E::DATA_TYPE, op)?, Output::of(data), root),
            |data| data,
        )
    }

    /// Starts an [`all_reduce`](Self::all_reduce); gives the data.
    pub fn start_all_reduce<E: Element>(&self, data: Vec<E>, op: ReduceOp) -> Started<Vec<E>> {
        self.start_call(
            Collective::AllReduce,
            data,
            move |place, data| Ok(place.all_reduce(reduced(E::DATA_TYPE, op)?, Output::of(data))),
            |data| data,
        )
    }

    /// Starts a [`scan`](Self::scan); gives the data.
    pub fn start_scan<E: Element>(&self, data: Vec<E>, op: ReduceOp) -> Started<Vec<E>> {
        self.start_call(
            Collective::Scan,
            data,
            move |place, data| place.scan(reduced(E::DATA_TYPE, op)?, Output::of(data), false),
            |data| data,
        )
    }

    /// Starts an [`exclusive_scan`](Self::exclusive_scan); gives the data.
    pub fn start_exclusive_scan<E: Element>(&self, data: Vec<E>, op: ReduceOp) -> Started<Vec<E>> {
        self.start_call(
            Collective::ExclusiveScan,
            data,
            move |place, data| place.scan(reduced(E::DATA_TYPE, op)?, Output::of(data), true),
            |data| data,
        )
    }

    /// Starts an [`all_gather`](Self::all_gather); gives the blocks of all ranks.
    pub fn start_all_gather<E: Element>(&self, input: Vec<E>) -> Started<Vec<E>> {
        self.start_call(
            Collective::AllGather,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("all_gather", input.len().checked_mul(place.world))?;
                place.all_gather(moved::<E>(), Input::of(input), Output::of(output))
            },
            |(_, output)| output,
        )
    }

    /// Starts an [`all_gather_v`](Self::all_gather_v); gives the blocks of all ranks.
    pub fn start_all_gather_v<E: Element>(
        &self,
        input: Vec<E>,
        counts: Vec<usize>,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::AllGatherV,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("all_gather_v", sum(&counts))?;
                place.all_gather_v(moved::<E>(), Input::of(input), Output::of(output), &counts)
            },
            |(_, output)| output,
        )
    }

    /// Starts a [`gather`](Self::gather); gives the blocks of all ranks on the root, and nothing elsewhere.
    pub fn start_gather<E: Element>(&self, input: Vec<E>, root: usize) -> Started<Vec<E>> {
        self.start_call(
            Collective::Gather,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros(
                    "gather",
                    at_root(place, root, input.len().checked_mul(place.world)),
                )?;
                place.gather(moved::<E>(), Input::of(input), Output::of(output), root)
            },
            |(_, output)| output,
        )
    }

    /// Starts a [`gather_v`](Self::gather_v); gives the blocks of all ranks on the root, and nothing elsewhere.
    pub fn start_gather_v<E: Element>(
        &self,
        input: Vec<E>,
        counts: Vec<usize>,
        root: usize,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::GatherV,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("gather_v", at_root(place, root, sum(&counts)))?;
                place.gather_v(
                    moved::<E>(),
                    Input::of(input),
                    Output::of(output),
                    &counts,
                    root,
                )
            },
            |(_, output)| output,
        )
    }

    /// Starts a [`scatter`](Self::scatter); gives this rank's block of `count` elements.
    pub fn start_scatter<E: Element>(
        &self,
        input: Vec<E>,
        count: usize,
        root: usize,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::Scatter,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("scatter", Some(count))?;
                place.scatter(moved::<E>(), Input::of(input), Output::of(output), root)
            },
            |(_, output)| output,
        )
    }

    /// Starts a [`scatter_v`](Self::scatter_v); gives this rank's block of `count` elements.
    pub fn start_scatter_v<E: Element>(
        &self,
        input: Vec<E>,
        counts: Vec<usize>,
        count: usize,
        root: usize,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::ScatterV,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("scatter_v", Some(count))?;
                place.scatter_v(
                    moved::<E>(),
                    Input::of(input),
                    &counts,
                    Output::of(output),
                    root,
                )
            },
            |(_, output)| output,
        )
    }

    /// Starts a [`reduce_scatter`](Self::reduce_scatter); gives this rank's block of the result. The length of the
    /// input is a multiple of the world size.
    pub fn start_reduce_scatter<E: Element>(&self, input: Vec<E>, op: ReduceOp) -> Started<Vec<E>> {
        self.start_call(
            Collective::ReduceScatter,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("reduce_scatter", Some(input.len() / place.world))?;
                place.reduce_scatter(
                    reduced(E::DATA_TYPE, op)?,
                    Input::of(input),
                    Output::of(output),
                )
            },
            |(_, output)| output,
        )
    }

    /// Starts a [`reduce_scatter_v`](Self::reduce_scatter_v); gives this rank's block of the result.
    pub fn start_reduce_scatter_v<E: Element>(
        &self,
        input: Vec<E>,
        counts: Vec<usize>,
        op: ReduceOp,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::ReduceScatterV,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros(
                    "reduce_scatter_v",
                    Some(counts.get(place.rank).copied().unwrap_or(0)),
                )?;
                place.reduce_scatter_v(
                    reduced(E::DATA_TYPE, op)?,
                    Input::of(input),
                    Output::of(output),
                    &counts,
                )
            },
            |(_, output)| output,
        )
    }

    /// Starts an [`all_to_all`](Self::all_to_all); gives the blocks that come from all ranks.
    pub fn start_all_to_all<E: Element>(&self, input: Vec<E>) -> Started<Vec<E>> {
        self.start_call(
            Collective::AllToAll,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("all_to_all", Some(input.len()))?;
                place.all_to_all(moved::<E>(), Input::of(input), Output::of(output))
            },
            |(_, output)| output,
        )
    }

    /// Starts an [`all_to_all_v`](Self::all_to_all_v); gives the blocks that come from all ranks.
    pub fn start_all_to_all_v<E: Element>(
        &self,
        input: Vec<E>,
        send_counts: Vec<usize>,
        recv_counts: Vec<usize>,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::AllToAllV,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("all_to_all_v", sum(&recv_counts))?;
                let (sends, expects) = (
                    (Input::of(input), &send_counts[..]),
                    (Output::of(output), &recv_counts[..]),
                );
                place.all_to_all_v(moved::<E>(), sends, expects)
            },
            |(_, output)| output,
        )
    }

    /// Starts a [`neighbor_all_to_all`](Self::neighbor_all_to_all); gives the blocks that come from the neighbours.
    pub fn start_neighbor_all_to_all<E: Element>(
        &self,
        neighbors: Vec<usize>,
        input: Vec<E>,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::NeighborAllToAll,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("neighbor_all_to_all", Some(input.len()))?;
                place.neighbor_all_to_all(
                    moved::<E>(),
                    &neighbors,
                    Input::of(input),
                    Output::of(output),
                )
            },
            |(_, output)| output,
        )
    }

    /// Starts a [`neighbor_all_to_all_v`](Self::neighbor_all_to_all_v); gives the blocks that come from the
    /// neighbours.
    pub fn start_neighbor_all_to_all_v<E: Element>(
        &self,
        neighbors: Vec<usize>,
        input: Vec<E>,
        send_counts: Vec<usize>,
        recv_counts: Vec<usize>,
    ) -> Started<Vec<E>> {
        self.start_call(
            Collective::NeighborAllToAllV,
            (input, Vec::new()),
            move |place, (input, output)| {
                *output = zeros("neighbor_all_to_all_v", sum(&recv_counts))?;
                let (sends, expects) = (
                    (Input::of(input), &send_counts[..]),
                    (Output::of(output), &recv_counts[..]),
                );
                place.neighbor_all_to_all_v(moved::<E>(), &neighbors, sends, expects)
            },
            |(_, output)| output,
        )
    }

    /// Starts an [`all_reduce_many`](Self::all_reduce_many); gives the buffers.
    pub fn start_all_reduce_many<E: Element>(
        &self,
        mut buffers: Vec<Vec<E>>,
        op: ReduceOp,
    ) -> Started<Vec<Vec<E>>> {
        self.start(
            Collective::AllReduceMany,
            move |shared, mut turn| async move {
                let mut slices: Vec<&mut [E]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
                all_reduce_many(&shared.engine, &mut turn, &mut slices, op).await?;
                Ok(buffers)
            },
        )
    }

    /// Starts a [`send`](Self::send); gives the data. Sends that are started leave in the order in which they were
    /// started; a send that is awaited meanwhile may overtake them.
    pub fn start_send<E: Element>(&self, data: Vec<E>, to: usize, tag: u64) -> Started<Vec<E>> {
        let shared = Arc::clone(self.shared());
        self.start_task("send", async move {
            shared.messages.send_elements(to, tag, &data).await?;
            Ok(data)
        })
    }

    /// Starts a [`recv_vec`](Self::recv_vec). Receives that are started match in the order in which they were
    /// started. Dropping the result does not take the receive back: its message is lost.
    pub fn start_recv<E: Element>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        max: usize,
    ) -> Started<(Received, Vec<E>)> {
        let shared = Arc::clone(self.shared());
        let (source, tag) = (source.into(), tag.into());
        self.start_task("recv", async move {
            shared.messages.recv_vec(source, tag, max).await
        })
    }
}

/// The length of what only the root gets.
fn at_root(place: Place, root: usize, length: Option<usize>) -> Option<usize> {
    if place.rank == root { length } else { Some(0) }
}
