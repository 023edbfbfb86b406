//! Hosts on one network: namespaces, each with a link to a bridge in a namespace of its own.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Command, Output, Stdio, id},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

/// Numbers the networks of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Which addresses the hosts have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Families {
    V4,
    V6,
}

/// Some hosts on one network. Dropping it removes them.
pub(crate) struct Net {
    name: String,
    families: Families,
    hosts: Vec<Host>,
    bridge: Namespace,
}

/// A host with the interfaces `lo` and `eth0`.
pub(crate) struct Host {
    namespace: Namespace,
    pub(crate) address: IpAddr,
}

impl Net {
    /// So many hosts on an IPv4 network, or none, with the reason on standard error.
    pub(crate) fn new(hosts: usize) -> Option<Net> {
        Net::with(hosts, Families::V4)
    }

    pub(crate) fn with(hosts: usize, families: Families) -> Option<Net> {
        static PROBED: OnceLock<Result<(), String>> = OnceLock::new();
        match PROBED.get_or_init(probe) {
            Ok(()) => Some(Net::create(hosts, families).unwrap()),
            Err(why) => {
                crate::skip(why);
                None
            }
        }
    }

    fn create(hosts: usize, families: Families) -> Result<Net, String> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nexar-{}-{number}", id());
        let bridge = Namespace::new(format!("{name}-bridge"))?;
        // Without the delays in which a bridge learns of its neighbours.
        bridge.ip("link add br0 type bridge forward_delay 0 mcast_snooping 0\nlink set br0 up")?;
        let mut net = Net {
            name,
            families,
            hosts: Vec::new(),
            bridge,
        };
        for _ in 0..hosts {
            net.add_host()?;
        }
        Ok(net)
    }

    fn add_host(&mut self) -> Result<(), String> {
        let number = self.hosts.len();
        let namespace = Namespace::new(format!("{}-{number}", self.name))?;
        self.bridge.ip(&format!(
            "link add p{number} type veth peer name eth0 netns {}\nlink set p{number} master br0 up",
            namespace.0
        ))?;
        let address = address(self.families, number);
        // One datagram per packet: rules see what they would see on a wire, not batches.
        namespace.ip("link set lo up\nlink set eth0 up gso_max_segs 1")?;
        let host = Host { namespace, address };
        host.ip(&format!("address add {}", host.subnet(address)))?;
        self.hosts.push(host);
        Ok(())
    }

    pub(crate) fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Sets the MTU of all links.
    pub(crate) fn set_mtu(&self, mtu: u32) {
        for (number, host) in self.hosts.iter().enumerate() {
            host.ip(&format!("link set eth0 mtu {mtu}")).unwrap();
            let port = format!("link set p{number} mtu {mtu}");
            self.bridge.ip(&port).unwrap();
        }
    }
}

/// The address of a host in the network.
fn address(families: Families, number: usize) -> IpAddr {
    let number = u8::try_from(number + 1).unwrap();
    match families {
        Families::V4 => Ipv4Addr::new(10, 77, 0, number).into(),
        Families::V6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()).into(),
    }
}

impl Host {
    /// A command that runs `program` on this host; its process id is that of the program.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace.0, program]);
        command
    }

    /// Runs lines of commands of `ip`.
    pub(crate) fn ip(&self, lines: &str) -> Result<(), String> {
        self.namespace.ip(lines)
    }

    /// Moves the host to another address of the network.
    pub(crate) fn change_address(&self, from: IpAddr, to: IpAddr) {
        let (from, to) = (self.subnet(from), self.subnet(to));
        // In this order: with the first address of a network, the system removes the others.
        let lines = format!("address del {from}\naddress add {to}");
        self.ip(&lines).unwrap();
    }

    fn subnet(&self, address: IpAddr) -> String {
        match address {
            IpAddr::V4(ip) => format!("{ip}/24 dev eth0"),
            IpAddr::V6(ip) => format!("{ip}/64 dev eth0 nodad"),
        }
    }

    /// Replaces the rules for incoming and outgoing packets, one per line. Loopback is spared.
    pub(crate) fn filter(&self, incoming: &str, outgoing: &str) {
        self.namespace.filter(incoming, outgoing).unwrap();
    }

    /// Removes the rules again.
    pub(crate) fn clear_filter(&self) {
        self.filter("", "");
    }

    /// Limits the rate of what this host sends.
    pub(crate) fn limit_rate(&self, rate: &str) {
        self.namespace.limit_rate(rate).unwrap();
    }
}

/// A network namespace, removed when dropped.
struct Namespace(String);

impl Namespace {
    fn new(name: String) -> Result<Self, String> {
        run(Command::new("ip").args(["netns", "add", &name]), "")?;
        Ok(Namespace(name))
    }

    fn ip(&self, lines: &str) -> Result<(), String> {
        run(
            Command::new("ip").args(["-n", &self.0, "-batch", "-"]),
            lines,
        )
    }

    fn exec(&self, program: &str, args: &[&str], input: &str) -> Result<(), String> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).args(args);
        run(&mut command, input)
    }

    fn filter(&self, incoming: &str, outgoing: &str) -> Result<(), String> {
        let chain = |hook: &str, way: &str, rules: &str| {
            format!(
                "chain {hook} {{\ntype filter hook {hook} priority 0;\nmeta {way} lo accept\n{rules}\n}}\n"
            )
        };
        let (input, output) = (
            chain("input", "iif", incoming),
            chain("output", "oif", outgoing),
        );
        let table = format!(
            "table inet test\ndelete table inet test\ntable inet test {{\n{input}{output}}}\n"
        );
        self.exec("nft", &["-f", "-"], &table)
    }

    fn limit_rate(&self, rate: &str) -> Result<(), String> {
        let qdisc = format!("qdisc replace dev eth0 root tbf rate {rate} burst 64kb latency 50ms");
        let args: Vec<&str> = qdisc.split(' ').collect();
        self.exec("tc", &args, "")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A namespace that stays behind harms nobody, and the test may be panicking.
        let _ = run(Command::new("ip").args(["netns", "del", &self.0]), "");
    }
}

/// Whether this process may do all that the tests need.
fn probe() -> Result<(), String> {
    let net = Net::create(1, Families::V6)?;
    let host = &net.host(0).namespace;
    host.filter("numgen random mod 100 < 5 drop", "meta length > 1280 drop")?;
    host.limit_rate("100mbit")
}

/// Runs a tool; the error is what it says.
fn run(command: &mut Command, input: &str) -> Result<(), String> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = output(command, input).map_err(|error| format!("no {tool}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = said.lines().collect();
    Err(format!("{tool} {}: {}", args.join(" "), said.join("; ")))
}

fn output(command: &mut Command, input: &str) -> std::io::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that does not read its input says why it failed.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}
