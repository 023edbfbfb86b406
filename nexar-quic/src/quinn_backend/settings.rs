//! quinn's configuration for one kind of path.

use super::{
    congestion::{Closing, Factory, Kind},
    error::{backend, code},
};
use crate::{
    Config, Profile,
    path::Path,
    settings::{self, PathSettings},
};
use nexar_core::transport::ConnectionError;
use quinn::{
    AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, congestion::CubicConfig,
};
use std::sync::Arc;

/// What a new connection is made with.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) transport: Arc<TransportConfig>,
    /// To be set before the connection is closed.
    pub(super) closing: Closing,
    /// The connection's receive window.
    pub(super) window: u64,
}

/// The settings for a connection along `path` of an endpoint whose own close `endpoint` announces.
pub(super) fn setup(
    config: &Config,
    path: Path,
    endpoint: &Closing,
) -> Result<Setup, ConnectionError> {
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
    let closing = Closing::default();
    congestion(&mut transport, kind, [closing.clone(), endpoint.clone()]);
    if let Some((packets, delay)) = kind.acks {
        let mut acks = AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(packets.into())
            .max_ack_delay(Some(delay));
        transport.ack_frequency_config(Some(acks));
    }
    Ok(Setup {
        transport: Arc::new(transport),
        closing,
        window: connection_window,
    })
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
    // Several datagrams in one call must fit into one of the largest size. Where two do not, quinn would fill a
    // buffer of ten that has left the cache by the time it is sent.
    transport.enable_segmentation_offload(largest <= settings::MAX_DATAGRAM / 2);
    if kind.start_with_largest_datagram && path.max_datagram.is_some() {
        transport.initial_mtu(largest);
    }
}

fn congestion(transport: &mut TransportConfig, kind: PathSettings, closing: [Closing; 2]) {
    let window = kind.initial_congestion_window;
    let kind = if kind.fixed_congestion_window {
        Kind::Fixed(window)
    } else {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(window);
        Kind::Cubic(Arc::new(cubic))
    };
    transport.congestion_controller_factory(Arc::new(Factory { kind, closing }));
}
