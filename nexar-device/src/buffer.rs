//! Typed buffers in the memory of a device.

use crate::{
    adapter::{Access, DeviceAdapter, DeviceError, ExecutionQueue},
    copy::{CopyIn, CopyOut},
    reduce,
    region::{MemorySpace, Region},
};
use nexar_core::{DataType, Element, as_bytes_mut};
use std::{
    fmt,
    future::poll_fn,
    marker::PhantomData,
    task::{Poll, ready},
};

/// Elements in memory that an adapter reaches, such as that of a GPU.
///
/// The buffer owns its memory, or shares it with the parts that it was [split](Self::split_at) into. An operation
/// that is dropped before it is done leaves the memory alive until its last copy is over, whatever happens to the
/// buffer.
///
/// # Streams
///
/// Work that was enqueued on [`stream`](Self::stream) before a method or an operation is called comes before what
/// that does; the call does not wait for it. When the future is done, so is all that it did: whatever is enqueued
/// then, on any stream, comes after it. Until then, no work of one's own may touch the buffer.
///
/// The stream is 0 at first, the default stream of a device, which for CUDA comes after all work on all streams
/// that were not created as non-blocking.
///
/// ```
/// use nexar_device::{CpuAdapter, DeviceBuffer, MemorySpace};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nexar_device::DeviceError> {
/// let mut buffer = DeviceBuffer::<f32, _>::zeroed(&CpuAdapter, MemorySpace::Host, 3)?;
/// buffer.copy_from(&[1.0, 2.0, 3.0]).await?;
/// let mut back = [0.0; 3];
/// buffer.copy_to(&mut back).await?;
/// assert_eq!(back, [1.0, 2.0, 3.0]);
/// # Ok(())
/// # }
/// ```
pub struct DeviceBuffer<E: Element, D: DeviceAdapter> {
    adapter: D,
    region: Region,
    len: usize,
    elements: PhantomData<E>,
}

impl<E: Element, D: DeviceAdapter> DeviceBuffer<E, D> {
    /// Allocates `len` elements in `space`, all zero.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceAdapter::allocate`]; [`DeviceError::Length`] if that are more bytes than memory can have, or
    /// the adapter gives another length.
    pub fn zeroed(adapter: &D, space: MemorySpace, len: usize) -> Result<Self, DeviceError> {
        let bytes = len
            .checked_mul(size_of::<E>())
            .filter(|bytes| isize::try_from(*bytes).is_ok());
        let Some(bytes) = bytes else {
            let what = format!("length of {len} elements of {}", E::DATA_TYPE);
            return Err(DeviceError::Length {
                bytes: usize::MAX,
                what,
            });
        };
        let region = adapter.allocate(space, bytes)?;
        // An adapter is safe code, and the length is what keeps parts of the buffer in its memory.
        if region.len() != bytes {
            let what = format!(
                "allocation of {bytes} bytes, as {} was asked for",
                adapter.name()
            );
            return Err(DeviceError::Length {
                bytes: region.len(),
                what,
            });
        }
        Ok(DeviceBuffer {
            region,
            adapter: adapter.clone(),
            len,
            elements: PhantomData,
        })
    }

    /// Allocates elements in `space` and copies `data` there.
    ///
    /// # Errors
    ///
    /// Those of [`zeroed`](Self::zeroed) and [`copy_from`](Self::copy_from).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future frees the memory.
    pub async fn from_slice(
        adapter: &D,
        space: MemorySpace,
        data: &[E],
    ) -> Result<Self, DeviceError> {
        let mut buffer = Self::zeroed(adapter, space, data.len())?;
        buffer.copy_from(data).await?;
        Ok(buffer)
    }

