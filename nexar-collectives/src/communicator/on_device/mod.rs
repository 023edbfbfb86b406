//! Collectives and messages on buffers in the memory of a device.

mod messages;
mod started;
mod whole;

use super::{
    Communicator,
    requests::{Input, Output, moved, reduced},
};
use crate::{
    Reduction,
    engine::{Request, Source, Target},
};
use bytemuck::Pod;
use nexar_core::{Element, Error, ReduceOp, Result, transport::Transport};
use nexar_device::{DeviceAdapter, DeviceBuffer, DeviceError};
use std::{fmt, future::Future, sync::Arc};

/// The collectives and messages of a [`Communicator`] on buffers in the memory of a device, such as that of a GPU; made by
/// [`Communicator::on_device`].
///
/// Each method is the one of the same name of [`Communicator`], with [`DeviceBuffer`]s in the place of slices: the same
/// meaning, order, errors and cancel safety, and the same call to the other ranks, which may have their data in
/// host memory. In addition, it fails with [`Error::Device`] if a buffer is not where the adapter reaches it, before anything
/// is sent. A device that fails, then or later, fails the operation on this rank and on all that have not done it yet, and
/// the next one on the others; on this rank, too, the error is then an [`Error::Operation`] that has the device's message
/// as text. A message that it fails concerns this rank alone, and the communicator goes on. What was passed to an operation that is started is lost with its error, the buffers with their memory.
///
/// # Streams
///
/// A method comes after the work that is on the [streams of its buffers](DeviceBuffer#streams) when it is called, for
/// which it does not wait, and before whatever is enqueued after its future is done. Call it on the thread that enqueued the
/// work.
///
/// # Cost
///
/// The data is copied to the host and back in pieces, through the [staging slots](crate::Capabilities) of the
/// adapter, and reduced there. Copies in both directions, network and reduction go on at the same time, on different
/// pieces: a long operation takes about as long as the slowest of them alone. Beyond the slots it needs the host memory that
/// the algorithm needs for slices, if any: some scans, and what is chosen for short data. Three exceptions go
/// through host memory as a whole: reductions of f16 and bf16 (except minimum and maximum) and
/// averages of integers, where [the algorithm](crate::Algorithm) carries partial results, which is chosen for short
/// vectors and above 16 ranks; `all_reduce_scaled` and those with a location; `all_reduce_compressed`.
///
/// Forms with `_into` want input and output in the same kind of memory: both in that of devices, or both in the host's.
///
/// # Example
///
/// On a GPU the adapter is `CudaAdapter`, and the space `MemorySpace::Device(0)`.
///
/// ```
/// use nexar_collectives::{CpuAdapter, DeviceBuffer, MemorySpace, ReduceOp, Result, run_local};
///
/// fn main() -> Result<()> {
///     run_local(3, async |comm| {
///         let own = comm.rank() as f32 + 1.0;
///         let (adapter, space) = (comm.device(), MemorySpace::Host);
///         let mut data = DeviceBuffer::from_slice(adapter, space, &[own, 10.0 * own]).await?;
///         comm.on_device().all_reduce(&mut data, ReduceOp::Sum).await?;
///         let mut sums = [0.0; 2];
///         data.copy_to(&mut sums).await?;
///         assert_eq!(sums, [6.0, 60.0]);
///
///         let started = comm.on_device().start_all_reduce(data, ReduceOp::Max);
///         // ... compute something else meanwhile ...
///         let data = started.await?;
///         assert_eq!(data.len(), 2);
///         Ok(())
///     })?;
///     Ok(())
/// }
/// ```
pub struct OnDevice<'c, T: Transport, D: DeviceAdapter> {
    comm: &'c Communicator<T, D>,
}

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    /// Collectives and messages on buffers in the memory of a device.
    pub fn on_device(&self) -> OnDevice<'_, T, D> {
        OnDevice { comm: self }
    }
}

impl<T: Transport, D: DeviceAdapter> Clone for OnDevice<'_, T, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Transport, D: DeviceAdapter> Copy for OnDevice<'_, T, D> {}

impl<T: Transport, D: DeviceAdapter> fmt::Debug for OnDevice<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDevice").field(self.comm).finish()
    }
}

fn unreachable(operation: &'static str, error: DeviceError) -> Error {
    Error::Device {
        operation,
        source: Arc::new(error),
    }
}

/// A buffer to be read. It is for as long as the buffer is borrowed or owned by the operation.
fn input<E: Element, D: DeviceAdapter>(
    operation: &'static str,
    buffer: &DeviceBuffer<E, D>,
) -> Result<Input<'static, D::Queue>> {
    // SAFETY: the operation reads it only while it has the buffer.
    let access = unsafe { buffer.open() };
    let access = access.map_err(|error| unreachable(operation, error))?;
    let bytes = Source::opened(access, buffer.adapter().capabilities());
    let len = buffer.len();
    Ok(Input { bytes, len })
}

