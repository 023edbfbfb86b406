//! Settings of a transport.

use crate::{Identity, settings};
use std::{net::SocketAddr, time::Duration};

/// What kind of path the connections of a transport run over. It chooses windows, congestion control
/// and the datagram size to start with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Profile {
    /// Decide per connection: [`Loopback`](Self::Loopback) for peers on the same host,
    /// [`Lan`](Self::Lan) for private and link-local addresses, [`Wan`](Self::Wan) for all others.
    #[default]
    Auto,
    /// Same host: the largest datagrams from the start and, with quinn, a fixed congestion window.
    Loopback,
    /// A private network: Cubic with 4 MiB in flight at most, datagram size up to the link's MTU.
    Lan,
    /// Long paths: Cubic with 32 MiB in flight at most, larger windows.
    Wan,
}

/// Settings of a transport. Only the identity and the address are required; the defaults are the fast
/// setting. Values outside the documented range are moved to its nearest end.
///
/// ```
/// use nexar_quic::{Config, Identity, Profile};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::new(Identity::insecure_loopback("job")?, "127.0.0.1:0".parse()?)
///     .profile(Profile::Loopback)
///     .idle_timeout(Duration::from_secs(5));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) identity: Identity,
    pub(crate) address: SocketAddr,
    pub(crate) profile: Profile,
    pub(crate) idle_timeout: Duration,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) handshake_timeout: Duration,
    pub(crate) max_uni_streams: u32,
    pub(crate) max_bi_streams: u32,
    pub(crate) stream_window: Option<u64>,
    pub(crate) connection_window: Option<u64>,
    pub(crate) send_window: Option<u64>,
    pub(crate) max_datagram: u16,
    pub(crate) spin: Duration,
}

impl Config {
    /// Listen on `address` as `identity`. Port 0 takes a free one.
    pub fn new(identity: Identity, address: SocketAddr) -> Self {
        Config {
            identity,
            address,
            profile: Profile::Auto,
            idle_timeout: settings::IDLE_TIMEOUT,
            keep_alive: Some(settings::KEEP_ALIVE),
            handshake_timeout: settings::HANDSHAKE_TIMEOUT,
            max_uni_streams: settings::UNI_STREAMS,
            max_bi_streams: settings::BI_STREAMS,
            stream_window: None,
            connection_window: None,
            send_window: None,
            max_datagram: settings::MAX_DATAGRAM,
            spin: settings::SPIN,
        }
    }

    /// The kind of path. Default: [`Profile::Auto`].
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// A connection from which nothing was heard for this long is dead; the smaller value of both sides
    /// counts. 10 ms to 1 hour, default 20 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout.clamp(Duration::from_millis(10), Duration::from_secs(3600));
        self
    }

    /// How often an idle connection sends a sign of life; `None` never does and lets it die after the
    /// idle timeout. At least 1 ms, default 5 s.
    pub fn keep_alive(mut self, interval: Option<Duration>) -> Self {
        self.keep_alive = interval.map(|interval| interval.max(Duration::from_millis(1)));
        self
    }

    /// A handshake that is not complete after this time has failed. 1 ms to 1 hour, default 10 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout.clamp(Duration::from_millis(1), Duration::from_secs(3600));
        self
    }

    /// How many unidirectional and bidirectional streams a peer may have open at a time; opening one
    /// more waits. Up to 65,536 each, default 1,024.
    pub fn max_streams(mut self, uni: u32, bi: u32) -> Self {
        self.max_uni_streams = uni.min(settings::MAX_STREAMS);
        self.max_bi_streams = bi.min(settings::MAX_STREAMS);
        self
    }

    /// Bytes of one stream that may arrive before they are read: what a sender can be ahead of its
    /// reader. 64 KiB to 1 GiB, default by profile: 2 MiB on the same host, 4 in a private network, 16
    /// on long paths.
    pub fn stream_window(mut self, bytes: u64) -> Self {
        self.stream_window = Some(window(bytes));
        self
    }

    /// Bytes of one connection that may arrive before they are read: the most memory that a peer can
    /// make this process hold. 64 KiB to 1 GiB, default 64 MiB.
    pub fn connection_window(mut self, bytes: u64) -> Self {
        self.connection_window = Some(window(bytes));
        self
    }

    /// Bytes of one connection that are kept for sending until they are acknowledged. 64 KiB to 1 GiB,
    /// default by profile: 2 MiB on the same host, 4 in a private network, 32 on long paths.
    pub fn send_window(mut self, bytes: u64) -> Self {
        self.send_window = Some(window(bytes));
        self
    }

    /// Largest UDP payload to send, for links that lose large datagrams. 1,200 to 65,507 bytes; the
    /// default is the largest one that the link takes.
    pub fn max_datagram(mut self, bytes: u16) -> Self {
        self.max_datagram = bytes.clamp(settings::MIN_DATAGRAM, settings::MAX_DATAGRAM);
        self
    }

    /// How long a task that waits inside [`Transport::drive`] looks for datagrams itself after the last
    /// progress before it sleeps. It costs CPU time and saves the latency of a wake-up, about 30 us.
    /// Up to 100 ms, default 50 us, zero turns it off.
    ///
    /// Whatever this is, on Linux the task then sleeps on the socket, at most 250 us in a row and some 2 ms in all,
    /// before it leaves the connections to the transport's thread: so other tasks of a `current_thread` runtime
    /// may wait for 0.5 ms while data is expected.
    ///
    /// [`Transport::drive`]: nexar_core::transport::Transport::drive
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin.min(Duration::from_millis(100));
        self
    }
}

fn window(bytes: u64) -> u64 {
    bytes.clamp(settings::MIN_WINDOW, settings::MAX_WINDOW)
}
