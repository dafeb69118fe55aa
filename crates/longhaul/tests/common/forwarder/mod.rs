//! A forwarder that judges longhaul: it passes the frames between two hosts, loses, copies, reorders, delays and damages some by chance,
//! and writes down every act. Its log is the truth that results are compared with.
//!
//! ```text
//!   client          router                      server
//!   eth0 ─── veth ── rc │ this program │ rs ── veth ─── eth0
//!   10.88.0.1, fd88::1                          10.88.0.2, fd88::2
//! ```
//!
//! It shares nothing with the path model and the emulator, which it judges, too: two packet sockets and this file. The hosts'
//! offloads are off, so each frame is one wire packet; what they cannot cut the kernel cuts before it comes here.

mod log;
mod packet;

use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_kernel::capability;
use longhaul_kernel::clock::{monotonic, realtime};
use longhaul_kernel::ethtool;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_kernel::wait::Poller;
use longhaul_units::Nanos;

pub(crate) use log::{Act, Arrival, Departure, Direction, Log};
pub(crate) use packet::Packet;

/// How often it looks whether it shall end.
const LOOK: Nanos = Nanos::from_millis(20);
/// How long a reordered frame waits at most for later ones.
const REORDER_MOST: Nanos = Nanos::from_millis(20);

/// What happens to frames of one direction, each by its own chance; the first that comes up counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chances {
    /// A loss begins.
    pub(crate) lose: f64,
    /// It takes 1 to this many frames.
    pub(crate) lose_run: u64,
    pub(crate) copy: f64,
    pub(crate) damage: f64,
    pub(crate) copy_and_damage: f64,
    /// Delayed, by up to `delay_most`; a copy, too, comes up to so much later.
    pub(crate) delay: f64,
    pub(crate) delay_most: Duration,
    /// Held back until 1 to `reorder_most` later frames have passed.
    pub(crate) reorder: f64,
    pub(crate) reorder_most: u64,
    /// The frames to which it may happen.
    pub(crate) which: fn(&Packet) -> bool,
}

impl Default for Chances {
    /// Nothing happens; what would, happens to UDP.
    fn default() -> Self {
        Self {
            lose: 0.0,
            lose_run: 1,
            copy: 0.0,
            damage: 0.0,
            copy_and_damage: 0.0,
            delay: 0.0,
            delay_most: Duration::from_millis(2),
            reorder: 0.0,
            reorder_most: 5,
            which: Packet::is_udp,
        }
    }
}

/// A forwarder to be raised.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) forward: Chances,
    pub(crate) backward: Chances,
    pub(crate) seed: u64,
    /// Each frame takes so long beside what happens to it, in either direction. With it nothing is held for later frames to pass.
    pub(crate) one_way: Duration,
    /// The hosts join frames as NICs do (GRO).
    pub(crate) gro: bool,
}

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    Client,
    Server,
}

impl Host {
    pub(crate) fn ipv4(self) -> IpAddr {
        IpAddr::from([10, 88, 0, self.number()])
    }

    pub(crate) fn ipv6(self) -> IpAddr {
        IpAddr::from([0xfd88, 0, 0, 0, 0, 0, 0, u16::from(self.number())])
    }

    fn mac(self) -> [u8; 6] {
        [2, 0, 0, 0x88, 0, self.number()]
    }

