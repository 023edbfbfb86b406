//! From host names and interfaces to addresses.
//!
//! A process listens on one address only. Unless it is told which, it takes the one from which the system
//! would send to the seed: that is an address on a network that the seed is on, whatever other
//! interfaces the host has and whatever its own name resolves to.

use nexar_core::ConfigError;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
};
use tokio::sync::oneshot;

/// Where to listen, by the user's wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bind {
    /// One address, or all of an interface.
    addresses: Vec<IpAddr>,
    port: u16,
    text: String,
}

impl Bind {
    /// An IP address or the name of an interface, with or without a port.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let bind = |addresses, port| Bind {
            addresses,
            port,
            text: text.to_owned(),
        };
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(bind(vec![address.ip()], address.port()));
        }
        if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(bind(vec![ip], 0));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| bad_bind(text))?),
            None => (text, 0),
        };
        Ok(bind(interface(name, text)?, port))
    }

    /// The address to listen on, to reach a seed of the given family.
    fn for_family(&self, like: &SocketAddr, port: u16) -> Option<SocketAddr> {
        let ip = self
            .addresses
            .iter()
            .find(|ip| ip.is_ipv4() == like.is_ipv4())?;
        Some(SocketAddr::new(
            *ip,
            if self.port == 0 { port } else { self.port },
        ))
    }
}

fn bad_bind(text: &str) -> ConfigError {
    let reason = format!("'{text}' is neither an address nor an interface, with or without port");
    ConfigError::new("NEXAR_BIND", reason)
}

fn interface(name: &str, text: &str) -> Result<Vec<IpAddr>, ConfigError> {
    let error = |reason| ConfigError::new("NEXAR_BIND", reason);
    let all = if_addrs::get_if_addrs()
        .map_err(|e| error(format!("the interfaces of this host cannot be listed: {e}")))?;
    let mut addresses: Vec<IpAddr> = all
        .iter()
        .filter(|i| i.name == name)
        .map(|i| i.ip())
        .collect();
    if addresses.is_empty() {
        let mut names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let names = names.join(", ");
        return Err(error(format!(
            "'{text}' is no address, and no interface with an address has that name; there are {names}"
        )));
    }
    addresses.sort_by_key(|ip| (is_link_local(ip), ip.is_ipv6()));
    Ok(addresses)
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// All addresses of `host:port`, in the system's order of preference.
pub(super) async fn resolve(setting: &str, text: &str) -> Result<Vec<SocketAddr>, ConfigError> {
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let form = || ConfigError::new(setting, format!("'{text}' is not of the form host:port"));
    let (host, port) = text.rsplit_once(':').ok_or_else(form)?;
    let port: u16 = port.parse().map_err(|_| form())?;
    let host = host.trim_matches(['[', ']']).to_owned();
    if host.is_empty() {
        return Err(form());
    }
    // The system's resolver blocks, and the caller's runtime may have no threads for that.
    let (answer, answered) = oneshot::channel();
    std::thread::spawn(move || {
        let found = (host.as_str(), port)
            .to_socket_addrs()
            .map(Iterator::collect);
        let _ = answer.send(found);
    });
    let found: io::Result<Vec<SocketAddr>> = answered
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the resolver gave up")));
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(ConfigError::new(
            setting,
            format!("'{text}' has no address"),
        )),
        Err(error) => Err(ConfigError::new(
            setting,
            format!("'{text}' does not resolve: {error}"),
        )),
    }
}

/// Addresses to listen on as the seed, in order of preference, each with the address to advertise.
pub(super) fn host_addresses(
    seed: &[SocketAddr],
    bind: Option<&Bind>,
) -> Result<Vec<(SocketAddr, SocketAddr)>, ConfigError> {
    let Some(bind) = bind else {
        return Ok(seed.iter().map(|address| (*address, *address)).collect());
    };
    let pairs: Vec<_> = seed
        .iter()
        .filter_map(|address| Some((bind.for_family(address, address.port())?, *address)))
        .collect();
    if pairs.is_empty() {
        Err(no_family(seed, bind))
    } else {
        Ok(pairs)
    }
}

