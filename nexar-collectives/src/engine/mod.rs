//! Runs collective calls: chooses the algorithm, prepares memory and arithmetic, executes the schedule.

mod combine;
mod executor;
mod memory;
mod outline;
mod pool;
mod program;
mod request;
mod staging;

pub(crate) use request::{Combine, Elements, Request, Source, Target};
pub(crate) use staging::{Pass, Staged};

use crate::communicator::Place;
use crate::schedule::{self, Collective, Hosts, Operation, Overrides, Plan};
use combine::{Arithmetic, Combiner};
use executor::{Executor, Lane, Trouble};
use memory::{Memory, Readable, Writable};
use nexar_core::{
    DataType, Error, Failure, OperationError, ReduceOp, Result,
    mesh::{Group, OngoingCall},
    transport::{SendStream, Transport},
    wire::LaneKind,
};
use nexar_device::{
    DeviceError, ExecutionQueue, HostView,
    reduce::{Accumulator, parallel},
};
use outline::Outlined;
use pool::ChunkPool;
use program::{Program, Programs};
use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The collectives of one communicator.
pub(crate) struct Engine<T: Transport> {
    group: Arc<Group<T>>,
    /// Whose turn it is holds them.
    lanes: Arc<Mutex<Lanes<T>>>,
    pool: ChunkPool,
    programs: Programs,
    overrides: Overrides,
}

/// The right to make the next calls on a communicator: calls run one after the other.
pub(crate) struct Turn<T: Transport>(OwnedMutexGuard<Lanes<T>>);

/// What one call after the other uses.
struct Lanes<T: Transport> {
    by_member: Vec<Lane<T>>,
    /// Memory for the executor.
    done: Vec<bool>,
}

/// A caller that waits for its turn. The other ranks make the call, too: dropping it fails the group on all of them,
/// as dropping one in progress does.
struct InRow<'a, T: Transport> {
    group: &'a Group<T>,
    waits: bool,
}

impl<T: Transport> Drop for InRow<'_, T> {
    fn drop(&mut self) {
        if self.waits {
            self.group.fail(Failure::Aborted {
                rank: self.group.rank(),
                reason: "a call was dropped before its turn had come".into(),
            });
        }
    }
}

/// A place in the row of those who want their turn.
pub(crate) struct Ticket<T: Transport>(Pin<Box<dyn Future<Output = Turn<T>> + Send>>);

impl<T: Transport> Ticket<T> {
    /// Waits for the turn.
    pub(crate) async fn turn(self) -> Turn<T> {
        self.0.await
    }
}

impl<T: Transport> Engine<T> {
    pub(crate) fn new(group: Arc<Group<T>>, overrides: Overrides) -> Self {
        let lane = |_| Lane {
            send: None,
            recv: None,
        };
        let lanes = Lanes {
            by_member: (0..group.size()).map(lane).collect(),
            done: Vec::new(),
        };
        Engine {
            group,
            lanes: Arc::new(Mutex::new(lanes)),
            pool: ChunkPool::default(),
            programs: Programs::default(),
            overrides,
        }
    }

    pub(crate) fn group(&self) -> &Arc<Group<T>> {
        &self.group
    }

    pub(crate) fn place(&self) -> Place {
        Place {
            rank: self.group.rank(),
            world: self.group.size(),
        }
    }

    pub(crate) fn overrides(&self) -> Overrides {
        self.overrides
    }

    /// Waits for this caller's turn. Those who ask first have it first.
    pub(crate) async fn turn(&self) -> Turn<T> {
        let mut place = InRow {
            group: &self.group,
            waits: true,
        };
        let lanes = Arc::clone(&self.lanes).lock_owned().await;
        place.waits = false;
        Turn(lanes)
    }

