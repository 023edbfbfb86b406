//! Runs collective calls: chooses the algorithm, prepares memory and arithmetic, executes the schedule.

mod executor;
mod memory;
mod outline;
mod pool;
mod program;

use crate::schedule::{self, Collective, Operation, Overrides, Plan};
use executor::{Executor, Lane, Trouble};
use memory::{Arithmetic, Combiner, Memory};
use nexar_core::{
    Call, DataType, Error, Failure, OperationError, ReduceOp, Result,
    mesh::{Group, OngoingCall},
    transport::{SendStream, Transport},
    wire::LaneKind,
};
use nexar_device::reduce::{self, Accumulator};
use outline::Outlined;
use pool::ChunkPool;
use program::{Program, Programs};
use std::{future::poll_fn, sync::Arc};
use tokio::sync::Mutex;

/// One collective call on this rank, with its buffers as bytes.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) operation: Operation,
    pub(crate) dtype: Option<DataType>,
    pub(crate) op: Option<ReduceOp>,
    pub(crate) input: &'a [u8],
    pub(crate) output: &'a mut [u8],
}

impl Request<'_> {
    fn element(&self) -> usize {
        self.dtype.map_or(1, DataType::size)
    }

    fn accumulator(&self) -> Option<Accumulator> {
        reduce::accumulator(self.dtype?, self.op?)
    }

    fn call(&self, sequence: u64, plan: Plan) -> Call {
        let root = match self.operation {
            Operation::Broadcast { root, .. } => Some(root as u32),
            _ => None,
        };
        Call {
            collective: self.operation.collective(),
            sequence,
            dtype: self.dtype,
            op: self.op,
            count: if self.dtype.is_some() {
                self.operation.count() as u64
            } else {
                0
            },
            root,
            algorithm: plan.algorithm,
        }
    }
}

/// The collectives of one communicator.
pub(crate) struct Engine<T: Transport> {
    group: Arc<Group<T>>,
    /// By member. Held by the call in progress: calls on a communicator run one after the other, in the
    /// order in which they were first polled.
    lanes: Mutex<Vec<Lane<T>>>,
    pool: ChunkPool,
    programs: Programs,
    overrides: Overrides,
}

impl<T: Transport> Engine<T> {
    pub(crate) fn new(group: impl Into<Arc<Group<T>>>, overrides: Overrides) -> Self {
        let group = group.into();
        let lanes = (0..group.size())
            .map(|_| Lane {
                send: None,
                recv: None,
            })
            .collect();
        Engine {
            group,
            lanes: Mutex::new(lanes),
            pool: ChunkPool::default(),
            programs: Programs::default(),
            overrides,
        }
    }

    pub(crate) fn group(&self) -> &Group<T> {
        &self.group
    }

    /// Runs one call. Buffer lengths and reduction have been checked.
    pub(crate) async fn run(&self, request: Request<'_>) -> Result<()> {
        let future = self.group.transport().drive(self.run_driven(request));
        Outlined { future }.await
    }

    async fn run_driven(&self, request: Request<'_>) -> Result<()> {
        let collective = request.operation.collective();
        let mut lanes = self.lanes.lock().await;
        let plan = self.plan(&request);
        let ongoing = self
            .group
            .begin(|sequence| request.call(sequence, plan))
            .map_err(|failure| self.error(collective, None, failure))?;
        let sequence = ongoing.call().sequence;
        let world = self.group.size();
        let program = self
            .programs
            .get(request.operation, plan, world, self.group.rank());
        tracing::trace!(call = %ongoing.call(), %plan, "collective");
        match self
            .execute(&ongoing, &program, &mut lanes, request, plan)
            .await
        {
            Ok(()) => {
                ongoing.finish();
                Ok(())
            }
            Err(failure) => {
                let failure = ongoing.fail(failure);
                Err(self.error(collective, Some(sequence), failure))
            }
        }
    }

    fn plan(&self, request: &Request<'_>) -> Plan {
        let forced = self.overrides.get(request.operation.collective());
        let wide = request.accumulator().is_some();
        let world = self.group.size();
        schedule::select(request.operation, request.element(), world, forced, wide)
    }

