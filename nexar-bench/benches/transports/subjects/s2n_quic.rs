//! s2n-quic without nexar, with the settings that are fastest on the loopback interface: datagrams of
//! nearly 32 KiB, small internal rings, Cubic.

use crate::{
    Result,
    keys::{Keys, NAME},
    subject::{Host, Link, Receiver, Sender, Subject},
};
use ::s2n_quic::{
    Client, Connection, Server,
    client::Connect,
    provider::{io::tokio, limits::Limits, tls},
    stream::{BidirectionalStream, ReceiveStream, SendStream},
};
use bytes::{Buf, Bytes};
use nexar_bench::report::plan;
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

/// 32,750 bytes and the IP and UDP headers. The payload must stay below 32,768: with segmentation
/// offload, this version writes a second segment of a larger one past the end of its buffer.
const MTU: u16 = 32_778;
const BASE_MTU: u16 = 1_228;
const STREAM_WINDOW: u64 = 16 << 20;
const CONNECTION_WINDOW: u64 = 64 << 20;
const SEND_BUFFER: u32 = 16 << 20;
const SOCKET_BUFFER: usize = 4 << 20;
const SEND_RING: usize = 1 << 20;
const RECEIVE_RING: usize = 2 << 20;
const INITIAL_RTT: Duration = Duration::from_millis(1);

pub(crate) struct S2nQuic;

impl Subject for S2nQuic {
    type Listener = Server;
    type Sender = SendStream;
    type Receiver = Incoming;
    type Host = Connected;

    fn name(&self) -> String {
        plan::alone("s2n-quic")
    }

    async fn listen(&self, keys: &Keys) -> Result<(Server, SocketAddr)> {
        let server = Server::builder()
            .with_tls(tls::rustls::Server::from(keys.server()?))?
            .with_io(io()?)?
            .with_limits(limits()?)?
            .start()?;
        let address = server.local_addr()?;
        Ok((server, address))
    }

    async fn accept(&self, mut server: Server) -> Result<Link<Self>> {
        let mut connection = server.accept().await.ok_or("the endpoint is closed")?;
        let stream = connection.accept_bidirectional_stream().await?;
        let stream = stream.ok_or("the connection is closed")?;
        Ok(link(stream, connection, Endpoint::Server(server)))
    }

    async fn dial(&self, address: SocketAddr, keys: &Keys) -> Result<Link<Self>> {
        let client = Client::builder()
            .with_tls(tls::rustls::Client::from(keys.client()?))?
            .with_io(io()?)?
            .with_limits(limits()?)?
            .start()?;
        let connect = Connect::new(address).with_server_name(NAME);
        let mut connection = client.connect(connect).await?;
        let stream = connection.open_bidirectional_stream().await?;
        Ok(link(stream, connection, Endpoint::Client(client)))
    }
}

fn io() -> Result<tokio::Provider> {
    Ok(tokio::Builder::default()
        .with_receive_address((Ipv4Addr::LOCALHOST, 0).into())?
        .with_max_mtu(MTU)?
        .with_initial_mtu(MTU)?
        .with_base_mtu(BASE_MTU)?
        .with_send_buffer_size(SOCKET_BUFFER)?
        .with_recv_buffer_size(SOCKET_BUFFER)?
        .with_internal_send_buffer_size(SEND_RING)?
        .with_internal_recv_buffer_size(RECEIVE_RING)?
        .build()?)
}

fn limits() -> Result<Limits> {
    Ok(Limits::new()
        .with_data_window(CONNECTION_WINDOW)?
        .with_bidirectional_local_data_window(STREAM_WINDOW)?
        .with_bidirectional_remote_data_window(STREAM_WINDOW)?
        .with_max_send_buffer_size(SEND_BUFFER)?
        .with_initial_round_trip_time(INITIAL_RTT)?)
}

fn link(stream: BidirectionalStream, connection: Connection, endpoint: Endpoint) -> Link<S2nQuic> {
    let (receiver, sender) = stream.split();
    Link {
        sender,
        receiver: Incoming {
            stream: receiver,
            rest: Bytes::new(),
        },
        host: Connected {
            connection,
            endpoint,
        },
    }
}

impl Sender for SendStream {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        Ok(SendStream::send(self, data).await?)
    }
}

/// Keeps what was not asked for of the last chunk.
pub(crate) struct Incoming {
    stream: ReceiveStream,
    rest: Bytes,
}

impl Receiver for Incoming {
    async fn recv(&mut self, max: usize) -> Result<usize> {
        if self.rest.is_empty() {
            let chunk = self.stream.receive().await?;
            self.rest = chunk.ok_or("the stream has ended")?;
        }
        let taken = self.rest.len().min(max);
        self.rest.advance(taken);
        Ok(taken)
    }
}

/// Kept, since dropping one closes it.
#[allow(dead_code, reason = "it is only kept")]
enum Endpoint {
    Server(Server),
    Client(Client),
}

pub(crate) struct Connected {
    connection: Connection,
    endpoint: Endpoint,
}

impl Host for Connected {
    async fn close(self) {
        self.connection.close(0u32.into());
        if let Endpoint::Client(mut client) = self.endpoint {
            // Whatever it ended with, it has ended.
            let _ = client.wait_idle().await;
        }
    }
}
