//! Device memory in pages of the length of a staging slot, of which few are in host memory at a time.
//!
//! Before an operation starts, its schedule tells which bytes will be accessed, and in which order. From that
//! follows when a page is loaded (ahead of its first access, while there are slots) and when it leaves (after its last).
//! Loading, exchange and reduction, and writing back thus go on at the same time, on different pages. Where an
//! operation needs more pages at a time than there are slots, pages leave before their last access and come again; a page
//! that is granted to an access stays until it was used once, so that one slot is enough to get on.
//!
//! What is written without having been read first is not loaded, and only what was written is written back.

mod pass;
mod ranges;
#[cfg(test)]
mod tests;

use crate::schedule::{Action, Span, Store};
use nexar_device::{Capabilities, DeviceError, ExecutionQueue};
pub(crate) use pass::Pass;
use ranges::Ranges;
use std::{
    future::Future,
    mem,
    ops::Range,
    pin::Pin,
    task::{Context, Poll},
};

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It reads, or reads and writes.
    Read,
    /// It writes without reading.
    Write,
}

impl Need {
    /// The accesses of an action.
    pub(crate) fn of(action: &Action) -> [Option<(Span, Need)>; 2] {
        match *action {
            Action::Send { span, .. } => [Some((span, Need::Read)), None],
            Action::Recv { span, store, .. } => [Some((span, Need::to(store))), None],
            Action::Copy { from, to } => [Some((from, Need::Read)), Some((to, Need::Write))],
        }
    }

    /// The access that stores what was received.
    pub(crate) fn to(store: Store) -> Need {
        match store {
            Store::Copy => Need::Write,
            Store::Reduce { .. } => Need::Read,
        }
    }
}

/// A region of device memory, of which some pages are in slots.
pub(crate) struct Staged<Q: ExecutionQueue> {
    queue: Q,
    /// Where the pages are loaded from for the first time, if not from the region itself: every page is then loaded
    /// and written back, also those that are not accessed.
    from: Option<Q>,
    /// Length of a page in bytes: whole elements.
    page: usize,
    pages: Vec<Page<Q>>,
    /// Pages in the order of their first accesses, if those read.
    ahead: Vec<u32>,
    /// How many of them have been considered for loading.
    next: usize,
    /// Pages that have a slot, in the order in which they got it.
    held: Vec<u32>,
    /// Pages that loading ahead may hold.
    limit: usize,
}

struct Page<Q: ExecutionQueue> {
    state: State<Q>,
    /// Bytes of accesses to come.
    left: usize,
    /// An access waits for it.
    wanted: bool,
    /// It was accessed since it has its slot.
    used: bool,
    /// It was planned for.
    known: bool,
    /// It was written back.
    stored: bool,
}

enum State<Q: ExecutionQueue> {
    Away,
    Loading(Q::Transfer),
    Here(Here<Q::Slot>),
    Storing {
        transfer: Q::Transfer,
        valid: Ranges,
        /// What is left to be written back.
        dirty: Ranges,
        /// It gives its slot up afterwards.
        leaves: bool,
    },
}

struct Here<S> {
    slot: S,
    /// Bytes that are as in the region, or newer.
    valid: Ranges,
    /// Bytes that are newer.
    dirty: Ranges,
}

impl<Q: ExecutionQueue> Staged<Q> {
    /// The region of `queue`, with the contents of `from` if there is one, in elements of `element` bytes. If `shared`,
    /// another buffer of the operation needs slots, too.
    ///
    /// # Errors
    ///
    /// An element is longer than a slot.
    pub(crate) fn new(
        queue: Q,
        from: Option<Q>,
        capabilities: &Capabilities,
        element: usize,
        shared: bool,
    ) -> Result<Self, DeviceError> {
        let Capabilities {
            slot_len, slots, ..
        } = *capabilities;
        let page = slot_len - slot_len % element.max(1);
        if page == 0 {
            let what = format!("element that fits into a staging slot of {slot_len} bytes");
            return Err(DeviceError::Length {
                bytes: element,
                what,
            });
        }
        let away = || Page {
            state: State::Away,
            left: 0,
            wanted: false,
            used: false,
            known: false,
            stored: false,
        };
        let pages = queue.region_len().div_ceil(page);
        Ok(Staged {
            queue,
            from,
            page,
            pages: (0..pages).map(|_| away()).collect(),
            ahead: Vec::new(),
            next: 0,
            held: Vec::new(),
            // One is left for accesses that were not foreseen.
            limit: match shared {
                true => slots / 2,
                false => slots.saturating_sub(1),
            }
            .max(1),
        })
    }

