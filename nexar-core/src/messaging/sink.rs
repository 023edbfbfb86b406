//! Where received messages go.

use super::{body::BodyWriter, error::MessageFailure};
use crate::{DataType, Element, as_bytes_mut};
use bytes::Bytes;

/// Into slices, one after the other.
pub(super) struct IntoParts<'a, 'b, E> {
    parts: &'a mut [&'b mut [E]],
    expected: Option<DataType>,
    /// The part that is filled next, and how many bytes of it are.
    at: (usize, usize),
}

impl<'a, 'b> IntoParts<'a, 'b, u8> {
    /// The bytes of messages of any type.
    pub(super) fn of_any_type(parts: &'a mut [&'b mut [u8]]) -> Self {
        IntoParts {
            expected: None,
            ..IntoParts::new(parts)
        }
    }
}

impl<'a, 'b, E: Element> IntoParts<'a, 'b, E> {
    pub(super) fn new(parts: &'a mut [&'b mut [E]]) -> Self {
        IntoParts {
            parts,
            expected: Some(E::DATA_TYPE),
            at: (0, 0),
        }
    }
}

impl<E: Element> BodyWriter for IntoParts<'_, '_, E> {
    fn expected(&self) -> Option<DataType> {
        self.expected
    }

    fn capacity(&self) -> usize {
        self.parts.iter().map(|part| size_of_val(&**part)).sum()
    }

    fn begin(&mut self, _length: usize) -> Result<(), MessageFailure> {
        self.at = (0, 0);
        Ok(())
    }

    fn put(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty()
            && let Some(part) = self.parts.get_mut(self.at.0)
        {
            // SAFETY: the bytes are written by `store` only, which writes what is valid for `E`.
            let part = unsafe { as_bytes_mut(part) };
            let room = &mut part[self.at.1..];
            let (now, later) = chunk.split_at(room.len().min(chunk.len()));
            store::<E>(&mut room[..now.len()], now);
            self.at.1 += now.len();
            if self.at.1 == part.len() {
                self.at = (self.at.0 + 1, 0);
            }
            chunk = later;
        }
    }
}

/// Overwrites elements, or parts of them, by what a peer sent. Whatever that is, each byte written is valid for `E`:
/// of a bool, anything but 0 counts as 1.
fn store<E: Element>(to: &mut [u8], from: &[u8]) {
    if E::DATA_TYPE == DataType::Bool {
        for (to, from) in to.iter_mut().zip(from) {
            *to = u8::from(*from != 0);
        }
    } else {
        to.copy_from_slice(from);
    }
}

/// Into a vector of bytes.
pub(super) struct IntoBytes {
    pub(super) max: usize,
    pub(super) bytes: Vec<u8>,
}

impl BodyWriter for IntoBytes {
    fn capacity(&self) -> usize {
        self.max
    }

    fn begin(&mut self, length: usize) -> Result<(), MessageFailure> {
        self.bytes.clear();
        let reserved = self.bytes.try_reserve_exact(length);
        reserved.map_err(|_| MessageFailure::OutOfMemory { length })
    }

    fn put(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    fn put_whole(&mut self, message: Bytes) {
        self.bytes = message.into();
    }
}

/// Into a vector of elements.
pub(super) struct IntoVec<E> {
    max: usize,
    elements: Vec<E>,
    /// Length of the message in bytes, for which there is room, and how many of them have come.
    length: usize,
    filled: usize,
}

impl<E: Element> IntoVec<E> {
    /// For messages of at most `max` elements.
    pub(super) fn new(max: usize) -> Self {
        IntoVec {
            max,
            elements: Vec::new(),
            length: 0,
            filled: 0,
        }
    }

    /// What was received.
    pub(super) fn into_elements(self) -> Vec<E> {
        self.elements
    }
}

impl<E: Element> BodyWriter for IntoVec<E> {
    fn expected(&self) -> Option<DataType> {
        Some(E::DATA_TYPE)
    }

    fn capacity(&self) -> usize {
        self.max.saturating_mul(size_of::<E>())
    }

    fn begin(&mut self, length: usize) -> Result<(), MessageFailure> {
        self.elements.clear();
        (self.length, self.filled) = (0, 0);
        let count = length.div_ceil(size_of::<E>());
        let reserved = self.elements.try_reserve_exact(count);
        reserved.map_err(|_| MessageFailure::OutOfMemory { length })?;
        self.length = length;
        Ok(())
    }

