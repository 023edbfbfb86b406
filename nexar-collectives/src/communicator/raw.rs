//! The collectives on memory that is given by its address: for bindings, and for buffers whose element type is
//! known at run time only.

use super::{
    Communicator,
    requests::{Input, Output, reduced},
};
use crate::engine::{Elements, Request, Source, Target};
use nexar_core::{DataType, Error, ReduceOp, Result, transport::Transport};
use nexar_device::{Access, DeviceAdapter, MemorySpace, Region};
use std::{future::Future, slice, sync::Arc};

/// Elements to be read, by their address.
#[derive(Debug, Clone, Copy)]
pub struct RawSlice {
    /// The first element, at any alignment. It may be null if there are no elements.
    pub pointer: *const u8,
    /// Number of elements.
    pub count: usize,
    /// Their type.
    pub dtype: DataType,
    /// Where they lie.
    pub space: MemorySpace,
    /// The stream of the device in whose order they are written, by the number of its handle; 0 for the default stream,
    /// and in host memory.
    pub stream: u64,
}

/// Elements to be read and written, by their address.
///
/// ```
/// use nexar_collectives::{DataType, MemorySpace, RawSliceMut, ReduceOp, Result, run_local};
///
/// fn main() -> Result<()> {
///     run_local(3, async |comm| {
///         let mut data = [comm.rank() as f32 + 1.0; 4];
///         let raw = RawSliceMut {
///             pointer: data.as_mut_ptr().cast(),
///             count: data.len(),
///             dtype: DataType::F32,
///             space: MemorySpace::Host,
///             stream: 0,
///         };
///         // SAFETY: the data is initialised and outlives the call, and nobody else accesses it meanwhile.
///         unsafe { comm.all_reduce_raw(raw, ReduceOp::Sum) }.await?;
///         assert_eq!(data, [6.0; 4]);
///         Ok(())
///     })?;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RawSliceMut {
    /// The first element, at any alignment. It may be null if there are no elements.
    pub pointer: *mut u8,
    /// Number of elements.
    pub count: usize,
    /// Their type.
    pub dtype: DataType,
    /// Where they lie.
    pub space: MemorySpace,
    /// The stream of the device in whose order they are written, by the number of its handle; 0 for the default stream,
    /// and in host memory.
    pub stream: u64,
}

/// The length in bytes of a slice.
fn bytes(operation: &'static str, null: bool, count: usize, dtype: DataType) -> Result<usize> {
    let invalid = |reason: String| Error::InvalidArgument { operation, reason };
    if null && count > 0 {
        return Err(invalid(format!("the pointer to {count} elements is null")));
    }
    let length = count.checked_mul(dtype.size());
    let length = length.filter(|length| isize::try_from(*length).is_ok());
    length.ok_or_else(|| {
        invalid(format!(
            "{count} elements of {dtype} are more than memory has"
        ))
    })
}

impl RawSliceMut {
    /// Opens memory that is not the host's.
    ///
    /// # Safety
    ///
    /// As for the operations.
    unsafe fn open<D: DeviceAdapter>(
        self,
        operation: &'static str,
        device: &D,
        length: usize,
    ) -> Result<Access<D::Queue>> {
        // SAFETY: the caller vouches for the memory, as long as the operation uses it.
        let region = unsafe { Region::from_raw(self.pointer, length, self.space, self.stream, ()) };
        let opened = device.open(region);
        opened.map_err(|error| Error::Device {
            operation,
            source: Arc::new(error),
        })
    }

    /// # Safety
    ///
    /// As for the operations: the memory is initialised, and nobody else accesses it as long as the output
    /// lives.
    unsafe fn output<'a, D: DeviceAdapter>(
        self,
        operation: &'static str,
        device: &D,
    ) -> Result<Output<'a, D::Queue>> {
        let (pointer, len) = (self.pointer, self.count);
        let length = bytes(operation, pointer.is_null(), len, self.dtype)?;
        let bytes = match (length, self.space) {
            (0, _) => Target::none(),
            (_, MemorySpace::Host) => {
                // SAFETY: the caller vouches for the memory; the pointer is not null, and the length is possible.
                Target::Host(unsafe { slice::from_raw_parts_mut(pointer, length) })
            }
            // SAFETY: as above.
            _ => unsafe {
                Target::opened(self.open(operation, device, length)?, device.capabilities())
            },
        };
        Ok(Output { bytes, len })
    }
}

