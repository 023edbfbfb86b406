//! The UDP socket.

use crate::{Config, settings};
use nexar_core::transport::ConnectionError;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
};

/// Binds the configured address: this one only, so that nothing listens where nobody asked for it.
pub(crate) fn bind(config: &Config) -> Result<UdpSocket, ConnectionError> {
    let address = config.address;
    let error = |source| ConnectionError::Bind {
        address,
        source: Arc::new(source),
    };
    if let Some(objection) = config.identity.objection_to(address) {
        return Err(error(io::Error::new(
            io::ErrorKind::PermissionDenied,
            objection,
        )));
    }
    open(address).map_err(error)
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        // An endpoint on all addresses also serves IPv4 where the system allows it.
        socket
            .set_only_v6(!address.ip().is_unspecified())
            .or_else(|error| {
                tracing::debug!(%error, "the socket serves IPv6 only");
                Ok::<_, io::Error>(())
            })?;
    }
    enlarge_buffers(&socket);
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Best effort: the system may have a lower limit (`net.core.rmem_max` and `wmem_max` on Linux). Then
/// bursts may be dropped and are sent again.
fn enlarge_buffers(socket: &Socket) {
    let wanted = settings::SOCKET_BUFFER;
    let (_, _) = (
        socket.set_recv_buffer_size(wanted),
        socket.set_send_buffer_size(wanted),
    );
    let receive = socket.recv_buffer_size().unwrap_or_default();
    let send = socket.send_buffer_size().unwrap_or_default();
    if receive < wanted || send < wanted {
        tracing::debug!(
            receive,
            send,
            wanted,
            "the system limits the UDP socket buffers"
        );
    }
}