    fn put(&mut self, chunk: &[u8]) {
        let chunk = &chunk[..chunk.len().min(self.length - self.filled)];
        // SAFETY: the vector has memory for `length` bytes, `filled` is no more than that, and the chunk fits behind. The
        // bytes that become a slice have just been written, and are no elements until the length says so, when each
        // of them is valid for `E`. The chunk is not a part of the vector, which is borrowed mutably.
        unsafe {
            let to = self.elements.as_mut_ptr().cast::<u8>().add(self.filled);
            to.copy_from_nonoverlapping(chunk.as_ptr(), chunk.len());
            if E::DATA_TYPE == DataType::Bool {
                let written = std::slice::from_raw_parts_mut(to, chunk.len());
                written
                    .iter_mut()
                    .for_each(|byte| *byte = u8::from(*byte != 0));
            }
            self.filled += chunk.len();
            self.elements.set_len(self.filled / size_of::<E>());
        }
    }
}

/// To a function.
pub(super) struct IntoVisitor<F> {
    visitor: F,
    begun: bool,
}

impl<F: FnMut(&[u8]) + Send> IntoVisitor<F> {
    pub(super) fn new(visitor: F) -> Self {
        let begun = false;
        IntoVisitor { visitor, begun }
    }
}

impl<F: FnMut(&[u8]) + Send> BodyWriter for IntoVisitor<F> {
    fn capacity(&self) -> usize {
        usize::MAX
    }

    fn begin(&mut self, _length: usize) -> Result<(), MessageFailure> {
        Ok(())
    }

    fn put(&mut self, chunk: &[u8]) {
        self.begun = true;
        (self.visitor)(chunk);
    }

    fn may_begin_again(&self) -> bool {
        !self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands over `bytes` in pieces of each length.
    fn in_pieces(bytes: &[u8], mut check: impl FnMut(&mut dyn FnMut(&mut dyn BodyWriter))) {
        for piece in 1..=bytes.len() {
            check(&mut |sink| {
                sink.begin(bytes.len()).unwrap();
                sink.put(&bytes[..bytes.len() / 2]);
                sink.begin(bytes.len()).unwrap();
                bytes.chunks(piece).for_each(|chunk| sink.put(chunk));
                // What the transport gives beyond the end is left out.
                sink.put(&[0xff]);
            });
        }
    }

    #[test]
    fn pieces_that_end_within_an_element_make_whole_ones() {
        let values: Vec<u32> = (0..7).map(|i| 0x0102_0304 * (i + 1)).collect();
        in_pieces(u32::as_bytes(&values), |fill| {
            let mut into = IntoVec::<u32>::new(7);
            fill(&mut into);
            assert_eq!(into.into_elements(), values);

            let (mut a, mut b, mut c) = ([0; 2], [0; 4], [0; 1]);
            let mut parts: [&mut [u32]; 4] = [&mut a, &mut [], &mut b, &mut c];
            fill(&mut IntoParts::new(&mut parts));
            assert_eq!([&a[..], &b, &c].concat(), values);
        });
    }

    #[test]
    fn a_bool_is_0_or_1_whatever_comes() {
        let garbage = [0, 1, 2, 0x80, 0xff, 0, 7];
        let expected = garbage.map(|byte| byte != 0);
        in_pieces(&garbage, |fill| {
            let mut into = IntoVec::<bool>::new(7);
            fill(&mut into);
            let elements = into.into_elements();
            assert_eq!(elements, expected);
            assert!(bool::as_bytes(&elements).iter().all(|byte| *byte <= 1));

            let mut buffer = [true; 7];
            let mut parts = [&mut buffer[..]];
            fill(&mut IntoParts::new(&mut parts));
            assert_eq!(buffer, expected);
            assert!(bool::as_bytes(&buffer).iter().all(|byte| *byte <= 1));
        });
    }

    #[test]
    fn capacities_are_in_bytes_and_do_not_overflow() {
        assert_eq!(IntoVec::<f64>::new(3).capacity(), 24);
        assert_eq!(IntoVec::<f64>::new(usize::MAX).capacity(), usize::MAX);
        let mut into = IntoVec::<u16>::new(usize::MAX);
        let length = usize::MAX - 1;
        let refused = into.begin(length);
        assert_eq!(refused, Err(MessageFailure::OutOfMemory { length }));
    }
}
