//! TLS over TCP, by rustls.

use super::tcp::{Nothing, Reading, Writing, listen};
use crate::{
    Result,
    keys::{Keys, NAME},
    subject::{Link, Subject},
};
use nexar_bench::report::plan;
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{ReadHalf, WriteHalf, split},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

pub(crate) struct Tls;

impl Subject for Tls {
    type Listener = (TcpListener, TlsAcceptor);
    type Sender = Writing<WriteHalf<TlsStream<TcpStream>>>;
    type Receiver = Reading<ReadHalf<TlsStream<TcpStream>>>;
    type Host = Nothing;

    fn name(&self) -> String {
        plan::TLS.into()
    }

    async fn listen(&self, keys: &Keys) -> Result<(Self::Listener, SocketAddr)> {
        let (listener, address) = listen().await?;
        let acceptor = TlsAcceptor::from(Arc::new(keys.server()?));
        Ok(((listener, acceptor), address))
    }

    async fn accept(&self, (listener, acceptor): Self::Listener) -> Result<Link<Self>> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(link(acceptor.accept(stream).await?.into()))
    }

    async fn dial(&self, address: SocketAddr, keys: &Keys) -> Result<Link<Self>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::new(keys.client()?));
        let stream = connector.connect(NAME.try_into()?, stream).await?;
        Ok(link(stream.into()))
    }
}

fn link(stream: TlsStream<TcpStream>) -> Link<Tls> {
    let (read, write) = split(stream);
    Link {
        sender: Writing(write),
        receiver: Reading::new(read),
        host: Nothing,
    }
}
