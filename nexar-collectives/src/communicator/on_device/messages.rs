//! Messages between the memory of devices.

use super::{OnDevice, unreachable};
use crate::Started;
use bytes::Bytes;
use nexar_core::{
    DataType, Element, Result,
    messaging::{BodyReader, BodyWriter, MessageFailure, Messenger, Received, Source, Tag},
    transport::Transport,
};
use nexar_device::{
    Access, CopyIn, CopyOut, DeviceAdapter, DeviceBuffer, DeviceError, ExecutionQueue, HostView,
    reduce,
};
use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// A buffer that is sent.
struct Reader<Q: ExecutionQueue> {
    memory: Readable<Q>,
    length: usize,
    dtype: DataType,
}

enum Readable<Q: ExecutionQueue> {
    /// With the byte that comes next.
    Host(HostView, usize),
    Staged(CopyOut<Q>),
}

/// A buffer that receives.
struct Writer<Q: ExecutionQueue> {
    memory: Writable<Q>,
    capacity: usize,
    dtype: DataType,
    /// Bytes of the message that were not put yet.
    left: usize,
}

enum Writable<Q: ExecutionQueue> {
    /// With the byte that comes next.
    Host(HostView, usize),
    Staged(CopyIn<Q>),
}

fn failed(error: DeviceError) -> MessageFailure {
    let reason = error.to_string();
    MessageFailure::Device { reason }
}

impl<Q: ExecutionQueue> Reader<Q> {
    /// For a send that has the buffer as long as it is read.
    fn new<E: Element, D: DeviceAdapter<Queue = Q>>(
        operation: &'static str,
        buffer: &DeviceBuffer<E, D>,
    ) -> Result<Self> {
        let slots = buffer.adapter().capabilities().slots;
        // SAFETY: the send reads it only while it has the buffer.
        let access = unsafe { buffer.open() };
        let memory = match access.map_err(|error| unreachable(operation, error))? {
            Access::Host(view) => Readable::Host(view, 0),
            Access::Staged(queue) => Readable::Staged(CopyOut::new(queue, slots)),
        };
        Ok(Reader {
            memory,
            length: buffer.len() * size_of::<E>(),
            dtype: E::DATA_TYPE,
        })
    }

    async fn send<T: Transport>(
        mut self,
        messages: &Messenger<T>,
        to: usize,
        tag: u64,
    ) -> Result<()> {
        let dtype = Some(self.dtype);
        messages.send_body(to, tag, dtype, &mut self).await
    }
}

impl<Q: ExecutionQueue> BodyReader for Reader<Q> {
    fn length(&self) -> usize {
        self.length
    }

    fn begin(&mut self) {
        match &mut self.memory {
            Readable::Host(_, next) => *next = 0,
            Readable::Staged(copy) => copy.restart(),
        }
    }

    fn pause(&mut self) {
        // Others have a use for the slots.
        self.begin();
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<std::result::Result<Bytes, MessageFailure>> {
        let start = |bytes: &[u8]| Bytes::copy_from_slice(&bytes[..bytes.len().min(limit)]);
        let chunk = match &mut self.memory {
            Readable::Host(view, next) => {
                let chunk = start(&view.as_ref()[*next..]);
                *next += chunk.len();
                chunk
            }
            Readable::Staged(copy) => {
                let chunk = start(ready!(copy.poll_bytes(cx)).map_err(failed)?);
                copy.consume(chunk.len());
                chunk
            }
        };
        Poll::Ready(Ok(chunk))
    }

    fn advance(&mut self, cx: &mut Context<'_>) {
        if let Readable::Staged(copy) = &mut self.memory {
            // An error shows again when the next bytes are read.
            let _ = copy.poll_ahead(cx);
        }
    }
}

impl<Q: ExecutionQueue> Writer<Q> {
    /// For a receive that has the buffer as long as it is written.
    fn new<E: Element, D: DeviceAdapter<Queue = Q>>(
        operation: &'static str,
        buffer: &mut DeviceBuffer<E, D>,
    ) -> Result<Self> {
        let slots = buffer.adapter().capabilities().slots;
        // SAFETY: the receive uses it only while it has the buffer, and `store` writes elements.
        let access = unsafe { buffer.open() };
        let memory = match access.map_err(|error| unreachable(operation, error))? {
            Access::Host(view) => Writable::Host(view, 0),
            Access::Staged(queue) => Writable::Staged(CopyIn::new(queue, slots)),
        };
        Ok(Writer {
            memory,
            capacity: buffer.len() * size_of::<E>(),
            dtype: E::DATA_TYPE,
            left: 0,
        })
    }

