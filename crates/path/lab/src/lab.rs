//! A lab in this process.

use longhaul_emulator::{Attachment, Running, RunningError, Status};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::ethtool::{self, EthtoolError};
use longhaul_kernel::link::{Address, LinkError, Netlink, VethEnd};
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_kernel::rps;
use longhaul_kernel::sysctl::{self, SysctlError};
use longhaul_kernel::wait::sleep_until;
use longhaul_path::spec::{Change, ChangeError, Direction, PathSpec, QueueLimit};
use longhaul_units::{BitRate, Bytes, Nanos};

use crate::plan::{self, HOST_INTERFACE, HostPlan};
use crate::programs::{self, ProgramsError};
use crate::spec::LabSpec;

/// How long interfaces have to get ready when the lab comes up.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// A report that has not been sent by then will not be: it takes a few ticks of the kernel's clock.
const REPORTED_AFTER: Nanos = Nanos::from_millis(300);
/// What a path without rate is taken to carry, for the hosts' TCP buffers.
const ASSUMED_RATE: BitRate = BitRate::from_gbit(20);
/// Bytes of a full packet.
const PACKET_BYTES: u64 = 1514;
/// TCP buffers are not made smaller than the kernel's own limits (tcp(7)).
const LEAST_TCP_BUFFER: Bytes = Bytes(32 << 20);
/// What the kernel takes at most: a signed 32-bit number.
const MOST_TCP_BUFFER: Bytes = Bytes((1 << 31) - 1);

