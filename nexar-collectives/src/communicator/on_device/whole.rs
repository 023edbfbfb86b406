//! Operations that take their data to the host as a whole, or in buckets.

use super::{OnDevice, output};
use crate::{
    Started,
    communicator::{
        collectives::scale,
        located::{all_reduce_location, check_pairs, location_kind},
        many::{BUCKET, buckets, reduce_bucket},
        requests::{Output, bytes_of, reduced},
    },
    compression::{self, Compression, Compressor},
    digest::digest,
    engine::{Engine, Pass, Staged, Target, Turn},
};
use nexar_core::{
    Collective, DataType, Element, Error, Failure, ReduceOp, Result, transport::Transport,
};
use nexar_device::{
    DeviceAdapter, DeviceBuffer, ExecutionQueue,
    reduce::{ReduceError, copy_bool},
};
use std::future::Future;

/// A call with its turn, from before its data is fetched until it is delivered. Meanwhile the other ranks wait for this
/// one: if it fails or is dropped, they are told.
struct Whole<'e, T: Transport> {
    engine: &'e Engine<T>,
    turn: Turn<T>,
    collective: Collective,
    done: bool,
}

impl<T: Transport> Drop for Whole<'_, T> {
    fn drop(&mut self) {
        if !self.done {
            let reason = format!("its {} was dropped before it was done", self.collective);
            self.abort(reason);
        }
    }
}

impl<'e, T: Transport> Whole<'e, T> {
    fn new(engine: &'e Engine<T>, turn: Turn<T>, collective: Collective) -> Self {
        Whole {
            engine,
            turn,
            collective,
            done: false,
        }
    }

    fn finish(mut self) {
        self.done = true;
    }

    /// What is wrong with arguments is found before anything is sent, on this rank alone.
    fn unless_refused<R>(&mut self, result: Result<R>) -> Result<R> {
        let result = result.map_err(|error| self.engine.unprepared(error));
        self.done |= matches!(
            result,
            Err(Error::InvalidArgument { .. } | Error::Unsupported(_) | Error::Device { .. })
        );
        result
    }

    fn abort(&self, reason: String) -> Failure {
        let group = self.engine.group();
        let rank = group.rank();
        group.fail(Failure::Aborted { rank, reason })
    }

    fn broken(&self, reason: String) -> Error {
        let failure = self.abort(reason);
        self.engine.error(self.collective, None, failure)
    }

    fn open<Q: ExecutionQueue>(&self, target: Target<'static, Q>) -> Result<Place<Q>> {
        Ok(match target {
            Target::Host(_) => Place::Nowhere,
            Target::View(view) => Place::View(view),
            Target::Staged {
                queue,
                from,
                staging,
            } => {
                let staged = Staged::new(queue, from, &staging, 1, false);
                Place::Staged(staged.map_err(|error| self.broken(error.to_string()))?)
            }
        })
    }

    /// Copies the elements at a place to the end of `host`.
    async fn fetch<E: Element, Q: ExecutionQueue>(
        &mut self,
        place: &mut Place<Q>,
        len: usize,
        host: &mut Vec<E>,
    ) -> Result<()> {
        let start = host.len();
        host.resize(start + len, E::default());
        let target = bytes_of(&mut host[start..]);
        let load = |at: usize, piece: &mut [u8]| -> std::result::Result<(), ReduceError> {
            let target = &mut target[at..][..piece.len()];
            if E::DATA_TYPE == DataType::Bool {
                return copy_bool(target, piece);
            }
            target.copy_from_slice(piece);
            Ok(())
        };
        self.device_work(place.pass(Pass::Read, load)).await
    }

    /// Copies elements to a place.
    async fn deliver<E: Element, Q: ExecutionQueue>(
        &mut self,
        place: &mut Place<Q>,
        host: &[E],
    ) -> Result<()> {
        let source = E::as_bytes(host);
        let store = |at: usize, piece: &mut [u8]| {
            piece.copy_from_slice(&source[at..][..piece.len()]);
            Ok(())
        };
        self.device_work(place.pass(Pass::Write, store)).await
    }

    async fn device_work(
        &mut self,
        pass: impl Future<Output = std::result::Result<(), String>>,
    ) -> Result<()> {
        let done = self.engine.device_work(pass).await;
        done.map_err(|failure| {
            let failure = self.engine.group().fail(failure);
            self.engine.error(self.collective, None, failure)
        })
    }
}

/// Where a buffer is.
enum Place<Q: ExecutionQueue> {
    Nowhere,
    View(nexar_device::HostView),
    Staged(Staged<Q>),
}