    /// Takes a place in the row at once.
    pub(crate) fn ticket(&self) -> Ticket<T> {
        let lanes = Arc::clone(&self.lanes);
        let mut turn: Pin<Box<dyn Future<Output = Turn<T>> + Send>> =
            Box::pin(async move { Turn(lanes.lock_owned().await) });
        // The first poll takes the place; those after it only wait.
        match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(turn) => Ticket(Box::pin(std::future::ready(turn))),
            std::task::Poll::Pending => Ticket(turn),
        }
    }

    /// Runs one call when its turn has come.
    pub(crate) async fn run<Q: ExecutionQueue>(&self, request: Request<'_, Q>) -> Result<()> {
        let driven = self.group.transport().drive(async {
            let mut turn = self.turn().await;
            self.run_driven(&mut turn, request).await
        });
        Outlined { future: driven }.await.map(|_| ())
    }

    /// Runs the next call of a turn; its number.
    pub(crate) async fn run_in<Q: ExecutionQueue>(
        &self,
        turn: &mut Turn<T>,
        request: Request<'_, Q>,
    ) -> Result<u64> {
        let driven = self.group.transport().drive(self.run_driven(turn, request));
        Outlined { future: driven }.await
    }

    async fn run_driven<Q: ExecutionQueue>(
        &self,
        turn: &mut Turn<T>,
        request: Request<'_, Q>,
    ) -> Result<u64> {
        let collective = request.collective;
        let plan = self.plan(&request);
        let ongoing = self
            .group
            .begin(
                |sequence| request.call(sequence, plan),
                request.exchanges.clone(),
            )
            .map_err(|failure| self.error(collective, None, failure))?;
        let sequence = ongoing.call().sequence;
        let world = self.group.size();
        let program = self
            .programs
            .get(&request.operation, plan, world, self.group.rank());
        tracing::trace!(call = %ongoing.call(), %plan, "collective");
        let lanes = &mut *turn.0;
        match self.execute(&ongoing, &program, lanes, request, plan).await {
            Ok(()) => {
                ongoing.finish();
                Ok(sequence)
            }
            Err(failure) => {
                let failure = ongoing.fail(failure);
                Err(self.error(collective, Some(sequence), failure))
            }
        }
    }

    /// How a call is carried out; the same on all ranks.
    pub(crate) fn plan<Q>(&self, request: &Request<'_, Q>) -> Plan {
        let forced = self.overrides.get(request.operation.collective());
        let elements = &request.elements;
        schedule::select(
            &request.operation,
            elements.size(),
            self.group.size(),
            Hosts::of(&self.group),
            forced,
            elements.accumulator().is_some(),
            elements.is_ordered(),
        )
    }

    /// The error of a call that failed.
    pub(crate) fn error(
        &self,
        collective: Collective,
        sequence: Option<u64>,
        failure: Failure,
    ) -> Error {
        let (id, rank) = (self.group.id(), self.group.rank());
        Box::new(OperationError::new(
            collective.name(),
            sequence,
            id,
            rank,
            failure,
        ))
        .into()
    }

    /// What there is to be said where a call could not be prepared. If a device is broken, the other ranks are told: they
    /// would wait for this one, which can hardly do better next time. What is wrong with arguments stays between this
    /// rank and its caller.
    pub(crate) fn unprepared(&self, error: Error) -> Error {
        if let Error::Device { operation, source } = &error
            && let Some(DeviceError::Backend { .. }) = source.downcast_ref()
        {
            let failure = self.group.fail(self.local(source));
            let (id, rank) = (self.group.id(), self.group.rank());
            return Box::new(OperationError::new(operation, None, id, rank, failure)).into();
        }
        error
    }

    async fn execute<Q: ExecutionQueue>(
        &self,
        call: &OngoingCall<'_, T>,
        program: &Program,
        lanes: &mut Lanes<T>,
        request: Request<'_, Q>,
        plan: Plan,
    ) -> Result<(), Failure> {
        let world = self.group.size();
        let elements = request.elements;
        if request.operation.is_empty() {
            return self.execute_empty(call, program, lanes).await;
        }
        let arithmetic = match elements {
            Elements::Token => Arithmetic::None { dtype: None },
            Elements::Moved(dtype) => Arithmetic::None { dtype: Some(dtype) },
            Elements::Custom { combine, .. } => Arithmetic::Custom(combine),
            Elements::Reduced(dtype, op) => match elements.accumulator() {
                None => Arithmetic::Narrow { dtype, op },
                Some(accumulator) if program.schedule.single_site => Arithmetic::WideAtSite {
                    dtype,
                    op,
                    accumulator,
                },
                Some(accumulator) => {
                    let wide = Wide {
                        dtype,
                        op,
                        accumulator,
                    };
                    return self.execute_wide(call, program, lanes, request, wide).await;
                }
            },
        };
        let is_all_reduce = matches!(request.operation, Operation::AllReduce { .. });
        let (mut input_view, mut output_view) = (None, None);
        let mut memory = self.memory(program, request, &mut input_view, &mut output_view)?;
        let combiner = Combiner::new(arithmetic, world);
        self.transfer(call, program, lanes, &mut memory, combiner)
            .await?;
        if is_all_reduce {
            self.settle_nan(elements, plan, &mut memory.output).await?;
        }
        Ok(())
    }

    /// The buffers of a call; `views` keep those that are given by their address.
    fn memory<'a, Q: ExecutionQueue>(
        &self,
        program: &Program,
        request: Request<'a, Q>,
        input_view: &'a mut Option<HostView>,
        output_view: &'a mut Option<HostView>,
    ) -> Result<Memory<'a, Q>, Failure> {
        let element = request.elements.size();
        let both = matches!(request.input, Source::Staged { .. })
            && matches!(request.output, Target::Staged { .. });
        let staged = |queue, from, staging| {
            Staged::new(queue, from, &staging, element, both).map_err(|error| self.local(error))
        };
        let input = match request.input {
            Source::Host(bytes) => Readable::Host(bytes),
            Source::View(view) => Readable::Host((*input_view.insert(view)).as_ref()),
            Source::Staged { queue, staging } => Readable::Staged(staged(queue, None, staging)?),
        };
        let output = match request.output {
            Target::Host(bytes) => Writable::Host(bytes),
            Target::View(view) => Writable::Host(output_view.insert(view).as_mut()),
            Target::Staged {
                queue,
                from,
                staging,
            } => Writable::Staged(staged(queue, from, staging)?),
        };
        Ok(Memory::new(
            input,
            output,
            program.schedule.scratch,
            element,
        ))
    }

    /// A call without elements runs as a barrier.
    async fn execute_empty(
        &self,
        call: &OngoingCall<'_, T>,
        program: &Program,
        lanes: &mut Lanes<T>,
    ) -> Result<(), Failure> {
        let (input, output) = (Readable::Host(&[0]), Writable::Host(&mut []));
        let mut memory = Memory::<Infallible>::new(input, output, program.schedule.scratch, 1);
        let combiner = Combiner::new(Arithmetic::None { dtype: None }, self.group.size());
        self.transfer(call, program, lanes, &mut memory, combiner)
            .await
    }

    /// Carries wide partial results: all memory of the operation is widened before and rounded after.
    async fn execute_wide<Q: ExecutionQueue>(
        &self,
        call: &OngoingCall<'_, T>,
        program: &Program,
        lanes: &mut Lanes<T>,
        request: Request<'_, Q>,
        wide: Wide,
    ) -> Result<(), Failure> {
        let Wide {
            dtype,
            op,
            accumulator,
        } = wide;
        let (element, world) = (accumulator.size(), self.group.size());
        let wider = |bytes: usize| bytes / dtype.size() * element;
        let widen = |wide: &mut Vec<u8>, narrow: &[u8]| {
            let start = wide.len();
            wide.resize(start + wider(narrow.len()), 0);
            parallel::widen(dtype, accumulator, &mut wide[start..], narrow)
        };
        let (mut input_view, mut output_view) = (None, None);
        let narrow = self.memory(program, request, &mut input_view, &mut output_view)?;
        let (mut wide_input, mut wide_output) = (Vec::new(), Vec::new());
        let (mut input, mut output) = (narrow.input, narrow.output);
        let read = input.pass(|_, piece| widen(&mut wide_input, piece));
        self.device_work(read).await?;
        let read = output.pass(Pass::Read, |_, piece| widen(&mut wide_output, piece));
        self.device_work(read).await?;
        let mut memory = Memory::<Infallible>::new(
            Readable::Host(&wide_input),
            Writable::Host(&mut wide_output),
            program.schedule.scratch,
            element,
        );
        let combiner = Combiner::new(Arithmetic::Wide { op, accumulator }, world);
        self.transfer(call, program, lanes, &mut memory, combiner)
            .await?;
        let finish = |start: usize, piece: &mut [u8]| {
            let sums = &wide_output[wider(start)..][..wider(piece.len())];
            parallel::finish(dtype, accumulator, op, world, piece, sums)?;
            parallel::canonicalize_nan(dtype, piece)
        };
        self.device_work(output.pass(Pass::Write, finish)).await
    }

    /// Ranks that combine two NaNs in different orders hold different ones. That can only happen where
    /// each rank combines for itself.
    async fn settle_nan<Q: ExecutionQueue>(
        &self,
        elements: Elements<'_>,
        plan: Plan,
        output: &mut Writable<'_, Q>,
    ) -> Result<(), Failure> {
        let Elements::Reduced(dtype, _) = elements else {
            return Ok(());
        };
        if plan.algorithm != schedule::Algorithm::RecursiveDoubling || !dtype.is_float() {
            return Ok(());
        }
        let settled = output.pass(Pass::Update, |_, piece| {
            parallel::canonicalize_nan(dtype, piece)
        });
        self.device_work(settled).await
    }

    /// Carries out a pass over memory, within the time limit and as long as the group does not fail.
    pub(crate) async fn device_work(
        &self,
        pass: impl Future<Output = Result<(), String>>,
    ) -> Result<(), Failure> {
        let done = self.group.device_work(pass).await?;
        done.map_err(|reason| self.local(reason))
    }

    fn local(&self, reason: impl ToString) -> Failure {
        Failure::Aborted {
            rank: self.group.rank(),
            reason: reason.to_string(),
        }
    }

    /// Opens the lanes that are not open yet and runs the program over them.
    async fn transfer<Q: ExecutionQueue>(
        &self,
        call: &OngoingCall<'_, T>,
        program: &Program,
        lanes: &mut Lanes<T>,
        memory: &mut Memory<'_, Q>,
        combiner: Combiner<'_>,
    ) -> Result<(), Failure> {
        for peer in &program.peers {
            if let Some(lane) = lanes.by_member.get_mut(peer.member)
                && lane.send.is_none()
            {
                let opened = self
                    .group
                    .open_lane(peer.member, LaneKind::Collective, 0)
                    .await?;
                lane.send = Some(opened);
            }
        }
        memory.plan(&program.schedule);
        let Lanes { by_member, done } = lanes;
        let mut executor =
            Executor::new(call, program, memory, combiner, &self.pool, by_member, done);
        let trouble = match poll_fn(|cx| executor.poll(cx)).await {
            Ok(()) => return Ok(()),
            Err(trouble) => trouble,
        };
        drop(executor);
        Err(match trouble {
            Trouble::Failure(failure) => failure,
            Trouble::Local(reason) => self.local(reason),
            Trouble::Stream(member, error) => self.group.verdict(member, &error).await,
        })
    }

    /// Ends the lanes and waits until everything sent has arrived. Lanes that broke are passed over.
    pub(crate) async fn drain(&self) {
        let mut lanes = self.lanes.lock().await;
        let lanes = &mut lanes.by_member;
        for stream in lanes.iter_mut().filter_map(|lane| lane.send.as_mut()) {
            let _ = stream.finish();
        }
        for stream in lanes.iter_mut().filter_map(|lane| lane.send.as_mut()) {
            let _ = stream.acked().await;
        }
    }
}

/// A reduction that is carried out in a wide type.
#[derive(Clone, Copy)]
struct Wide {
    dtype: DataType,
    op: ReduceOp,
    accumulator: Accumulator,
}
