//! quinn's configuration for one kind of path.

use super::error::{backend, code};
use crate::{
    Config, Profile,
    path::Path,
    settings::{self, PathSettings},
};
use nexar_core::transport::ConnectionError;
use quinn::{
    AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig,
    congestion::{Controller, ControllerFactory, CubicConfig},
};
use std::{any::Any, sync::Arc, time::Instant};

/// The transport settings for a connection along `path`.
pub(super) fn transport(config: &Config, path: Path) -> Result<TransportConfig, ConnectionError> {
    let kind = match path.profile {
        Profile::Loopback => settings::LOOPBACK,
        Profile::Lan => settings::LAN,
        Profile::Auto | Profile::Wan => settings::WAN,
    };
    let stream_window = config.stream_window.unwrap_or(kind.stream_window);
    let connection_window = config.connection_window.unwrap_or(kind.connection_window);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_uni_streams(config.max_uni_streams.into())
        .max_concurrent_bidi_streams(config.max_bi_streams.into())
        .stream_receive_window(code(stream_window.min(connection_window)))
        .receive_window(code(connection_window))
        .send_window(config.send_window.unwrap_or(kind.send_window))
        .max_idle_timeout(Some(
            IdleTimeout::try_from(config.idle_timeout).map_err(backend)?,
        ))
        .keep_alive_interval(config.keep_alive)
        .initial_rtt(kind.initial_rtt)
        .datagram_receive_buffer_size(None);
    datagram_size(&mut transport, config, path, kind);
    congestion(&mut transport, kind);
    if let Some((packets, delay)) = kind.acks {
        let mut acks = AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(packets.into())
            .max_ack_delay(Some(delay));
        transport.ack_frequency_config(Some(acks));
    }
    Ok(transport)
}

/// Large datagrams from the start where the path is known to take them, else a search for the largest.
/// The search also stays on in the first case: it restores the size after a period of losses.
fn datagram_size(transport: &mut TransportConfig, config: &Config, path: Path, kind: PathSettings) {
    let largest = path
        .max_datagram
        .unwrap_or(settings::JUMBO_DATAGRAM)
        .min(config.max_datagram);
    let mut discovery = MtuDiscoveryConfig::default();
    discovery
        .upper_bound(largest)
        .black_hole_cooldown(settings::BLACK_HOLE_COOLDOWN);
    transport
        .min_mtu(settings::MIN_DATAGRAM)
        .mtu_discovery_config(Some(discovery));
    if kind.start_with_largest_datagram && path.max_datagram.is_some() {
        transport.initial_mtu(largest);
    }
}

fn congestion(transport: &mut TransportConfig, kind: PathSettings) {
    if kind.fixed_congestion_window {
        let window = FixedWindow(kind.initial_congestion_window);
        transport.congestion_controller_factory(Arc::new(window));
    } else {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(kind.initial_congestion_window);
        transport.congestion_controller_factory(Arc::new(cubic));
    }
}

/// A congestion window that never changes: between processes of one host nothing is congested but the
/// receiver's socket buffer, and the send window bounds that.
#[derive(Debug, Clone, Copy)]
struct FixedWindow(u64);

impl Controller for FixedWindow {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.0
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for FixedWindow {
    fn build(self: Arc<Self>, _now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(*self)
    }
}
