//! From host names and interfaces to addresses.
//!
//! A process listens on one address only. Unless it is told which, it takes the one from which the system
//! would send to the seed: that is an address on a network that the seed is on, whatever other
//! interfaces the host has and whatever its own name resolves to.

use nexar_core::ConfigError;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket},
};
use tokio::sync::oneshot;

/// Where to listen, by the user's wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bind {
    /// One address, or all of an interface; port 0 where none is given.
    addresses: Vec<SocketAddr>,
    text: String,
}

impl Bind {
    /// An IP address or the name of an interface, with or without a port.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let bind = |addresses| Bind {
            addresses,
            text: text.to_owned(),
        };
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(bind(vec![address]));
        }
        let bare = text.trim_matches(['[', ']']);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(bind(vec![SocketAddr::new(ip, 0)]));
        }
        if let Some(address) = scoped(bare, 0) {
            return Ok(bind(vec![address]));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| bad_bind(text))?),
            None => (text, 0),
        };
        match scoped(name.trim_matches(['[', ']']), port) {
            Some(address) => Ok(bind(vec![address])),
            None => Ok(bind(interface(name, port, text)?)),
        }
    }

    /// Whether it leaves open which of the host's addresses is meant.
    pub(super) fn is_unspecified(&self) -> bool {
        self.addresses.iter().any(|a| a.ip().is_unspecified())
    }

    /// The address to listen on, to reach `target`: of the same family, and link-local if that is.
    fn towards(&self, target: &SocketAddr, port: u16) -> Option<SocketAddr> {
        let family = || {
            let of_family = |a: &&SocketAddr| a.is_ipv4() == target.is_ipv4();
            self.addresses.iter().filter(of_family)
        };
        let link_local = is_link_local(&target.ip());
        let mut local = *family()
            .find(|a| is_link_local(&a.ip()) == link_local)
            .or_else(|| family().next())?;
        if local.port() == 0 {
            local.set_port(port);
        }
        if let (SocketAddr::V6(local), SocketAddr::V6(target)) = (&mut local, target)
            && local.ip().is_unicast_link_local()
            && local.scope_id() == 0
        {
            local.set_scope_id(target.scope_id());
        }
        Some(local)
    }
}

/// An IPv6 address with the interface that it belongs to, such as `fe80::1%eth0` or `fe80::1%2`.
fn scoped(text: &str, port: u16) -> Option<SocketAddr> {
    text.split_once('%')?.0.parse::<Ipv6Addr>().ok()?;
    // As it is an address, the system asks no name server.
    (text, port).to_socket_addrs().ok()?.next()
}

fn bad_bind(text: &str) -> ConfigError {
    let reason = format!("'{text}' is neither an address nor an interface, with or without port");
    ConfigError::new("NEXAR_BIND", reason)
}

fn interface(name: &str, port: u16, text: &str) -> Result<Vec<SocketAddr>, ConfigError> {
    let error = |reason| ConfigError::new("NEXAR_BIND", reason);
    let all = if_addrs::get_if_addrs()
        .map_err(|e| error(format!("the interfaces of this host cannot be listed: {e}")))?;
    let mut addresses: Vec<SocketAddr> = all
        .iter()
        .filter(|i| i.name == name)
        .map(|i| match i.ip() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, i.index.unwrap_or(0)).into()
            }
            ip => SocketAddr::new(ip, port),
        })
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
    addresses.sort_by_key(|a| (is_link_local(&a.ip()), a.is_ipv6()));
    Ok(addresses)
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whether `host` is a name that other hosts may know this one by, not an address or `localhost`.
fn is_public_name(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let address = name.parse::<IpAddr>().is_ok() || name.contains('%');
    !(address || name == "localhost" || name.ends_with(".localhost"))
}

/// All addresses of `host:port`, in the system's order of preference; but of a host that has others,
/// those of loopback come last: many systems give their own name one of these, which means another
/// host everywhere else.
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
    let public = is_public_name(&host);
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
        Ok(mut found) if !found.is_empty() => {
            if public {
                found.sort_by_key(is_loopback);
            }
            Ok(found)
        }
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

/// Refuses to serve a seed whose name means only this host's loopback: the others could not reach it there,
/// and would wait in vain.
pub(super) fn check_reachable(text: &str, seed: &[SocketAddr]) -> Result<(), ConfigError> {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let (true, Some(address)) = (seed.iter().all(is_loopback), seed.first()) else {
        return Ok(());
    };
    if !is_public_name(host.trim_matches(['[', ']'])) {
        return Ok(());
    }
    let reason = format!(
        "on this host '{host}' is {}, which other hosts cannot reach: set NEXAR_SEED to an address that \
         they can reach, or NEXAR_BIND and NEXAR_ADVERTISE to one each; if all ranks are on this host, set \
         NEXAR_SEED to 127.0.0.1 or localhost",
        address.ip()
    );
    Err(ConfigError::new("NEXAR_SEED", reason))
}