impl<Q: ExecutionQueue> Place<Q> {
    async fn pass(
        &mut self,
        pass: Pass,
        mut f: impl FnMut(usize, &mut [u8]) -> std::result::Result<(), ReduceError>,
    ) -> std::result::Result<(), String> {
        match self {
            Place::Nowhere => Ok(()),
            Place::View(view) => f(0, view.as_mut()).map_err(|error| error.to_string()),
            Place::Staged(staged) => staged.pass(pass, f).await,
        }
    }
}

impl<'c, T: Transport, D: DeviceAdapter> OnDevice<'c, T, D> {
    /// [`Communicator::all_reduce_scaled`](crate::Communicator::all_reduce_scaled) on device memory. The data goes through
    /// host memory as a whole.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Device`].
    pub fn all_reduce_scaled<'a, E: Element>(
        self,
        data: &'a mut DeviceBuffer<E, D>,
        factor: E,
    ) -> impl Future<Output = Result<()>> + Send + 'a
    where
        'c: 'a,
    {
        let target = output("all_reduce_scaled", data);
        async move {
            let elements = reduced(E::DATA_TYPE, ReduceOp::Sum)?;
            let target = self.prepared(target)?;
            let mut call = self.whole(Collective::AllReduce).await;
            let (mut place, mut host) = (call.open(target.bytes)?, Vec::new());
            call.fetch(&mut place, target.len, &mut host).await?;
            scale(&mut host, factor)?;
            let engine = call.engine;
            let request = engine.place().all_reduce(elements, Output::of(&mut host));
            engine.run_in(&mut call.turn, request).await?;
            call.deliver(&mut place, &host).await?;
            call.finish();
            Ok(())
        }
    }

    /// [`Communicator::all_reduce_min_location`](crate::Communicator::all_reduce_min_location) on device memory. The data
    /// goes through host memory as a whole.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Device`].
    pub fn all_reduce_min_location<'a, E: Element>(
        self,
        values: &'a mut DeviceBuffer<E, D>,
        locations: &'a mut DeviceBuffer<u64, D>,
    ) -> impl Future<Output = Result<()>> + Send + 'a
    where
        'c: 'a,
    {
        self.all_reduce_location(values, locations, false)
    }

    /// [`Communicator::all_reduce_max_location`](crate::Communicator::all_reduce_max_location) on device memory. The data
    /// goes through host memory as a whole.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Device`].
    pub fn all_reduce_max_location<'a, E: Element>(
        self,
        values: &'a mut DeviceBuffer<E, D>,
        locations: &'a mut DeviceBuffer<u64, D>,
    ) -> impl Future<Output = Result<()>> + Send + 'a
    where
        'c: 'a,
    {
        self.all_reduce_location(values, locations, true)
    }

    fn all_reduce_location<'a, E: Element>(
        self,
        values: &'a mut DeviceBuffer<E, D>,
        locations: &'a mut DeviceBuffer<u64, D>,
        want_max: bool,
    ) -> impl Future<Output = Result<()>> + Send + 'a
    where
        'c: 'a,
    {
        let kind = location_kind(want_max);
        let lengths = (values.len(), locations.len());
        let targets = output(kind.name(), values)
            .and_then(|values| Ok((values, output(kind.name(), locations)?)));
        async move {
            check_pairs(kind, lengths.0, lengths.1)?;
            let (values, locations) = self.prepared(targets)?;
            let mut call = self.whole(kind).await;
            let (mut value_place, mut location_place) =
                (call.open(values.bytes)?, call.open(locations.bytes)?);
            let (mut values, mut locations) = (Vec::<E>::new(), Vec::<u64>::new());
            call.fetch(&mut value_place, lengths.0, &mut values).await?;
            call.fetch(&mut location_place, lengths.1, &mut locations)
                .await?;
            let (engine, turn) = (call.engine, &mut call.turn);
            all_reduce_location(engine, turn, &mut values, &mut locations, want_max).await?;
            call.deliver(&mut value_place, &values).await?;
            call.deliver(&mut location_place, &locations).await?;
            call.finish();
            Ok(())
        }
    }

    /// [`Communicator::all_reduce_compressed`](crate::Communicator::all_reduce_compressed) on device memory. The data goes
    /// through host memory as a whole, and is compressed there.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Device`].
    pub fn all_reduce_compressed<'a, C: Compressor>(
        self,
        data: &'a mut DeviceBuffer<f32, D>,
        op: ReduceOp,
        compression: &'a mut Compression<C>,
    ) -> impl Future<Output = Result<()>> + Send + 'a
    where
        'c: 'a,
    {
        let target = output(compression::LABEL.name(), data);
        async move {
            let target = self.prepared(target)?;
            let call = self.whole(compression::LABEL).await;
            compressed(call, target, op, compression).await
        }
    }

    /// Starts [`all_reduce_compressed`](Self::all_reduce_compressed) on a buffer of its own and gives it and the
    /// compression back. It comes after the work that is on the stream of the buffer now.
    pub fn start_all_reduce_compressed<C: Compressor + 'static>(
        self,
        mut data: DeviceBuffer<f32, D>,
        op: ReduceOp,
        mut compression: Compression<C>,
    ) -> Started<(DeviceBuffer<f32, D>, Compression<C>)> {
        let target = output(compression::LABEL.name(), &mut data);
        self.comm
            .start(compression::LABEL, move |shared, turn| async move {
                let mut call = Whole::new(&shared.engine, turn, compression::LABEL);
                let target = call.unless_refused(target)?;
                compressed(call, target, op, &mut compression).await?;
                Ok((data, compression))
            })
    }

    /// [`Communicator::all_reduce_many`](crate::Communicator::all_reduce_many) on device memory. Short buffers are
    /// gathered in host memory, 4 MiB at most.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Device`].
    pub fn all_reduce_many<'a, E: Element>(
        self,
        buffers: &'a mut [DeviceBuffer<E, D>],
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> + Send + 'a
    where
        'c: 'a,
    {
        let targets = outputs(buffers);
        async move {
            let targets = self.prepared(targets)?;
            let call = self.whole(Collective::AllReduceMany).await;
            many::<T, E, D::Queue>(call, targets, op).await
        }
    }

    /// Starts [`all_reduce_many`](Self::all_reduce_many) on buffers of its own and gives them back. It comes after the
    /// work that is on their streams now.
    pub fn start_all_reduce_many<E: Element>(
        self,
        mut buffers: Vec<DeviceBuffer<E, D>>,
        op: ReduceOp,
    ) -> Started<Vec<DeviceBuffer<E, D>>> {
        let targets = outputs(&mut buffers);
        let collective = Collective::AllReduceMany;
        self.comm.start(collective, move |shared, turn| async move {
            let mut call = Whole::new(&shared.engine, turn, collective);
            let targets = call.unless_refused(targets)?;
            many::<T, E, D::Queue>(call, targets, op).await?;
            Ok(buffers)
        })
    }

    fn prepared<R>(self, result: Result<R>) -> Result<R> {
        result.map_err(|error| self.comm.engine().unprepared(error))
    }

    async fn whole(self, collective: Collective) -> Whole<'c, T> {
        let engine = self.comm.engine();
        let turn = engine.turn().await;
        Whole::new(engine, turn, collective)
    }
}