    /// A buffer of memory that something else has allocated.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Length`] if the region holds a part of an element; [`DeviceError::Unreachable`] if the
    /// adapter knows that it does not lie in its space.
    ///
    /// # Safety
    ///
    /// What [`Region::from_raw`] asks for, with regard to this adapter. Work of one's own may touch the memory in
    /// between, as for any buffer: what is enqueued before an operation is called, on the region's stream,
    /// and what is enqueued after it is done.
    pub unsafe fn from_region(adapter: &D, region: Region) -> Result<Self, DeviceError> {
        let (bytes, space) = (region.len(), region.space());
        if !bytes.is_multiple_of(size_of::<E>()) {
            let what = format!("multiple of an element of {}", E::DATA_TYPE);
            return Err(DeviceError::Length { bytes, what });
        }
        let found = adapter.space_of(region.address());
        if bytes > 0 && found != Some(space) {
            return Err(DeviceError::Unreachable {
                adapter: adapter.name(),
                what: format!("{bytes} bytes at {:?}", region.address()),
                space,
            });
        }
        Ok(DeviceBuffer {
            adapter: adapter.clone(),
            region,
            len: bytes / size_of::<E>(),
            elements: PhantomData,
        })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the elements lie.
    pub fn space(&self) -> MemorySpace {
        self.region.space()
    }

    /// The address of the first element, for kernels of one's own. It means nothing to the host unless the memory
    /// is the host's.
    pub fn address(&self) -> u64 {
        self.region.address().addr() as u64
    }

    /// The stream in whose order operations on the buffer come; see [above](Self#streams).
    pub fn stream(&self) -> u64 {
        self.region.stream()
    }

    /// The same buffer, whose operations come in the order of `stream`, by the number of its handle.
    ///
    /// # Safety
    ///
    /// The stream exists whenever a method or an operation is called with the buffer.
    pub unsafe fn on_stream(mut self, stream: u64) -> Self {
        self.region.set_stream(stream);
        self
    }

    /// The adapter.
    pub fn adapter(&self) -> &D {
        &self.adapter
    }

    /// The first `mid` elements and the others, without a copy. Each part keeps the memory alive; [`join`](Self::join) puts
    /// them together again.
    ///
    /// # Errors
    ///
    /// The buffer, if `mid` is beyond its end.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self), Self> {
        if mid > self.len {
            return Err(self);
        }
        let part = |from: usize, to: usize| DeviceBuffer {
            adapter: self.adapter.clone(),
            region: self.region.part(from * size_of::<E>()..to * size_of::<E>()),
            len: to - from,
            elements: PhantomData,
        };
        Ok((part(0, mid), part(mid, self.len)))
    }

    /// Puts two buffers together that one was [split](Self::split_at) into, without a copy. The stream is that of this one.
    ///
    /// # Errors
    ///
    /// The buffers, if they are not parts of one, or `other` does not begin where this one ends.
    ///
    /// ```
    /// # use nexar_device::{CpuAdapter, DeviceBuffer, MemorySpace};
    /// let buffer = DeviceBuffer::<u8, _>::zeroed(&CpuAdapter, MemorySpace::Host, 10)?;
    /// let (bucket, rest) = buffer.split_at(3).expect("it has 10 elements");
    /// // ... something with each of them ...
    /// let buffer = bucket.join(rest).expect("they are neighbours");
    /// assert_eq!(buffer.len(), 10);
    /// # Ok::<(), nexar_device::DeviceError>(())
    /// ```
    pub fn join(self, other: Self) -> Result<Self, (Self, Self)> {
        let Some(region) = self.region.join(&other.region) else {
            return Err((self, other));
        };
        Ok(DeviceBuffer {
            adapter: self.adapter,
            region,
            len: self.len + other.len,
            elements: PhantomData,
        })
    }

    /// Opens the way to the elements; see [`DeviceAdapter::open`]. For those who write operations on buffers.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceAdapter::open`].
    ///
    /// # Safety
    ///
    /// While the result is used to read, nobody writes the buffer, and while it is used to write, nobody else uses
    /// the buffer at all. What is written are elements: a bool is 0 or 1.
    pub unsafe fn open(&self) -> Result<Access<D::Queue>, DeviceError> {
        self.adapter.open(self.region.part(0..self.region.len()))
    }