    async fn recv<T: Transport>(
        mut self,
        messages: &Messenger<T>,
        source: Source,
        tag: Tag,
    ) -> Result<Received> {
        messages.recv_body(source, tag, &mut self).await
    }
}

impl<Q: ExecutionQueue> BodyWriter for Writer<Q> {
    fn expected(&self) -> Option<DataType> {
        Some(self.dtype)
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn begin(&mut self, length: usize) -> std::result::Result<(), MessageFailure> {
        self.left = length;
        match &mut self.memory {
            Writable::Host(_, next) => *next = 0,
            Writable::Staged(copy) => copy.restart(length),
        }
        Ok(())
    }

    fn put(&mut self, chunk: &[u8]) {
        match &mut self.memory {
            Writable::Host(view, next) => {
                let chunk = &chunk[..chunk.len().min(self.left)];
                let end = *next + chunk.len();
                store(self.dtype, &mut view.as_mut()[*next..end], chunk);
                *next = end;
                self.left -= chunk.len();
            }
            Writable::Staged(copy) => {
                let room = copy.room();
                let length = room.len().min(chunk.len());
                store(self.dtype, &mut room[..length], &chunk[..length]);
                copy.commit(length);
            }
        }
    }

    fn waits(&self) -> bool {
        matches!(self.memory, Writable::Staged(_))
    }

    fn poll_room(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<std::result::Result<usize, MessageFailure>> {
        Poll::Ready(Ok(match &mut self.memory {
            Writable::Host(..) => usize::MAX,
            Writable::Staged(copy) => {
                ready!(copy.poll_room(cx)).map_err(failed)?;
                match copy.room().len() {
                    0 => {
                        let reason = "its queue has fewer bytes than the buffer".into();
                        return Poll::Ready(Err(MessageFailure::Device { reason }));
                    }
                    room => room,
                }
            }
        }))
    }

    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), MessageFailure>> {
        match &mut self.memory {
            Writable::Host(..) => Poll::Ready(Ok(())),
            Writable::Staged(copy) => copy.poll_done(cx).map_err(failed),
        }
    }
}

/// Writes elements, or parts of them, that a peer has sent.
fn store(dtype: DataType, target: &mut [u8], source: &[u8]) {
    target.copy_from_slice(source);
    if dtype == DataType::Bool {
        reduce::normalize_bool(target);
    }
}

/// Messages. What one rank sends from device memory, another can [receive](crate::Communicator::recv) into a slice, and the
/// other way round.
impl<'c, T: Transport, D: DeviceAdapter> OnDevice<'c, T, D> {
    /// [`Communicator::send`](crate::Communicator::send) from device memory.
    ///
    /// What is sent at once, up to 64 KiB, is copied to the host first; messages of the same tag that are sent to the same
    /// rank meanwhile wait behind it, those of other tags do not. A longer message is copied a piece at a time, while
    /// others are on their way, once the receiver takes it. One to the own rank is copied to the host as a whole.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Device`](crate::Error::Device) if the buffer is not where the adapter reaches it;
    /// [`MessageFailure::Device`](crate::MessageFailure::Device) for a device that fails later. The message is then not
    /// sent.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the message is received as a whole or not at all.
    ///
    /// ```
    /// use nexar_collectives::{DeviceBuffer, MemorySpace, Result, run_local};
    ///
    /// fn main() -> Result<()> {
    ///     run_local(2, async |comm| {
    ///         let (device, space) = (comm.device(), MemorySpace::Host);
    ///         if comm.rank() == 0 {
    ///             let activations = DeviceBuffer::from_slice(device, space, &[0.5f32; 100]).await?;
    ///             comm.on_device().send(&activations, 1, 7).await?;
    ///         } else {
    ///             let mut activations = DeviceBuffer::<f32, _>::zeroed(device, space, 100)?;
    ///             let received = comm.on_device().recv(&mut activations, 0, 7).await?;
    ///             assert_eq!(received.count, 100);
    ///         }
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    pub fn send<'a, E: Element>(
        self,
        data: &'a DeviceBuffer<E, D>,
        to: usize,
        tag: u64,
    ) -> impl Future<Output = Result<()>> + Send + 'a
    where
        'c: 'a,
    {
        let reader = Reader::new("send", data);
        async move { reader?.send(&self.comm.shared.messages, to, tag).await }
    }

