//! What is known of the path to a peer before the first packet.

use crate::{Profile, settings};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// A path to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Path {
    /// The kind of path, never [`Profile::Auto`].
    pub(crate) profile: Profile,
    /// The largest UDP payload that the first link takes; `None` where the system does not say.
    pub(crate) max_datagram: Option<u16>,
}

impl Path {
    /// Looks the path to `remote` up in the routing table. Nothing is sent. Costs a few microseconds.
    pub(crate) fn to(remote: SocketAddr, profile: Profile) -> Self {
        let ip = remote.ip().to_canonical();
        let route = Route::to(SocketAddr::new(ip, remote.port()));
        let profile = match profile {
            Profile::Auto if ip.is_loopback() || route.same_host => Profile::Loopback,
            Profile::Auto if is_private(ip) => Profile::Lan,
            Profile::Auto => Profile::Wan,
            chosen => chosen,
        };
        Path {
            profile,
            max_datagram: route.mtu.map(|mtu| payload(mtu, ip)),
        }
    }
}

/// The UDP payload that fits into an IP packet of `mtu` bytes.
fn payload(mtu: u32, ip: IpAddr) -> u16 {
    let overhead = if ip.is_ipv4() {
        settings::IPV4_OVERHEAD
    } else {
        settings::IPV6_OVERHEAD
    };
    let bytes = mtu
        .saturating_sub(overhead)
        .min(settings::MAX_DATAGRAM.into());
    u16::try_from(bytes)
        .unwrap_or(settings::MAX_DATAGRAM)
        .max(settings::MIN_DATAGRAM)
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// What the routing table says.
#[derive(Debug, Default)]
struct Route {
    same_host: bool,
    mtu: Option<u32>,
}

impl Route {
    /// A connected socket knows the local address and the MTU of its route.
    fn to(remote: SocketAddr) -> Self {
        let any: IpAddr = match remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let Ok(socket) = UdpSocket::bind((any, 0)) else {
            return Route::default();
        };
        if socket.connect(remote).is_err() {
            return Route::default();
        }
        let same_host = socket
            .local_addr()
            .is_ok_and(|local| local.ip() == remote.ip());
        Route {
            same_host,
            mtu: mtu(&socket, remote),
        }
    }
}

#[cfg(target_os = "linux")]
fn mtu(socket: &UdpSocket, remote: SocketAddr) -> Option<u32> {
    use rustix::net::sockopt;
    match remote {
        SocketAddr::V4(_) => sockopt::ip_mtu(socket).ok(),
        SocketAddr::V6(_) => sockopt::ipv6_mtu(socket).ok(),
    }
}

#[cfg(not(target_os = "linux"))]
fn mtu(_socket: &UdpSocket, _remote: SocketAddr) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_path_follows_from_the_address() {
        let kind = |ip: &str| Path::to(format!("{ip}:7").parse().unwrap(), Profile::Auto).profile;
        assert_eq!(kind("127.0.0.1"), Profile::Loopback);
        assert_eq!(kind("127.9.8.7"), Profile::Loopback);
        assert_eq!(kind("[::1]"), Profile::Loopback);
        assert_eq!(kind("[::ffff:127.0.0.1]"), Profile::Loopback);
        assert_eq!(kind("203.0.113.5"), Profile::Wan);
        assert_eq!(kind("[2001:db8::1]"), Profile::Wan);
        assert!(is_private("10.1.2.3".parse().unwrap()));
        assert!(is_private("fd00::1".parse().unwrap()));
        assert!(!is_private("8.8.8.8".parse().unwrap()));
    }

    #[test]
    fn a_chosen_profile_stays() {
        let path = Path::to("127.0.0.1:7".parse().unwrap(), Profile::Wan);
        assert_eq!(path.profile, Profile::Wan);
    }

    #[test]
    fn payloads_subtract_the_headers_and_stay_in_range() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        assert_eq!(payload(1_500, v4), 1_472);
        assert_eq!(payload(1_500, v6), 1_452);
        assert_eq!(payload(9_000, v4), 8_972);
        assert_eq!(payload(65_536, v4), 65_507);
        assert_eq!(payload(65_536, v6), 65_488);
        assert_eq!(payload(u32::MAX, v6), 65_507);
        assert_eq!(payload(576, v4), 1_200);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_tells_the_mtu_of_loopback() {
        let path = Path::to("127.0.0.1:7".parse().unwrap(), Profile::Auto);
        assert!(
            path.max_datagram.is_some_and(|bytes| bytes >= 1_200),
            "{path:?}"
        );
    }
}