/// A buffer to be written, as for [`input`].
fn output<E: Element, D: DeviceAdapter>(
    operation: &'static str,
    buffer: &mut DeviceBuffer<E, D>,
) -> Result<Output<'static, D::Queue>> {
    // SAFETY: the operation uses it only while it has the buffer, and stores elements only.
    let access = unsafe { buffer.open() };
    let access = access.map_err(|error| unreachable(operation, error))?;
    let bytes = Target::opened(access, buffer.adapter().capabilities());
    let len = buffer.len();
    Ok(Output { bytes, len })
}

impl<'c, T: Transport, D: DeviceAdapter> OnDevice<'c, T, D> {
    async fn run(self, request: Result<Request<'_, D::Queue>>) -> Result<()> {
        let engine = self.comm.engine();
        let request = request.map_err(|error| engine.unprepared(error))?;
        engine.run(request).await
    }
}

/// Methods on borrowed buffers: what they read and write becomes part of a request at once, so that it comes after what is
/// enqueued by then.
macro_rules! borrowed {
    ($(fn $name:ident<$element:ident: $($bound:ident)&+>($($argument:ident: $type:ty),*)
        reads [$($input:ident),*] writes [$($output:ident),*] as $operation:literal,
        $place:ident => $request:expr;)*) => {
        impl<'c, T: Transport, D: DeviceAdapter> OnDevice<'c, T, D> {$(
            #[doc = concat!("[`Communicator::", stringify!($name), "`] on device memory.")]
            ///
            /// # Errors
            ///
            /// As there, and [`Error::Device`].
            #[allow(unused_mut)]
            pub fn $name<'a, $element: $($bound +)+>(
                self,
                $($argument: $type),*
            ) -> impl Future<Output = Result<()>> + Send + 'a
            where
                'c: 'a,
            {
                let $place = self.comm.place();
                let mut request = || {
                    $(let $input = input($operation, $input)?;)*
                    $(let $output = output($operation, $output)?;)*
                    $request
                };
                self.run(request())
            }
        )*}
    };
}

