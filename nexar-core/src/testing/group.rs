//! Groups of two ranks for the cases about messages.

use super::{End, Harness};
use crate::{
    Error, Failure, JoinError, Mesh, Result, TimeLimits,
    membership::{JoinRequest, RecvOf, SeedRoute, SendOf, join},
    messaging::Messenger,
    transport::{Connection, NewConnection, SendStream, Transport},
    wire::{
        self, LaneKind, MAX_CONTROL_FRAME, MAX_JOIN_FRAME, PROTOCOL_VERSION, Preamble,
        control::Control,
        join::{Answer, Hello, Join, Opening},
    },
};
use bytes::Bytes;
use std::{net::SocketAddr, sync::Arc, time::Duration};

const JOB: &str = "conformance";

/// The communicator of [`Rank::messenger`].
const COMMUNICATOR: u64 = 1;

/// One rank.
pub(super) struct Rank<T: Transport> {
    pub(super) mesh: Mesh<T>,
    pub(super) messenger: Arc<Messenger<T>>,
}

impl<T: Transport> Rank<T> {
    fn new(mesh: Mesh<T>) -> Self {
        let messenger = Arc::new(communicator(&mesh, COMMUNICATOR));
        Rank { mesh, messenger }
    }

    /// Another communicator of both ranks.
    pub(super) fn communicator(&self, id: u64) -> Messenger<T> {
        communicator(&self.mesh, id)
    }

    /// Leaves in the order that the documentation asks for.
    pub(super) async fn leave(self) -> Result<()> {
        let Rank { mesh, messenger } = self;
        mesh.prepare_leave();
        let messenger = Arc::into_inner(messenger).expect("nobody uses it any more");
        leave_group(messenger).await?;
        mesh.leave().await
    }
}

/// Leaves one communicator, when everything that was sent has arrived.
pub(super) async fn leave_group<T: Transport>(messenger: Messenger<T>) -> Result<()> {
    messenger.drain().await?;
    messenger.group().leave();
    Ok(())
}

fn communicator<T: Transport>(mesh: &Mesh<T>, id: u64) -> Messenger<T> {
    let group = mesh.group(id, vec![0, 1]).expect("a communicator");
    Messenger::new(Arc::new(group))
}

/// Time limits that no machine should reach, but before which a case is given up.
pub(super) fn patient<H: Harness>(harness: &H) -> TimeLimits {
    let limit = harness.limits().case_time;
    TimeLimits::default()
        .with_join(limit)
        .with_operation(4 * limit)
        .with_detection(Duration::from_secs(20).max(limit / 2))
}

/// What rank `rank` asks for.
pub(super) fn request(rank: usize, limits: TimeLimits) -> JoinRequest {
    JoinRequest::new(JOB, 2)
        .with_rank(Some(rank))
        .with_limits(limits)
}

/// Joins as rank 0, which is the seed.
pub(super) async fn join_as_seed<T: Transport>(transport: &Arc<T>, limits: TimeLimits) -> Rank<T> {
    let route = SeedRoute::Here(Arc::clone(transport));
    let mesh = join(route, &request(0, limits)).await;
    Rank::new(mesh.expect("the seed joins"))
}

/// Joins as rank 1.
pub(super) async fn join_by<T: Transport>(
    transport: &Arc<T>,
    seed: SocketAddr,
    limits: TimeLimits,
) -> Result<Rank<T>, JoinError> {
    let route = SeedRoute::Dial(vec![(Arc::clone(transport), seed)]);
    join(route, &request(1, limits)).await.map(Rank::new)
}

/// The two ends as ranks 0 and 1, on a connection of their own.
pub(super) async fn group<H: Harness>(
    harness: &H,
    a: End<H::Transport>,
    b: End<H::Transport>,
) -> [Rank<H::Transport>; 2] {
    let limits = patient(harness);
    let (a, b) = (Arc::new(a.transport), Arc::new(b.transport));
    let seed = a.local_addr();
    let (zero, one) = tokio::join!(join_as_seed(&a, limits), join_by(&b, seed, limits));
    let one = one.expect("rank 1 joins");
    for (member, transport) in zero.mesh.members().iter().zip([&a, &b]) {
        assert_eq!(&member.identity, transport.identity());
    }
    [zero, one]
}