/// Addresses to listen on as the seed, in order of preference, each with the address to advertise. Loopback is
/// no substitute for another address that cannot be listened on.
pub(super) fn host_addresses(
    seed: &[SocketAddr],
    bind: Option<&Bind>,
) -> Result<Vec<(SocketAddr, SocketAddr)>, ConfigError> {
    let Some(bind) = bind else {
        let only_loopback = seed.iter().all(is_loopback);
        let usable = seed.iter().filter(|a| only_loopback || !is_loopback(a));
        return Ok(usable.map(|address| (*address, *address)).collect());
    };
    let pairs: Vec<_> = seed
        .iter()
        .filter_map(|address| Some((bind.towards(address, address.port())?, *address)))
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
            Some(bind) => match bind.towards(address, 0) {
                Some(local) => local,
                None => continue,
            },
            None => match source_address(address) {
                Ok(local) => local,
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

/// The address from which the system would send to `target`, with port 0. Nothing is sent.
fn source_address(target: &SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    let mut local = socket.local_addr()?;
    local.set_port(0);
    Ok(local)
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
        assert_eq!(bind.towards(&v4, 9), Some(addr("127.0.0.1:80")));
        assert_eq!(bind.towards(&addr("[::1]:9"), 9), None);
        assert_eq!(
            Bind::parse("0.0.0.0").unwrap().towards(&v4, 9),
            Some(addr("0.0.0.0:9"))
        );
        let v6 = Bind::parse("[::1]").unwrap();
        assert_eq!(v6.towards(&addr("[::2]:9"), 4), Some(addr("[::1]:4")));
    }

    #[test]
    fn an_unknown_interface_is_refused_with_the_real_ones() {
        let error = Bind::parse("nosuch0").unwrap_err();
        let real = if_addrs::get_if_addrs().unwrap();
        let name = &real.first().unwrap().name;
        assert!(error.reason.contains(name), "{error}");
        assert!(Bind::parse("nosuch0:port").is_err());
        assert!(Bind::parse(name).is_ok());
        assert_eq!(
            Bind::parse(&format!("{name}:77")).unwrap().addresses[0].port(),
            77
        );
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
    fn a_link_local_address_keeps_its_interface() {
        let seed = addr("[fe80::7%1]:7");
        for bind in ["fe80::1", "[fe80::1%1]", "fe80::1%lo", "[fe80::1%lo]:0"] {
            let bind = Bind::parse(bind).unwrap();
            assert_eq!(bind.towards(&seed, 4), Some(addr("[fe80::1%1]:4")));
        }
        let bind = Bind::parse("[fe80::1%lo]:80").unwrap();
        assert_eq!(bind.towards(&seed, 4), Some(addr("[fe80::1%1]:80")));
        assert!(Bind::parse("fe80::1%nosuch0").is_err());
    }

    #[test]
    fn of_an_interface_the_address_is_taken_that_suits_the_seed() {
        let bind = Bind {
            addresses: vec![
                addr("10.0.0.1:0"),
                addr("[fd00::1]:0"),
                addr("[fe80::1%3]:0"),
            ],
            text: "eth0".into(),
        };
        let towards = |seed| bind.towards(&addr(seed), 0);
        assert_eq!(towards("10.0.0.2:7"), Some(addr("10.0.0.1:0")));
        assert_eq!(towards("[fd00::2]:7"), Some(addr("[fd00::1]:0")));
        assert_eq!(towards("[fe80::2%3]:7"), Some(addr("[fe80::1%3]:0")));
    }

    #[test]
    fn the_seed_does_not_fall_back_to_loopback() {
        let seed = [addr("10.77.0.1:7"), addr("127.0.1.1:7")];
        assert_eq!(host_addresses(&seed, None).unwrap(), [(seed[0], seed[0])]);
        let bind = Bind::parse("0.0.0.0").unwrap();
        let pairs = host_addresses(&seed, Some(&bind)).unwrap();
        assert_eq!(pairs[0], (addr("0.0.0.0:7"), seed[0]));
    }

    #[test]
    fn a_name_that_is_only_loopback_is_no_seed_for_other_hosts() {
        let debian = [addr("127.0.1.1:7")];
        let error = check_reachable("seedhost:7", &debian).unwrap_err();
        assert_eq!(error.setting, "NEXAR_SEED");
        for part in ["'seedhost' is 127.0.1.1,", "NEXAR_ADVERTISE", "localhost"] {
            assert!(error.reason.contains(part), "{error}");
        }
        let both = [addr("10.77.0.1:7"), debian[0]];
        assert!(check_reachable("seedhost:7", &both).is_ok());
        for own in [
            "127.0.1.1:7",
            "localhost:7",
            "LocalHost.:7",
            "a.localhost:7",
        ] {
            assert!(check_reachable(own, &debian).is_ok(), "{own}");
        }
        assert!(check_reachable("[::1]:7", &[addr("[::1]:7")]).is_ok());
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
