//! The collectives on device memory that go on by themselves.

use super::{OnDevice, input, output};
use crate::{
    Started,
    communicator::requests::{moved, reduced},
    engine::Request,
};
use nexar_core::{Collective, Element, ReduceOp, Result, transport::Transport};
use nexar_device::{DeviceAdapter, DeviceBuffer};

impl<T: Transport, D: DeviceAdapter> OnDevice<'_, T, D> {
    /// Starts a call on owned buffers, which it gives back.
    fn start<O: Send + 'static>(
        self,
        collective: Collective,
        request: Result<Request<'static, D::Queue>>,
        buffers: O,
    ) -> Started<O> {
        self.comm
            .start(collective, move |shared, mut turn| async move {
                let engine = &shared.engine;
                let request = request.map_err(|error| engine.unprepared(error))?;
                engine.run_in(&mut turn, request).await?;
                Ok(buffers)
            })
    }
}

/// Methods on owned buffers, of which those that are listed are given back.
macro_rules! started {
    ($(fn $start:ident = $name:ident($($argument:ident: $type:ty),*) -> $given:ty,
        reads [$($input:ident),*] writes [$($output:ident),*] as $collective:ident,
        $place:ident => $request:expr, $buffers:expr;)*) => {
        impl<T: Transport, D: DeviceAdapter> OnDevice<'_, T, D> {$(
            #[doc = concat!("Starts [`", stringify!($name), "`](Self::", stringify!($name), ") on buffers of its own")]
            /// and gives them back. It comes after the work that is on the streams of the buffers now.
            #[allow(unused_mut)]
            pub fn $start<E: Element>(self, $(mut $argument: $type),*) -> Started<$given> {
                let $place = self.comm.place();
                let mut request = || {
                    $(let $input = input(stringify!($name), &$input)?;)*
                    $(let $output = output(stringify!($name), &mut $output)?;)*
                    $request
                };
                let request = request();
                self.start(Collective::$collective, request, $buffers)
            }
        )*}
    };
}

started! {
    fn start_broadcast = broadcast(data: DeviceBuffer<E, D>, root: usize) -> DeviceBuffer<E, D>,
        reads [] writes [data] as Broadcast,
        place => place.broadcast(moved::<E>(), data, root), data;
    fn start_reduce = reduce(data: DeviceBuffer<E, D>, op: ReduceOp, root: usize) -> DeviceBuffer<E, D>,
        reads [] writes [data] as Reduce,
        place => place.reduce(reduced(E::DATA_TYPE, op)?, data, root), data;
    fn start_all_reduce = all_reduce(data: DeviceBuffer<E, D>, op: ReduceOp) -> DeviceBuffer<E, D>,
        reads [] writes [data] as AllReduce,
        place => Ok(place.all_reduce(reduced(E::DATA_TYPE, op)?, data)), data;
    fn start_scan = scan(data: DeviceBuffer<E, D>, op: ReduceOp) -> DeviceBuffer<E, D>,
        reads [] writes [data] as Scan,
        place => place.scan(reduced(E::DATA_TYPE, op)?, data, false), data;
    fn start_exclusive_scan = exclusive_scan(data: DeviceBuffer<E, D>, op: ReduceOp) -> DeviceBuffer<E, D>,
        reads [] writes [data] as ExclusiveScan,
        place => place.scan(reduced(E::DATA_TYPE, op)?, data, true), data;
    fn start_all_gather = all_gather(input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as AllGather,
        place => place.all_gather(moved::<E>(), input, output), (input, output);
    fn start_all_gather_v = all_gather_v(input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>, counts: Vec<usize>) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as AllGatherV,
        place => place.all_gather_v(moved::<E>(), input, output, &counts), (input, output);
    fn start_gather = gather(input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>, root: usize) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as Gather,
        place => place.gather(moved::<E>(), input, output, root), (input, output);
    fn start_gather_v = gather_v(input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>, counts: Vec<usize>, root: usize) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as GatherV,
        place => place.gather_v(moved::<E>(), input, output, &counts, root), (input, output);
    fn start_scatter = scatter(input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>, root: usize) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as Scatter,
        place => place.scatter(moved::<E>(), input, output, root), (input, output);
    fn start_scatter_v = scatter_v(input: DeviceBuffer<E, D>, counts: Vec<usize>, output: DeviceBuffer<E, D>, root: usize) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as ScatterV,
        place => place.scatter_v(moved::<E>(), input, &counts, output, root), (input, output);
    fn start_reduce_scatter = reduce_scatter(input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>, op: ReduceOp) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as ReduceScatter,
        place => place.reduce_scatter(reduced(E::DATA_TYPE, op)?, input, output), (input, output);
    fn start_reduce_scatter_v = reduce_scatter_v(input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>, counts: Vec<usize>, op: ReduceOp) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as ReduceScatterV,
        place => place.reduce_scatter_v(reduced(E::DATA_TYPE, op)?, input, output, &counts), (input, output);
    fn start_all_to_all = all_to_all(input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as AllToAll,
        place => place.all_to_all(moved::<E>(), input, output), (input, output);
    fn start_all_to_all_v = all_to_all_v(input: DeviceBuffer<E, D>, send_counts: Vec<usize>, output: DeviceBuffer<E, D>, recv_counts: Vec<usize>) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as AllToAllV,
        place => place.all_to_all_v(moved::<E>(), (input, &send_counts), (output, &recv_counts)), (input, output);
    fn start_neighbor_all_to_all = neighbor_all_to_all(neighbors: Vec<usize>, input: DeviceBuffer<E, D>, output: DeviceBuffer<E, D>) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as NeighborAllToAll,
        place => place.neighbor_all_to_all(moved::<E>(), &neighbors, input, output), (input, output);
    fn start_neighbor_all_to_all_v = neighbor_all_to_all_v(neighbors: Vec<usize>, input: DeviceBuffer<E, D>, send_counts: Vec<usize>, output: DeviceBuffer<E, D>, recv_counts: Vec<usize>) -> (DeviceBuffer<E, D>, DeviceBuffer<E, D>),
        reads [input] writes [output] as NeighborAllToAllV,
        place => place.neighbor_all_to_all_v(moved::<E>(), &neighbors, (input, &send_counts), (output, &recv_counts)), (input, output);
}