    /// Copies all elements to `target`, which has the same length, through the adapter's staging slots.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Length`] if the lengths differ; whatever the device says.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves a part of `target` as it was.
    pub fn copy_to<'a>(
        &'a self,
        target: &'a mut [E],
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'a {
        // SAFETY: it is used for reading, while this is borrowed.
        let access = (self.check(target.len())).and_then(|()| unsafe { self.open() });
        let slots = self.adapter.capabilities().slots;
        async move {
            // SAFETY: `store` writes 0 or 1 for bools.
            let target = unsafe { as_bytes_mut(target) };
            match access? {
                Access::Host(view) => {
                    store(E::DATA_TYPE, target, view.as_ref());
                    Ok(())
                }
                Access::Staged(queue) => copy_out(E::DATA_TYPE, queue, slots, target).await,
            }
        }
    }

    /// Copies all elements of `source`, which has the same length, to the buffer, through the adapter's staging slots.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Length`] if the lengths differ; whatever the device says.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves a part of the buffer as it was.
    pub fn copy_from<'a>(
        &'a mut self,
        source: &'a [E],
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'a {
        // SAFETY: this is borrowed exclusively, and elements are written.
        let access = (self.check(source.len())).and_then(|()| unsafe { self.open() });
        let slots = self.adapter.capabilities().slots;
        async move {
            let source = E::as_bytes(source);
            match access? {
                Access::Host(mut view) => {
                    view.as_mut().copy_from_slice(source);
                    Ok(())
                }
                Access::Staged(queue) => copy_in(queue, slots, source).await,
            }
        }
    }

    fn check(&self, len: usize) -> Result<(), DeviceError> {
        if len == self.len {
            return Ok(());
        }
        let what = format!(
            "slice of {} elements of {}, as the buffer has",
            self.len,
            E::DATA_TYPE
        );
        let bytes = len * size_of::<E>();
        Err(DeviceError::Length { bytes, what })
    }
}

async fn copy_out<Q: ExecutionQueue>(
    dtype: DataType,
    queue: Q,
    slots: usize,
    target: &mut [u8],
) -> Result<(), DeviceError> {
    let (mut copy, mut at) = (CopyOut::new(queue, slots), 0);
    poll_fn(|cx| {
        while at < target.len() {
            let piece = ready!(copy.poll_bytes(cx))?;
            let length = piece.len().min(target.len() - at);
            if length == 0 {
                return Poll::Ready(Err(too_short(at, target.len())));
            }
            store(dtype, &mut target[at..at + length], &piece[..length]);
            copy.consume(length);
            at += length;
        }
        Poll::Ready(Ok(()))
    })
    .await
}

async fn copy_in<Q: ExecutionQueue>(
    queue: Q,
    slots: usize,
    mut source: &[u8],
) -> Result<(), DeviceError> {
    let (mut copy, all) = (CopyIn::new(queue, slots), source.len());
    copy.restart(all);
    poll_fn(|cx| {
        while !source.is_empty() {
            ready!(copy.poll_room(cx))?;
            let room = copy.room();
            let length = room.len();
            if length == 0 {
                return Poll::Ready(Err(too_short(all - source.len(), all)));
            }
            let (now, later) = source.split_at(length);
            room.copy_from_slice(now);
            copy.commit(length);
            source = later;
        }
        copy.poll_done(cx)
    })
    .await
}

/// The adapter's queue has fewer bytes than the buffer.
fn too_short(bytes: usize, buffer: usize) -> DeviceError {
    let what = format!("region of a buffer of {buffer} bytes");
    DeviceError::Length { bytes, what }
}

/// Copies elements of which the bytes come from outside.
fn store(dtype: DataType, target: &mut [u8], source: &[u8]) {
    target.copy_from_slice(source);
    if dtype == DataType::Bool {
        reduce::normalize_bool(target);
    }
}

impl<E: Element, D: DeviceAdapter> fmt::Debug for DeviceBuffer<E, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("dtype", &E::DATA_TYPE)
            .field("len", &self.len)
            .field("space", &self.space())
            .field("adapter", &self.adapter.name())
            .finish_non_exhaustive()
    }
}
