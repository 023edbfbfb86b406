//! The exchanges of a compressed all-reduce.

use super::{
    Aggregation, Compression, Compressor,
    state::{BadPayload, Shape, invalid},
};
use crate::{
    Communicator, Started,
    communicator::{Input, Output, moved, reduced},
    engine::{Engine, Request, Turn},
};
use nexar_core::{
    Collective, DataType, Error, Failure, ReduceOp, Result, mesh::Group, transport::Transport,
};
use nexar_device::DeviceAdapter;

pub(crate) const LABEL: Collective = Collective::AllReduceCompressed;

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_reduce_compressed.md")]
    pub async fn all_reduce_compressed<C: Compressor>(
        &self,
        data: &mut [f32],
        op: ReduceOp,
        compression: &mut Compression<C>,
    ) -> Result<()> {
        let engine = &self.shared().engine;
        let mut turn = engine.turn().await;
        all_reduce(engine, &mut turn, data, op, compression).await
    }

    /// Starts an [`all_reduce_compressed`](Self::all_reduce_compressed); gives the data and the compression.
    ///
    /// Compressing runs on the transport's background thread, which also says to the others that this rank lives: one
    /// that takes longer than the detection time looks like a dead rank.
    ///
    /// # Errors
    ///
    /// As [`all_reduce_compressed`](Self::all_reduce_compressed), when it is waited for. Data and residual are lost then.
    pub fn start_all_reduce_compressed<C: Compressor + 'static>(
        &self,
        mut data: Vec<f32>,
        op: ReduceOp,
        mut compression: Compression<C>,
    ) -> Started<(Vec<f32>, Compression<C>)> {
        self.start(LABEL, move |shared, mut turn| async move {
            all_reduce(&shared.engine, &mut turn, &mut data, op, &mut compression).await?;
            Ok((data, compression))
        })
    }
}

pub(crate) async fn all_reduce<T: Transport, C: Compressor>(
    engine: &Engine<T>,
    turn: &mut Turn<T>,
    data: &mut [f32],
    op: ReduceOp,
    compression: &mut Compression<C>,
) -> Result<()> {
    let place = engine.place();
    let shape = compression.shape(data.len(), op, place.rank, place.world)?;
    let call = Exchanges {
        engine,
        turn,
        shape,
        digest: compression.digest(data.len(), op),
    };
    compression.load(data);
    match shape.aggregation {
        Aggregation::Gather => call.gather(compression).await?,
        Aggregation::ReduceScatter { .. } => call.reduce_scatter(compression).await?,
        Aggregation::AllReduce => call.all_reduce(compression).await?,
    }
    compression.commit(&shape, op, data);
    Ok(())
}

/// One call, between load and commit.
struct Exchanges<'a, T: Transport> {
    engine: &'a Engine<T>,
    turn: &'a mut Turn<T>,
    shape: Shape,
    digest: u64,
}

impl<'a, T: Transport> Exchanges<'a, T> {
    async fn gather<C: Compressor>(mut self, state: &mut Compression<C>) -> Result<()> {
        state.pack(&self.shape)?;
        state.expect_from_all(&self.shape);
        let sequence = self.all_gather(state).await?;
        let unfinished = self.unfinished(sequence);
        let summed = state.sum_payloads(&self.shape);
        summed.map_err(|bad| unfinished.refuse(bad))?;
        unfinished.finish();
        Ok(())
    }

    async fn reduce_scatter<C: Compressor>(mut self, state: &mut Compression<C>) -> Result<()> {
        let place = self.engine.place();
        state.pack_pieces(&self.shape)?;
        state.expect_from_all(&self.shape);
        let (input, output) = state.buffers();
        let exchange = place.all_to_all(moved::<u8>(), input, output)?;
        let sequence = self.run(exchange).await?;
        let unfinished = self.unfinished(sequence);
        let reduced = state.reduce_piece(&self.shape);
        reduced.map_err(|bad| unfinished.refuse(bad))?;
        state.expect_from_all(&self.shape);
        self.all_gather(state).await?;
        let joined = state.join_pieces(&self.shape);
        joined.map_err(|bad| unfinished.refuse(bad))?;
        unfinished.finish();
        Ok(())
    }

    async fn all_reduce<C: Compressor>(mut self, state: &mut Compression<C>) -> Result<()> {
        let place = self.engine.place();
        let size = size_of::<f32>();
        if !self.shape.slot.is_multiple_of(size) {
            let len = self.shape.slot;
            return Err(invalid(format!(
                "a payload of {len} bytes is no vector of f32"
            )));
        }
        state.pack(&self.shape)?;
        let bytes = &mut state.outgoing[..];
        let len = bytes.len() / size;
        let elements = reduced(DataType::F32, ReduceOp::Sum)?;
        let sum = place.all_reduce(elements, Output::host(bytes, len));
        let sequence = self.run(sum).await?;
        let unfinished = self.unfinished(sequence);
        let rank = place.rank;
        let unpacked = state.unpack_sum(&self.shape);
        unpacked.map_err(|error| unfinished.refuse(BadPayload { rank, error }))?;
        unfinished.finish();
        Ok(())
    }

    /// Gathers what is outgoing.
    async fn all_gather<C: Compressor>(&mut self, state: &mut Compression<C>) -> Result<u64> {
        let (input, output) = state.buffers();
        let gather = (self.engine.place()).all_gather(moved::<u8>(), input, output)?;
        self.run(gather).await
    }

    /// Runs an exchange; its number.
    async fn run(&mut self, request: Request<'_>) -> Result<u64> {
        let request = Request {
            collective: LABEL,
            digest: self.digest,
            ..request
        };
        self.engine.run_in(self.turn, request).await
    }

    fn unfinished(&self, sequence: u64) -> Unfinished<'a, T> {
        Unfinished {
            engine: self.engine,
            sequence,
            done: false,
        }
    }
}

/// A call after its first exchange. While no exchange is in progress, nothing else would tell the other ranks that this
/// one gives up.
struct Unfinished<'a, T: Transport> {
    engine: &'a Engine<T>,
    /// The number of the first exchange.
    sequence: u64,
    done: bool,
}

impl<T: Transport> Unfinished<'_, T> {
    fn finish(mut self) {
        self.done = true;
    }

    /// Fails the call because of a payload.
    fn refuse(&self, bad: BadPayload) -> Error {
        let group = self.engine.group();
        let BadPayload { rank, error } = bad;
        let failure = if rank == group.rank() {
            Failure::Aborted {
                rank,
                reason: error.to_string(),
            }
        } else {
            Failure::Protocol {
                rank,
                what: error.to_string(),
            }
        };
        let sequence = Some(self.sequence);
        self.engine.error(LABEL, sequence, group.fail(failure))
    }
}

impl<T: Transport> Drop for Unfinished<'_, T> {
    fn drop(&mut self) {
        if !self.done {
            let group: &Group<T> = self.engine.group();
            let reason = format!("its {LABEL} was dropped before it was done");
            let rank = group.rank();
            group.fail(Failure::Aborted { rank, reason });
        }
    }
}

impl<C> Compression<C> {
    fn buffers(&mut self) -> (Input<'_>, Output<'_>) {
        (Input::of(&self.outgoing), Output::of(&mut self.incoming))
    }
}
