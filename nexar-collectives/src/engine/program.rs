//! Schedules, prepared for the executor.

use crate::schedule::{self, Action, ItemId, Operation, Plan, Schedule, Span};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Prepared schedules that a communicator keeps; most programs repeat a handful of calls.
const MAX_CACHED: usize = 64;

/// Schedules with more items than this are not kept: making them costs little beside running them.
const MAX_CACHED_ITEMS: usize = 4096;

/// A schedule with what the executor wants to look up in it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) schedule: Schedule,
    /// Items that copy on this rank.
    pub(crate) copies: Vec<ItemId>,
    /// The ranks that this rank exchanges anything with, a header at the least.
    pub(crate) peers: Vec<PeerItems>,
    /// For each item that sends what other items send too: which of the common chunks.
    pub(crate) shared: Vec<Option<u32>>,
    /// How many items send each common chunk.
    pub(crate) sharers: Vec<u32>,
}

/// The items between this rank and another, in order.
#[derive(Debug)]
pub(crate) struct PeerItems {
    pub(crate) member: usize,
    pub(crate) sends: Vec<ItemId>,
    pub(crate) receives: Vec<ItemId>,
}

impl Program {
    fn new(schedule: Schedule, world: usize) -> Self {
        let mut slots: Vec<Option<usize>> = vec![None; world];
        let mut peers: Vec<PeerItems> = Vec::new();
        let mut copies = Vec::new();
        let mut peer = |peers: &mut Vec<PeerItems>, member: usize| {
            *slots[member].get_or_insert_with(|| {
                peers.push(PeerItems {
                    member,
                    sends: Vec::new(),
                    receives: Vec::new(),
                });
                peers.len() - 1
            })
        };
        for (id, item) in (0..).zip(&schedule.items) {
            match item.action {
                Action::Send { to, .. } => {
                    let at = peer(&mut peers, to);
                    peers[at].sends.push(id);
                }
                Action::Recv { from, .. } => {
                    let at = peer(&mut peers, from);
                    peers[at].receives.push(id);
                }
                Action::Copy { .. } => copies.push(id),
            }
        }

        for member in &schedule.told {
            peer(&mut peers, *member);
        }
        let (shared, sharers) = common_chunks(&schedule);
        Program {
            schedule,
            copies,
            peers,
            shared,
            sharers,
        }
    }
}

/// Finds the sends of one span in one state: they can share one copy of it.
fn common_chunks(schedule: &Schedule) -> (Vec<Option<u32>>, Vec<u32>) {
    type Key = (Span, [Option<ItemId>; 2]);
    let mut counts: HashMap<Key, (u32, u32)> = HashMap::new();
    let key = |action: &Action, after| match action {
        Action::Send { span, .. } => Some((*span, after)),
        _ => None,
    };
    for item in &schedule.items {
        if let Some(key) = key(&item.action, item.after) {
            counts.entry(key).or_insert((0, u32::MAX)).0 += 1;
        }
    }
    let mut sharers = Vec::new();
    let shared = schedule.items.iter().map(|item| {
        let (count, number) = counts.get_mut(&key(&item.action, item.after)?)?;
        if *count < 2 {
            return None;
        }
        if *number == u32::MAX {
            *number = sharers.len() as u32;
            sharers.push(*count);
        }
        Some(*number)
    });
    (shared.collect(), sharers)
}

/// The prepared schedules of a communicator, the last used first: looking through a few costs less than hashing what
/// a call is.
#[derive(Debug, Default)]
pub(crate) struct Programs(Mutex<Vec<Prepared>>);

#[derive(Debug)]
struct Prepared {
    operation: Operation,
    plan: Plan,
    program: Arc<Program>,
}

impl Programs {
    /// The program of this rank.
    pub(crate) fn get(
        &self,
        operation: &Operation,
        plan: Plan,
        world: usize,
        rank: usize,
    ) -> Arc<Program> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |of: &Prepared| of.plan == plan && of.operation == *operation;
        if let Some(at) = cache.iter().position(known) {
            cache[..=at].rotate_right(1);
            return Arc::clone(&cache[0].program);
        }
        // Calls that move nothing are compared all the same: they run as a barrier.
        let schedule = match operation.is_empty() {
            true => schedule::build(&Operation::Barrier, world, rank, plan),
            false => schedule::build(operation, world, rank, plan),
        };
        let program = Arc::new(Program::new(schedule, world));
        tracing::debug!(?operation, world, %plan, "algorithm chosen");
        if program.schedule.items.len() <= MAX_CACHED_ITEMS {
            cache.truncate(MAX_CACHED - 1);
            cache.insert(
                0,
                Prepared {
                    operation: operation.clone(),
                    plan,
                    program: Arc::clone(&program),
                },
            );
        }
        program
    }
}
