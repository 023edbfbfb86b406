//! A transport of nexar: one stream, with the default settings.

use crate::{
    Result,
    keys::Keys,
    subject::{Host, Link, Receiver, Sender, Subject},
};
use bytes::Bytes;
use nexar_bench::report::plan;
use nexar_core::transport::{
    BiAcceptor, Connection, NewConnection, RecvStream, SendStream, Transport,
};
use nexar_quic::{
    AnyConnection, AnyRecvStream, AnySendStream, AnyTransport, Backend, Config, Identity,
};
use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr},
};

pub(crate) struct Nexar(pub(super) Backend);

/// An endpoint on the loopback interface. Its handshakes are those of a cluster with a secret.
pub(crate) fn bind(backend: Backend) -> Result<AnyTransport> {
    let identity = Identity::insecure_loopback("bench")?;
    let config = Config::new(identity, (Ipv4Addr::LOCALHOST, 0).into());
    Ok(AnyTransport::bind(backend, config)?)
}

impl Subject for Nexar {
    type Listener = AnyTransport;
    type Sender = AnySendStream;
    type Receiver = AnyRecvStream;
    type Host = Endpoint;

    fn name(&self) -> String {
        plan::nexar(self.0.name())
    }

    async fn listen(&self, _: &Keys) -> Result<(AnyTransport, SocketAddr)> {
        let transport = bind(self.0)?;
        let address = transport.local_addr();
        Ok((transport, address))
    }

    async fn accept(&self, transport: AnyTransport) -> Result<Link<Self>> {
        let mut new = transport.accept().await.ok_or("the endpoint is closed")?;
        let (sender, receiver) = new.bi.accept().await?;
        Ok(Link {
            sender,
            receiver,
            host: Endpoint { transport, new },
        })
    }

    async fn dial(&self, address: SocketAddr, _: &Keys) -> Result<Link<Self>> {
        let transport = bind(self.0)?;
        let new = transport.connect(address, None).await?;
        let (sender, receiver) = new.connection.open_bi().await?;
        Ok(Link {
            sender,
            receiver,
            host: Endpoint { transport, new },
        })
    }
}

impl Sender for AnySendStream {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        Ok(self.write_all(data).await?)
    }
}

impl Receiver for AnyRecvStream {
    async fn recv(&mut self, max: usize) -> Result<usize> {
        let bytes = self.read(max).await?;
        Ok(bytes.ok_or("the stream has ended")?.len())
    }
}

pub(crate) struct Endpoint {
    transport: AnyTransport,
    new: NewConnection<AnyConnection>,
}

impl Host for Endpoint {
    async fn drive<F: Future + Send>(&self, work: F) -> F::Output {
        self.transport.drive(work).await
    }

    async fn close(self) {
        self.new.connection.close(0, "done");
        self.transport.close(0, "done").await;
    }
}