impl RawSlice {
    /// # Safety
    ///
    /// As for the operations: the memory is initialised, and nobody writes it as long as the input lives.
    unsafe fn input<'a, D: DeviceAdapter>(
        self,
        operation: &'static str,
        device: &D,
    ) -> Result<Input<'a, D::Queue>> {
        let RawSlice {
            pointer,
            count: len,
            dtype,
            space,
            stream,
        } = self;
        let length = bytes(operation, pointer.is_null(), len, dtype)?;
        let bytes = match (length, space) {
            (0, _) => Source::none(),
            (_, MemorySpace::Host) => {
                // SAFETY: the caller vouches for the memory; the pointer is not null, and the length is possible.
                Source::Host(unsafe { slice::from_raw_parts(pointer, length) })
            }
            _ => {
                let region = RawSliceMut {
                    pointer: pointer.cast_mut(),
                    count: len,
                    dtype,
                    space,
                    stream,
                };
                // SAFETY: as above; the region is only read.
                let access = unsafe { region.open(operation, device, length)? };
                Source::opened(access, device.capabilities())
            }
        };
        Ok(Input { bytes, len })
    }
}

fn same_type(operation: &'static str, one: DataType, other: DataType) -> Result<DataType> {
    if one == other {
        return Ok(one);
    }
    let reason = format!("the buffers have different types, {one} and {other}");
    Err(Error::InvalidArgument { operation, reason })
}

