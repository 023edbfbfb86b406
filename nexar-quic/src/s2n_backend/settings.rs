//! s2n-quic's configuration for each kind of path.

use super::error;
use crate::{
    Config, Profile,
    path::Path,
    settings::{self, PathSettings},
};
use nexar_core::transport::ConnectionError;
use s2n_quic::provider::{
    congestion_controller::{Cubic, Endpoint as CongestionControl, cubic},
    endpoint_limits::{self, ConnectionAttempt, Outcome},
    limits::{ConnectionInfo, Limiter, Limits},
    mtu,
};
use s2n_quic_core::recovery::congestion_controller::PathInfo;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// One of each for every kind of path.
#[derive(Debug, Clone, Copy, Default)]
struct ByKind<T> {
    loopback: T,
    lan: T,
    wan: T,
}

impl<T> ByKind<T> {
    fn try_new<E>(mut make: impl FnMut(PathSettings) -> Result<T, E>) -> Result<Self, E> {
        Ok(ByKind {
            loopback: make(settings::LOOPBACK)?,
            lan: make(settings::LAN)?,
            wan: make(settings::WAN)?,
        })
    }

    fn get(&self, path: Path) -> &T {
        match path.profile {
            Profile::Loopback => &self.loopback,
            Profile::Lan => &self.lan,
            Profile::Auto | Profile::Wan => &self.wan,
        }
    }

    fn get_mut(&mut self, path: Path) -> &mut T {
        match path.profile {
            Profile::Loopback => &mut self.loopback,
            Profile::Lan => &mut self.lan,
            Profile::Auto | Profile::Wan => &mut self.wan,
        }
    }
}

/// Windows, stream limits and times.
#[derive(Debug, Clone)]
pub(super) struct PathLimits {
    profile: Profile,
    limits: ByKind<Limits>,
}

impl PathLimits {
    pub(super) fn new(config: &Config) -> Result<Self, ConnectionError> {
        Ok(PathLimits {
            profile: config.profile,
            limits: ByKind::try_new(|kind| limits(config, kind).map_err(error::text))?,
        })
    }
}

impl Limiter for PathLimits {
    fn on_connection(&mut self, info: &ConnectionInfo<'_>) -> Limits {
        let path = Path::to(SocketAddr::from(&info.remote_address), self.profile);
        *self.limits.get(path)
    }
}

fn limits(
    config: &Config,
    kind: PathSettings,
) -> Result<Limits, s2n_quic_core::connection::limits::ValidationError> {
    let connection = config.connection_window.unwrap_or(kind.connection_window);
    let stream = config.stream_window.unwrap_or(kind.stream_window);
    let stream = stream.min(connection);
    // s2n-quic bounds each stream where quinn bounds the connection.
    let send = config.send_window.unwrap_or(kind.send_window);
    // The peer's limit is the one that counts.
    let no_limit = settings::MAX_STREAMS.into();
    // s2n-quic announces freed room of the connection in steps of a tenth of its window: with this much on
    // top, readers go on as long as streams that nobody reads hold no more than the configured window.
    let connection = connection + connection / 9 + 1;
    let mut limits = Limits::new()
        .with_data_window(connection)?
        .with_bidirectional_local_data_window(stream)?
        .with_bidirectional_remote_data_window(stream)?
        .with_unidirectional_data_window(stream)?
        .with_max_open_local_bidirectional_streams(no_limit)?
        .with_max_open_local_unidirectional_streams(no_limit)?
        .with_max_open_remote_bidirectional_streams(config.max_bi_streams.into())?
        .with_max_open_remote_unidirectional_streams(config.max_uni_streams.into())?
        .with_max_send_buffer_size(u32::try_from(send).unwrap_or(u32::MAX))?
        .with_max_idle_timeout(config.idle_timeout)?
        .with_max_handshake_duration(config.handshake_timeout)?
        .with_initial_round_trip_time(kind.initial_rtt)?;
    if let Some(interval) = config.keep_alive {
        limits = limits.with_max_keep_alive_period(interval)?;
    }
    if let Some((_, delay)) = kind.acks {
        limits = limits.with_max_ack_delay(delay)?;
    }
    Ok(limits)
}