/// For each family of the seed's addresses: where to listen, and the seed's addresses to dial from there.
pub(super) fn join_addresses(
    seed: &[SocketAddr],
    bind: Option<&Bind>,
) -> Result<Vec<(SocketAddr, Vec<SocketAddr>)>, ConfigError> {
    let mut ways: Vec<(SocketAddr, Vec<SocketAddr>)> = Vec::new();
    let mut problems = Vec::new();
    for address in seed {
        let local = match bind {
            Some(bind) => match bind.for_family(address, 0) {
                Some(local) => local,
                None => continue,
            },
            None => match source_address(address) {
                Ok(ip) => SocketAddr::new(ip, 0),
                Err(error) => {
                    problems.push(format!("{address}: {error}"));
                    continue;
                }
            },
        };
        match ways.iter_mut().find(|way| way.0 == local) {
            Some(way) => way.1.push(*address),
            None => ways.push((local, vec![*address])),
        }
    }
    match (ways.is_empty(), bind) {
        (false, _) => Ok(ways),
        (true, Some(bind)) => Err(no_family(seed, bind)),
        (true, None) => {
            let reason = format!("this host has no route to it ({})", problems.join("; "));
            Err(ConfigError::new("NEXAR_SEED", reason))
        }
    }
}

fn no_family(seed: &[SocketAddr], bind: &Bind) -> ConfigError {
    let family = if seed.iter().all(SocketAddr::is_ipv6) {
        "IPv6"
    } else {
        "IPv4"
    };
    let reason = format!(
        "'{}' has no {family} address, and the seed has no other ({})",
        bind.text,
        seed.iter()
            .map(SocketAddr::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    );
    ConfigError::new("NEXAR_BIND", reason)
}

/// The address from which the system would send to `target`. Nothing is sent.
fn source_address(target: &SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn bind_takes_addresses_and_interfaces() {
        let v4 = addr("10.0.0.1:9");
        let bind = Bind::parse("127.0.0.1:80").unwrap();
        assert_eq!(bind.for_family(&v4, 9), Some(addr("127.0.0.1:80")));
        assert_eq!(bind.for_family(&addr("[::1]:9"), 9), None);
        assert_eq!(
            Bind::parse("0.0.0.0").unwrap().for_family(&v4, 9),
            Some(addr("0.0.0.0:9"))
        );
        let v6 = Bind::parse("[::1]").unwrap();
        assert_eq!(v6.for_family(&addr("[::2]:9"), 4), Some(addr("[::1]:4")));
    }

    #[test]
    fn an_unknown_interface_is_refused_with_the_real_ones() {
        let error = Bind::parse("nosuch0").unwrap_err();
        let real = if_addrs::get_if_addrs().unwrap();
        let name = &real.first().unwrap().name;
        assert!(error.reason.contains(name), "{error}");
        assert!(Bind::parse("nosuch0:port").is_err());
        assert!(Bind::parse(name).is_ok());
        assert_eq!(Bind::parse(&format!("{name}:77")).unwrap().port, 77);
    }

    #[test]
    fn the_seed_binds_its_own_address_unless_told_otherwise() {
        let seed = [addr("[::1]:7"), addr("127.0.0.1:7")];
        assert_eq!(host_addresses(&seed, None).unwrap().len(), 2);
        let bind = Bind::parse("0.0.0.0").unwrap();
        let pairs = host_addresses(&seed, Some(&bind)).unwrap();
        assert_eq!(pairs, [(addr("0.0.0.0:7"), addr("127.0.0.1:7"))]);
        let error = host_addresses(&seed[..1], Some(&bind)).unwrap_err();
        assert!(error.reason.contains("IPv6"), "{error}");
    }

    #[test]
    fn a_rank_listens_where_it_would_send_from() {
        let ways = join_addresses(&[addr("127.0.0.1:7"), addr("127.0.0.1:8")], None).unwrap();
        assert_eq!(
            ways,
            [(
                addr("127.0.0.1:0"),
                vec![addr("127.0.0.1:7"), addr("127.0.0.1:8")]
            )]
        );
    }

    #[tokio::test]
    async fn seeds_are_host_and_port() {
        assert_eq!(
            resolve("S", "1.2.3.4:5").await.unwrap(),
            [addr("1.2.3.4:5")]
        );
        assert!(!resolve("S", "localhost:5").await.unwrap().is_empty());
        for bad in ["localhost", "host:", ":5", "host:99999"] {
            assert!(resolve("S", bad).await.is_err(), "{bad}");
        }
    }
}