    /// The bytes of a page.
    fn bytes(&self, page: u32) -> Range<usize> {
        let start = page as usize * self.page;
        start..self.queue.region_len().min(start + self.page)
    }

    /// The page of the first byte of a range, and the range in it, up to its end.
    fn locate(&self, range: &Range<usize>) -> (u32, Range<usize>) {
        let page = range.start / self.page;
        let start = range.start % self.page;
        (page as u32, start..self.page.min(start + range.len()))
    }

    /// Notes an access to come.
    pub(crate) fn plan(&mut self, mut range: Range<usize>, need: Need) {
        while !range.is_empty() {
            let (at, part) = self.locate(&range);
            let page = &mut self.pages[at as usize];
            page.left += part.len();
            if !mem::replace(&mut page.known, true) && need == Need::Read {
                self.ahead.push(at);
            }
            range.start += part.len();
        }
    }

    /// Ends the planning.
    pub(crate) fn planned(&mut self) {
        if self.from.is_some() {
            let mut ahead = vec![false; self.pages.len()];
            for page in &self.ahead {
                ahead[*page as usize] = true;
            }
            let others = (0..).zip(&ahead).filter(|(_, ahead)| !**ahead);
            self.ahead.extend(others.map(|(page, _)| page));
        }
    }

    /// Whether everything is written back and no slot is held.
    pub(crate) fn is_settled(&self) -> bool {
        self.held.is_empty() && (self.from.is_none() || self.next == self.ahead.len())
    }

    /// Whether copies are under way.
    pub(crate) fn is_copying(&self) -> bool {
        let copies = |page: &u32| {
            let state = &self.pages[*page as usize].state;
            matches!(state, State::Loading(_) | State::Storing { .. })
        };
        self.held.iter().any(copies)
    }