/// A rank whose streams are written by hand. It says nothing of its own accord, not even that it lives.
pub(super) struct RawRank<T: Transport> {
    /// Its end would be the end of the connection.
    _transport: Arc<T>,
    /// To rank 0.
    pub(super) new: NewConnection<T::Connection>,
    pub(super) control: (SendOf<T>, RecvOf<T>),
}

/// The two ends as rank 0 and a rank 1 that is written by hand.
pub(super) async fn group_with_raw<H: Harness>(
    a: End<H::Transport>,
    b: End<H::Transport>,
    limits: TimeLimits,
) -> (Rank<H::Transport>, RawRank<H::Transport>) {
    let (a, b) = (Arc::new(a.transport), Arc::new(b.transport));
    let seed = a.local_addr();
    tokio::join!(join_as_seed(&a, limits), RawRank::join(b, seed, limits))
}

impl<T: Transport> RawRank<T> {
    async fn join(transport: Arc<T>, seed: SocketAddr, limits: TimeLimits) -> Self {
        let join = Opening::Join(Join {
            version: PROTOCOL_VERSION,
            job: JOB.into(),
            world_size: 2,
            rank: Some(1),
            address: transport.local_addr(),
            detection_ms: limits.detection.as_millis() as u64,
        });
        let (asked, _, answer) = open(&*transport, seed, &join).await;
        let Answer::Table(table) = answer else {
            panic!("expected the table of members, got {answer:?}")
        };
        asked.connection.close(0, "joined");
        let hello = Opening::Hello(Hello {
            version: PROTOCOL_VERSION,
            session: table.session,
            rank: 1,
        });
        let (new, control, answer) = open(&*transport, seed, &hello).await;
        assert_eq!(answer, Answer::Welcome);
        RawRank {
            _transport: transport,
            new,
            control,
        }
    }

    /// Sends a control frame to rank 0.
    pub(super) async fn says(&mut self, control: &Control) {
        wire::write_frame(&mut self.control.0, control, MAX_CONTROL_FRAME)
            .await
            .expect("write a control frame");
    }

    /// A stream to rank 0 that says what kind it is.
    pub(super) async fn lane(&self, communicator: u64, kind: LaneKind, message: u64) -> SendOf<T> {
        let preamble = Preamble {
            communicator,
            kind,
            message,
        };
        let mut lane = self.new.connection.open_uni().await.expect("open");
        let bytes = Bytes::copy_from_slice(&preamble.encode());
        lane.write_all(bytes).await.expect("write the preamble");
        lane
    }
}

type Opened<T> = (
    NewConnection<<T as Transport>::Connection>,
    (SendOf<T>, RecvOf<T>),
    Answer,
);

/// Dials and says what is wanted.
async fn open<T: Transport>(transport: &T, address: SocketAddr, opening: &Opening) -> Opened<T> {
    let new = transport.connect(address, None).await.expect("connect");
    let (mut send, mut recv) = new.connection.open_bi().await.expect("open");
    wire::write_frame(&mut send, opening, MAX_JOIN_FRAME)
        .await
        .expect("write the opening");
    let answer = wire::read_frame(&mut recv, MAX_JOIN_FRAME).await;
    let answer = answer.expect("read the answer").expect("an answer");
    (new, (send, recv), answer)
}

/// The failure of an operation.
pub(super) fn failure<R>(result: Result<R>) -> Failure {
    match result {
        Err(Error::Operation(error)) => error.failure,
        Err(error) => panic!("expected the failure of the group, got {error}"),
        // Whatever it is, it may be large.
        Ok(_) => panic!("expected the failure of the group, but the operation succeeded"),
    }
}
