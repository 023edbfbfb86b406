//! What a schedule costs: a discrete simulation of all ranks, with the constants of a machine.
//!
//! A message costs `alpha + beta * bytes` and a reduction `gamma * bytes`, as in the model of Hockney (1994: The
//! communication challenge for MPP) that Thakur, Rabenseifner and Gropp (2005) compare algorithms with; and as in
//! LogGP (Alexandrov, Ionescu, Schauser, Scheiman 1995), the part of it during which a processor is busy is apart
//! from the time on the wire. The schedules are those that ranks run, not formulas about them: what waits for what,
//! how many segments there are and who is the last follows from them.
//!
//! - A rank does one thing at a time, in the order in which things can be done.
//! - Ranks that share a host share its processors; whoever has waited longest is next.
//! - A rank sends to the network one message at a time, and receives one at a time; all pairs are
//!   connected at full speed.
//! - A message of more than [`PART`] bytes is on its way while its rest is still being written: each part
//!   counts as a message.
//!
//! There are no caches, no losses and no flow control in it.

use crate::schedule::{Action, Schedule, Store};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// The constants of a machine and its network. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// From the end of a send to the arrival of its first byte (L of LogGP).
    pub alpha_ns: f64,
    /// For which a processor is busy with each message, or part of a long one, at each end (o of LogGP).
    pub overhead_ns: f64,
    /// Per byte on the wire (G of LogGP); 0 where messages do not leave the host.
    pub beta_ns_per_byte: f64,
    /// Per byte for which a processor is busy at each end: encryption, system calls, copies.
    pub handling_ns_per_byte: f64,
    /// Per byte that is combined.
    pub gamma_ns_per_byte: f64,
    /// Per byte that is copied within a rank.
    pub delta_ns_per_byte: f64,
    /// Processors that all ranks share; none: each rank has its own.
    pub cores: Option<usize>,
}

/// Bytes of a message after which the next part is written.
pub const PART: usize = 64 << 10;

/// Most steps of a simulation: some 30 MiB, and a tenth of a second.
const STEPS: usize = 1 << 18;

const NONE: u32 = u32::MAX;

/// The time until all ranks are done, in nanoseconds; none if that takes too many steps. `schedule` gives the
/// schedule of a rank, with elements of `element` bytes.
pub(super) fn time(
    machine: &Machine,
    world: usize,
    element: usize,
    schedule: impl Fn(usize) -> Schedule,
) -> Option<f64> {
    let mut steps = Steps::new(world);
    for rank in 0..world {
        steps.add(machine, rank, element, &schedule(rank))?;
    }
    steps.pair(world);
    Some(Simulation::new(machine, world, &steps).run() as f64 / PICOSECONDS)
}

/// Time is counted in picoseconds.
const PICOSECONDS: f64 = 1e3;

fn picoseconds(ns: f64) -> u64 {
    (ns * PICOSECONDS) as u64
}

/// A part of an item.
struct Step {
    rank: u32,
    /// For which its rank is busy.
    busy: u64,
    /// Bytes that a send passes on.
    bytes: u32,
    /// The receive that a send belongs to.
    receive: u32,
    /// What has to happen before.
    waits: u32,
    /// The first of the steps that wait for it.
    followers: u32,
}

/// The steps of all ranks.
struct Steps {
    world: usize,
    steps: Vec<Step>,
    /// A step that follows, and the next entry for the same predecessor.
    followers: Vec<(u32, u32)>,
    /// By sender and receiver: the steps in order.
    sends: Vec<Vec<u32>>,
    receives: Vec<Vec<u32>>,
}

impl Steps {
    fn new(world: usize) -> Steps {
        Steps {
            world,
            steps: Vec::new(),
            followers: Vec::new(),
            sends: vec![Vec::new(); world * world],
            receives: vec![Vec::new(); world * world],
        }
    }

    /// Adds what a rank does. None if there are too many steps.
    fn add(
        &mut self,
        machine: &Machine,
        rank: usize,
        element: usize,
        plan: &Schedule,
    ) -> Option<()> {
        // The last step of each item.
        let mut last: Vec<u32> = Vec::with_capacity(plan.items.len());
        let mut copied = NONE;
        for item in &plan.items {
            let (cost, elements) = cost(machine, &item.action);
            let bytes = elements * element;
            let parts = bytes.div_ceil(PART).max(1);
            if self.steps.len() + parts > STEPS {
                return None;
            }
            for part in 0..parts {
                let bytes = (bytes - part * PART).min(PART);
                let busy = picoseconds(cost.each + cost.per_byte * bytes as f64);
                let step = self.push(rank, busy, bytes);
                if part == 0 {
                    for id in item.after.iter().flatten() {
                        self.follow(last[*id as usize], step);
                    }
                }
                self.queue(rank, &item.action, step, &mut copied);
            }
            last.push(self.steps.len() as u32 - 1);
        }
        Some(())
    }

    fn push(&mut self, rank: usize, busy: u64, bytes: usize) -> u32 {
        self.steps.push(Step {
            rank: rank as u32,
            busy,
            bytes: bytes as u32,
            receive: NONE,
            waits: 0,
            followers: NONE,
        });
        self.steps.len() as u32 - 1
    }

    fn follow(&mut self, before: u32, step: u32) {
        let next = std::mem::replace(
            &mut self.steps[before as usize].followers,
            self.followers.len() as u32,
        );
        self.followers.push((step, next));
        self.steps[step as usize].waits += 1;
    }