    /// Goes on with copies that are under way, and loads ahead; whether something has moved.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool, DeviceError> {
        let mut moved = false;
        let mut at = 0;
        while let Some(&page) = self.held.get(at) {
            moved |= self.poll_page(cx, page)?;
            // It may have given its slot up.
            at += usize::from(self.held.get(at) == Some(&page));
        }
        while self.held.len() < self.limit
            && let Some(&page) = self.ahead.get(self.next)
        {
            let state = &self.pages[page as usize];
            let away = matches!(state.state, State::Away) && !state.stored;
            if away && (state.left > 0 || self.from.is_some()) {
                let Poll::Ready(slot) = self.queue.poll_slot(cx) else {
                    break;
                };
                self.held.push(page);
                self.load(page, slot?);
                self.poll_page(cx, page)?;
                moved = true;
            }
            self.next += 1;
        }
        Ok(moved)
    }

    /// Goes on with the copy of a page, if there is one; whether it has ended.
    fn poll_page(&mut self, cx: &mut Context<'_>, at: u32) -> Result<bool, DeviceError> {
        let whole = 0..self.bytes(at).len();
        let page = &mut self.pages[at as usize];
        match &mut page.state {
            State::Away | State::Here(_) => Ok(false),
            State::Loading(transfer) => {
                let Poll::Ready(slot) = Pin::new(transfer).poll(cx) else {
                    return Ok(false);
                };
                let slot = slot.inspect_err(|_| page.state = State::Away)?;
                let mut valid = Ranges::default();
                valid.insert(whole);
                let dirty = match self.from.is_some() && !page.stored {
                    true => valid.clone(),
                    false => Ranges::default(),
                };
                page.state = State::Here(Here { slot, valid, dirty });
                if page.left == 0 {
                    self.leave(at);
                }
                Ok(true)
            }
            State::Storing {
                transfer,
                valid,
                dirty,
                leaves,
            } => {
                let Poll::Ready(slot) = Pin::new(transfer).poll(cx) else {
                    return Ok(false);
                };
                let (valid, dirty, leaves) = (mem::take(valid), mem::take(dirty), *leaves);
                let slot = slot.inspect_err(|_| page.state = State::Away)?;
                page.stored = true;
                page.state = State::Here(Here { slot, valid, dirty });
                if leaves || page.left == 0 {
                    self.leave(at);
                }
                // The next of several copies has to be polled, too.
                self.poll_page(cx, at)?;
                Ok(true)
            }
        }
    }

    fn load(&mut self, at: u32, slot: Q::Slot) {
        let bytes = self.bytes(at);
        let page = &mut self.pages[at as usize];
        let queue = match &mut self.from {
            Some(from) if !page.stored => from,
            _ => &mut self.queue,
        };
        page.used = false;
        page.state = State::Loading(queue.copy_out(bytes, slot, 0));
    }

    /// Writes a page back, a range at a time, and takes its slot away afterwards.
    fn leave(&mut self, at: u32) {
        self.store(at, true);
        if let State::Here(_) = self.pages[at as usize].state {
            self.pages[at as usize].state = State::Away;
            self.held.retain(|page| *page != at);
        }
    }

    /// Begins to write a page back, if there is something to be.
    fn store(&mut self, at: u32, leaves: bool) {
        let base = self.bytes(at).start;
        let page = &mut self.pages[at as usize];
        page.state = match mem::replace(&mut page.state, State::Away) {
            State::Here(Here {
                slot,
                valid,
                mut dirty,
            }) => match dirty.pop() {
                None => State::Here(Here { slot, valid, dirty }),
                Some(range) => {
                    let bytes = base + range.start..base + range.end;
                    State::Storing {
                        transfer: self.queue.copy_in(slot, range.start, bytes),
                        valid,
                        dirty,
                        leaves,
                    }
                }
            },
            other => other,
        };
    }

    /// How many bytes from the start of `range` are at hand for an access: at least one when ready.
    pub(crate) fn poll_at_hand(
        &mut self,
        cx: &mut Context<'_>,
        range: Range<usize>,
        need: Need,
    ) -> Poll<Result<usize, DeviceError>> {
        let (at, part) = self.locate(&range);
        loop {
            let from = self.from.is_some();
            let page = &mut self.pages[at as usize];
            // What was not read first need not be loaded, unless the rest of the page is to come from elsewhere.
            let blind = need == Need::Write && (!from || page.stored);
            match &mut page.state {
                State::Here(here) if blind || here.valid.contains(&part) => {
                    page.wanted = false;
                    page.used = true;
                    return Poll::Ready(Ok(part.len()));
                }
                State::Here(here) if here.dirty.is_empty() => {
                    if let State::Here(here) = mem::replace(&mut page.state, State::Away) {
                        self.load(at, here.slot);
                    }
                }
                State::Here(_) => self.store(at, false),
                State::Loading(_) | State::Storing { .. } => {
                    page.wanted = true;
                    return Poll::Pending;
                }
                State::Away => {
                    // A slot that is given up may go to another queue, which wakes nobody here: give up all that
                    // are idle, since a queue without a slot gets one.
                    let slot = loop {
                        match self.queue.poll_slot(cx) {
                            Poll::Ready(slot) => break slot?,
                            Poll::Pending if self.make_room() => {}
                            Poll::Pending => return Poll::Pending,
                        }
                    };
                    let page = &mut self.pages[at as usize];
                    self.held.push(at);
                    if blind {
                        page.used = false;
                        page.state = State::Here(Here {
                            slot,
                            valid: Ranges::default(),
                            dirty: Ranges::default(),
                        });
                        continue;
                    }
                    self.load(at, slot);
                }
            }
            self.poll_page(cx, at)?;
        }
    }

    /// Takes the slot of another page, unless one is about to become free: of the one that was loaded first among those
    /// that were used; else of the one that will be needed last. Whether it has left, so that another may follow.
    fn make_room(&mut self) -> bool {
        let state = |at: u32| &self.pages[at as usize];
        let leaving =
            |at: &u32| matches!(state(*at).state, State::Storing { leaves, .. } if leaves);
        if self.held.iter().any(leaving) {
            return false;
        }
        let idle = |at: &u32| matches!(state(*at).state, State::Here(_)) && !state(*at).wanted;
        let mut candidates = self.held.iter().copied().filter(idle);
        let used = candidates.clone().find(|at| state(*at).used);
        let Some(victim) = used.or_else(|| candidates.next_back()) else {
            return false;
        };
        self.leave(victim);
        matches!(self.pages[victim as usize].state, State::Away)
    }

    /// Bytes that are at hand.
    pub(crate) fn read(&self, range: Range<usize>) -> &[u8] {
        let (at, part) = self.locate(&range);
        match &self.pages[at as usize].state {
            State::Here(here) => &here.slot.as_ref()[part],
            _ => &[],
        }
    }

    /// Bytes that are at hand, to be changed.
    pub(crate) fn write(&mut self, range: Range<usize>) -> &mut [u8] {
        let (at, part) = self.locate(&range);
        match &mut self.pages[at as usize].state {
            State::Here(here) => {
                here.valid.insert(part.clone());
                here.dirty.insert(part.clone());
                &mut here.slot.as_mut()[part]
            }
            _ => &mut [],
        }
    }

    /// An access has done with bytes.
    pub(crate) fn done_with(&mut self, range: Range<usize>) {
        let (at, part) = self.locate(&range);
        let page = &mut self.pages[at as usize];
        page.left = page.left.saturating_sub(part.len());
        if page.left == 0 {
            self.leave(at);
        }
    }
}