/// Why a lab cannot be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A link, an address.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A feature of an interface.
    #[error(transparent)]
    Ethtool(#[from] EthtoolError),
    /// A kernel parameter.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The emulator.
    #[error(transparent)]
    Emulator(#[from] RunningError),
    /// A change of the path.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// Programs in the lab did not end.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// An interface that was set up stays silent.
    #[error("interface {interface} of the lab was set up and takes no packets after {PATIENCE}")]
    NotReady {
        /// Its name.
        interface: String,
    },
    /// An interface does not take to being polled.
    #[error("cannot have interface {interface} polled at intervals: {reason}")]
    NotPolled {
        /// Its name.
        interface: String,
        /// What the kernel said.
        reason: String,
    },
    /// There is no such host.
    #[error("no host `{name}` in the lab, there are {hosts}")]
    NoHost {
        /// What was asked for.
        name: String,
        /// What there is.
        hosts: String,
    },
}

/// Hosts in namespaces of their own and an emulator between them. Dropping it ends the emulator and lets go of the
/// namespaces.
#[derive(Debug)]
pub struct Lab {
    spec: LabSpec,
    path: PathSpec,
    hosts: Vec<Host>,
    /// Where the emulator's interfaces are.
    core: NetNamespace,
    /// Taken out when the lab goes down; `None` where something else connects the ports.
    emulator: Option<Running>,
}

/// A host of a lab that runs.
#[derive(Debug)]
pub struct Host {
    /// What it is called and where it is.
    pub plan: HostPlan,
    /// Its namespace.
    pub namespace: NetNamespace,
    /// What its interface had dropped before the path was there.
    dropped_before: u64,
}

impl Host {
    /// Frames that its interface dropped on the way to the port, whose ring, or the backlog of its CPU, was full: only this end of the
    /// cable counts them. 0 for an interface that was taken away.
    fn not_taken_frames(&self) -> u64 {
        let link = || Netlink::open()?.link_by_name(HOST_INTERFACE);
        let stats = self.namespace.enter(link).ok().and_then(Result::ok).and_then(|link| link.stats);
        stats.map_or(0, |stats| stats.tx_dropped.saturating_sub(self.dropped_before))
    }
}

impl Lab {
    /// Makes the hosts of `path` and starts the emulator between them.
    ///
    /// # Errors
    /// Where the right is missing, or something of the kernel's; nothing stays behind.
    pub fn up(spec: LabSpec, path: PathSpec) -> Result<Self, LabError> {
        let mut lab = Self::without_emulator(spec, path)?;
        let attach = |Host { plan, .. }: &Host| Attachment {
            interface: plan.port.clone(),
            host: plan.name.clone(),
            mac: Some(plan.mac),
        };
        let attachments = lab.hosts.iter().map(attach).collect();
        let (options, schedule) = (lab.spec.engine_options(), lab.spec.schedule());
        lab.emulator = Some(Running::start(lab.path.clone(), attachments, options, schedule, Some(&lab.core))?);
        Ok(lab)
    }

    /// Makes the hosts of `path` and their ports in [`Lab::core`], with nothing between the ports: who calls this connects them. Such a lab has
    /// no status, its path cannot be changed, and it ends by [`Lab::end`].
    ///
    /// # Errors
    /// As [`Lab::up`].
    pub fn without_emulator(spec: LabSpec, path: PathSpec) -> Result<Self, LabError> {
        let core = NetNamespace::create()?;
        let plans = plan::hosts(&path, spec.mtu_bytes);
        let mut hosts = Vec::new();
        for plan in &plans {
            let namespace = NetNamespace::create()?;
            connect(&core, &namespace, plan)?;
            namespace.enter(|| set_up_host(&spec, &path, plan, &plans))??;
            hosts.push(Host { plan: plan.clone(), namespace, dropped_before: 0 });
        }
        core.enter(|| set_up_ports(&spec, &plans))??;
        for host in &hosts {
            host.namespace.enter(|| wait_until_ready(&[HOST_INTERFACE]))??;
        }
        for host in &mut hosts {
            host.namespace.enter(wait_until_reported)?;
            host.dropped_before = host.not_taken_frames();
        }
        Ok(Self { spec, path, hosts, core, emulator: None })
    }

    /// How it was made.
    pub fn spec(&self) -> &LabSpec {
        &self.spec
    }

    /// The path as it is now.
    pub fn path(&self) -> &PathSpec {
        &self.path
    }

    /// Its hosts: clients, then servers.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host called `name`.
    ///
    /// # Errors
    /// [`LabError::NoHost`].
    pub fn host(&self, name: &str) -> Result<&Host, LabError> {
        self.hosts.iter().find(|host| host.plan.is(name)).ok_or_else(|| LabError::NoHost {
            name: name.to_owned(),
            hosts: self.hosts.iter().map(|host| host.plan.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Where the emulator's interfaces are, each host's port.
    pub fn core(&self) -> &NetNamespace {
        &self.core
    }

    /// How the emulator does.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn status(&self) -> Result<Status, LabError> {
        let mut status = self.emulator()?.status()?;
        self.add_what_ports_missed(&mut status);
        Ok(status)
    }

    /// Makes all of `changes` to the running path, or none.
    ///
    /// # Errors
    /// Where one does not fit the path, or its memory is not to be had.
    pub fn set(&mut self, changes: &[Change]) -> Result<(), LabError> {
        let mut path = self.path.clone();
        Change::apply(changes, &mut path)?;
        self.emulator()?.update(path.clone())?;
        self.path = path;
        Ok(())
    }

    /// Ends the lab and the programs that run on its hosts, and waits until they have ended, 22 s at most.
    ///
    /// # Errors
    /// Where the emulator had ended before, or programs do not end; the lab has ended even so.
    pub fn down(mut self) -> Result<Status, LabError> {
        let emulator = self.emulator.take().ok_or(RunningError::Ended)?;
        let mut status = emulator.stop();
        if let Ok(status) = &mut status {
            self.add_what_ports_missed(status);
        }
        self.end()?;
        Ok(status?)
    }

    /// The same for a lab without an emulator.
    ///
    /// # Errors
    /// Where programs do not end; the lab has ended even so.
    pub fn end(self) -> Result<(), LabError> {
        let namespaces = self.hosts.iter().map(|host| host.namespace.id()).collect::<Result<Vec<_>, _>>()?;
        programs::end(&namespaces)?;
        Ok(())
    }
}

impl Lab {
    fn emulator(&self) -> Result<&Running, RunningError> {
        self.emulator.as_ref().ok_or(RunningError::Ended)
    }

    fn add_what_ports_missed(&self, status: &mut Status) {
        for host in &self.hosts {
            if let Some(port) = status.ports.iter_mut().find(|port| port.interface == host.plan.port) {
                port.own_fault.port_ring_full_frames = host.not_taken_frames();
                status.own_fault.port_ring_full_frames += port.own_fault.port_ring_full_frames;
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in &self.hosts {
            // A connection that a program left with data to send keeps its namespace and its memory, of a long path
            // gigabytes, until it has tried in vain often enough: for minutes, unless it is told that twice will do.
            let _ = host.namespace.enter(|| sysctl::write("net.ipv4.tcp_orphan_retries", "1"));
        }
    }
}

/// A cable between the emulator and a host.
fn connect(core: &NetNamespace, host: &NetNamespace, plan: &HostPlan) -> Result<(), LabError> {
    core.enter(|| {
        let port = VethEnd { name: &plan.port, namespace: None, mtu_bytes: Some(plan.mtu_bytes), mac: None };
        let end = VethEnd {
            name: HOST_INTERFACE,
            namespace: Some(host),
            mtu_bytes: Some(plan.mtu_bytes),
            mac: Some(plan.mac),
        };
        Netlink::open()?.create_veth(&port, &end)
    })??;
    Ok(())
}

/// Runs in the host's namespace.
fn set_up_host(spec: &LabSpec, path: &PathSpec, plan: &HostPlan, all: &[HostPlan]) -> Result<(), LabError> {
    let mut netlink = Netlink::open()?;
    let loopback = netlink.index_of("lo")?;
    netlink.set_alias(loopback, &crate::orphans::mark(&spec.name))?;
    netlink.set_up(loopback, true)?;

    // Nothing but what the user sends shall be on the path: "the 30,000th packet" is to be the user's.
    for (key, value) in [
        ("net.ipv6.conf.eth0.accept_ra", "0"),
        ("net.ipv6.conf.eth0.router_solicitations", "0"),
        ("net.ipv6.conf.eth0.accept_dad", "0"),
        ("net.ipv6.conf.eth0.dad_transmits", "0"),
        // No link-local address: it would be announced.
        ("net.ipv6.conf.eth0.addr_gen_mode", "1"),
        // Groups that addresses bring are reported some times, by default over a second: at once, before the path is there.
        ("net.ipv6.conf.eth0.mldv2_unsolicited_report_interval", "1"),
    ] {
        // A kernel without IPv6 has none of these.
        match sysctl::write(key, value) {
            Err(SysctlError::Missing { .. }) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (send_buffer, receive_buffer) = tcp_buffers(path);
    for (key, value) in [
        ("net.ipv4.tcp_rmem", format!("4096 131072 {}", receive_buffer.0)),
        ("net.ipv4.tcp_wmem", format!("4096 16384 {}", send_buffer.0)),
        // Each connection starts from nothing, so that runs do not depend on the ones before.
        ("net.ipv4.tcp_no_metrics_save", "1".into()),
        // Of a user namespace of one's own there is only this group.
        ("net.ipv4.ping_group_range", "0 0".into()),
    ] {
        sysctl::write(key, &value)?;
    }

    let index = netlink.index_of(HOST_INTERFACE)?;
    // Super-packets in tunnels come labelled as if they were in none, so the host shall cut them.
    let off: Vec<_> = TUNNEL_FEATURES
        .into_iter()
        .chain(if spec.offload { &[][..] } else { &OFFLOAD_FEATURES }.iter().copied())
        .collect();
    set_features(HOST_INTERFACE, &off, false)?;
    let cpus = spec.host_cpus();
    if !cpus.is_empty() {
        // What a thread sends into a veth is received on its CPU: by the emulator's, in the middle of its work.
        // Without it, as for users who may not set it, the path is slower and as true.
        let _ = rps::steer_for_good(HOST_INTERFACE, &cpus);
    }
    if spec.gathers() {
        // The port has a ring then, of 256 frames; with a queue before it a sender waits, as before a NIC's (Linux 6.16).
        netlink.set_root_queue(index)?;
    }
    netlink.set_up(index, true)?;
    for (ip, prefix_bits) in plan.addresses() {
        match netlink.add_address(&Address { ifindex: index, ip, prefix_bits }) {
            Err(LinkError::Refused { .. }) if ip.is_ipv6() => {}
            result => result?,
        }
    }
    for other in all.iter().filter(|other| other.name != plan.name) {
        for (ip, _) in other.addresses() {
            match netlink.add_permanent_neighbour(index, ip, other.mac) {
                Err(LinkError::Refused { .. }) if ip.is_ipv6() => {}
                result => result?,
            }
        }
    }
    Ok(())
}

/// Features that cut super-packets in tunnels.
const TUNNEL_FEATURES: [&str; 7] = [
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-gso-partial",
];

/// Features that make and take super-packets.
const OFFLOAD_FEATURES: [&str; 8] = [
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    // Since Linux 6.18.
    "tx-tcp-accecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
];

/// Sets those of `features` that the interface has and that may be changed.
fn set_features(interface: &str, features: &[&str], on: bool) -> Result<(), LabError> {
    let ethtool = ethtool::Ethtool::open(interface)?;
    let present = ethtool.features()?;
    let wanted: Vec<_> = features
        .iter()
        .filter(|name| present.iter().any(|feature| feature.name == **name && feature.changeable))
        .map(|name| (*name, on))
        .collect();
    ethtool.set_features(&wanted)?;
    Ok(())
}

/// Runs in the emulator's namespace.
fn set_up_ports(spec: &LabSpec, plans: &[HostPlan]) -> Result<(), LabError> {
    let mut netlink = Netlink::open()?;
    for plan in plans {
        // The emulator's interfaces have no addresses and shall speak for nobody.
        match sysctl::write(&format!("net.ipv6.conf.{}.disable_ipv6", plan.port), "1") {
            Err(SysctlError::Missing { .. }) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        if spec.gathers() {
            set_features(&plan.port, &["rx-gro"], true)?;
        }
        let index = netlink.index_of(&plan.port)?;
        netlink.set_up(index, true)?;
    }
    wait_until_ready(&plans.iter().map(|plan| plan.port.as_str()).collect::<Vec<_>>())
}

/// Waits until the interfaces take packets: what is sent into one that was just set up is lost without a trace.
fn wait_until_ready(interfaces: &[&str]) -> Result<(), LabError> {
    let mut netlink = Netlink::open()?;
    let deadline = monotonic() + PATIENCE;
    for interface in interfaces {
        let index = netlink.index_of(interface)?;
        if !netlink.wait_until_ready(index, deadline)? {
            return Err(LabError::NotReady { interface: (*interface).to_owned() });
        }
    }
    Ok(())
}

/// Waits until the host has reported its IPv6 groups as often as it will (RFC 3810 §9.1, the robustness variable): a report
/// that came later would be on the path, and count as one of the user's packets.
fn wait_until_reported() {
    let times = sysctl::read("net.ipv6.mld_qrv").ok().and_then(|times| times.parse().ok()).unwrap_or(2_u64);
    let deadline = monotonic() + REPORTED_AFTER;
    // A kernel without IPv6 has no such file and reports nothing.
    while let Ok(text) = std::fs::read_to_string(format!("/proc/thread-self/net/dev_snmp6/{HOST_INTERFACE}")) {
        // Type 143 is the report of MLDv2 (RFC 3810 §5.2).
        let reports = text.lines().find_map(|line| line.strip_prefix("Icmp6OutType143"));
        if reports.and_then(|count| count.trim().parse().ok()).is_some_and(|count: u64| count >= times)
            || monotonic() >= deadline
        {
            return;
        }
        sleep_until(monotonic() + Nanos::from_millis(1));
    }
}

/// The largest TCP send and receive buffers of the hosts, from the window of the latency-emulation paper: BDP = rate × round
/// trip, and half of the bottleneck's queue. The kernel wakes a writer when a third of the send buffer is free, so that one
/// has half as much again: a window less than that would leave the path idle a sixth of the time. The receive buffer is
/// twice the window, as half of it may be bookkeeping (`tcp_adv_win_scale`, ip-sysctl.rst).
fn tcp_buffers(path: &PathSpec) -> (Bytes, Bytes) {
    let access =
        |hosts: &[longhaul_path::spec::HostSpec]| hosts.iter().map(|host| host.delay).max().unwrap_or_default();
    let ends = access(&path.clients) + access(&path.servers);
    let round_trip = path.round_trip() + ends + ends;
    let rate = Direction::BOTH.into_iter().filter_map(|direction| path.bottleneck(direction)).max();
    let product = rate.unwrap_or(ASSUMED_RATE).bytes_in(round_trip);
    let queue = path
        .forward
        .iter()
        .chain(&path.backward)
        .filter(|hop| hop.rate.is_some())
        .filter_map(|hop| match hop.queue {
            QueueLimit::Unlimited => None,
            QueueLimit::Bytes(bytes) => Some(bytes.0),
            QueueLimit::Packets(packets) => Some(packets.saturating_mul(PACKET_BYTES)),
        })
        .min();
    let window = product.saturating_add(queue.unwrap_or(product).min(product) / 2);
    let bounded = |bytes: u64| Bytes(bytes.clamp(LEAST_TCP_BUFFER.0, MOST_TCP_BUFFER.0));
    (bounded(window.saturating_mul(3) / 2), bounded(window.saturating_mul(2)))
}