    fn error(&self, collective: Collective, sequence: Option<u64>, failure: Failure) -> Error {
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

    async fn execute(
        &self,
        call: &OngoingCall<'_, T>,
        program: &Program,
        lanes: &mut [Lane<T>],
        request: Request<'_>,
        plan: Plan,
    ) -> Result<(), Failure> {
        if request.operation.count() == 0 {
            return self.execute_empty(call, program, lanes).await;
        }
        let world = self.group.size();
        let (dtype, op) = (request.dtype, request.op);
        let narrow = match (dtype, op) {
            (Some(dtype), Some(op)) => Arithmetic::Narrow { dtype, op },
            _ => Arithmetic::None { dtype },
        };
        let arithmetic = match (dtype, op, request.accumulator()) {
            (Some(dtype), Some(op), Some(accumulator)) => {
                if !program.schedule.single_site {
                    return self
                        .execute_wide(call, program, lanes, request, accumulator)
                        .await;
                }
                Arithmetic::WideAtSite {
                    dtype,
                    op,
                    accumulator,
                }
            }
            _ => narrow,
        };
        let element = request.element();
        let scratch = vec![0; program.schedule.scratch * element];
        let Request { input, output, .. } = request;
        let mut memory = Memory {
            input,
            output,
            scratch,
            element,
        };
        let combiner = Combiner::new(arithmetic, world);
        self.transfer(call, program, lanes, &mut memory, combiner)
            .await?;
        self.settle_nan(dtype, op, plan, memory.output)
    }

    /// A call without elements runs as a barrier.
    async fn execute_empty(
        &self,
        call: &OngoingCall<'_, T>,
        program: &Program,
        lanes: &mut [Lane<T>],
    ) -> Result<(), Failure> {
        let scratch = vec![0; program.schedule.scratch];
        let mut memory = Memory {
            input: &[0],
            output: &mut [],
            scratch,
            element: 1,
        };
        let combiner = Combiner::new(Arithmetic::None { dtype: None }, self.group.size());
        self.transfer(call, program, lanes, &mut memory, combiner)
            .await
    }

    /// Carries wide partial results: all memory of the operation is widened before and rounded after.
    async fn execute_wide(
        &self,
        call: &OngoingCall<'_, T>,
        program: &Program,
        lanes: &mut [Lane<T>],
        request: Request<'_>,
        accumulator: Accumulator,
    ) -> Result<(), Failure> {
        let Request {
            dtype: Some(dtype),
            op: Some(op),
            input,
            output,
            ..
        } = request
        else {
            return Err(self.local("a wide operation without a reduction"));
        };
        let (element, world) = (accumulator.size(), self.group.size());
        let widen = |narrow: &[u8]| {
            let mut wide = vec![0; narrow.len() / dtype.size() * element];
            reduce::widen(dtype, accumulator, &mut wide, narrow).map(|()| wide)
        };
        let refused = |error: reduce::ReduceError| self.local(error);
        let wide_input = widen(input).map_err(refused)?;
        let mut wide_output = widen(output).map_err(refused)?;
        let mut memory = Memory {
            input: &wide_input,
            output: &mut wide_output,
            scratch: vec![0; program.schedule.scratch * element],
            element,
        };
        let combiner = Combiner::new(Arithmetic::Wide { op, accumulator }, world);
        self.transfer(call, program, lanes, &mut memory, combiner)
            .await?;
        reduce::finish(dtype, accumulator, op, world, output, &wide_output).map_err(refused)?;
        reduce::canonicalize_nan(dtype, output).map_err(refused)
    }

    /// Ranks that combine two NaNs in different orders hold different ones. That can only happen where
    /// each rank combines for itself.
    fn settle_nan(
        &self,
        dtype: Option<DataType>,
        op: Option<ReduceOp>,
        plan: Plan,
        output: &mut [u8],
    ) -> Result<(), Failure> {
        let (Some(dtype), Some(_)) = (dtype, op) else {
            return Ok(());
        };
        if plan.algorithm != schedule::Algorithm::RecursiveDoubling || !dtype.is_float() {
            return Ok(());
        }
        reduce::canonicalize_nan(dtype, output).map_err(|error| self.local(error))
    }

    fn local(&self, reason: impl ToString) -> Failure {
        Failure::Aborted {
            rank: self.group.rank(),
            reason: reason.to_string(),
        }
    }

    /// Opens the lanes that are not open yet and runs the program over them.
    async fn transfer(
        &self,
        call: &OngoingCall<'_, T>,
        program: &Program,
        lanes: &mut [Lane<T>],
        memory: &mut Memory<'_>,
        combiner: Combiner,
    ) -> Result<(), Failure> {
        for peer in &program.peers {
            if let Some(lane) = lanes.get_mut(peer.member)
                && lane.send.is_none()
            {
                let opened = self
                    .group
                    .open_lane(peer.member, LaneKind::Collective, 0)
                    .await?;
                lane.send = Some(opened);
            }
        }
        let mut executor = Executor::new(call, program, memory, combiner, &self.pool, lanes);
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
        for stream in lanes.iter_mut().filter_map(|lane| lane.send.as_mut()) {
            let _ = stream.finish();
        }
        for stream in lanes.iter_mut().filter_map(|lane| lane.send.as_mut()) {
            let _ = stream.acked().await;
        }
    }
}