/// The operations on memory that is given by its address.
///
/// Memory of a device is reached through the communicator's adapter, as [`OnDevice`](crate::OnDevice) says. If the future
/// of such an operation is dropped before it is done, copies may still be under way: where that can happen, give the
/// memory an owner with [`Region::from_raw`], and use the operations on buffers.
impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    async fn run_raw(&self, request: Result<Request<'_, D::Queue>>) -> Result<()> {
        let request = request.map_err(|error| self.engine().unprepared(error))?;
        self.engine().run(request).await
    }

    /// Replaces the data on every rank by that of `root`, as [`broadcast`](Self::broadcast) does, in memory that is
    /// given by its address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`broadcast`](Self::broadcast); also [`Error::InvalidArgument`] for a null pointer, buffers of
    /// different types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn broadcast_raw(
        &self,
        data: RawSliceMut,
        root: usize,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            // SAFETY: the caller promises it.
            let output = unsafe { data.output("broadcast", &self.device)? };
            self.place()
                .broadcast(Elements::Moved(data.dtype), output, root)
        };
        self.run_raw(request())
    }

    /// Reduces into the data of `root`, as [`reduce`](Self::reduce) does, in memory that is given by its address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`reduce`](Self::reduce); also [`Error::InvalidArgument`] for a null pointer, buffers of different
    /// types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn reduce_raw(
        &self,
        data: RawSliceMut,
        op: ReduceOp,
        root: usize,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            // SAFETY: the caller promises it.
            let output = unsafe { data.output("reduce", &self.device)? };
            self.place().reduce(reduced(data.dtype, op)?, output, root)
        };
        self.run_raw(request())
    }

    /// Reduces into the data of every rank, as [`all_reduce`](Self::all_reduce) does, in memory that is given by
    /// its address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`all_reduce`](Self::all_reduce); also [`Error::InvalidArgument`] for a null pointer, buffers of
    /// different types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn all_reduce_raw(
        &self,
        data: RawSliceMut,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            // SAFETY: the caller promises it.
            let output = unsafe { data.output("all_reduce", &self.device)? };
            Ok(self.place().all_reduce(reduced(data.dtype, op)?, output))
        };
        self.run_raw(request())
    }

    /// Reduces the data of the ranks up to this one, as [`scan`](Self::scan) does, in memory that is given by its
    /// address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`scan`](Self::scan); also [`Error::InvalidArgument`] for a null pointer, buffers of different
    /// types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn scan_raw(
        &self,
        data: RawSliceMut,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            // SAFETY: the caller promises it.
            let output = unsafe { data.output("scan", &self.device)? };
            self.place().scan(reduced(data.dtype, op)?, output, false)
        };
        self.run_raw(request())
    }

    /// Reduces the data of the ranks below this one, as [`exclusive_scan`](Self::exclusive_scan) does, in memory
    /// that is given by its address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`exclusive_scan`](Self::exclusive_scan); also [`Error::InvalidArgument`] for a null pointer,
    /// buffers of different types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn exclusive_scan_raw(
        &self,
        data: RawSliceMut,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            // SAFETY: the caller promises it.
            let output = unsafe { data.output("exclusive_scan", &self.device)? };
            self.place().scan(reduced(data.dtype, op)?, output, true)
        };
        self.run_raw(request())
    }

    /// Gathers the input of all ranks on every rank, as [`all_gather`](Self::all_gather) does, in memory that is
    /// given by its address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather); also [`Error::InvalidArgument`] for a null pointer, buffers of
    /// different types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn all_gather_raw(
        &self,
        input: RawSlice,
        output: RawSliceMut,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            let dtype = same_type("all_gather", input.dtype, output.dtype)?;
            // SAFETY: the caller promises it.
            let (input, output) = unsafe {
                (
                    input.input("all_gather", &self.device)?,
                    output.output("all_gather", &self.device)?,
                )
            };
            self.place()
                .all_gather(Elements::Moved(dtype), input, output)
        };
        self.run_raw(request())
    }

    /// Gathers the input of all ranks on `root`, as [`gather`](Self::gather) does, in memory that is given by its
    /// address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Self::gather); also [`Error::InvalidArgument`] for a null pointer, buffers of different
    /// types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn gather_raw(
        &self,
        input: RawSlice,
        output: RawSliceMut,
        root: usize,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            let dtype = same_type("gather", input.dtype, output.dtype)?;
            // SAFETY: the caller promises it.
            let (input, output) = unsafe {
                (
                    input.input("gather", &self.device)?,
                    output.output("gather", &self.device)?,
                )
            };
            self.place()
                .gather(Elements::Moved(dtype), input, output, root)
        };
        self.run_raw(request())
    }

    /// Scatters the blocks of the input of `root`, as [`scatter`](Self::scatter) does, in memory that is given by
    /// its address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`scatter`](Self::scatter); also [`Error::InvalidArgument`] for a null pointer, buffers of different
    /// types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn scatter_raw(
        &self,
        input: RawSlice,
        output: RawSliceMut,
        root: usize,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            let dtype = same_type("scatter", input.dtype, output.dtype)?;
            // SAFETY: the caller promises it.
            let (input, output) = unsafe {
                (
                    input.input("scatter", &self.device)?,
                    output.output("scatter", &self.device)?,
                )
            };
            self.place()
                .scatter(Elements::Moved(dtype), input, output, root)
        };
        self.run_raw(request())
    }

    /// Reduces the input of all ranks and scatters the result, as [`reduce_scatter`](Self::reduce_scatter) does, in
    /// memory that is given by its address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`reduce_scatter`](Self::reduce_scatter); also [`Error::InvalidArgument`] for a null pointer,
    /// buffers of different types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn reduce_scatter_raw(
        &self,
        input: RawSlice,
        output: RawSliceMut,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            let dtype = same_type("reduce_scatter", input.dtype, output.dtype)?;
            // SAFETY: the caller promises it.
            let (input, output) = unsafe {
                (
                    input.input("reduce_scatter", &self.device)?,
                    output.output("reduce_scatter", &self.device)?,
                )
            };
            self.place()
                .reduce_scatter(reduced(dtype, op)?, input, output)
        };
        self.run_raw(request())
    }

    /// Exchanges a block with every rank, as [`all_to_all`](Self::all_to_all) does, in memory that is given by its
    /// address.
    ///
    /// # Safety
    ///
    /// Until the future is done or dropped, the memory is alive and initialised, nobody writes a [`RawSlice`] and
    /// nobody else accesses a [`RawSliceMut`], and the two do not overlap. A bool is 0 or 1. Memory of a device lies where
    /// the slice says, is alive until all copies have ended, and its stream exists when this is called.
    ///
    /// # Errors
    ///
    /// Those of [`all_to_all`](Self::all_to_all); also [`Error::InvalidArgument`] for a null pointer, buffers of
    /// different types; [`Error::Device`] for memory that the device adapter does not reach.
    pub unsafe fn all_to_all_raw(
        &self,
        input: RawSlice,
        output: RawSliceMut,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let request = || {
            let dtype = same_type("all_to_all", input.dtype, output.dtype)?;
            // SAFETY: the caller promises it.
            let (input, output) = unsafe {
                (
                    input.input("all_to_all", &self.device)?,
                    output.output("all_to_all", &self.device)?,
                )
            };
            self.place()
                .all_to_all(Elements::Moved(dtype), input, output)
        };
        self.run_raw(request())
    }
}
