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
    Access, DeviceAdapter, DeviceBuffer, DeviceError, ExecutionQueue, HostView, reduce,
};
use std::{
    collections::VecDeque,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// A buffer that is sent.
struct Reader<Q: ExecutionQueue> {
    memory: Memory<Q>,
    length: usize,
    dtype: DataType,
    /// The first byte that is not being copied to the host yet.
    next: usize,
    copies: VecDeque<(usize, Q::Transfer)>,
    /// A copy that has ended, and what of it was not read yet.
    here: Option<(Q::Slot, Range<usize>)>,
}

/// A buffer that receives.
struct Writer<Q: ExecutionQueue> {
    memory: Memory<Q>,
    capacity: usize,
    dtype: DataType,
    /// Length of the message, and how many bytes of it have been put.
    length: usize,
    next: usize,
    /// What is being filled, and how far it is.
    filling: Option<(Q::Slot, usize)>,
    copies: VecDeque<Q::Transfer>,
}

enum Memory<Q> {
    Host(HostView),
    /// With the number of copies that may be under way.
    Staged(Q, usize),
}

impl<Q: ExecutionQueue> Memory<Q> {
    /// # Safety
    ///
    /// That of [`DeviceBuffer::open`].
    unsafe fn open<E: Element, D: DeviceAdapter<Queue = Q>>(
        operation: &'static str,
        buffer: &DeviceBuffer<E, D>,
    ) -> Result<Self> {
        // SAFETY: as the caller promises.
        let access = unsafe { buffer.open() };
        let slots = buffer.adapter().capabilities().slots;
        Ok(
            match access.map_err(|error| unreachable(operation, error))? {
                Access::Host(view) => Memory::Host(view),
                Access::Staged(queue) => Memory::Staged(queue, (slots / 2).max(1)),
            },
        )
    }
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
        Ok(Reader {
            // SAFETY: the send reads it only while it has the buffer.
            memory: unsafe { Memory::open(operation, buffer) }?,
            length: buffer.len() * size_of::<E>(),
            dtype: E::DATA_TYPE,
            next: 0,
            copies: VecDeque::new(),
            here: None,
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

    /// Begins copies, as many as may be; the last poll for a slot.
    fn load(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), DeviceError>> {
        let Memory::Staged(queue, limit) = &mut self.memory else {
            return Poll::Ready(Ok(()));
        };
        while self.next < self.length
            && self.copies.len() + usize::from(self.here.is_some()) < *limit
        {
            let slot = ready!(queue.poll_slot(cx))?;
            let end = self.length.min(self.next + slot.as_ref().len());
            let copy = queue.copy_out(self.next..end, slot, 0);
            self.copies.push_back((end - self.next, copy));
            self.next = end;
        }
        Poll::Ready(Ok(()))
    }
}

impl<Q: ExecutionQueue> BodyReader for Reader<Q> {
    fn length(&self) -> usize {
        self.length
    }

    fn begin(&mut self) {
        self.next = 0;
        self.copies.clear();
        self.here = None;
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<std::result::Result<Bytes, MessageFailure>> {
        if let Memory::Host(view) = &self.memory {
            let start = self.next;
            self.next = self.length.min(start + limit);
            let chunk = Bytes::copy_from_slice(&view.as_ref()[start..self.next]);
            return Poll::Ready(Ok(chunk));
        }
        loop {
            if let Poll::Ready(loaded) = self.load(cx) {
                loaded.map_err(failed)?;
            }
            if let Some((slot, left)) = &mut self.here {
                let end = left.end.min(left.start + limit);
                let chunk = Bytes::copy_from_slice(&slot.as_ref()[left.start..end]);
                left.start = end;
                if left.start == left.end {
                    self.here = None;
                }
                return Poll::Ready(Ok(chunk));
            }
            let Some((length, copy)) = self.copies.front_mut() else {
                // It waits for a slot.
                return Poll::Pending;
            };
            let slot = ready!(Pin::new(copy).poll(cx)).map_err(failed)?;
            self.here = Some((slot, 0..*length));
            self.copies.pop_front();
        }
    }

    fn advance(&mut self, cx: &mut Context<'_>) {
        // An error shows again when the next chunk is read.
        let _ = self.load(cx);
    }
}

impl<Q: ExecutionQueue> Writer<Q> {
    /// For a receive that has the buffer as long as it is written.
    fn new<E: Element, D: DeviceAdapter<Queue = Q>>(
        operation: &'static str,
        buffer: &mut DeviceBuffer<E, D>,
    ) -> Result<Self> {
        Ok(Writer {
            // SAFETY: the receive uses it only while it has the buffer, and `store` writes elements.
            memory: unsafe { Memory::open(operation, buffer) }?,
            capacity: buffer.len() * size_of::<E>(),
            dtype: E::DATA_TYPE,
            length: 0,
            next: 0,
            filling: None,
            copies: VecDeque::new(),
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

    /// Ready when fewer than `most` copies are under way.
    fn poll_copies(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<std::result::Result<(), MessageFailure>> {
        while let Some(copy) = self.copies.front_mut() {
            match Pin::new(copy).poll(cx) {
                Poll::Ready(copied) => copied.map_err(failed)?,
                Poll::Pending if self.copies.len() < most => break,
                Poll::Pending => return Poll::Pending,
            };
            self.copies.pop_front();
        }
        Poll::Ready(Ok(()))
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
        (self.length, self.next, self.filling) = (length, 0, None);
        // Copies of what is void come before those that follow.
        self.copies.clear();
        Ok(())
    }

    fn put(&mut self, chunk: &[u8]) {
        let chunk = &chunk[..chunk.len().min(self.length - self.next)];
        let (start, end) = (self.next, self.next + chunk.len());
        self.next = end;
        match &mut self.memory {
            Memory::Host(view) => store(self.dtype, &mut view.as_mut()[start..end], chunk),
            Memory::Staged(queue, _) => {
                let Some((mut slot, filled)) = self.filling.take() else {
                    return;
                };
                let full = filled + chunk.len();
                store(self.dtype, &mut slot.as_mut()[filled..full], chunk);
                if end < self.length && full < slot.as_ref().len() {
                    self.filling = Some((slot, full));
                } else {
                    let copy = queue.copy_in(slot, 0, end - full..end);
                    self.copies.push_back(copy);
                }
            }
        }
    }

    fn waits(&self) -> bool {
        matches!(self.memory, Memory::Staged(..))
    }

    fn poll_room(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<std::result::Result<usize, MessageFailure>> {
        let Memory::Staged(_, limit) = &self.memory else {
            return Poll::Ready(Ok(usize::MAX));
        };
        let limit = *limit;
        ready!(self.poll_copies(cx, limit))?;
        if self.filling.is_none()
            && let Memory::Staged(queue, _) = &mut self.memory
        {
            let slot = ready!(queue.poll_slot(cx)).map_err(failed)?;
            self.filling = Some((slot, 0));
        }
        let room = |(slot, filled): &(Q::Slot, usize)| slot.as_ref().len() - filled;
        Poll::Ready(Ok(self.filling.as_ref().map_or(0, room)))
    }

    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), MessageFailure>> {
        self.poll_copies(cx, 0)
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
    /// What is sent at once, up to 64 KiB, is copied to the host first, and takes its place in the order of messages then.
    /// A longer message is copied a piece at a time, while others are on their way, once the receiver takes it. One to
    /// the own rank is copied to the host as a whole.
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
    /// stay as they are.
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
    /// buffer's stream now.
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
