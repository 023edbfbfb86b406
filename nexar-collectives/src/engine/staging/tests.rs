//! Pages and slots, on a device whose copies are carried out when the test says so.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    sync::{Arc, Mutex},
    task::Waker,
};

const SLOT: usize = 16;

#[derive(Debug, Default)]
struct Device {
    regions: Vec<Vec<u8>>,
    free: usize,
    /// Slots that others wait for: so many of those that become free are theirs.
    owed: usize,
    /// Copies that were enqueued, by number; those that were carried out are gone.
    under_way: Vec<(usize, Copy)>,
    enqueued: usize,
    loaded: usize,
    stored: usize,
}

#[derive(Debug)]
struct Copy {
    region: usize,
    range: Range<usize>,
    at: usize,
    slot: Arc<Mutex<Vec<u8>>>,
    out: bool,
}

impl Device {
    fn carry_out(&mut self, index: usize) {
        let (_, copy) = self.under_way.remove(index);
        let mut slot = copy.slot.lock().unwrap();
        let (memory, slot) = (
            &mut self.regions[copy.region][copy.range.clone()],
            &mut slot[copy.at..][..copy.range.len()],
        );
        match copy.out {
            true => slot.copy_from_slice(memory),
            false => memory.copy_from_slice(slot),
        }
    }
}

/// The queue of a region, by number.
#[derive(Debug, Clone)]
struct Queue(Arc<Mutex<Device>>, usize);

struct Slot {
    bytes: Vec<u8>,
    device: Arc<Mutex<Device>>,
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Slot {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut device = self.device.lock().unwrap();
        match device.owed {
            0 => device.free += 1,
            _ => device.owed -= 1,
        }
    }
}

struct Transfer {
    number: usize,
    slot: Option<Slot>,
    shared: Arc<Mutex<Vec<u8>>>,
}

impl Future for Transfer {
    type Output = Result<Slot, DeviceError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.slot.take().unwrap();
        let device = Arc::clone(&slot.device);
        let device = device.lock().unwrap();
        if device
            .under_way
            .iter()
            .any(|(number, _)| *number == self.number)
        {
            self.slot = Some(slot);
            return Poll::Pending;
        }
        slot.bytes.clone_from(&self.shared.lock().unwrap());
        Poll::Ready(Ok(slot))
    }
}

impl Queue {
    fn enqueue(&self, range: Range<usize>, slot: Slot, at: usize, out: bool) -> Transfer {
        let mut device = self.0.lock().unwrap();
        assert!(range.end <= device.regions[self.1].len() && at + range.len() <= SLOT);
        let shared = Arc::new(Mutex::new(slot.bytes.clone()));
        device.enqueued += 1;
        match out {
            true => device.loaded += range.len(),
            false => device.stored += range.len(),
        }
        let number = device.enqueued;
        let copy = Copy {
            region: self.1,
            range,
            at,
            slot: Arc::clone(&shared),
            out,
        };
        device.under_way.push((number, copy));
        Transfer {
            number,
            slot: Some(slot),
            shared,
        }
    }
}

impl ExecutionQueue for Queue {
    type Slot = Slot;
    type Transfer = Transfer;

    fn region_len(&self) -> usize {
        self.0.lock().unwrap().regions[self.1].len()
    }

    fn poll_slot(&mut self, _: &mut Context<'_>) -> Poll<Result<Slot, DeviceError>> {
        let mut device = self.0.lock().unwrap();
        if device.free == 0 {
            return Poll::Pending;
        }
        device.free -= 1;
        Poll::Ready(Ok(Slot {
            // What was there before.
            bytes: vec![0xee; SLOT],
            device: Arc::clone(&self.0),
        }))
    }

    fn copy_out(&mut self, range: Range<usize>, slot: Slot, at: usize) -> Transfer {
        self.enqueue(range, slot, at, true)
    }

    fn copy_in(&mut self, slot: Slot, at: usize, range: Range<usize>) -> Transfer {
        self.enqueue(range, slot, at, false)
    }
}

fn device(regions: Vec<Vec<u8>>, slots: usize) -> Arc<Mutex<Device>> {
    Arc::new(Mutex::new(Device {
        regions,
        free: slots,
        ..Device::default()
    }))
}

