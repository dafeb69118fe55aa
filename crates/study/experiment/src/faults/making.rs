//! The lab of a fault: client, emulated path, a router where the fault needs one, server.
//!
//! ```text
//!  client ──┐                                        ┌── s0 ─── eth0 ──┐
//!           ├── emulated path ── (router) ── or not ─┤                 ├── server
//!  client2 ─┘                                        └── s1 ─── eth1 ──┘
//! ```
//!
//! Packets travel one by one through the path (`--segmentation wire`), so that a router or firewall counts and drops what it would on a
//! wire. The slowest link has a drop-tail queue of one bandwidth-delay product.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Stdio;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{LinkError, Netlink, VethEnd};
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::sleep_until;
use longhaul_lab::{Lab, LabError, LabSpec};
use longhaul_path::spec::{Change, ChangeError, HopSpec, HostSpec, PathSpec, QueueLimit};
use longhaul_units::{BitRate, Bytes, Nanos};

use super::program::{Ended, Program, Programs};
use super::spec::{Fault, HostName};

/// The server behind a router. Link n has the network 10.78.n.0/24, the server .1 and the router .254.
const BEHIND_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// Where `longhaul serve` listens, as /proc/net/tcp has it.
const SERVE_PORT: &str = ":145A";
/// How long a command may take, and `longhaul serve` to listen.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// What traffic beside a test has to fill the path before the test begins.
const SETTLE: Nanos = Nanos::from_secs(4);
/// The queue before the slowest link at least: twenty full packets, which a burst of one window needs even over a short path.
const LEAST_QUEUE: u64 = 20 * 1538;
/// The server's buffers behind a router: those that a lab gives its hosts.
const BUFFER_BYTES: u64 = 32 << 20;

/// Why the lab of a fault cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakingError {
    /// The hosts or the path.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The router's side.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A link of the router.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A change does not fit the path.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A program cannot be started.
    #[error("cannot start a program on {host}: {source}")]
    Program {
        /// Where.
        host: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A command failed.
    #[error("on {host}: {command}: {why}")]
    Command {
        /// Where.
        host: &'static str,
        /// What was to be done.
        command: String,
        /// Its result.
        why: String,
    },
    /// The server does not listen.
    #[error("longhaul serve does not listen after {PATIENCE}")]
    NotListening,
}

/// How the lab of a fault is to be made.
#[derive(Debug, Clone)]
pub struct Doing<'a> {
    /// What is wrong.
    pub fault: &'a Fault,
    /// The path's round trip.
    pub rtt: Nanos,
    /// Seed of the path's random numbers.
    pub seed: u64,
    /// With the fault, or fixed.
    pub faulty: bool,
    /// How the emulator runs; name, seed and segmentation are the fault's.
    pub spec: &'a LabSpec,
}

/// A fault's lab. Dropping it ends its programs and takes it down.
#[derive(Debug)]
pub struct FaultLab {
    /// They end first.
    running: Vec<Program>,
    programs: Programs,
    behind_router: Option<NetNamespace>,
    lab: Lab,
    /// What was asked for.
    faulty: bool,
}

impl FaultLab {
    /// Makes it, with `longhaul serve` on the server.
    ///
    /// # Errors
    /// Where the right is missing, or a command of the fault fails; nothing stays behind.
    pub fn up(doing: &Doing<'_>, programs: &Programs) -> Result<Self, MakingError> {
        let making = &doing.fault.making;
        let name = format!("fault-{}", std::process::id());
        let spec = LabSpec { name, seed: doing.seed, wire: true, ..doing.spec.clone() };
        let lab = Lab::up(spec, path(doing)?)?;
        let mut made =
            Self { running: Vec::new(), programs: programs.clone(), behind_router: None, lab, faulty: doing.faulty };
        if making.has_router() {
            made.add_router(making.members.unwrap_or(1), making.has_second_client())?;
        }
        if doing.faulty {
            for (host, commands) in [
                (HostName::Client, &making.client),
                (HostName::Router, &making.router),
                (HostName::Server, &making.server),
            ] {
                for command in commands {
                    made.shell(host, command)?;
                }
            }
            if let Some(interval) = making.poll_interval {
                made.lab.poll_receiver("server", interval)?;
            }
        }
        made.serve(if doing.faulty { &making.serve } else { "" })?;
        if doing.faulty && !making.beside.is_empty() {
            for program in &making.beside {
                made.start(program.host, &program.run)?;
                // A server listens before its client comes.
                sleep_until(monotonic() + Nanos::from_millis(300));
            }
            sleep_until(monotonic() + SETTLE);
        }
        Ok(made)
    }