borrowed! {
    fn broadcast<E: Element>(data: &'a mut DeviceBuffer<E, D>, root: usize)
        reads [] writes [data] as "broadcast",
        place => place.broadcast(moved::<E>(), data, root);
    fn reduce<E: Element>(data: &'a mut DeviceBuffer<E, D>, op: ReduceOp, root: usize)
        reads [] writes [data] as "reduce",
        place => place.reduce(reduced(E::DATA_TYPE, op)?, data, root);
    fn reduce_into<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, op: ReduceOp, root: usize)
        reads [input] writes [output] as "reduce",
        place => place.reduce_into(reduced(E::DATA_TYPE, op)?, input, output, root);
    fn all_reduce<E: Element>(data: &'a mut DeviceBuffer<E, D>, op: ReduceOp)
        reads [] writes [data] as "all_reduce",
        place => Ok(place.all_reduce(reduced(E::DATA_TYPE, op)?, data));
    fn all_reduce_into<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, op: ReduceOp)
        reads [input] writes [output] as "all_reduce",
        place => place.all_reduce_into(reduced(E::DATA_TYPE, op)?, input, output);
    fn scan<E: Element>(data: &'a mut DeviceBuffer<E, D>, op: ReduceOp)
        reads [] writes [data] as "scan",
        place => place.scan(reduced(E::DATA_TYPE, op)?, data, false);
    fn scan_into<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, op: ReduceOp)
        reads [input] writes [output] as "scan",
        place => place.scan_into(reduced(E::DATA_TYPE, op)?, input, output, false);
    fn exclusive_scan<E: Element>(data: &'a mut DeviceBuffer<E, D>, op: ReduceOp)
        reads [] writes [data] as "exclusive_scan",
        place => place.scan(reduced(E::DATA_TYPE, op)?, data, true);
    fn exclusive_scan_into<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, op: ReduceOp)
        reads [input] writes [output] as "exclusive_scan",
        place => place.scan_into(reduced(E::DATA_TYPE, op)?, input, output, true);
    fn all_gather<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>)
        reads [input] writes [output] as "all_gather",
        place => place.all_gather(moved::<E>(), input, output);
    fn all_gather_in_place<E: Element>(data: &'a mut DeviceBuffer<E, D>)
        reads [] writes [data] as "all_gather",
        place => place.all_gather_in_place(moved::<E>(), data);
    fn all_gather_v<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, counts: &'a [usize])
        reads [input] writes [output] as "all_gather_v",
        place => place.all_gather_v(moved::<E>(), input, output, counts);
    fn gather<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, root: usize)
        reads [input] writes [output] as "gather",
        place => place.gather(moved::<E>(), input, output, root);
    fn gather_v<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, counts: &'a [usize], root: usize)
        reads [input] writes [output] as "gather_v",
        place => place.gather_v(moved::<E>(), input, output, counts, root);
    fn scatter<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, root: usize)
        reads [input] writes [output] as "scatter",
        place => place.scatter(moved::<E>(), input, output, root);
    fn scatter_v<E: Element>(input: &'a DeviceBuffer<E, D>, counts: &'a [usize], output: &'a mut DeviceBuffer<E, D>, root: usize)
        reads [input] writes [output] as "scatter_v",
        place => place.scatter_v(moved::<E>(), input, counts, output, root);
    fn reduce_scatter<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, op: ReduceOp)
        reads [input] writes [output] as "reduce_scatter",
        place => place.reduce_scatter(reduced(E::DATA_TYPE, op)?, input, output);
    fn reduce_scatter_in_place<E: Element>(data: &'a mut DeviceBuffer<E, D>, op: ReduceOp)
        reads [] writes [data] as "reduce_scatter",
        place => place.reduce_scatter_in_place(reduced(E::DATA_TYPE, op)?, data);
    fn reduce_scatter_v<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, counts: &'a [usize], op: ReduceOp)
        reads [input] writes [output] as "reduce_scatter_v",
        place => place.reduce_scatter_v(reduced(E::DATA_TYPE, op)?, input, output, counts);
    fn all_to_all<E: Element>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>)
        reads [input] writes [output] as "all_to_all",
        place => place.all_to_all(moved::<E>(), input, output);
    fn all_to_all_in_place<E: Element>(data: &'a mut DeviceBuffer<E, D>)
        reads [] writes [data] as "all_to_all",
        place => place.all_to_all_in_place(moved::<E>(), data);
    fn all_to_all_v<E: Element>(input: &'a DeviceBuffer<E, D>, send_counts: &'a [usize], output: &'a mut DeviceBuffer<E, D>, recv_counts: &'a [usize])
        reads [input] writes [output] as "all_to_all_v",
        place => place.all_to_all_v(moved::<E>(), (input, send_counts), (output, recv_counts));
    fn neighbor_all_to_all<E: Element>(neighbors: &'a [usize], input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>)
        reads [input] writes [output] as "neighbor_all_to_all",
        place => place.neighbor_all_to_all(moved::<E>(), neighbors, input, output);
    fn neighbor_all_to_all_v<E: Element>(neighbors: &'a [usize], input: &'a DeviceBuffer<E, D>, send_counts: &'a [usize], output: &'a mut DeviceBuffer<E, D>, recv_counts: &'a [usize])
        reads [input] writes [output] as "neighbor_all_to_all_v",
        place => place.neighbor_all_to_all_v(moved::<E>(), neighbors, (input, send_counts), (output, recv_counts));
    fn reduce_with<E: Element & Pod>(data: &'a mut DeviceBuffer<E, D>, reduction: &'a Reduction<E>, root: usize)
        reads [] writes [data] as "reduce",
        place => Ok(reduction.stamp(place.reduce(reduction.elements("reduce")?, data, root)?));
    fn all_reduce_with<E: Element & Pod>(data: &'a mut DeviceBuffer<E, D>, reduction: &'a Reduction<E>)
        reads [] writes [data] as "all_reduce",
        place => Ok(reduction.stamp(place.all_reduce(reduction.elements("all_reduce")?, data)));
    fn scan_with<E: Element & Pod>(data: &'a mut DeviceBuffer<E, D>, reduction: &'a Reduction<E>)
        reads [] writes [data] as "scan",
        place => Ok(reduction.stamp(place.scan(reduction.elements("scan")?, data, false)?));
    fn exclusive_scan_with<E: Element & Pod>(data: &'a mut DeviceBuffer<E, D>, reduction: &'a Reduction<E>)
        reads [] writes [data] as "exclusive_scan",
        place => Ok(reduction.stamp(place.scan(reduction.elements("exclusive_scan")?, data, true)?));
    fn reduce_scatter_with<E: Element & Pod>(input: &'a DeviceBuffer<E, D>, output: &'a mut DeviceBuffer<E, D>, reduction: &'a Reduction<E>)
        reads [input] writes [output] as "reduce_scatter",
        place => Ok(reduction.stamp(place.reduce_scatter(reduction.elements("reduce_scatter")?, input, output)?));
}
