//! The messages of nexar between two ranks: found by source and tag, and bounded.

use super::nexar::bind;
use crate::{
    Result,
    keys::Keys,
    subject::{Host, Link, Receiver, Sender, Subject},
};
use bytes::Bytes;
use nexar_bench::report::plan;
use nexar_core::{
    Mesh,
    membership::{JoinRequest, SeedRoute, join},
    messaging::{EAGER_LIMIT, Messenger},
    transport::Transport,
};
use nexar_quic::{AnyTransport, Backend};
use std::{net::SocketAddr, sync::Arc};

const TAG: u64 = 1;

pub(crate) struct Messages(pub(super) Backend);

impl Subject for Messages {
    type Listener = AnyTransport;
    type Sender = Half;
    type Receiver = Inbox;
    type Host = Member;

    fn name(&self) -> String {
        plan::messages(self.0.name())
    }

    /// Large messages are a matter of streams of their own.
    fn takes_transfers(&self) -> bool {
        false
    }

    async fn listen(&self, _: &Keys) -> Result<(AnyTransport, SocketAddr)> {
        let transport = bind(self.0)?;
        let address = transport.local_addr();
        Ok((transport, address))
    }

    async fn accept(&self, transport: AnyTransport) -> Result<Link<Self>> {
        member(SeedRoute::Here(Arc::new(transport)), 0).await
    }

    async fn dial(&self, address: SocketAddr, _: &Keys) -> Result<Link<Self>> {
        let transport = Arc::new(bind(self.0)?);
        member(SeedRoute::Dial(vec![(transport, address)]), 1).await
    }
}

async fn member(route: SeedRoute<AnyTransport>, rank: usize) -> Result<Link<Messages>> {
    let request = JoinRequest::new("bench", 2).with_rank(Some(rank));
    let mesh = join(route, &request).await?;
    let messenger = Arc::new(Messenger::new(Arc::new(mesh.group(1, vec![0, 1])?)));
    let half = Half {
        messenger,
        other: 1 - rank,
    };
    Ok(Link {
        sender: half.clone(),
        receiver: Inbox {
            half,
            buffer: vec![0; EAGER_LIMIT],
        },
        host: Member(mesh),
    })
}

#[derive(Clone)]
pub(crate) struct Half {
    messenger: Arc<Messenger<AnyTransport>>,
    other: usize,
}

impl Sender for Half {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        Ok(self.messenger.send(self.other, TAG, data).await?)
    }
}

pub(crate) struct Inbox {
    half: Half,
    buffer: Vec<u8>,
}

impl Receiver for Inbox {
    async fn recv(&mut self, _: usize) -> Result<usize> {
        let Half { messenger, other } = &self.half;
        let received = messenger.recv_into(*other, TAG, &mut self.buffer).await?;
        Ok(received.length)
    }
}

/// The messenger drives the transport itself.
pub(crate) struct Member(Mesh<AnyTransport>);

impl Host for Member {
    async fn close(self) {
        if let Err(error) = self.0.leave().await {
            eprintln!("transports: leaving: {error}");
        }
    }
}