    fn number(self) -> u8 {
        match self {
            Self::Client => 1,
            Self::Server => 2,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Two hosts and the forwarder between them; they go with this value.
pub(crate) struct Forwarder {
    client: NetNamespace,
    server: NetNamespace,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Log>>,
}

impl Forwarder {
    /// `None` where this user may not; prints why.
    pub(crate) fn up(plan: Plan) -> Option<Self> {
        if !capability::is_root_in_namespace() {
            longhaul_testing::no_judge!("it takes root to make network namespaces");
            return None;
        }
        let [client, server, router] = [(), (), ()].map(|()| NetNamespace::create().unwrap());
        for (port, host, namespace) in [("rc", Host::Client, &client), ("rs", Host::Server, &server)] {
            let cable = || {
                let end = VethEnd { name: "eth0", namespace: Some(namespace), mtu_bytes: None, mac: Some(host.mac()) };
                let mut netlink = Netlink::open().unwrap();
                netlink
                    .create_veth(&VethEnd { name: port, namespace: None, mtu_bytes: None, mac: None }, &end)
                    .unwrap();
                offloads_off(port, false);
                let index = netlink.index_of(port).unwrap();
                netlink.set_up(index, true).unwrap();
            };
            router.enter(cable).unwrap();
            namespace.enter(|| set_up(host, plan.gro)).unwrap();
        }
        let open = |port: &str| {
            let index = Netlink::open().unwrap().index_of(port).unwrap();
            PacketSocket::open(index, &PacketOptions::default()).unwrap()
        };
        let sockets = router.enter(|| [open("rc"), open("rs")]).unwrap();
        let stop: Arc<AtomicBool> = Arc::default();
        let stopped = Arc::clone(&stop);
        let forwarding = Forwarding {
            plan,
            random: Random::new(plan.seed),
            sockets,
            log: Log::default(),
            held: vec![],
            losing: [0; 2],
        };
        // The thread holds the router's namespace.
        let thread = std::thread::spawn(move || {
            let _router = router;
            forwarding.run(&stopped)
        });
        Some(Self { client, server, stop, thread: Some(thread) })
    }

    pub(crate) fn namespace(&self, host: Host) -> &NetNamespace {
        match host {
            Host::Client => &self.client,
            Host::Server => &self.server,
        }
    }

    /// Starts a program on a host.
    pub(crate) fn spawn(&self, host: Host, command: &mut Command) -> Child {
        self.namespace(host).enter(|| command.spawn()).unwrap().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Runs a program on a host to its end.
    pub(crate) fn output(&self, host: Host, command: &mut Command) -> Output {
        self.namespace(host).enter(|| command.output()).unwrap().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Runs a line of shell on a host, which must succeed.
    #[track_caller]
    pub(crate) fn shell(&self, host: Host, line: &str) -> String {
        let output = self.output(host, Command::new("sh").args(["-c", line]));
        assert!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends the forwarder, once it has sent what it holds, and tells what it did.
    pub(crate) fn finish(mut self) -> Log {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn offloads_off(link: &str, gro: bool) {
    let off = ["tx-checksum-ip-generic", "tx-generic-segmentation", "tx-udp-segmentation", "rx-udp-gro-forwarding"];
    let features: Vec<(&str, bool)> = off.map(|name| (name, false)).into_iter().chain([("rx-gro", gro)]).collect();
    ethtool::set_features(link, &features).unwrap();
}

fn set_up(host: Host, gro: bool) {
    let mut netlink = Netlink::open().unwrap();
    let loopback = netlink.index_of("lo").unwrap();
    netlink.set_up(loopback, true).unwrap();
    offloads_off("eth0", gro);
    let index = netlink.index_of("eth0").unwrap();
    netlink.set_up(index, true).unwrap();
    for (ip, prefix_bits) in [(host.ipv4(), 24), (host.ipv6(), 64)] {
        netlink.add_address(&Address { ifindex: index, ip, prefix_bits }).unwrap();
    }
    let other = host.other();
    for ip in [other.ipv4(), other.ipv6()] {
        netlink.add_permanent_neighbour(index, ip, other.mac()).unwrap();
    }
    // The kernel adds the route to an IPv6 address of its own a moment after the address.
    let socket = UdpSocket::bind((host.ipv6(), 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let own = socket.local_addr().unwrap();
    while socket.send_to(&[0], own).is_err() || socket.recv(&mut [0]).is_err() {}
}

/// A frame that goes later.
struct Held {
    direction: Direction,
    arrival: usize,
    frame: Vec<u8>,
    damage: Option<(usize, u8)>,
    /// At the latest then.
    due: Nanos,
    /// `CLOCK_REALTIME`, counted from its arrival.
    planned_ns: u64,
    /// Or behind so many later frames.
    behind: u64,
}

struct Forwarding {
    plan: Plan,
    random: Random,
    /// To the client and to the server.
    sockets: [PacketSocket; 2],
    log: Log,
    held: Vec<Held>,
    /// Frames that the loss that has begun still takes, by direction.
    losing: [u64; 2],
}

impl Forwarding {
    fn run(mut self, stop: &AtomicBool) -> Log {
        let poller = Poller::new().unwrap();
        for (socket, key) in self.sockets.iter().zip(0..) {
            poller.add(socket, key).unwrap();
        }
        let mut buffer = vec![0; 1 << 17];
        loop {
            let now = monotonic();
            let next = self.held.iter().map(|held| held.due).fold(now + LOOK, Nanos::min);
            drop(poller.wait(Some(next)).unwrap());
            for (from, direction) in [(0, Direction::Forward), (1, Direction::Backward)] {
                // Not for ever, so that what is held goes in time.
                for _ in 0..64 {
                    let Ok(Some(received)) = self.sockets[from].receive(&mut buffer) else { break };
                    let frame = &buffer[..received.frame_bytes];
                    assert!(received.vnet == [0; 10] && received.vlan.is_none(), "not a plain frame: {received:?}");
                    self.take(direction, received.stamp_realtime.unwrap_or_else(realtime), frame);
                }
            }
            let ends = stop.load(Ordering::Relaxed);
            self.release(ends);
            if ends {
                self.log.missed = self.sockets.iter().map(PacketSocket::drops).sum();
                return self.log;
            }
        }
    }

    fn take(&mut self, direction: Direction, at: Nanos, frame: &[u8]) {
        let chances = match direction {
            Direction::Forward => self.plan.forward,
            Direction::Backward => self.plan.backward,
        };
        let packet = Packet::read(frame);
        let act = if (chances.which)(&packet) { self.choose(direction, &chances) } else { Act::Pass };
        let arrival = self.log.arrivals.len();
        let damage = self.random.bit(&packet);
        self.log.arrivals.push(Arrival { direction, at_ns: at.0, packet, act });
        let later = Nanos(self.random.below(chances.delay_most.as_nanos() as u64 + 1));
        let one_way = Nanos(self.plan.one_way.as_nanos() as u64);
        assert!(act != Act::Reorder || one_way == Nanos::ZERO, "frames that are held wait for arrivals");
        let held = |damage, wait: Nanos, behind| Held {
            direction,
            arrival,
            frame: frame.to_vec(),
            damage,
            due: monotonic() + wait + one_way,
            planned_ns: at.0 + (wait + one_way).0,
            behind,
        };
        match act {
            Act::Pass => self.pass(held(None, Nanos::ZERO, u64::MAX)),
            Act::Lose => {}
            Act::Damage => self.pass(held(Some(damage), Nanos::ZERO, u64::MAX)),
            Act::Copy => {
                self.pass(held(None, Nanos::ZERO, u64::MAX));
                self.held.push(held(None, later, u64::MAX));
            }
            Act::CopyAndDamage => {
                self.pass(held(None, Nanos::ZERO, u64::MAX));
                self.held.push(held(Some(damage), later, u64::MAX));
            }
            Act::Delay => self.held.push(held(None, later, u64::MAX)),
            Act::Reorder => {
                let behind = 1 + self.random.below(chances.reorder_most);
                self.held.push(held(None, REORDER_MOST, behind));
                return;
            }
        }
        let waiting = self.held.iter_mut().filter(|held| held.direction == direction && held.behind != u64::MAX);
        waiting.for_each(|held| held.behind -= 1);
        self.release(false);
    }

    fn choose(&mut self, direction: Direction, chances: &Chances) -> Act {
        let losing = &mut self.losing[direction as usize];
        if *losing > 0 {
            *losing -= 1;
            return Act::Lose;
        }
        let acts = [
            (chances.lose, Act::Lose),
            (chances.copy, Act::Copy),
            (chances.damage, Act::Damage),
            (chances.copy_and_damage, Act::CopyAndDamage),
            (chances.delay, Act::Delay),
            (chances.reorder, Act::Reorder),
        ];
        let mut left = self.random.unit();
        let act = acts.into_iter().find(|(chance, _)| {
            left -= chance;
            left < 0.0
        });
        let act = act.map_or(Act::Pass, |(_, act)| act);
        if act == Act::Lose {
            self.losing[direction as usize] = self.random.below(chances.lose_run);
        }
        act
    }

    /// Sends what is due, or all.
    fn release(&mut self, all: bool) {
        let now = monotonic();
        let due = self.held.extract_if(.., |held| all || held.due <= now || held.behind == 0);
        for held in due.collect::<Vec<_>>() {
            self.send(&held);
        }
    }

    fn pass(&mut self, held: Held) {
        if self.plan.one_way.is_zero() {
            self.send(&held);
        } else {
            self.held.push(held);
        }
    }

    fn send(&mut self, held: &Held) {
        let mut frame = held.frame.clone();
        if let Some((at, bit)) = held.damage {
            frame[at] ^= bit;
        }
        let to = match held.direction {
            Direction::Forward => &self.sockets[1],
            Direction::Backward => &self.sockets[0],
        };
        let at_ns = realtime().0;
        if held.behind == u64::MAX {
            self.log.latest_ns = self.log.latest_ns.max(at_ns.saturating_sub(held.planned_ns));
        }
        let refused = to.send(&[0; 10], &[&frame]).is_err();
        self.log.departures.push(Departure { arrival: held.arrival, at_ns, damage: held.damage, refused });
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `end` - 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A bit of the packet to flip: of its IP header or behind it. Not of the checksum, which would be "none" if it became 0.
    fn bit(&mut self, packet: &Packet) -> (usize, u8) {
        let [ip, transport, _] = packet.begins;
        loop {
            let at = ip.min(packet.bytes - 1) + self.below((packet.bytes - ip.min(packet.bytes - 1)) as u64) as usize;
            let checksum = packet.is_udp() && (transport + 6..transport + 8).contains(&at);
            if !checksum {
                return (at, 1 << self.below(8));
            }
        }
    }
}
