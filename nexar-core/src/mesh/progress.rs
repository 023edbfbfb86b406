//! Whether the call in progress gets on, and what it waits for where it does not.

use super::{
    lock,
    shared::{GroupShared, MemberState, Registered, State},
};
use crate::Failure;
use std::{sync::atomic::Ordering, time::Duration};
use tokio::time::Instant;

/// A call without progress for so long asks the other members where they are.
const STALL: Duration = Duration::from_millis(500);

/// How often it asks again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A member that waited for its device so long ago, by its own account, is taken to wait still.
const STILL_WAITS: Duration = Duration::from_secs(3);

/// The call in progress.
pub(super) struct Ongoing {
    pub(super) call: Registered,
    started: Instant,
    /// Value of the progress counter, and since when it has it.
    progress: (u64, Instant),
    asked: Option<Instant>,
}

impl Ongoing {
    pub(super) fn new(call: Registered, progress: u64) -> Self {
        let now = Instant::now();
        Ongoing {
            call,
            started: now,
            progress: (progress, now),
            asked: None,
        }
    }

    /// Whether nothing has moved for a while.
    fn is_stalled(&self, progress: u64, now: Instant) -> bool {
        progress == self.progress.0 && now.saturating_duration_since(self.progress.1) >= STALL
    }
}

impl<R> GroupShared<R> {
    /// The calls begun on this rank, and the one that makes no progress because this rank waits for its device.
    pub(super) fn position(&self) -> (u64, Option<u64>) {
        let (state, now) = (lock(&self.state), Instant::now());
        let progress = self.progress.load(Ordering::Relaxed);
        let local = state.local_since;
        let stalled = match (local, &state.ongoing) {
            (Some(since), _) => now.saturating_duration_since(since) >= STALL,
            (None, Some(ongoing)) => ongoing.is_stalled(progress, now),
            (None, None) => false,
        };
        let waits = stalled && self.waits_for_device.load(Ordering::Relaxed);
        let ongoing = state.ongoing.as_ref().map(|o| o.call.call.sequence);
        (state.calls, waits.then_some(ongoing.unwrap_or(state.calls)))
    }

    /// Work for a call begins or ends that has to do with this rank's device alone.
    pub(super) fn set_device_work(&self, begins: bool) {
        self.waits_for_device.store(begins, Ordering::Relaxed);
        self.progress.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        state.local_since = begins.then(Instant::now);
        if !begins {
            state.waker = None;
        }
    }

    /// A member has begun so many calls, and waits for its device in one of them, or not.
    pub(super) fn set_position(&self, member: usize, calls: u64, waits_for_device: Option<u64>) {
        if let Some(member) = lock(&self.state).members.get_mut(member) {
            member.calls = member.calls.max(calls);
            member.waited_for_device = waits_for_device.map(|call| (Instant::now(), call));
        }
    }

    /// A failure where the time limit has passed; the call where it is time to ask the others about it.
    pub(super) fn check_time(
        &self,
        now: Instant,
        limit: Duration,
    ) -> (Option<Failure>, Option<Registered>) {
        let mut state = lock(&self.state);
        if state.failure.is_some() {
            return (None, None);
        }
        let progress = self.progress.load(Ordering::Relaxed);
        let over = |since: Instant| now.saturating_duration_since(since) >= limit;
        let Some(ongoing) = &mut state.ongoing else {
            let failure = state.local_since.filter(|since| over(*since));
            let timed_out = |_| Failure::TimedOut {
                limit,
                missing: Vec::new(),
                waiting_for_device: vec![self.own],
            };
            return (failure.map(timed_out), None);
        };
        let stalled = ongoing.is_stalled(progress, now);
        if over(ongoing.started) {
            let sequence = ongoing.call.call.sequence;
            let waits = stalled && self.waits_for_device.load(Ordering::Relaxed);
            return (Some(self.timed_out(&state, sequence, limit, waits)), None);
        }
        if progress != ongoing.progress.0 {
            ongoing.progress = (progress, now);
            return (None, None);
        }
        let due = ongoing
            .asked
            .is_none_or(|at| now.saturating_duration_since(at) >= ASK_AGAIN);
        if stalled && due {
            ongoing.asked = Some(now);
            return (None, Some(ongoing.call.clone()));
        }
        (None, None)
    }

    /// The failure of a call whose time is over, in which this rank `waits` for its device or not.
    fn timed_out(&self, state: &State<R>, sequence: u64, limit: Duration, waits: bool) -> Failure {
        let which = |condition: &dyn Fn(usize, &MemberState<R>) -> bool| {
            let members = state.members.iter().enumerate();
            let found = members.filter(|(rank, member)| condition(*rank, member));
            found.map(|(rank, _)| rank).collect()
        };
        // A wait in a later call has nothing to do with this one.
        let still = |(at, call): (Instant, u64)| at.elapsed() < STILL_WAITS && call <= sequence;
        Failure::TimedOut {
            limit,
            missing: which(&|rank, member| rank != self.own && member.calls <= sequence),
            waiting_for_device: which(&|rank, member| match rank == self.own {
                true => waits,
                false => member.waited_for_device.is_some_and(still),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Call, Collective};

    const LIMIT: Duration = Duration::from_secs(5);

    /// What becomes of the first call of rank 1 of 3, after the other ranks have said where they are.
    fn timed_out(positions: [(usize, u64, Option<u64>); 2]) -> Failure {
        let group: GroupShared<()> = GroupShared::new(0, vec![0, 1, 2], 1);
        let call = |sequence| Call {
            collective: Collective::Barrier,
            sequence,
            dtype: None,
            element: 0,
            op: None,
            count: 0,
            root: None,
            algorithm: Algorithm::Dissemination,
            digest: 0,
            exchange: None,
        };
        assert!(group.begin(call, None).is_ok());
        for (member, calls, waits) in positions {
            group.set_position(member, calls, waits);
        }
        let (failure, _) = group.check_time(Instant::now() + LIMIT, LIMIT);
        failure.unwrap()
    }

    fn failure(missing: &[usize], waiting_for_device: &[usize]) -> Failure {
        Failure::TimedOut {
            limit: LIMIT,
            missing: missing.to_vec(),
            waiting_for_device: waiting_for_device.to_vec(),
        }
    }

    #[test]
    fn who_waits_for_a_device_is_to_blame() {
        assert_eq!(
            timed_out([(0, 1, Some(0)), (2, 1, None)]),
            failure(&[], &[0])
        );
        // Before it enters the call.
        assert_eq!(
            timed_out([(0, 1, None), (2, 0, Some(0))]),
            failure(&[2], &[2])
        );
    }

    #[test]
    fn who_waits_in_a_later_call_is_not() {
        assert_eq!(
            timed_out([(0, 2, Some(1)), (2, 0, None)]),
            failure(&[2], &[])
        );
        assert_eq!(
            timed_out([(0, 1, Some(1)), (2, 0, None)]),
            failure(&[2], &[])
        );
    }
}
