//! quinn without nexar, with the settings that are fastest on the loopback interface: the largest UDP
//! datagrams, no segmentation offload, which does not go with them, and a fixed 2 MiB in flight.

use crate::{
    Result,
    keys::{Keys, NAME},
    subject::{Host, Link, Receiver, Sender, Subject},
};
use ::quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
    congestion::{Controller, ControllerFactory},
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use bytes::Bytes;
use nexar_bench::report::plan;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    any::Any,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

/// The largest payload of UDP over IPv4.
const DATAGRAM: u16 = 65_507;
const IN_FLIGHT: u64 = 2 << 20;
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
const SEND_WINDOW: u64 = 16 << 20;
const SOCKET_BUFFER: usize = 4 << 20;
const INITIAL_RTT: Duration = Duration::from_millis(1);

pub(crate) struct Quinn;

impl Subject for Quinn {
    type Listener = Endpoint;
    type Sender = SendStream;
    type Receiver = RecvStream;
    type Host = Connected;

    fn name(&self) -> String {
        plan::alone("quinn")
    }

    async fn listen(&self, keys: &Keys) -> Result<(Endpoint, SocketAddr)> {
        let tls = QuicServerConfig::try_from(keys.server()?)?;
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(transport());
        let endpoint = endpoint(Some(config))?;
        let address = endpoint.local_addr()?;
        Ok((endpoint, address))
    }

    async fn accept(&self, endpoint: Endpoint) -> Result<Link<Self>> {
        let incoming = endpoint.accept().await.ok_or("the endpoint is closed")?;
        let connection = incoming.await?;
        let (sender, receiver) = connection.accept_bi().await?;
        Ok(Link {
            sender,
            receiver,
            host: Connected {
                endpoint,
                connection,
            },
        })
    }

    async fn dial(&self, address: SocketAddr, keys: &Keys) -> Result<Link<Self>> {
        let tls = QuicClientConfig::try_from(keys.client()?)?;
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(transport());
        let endpoint = endpoint(None)?;
        let connection = endpoint.connect_with(config, address, NAME)?.await?;
        let (sender, receiver) = connection.open_bi().await?;
        Ok(Link {
            sender,
            receiver,
            host: Connected {
                endpoint,
                connection,
            },
        })
    }
}

fn endpoint(server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Some systems refuse what others cut down to their limit.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(DATAGRAM)?;
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(config, server, socket.into(), runtime)?)
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(DATAGRAM)
        .mtu_discovery_config(None)
        .enable_segmentation_offload(false)
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(SEND_WINDOW)
        .initial_rtt(INITIAL_RTT)
        .congestion_controller_factory(Arc::new(Fixed));
    Arc::new(transport)
}

impl Sender for SendStream {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        Ok(self.write_chunk(data).await?)
    }
}

impl Receiver for RecvStream {
    async fn recv(&mut self, max: usize) -> Result<usize> {
        let chunk = self.read_chunk(max, true).await?;
        Ok(chunk.ok_or("the stream has ended")?.bytes.len())
    }
}

pub(crate) struct Connected {
    endpoint: Endpoint,
    connection: Connection,
}

impl Host for Connected {
    async fn close(self) {
        self.connection.close(VarInt::from_u32(0), b"done");
        self.endpoint.wait_idle().await;
    }
}

/// So many bytes in flight, whatever happens.
#[derive(Clone)]
struct Fixed;

impl ControllerFactory for Fixed {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Fixed)
    }
}

impl Controller for Fixed {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        IN_FLIGHT
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Fixed)
    }

    fn initial_window(&self) -> u64 {
        IN_FLIGHT
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