    /// The server's address.
    pub fn server(&self) -> Ipv4Addr {
        if self.behind_router.is_some() {
            return BEHIND_ROUTER;
        }
        self.lab.host("server").map_or(Ipv4Addr::LOCALHOST, |host| host.plan.ipv4)
    }

    /// The client's address.
    pub fn client(&self) -> Ipv4Addr {
        self.lab.host("client").map_or(Ipv4Addr::LOCALHOST, |host| host.plan.ipv4)
    }

    /// Runs longhaul itself with `words` on the client until it ends, `time` has passed, or somebody asks to stop.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn longhaul(&self, words: &[String], time: Nanos, stop: Stop) -> Result<Ended, MakingError> {
        self.longhaul_on(HostName::Client, words, time, stop)
    }

    /// The same on `host`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn longhaul_on(&self, host: HostName, words: &[String], time: Nanos, stop: Stop) -> Result<Ended, MakingError> {
        let ended = self.begin_longhaul(host, words)?.ended(time, Some(stop));
        ended.map_err(|source| MakingError::Program { host: host.name(), source })
    }

    /// Starts longhaul itself with `words` on `host`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn begin_longhaul(&self, host: HostName, words: &[String]) -> Result<Program, MakingError> {
        let own = self.programs.longhaul.display().to_string();
        let words: Vec<&str> = std::iter::once(own.as_str()).chain(words.iter().map(String::as_str)).collect();
        let started = self.programs.start(self.network(host)?, &words, Stdio::piped);
        started.map_err(|source| MakingError::Program { host: host.name(), source })
    }

    /// Runs `work` in the network of `host`.
    ///
    /// # Errors
    /// It cannot be entered.
    pub(super) fn on<T: Send>(&self, host: HostName, work: impl FnOnce() -> T + Send) -> Result<T, MakingError> {
        Ok(self.network(host)?.enter(work)?)
    }

    /// The longhaul that runs programs in this lab.
    pub(super) fn program(&self) -> String {
        self.programs.longhaul.display().to_string()
    }

    /// The process whose child `longhaul serve` is.
    pub(super) fn serving(&self) -> u32 {
        // The first that was started.
        self.running.first().map_or(0, Program::pid)
    }

    /// Whether a program beside the test has ended by itself, which makes the test worthless.
    pub fn lacks_a_program(&mut self) -> bool {
        self.faulty && self.running.iter_mut().any(Program::has_ended)
    }

    /// Ends its programs and takes it down.
    ///
    /// # Errors
    /// The emulator had ended before, or programs do not end.
    pub fn down(self) -> Result<longhaul_emulator::Status, MakingError> {
        let Self { running, behind_router, lab, .. } = self;
        drop(running);
        drop(behind_router);
        Ok(lab.down()?)
    }

    fn network(&self, host: HostName) -> Result<&NetNamespace, MakingError> {
        match (host, &self.behind_router) {
            (HostName::Server, Some(namespace)) => Ok(namespace),
            // The lab's own server stands where the router is.
            (HostName::Router, _) => Ok(&self.lab.host("server")?.namespace),
            (host, _) => Ok(&self.lab.host(host.name())?.namespace),
        }
    }

    /// Puts a server behind the lab's own, which becomes a router.
    fn add_router(&mut self, members: u8, second_client: bool) -> Result<(), MakingError> {
        let server = NetNamespace::create()?;
        let router = self.network(HostName::Router)?;
        for member in 0..members {
            let (near, far) = (format!("s{member}"), format!("eth{member}"));
            let end = |name, namespace| VethEnd { name, namespace, mtu_bytes: None, mac: None };
            router.enter(|| Netlink::open()?.create_veth(&end(&near, None), &end(&far, Some(&server))))??;
        }
        self.behind_router = Some(server);
        let mut near = vec!["sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1".to_owned()];
        let mut far = vec![
            // Replies leave by the first link, whatever a flow came by.
            "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0".to_owned(),
            format!(
                "sysctl -qw net.ipv4.tcp_rmem='4096 131072 {BUFFER_BYTES}' net.ipv4.tcp_wmem='4096 16384 {BUFFER_BYTES}' \
                 net.ipv4.tcp_no_metrics_save=1"
            ),
            "ip link set lo up".to_owned(),
        ];
        for member in 0..members {
            near.push(format!("ip link set s{member} up; ip addr add 10.78.{member}.254/24 dev s{member}"));
            far.push(format!(
                "sysctl -qw net.ipv4.conf.eth{member}.rp_filter=0; ip link set eth{member} up; \
                 ip addr add 10.78.{member}.1/24 dev eth{member}"
            ));
        }
        far.push("ip route add default via 10.78.0.254".to_owned());
        if members > 1 {
            let ways: Vec<_> = (0..members).map(|n| format!("nexthop via 10.78.{n}.1 dev s{n}")).collect();
            near.push(format!("ip route add {BEHIND_ROUTER}/32 {}", ways.join(" ")));
        }
        self.shell(HostName::Router, &near.join("; "))?;
        self.shell(HostName::Server, &far.join("; "))?;
        let by_router = "ip route add 10.78.0.0/16 via 10.77.2.1";
        self.shell(HostName::Client, by_router)?;
        if second_client {
            self.shell(HostName::Client2, by_router)?;
        }
        Ok(())
    }

    /// Has a shell on `host` run `command`.
    fn shell(&self, host: HostName, command: &str) -> Result<(), MakingError> {
        let words = ["sh", "-ec", command];
        let failed = |why| MakingError::Command { host: host.name(), command: command.to_owned(), why };
        let network = self.network(host)?;
        let ended = self.programs.run(network, &words, PATIENCE, None);
        let ended = ended.map_err(|source| MakingError::Program { host: host.name(), source })?;
        ended.success().map(drop).map_err(failed)
    }

    /// Starts a program that runs for as long as the lab is up.
    fn start(&mut self, host: HostName, command: &str) -> Result<(), MakingError> {
        let command = format!("exec {}", command.replace("$SERVER", &self.server().to_string()));
        let started = self.programs.start(self.network(host)?, &["sh", "-ec", &command], Stdio::null);
        self.running.push(started.map_err(|source| MakingError::Program { host: host.name(), source })?);
        Ok(())
    }

    fn serve(&mut self, by: &str) -> Result<(), MakingError> {
        let program = self.programs.longhaul.display().to_string().replace('\'', "'\\''");
        self.start(HostName::Server, &format!("{by} '{program}' serve --no-auth --bind {}", self.server()))?;
        let deadline = monotonic() + PATIENCE;
        let listens = || {
            let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default();
            table.lines().any(|line| {
                let mut fields = line.split_ascii_whitespace().skip(1);
                // The state of a socket that listens (TCP_LISTEN).
                fields.next().is_some_and(|address| address.ends_with(SERVE_PORT)) && fields.nth(1) == Some("0A")
            })
        };
        while !self.network(HostName::Server)?.enter(listens)? {
            if monotonic() >= deadline {
                return Err(MakingError::NotListening);
            }
            sleep_until(monotonic() + Nanos::from_millis(20));
        }
        Ok(())
    }
}

