//! Listens to s2n-quic's events.

use super::{
    credit::Windows,
    error,
    link::{Link, Links},
};
use crate::{identity, refusals::RefusalLog};
use nexar_core::transport::ConnectionError;
use rustls::pki_types::CertificateDer;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

/// Feeds the [`Link`] of each connection.
pub(super) struct Events {
    links: Arc<Links>,
    /// Where a server notes the clients that it refuses.
    refusals: Option<RefusalLog>,
}

impl Events {
    pub(super) fn new(links: Arc<Links>, refusals: Option<RefusalLog>) -> Self {
        Events { links, refusals }
    }
}

/// What s2n-quic keeps for us in each connection.
pub(super) struct EventContext {
    pub(super) link: Arc<Link>,
    remote: Option<SocketAddr>,
}

impl Subscriber for Events {
    type ConnectionContext = EventContext;

    fn create_connection_context(
        &mut self,
        meta: &ConnectionMeta,
        _info: &ConnectionInfo<'_>,
    ) -> EventContext {
        EventContext {
            link: Link::new(meta.id, self.links.clone()),
            remote: None,
        }
    }

    fn on_connection_started(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::ConnectionStarted<'_>,
    ) {
        context.remote = Some(SocketAddr::from(&event.path.remote_addr));
    }

    fn on_transport_parameters_received(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::TransportParametersReceived<'_>,
    ) {
        // "Local" and "remote" are the peer's.
        let parameters = &event.transport_parameters;
        context.link.set_windows(Windows {
            uni: parameters.initial_max_stream_data_uni,
            opened_bi: parameters.initial_max_stream_data_bidi_remote,
            accepted_bi: parameters.initial_max_stream_data_bidi_local,
        });
    }

    /// Comes before s2n-quic acts on the frame, whose locks make the writer wait until it has.
    fn on_frame_received(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::FrameReceived<'_>,
    ) {
        match event.frame {
            events::Frame::MaxStreamData { id, value, .. } => {
                if let Some(credit) = context.link.credit(id) {
                    credit.raise(value);
                }
            }
            events::Frame::StopSending { id, .. } => {
                context.link.stream_stopped(id);
            }
            _ => {}
        }
    }

    fn on_frame_sent(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::FrameSent,
    ) {
        if let events::Frame::Stream {
            id, offset, len, ..
        } = event.frame
        {
            context.link.stream_sent(id, offset + u64::from(len));
        }
    }

    fn on_tls_exporter_ready(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::TlsExporterReady<'_>,
    ) {
        let chain = event.session.peer_cert_chain_der().unwrap_or_default();
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        if let Some(peer) = identity::peer_id(&chain) {
            context.link.set_peer(peer);
        }
    }

    fn on_handshake_status_updated(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::HandshakeStatusUpdated,
    ) {
        match event.status {
            events::HandshakeStatus::Complete { .. } => context.link.set_complete(),
            events::HandshakeStatus::Confirmed { .. } => context.link.set_confirmed(),
            _ => {}
        }
    }

    fn on_connection_closed(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::ConnectionClosed,
    ) {
        let end = error::connection(event.error);
        if let (Some(refusals), Some(remote)) = (&self.refusals, context.remote)
            && !context.link.is_complete()
            && !matches!(end, ConnectionError::ClosedLocally)
        {
            refusals.refused(remote, &end);
        }
        context.link.set_end(end);
    }

    fn on_recovery_metrics(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::RecoveryMetrics<'_>,
    ) {
        let nanos = u64::try_from(event.smoothed_rtt.as_nanos()).unwrap_or(u64::MAX);
        let counters = &context.link.counters;
        counters.rtt_nanos.store(nanos, Ordering::Relaxed);
    }

    fn on_packet_lost(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::PacketLost<'_>,
    ) {
        if !event.is_mtu_probe {
            let counters = &context.link.counters;
            counters.lost_packets.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_datagram_sent(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::DatagramSent,
    ) {
        let counters = &context.link.counters;
        counters
            .sent_bytes
            .fetch_add(event.len.into(), Ordering::Relaxed);
    }

    fn on_datagram_received(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::DatagramReceived,
    ) {
        let counters = &context.link.counters;
        counters
            .received_bytes
            .fetch_add(event.len.into(), Ordering::Relaxed);
    }

    fn on_mtu_updated(
        &mut self,
        context: &mut EventContext,
        _meta: &ConnectionMeta,
        event: &events::MtuUpdated,
    ) {
        context
            .link
            .counters
            .mtu
            .store(event.mtu, Ordering::Relaxed);
    }
}
