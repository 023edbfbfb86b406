//! The background tasks of a connection: reading and writing its control stream, accepting its lanes.

use super::{
    CLOSE_LEFT, CLOSE_LOST, CLOSE_PROTOCOL, LeftMember, LinkParts, Shared, lock,
    peer::{Outgoing, Presence},
    shared::LastWord,
};
use crate::{
    error::RefuseReason,
    membership::{Greeting, Listener, RecvOf, SendOf},
    transport::{
        BiAcceptor, Connection, ConnectionError, RecvStream, SendStream, Transport, UniAcceptor,
    },
    wire::{self, FrameError, MAX_CONTROL_FRAME, Preamble, control::Control},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{MissedTickBehavior, interval, timeout},
};

/// Priority of the control stream where the transport knows priorities.
const CONTROL_PRIORITY: i32 = 100;

/// How long a lane may take to say what it is.
const PREAMBLE_LIMIT: Duration = Duration::from_secs(10);

/// Lanes of one peer that have not said what they are.
const MAX_NAMELESS: usize = 256;

/// A rank of which nothing was heard for so long is not waited for by one that leaves.
const LEAVE_SILENCE: Duration = Duration::from_secs(2);

/// Code with which streams are stopped that nobody wants.
const STOP_UNWANTED: u64 = 1;

/// Starts the tasks of the connection to `rank`.
pub(super) fn spawn<T: Transport>(
    shared: &Arc<Shared<T>>,
    rank: usize,
    (link, queue): LinkParts<T>,
) -> [AbortHandle; 4] {
    let runtime = shared.transport.background();
    let mut send = link.send;
    send.set_priority(CONTROL_PRIORITY);
    [
        runtime
            .spawn(write_control(Arc::clone(shared), rank, send, queue))
            .abort_handle(),
        runtime
            .spawn(read_control(Arc::clone(shared), rank, link.recv))
            .abort_handle(),
        runtime
            .spawn(accept_lanes(Arc::clone(shared), rank, link.new.uni))
            .abort_handle(),
        runtime.spawn(refuse_streams(link.new.bi)).abort_handle(),
    ]
}

/// Turns away whoever comes after the group has formed.
pub(super) fn spawn_doorman<T: Transport>(
    shared: &Arc<Shared<T>>,
    mut listener: Listener<T>,
) -> AbortHandle {
    let transport = Arc::clone(&shared.transport);
    let task = async move {
        loop {
            let from = tokio::select! {
                Some(greeting) = listener.joins.recv() =>
                    dismiss(greeting, &*transport, RefuseReason::AlreadyFormed),
                Some(greeting) = listener.hellos.recv() =>
                    dismiss(greeting, &*transport, RefuseReason::Stranger),
                else => break,
            };
            tracing::warn!(%from, "refused a process that came after the group had formed");
        }
    };
    shared.transport.background().spawn(task).abort_handle()
}

fn dismiss<T: Transport, O>(
    greeting: Greeting<T, O>,
    transport: &T,
    reason: RefuseReason,
) -> std::net::SocketAddr {
    let from = greeting.link.new.connection.remote_addr();
    transport.background().spawn(greeting.link.refuse(reason));
    from
}

async fn write_control<T: Transport>(
    shared: Arc<Shared<T>>,
    rank: usize,
    mut stream: SendOf<T>,
    mut queue: mpsc::Receiver<Outgoing>,
) {
    let mut heartbeat = interval(shared.limits.detection / 4);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let frame = tokio::select! {
            biased;
            next = queue.recv() => match next {
                Some(Outgoing::Frame(frame)) => frame,
                Some(Outgoing::End(done)) => {
                    if stream.finish().is_ok() {
                        let _ = stream.acked().await;
                    }
                    let _ = done.send(());
                    return;
                }
                None => return,
            },
            _ = heartbeat.tick() => Control::Heartbeat,
        };
        if let Err(error) = wire::write_frame(&mut stream, &frame, MAX_CONTROL_FRAME).await {
            // The reading side learns why the connection ended; a frame that cannot be encoded is
            // this side's own fault and must not be lost in silence.
            if let FrameError::Wire(error) = error {
                tracing::error!(rank, %error, "a control frame could not be encoded");
                continue;
            }
            return;
        }
    }
}

async fn read_control<T: Transport>(shared: Arc<Shared<T>>, rank: usize, mut stream: RecvOf<T>) {
    let Some(peer) = shared.peer(rank) else {
        return;
    };
    loop {
        match wire::read_frame(&mut stream, MAX_CONTROL_FRAME).await {
            Ok(Some(frame)) => {
                peer.set_heard();
                handle(&shared, rank, frame);
            }
            Ok(None) => {
                let reason = peer.connection.closed().await;
                return ended(&shared, rank, &reason);
            }
            Err(FrameError::Wire(error)) => {
                peer.connection.close(CLOSE_PROTOCOL, "protocol violation");
                return shared.lost(rank, &format!("it broke the protocol: {error}"));
            }
            Err(FrameError::Stream(error)) => {
                let reason = match error {
                    crate::transport::StreamError::Connection(reason) => reason,
                    _ => peer.connection.closed().await,
                };
                return ended(&shared, rank, &reason);
            }
        }
    }
}