    /// Sends to a rank, receives from a rank and copies are in order.
    fn queue(&mut self, rank: usize, action: &Action, step: u32, copied: &mut u32) {
        let before = match *action {
            Action::Send { to, .. } => {
                let lane = &mut self.sends[rank * self.world + to];
                lane.push(step);
                lane.len().checked_sub(2).map(|before| lane[before])
            }
            Action::Recv { from, .. } => {
                let lane = &mut self.receives[from * self.world + rank];
                lane.push(step);
                lane.len().checked_sub(2).map(|before| lane[before])
            }
            Action::Copy { .. } => {
                let before = std::mem::replace(copied, step);
                Some(before).filter(|before| *before != NONE)
            }
        };
        if let Some(before) = before {
            self.follow(before, step);
        }
    }

    /// The k-th send belongs to the k-th receive.
    fn pair(&mut self, world: usize) {
        for lane in 0..world * world {
            for (send, receive) in self.sends[lane].iter().zip(&self.receives[lane]) {
                self.steps[*send as usize].receive = *receive;
                self.steps[*receive as usize].waits += 1;
            }
        }
    }
}

struct Cost {
    each: f64,
    per_byte: f64,
}

/// What an action takes of the processor, and its elements.
fn cost(machine: &Machine, action: &Action) -> (Cost, usize) {
    let (each, per_byte, span) = match action {
        Action::Send { span, .. } => (machine.overhead_ns, machine.handling_ns_per_byte, span),
        Action::Recv { span, store, .. } => {
            let gamma = match store {
                Store::Copy => 0.0,
                Store::Reduce { .. } => machine.gamma_ns_per_byte,
            };
            let per_byte = machine.handling_ns_per_byte + gamma;
            (machine.overhead_ns, per_byte, span)
        }
        Action::Copy { from, .. } => (0.0, machine.delta_ns_per_byte, from),
    };
    (Cost { each, per_byte }, span.len)
}

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done(u32),
    Arrived(u32),
}

struct Simulation<'a> {
    machine: &'a Machine,
    steps: &'a Steps,
    /// Of each step, what it still waits for.
    waits: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// By rank: steps that can be done.
    queues: Vec<VecDeque<u32>>,
    /// Ranks that can do something and do nothing.
    idle: VecDeque<u32>,
    /// By rank: whether it is among them, or does something.
    engaged: Vec<bool>,
    free_cores: usize,
    /// By rank: when its end of the wire is free.
    out_free: Vec<u64>,
    in_free: Vec<u64>,
}

impl<'a> Simulation<'a> {
    fn new(machine: &'a Machine, world: usize, steps: &'a Steps) -> Self {
        Simulation {
            machine,
            steps,
            waits: steps.steps.iter().map(|step| step.waits).collect(),
            events: BinaryHeap::new(),
            queues: vec![VecDeque::new(); world],
            idle: VecDeque::new(),
            engaged: vec![false; world],
            free_cores: machine.cores.unwrap_or(world).max(1),
            out_free: vec![0; world],
            in_free: vec![0; world],
        }
    }

    fn run(mut self) -> u64 {
        for step in 0..self.waits.len() {
            if self.waits[step] == 0 {
                self.enable(step as u32);
            }
        }
        let mut now = 0;
        self.dispatch(now);
        while let Some(Reverse((time, event))) = self.events.pop() {
            now = time;
            match event {
                Event::Arrived(step) => self.release(step),
                Event::Done(step) => self.complete(now, step),
            }
            self.dispatch(now);
        }
        now
    }

    /// A step can be done.
    fn enable(&mut self, step: u32) {
        let rank = self.steps.steps[step as usize].rank;
        self.queues[rank as usize].push_back(step);
        if !std::mem::replace(&mut self.engaged[rank as usize], true) {
            self.idle.push_back(rank);
        }
    }

    /// One of the things that a step waits for has happened.
    fn release(&mut self, step: u32) {
        self.waits[step as usize] -= 1;
        if self.waits[step as usize] == 0 {
            self.enable(step);
        }
    }

    fn complete(&mut self, now: u64, id: u32) {
        let step = &self.steps.steps[id as usize];
        self.free_cores += 1;
        let rank = step.rank as usize;
        match self.queues[rank].is_empty() {
            true => self.engaged[rank] = false,
            false => self.idle.push_back(step.rank),
        }
        if step.receive != NONE {
            let arrival = self.arrival(now, step);
            self.events
                .push(Reverse((arrival, Event::Arrived(step.receive))));
        }
        let mut next = step.followers;
        while let Some((follower, after)) = self.steps.followers.get(next as usize).copied() {
            self.release(follower);
            next = after;
        }
    }

    /// When what is sent now has arrived.
    fn arrival(&mut self, now: u64, step: &Step) -> u64 {
        let to = self.steps.steps[step.receive as usize].rank as usize;
        let wire = picoseconds(self.machine.beta_ns_per_byte * f64::from(step.bytes));
        let from = step.rank as usize;
        let start = now.max(self.out_free[from]);
        self.out_free[from] = start + wire;
        let first = start + picoseconds(self.machine.alpha_ns);
        self.in_free[to] = first.max(self.in_free[to]) + wire;
        self.in_free[to]
    }

    fn dispatch(&mut self, now: u64) {
        while self.free_cores > 0
            && let Some(rank) = self.idle.pop_front()
        {
            let Some(step) = self.queues[rank as usize].pop_front() else {
                self.engaged[rank as usize] = false;
                continue;
            };
            self.free_cores -= 1;
            let done = now + self.steps.steps[step as usize].busy;
            self.events.push(Reverse((done, Event::Done(step))));
        }
    }
}