type Targets<Q> = Vec<Output<'static, Q>>;

fn outputs<E: Element, D: DeviceAdapter>(
    buffers: &mut [DeviceBuffer<E, D>],
) -> Result<Targets<D::Queue>> {
    let open = |buffer| output("all_reduce_many", buffer);
    buffers.iter_mut().map(open).collect()
}

async fn compressed<T: Transport, Q: ExecutionQueue, C: Compressor>(
    mut call: Whole<'_, T>,
    target: Output<'static, Q>,
    op: ReduceOp,
    compression: &mut Compression<C>,
) -> Result<()> {
    let (mut place, mut host) = (call.open(target.bytes)?, Vec::<f32>::new());
    call.fetch(&mut place, target.len, &mut host).await?;
    let (engine, turn) = (call.engine, &mut call.turn);
    let reduced = compression::all_reduce(engine, turn, &mut host, op, compression).await;
    call.unless_refused(reduced)?;
    call.deliver(&mut place, &host).await?;
    call.finish();
    Ok(())
}

async fn many<T: Transport, E: Element, Q: ExecutionQueue>(
    mut call: Whole<'_, T>,
    targets: Targets<Q>,
    op: ReduceOp,
) -> Result<()> {
    let elements = call.unless_refused(reduced(E::DATA_TYPE, op))?;
    let lengths: Vec<usize> = targets.iter().map(|target| target.len).collect();
    let layout = digest(lengths.iter().map(|length| *length as u64));
    let engine = call.engine;
    let mut targets = targets.into_iter();
    let mut host: Vec<E> = Vec::new();
    for range in buckets(&lengths, BUCKET / size_of::<E>()) {
        if range.len() == 1
            && let Some(alone) = targets.next()
        {
            reduce_bucket(engine, &mut call.turn, elements, alone, layout).await?;
            continue;
        }
        host.clear();
        let mut places = Vec::new();
        for target in targets.by_ref().take(range.len()) {
            let (mut place, len) = (call.open(target.bytes)?, target.len);
            call.fetch(&mut place, len, &mut host).await?;
            places.push((place, len));
        }
        let bucket = Output::of(&mut host);
        reduce_bucket(engine, &mut call.turn, elements, bucket, layout).await?;
        let mut rest = &host[..];
        for (mut place, len) in places {
            let (own, others) = rest.split_at(len);
            call.deliver(&mut place, own).await?;
            rest = others;
        }
    }
    call.finish();
    Ok(())
}