fn ended<T: Transport>(shared: &Shared<T>, rank: usize, reason: &ConnectionError) {
    match reason {
        ConnectionError::ClosedByPeer {
            code: CLOSE_LEFT, ..
        } => shared.left(rank),
        ConnectionError::ClosedLocally | ConnectionError::EndpointClosed => {}
        ConnectionError::ClosedByPeer {
            code: CLOSE_LOST,
            reason,
        } => shared.lost(rank, &format!("it took this rank for dead: {reason}")),
        reason => shared.lost(rank, &format!("its connection ended: {reason}")),
    }
}

fn handle<T: Transport>(shared: &Shared<T>, rank: usize, frame: Control) {
    let Some(peer) = shared.peer(rank) else {
        return;
    };
    match frame {
        Control::Heartbeat => {}
        Control::Probe => {
            peer.send(Control::Heartbeat);
        }
        Control::Goodbye => {
            peer.send(Control::GoodbyeSeen);
            shared.left(rank);
        }
        Control::GoodbyeSeen => peer.confirm(true),
        Control::Abort {
            communicator,
            failure,
        } => shared.hear_last(rank, communicator, LastWord::Failed(failure)),
        Control::Leave {
            communicator,
            calls,
            message_lane,
            rpc_lane,
        } => {
            let left = LeftMember {
                calls,
                message_lane,
                rpc_lane,
            };
            shared.hear_last(rank, communicator, LastWord::Left(left));
        }
        Control::Waiting { communicator, call } => {
            let group = shared.find_group(communicator);
            let (calls, waits_for_device) =
                group.as_ref().map_or((0, None), |group| group.position());
            peer.send(Control::Position {
                communicator,
                calls,
                waits_for_device,
            });
            if let Some(group) = group
                && let Some(member) = group.member(rank)
                && let Some(mismatch) = group.compare(member, call)
            {
                shared.fail_group(&group, mismatch);
            }
        }
        Control::Position {
            communicator,
            calls,
            waits_for_device,
        } => {
            if let Some(group) = shared.find_group(communicator)
                && let Some(member) = group.member(rank)
            {
                group.set_position(member, calls, waits_for_device);
            }
        }
    }
}

async fn accept_lanes<T: Transport>(
    shared: Arc<Shared<T>>,
    rank: usize,
    mut acceptor: <T::Connection as Connection>::UniAcceptor,
) {
    let mut nameless = JoinSet::new();
    while let Ok(stream) = acceptor.accept().await {
        while nameless.try_join_next().is_some() {}
        if nameless.len() >= MAX_NAMELESS {
            nameless.join_next().await;
        }
        nameless.spawn(name_lane(Arc::clone(&shared), rank, stream));
    }
}

async fn name_lane<T: Transport>(shared: Arc<Shared<T>>, rank: usize, mut stream: RecvOf<T>) {
    let mut bytes = [0; Preamble::LEN];
    match timeout(PREAMBLE_LIMIT, stream.read_exact(&mut bytes)).await {
        Ok(Ok(())) => {}
        // The connection's end is reported by the control stream.
        Ok(Err(_)) => return,
        Err(_) => return stream.stop(STOP_UNWANTED),
    }
    let Ok(preamble) = Preamble::decode(&bytes) else {
        if let Some(peer) = shared.peer(rank) {
            peer.connection.close(CLOSE_PROTOCOL, "protocol violation");
        }
        return shared.lost(rank, "it broke the protocol: malformed lane");
    };
    let mut groups = lock(&shared.groups);
    match groups.by_id.get(&preamble.communicator).cloned() {
        Some(group) => {
            drop(groups);
            group.add_lane(rank, preamble, stream);
        }
        None => {
            if let Err(mut stream) = groups.unclaimed.keep(rank, preamble, stream) {
                drop(groups);
                stream.stop(STOP_UNWANTED);
            }
        }
    }
}

/// Nothing uses bidirectional streams after the control stream.
async fn refuse_streams<B: BiAcceptor>(mut acceptor: B) {
    while let Ok((mut send, mut recv)) = acceptor.accept().await {
        send.reset(STOP_UNWANTED);
        recv.stop(STOP_UNWANTED);
    }
}

impl<T: Transport> Shared<T> {
    /// Ranks that have been silent for longer than the detection time are lost; one that has never spoken may still
    /// be joining. If it dies, its connection ends.
    pub(super) fn check_heartbeats(&self) {
        for (rank, peer) in self.others() {
            let silent = peer.heard().elapsed();
            let limit = match peer.has_spoken() {
                true => self.limits.detection,
                false => self.limits.detection.max(self.limits.join),
            };
            if peer.presence() == Presence::Here && silent > limit {
                self.lost(
                    rank,
                    &format!("nothing heard from it for {:.1} s", silent.as_secs_f32()),
                );
            }
        }
    }

    /// While this rank leaves, ranks that do not answer are given up sooner than they would be declared lost.
    pub(super) fn check_leave(&self) {
        let Some(since) = lock(&self.leaving).as_ref().map(|leaving| leaving.since) else {
            return;
        };
        for (rank, peer) in self.others() {
            if peer.presence() != Presence::Here {
                continue;
            }
            peer.send(Control::Probe);
            let silent = peer.heard().elapsed().min(since.elapsed());
            if silent >= LEAVE_SILENCE && peer.set_presence(Presence::Lost) {
                tracing::debug!(rank, "leaving without the answer of a silent rank");
                peer.connection.close(CLOSE_LEFT, "left");
            }
        }
    }
}
