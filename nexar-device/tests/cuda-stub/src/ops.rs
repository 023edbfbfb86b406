//! Work in the order of streams: an operation runs once those that it comes after are done.

use crate::{
    context::{self, Engine},
    driver::{State, abort, announce, wake_worker},
    memory::{Job, Place},
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    mem,
    time::{Duration, Instant},
};

/// Operations are numbered from 1 on in the order in which they are enqueued; 0 is one that is done.
pub(crate) type OpId = u64;

pub(crate) enum Work {
    /// Only an order: what follows comes after what precedes.
    Mark,
    Copy {
        to: Place,
        from: Place,
        len: usize,
    },
    Fill {
        to: Place,
        byte: u8,
        len: usize,
    },
    /// Memory of the device can be used from now on.
    Alloc(u64),
    /// And from now on no more.
    Free(u64),
}

impl Work {
    /// The engine that does it and the number of bytes, if it takes time.
    fn load(&self) -> Option<(Engine, usize)> {
        match self {
            Work::Copy { to, from, len } => Some(match (to, from) {
                (Place::Device { .. }, Place::Device { .. }) => (Engine::Inner, *len),
                (Place::Device { .. }, _) => (Engine::In, *len),
                _ => (Engine::Out, *len),
            }),
            Work::Fill { len, .. } => Some((Engine::Inner, *len)),
            _ => None,
        }
    }

    /// Whether it reads or writes one of these addresses.
    fn touches(&self, start: u64, end: u64) -> bool {
        let overlaps = |place: &Place, len: usize| {
            let at = match place {
                Place::Device { address, .. } => *address,
                Place::Host(address) => *address as u64,
                Place::Staged(_) => return false,
            };
            at < end && start < at.saturating_add(len as u64)
        };
        match self {
            Work::Copy { to, from, len } => overlaps(to, *len) || overlaps(from, *len),
            Work::Fill { to, len, .. } => overlaps(to, *len),
            _ => false,
        }
    }
}

struct Op {
    context: usize,
    work: Work,
    /// Operations before it that are not done yet.
    missing: usize,
    followers: Vec<OpId>,
    /// When the last of those before it was to end: engines keep their pace when threads wake up late.
    ready: Instant,
    end: Instant,
    started: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Move,
    Complete,
}

/// Operations that are not done.
#[derive(Default)]
pub(crate) struct Ops {
    pending: HashMap<OpId, Op>,
    timers: BinaryHeap<Reverse<(Instant, OpId, Step)>>,
    last: OpId,
}

impl Ops {
    pub(crate) fn is_pending(&self, id: OpId) -> bool {
        self.pending.contains_key(&id)
    }

    pub(crate) fn of_context(&self, context: usize) -> Vec<OpId> {
        let own = self.pending.iter().filter(|(_, op)| op.context == context);
        own.map(|(id, _)| *id).collect()
    }

    /// Operations that read or write one of these addresses.
    pub(crate) fn users(&self, start: u64, len: usize) -> Vec<OpId> {
        let end = start.saturating_add(len as u64);
        let users = self.pending.iter();
        let users = users.filter(|(_, op)| op.work.touches(start, end));
        users.map(|(id, _)| *id).collect()
    }

    fn has_started(&self, id: OpId) -> bool {
        self.pending.get(&id).is_some_and(|op| op.started)
    }

    /// When a worker has something to do next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, ..))| *at)
    }

    fn get(&mut self, id: OpId) -> &mut Op {
        match self.pending.get_mut(&id) {
            Some(op) => op,
            None => abort("an operation has disappeared"),
        }
    }
}

impl State {
    /// Adds an operation that comes after the given ones.
    pub(crate) fn enqueue(&mut self, context: usize, work: Work, after: &[OpId]) -> OpId {
        let now = Instant::now();
        self.ops.last += 1;
        let id = self.ops.last;
        let mut missing = 0;
        for before in after {
            if let Some(op) = self.ops.pending.get_mut(before) {
                op.followers.push(id);
                missing += 1;
            }
        }
        let op = Op {
            context,
            work,
            missing,
            followers: Vec::new(),
            ready: now,
            end: now,
            started: false,
        };
        self.ops.pending.insert(id, op);
        if missing == 0 {
            self.start(vec![id]);
        }
        id
    }