fn capabilities(slots: usize) -> Capabilities {
    let mut capabilities = Capabilities::default();
    (capabilities.slots, capabilities.slot_len) = (slots, SLOT);
    capabilities
}

/// What somebody accesses, one after the other.
type Accesses = Vec<(Range<usize>, Need)>;

/// Carries accesses out in a random order, with copies that end at random, and compares what is read, and what there is in
/// the end, with `model`.
fn run(
    rng: &mut StdRng,
    staged: &mut Staged<Queue>,
    on: &Mutex<Device>,
    plan: &[Accesses],
    model: &mut [u8],
) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut next: Vec<(usize, usize)> = vec![(0, 0); plan.len()];
    for step in 0.. {
        assert!(step < 100_000, "it does not come to an end");
        staged.poll(&mut cx).unwrap();
        for (accesses, (at, offset)) in plan.iter().zip(&mut next) {
            let Some((range, need)) = accesses.get(*at) else {
                continue;
            };
            if rng.random_bool(0.3) {
                continue;
            }
            let rest = range.start + *offset..range.end;
            let Poll::Ready(found) = staged.poll_at_hand(&mut cx, rest.clone(), *need) else {
                continue;
            };
            let length = rng.random_range(1..=found.unwrap());
            let part = rest.start..rest.start + length;
            if *need == Need::Read {
                assert_eq!(staged.read(part.clone()), &model[part.clone()], "{part:?}");
            }
            if *need == Need::Write || rng.random_bool(0.5) {
                let bytes: Vec<u8> = part.clone().map(|_| rng.random()).collect();
                staged.write(part.clone()).copy_from_slice(&bytes);
                model[part.clone()].copy_from_slice(&bytes);
            }
            staged.done_with(part);
            *offset += length;
            if *offset == range.len() {
                (*at, *offset) = (*at + 1, 0);
            }
        }
        let done = next.iter().zip(plan).all(|((at, _), all)| *at == all.len());
        if done && staged.is_settled() {
            return;
        }
        let mut device = on.lock().unwrap();
        if !device.under_way.is_empty() && rng.random_bool(0.6) {
            let index = rng.random_range(0..device.under_way.len());
            device.carry_out(index);
        }
    }
}

fn random_plan(rng: &mut StdRng, length: usize, disjoint: bool) -> Vec<Accesses> {
    let streams = rng.random_range(1..6);
    let part = length / streams;
    (0..streams)
        .map(|stream| {
            let within = match disjoint {
                true => stream * part..(stream + 1) * part,
                false => 0..length,
            };
            let accesses = (0..rng.random_range(0..9)).filter_map(|_| {
                let start = rng.random_range(within.clone());
                let end = rng.random_range(start..within.end).max(start + 1);
                let need = match rng.random_bool(0.5) {
                    true => Need::Read,
                    false => Need::Write,
                };
                (end <= within.end).then_some((start..end, need))
            });
            accesses.collect()
        })
        .collect()
}

#[test]
fn random_accesses_with_few_slots() {
    for seed in 0..400 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let length = rng.random_range(20..200);
        let slots = rng.random_range(1..6);
        let element = rng.random_range(1..=SLOT);
        let mut model: Vec<u8> = (0..length).map(|_| rng.random()).collect();
        let on = device(vec![model.clone()], slots);
        let queue = Queue(Arc::clone(&on), 0);
        let shared = rng.random_bool(0.5);
        let mut staged = Staged::new(queue, None, &capabilities(slots), element, shared).unwrap();
        let plan = random_plan(rng, length, seed % 2 == 0);
        for (range, need) in plan.iter().flatten() {
            staged.plan(range.clone(), *need);
        }
        staged.planned();
        run(rng, &mut staged, &on, &plan, &mut model);
        let device = on.lock().unwrap();
        assert_eq!(device.regions[0], model, "seed {seed}");
        assert_eq!((device.free, device.under_way.len()), (slots, 0));
    }
}

