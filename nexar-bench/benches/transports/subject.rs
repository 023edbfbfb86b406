//! What is compared, behind one small trait.

use crate::{
    Result,
    keys::Keys,
    peer::{self, Commands, Peer, Role},
    runtime,
    work::{self, Work},
};
use bytes::Bytes;
use std::{future::Future, net::SocketAddr, time::Duration};
use tokio::{runtime::Runtime, time::timeout};

/// Longest piece that is given to a stream at once, and that is asked of one.
pub(crate) const CHUNK: usize = 1 << 20;

/// For what takes seconds; more is a deadlock.
const LIMIT: Duration = Duration::from_secs(120);

/// A way to move bytes between two processes.
pub(crate) trait Subject: Sized + 'static {
    type Listener;
    type Sender: Sender;
    type Receiver: Receiver;
    type Host: Host;

    /// Its name in the results.
    fn name(&self) -> String;

    /// Whether it takes part where many bytes are moved.
    fn takes_transfers(&self) -> bool {
        true
    }

    /// Listens on the loopback interface, on a port that the system chooses.
    async fn listen(&self, keys: &Keys) -> Result<(Self::Listener, SocketAddr)>;

    /// Waits for the one connection and its stream. The dialling side writes first.
    async fn accept(&self, listener: Self::Listener) -> Result<Link<Self>>;

    /// Connects and opens a stream.
    async fn dial(&self, address: SocketAddr, keys: &Keys) -> Result<Link<Self>>;
}

/// One end of a duplex stream.
pub(crate) struct Link<S: Subject> {
    pub(crate) sender: S::Sender,
    pub(crate) receiver: S::Receiver,
    pub(crate) host: S::Host,
}

/// The outgoing half.
pub(crate) trait Sender: Send {
    /// Hands all of `data` over. It is on its way without a further call.
    fn send(&mut self, data: Bytes) -> impl Future<Output = Result<()>> + Send;
}

/// The incoming half.
pub(crate) trait Receiver: Send {
    /// Receives some bytes, 1 to `max`, and forgets them. `max` is never less than what is left of the
    /// other side's last `send`.
    fn recv(&mut self, max: usize) -> impl Future<Output = Result<usize>> + Send;

    /// Receives `count` bytes.
    fn recv_all(&mut self, count: usize) -> impl Future<Output = Result<()>> + Send {
        async move {
            let mut left = count;
            while left > 0 {
                left -= self.recv(left).await?;
            }
            Ok(())
        }
    }
}

/// What a link lives on: an endpoint, say.
pub(crate) trait Host: Sync {
    /// Waits for `work`, in the way that is quickest with this subject.
    fn drive<F: Future + Send>(&self, work: F) -> impl Future<Output = F::Output> + Send {
        work
    }

    /// Closes it. Nothing is under way any more.
    async fn close(self)
    where
        Self: Sized;
}

/// A [`Subject`] without its types.
pub(crate) trait AnySubject {
    fn name(&self) -> String;
    fn takes_transfers(&self) -> bool;
    /// Starts the other process and connects to it.
    fn open(&self) -> Result<Box<dyn Session>>;
    /// Is that other process.
    fn serve(&self, address: SocketAddr, keys: &Keys) -> Result<()>;
}

/// Two connected processes.
pub(crate) trait Session {
    /// How long it takes to do `work` so many times.
    fn measure(&mut self, work: Work, repeats: u64) -> Result<Duration>;
    /// Ends the other process.
    fn close(self: Box<Self>) -> Result<()>;
}

impl<S: Subject> AnySubject for S {
    fn name(&self) -> String {
        Subject::name(self)
    }

    fn takes_transfers(&self) -> bool {
        Subject::takes_transfers(self)
    }

    fn open(&self) -> Result<Box<dyn Session>> {
        let runtime = runtime()?;
        let (link, peer) = runtime.block_on(async {
            let keys = Keys::new()?;
            let (listener, address) = self.listen(&keys).await?;
            let mut peer = Peer::spawn(&Role::Channel {
                subject: Subject::name(self),
                address,
                keys,
            })?;
            let accept = async {
                let mut link = self.accept(listener).await?;
                link.receiver.recv_all(work::CONFIRMATION.len()).await?;
                Ok(link)
            };
            let link = peer.while_alive(accept).await?;
            peer.answer().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((link, peer))
        })?;
        Ok(Box::new(Open::<S> {
            link,
            peer,
            runtime,
        }))
    }

    fn serve(&self, address: SocketAddr, keys: &Keys) -> Result<()> {
        runtime()?.block_on(async {
            let mut link = self.dial(address, keys).await?;
            link.sender
                .send(Bytes::from_static(work::CONFIRMATION))
                .await?;
            peer::answer()?;
            let mut commands = Commands::new();
            while let Some((work, repeats)) = commands.next().await? {
                peer::answer()?;
                work::answer(&mut link, work, repeats).await?;
            }
            link.host.close().await;
            Ok(())
        })
    }
}

// Fields are dropped in this order: what is open, then the runtime that it lives on.
struct Open<S: Subject> {
    link: Link<S>,
    peer: Peer,
    runtime: Runtime,
}

impl<S: Subject> Session for Open<S> {
    fn measure(&mut self, work: Work, repeats: u64) -> Result<Duration> {
        let Open {
            link,
            peer,
            runtime,
        } = self;
        runtime.block_on(async {
            peer.command(&(work, repeats)).await?;
            peer.answer().await?;
            let asking = work::ask(link, work, repeats);
            let stuck = |_| format!("{repeats} times {work:?} took more than {LIMIT:?}");
            timeout(LIMIT, asking).await.map_err(stuck)?
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Open {
            link,
            peer,
            runtime,
        } = *self;
        runtime.block_on(async {
            let ended = peer.end().await;
            link.host.close().await;
            ended
        })
    }
}