    /// [`Communicator::recv`](crate::Communicator::recv) into device memory. The elements behind those of the message
    /// stay as they are. A message that is too long for the buffer, or of another element type, is discarded, as there.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Device`](crate::Error::Device) if the buffer is not where the adapter reaches it;
    /// [`MessageFailure::Device`](crate::MessageFailure::Device) for a device that fails later. The message is then still
    /// there.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, no message is consumed: another receive gets it as a whole. The buffer may have been
    /// overwritten in part, then and after an error.
    pub fn recv<'a, E: Element>(
        self,
        buffer: &'a mut DeviceBuffer<E, D>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> impl Future<Output = Result<Received>> + Send + 'a
    where
        'c: 'a,
    {
        let writer = Writer::new("recv", buffer);
        let (source, tag) = (source.into(), tag.into());
        async move {
            let messages = &self.comm.shared.messages;
            writer?.recv(messages, source, tag).await
        }
    }

    /// [`Communicator::send_recv`](crate::Communicator::send_recv) on device memory.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send) and [`recv`](Self::recv). Where one half fails, the other is carried out all the
    /// same; where both do, the error is that of the send.
    ///
    /// # Cancel safety
    ///
    /// Not safe: if it is dropped, either half may have been carried out, and a message that had been received by then
    /// is lost. The communicator goes on.
    pub fn send_recv<'a, S: Element, R: Element>(
        self,
        data: &'a DeviceBuffer<S, D>,
        to: usize,
        send_tag: u64,
        buffer: &'a mut DeviceBuffer<R, D>,
        source: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> impl Future<Output = Result<Received>> + Send + 'a
    where
        'c: 'a,
    {
        let halves = Reader::new("send_recv", data)
            .and_then(|reader| Ok((reader, Writer::new("send_recv", buffer)?)));
        let (source, recv_tag) = (source.into(), recv_tag.into());
        async move {
            let (mut reader, mut writer) = halves?;
            let (outgoing, incoming) = ((to, send_tag, Some(reader.dtype)), (source, recv_tag));
            let messages = &self.comm.shared.messages;
            messages
                .send_recv_body(outgoing, &mut reader, incoming, &mut writer)
                .await
        }
    }

    /// Starts a [`send`](Self::send) of a buffer of its own and gives it back. It comes after the work that is on the
    /// buffer's stream now. Sends of one tag that are started, of slices as well, leave in the order in which they were
    /// started; a send that is awaited meanwhile may overtake them.
    pub fn start_send<E: Element>(
        self,
        data: DeviceBuffer<E, D>,
        to: usize,
        tag: u64,
    ) -> Started<DeviceBuffer<E, D>> {
        let reader = Reader::new("send", &data);
        let shared = Arc::clone(self.comm.shared());
        self.comm.start_task("send", async move {
            reader?.send(&shared.messages, to, tag).await?;
            Ok(data)
        })
    }

    /// Starts a [`recv`](Self::recv) into a buffer of its own and gives it back. Dropping the result does not take the
    /// receive back: its message is lost.
    pub fn start_recv<E: Element>(
        self,
        mut buffer: DeviceBuffer<E, D>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Started<(Received, DeviceBuffer<E, D>)> {
        let writer = Writer::new("recv", &mut buffer);
        let (source, tag) = (source.into(), tag.into());
        let shared = Arc::clone(self.comm.shared());
        self.comm.start_task("recv", async move {
            let received = writer?.recv(&shared.messages, source, tag).await?;
            Ok((received, buffer))
        })
    }
}
