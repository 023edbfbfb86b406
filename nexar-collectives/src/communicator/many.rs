//! All-reduce of several buffers at once.

use super::{
    Communicator,
    requests::{Output, reduced},
};
use crate::{
    digest::digest,
    engine::{Elements, Engine, Turn},
};
use nexar_core::{Collective, Element, ReduceOp, Result, transport::Transport};
use nexar_device::{DeviceAdapter, ExecutionQueue};
use std::ops::Range;

/// Bytes that are reduced together, unless one buffer alone is longer.
pub(super) const BUCKET: usize = 4 << 20;

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_reduce_many.md")]
    pub async fn all_reduce_many<E: Element, B: AsMut<[E]>>(
        &self,
        buffers: &mut [B],
        op: ReduceOp,
    ) -> Result<()> {
        let mut buffers: Vec<&mut [E]> = buffers.iter_mut().map(AsMut::as_mut).collect();
        let mut turn = self.engine().turn().await;
        all_reduce_many(self.engine(), &mut turn, &mut buffers, op).await
    }
}

pub(super) async fn all_reduce_many<T: Transport, E: Element>(
    engine: &Engine<T>,
    turn: &mut Turn<T>,
    buffers: &mut [&mut [E]],
    op: ReduceOp,
) -> Result<()> {
    let elements = reduced(E::DATA_TYPE, op)?;
    let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
    let layout = digest(lengths.iter().map(|length| *length as u64));
    let mut bucket = Vec::new();
    for range in buckets(&lengths, BUCKET / size_of::<E>()) {
        if let [alone] = &mut buffers[range.clone()] {
            reduce_bucket(engine, turn, elements, Output::of(alone), layout).await?;
            continue;
        }
        bucket.clear();
        for buffer in &buffers[range.clone()] {
            bucket.extend_from_slice(buffer);
        }
        reduce_bucket(engine, turn, elements, Output::of(&mut bucket), layout).await?;
        let mut rest = &bucket[..];
        for buffer in &mut buffers[range] {
            let (reduced, others) = rest.split_at(buffer.len());
            buffer.copy_from_slice(reduced);
            rest = others;
        }
    }
    Ok(())
}

pub(super) async fn reduce_bucket<T: Transport, Q: ExecutionQueue>(
    engine: &Engine<T>,
    turn: &mut Turn<T>,
    elements: Elements<'_>,
    bucket: Output<'_, Q>,
    layout: u64,
) -> Result<()> {
    let mut request = engine.place().all_reduce(elements, bucket);
    request.collective = Collective::AllReduceMany;
    request.digest = layout;
    engine.run_in(turn, request).await.map(|_| ())
}

/// Consecutive buffers that are reduced together: at least one, and no more than `limit` elements unless it is
/// one. At least one bucket, so that calls without elements are compared, too.
pub(super) fn buckets(lengths: &[usize], limit: usize) -> Vec<Range<usize>> {
    let mut buckets = Vec::new();
    let (mut start, mut filled) = (0, 0usize);
    for (at, length) in lengths.iter().enumerate() {
        if at > start && filled.saturating_add(*length) > limit {
            buckets.push(start..at);
            (start, filled) = (at, 0);
        }
        filled = filled.saturating_add(*length);
    }
    buckets.push(start..lengths.len());
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_full_but_not_too_full() {
        let ends = |lengths: &[usize]| -> Vec<usize> {
            let buckets = buckets(lengths, 10);
            assert_eq!(buckets[0].start, 0);
            buckets.into_iter().map(|bucket| bucket.end).collect()
        };
        assert_eq!(ends(&[]), [0]);
        assert_eq!(ends(&[0, 0]), [2]);
        assert_eq!(ends(&[4, 6, 1]), [2, 3]);
        assert_eq!(ends(&[30, 1, 2, 30]), [1, 3, 4]);
        assert_eq!(ends(&[usize::MAX, usize::MAX]), [1, 2]);
    }
}
