//! Endpoints: dialling and being dialled.

use super::{
    connection::{MemoryConnection, handles},
    lock,
    network::Inner,
    state::Shared,
};
use crate::transport::{Capabilities, ConnectionError, NewConnection, PeerId, Transport};
use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::AtomicBool},
};
use tokio::{runtime::Handle, sync::Notify, time::Instant};

/// One endpoint of a [`MemoryNetwork`](super::MemoryNetwork).
///
/// Dropping it frees its address and closes the connections that nobody has accepted; the others live on.
pub struct MemoryTransport {
    network: Arc<Inner>,
    endpoint: Arc<Endpoint>,
}

pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    /// Distinguishes the endpoints that have used one address.
    pub(super) instance: u64,
    pub(super) identity: PeerId,
    pub(super) runtime: Handle,
    pub(super) crashed: AtomicBool,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    backlog: VecDeque<NewConnection<MemoryConnection>>,
    closed: bool,
}

impl Endpoint {
    pub(super) fn new(
        address: SocketAddr,
        instance: u64,
        identity: PeerId,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Endpoint {
            address,
            instance,
            identity,
            runtime,
            crashed: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Takes no more connections; those that were not accepted are dropped.
    pub(super) fn shut(&self) {
        let backlog = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.backlog)
        };
        self.changed.notify_waiters();
        drop(backlog);
    }

    pub(super) fn is_shut(&self) -> bool {
        lock(&self.state).closed
    }

    /// Hands a connection to whoever accepts here.
    pub(super) fn offer(
        &self,
        limit: usize,
        make: impl FnOnce() -> Arc<Shared>,
    ) -> Result<Arc<Shared>, ConnectionError> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(ConnectionError::Unreachable {
                address: self.address,
                reason: "the endpoint there is closed".into(),
            });
        }
        if state.backlog.len() >= limit {
            return Err(ConnectionError::Refused {
                reason: format!(
                    "{} has {limit} connections that it has not accepted",
                    self.address
                ),
            });
        }
        let shared = make();
        state.backlog.push_back(handles(&shared, 1));
        drop(state);
        self.changed.notify_one();
        Ok(shared)
    }

    fn take(&self) -> Option<Option<NewConnection<MemoryConnection>>> {
        let mut state = lock(&self.state);
        match state.backlog.pop_front() {
            Some(connection) => Some(Some(connection)),
            None => state.closed.then_some(None),
        }
    }
}

impl MemoryTransport {
    pub(super) fn new(network: Arc<Inner>, endpoint: Arc<Endpoint>) -> Self {
        MemoryTransport { network, endpoint }
    }

    async fn dial(
        &self,
        address: SocketAddr,
        expected: Option<&PeerId>,
    ) -> Result<NewConnection<MemoryConnection>, ConnectionError> {
        let here = self.endpoint.address;
        let deadline = Instant::now() + self.network.config.handshake_timeout;
        self.network.cross(here, address, deadline).await?;
        let target = self.network.endpoint(address)?;
        if let Some(expected) = expected.filter(|expected| **expected != target.identity) {
            self.network.cross(address, here, deadline).await?;
            return Err(ConnectionError::WrongPeer {
                expected: expected.clone(),
                found: target.identity.clone(),
            });
        }
        let shared = target.offer(self.network.config.backlog, || {
            self.network.connection([&self.endpoint, &target])
        })?;
        let connection = handles(&shared, 0);
        self.network.cross(address, here, deadline).await?;
        Ok(connection)
    }
}

impl Transport for MemoryTransport {
    type Connection = MemoryConnection;

    fn name(&self) -> &str {
        "memory"
    }

    fn identity(&self) -> &PeerId {
        &self.endpoint.identity
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(false, false)
    }

    fn local_addr(&self) -> SocketAddr {
        self.endpoint.address
    }

    /// Dials `address`, which takes the delay of both directions. An address at which no endpoint is bound
    /// is [`Unreachable`](ConnectionError::Unreachable) at once; one that is cut off times out.
    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&PeerId>,
    ) -> Result<NewConnection<MemoryConnection>, ConnectionError> {
        if self.endpoint.is_shut() {
            return Err(ConnectionError::EndpointClosed);
        }
        let result = self.dial(address, expected).await;
        if self.endpoint.is_shut() {
            return Err(ConnectionError::EndpointClosed);
        }
        result
    }

    async fn accept(&self) -> Option<NewConnection<MemoryConnection>> {
        loop {
            let mut changed = std::pin::pin!(self.endpoint.changed.notified());
            changed.as_mut().enable();
            if let Some(answer) = self.endpoint.take() {
                return answer;
            }
            changed.await;
        }
    }

    /// Closes the endpoint. Peers that are cut off or have crashed are not waited for.
    async fn close(&self, code: u64, reason: &str) {
        let connections = self.network.unbind(&self.endpoint);
        for (shared, side) in &connections {
            shared.with(|core| core.close(*side, code, reason));
        }
        self.endpoint.shut();
        for (shared, side) in &connections {
            shared.told(1 - side).await;
        }
    }

    fn background(&self) -> &Handle {
        &self.endpoint.runtime
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        self.network.unbind(&self.endpoint);
        self.endpoint.shut();
    }
}

impl fmt::Debug for MemoryTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransport")
            .field("address", &self.endpoint.address)
            .field("identity", &self.endpoint.identity)
            .finish_non_exhaustive()
    }
}
