//! The clock of a mesh: heartbeats, time limits and stalls.

use super::Shared;
use crate::{transport::Transport, wire::control::Control};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval},
};

/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(100);

pub(super) fn spawn<T: Transport>(shared: &Arc<Shared<T>>) -> AbortHandle {
    let runtime = shared.transport.background();
    runtime.spawn(watch(Arc::clone(shared))).abort_handle()
}

async fn watch<T: Transport>(shared: Arc<Shared<T>>) {
    let mut tick = interval(TICK.min(shared.limits.detection / 4));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        tick.tick().await;
        let now = Instant::now();
        // After this process itself was stopped, what the others sent meanwhile is still unread: they are
        // given another detection time before their silence counts.
        if now - last > shared.limits.detection / 2 {
            shared.others().for_each(|(_, peer)| peer.forgive_silence());
        }
        last = now;
        shared.check_heartbeats();
        shared.check_leave();
        shared.forget_unclaimed(now);
        for group in shared.all_groups() {
            for listener in group.listeners() {
                listener.tick(now);
            }
            let (failure, waiting) = group.check_time(now, shared.limits.operation);
            if let Some(failure) = failure {
                shared.fail_group(&group, failure);
            } else if let Some(call) = waiting {
                shared.tell_each(&group, |member| Control::Waiting {
                    communicator: group.id(),
                    call: call.towards(member),
                });
            }
        }
    }
}
