//! Passes over all of a region.

use super::Staged;
use nexar_device::{ExecutionQueue, reduce::ReduceError};
use std::{collections::VecDeque, future::poll_fn, task::Poll};

/// What a pass does with each piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// It reads what the region is to hold at the start.
    Read,
    /// It writes every byte.
    Write,
    /// It reads and writes what the region holds.
    Update,
}

impl<Q: ExecutionQueue> Staged<Q> {
    /// Calls `f` with each piece of the region and its first byte, in order, while other pieces are loaded and written
    /// back. No page is held before and afterwards.
    pub(crate) async fn pass(
        &mut self,
        pass: Pass,
        mut f: impl FnMut(usize, &mut [u8]) -> Result<(), ReduceError>,
    ) -> Result<(), String> {
        let length = self.queue.region_len();
        let (mut loads, mut stores) = (VecDeque::new(), VecDeque::new());
        let mut start = 0;
        while start < length || !loads.is_empty() || !stores.is_empty() {
            let under_way = loads.len() + stores.len();
            let mut slot = None;
            if start < length && under_way <= self.limit {
                slot = poll_fn(|cx| match self.queue.poll_slot(cx) {
                    Poll::Ready(slot) => Poll::Ready(slot.map(Some)),
                    // Waiting for a slot while holding one might last for ever.
                    Poll::Pending if under_way > 0 => Poll::Ready(Ok(None)),
                    Poll::Pending => Poll::Pending,
                })
                .await
                .map_err(|error| error.to_string())?;
            }
            if let Some(mut slot) = slot {
                let range = start..length.min(start + self.page);
                start = range.end;
                if pass == Pass::Write {
                    let piece = &mut slot.as_mut()[..range.len()];
                    f(range.start, piece).map_err(|error| error.to_string())?;
                    stores.push_back(self.queue.copy_in(slot, 0, range));
                    continue;
                }
                let queue = match (pass, &mut self.from) {
                    (Pass::Read, Some(from)) => from,
                    _ => &mut self.queue,
                };
                loads.push_back((range.clone(), queue.copy_out(range, slot, 0)));
            } else if let Some((range, load)) = loads.pop_front() {
                let mut slot = load.await.map_err(|error| error.to_string())?;
                let piece = &mut slot.as_mut()[..range.len()];
                f(range.start, piece).map_err(|error| error.to_string())?;
                if pass == Pass::Update {
                    stores.push_back(self.queue.copy_in(slot, 0, range));
                }
            } else if let Some(store) = stores.pop_front() {
                store.await.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}
