//! Between the two hosts: the emulator, or a bridge in the kernel as its reference.

use std::net::Ipv4Addr;
use std::process::Command;

use longhaul_emulator::Status;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::ethtool::Ethtool;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::sysctl;
use longhaul_lab::plan::{self, DEFAULT_MTU, HOST_INTERFACE, HostPlan};
use longhaul_lab::{Lab, LabSpec};
use longhaul_path::spec::{PathSpec, no_files};
use longhaul_units::Nanos;

use crate::{Error, Result};

/// Parameters of a lab's hosts that a bridge's hosts are to share.
const SHARED_PARAMETERS: [&str; 4] =
    ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_no_metrics_save", "net.ipv4.ping_group_range"];
/// A link that does not take packets after so long never will.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// Two hosts and what joins them.
pub(crate) trait Rig {
    fn client(&self) -> Result<&NetNamespace>;
    fn server(&self) -> Result<&NetNamespace>;

    /// Of the server, on the path.
    fn server_address(&self) -> Ipv4Addr {
        plan::hosts(&PathSpec::default(), DEFAULT_MTU)[1].ipv4
    }

    /// CPUs for programs on the hosts; empty: any.
    fn host_cpus(&self) -> Vec<usize> {
        Vec::new()
    }

    /// How the emulator does; `None` where there is none.
    fn status(&self) -> Result<Option<Status>>;
}

/// The path that `text` describes, which is a path file without its name.
pub(crate) fn path(text: &str) -> Result<PathSpec> {
    Ok(PathSpec::parse(&format!("name = \"bench\"\n{text}"), &no_files)?)
}

/// The emulator between two hosts.
pub(crate) fn emulated(spec: LabSpec, path: &PathSpec) -> Result<Emulated> {
    let lab = Lab::up(LabSpec { name: "bench".into(), ..spec }, path.clone())?;
    let at_start = lab.status()?;
    Ok(Emulated { lab, at_start })
}

/// A lab, and what its start took: most of it is the clearing of payload memory, which is no cost of packets.
#[derive(Debug)]
pub(crate) struct Emulated {
    lab: Lab,
    at_start: Status,
}

impl Rig for Emulated {
    fn client(&self) -> Result<&NetNamespace> {
        Ok(&self.lab.host("client")?.namespace)
    }

    fn server(&self) -> Result<&NetNamespace> {
        Ok(&self.lab.host("server")?.namespace)
    }

    fn host_cpus(&self) -> Vec<usize> {
        self.lab.spec().host_cpus()
    }

    /// With CPU time and uptime since the lab was up.
    fn status(&self) -> Result<Option<Status>> {
        let status = self.lab.status()?;
        Ok(Some(Status {
            cpu_ns: status.cpu_ns - self.at_start.cpu_ns,
            uptime_ns: status.uptime_ns - self.at_start.uptime_ns,
            ..status
        }))
    }
}

/// `veth – bridge – veth`, with the same hosts at its ends as a lab has.
#[derive(Debug)]
pub(crate) struct Bridge {
    hosts: Vec<NetNamespace>,
    _core: NetNamespace,
}

impl Bridge {
    /// Whose hosts are set up like those of a lab made from `like` for `path`.
    pub(crate) fn like(like: &LabSpec, path: &PathSpec) -> Result<Self> {
        let (parameters, features) = host_settings(like, path)?;
        let plans = plan::hosts(&PathSpec::default(), like.mtu_bytes);
        let core = NetNamespace::create()?;
        core.enter(|| ip("link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"))??;
        let mut hosts = Vec::new();
        for plan in &plans {
            let namespace = NetNamespace::create()?;
            core.enter(|| connect(plan, &namespace))??;
            namespace.enter(|| set_up_host(plan, &plans, &parameters, &features))??;
            hosts.push(namespace);
        }
        core.enter(|| ip("link set br0 up"))??;
        for namespace in hosts.iter().chain([&core]) {
            namespace.enter(await_links)??;
        }
        Ok(Self { hosts, _core: core })
    }
}

impl Rig for Bridge {
    fn client(&self) -> Result<&NetNamespace> {
        Ok(&self.hosts[0])
    }

    fn server(&self) -> Result<&NetNamespace> {
        Ok(&self.hosts[1])
    }

    fn status(&self) -> Result<Option<Status>> {
        Ok(None)
    }
}

type Parameters = Vec<(&'static str, String)>;
type Features = Vec<(String, bool)>;

/// How a lab sets its hosts up, read from one that is made for this: it cannot differ then.
fn host_settings(spec: &LabSpec, path: &PathSpec) -> Result<(Parameters, Features)> {
    let lab = emulated(LabSpec { spin: false, ..spec.clone() }, path)?;
    lab.client()?.enter(|| {
        let parameters =
            SHARED_PARAMETERS.into_iter().map(|key| Ok((key, sysctl::read(key)?))).collect::<Result<Parameters>>()?;
        let features = Ethtool::open(HOST_INTERFACE)?.features()?;
        let features = features.into_iter().filter(|f| f.changeable).map(|f| (f.name, f.active)).collect();
        Ok((parameters, features))
    })?
}

/// Runs in the namespace of the bridge.
fn connect(plan: &HostPlan, host: &NetNamespace) -> Result<()> {
    let port = VethEnd { name: &plan.port, namespace: None, mtu_bytes: Some(plan.mtu_bytes), mac: None };
    let end =
        VethEnd { name: HOST_INTERFACE, namespace: Some(host), mtu_bytes: Some(plan.mtu_bytes), mac: Some(plan.mac) };
    Netlink::open()?.create_veth(&port, &end)?;
    ip(&format!("link set {} master br0 up", plan.port))
}

/// Runs in the namespace of the host.
fn set_up_host(plan: &HostPlan, all: &[HostPlan], parameters: &Parameters, features: &Features) -> Result<()> {
    for (key, value) in parameters {
        sysctl::write(key, value)?;
    }
    let ethtool = Ethtool::open(HOST_INTERFACE)?;
    let now = ethtool.features()?;
    let different: Vec<_> = features
        .iter()
        .filter(|(name, on)| now.iter().any(|feature| feature.name == *name && feature.active != *on))
        .map(|(name, on)| (name.as_str(), *on))
        .collect();
    ethtool.set_features(&different)?;
    let mut netlink = Netlink::open()?;
    for link in ["lo", HOST_INTERFACE] {
        let index = netlink.index_of(link)?;
        netlink.set_up(index, true)?;
    }
    let index = netlink.index_of(HOST_INTERFACE)?;
    let (ip, prefix_bits) = plan.addresses()[0];
    netlink.add_address(&Address { ifindex: index, ip, prefix_bits })?;
    for other in all.iter().filter(|other| other.name != plan.name) {
        netlink.add_permanent_neighbour(index, other.ipv4.into(), other.mac)?;
    }
    Ok(())
}

/// Waits until all links of the namespace take packets.
fn await_links() -> Result<()> {
    let mut netlink = Netlink::open()?;
    for link in netlink.links()?.into_iter().filter(|link| link.up) {
        if !netlink.wait_until_ready(link.index, monotonic() + PATIENCE)? {
            return Err(Error::from(format!("link {} does not come up", link.name)));
        }
    }
    Ok(())
}

/// Runs ip(8) in the thread's namespace: bridges are for this reference only, so [`Netlink`] makes none.
fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .map_err(|error| format!("the reference takes ip(8) of iproute2: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::from(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
}
