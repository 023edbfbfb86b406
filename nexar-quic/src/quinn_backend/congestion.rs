//! Congestion control.

use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn_proto::RttEstimator;
use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// A window without effect; one of more than 4 GiB also ends pacing.
const UNLIMITED: u64 = 1 << 40;

/// Tells a connection's congestion controller that the connection is being closed.
///
/// quinn holds even the packet that carries the close back while the congestion window is full, and a
/// closed connection takes no acknowledgements that would empty it: the peer would never be told. So the
/// window opens for this last packet.
#[derive(Debug, Clone, Default)]
pub(super) struct Closing(Arc<AtomicBool>);

impl Closing {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes the controllers of one connection.
pub(super) struct Factory {
    pub(super) kind: Kind,
    pub(super) closing: [Closing; 2],
}

/// How the window behaves.
pub(super) enum Kind {
    /// It never changes: between processes of one host nothing is congested but the receiver's socket
    /// buffer, and the send window bounds that.
    Fixed(u64),
    /// Cubic.
    Cubic(Arc<CubicConfig>),
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let inner: Box<dyn Controller> = match &self.kind {
            Kind::Fixed(window) => Box::new(FixedWindow(*window)),
            Kind::Cubic(config) => config.clone().build(now, mtu),
        };
        Box::new(OpenWhenClosing {
            inner,
            closing: self.closing.clone(),
        })
    }
}

/// A controller whose window opens when the connection or its endpoint is closed.
struct OpenWhenClosing {
    inner: Box<dyn Controller>,
    closing: [Closing; 2],
}

impl Controller for OpenWhenClosing {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.closing.iter().any(Closing::is_set) {
            UNLIMITED
        } else {
            self.inner.window()
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(OpenWhenClosing {
            inner: self.inner.clone_box(),
            closing: self.closing.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}

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
