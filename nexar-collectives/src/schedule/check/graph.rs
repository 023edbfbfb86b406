//! The items of all ranks with their dependencies and messages.

use super::{Fault, Report};
use crate::schedule::{Action, Item, ItemId, Schedule};
use std::collections::VecDeque;

/// Number of an item among those of all ranks.
pub(super) type Node = usize;

/// No item.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Recv,
    Copy,
}

/// An item as far as the order of execution is concerned; small, for millions of them.
#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: Kind,
    rank: u32,
    peer: u32,
    len: u32,
    after: [u32; 2],
    /// The other end of the message.
    partner: u32,
    /// The next item of the same kind with the same peer; of a copy, the next copy.
    next_on_lane: u32,
}

/// The items of all ranks.
pub(super) struct Graph {
    world: usize,
    entries: Vec<Entry>,
    /// The first node of each rank, and the number of nodes.
    starts: Vec<usize>,
}

impl Graph {
    pub(super) fn new(world: usize) -> Graph {
        Graph {
            world,
            entries: Vec::new(),
            starts: vec![0],
        }
    }

    /// Adds the schedule of the next rank.
    pub(super) fn add(&mut self, rank: usize, schedule: &Schedule) -> Result<(), Fault> {
        let start = self.entries.len();
        for (item, it) in schedule.items.iter().enumerate() {
            let require = |holds: bool, rule: &'static str| match holds {
                true => Ok(()),
                false => Err(Fault::Malformed { rank, item, rule }),
            };
            let (kind, peer, len) = match it.action {
                Action::Send { to, span } => (Kind::Send, to, span.len),
                Action::Recv { from, span, .. } => (Kind::Recv, from, span.len),
                Action::Copy { from, .. } => (Kind::Copy, self.world, from.len),
            };
            require(len > 0, "a span is not empty")?;
            require(
                kind == Kind::Copy || peer < self.world,
                "a peer is in the world",
            )?;
            require(peer != rank, "a rank sends itself nothing")?;
            let mut after = [NONE; 2];
            for (to, dependency) in after.iter_mut().zip(it.after) {
                if let Some(dependency) = dependency {
                    require(
                        (dependency as usize) < item,
                        "items depend on items before them",
                    )?;
                    *to = (start + dependency as usize) as u32;
                }
            }
            self.entries.push(Entry {
                kind,
                rank: rank as u32,
                peer: peer as u32,
                len: len as u32,
                after,
                partner: NONE,
                next_on_lane: NONE,
            });
        }
        self.starts.push(self.entries.len());
        Ok(())
    }

    /// Finds the receive of every send.
    pub(super) fn pair(&mut self) -> Result<(), Fault> {
        let sends = self.lanes(Kind::Send);
        let recvs = self.lanes(Kind::Recv);
        for from in 0..self.world {
            for to in 0..self.world {
                let sends = sends.get(from * self.world + to);
                let recvs = recvs.get(from * self.world + to);
                for (&send, &recv) in sends.iter().zip(recvs) {
                    let (sent, expected) = (self.entries[send].len, self.entries[recv].len);
                    if sent != expected {
                        let (sent, expected) = (sent as usize, expected as usize);
                        return Err(Fault::Length {
                            from,
                            to,
                            sent,
                            expected,
                        });
                    }
                    self.entries[send].partner = recv as u32;
                    self.entries[recv].partner = send as u32;
                }
                if sends.len() != recvs.len() {
                    let (sends, recvs) = (sends.len(), recvs.len());
                    return Err(Fault::Unmatched {
                        from,
                        to,
                        sends,
                        recvs,
                    });
                }
                chain(&mut self.entries, sends);
                chain(&mut self.entries, recvs);
            }
        }
        let copies = self.lanes(Kind::Copy);
        for rank in 0..self.world {
            chain(&mut self.entries, copies.get(rank * self.world));
        }
        Ok(())
    }

    /// The sends or receives by sender and receiver, in the order of the schedules; copies by rank, each in
    /// the first list of the rank.
    fn lanes(&self, kind: Kind) -> Lists {
        let lane = |entry: &Entry| match kind {
            Kind::Send => entry.rank as usize * self.world + entry.peer as usize,
            Kind::Copy => entry.rank as usize * self.world,
            Kind::Recv => entry.peer as usize * self.world + entry.rank as usize,
        };
        let members = || {
            self.entries
                .iter()
                .enumerate()
                .filter(|(_, e)| e.kind == kind)
        };
        Lists::new(self.world * self.world, || {
            members().map(|(node, e)| (lane(e), node))
        })
    }

    /// An order in which the items can be executed if a send completes together with its receive
    /// only, and then in the order of the lane. The receive follows its send.
    pub(super) fn order(&self, seed: u64) -> Result<Vec<Node>, Fault> {
        let total = self.entries.len();
        let mut waits = vec![0u8; total];
        for (node, entry) in self.entries.iter().enumerate() {
            waits[node] += entry.after.iter().filter(|&&d| d != NONE).count() as u8;
            if entry.next_on_lane != NONE {
                waits[entry.next_on_lane as usize] += 1;
            }
        }
        let dependents = Lists::new(total, || {
            self.entries.iter().enumerate().flat_map(|(node, entry)| {
                let after = entry.after.into_iter().filter(|&d| d != NONE);
                after.map(move |d| (d as usize, node))
            })
        });

        // Copies and sends that can be executed.
        let can_run = |waits: &[u8], node: Node| {
            let partner = self.partner(node);
            waits[node] == 0 && partner.is_none_or(|partner| waits[partner] == 0)
        };
        let lead = |node: Node| match self.entries[node].kind {
            Kind::Recv => self.entries[node].partner as usize,
            _ => node,
        };
        let is_lead = |node: &Node| lead(*node) == *node;
        let mut ready: Vec<Node> = (0..total)
            .filter(is_lead)
            .filter(|&node| can_run(&waits, node))
            .collect();
        let mut order = Vec::with_capacity(total);
        let mut random = seed;
        while !ready.is_empty() {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let node = ready.swap_remove((random >> 33) as usize % ready.len());
            for done in std::iter::once(node).chain(self.partner(node)) {
                order.push(done);
                let next = self.entries[done].next_on_lane;
                let next = (next != NONE).then_some(next as usize);
                for &waiting in dependents.get(done).iter().chain(next.as_ref()) {
                    waits[waiting] -= 1;
                    if can_run(&waits, waiting) {
                        ready.push(lead(waiting));
                    }
                }
            }
        }
        if order.len() < total {
            let mut done = vec![false; total];
            order.iter().for_each(|&node| done[node] = true);
            let stuck = done.iter().position(|done| !done).unwrap_or(0);
            let rank = self.rank(stuck);
            return Err(Fault::Deadlock {
                rank,
                item: stuck - self.starts[rank],
            });
        }
        Ok(order)
    }

    /// Counts rounds and elements.
    pub(super) fn report(&self, order: &[Node]) -> Report {
        let mut depth = vec![0; self.entries.len()];
        let mut sent = vec![0; self.world];
        for &node in order {
            let entry = &self.entries[node];
            let waited = self.after(node).map(|d| depth[d]).max().unwrap_or(0);
            depth[node] = match entry.kind {
                Kind::Recv => waited.max(depth[entry.partner as usize] + 1),
                _ => waited,
            };
            if entry.kind == Kind::Send {
                sent[entry.rank as usize] += entry.len as usize;
            }
        }
        Report {
            rounds: depth.into_iter().max().unwrap_or(0),
            sent,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn world(&self) -> usize {
        self.world
    }

    pub(super) fn rank(&self, node: Node) -> usize {
        self.entries[node].rank as usize
    }

    /// The number of a node's item in the schedule of its rank.
    pub(super) fn item(&self, node: Node) -> usize {
        node - self.starts[self.rank(node)]
    }

    /// The nodes that a node's item waits for.
    pub(super) fn after(&self, node: Node) -> impl Iterator<Item = Node> {
        self.entries[node]
            .after
            .into_iter()
            .filter(|&d| d != NONE)
            .map(|d| d as usize)
    }

    /// The other end of a node's message.
    pub(super) fn partner(&self, node: Node) -> Option<Node> {
        let partner = self.entries[node].partner;
        (partner != NONE).then_some(partner as usize)
    }

    /// The send, if the node is its receive.
    pub(super) fn send_of(&self, node: Node) -> Option<Node> {
        self.partner(node)
            .filter(|_| self.entries[node].kind == Kind::Recv)
    }
}

/// Items of one lane, which are executed one after the other.
fn chain(entries: &mut [Entry], lane: &[Node]) {
    for pair in lane.windows(2) {
        entries[pair[0]].next_on_lane = pair[1] as u32;
    }
}

/// An item whose peer is a distance upwards from the own rank: of a receive, from the sender.
type Shape = (Kind, usize, usize, [Option<ItemId>; 2]);

/// The items of a schedule, independent of the rank.
pub(super) fn shape(schedule: &Schedule, world: usize, rank: usize) -> Vec<Shape> {
    let shape = |item: &Item| match item.action {
        Action::Send { to, span } => (
            Kind::Send,
            (world + to - rank) % world,
            span.len,
            item.after,
        ),
        Action::Recv { from, span, .. } => (
            Kind::Recv,
            (world + rank - from) % world,
            span.len,
            item.after,
        ),
        Action::Copy { from, .. } => (Kind::Copy, 0, from.len, item.after),
    };
    schedule.items.iter().map(shape).collect()
}

/// Counts rounds and elements if all ranks have items of this shape: then a receive over a distance
/// gets what the own send over this distance sends, as deep. Sends have to come first in the list.
pub(super) fn report_symmetric(shapes: &[Shape], world: usize) -> Result<Report, Fault> {
    let mut lanes = vec![VecDeque::new(); world];
    let mut depth: Vec<usize> = Vec::with_capacity(shapes.len());
    let mut sent = 0;
    for &(kind, distance, len, after) in shapes {
        let waited = after
            .iter()
            .flatten()
            .map(|&d| depth[d as usize])
            .max()
            .unwrap_or(0);
        depth.push(match kind {
            Kind::Copy => waited,
            Kind::Send => {
                sent += len;
                lanes[distance].push_back((waited, len));
                waited
            }
            Kind::Recv => {
                let (from, to) = (0, distance);
                let (send_depth, sent) = lanes[distance].pop_front().unwrap_or((0, 0));
                if sent != len {
                    return Err(Fault::Length {
                        from,
                        to,
                        sent,
                        expected: len,
                    });
                }
                waited.max(send_depth + 1)
            }
        });
    }
    if let Some(to) = lanes.iter().position(|lane| !lane.is_empty()) {
        return Err(Fault::Unmatched {
            from: 0,
            to,
            sends: lanes[to].len(),
            recvs: 0,
        });
    }
    Ok(Report {
        rounds: depth.into_iter().max().unwrap_or(0),
        sent: vec![sent; world],
    })
}

/// Lists in one allocation.
struct Lists {
    starts: Vec<u32>,
    members: Vec<Node>,
}

impl Lists {
    /// Distributes pairs of list number and member over lists, keeping their order.
    fn new<I: Iterator<Item = (usize, Node)>>(lists: usize, pairs: impl Fn() -> I) -> Lists {
        let mut starts = vec![0u32; lists + 1];
        pairs().for_each(|(list, _)| starts[list + 1] += 1);
        for list in 0..lists {
            starts[list + 1] += starts[list];
        }
        let mut next = starts.clone();
        let mut members = vec![0; starts[lists] as usize];
        for (list, member) in pairs() {
            members[next[list] as usize] = member;
            next[list] += 1;
        }
        Lists { starts, members }
    }

    fn get(&self, list: usize) -> &[Node] {
        &self.members[self.starts[list] as usize..self.starts[list + 1] as usize]
    }
}
