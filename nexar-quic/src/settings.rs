//! Every number that decides about speed or memory, in one place. All of them were measured over
//! loopback and links with small and large datagrams; change them together with a measurement.

use std::time::Duration;

/// Largest UDP payload over IPv4: 65,535 bytes less 20 of IP and 8 of UDP header.
///
/// The rate grows with the datagram size: about 0.7 GB/s at 1,472 bytes, 2 at 8,972, 3.3 at this one.
pub(crate) const MAX_DATAGRAM: u16 = 65_507;

/// Largest datagram that is received, a limit of IPv6 (no IP header in the length).
pub(crate) const MAX_RECEIVED_DATAGRAM: u16 = 65_527;

/// Smallest datagram size that QUIC may assume, and the one that it falls back to.
pub(crate) const MIN_DATAGRAM: u16 = 1_200;

/// Bytes of IP and UDP headers, by address family.
pub(crate) const IPV4_OVERHEAD: u32 = 28;
/// See [`IPV4_OVERHEAD`].
pub(crate) const IPV6_OVERHEAD: u32 = 48;

/// What discovery tries where the system does not tell the link's MTU: a 9,000-byte jumbo frame.
pub(crate) const JUMBO_DATAGRAM: u16 = 8_972;

/// Pause before discovery tries large datagrams again after they stopped arriving.
#[cfg(feature = "quinn")]
pub(crate) const BLACK_HOLE_COOLDOWN: Duration = Duration::from_secs(5);

/// Kernel buffers of the UDP socket, per direction: room for two windows in flight.
pub(crate) const SOCKET_BUFFER: usize = 4 << 20;

/// The smallest stream, connection or send window that can be configured: one large datagram.
pub(crate) const MIN_WINDOW: u64 = 64 << 10;
/// The largest window that can be configured: memory that one peer can make this process hold.
pub(crate) const MAX_WINDOW: u64 = 1 << 30;

/// The largest number of concurrent streams of one kind that can be configured.
pub(crate) const MAX_STREAMS: u32 = 1 << 16;

/// Concurrent unidirectional streams that a peer may have open.
pub(crate) const UNI_STREAMS: u32 = 1_024;
/// Concurrent bidirectional streams that a peer may have open.
pub(crate) const BI_STREAMS: u32 = 1_024;

/// A silent connection is dead after this time.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// An idle connection says that it is alive this often.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A handshake must be complete within this time.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A waiting task looks for datagrams itself for this long after the last one before it sleeps.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// Incoming handshakes in progress or waiting for `accept`; more are ignored, and their clients try
/// again until one of these is done.
pub(crate) const MAX_PENDING: usize = 256;
/// From this number on, a client must prove its address (one more round trip) before its handshake.
#[cfg(feature = "quinn")]
pub(crate) const RETRY_ABOVE: usize = 64;

/// How long `close` waits for the peers to take notice.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// How often a dialling client looks whether the server has confirmed the handshake.
#[cfg(feature = "quinn")]
pub(crate) const CONFIRM_INTERVAL: Duration = Duration::from_millis(1);

/// Settings that go together for one kind of path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathSettings {
    /// Unread bytes that one stream may hold at the receiver.
    pub(crate) stream_window: u64,
    /// Unread bytes that one connection may hold at the receiver.
    pub(crate) connection_window: u64,
    /// Bytes that one connection may hold at the sender, written and not acknowledged.
    pub(crate) send_window: u64,
    /// What the congestion controller allows in flight at first. Later the send window bounds it.
    pub(crate) initial_congestion_window: u64,
    /// Keep the congestion window fixed. For paths without other traffic only.
    pub(crate) fixed_congestion_window: bool,
    /// Start with the largest datagram that the link takes instead of searching for it.
    pub(crate) start_with_largest_datagram: bool,
    /// Round-trip time before the first measurement: decides how soon a lost first packet is sent again.
    pub(crate) initial_rtt: Duration,
    /// Acknowledgement policy that is asked of the peer: unacknowledged packets, longest delay.
    pub(crate) acks: Option<(u32, Duration)>,
}

/// Same host. Flow control (the send window) binds before the congestion window does: a sender that
/// is blocked by congestion control holds its own acknowledgements back, and two such senders wait for
/// each other. About 2 MiB in flight stay in the cache.
pub(crate) const LOOPBACK: PathSettings = PathSettings {
    stream_window: 2 << 20,
    connection_window: 64 << 20,
    send_window: 2 << 20,
    initial_congestion_window: 4 << 20,
    fixed_congestion_window: true,
    start_with_largest_datagram: true,
    initial_rtt: Duration::from_millis(1),
    acks: Some((8, Duration::from_millis(1))),
};

/// A private network: short round trips, rates of 1 to 100 Gbit/s.
pub(crate) const LAN: PathSettings = PathSettings {
    stream_window: 4 << 20,
    connection_window: 64 << 20,
    send_window: 4 << 20,
    initial_congestion_window: 256 << 10,
    fixed_congestion_window: false,
    start_with_largest_datagram: false,
    initial_rtt: Duration::from_millis(20),
    acks: Some((10, Duration::from_millis(1))),
};

/// Long paths: 100 ms at 1 Gbit/s hold 12.5 MB.
pub(crate) const WAN: PathSettings = PathSettings {
    stream_window: 16 << 20,
    connection_window: 64 << 20,
    send_window: 32 << 20,
    initial_congestion_window: 14_720,
    fixed_congestion_window: false,
    start_with_largest_datagram: false,
    initial_rtt: Duration::from_millis(100),
    acks: None,
};