    /// Starts operations that nothing is in the way of, and those that follow if they take no time.
    fn start(&mut self, mut ready: Vec<OpId>) {
        while let Some(id) = ready.pop() {
            let op = self.ops.get(id);
            op.started = true;
            match op.work.load() {
                Some((engine, bytes)) => self.schedule(id, engine, bytes),
                None => {
                    op.end = op.ready;
                    match mem::replace(&mut op.work, Work::Mark) {
                        Work::Alloc(address) => self.memory.set_usable(address),
                        Work::Free(address) => self.free_in_order(address),
                        _ => {}
                    }
                    ready.append(&mut self.finish(id));
                }
            }
        }
    }

    fn free_in_order(&mut self, address: u64) {
        if let Some(len) = self.memory.allocation_len(address) {
            let users = self.ops.users(address, len);
            if users.iter().any(|id| self.ops.has_started(*id)) {
                self.counters.add("freed_in_use", 1);
            }
            self.memory.free(address);
            self.counters.subtract("live_device_buffers", 1);
            self.counters.subtract("live_device_bytes", len as u64);
        }
    }

    /// Decides when an operation moves its bytes, and when it ends.
    fn schedule(&mut self, id: OpId, engine: Engine, bytes: usize) {
        let settings = &mut self.settings;
        let bandwidth = match engine {
            Engine::Out => settings.bandwidth_out,
            Engine::In => settings.bandwidth_in,
            Engine::Inner => 0,
        };
        let transfer = match bandwidth {
            0 => Duration::ZERO,
            bandwidth => Duration::from_secs_f64(bytes as f64 / bandwidth as f64),
        };
        let delay = settings.delay();
        let early = (transfer + delay).mul_f64(settings.fraction() / 4.0);
        let op = self.ops.get(id);
        let free_at = &mut self.devices[op.context].free_at[engine as usize];
        *free_at = op.ready.max(*free_at) + transfer;
        op.end = *free_at + delay;
        let at = op.end - early;
        self.ops.timers.push(Reverse((at, id, Step::Move)));
        wake_worker(self);
    }

    /// Removes an operation; the result are those that can start now.
    fn finish(&mut self, id: OpId) -> Vec<OpId> {
        let Some(op) = self.ops.pending.remove(&id) else {
            abort("an operation ends twice");
        };
        announce();
        let mut followers = op.followers;
        followers.retain(|follower| {
            let follower = self.ops.get(*follower);
            follower.ready = follower.ready.max(op.end);
            follower.missing -= 1;
            follower.missing == 0
        });
        followers
    }

    /// The next step that is due: ends an operation, or gives out the bytes that are to be moved for one.
    pub(crate) fn next_step(&mut self) -> Option<(OpId, Job)> {
        let Reverse((_, id, step)) = self.ops.timers.pop()?;
        if step == Step::Move
            && let Some(job) = self.job(id)
        {
            return Some((id, job));
        }
        let ready = self.finish(id);
        self.start(ready);
        None
    }

    /// The bytes of an operation are moved.
    pub(crate) fn moved(&mut self, id: OpId) {
        let end = self.ops.get(id).end;
        self.ops.timers.push(Reverse((end, id, Step::Complete)));
    }

    /// None if the operation fails.
    fn job(&mut self, id: OpId) -> Option<Job> {
        let op = self.ops.get(id);
        let (context, load) = (op.context, op.work.load());
        let work = mem::replace(&mut op.work, Work::Mark);
        if context::is_broken(self, context) {
            return None;
        }
        if let Some(code) = self.faults.strike_async() {
            context::break_context(self, context, code);
            return None;
        }
        let found = self.memory.job(&work);
        // Whoever frees memory still has to find out that it is in use.
        self.ops.get(id).work = work;
        let Some(job) = found else {
            self.counters.add("illegal_accesses", 1);
            context::break_context(self, context, crate::codes::ILLEGAL_ADDRESS);
            return None;
        };
        match load {
            Some((Engine::Out, bytes)) => {
                self.counters.add("copies_out", 1);
                self.counters.add("bytes_out", bytes as u64);
            }
            Some((Engine::In, bytes)) => {
                self.counters.add("copies_in", 1);
                self.counters.add("bytes_in", bytes as u64);
            }
            _ => {}
        }
        Some(job)
    }
}
