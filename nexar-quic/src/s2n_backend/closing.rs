//! The end of connections: data that has arrived outlives it, and its reason is said.

use super::{error, link::Links};
use nexar_core::transport::ConnectionError;
use s2n_quic::provider::{
    connection_close_formatter::{ConnectionClose, Context, Formatter},
    event::events::Subject,
    packet_interceptor::PacketInterceptor,
};
use s2n_quic_core::{
    application,
    frame::FrameMut,
    packet::{
        interceptor::{DecoderBufferMut, Packet},
        number::PacketNumberSpace,
    },
    transport,
};
use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

/// Keeps the peer's close from s2n-quic until what has arrived was taken over.
///
/// s2n-quic discards the data of all streams as soon as it sees the frame. Here the frame is replaced by
/// padding, and the connection is noted; the event loop then takes over everything that lies in it and closes
/// it from this side.
pub(super) struct CloseGuard(pub(super) Arc<Links>);

impl PacketInterceptor for CloseGuard {
    fn intercept_rx_payload<'a>(
        &mut self,
        subject: &Subject,
        packet: &Packet,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        let Subject::Connection { id, .. } = *subject else {
            return payload;
        };
        if !matches!(packet.number.space(), PacketNumberSpace::ApplicationData) {
            return payload;
        }
        let payload = payload.into_less_safe_slice();
        if let Some((frame, end)) = find_close(payload)
            && let Some(link) = self.0.get(id)
            && link.may_be_attached()
        {
            payload[frame].fill(PADDING);
            link.set_end(end);
            self.0.push_closed(link);
        }
        DecoderBufferMut::new(payload)
    }
}

/// A frame of one byte without a meaning.
const PADDING: u8 = 0;

/// How s2n-quic ends a connection that nobody holds any more.
const NO_ERROR: u64 = 0;

/// Finds the close in the frames of a packet, unless it reports an error of the transport.
fn find_close(payload: &mut [u8]) -> Option<(Range<usize>, ConnectionError)> {
    let len = payload.len();
    let mut rest = DecoderBufferMut::new(payload);
    while !rest.is_empty() {
        let start = len - rest.len();
        let (frame, after) = rest.decode::<FrameMut<'_>>().ok()?;
        rest = after;
        let FrameMut::ConnectionClose(close) = frame else {
            continue;
        };
        let code = close.error_code.as_u64();
        let end = match close.frame_type {
            None => ConnectionError::ClosedByPeer {
                code,
                reason: String::from_utf8_lossy(close.reason.unwrap_or_default()).into_owned(),
            },
            Some(_) if code == NO_ERROR => error::ended_by_peer(),
            Some(_) => return None,
        };
        return Some((start..len - rest.len(), end));
    }
    None
}

/// Longest reason that is sent, in bytes.
const MAX_REASON: usize = 128;

/// Different reasons that this process can send; for further ones the code must do.
const MAX_REASONS: usize = 256;

/// Connections that are being closed; see [`Reasons`].
const MAX_CLOSING: usize = 1_024;

/// Says why this side closes a connection. s2n-quic's close takes a code only, and asks a formatter for
/// the text with the peer's address. One for each endpoint, so that two connections between the same processes,
/// one dialled by each, do not get each other's.
#[derive(Clone, Default)]
pub(super) struct Reasons(Arc<Mutex<HashMap<(SocketAddr, u64), &'static str>>>);

impl Reasons {
    /// To be set before the connection with `remote` is closed with `code`.
    pub(super) fn set(&self, remote: SocketAddr, code: u64, reason: &str) {
        let key = (remote, *error::code(code));
        let mut closing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if closing.len() >= MAX_CLOSING {
            closing.clear();
        }
        match intern(reason) {
            Some(reason) => closing.insert(key, reason),
            None => closing.remove(&key),
        };
    }

    fn take(&self, context: &Context<'_>, code: u64) -> Option<&'static [u8]> {
        let remote = SocketAddr::from(*context.remote_address);
        let mut closing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closing.remove(&(remote, code)).map(str::as_bytes)
    }
}

/// The frame that the formatter returns can only borrow what lives long enough; the number and the length of
/// these texts are bounded.
fn intern(reason: &str) -> Option<&'static str> {
    static KNOWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(known) = known.get(reason) {
        return Some(known);
    }
    if reason.is_empty() || known.len() >= MAX_REASONS {
        return None;
    }
    let new: &'static str = Box::leak(reason.into());
    known.insert(new);
    Some(new)
}

/// Passes errors to the peer as they are: TLS alerts say what is wrong with a certificate. Only what the
/// application says is kept back until the peer has proven who it is.
impl Formatter for Reasons {
    fn format_transport_error(
        &self,
        _context: &Context<'_>,
        error: transport::Error,
    ) -> ConnectionClose<'_> {
        error.into()
    }

    fn format_application_error(
        &self,
        context: &Context<'_>,
        error: application::Error,
    ) -> ConnectionClose<'_> {
        ConnectionClose {
            reason: self.take(context, *error),
            ..error.into()
        }
    }

    fn format_early_transport_error(
        &self,
        _context: &Context<'_>,
        error: transport::Error,
    ) -> ConnectionClose<'_> {
        error.into()
    }

    fn format_early_application_error(
        &self,
        _context: &Context<'_>,
        _error: application::Error,
    ) -> ConnectionClose<'_> {
        transport::Error::APPLICATION_ERROR.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_is_found_behind_other_frames() {
        // PING, PADDING, then a close with code 7 and the reason "left".
        let mut payload = *b"\x01\x00\x00\x1d\x07\x04left\x00";
        let (frame, end) = find_close(&mut payload).unwrap();
        assert_eq!(frame, 3..10);
        assert_eq!(end.to_string(), "closed by the peer with code 7: left");
    }

    #[test]
    fn a_connection_that_was_dropped_is_closed_without_an_error() {
        let mut payload = *b"\x1c\x00\x00\x00";
        let (frame, end) = find_close(&mut payload).unwrap();
        assert_eq!(frame, 0..4);
        assert!(matches!(end, ConnectionError::ClosedByPeer { code: 0, .. }));
    }

    #[test]
    fn transport_errors_and_garbage_are_left_alone() {
        let mut transport = *b"\x1c\x0a\x00\x00";
        assert!(find_close(&mut transport).is_none());
        assert!(find_close(&mut [0x1d, 0x07]).is_none());
        assert!(find_close(&mut []).is_none());
    }

    #[test]
    fn reasons_are_bounded() {
        assert_eq!(intern("left"), Some("left"));
        assert_eq!(intern(""), None);
        let long = "ä".repeat(1_000);
        assert_eq!(intern(&long).map(str::len), Some(MAX_REASON));
        for i in 0..2 * MAX_REASONS {
            intern(&i.to_string());
        }
        assert_eq!(intern("one more"), None);
        assert_eq!(intern("left"), Some("left"));
    }
}