/// Datagram sizes.
#[derive(Debug, Clone)]
pub(super) struct PathMtu {
    profile: Profile,
    max_datagram: u16,
}

impl PathMtu {
    pub(super) fn new(config: &Config) -> Self {
        PathMtu {
            profile: config.profile,
            max_datagram: config.max_datagram,
        }
    }

    /// Large datagrams from the start where the path is known to take them, else a search for the
    /// largest.
    fn of(&self, remote: SocketAddr) -> Option<mtu::Config> {
        let path = Path::to(remote, self.profile);
        let largest = path
            .max_datagram
            .unwrap_or(settings::JUMBO_DATAGRAM)
            .min(self.max_datagram);
        let overhead = if remote.is_ipv4() {
            settings::IPV4_OVERHEAD
        } else {
            settings::IPV6_OVERHEAD
        };
        let packet = |payload: u16| {
            let bytes = u32::from(payload) + overhead;
            u16::try_from(bytes).unwrap_or(u16::MAX)
        };
        let known = path.profile == Profile::Loopback && path.max_datagram.is_some();
        let initial = if known {
            largest
        } else {
            settings::MIN_DATAGRAM
        };
        mtu::Config::builder()
            .with_base_mtu(packet(settings::MIN_DATAGRAM))
            .and_then(|mtu| mtu.with_max_mtu(packet(largest)))
            .and_then(|mtu| mtu.with_initial_mtu(packet(initial)))
            .and_then(mtu::Builder::build)
            .ok()
    }

    /// The bound for all paths.
    pub(super) fn largest() -> Result<mtu::Config, ConnectionError> {
        mtu::Config::builder()
            .with_max_mtu(u16::MAX)
            .and_then(mtu::Builder::build)
            .map_err(error::text)
    }
}

impl mtu::Endpoint for PathMtu {
    fn on_path(&mut self, info: &mtu::PathInfo<'_>, _: mtu::Config) -> Option<mtu::Config> {
        self.of(SocketAddr::from(&info.remote_address))
    }
}

/// Congestion control: Cubic.
#[derive(Debug)]
pub(super) struct Congestion {
    profile: Profile,
    cubic: ByKind<Cubic>,
}

impl Congestion {
    pub(super) fn new(config: &Config) -> Self {
        let cubic = |kind: PathSettings| {
            let window = u32::try_from(kind.initial_congestion_window).unwrap_or(u32::MAX);
            let builder = cubic::Builder::default();
            builder.with_initial_congestion_window(window).build()
        };
        Congestion {
            profile: config.profile,
            cubic: ByKind {
                loopback: cubic(settings::LOOPBACK),
                lan: cubic(settings::LAN),
                wan: cubic(settings::WAN),
            },
        }
    }
}

impl CongestionControl for Congestion {
    type CongestionController = <Cubic as CongestionControl>::CongestionController;

    fn new_congestion_controller(&mut self, info: PathInfo<'_>) -> Self::CongestionController {
        let path = Path::to(SocketAddr::from(&info.remote_address), self.profile);
        self.cubic.get_mut(path).new_congestion_controller(info)
    }
}

/// Bounds the incoming handshakes. No client has to prove its address first: s2n-quic makes two connections of
/// a client whose answer to that arrives twice.
#[derive(Debug, Clone)]
pub(super) struct Handshakes {
    /// Those that are finished and that nobody has accepted.
    pub(super) finished: Arc<AtomicUsize>,
}

impl endpoint_limits::Limiter for Handshakes {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        let pending = attempt.inflight_handshakes + self.finished.load(Ordering::Relaxed);
        match pending < settings::MAX_PENDING {
            true => Outcome::allow(),
            false => Outcome::drop(),
        }
    }
}
