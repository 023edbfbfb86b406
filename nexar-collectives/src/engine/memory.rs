//! The memory of one operation.

use super::staging::{Need, Pass, Staged};
use crate::schedule::{Buffer, Schedule, Span};
use nexar_device::{DeviceError, ExecutionQueue, reduce::ReduceError};
use std::{
    convert::Infallible,
    ops::Range,
    task::{Context, Poll},
};

/// Memory that is only read.
pub(crate) enum Readable<'a, Q: ExecutionQueue = Infallible> {
    Host(&'a [u8]),
    Staged(Staged<Q>),
}

/// Memory that is read and written.
pub(crate) enum Writable<'a, Q: ExecutionQueue = Infallible> {
    Host(&'a mut [u8]),
    Staged(Staged<Q>),
}

impl<Q: ExecutionQueue> Readable<'_, Q> {
    /// Calls `f` with each piece and its first byte, in order.
    pub(crate) async fn pass(
        &mut self,
        mut f: impl FnMut(usize, &[u8]) -> Result<(), ReduceError>,
    ) -> Result<(), String> {
        match self {
            Readable::Host(bytes) => f(0, bytes).map_err(|error| error.to_string()),
            Readable::Staged(staged) => staged.pass(Pass::Read, |at, piece| f(at, piece)).await,
        }
    }
}

impl<Q: ExecutionQueue> Writable<'_, Q> {
    /// Calls `f` with each piece and its first byte, in order. The whole is one piece in host memory.
    pub(crate) async fn pass(
        &mut self,
        pass: Pass,
        mut f: impl FnMut(usize, &mut [u8]) -> Result<(), ReduceError>,
    ) -> Result<(), String> {
        match self {
            Writable::Host(bytes) => f(0, bytes).map_err(|error| error.to_string()),
            Writable::Staged(staged) => staged.pass(pass, f).await,
        }
    }
}

/// The buffers of an operation, as bytes. Spans are in elements of `element` bytes, offsets and lengths in bytes.
pub(crate) struct Memory<'a, Q: ExecutionQueue = Infallible> {
    pub(crate) input: Readable<'a, Q>,
    pub(crate) output: Writable<'a, Q>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) element: usize,
    /// What is copied between two places that are not at hand at the same time.
    pub(crate) bounce: Vec<u8>,
}

impl<'a, Q: ExecutionQueue> Memory<'a, Q> {
    pub(crate) fn new(
        input: Readable<'a, Q>,
        output: Writable<'a, Q>,
        scratch: usize,
        element: usize,
    ) -> Self {
        Memory {
            input,
            output,
            scratch: vec![0; scratch * element],
            element,
            bounce: Vec::new(),
        }
    }

    /// Length of a span in bytes.
    pub(crate) fn length(&self, span: Span) -> usize {
        span.len * self.element
    }

    fn range(&self, span: Span) -> Range<usize> {
        let start = span.start * self.element;
        start..start + self.length(span)
    }

    fn part(&self, span: Span, offset: usize, length: usize) -> Range<usize> {
        let start = span.start * self.element + offset;
        start..start + length
    }

    fn staged(&mut self, buffer: Buffer) -> Option<&mut Staged<Q>> {
        match buffer {
            Buffer::Input => match &mut self.input {
                Readable::Staged(staged) => Some(staged),
                Readable::Host(_) => None,
            },
            Buffer::Output => match &mut self.output {
                Writable::Staged(staged) => Some(staged),
                Writable::Host(_) => None,
            },
            Buffer::Scratch => None,
        }
    }

    fn each_staged(&mut self) -> impl Iterator<Item = &mut Staged<Q>> {
        let input = match &mut self.input {
            Readable::Staged(staged) => Some(staged),
            Readable::Host(_) => None,
        };
        let output = match &mut self.output {
            Writable::Staged(staged) => Some(staged),
            Writable::Host(_) => None,
        };
        input.into_iter().chain(output)
    }

    /// Tells staged memory which of its bytes the schedule will access, and in which order.
    pub(crate) fn plan(&mut self, schedule: &Schedule) {
        if self.each_staged().next().is_none() {
            return;
        }
        for item in &schedule.items {
            for (span, need) in Need::of(&item.action).into_iter().flatten() {
                let range = self.range(span);
                if let Some(staged) = self.staged(span.buffer) {
                    staged.plan(range, need);
                }
            }
        }
        self.each_staged().for_each(Staged::planned);
    }

    /// Goes on with the copies of staged memory; whether something has moved.
    pub(crate) fn poll_copies(&mut self, cx: &mut Context<'_>) -> Result<bool, DeviceError> {
        let mut moved = false;
        for staged in self.each_staged() {
            moved |= staged.poll(cx)?;
        }
        Ok(moved)
    }

    /// Whether copies of staged memory are under way.
    pub(crate) fn is_copying(&mut self) -> bool {
        self.each_staged().any(|staged| staged.is_copying())
    }