impl HostName {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Client2 => "client2",
            Self::Router => "router",
            Self::Server => "server",
        }
    }
}

/// The path of a fault.
pub(super) fn path(doing: &Doing<'_>) -> Result<PathSpec, ChangeError> {
    let Doing { fault, rtt, faulty, .. } = doing;
    let hop = HopSpec {
        name: Some("wan".into()),
        rate: Some(fault.rate),
        queue: QueueLimit::Bytes(Bytes(queue(fault.rate, *rtt))),
        delay: Nanos(rtt.0 / 2),
        ..HopSpec::default()
    };
    let host = |name: &str| HostSpec { name: Some(name.into()), ..HostSpec::default() };
    let second = fault.making.has_second_client().then(|| host("client2"));
    let mut path = PathSpec {
        name: fault.name.clone(),
        source: String::new(),
        forward: vec![hop.clone()],
        backward: vec![hop],
        clients: std::iter::once(host("client")).chain(second).collect(),
        servers: Vec::new(),
    };
    if *faulty {
        let changes: Vec<Change> =
            fault.making.change.iter().map(|text| Change::parse(text)).collect::<Result<_, _>>()?;
        Change::apply(&changes, &mut path)?;
    }
    Ok(path)
}

/// One bandwidth-delay product.
fn queue(rate: BitRate, rtt: Nanos) -> u64 {
    rate.bytes_in(rtt).max(LEAST_QUEUE)
}