#[test]
fn contents_that_come_from_elsewhere() {
    for seed in 0..400 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let length = rng.random_range(20..200);
        let slots = rng.random_range(1..6);
        let mut model: Vec<u8> = (0..length).map(|_| rng.random()).collect();
        let source = model.clone();
        let on = device(vec![vec![0xaa; length], source.clone()], slots);
        let (queue, from) = (Queue(Arc::clone(&on), 0), Queue(Arc::clone(&on), 1));
        let mut staged = Staged::new(queue, Some(from), &capabilities(slots), 3, false).unwrap();
        let plan = random_plan(rng, length, seed % 2 == 0);
        for (range, need) in plan.iter().flatten() {
            staged.plan(range.clone(), *need);
        }
        staged.planned();
        run(rng, &mut staged, &on, &plan, &mut model);
        let device = on.lock().unwrap();
        assert_eq!(device.regions, [model, source], "seed {seed}");
        assert_eq!((device.free, device.under_way.len()), (slots, 0));
    }
}

/// Every byte once in each direction, if the pages are needed one after the other.
#[test]
fn no_page_moves_twice_where_few_are_needed_at_a_time() {
    let rng = &mut StdRng::seed_from_u64(1);
    let mut model: Vec<u8> = (0..1000).map(|at| at as u8).collect();
    for (need, loaded) in [(Need::Read, 1000), (Need::Write, 0)] {
        let on = device(vec![model.clone()], 4);
        let queue = Queue(Arc::clone(&on), 0);
        let mut staged = Staged::new(queue, None, &capabilities(4), 4, false).unwrap();
        let plan: Accesses = (0..100).map(|at| (at * 10..at * 10 + 10, need)).collect();
        for (range, need) in &plan {
            staged.plan(range.clone(), *need);
        }
        staged.planned();
        run(rng, &mut staged, &on, &[plan], &mut model);
        let device = on.lock().unwrap();
        assert_eq!(device.loaded, loaded);
        assert!(device.stored <= 1000);
        assert_eq!(device.regions[0], model);
    }
}

/// A slot that is given up may go to others. Whoever waits gives up all that it can: a queue without a slot gets one, and
/// nobody else would wake it.
#[test]
fn a_page_that_is_wanted_takes_the_slots_of_all_that_are_idle() {
    let on = device(vec![(0..48).collect()], 2);
    let queue = Queue(Arc::clone(&on), 0);
    let mut staged = Staged::new(queue, None, &capabilities(2), 1, false).unwrap();
    let pages: Vec<Range<usize>> = (0..3).map(|page| page * SLOT..(page + 1) * SLOT).collect();
    for page in pages.iter().chain(&pages) {
        staged.plan(page.clone(), Need::Read);
    }
    staged.planned();
    let mut cx = Context::from_waker(Waker::noop());
    for page in &pages[..2] {
        assert!(
            staged
                .poll_at_hand(&mut cx, page.clone(), Need::Read)
                .is_pending()
        );
        on.lock().unwrap().carry_out(0);
        assert!(
            staged
                .poll_at_hand(&mut cx, page.clone(), Need::Read)
                .is_pending()
        );
        staged.poll(&mut cx).unwrap();
        assert!(
            staged
                .poll_at_hand(&mut cx, page.clone(), Need::Read)
                .is_ready()
        );
        staged.done_with(page.clone());
    }
    on.lock().unwrap().owed = 1;
    assert!(
        staged
            .poll_at_hand(&mut cx, pages[2].clone(), Need::Read)
            .is_pending()
    );
    let loads: Vec<_> = {
        let device = on.lock().unwrap();
        let ranges = device.under_way.iter().map(|(_, copy)| copy.range.clone());
        ranges.collect()
    };
    assert_eq!(loads, [pages[2].clone()]);
}

#[test]
fn an_element_that_fits_into_no_slot_is_an_error() {
    let queue = Queue(device(vec![vec![0; 34]], 1), 0);
    let Err(error) = Staged::new(queue, None, &capabilities(1), SLOT + 1, false) else {
        return assert_eq!("no error", "an error");
    };
    assert_eq!(
        error.to_string(),
        "17 bytes are no element that fits into a staging slot of 16 bytes"
    );
}