    /// Whether staged memory has written back everything.
    pub(crate) fn is_settled(&mut self) -> bool {
        self.each_staged().all(|staged| staged.is_settled())
    }

    /// How many of the next bytes of a span are at hand: all of them in host memory, at least one in staged memory
    /// if it is ready.
    pub(crate) fn poll_at_hand(
        &mut self,
        cx: &mut Context<'_>,
        span: Span,
        offset: usize,
        need: Need,
    ) -> Poll<Result<usize, DeviceError>> {
        let rest = self.part(span, offset, self.length(span) - offset);
        let length = rest.len();
        match self.staged(span.buffer) {
            None => Poll::Ready(Ok(length)),
            Some(staged) => staged.poll_at_hand(cx, rest, need),
        }
    }

    /// Bytes of a span to be read, which are at hand.
    pub(crate) fn read(&self, span: Span, offset: usize, length: usize) -> &[u8] {
        let range = self.part(span, offset, length);
        match span.buffer {
            Buffer::Input => match &self.input {
                Readable::Host(bytes) => &bytes[range],
                Readable::Staged(staged) => staged.read(range),
            },
            Buffer::Output => match &self.output {
                Writable::Host(bytes) => &bytes[range],
                Writable::Staged(staged) => staged.read(range),
            },
            Buffer::Scratch => &self.scratch[range],
        }
    }

    /// Bytes of a span to be changed, which are at hand. The input is never changed.
    pub(crate) fn at_hand(&mut self, span: Span, offset: usize, length: usize) -> &mut [u8] {
        let range = self.part(span, offset, length);
        match span.buffer {
            Buffer::Input => &mut [],
            Buffer::Output => match &mut self.output {
                Writable::Host(bytes) => &mut bytes[range],
                Writable::Staged(staged) => staged.write(range),
            },
            Buffer::Scratch => &mut self.scratch[range],
        }
    }

    /// Notes that an item has done with bytes of a span.
    pub(crate) fn done_with(&mut self, span: Span, offset: usize, length: usize) {
        let range = self.part(span, offset, length);
        if let Some(staged) = self.staged(span.buffer) {
            staged.done_with(range);
        }
    }

    /// Copies as much as is at hand of what is left behind `offset`; how many bytes.
    pub(crate) fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        from: Span,
        to: Span,
        offset: usize,
    ) -> Poll<Result<usize, DeviceError>> {
        if self.staged(from.buffer).is_none() && self.staged(to.buffer).is_none() {
            self.copy(from, to);
            return Poll::Ready(Ok(self.length(from)));
        }
        // What is read is kept until there is room for it: the two need not be at hand at the same time.
        if self.bounce.is_empty() {
            let found = std::task::ready!(self.poll_at_hand(cx, from, offset, Need::Read))?;
            let mut bounce = std::mem::take(&mut self.bounce);
            bounce.extend_from_slice(self.read(from, offset, found));
            self.bounce = bounce;
            self.done_with(from, offset, found);
        }
        let room = std::task::ready!(self.poll_at_hand(cx, to, offset, Need::Write))?;
        let length = room.min(self.bounce.len());
        let bounce = std::mem::take(&mut self.bounce);
        self.at_hand(to, offset, length)
            .copy_from_slice(&bounce[..length]);
        self.done_with(to, offset, length);
        self.bounce = bounce;
        self.bounce.drain(..length);
        Poll::Ready(Ok(length))
    }

    /// Copies within host memory.
    fn copy(&mut self, from: Span, to: Span) {
        let (source, target) = (self.range(from), self.range(to));
        let Writable::Host(output) = &mut self.output else {
            return self.copy_to_scratch(from, to);
        };
        match (from.buffer, to.buffer) {
            (Buffer::Output, Buffer::Output) => output.copy_within(source, target.start),
            (Buffer::Output, Buffer::Scratch) => {
                self.scratch[target].copy_from_slice(&output[source]);
            }
            (Buffer::Scratch, Buffer::Output) => {
                output[target].copy_from_slice(&self.scratch[source]);
            }
            (Buffer::Input, Buffer::Output) => {
                if let Readable::Host(input) = &self.input {
                    output[target].copy_from_slice(&input[source]);
                }
            }
            _ => self.copy_to_scratch(from, to),
        }
    }

    fn copy_to_scratch(&mut self, from: Span, to: Span) {
        let (source, target) = (self.range(from), self.range(to));
        match (from.buffer, to.buffer) {
            (Buffer::Scratch, Buffer::Scratch) => self.scratch.copy_within(source, target.start),
            (Buffer::Input, Buffer::Scratch) => {
                if let Readable::Host(input) = &self.input {
                    self.scratch[target].copy_from_slice(&input[source]);
                }
            }
            _ => {}
        }
    }
}
