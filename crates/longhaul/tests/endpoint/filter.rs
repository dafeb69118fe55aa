//! `longhaul filter` as a user meets it: a host on a cable, followed while it changes under load, a controller that is killed, hosts
//! that must not be filtered.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::object;
use longhaul_bpf::filter::{Filter, FilterOptions};
use longhaul_bpf::support::has_bpf_fs;
use longhaul_filter::Following;
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;
use longhaul_units::Nanos;
use serde_json::Value;

pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 2);
pub(crate) const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
pub(crate) const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];

/// Two hosts with a cable between them; the filter is for the first.
pub(crate) struct Hosts {
    pub(crate) ours: NetNamespace,
    pub(crate) theirs: NetNamespace,
    pub(crate) index: u32,
    pub(crate) their_index: u32,
}

impl Hosts {
    /// `None` where that cannot be, and says why.
    pub(crate) fn new() -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("run as root");
            return None;
        }
        let (ours, theirs) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
        let end = |name, namespace, mac| VethEnd { name, namespace: Some(namespace), mtu_bytes: None, mac: Some(mac) };
        let mut near = ours.enter(Netlink::open).unwrap().unwrap();
        let mut far = theirs.enter(Netlink::open).unwrap().unwrap();
        near.create_veth(&end("lf0", &ours, OUR_MAC), &end("lf1", &theirs, THEIR_MAC)).unwrap();
        let (index, their_index) = (near.index_of("lf0").unwrap(), far.index_of("lf1").unwrap());
        for (netlink, ifindex, ip) in [(&mut near, index, OURS), (&mut far, their_index, THEIRS)] {
            netlink.set_up(ifindex, true).unwrap();
            netlink.add_address(&Address { ifindex, ip: ip.into(), prefix_bits: 16 }).unwrap();
        }
        let deadline = monotonic() + Nanos::from_secs(5);
        assert!(
            near.wait_until_ready(index, deadline).unwrap() && far.wait_until_ready(their_index, deadline).unwrap()
        );
        Some(Self { ours, theirs, index, their_index })
    }

    /// The binary on the host that is filtered.
    fn longhaul(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.longhaul(arguments);
        self.ours.enter(|| command.output()).unwrap().unwrap()
    }

    fn program(&self, words: &str) -> Output {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        self.ours.enter(|| command.output()).unwrap().unwrap()
    }

    pub(crate) fn ip(&self, words: &str) {
        let output = self.program(&format!("ip {words}"));
        assert!(output.status.success(), "ip {words}: {output:?}");
    }

    /// Runs `ip` for each of `lines`, which "; " separates; what it said where one failed.
    fn try_ip(&self, lines: &str) -> Result<(), String> {
        lines.split("; ").try_for_each(|words| {
            let output = self.program(&format!("ip {words}"));
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
            if output.status.success() { Ok(()) } else { Err(format!("ip {words}: {said}")) }
        })
    }

    /// A filter in a process of its own, attached.
    fn attach(&self, arguments: &[&str]) -> Program {
        let mut command = self.longhaul(&[&["filter", "attach", "lf0"][..], arguments].concat());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.ours.enter(|| command.spawn()).unwrap().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.next().unwrap().unwrap();
        assert!(said.contains("native XDP"), "{said}");
        Program(child)
    }

    fn status(&self) -> Value {
        let output = self.run(&["filter", "status", "lf0", "--json"]);
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)["result"].clone()
    }

    /// Sends frames for somebody else until told to stop; how many went, and how many the cable did not take.
    fn flood(&self, stop: &AtomicBool) -> (u64, u64) {
        let options = PacketOptions { promiscuous: false, ..PacketOptions::default() };
        let socket = self.theirs.enter(|| PacketSocket::open(self.their_index, &options)).unwrap().unwrap();
        let frame = [&[2, 9, 9, 9, 9, 9][..], &THEIR_MAC, &[8, 0], &[0x45; 46]].concat();
        let (mut sent, mut refused) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..16 {
                match socket.send(&[0; 10], &[&frame]) {
                    Ok(()) => sent += 1,
                    Err(_) => refused += 1,
                }
            }
            // Leaves the other of two CPUs to those who count.
            std::thread::sleep(Duration::from_micros(50));
        }
        (sent, refused)
    }
}

/// Addresses, groups and listeners come while frames for others flood the host: every packet that is sent after the call that made it
/// ours arrives.
#[test]
fn changes_under_load_lose_nothing_of_ours() {
    let Some(hosts) = Hosts::new() else { return };
    // The other host says nothing by itself.
    hosts.theirs.enter(|| longhaul_kernel::sysctl::write("net.ipv6.conf.lf1.disable_ipv6", "1")).unwrap().unwrap();
    let _filter = hosts.attach(&["--enforce", "--ports", "listening"]);
    let cable_dropped =
        |netlink: &mut Netlink| netlink.link_by_index(hosts.their_index).unwrap().stats.unwrap().tx_dropped;
    let mut netlink = hosts.ours.enter(Netlink::open).unwrap().unwrap();
    let mut their_netlink = hosts.theirs.enter(Netlink::open).unwrap().unwrap();
    let sender = hosts.theirs.enter(|| UdpSocket::bind((THEIRS, 0))).unwrap().unwrap();
    sender.set_multicast_loop_v4(false).unwrap();
    let stop = AtomicBool::new(false);
    let before = cable_dropped(&mut their_netlink);
    let ((flooded, refused), rounds, lost) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| hosts.flood(&stop));
        let (mut rounds, mut lost) = (0, 0);
        for round in 0..30_u8 {
            // A fresh address, a fresh socket at a fresh port, a fresh group: each is used at once.
            let ip = Ipv4Addr::new(10, 96, 1, round);
            their_netlink.add_permanent_neighbour(hosts.their_index, IpAddr::V4(ip), OUR_MAC).unwrap();
            netlink.add_address(&Address { ifindex: hosts.index, ip: ip.into(), prefix_bits: 16 }).unwrap();
            let socket = hosts.ours.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().unwrap();
            let group = Ipv4Addr::new(239, 9, 9, round);
            socket.join_multicast_v4(&group, &OURS).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let port = socket.local_addr().unwrap().port();
            for number in 0..50_u8 {
                let to = if number % 2 == 0 { ip } else { group };
                sender.send_to(&[round, number], (to, port)).unwrap();
            }
            let mut bytes = [0; 16];
            lost += (0..50).take_while(|_| socket.recv(&mut bytes).is_ok()).count().abs_diff(50) as u64;
            drop(socket);
            hosts.ip(&format!("address del {ip}/16 dev lf0"));
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        (flood.join().unwrap(), rounds, lost)
    });
    let rejected = || hosts.status()["total"]["rejected"]["packets"].as_u64().unwrap();
    until("all to be counted", || rejected() >= flooded);
    assert_eq!(rejected(), flooded, "something of ours was rejected: {:#}", hosts.status());
    // A cable whose ring is full is no filter.
    let cable = cable_dropped(&mut their_netlink) - before - refused;
    assert!(lost <= cable, "{lost} of ours are lost, {cable} by the cable");
    println!("{rounds} rounds of 50, {lost} lost, {cable} by the cable; {flooded} for others dropped");
    // And within 100 ms it knows what is gone.
    until("the filter to follow", || hosts.status()["addresses_current"] == true);
}

/// More local networks of IPv4 than the filter holds: it judges IPv6 as before, and says so.
#[test]
fn a_family_with_too_many_networks_is_not_judged() {
    let Some(hosts) = Hosts::new() else { return };
    let _filter = hosts.attach(&[]);
    let routes = (0..1_025).map(|n| format!("route add local 172.{}.{}.0/24 dev lo\n", 16 + n / 250, n % 250));
    let file = format!("{}/local-routes-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    std::fs::write(&file, routes.collect::<String>()).unwrap();
    hosts.ip("link set lo up");
    hosts.ip(&format!("-batch {file}"));
    std::fs::remove_file(&file).unwrap();
    let shown = || object(&hosts.run(&["filter", "status", "lf0", "--json"]).stdout);
    until("a caveat", || shown()["caveats"].to_string().contains("too_many_addresses"));
    let judges = shown()["result"]["judges"].clone();
    let judged = ["ipv4_addresses", "arp", "ipv6_addresses", "solicitations"].map(|what| judges[what] == true);
    assert_eq!(judged, [false, false, true, true], "{judges:#}");
}

#[test]
fn neighbours_are_found_again_after_both_caches_are_flushed() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.ip("address add fd96::2/64 dev lf0 nodad");
    let mut far = hosts.theirs.enter(Netlink::open).unwrap().unwrap();
    far.add_address(&Address { ifindex: hosts.their_index, ip: "fd96::1".parse().unwrap(), prefix_bits: 64 }).unwrap();
    let _filter = hosts.attach(&["--enforce"]);
    for _ in 0..3 {
        for namespace in [&hosts.ours, &hosts.theirs] {
            let flushed =
                namespace.enter(|| Command::new("ip").args(["neigh", "flush", "all"]).output()).unwrap().unwrap();
            assert!(flushed.status.success(), "{flushed:?}");
        }
        for (namespace, to) in [
            (&hosts.theirs, "fd96::2"),
            (&hosts.ours, "fd96::1"),
            (&hosts.theirs, "10.96.0.2"),
            (&hosts.ours, "10.96.0.1"),
        ] {
            let mut ping = Command::new("ping");
            ping.args(["-c", "1", "-W", "2", to]);
            let output = namespace.enter(|| ping.output()).unwrap().unwrap();
            assert!(output.status.success(), "ping {to}: {output:?} {:#}", hosts.status());
        }
    }
}

/// Each neighbour is asked again and again, as after hours: reachable, stale, probed.
#[test]
fn neighbours_age_and_are_probed() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.ip("address add fd96::2/64 dev lf0 nodad");
    let mut far = hosts.theirs.enter(Netlink::open).unwrap().unwrap();
    far.add_address(&Address { ifindex: hosts.their_index, ip: "fd96::1".parse().unwrap(), prefix_bits: 64 }).unwrap();
    for (namespace, link) in [(&hosts.ours, "lf0"), (&hosts.theirs, "lf1")] {
        for (key, value) in
            [("base_reachable_time_ms", "100"), ("delay_first_probe_time", "1"), ("retrans_time_ms", "100")]
        {
            let key = format!("net/ipv6/neigh/{link}/{key}");
            namespace.enter(|| longhaul_kernel::sysctl::write(&key, value)).unwrap().unwrap();
        }
    }
    let _filter = hosts.attach(&["--enforce"]);
    let mut ping = Command::new("ping");
    ping.args(["-c", "16", "-i", "0.25", "-W", "1", "fd96::2"]);
    let output = hosts.theirs.enter(|| ping.output()).unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(" 0% packet loss"), "{text}");
    // Each probe is a solicitation to our MAC address alone, each answer an advertisement: all of them pass, and by themselves. A neighbour
    // whose probes are lost is looked for anew by multicast, which ping would not notice.
    let status = hosts.status();
    let packets = |value: &Value| value["packets"].as_u64().unwrap();
    let of = |table: &str, key: &str, name: &str| {
        status[table].as_array().unwrap().iter().find(|row| row[key] == name).unwrap().clone()
    };
    let discovery = packets(&of("accepted", "reason", "neighbour_discovery")["frames"]);
    assert!(discovery >= 3, "twice asked, and once answered: {status:#}");
    let icmp = of("protocols", "protocol", "ipv6_icmp");
    assert!(packets(&icmp["unicast"]["accepted"]) >= 16 + 3, "by unicast: {icmp:#}");
    assert_eq!(packets(&icmp["unicast"]["rejected"]), 0, "{icmp:#}");
}

/// More news than the kernel keeps: the filter knows all of it once it is told again, and hears what comes then.
#[test]
fn an_overrun_of_netlink_costs_nothing() {
    let Some(hosts) = Hosts::new() else { return };
    let options = FilterOptions { enforce: true, ..FilterOptions::default() };
    let filter = hosts.ours.enter(|| Filter::attach(hosts.index, &options)).unwrap().unwrap();
    let mut following = hosts.ours.enter(|| Following::begin("lf0")).unwrap().unwrap();
    // One that goes among all the others.
    let gone = Ipv4Addr::new(10, 96, 202, 1);
    hosts.ip(&format!("address add {gone}/16 dev lf0"));
    hosts.ours.enter(|| following.tell(&filter)).unwrap().unwrap();
    let frame_to = |ip: Ipv4Addr| {
        let header = [&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0][..], &THEIRS.octets(), &ip.octets()].concat();
        [&OUR_MAC[..], &THEIR_MAC, &[8, 0], &header, &[0; 26]].concat()
    };
    let last = Ipv4Addr::new(10, 96, 200, 1);
    let dropped = |ip| hosts.ours.enter(|| filter.try_frame(&frame_to(ip), 1)).unwrap().unwrap().0;
    assert!(dropped(last), "it is nobody's yet");
    assert!(!dropped(gone), "it is ours");
    let lines: String = (0..4000)
        .map(|at| {
            let (verb, ip) = (["add", "del"][at % 2], Ipv4Addr::new(10, 96, 100, 1 + (at / 2 % 200) as u8));
            format!("address {verb} {ip}/16 dev lf0\n")
        })
        .chain([format!("address del {gone}/16 dev lf0\naddress add {last}/16 dev lf0\n")])
        .collect();
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("overrun-{}", std::process::id()));
    std::fs::write(&file, lines).unwrap();
    hosts.ip(&format!("-batch {}", file.display()));
    std::fs::remove_file(file).unwrap();
    // sk, Eth, Pid, Groups, Rmem, Wmem, Dump, Locks, Drops
    let table = hosts.ours.enter(|| std::fs::read_to_string("/proc/thread-self/net/netlink")).unwrap().unwrap();
    let drops: u64 = table.lines().skip(1).filter_map(|row| row.split_whitespace().nth(8)?.parse::<u64>().ok()).sum();
    assert!(drops > 0, "nothing overran: {table}");
    assert!(!dropped(last), "doubtful, as nobody told the filter");
    let wait = |following: &Following| {
        hosts.ours.enter(|| following.wait(monotonic() + Nanos::from_secs(5))).unwrap().unwrap()
    };
    assert!(wait(&following), "there is news");
    assert!(hosts.ours.enter(|| following.tell(&filter)).unwrap().unwrap());
    assert!(!dropped(last), "it is ours");
    assert!(dropped(gone) && dropped(Ipv4Addr::new(10, 96, 100, 7)), "and those went");
    until("all news to be heard", || {
        hosts.ours.enter(|| following.tell(&filter)).unwrap().unwrap();
        !hosts.ours.enter(|| following.wait(monotonic() + Nanos::from_millis(50))).unwrap().unwrap()
    });
    let fresh = Ipv4Addr::new(10, 96, 201, 1);
    assert!(dropped(fresh));
    hosts.ip(&format!("address add {fresh}/16 dev lf0"));
    assert!(wait(&following), "it hears what comes after the overrun");
    assert!(hosts.ours.enter(|| following.tell(&filter)).unwrap().unwrap());
    assert!(!dropped(fresh));
    println!("{drops} messages overran");
}

#[test]
fn watching_shows_each_moment_and_ends_with_the_filter() {
    let Some(hosts) = Hosts::new() else { return };
    let attached = hosts.attach(&[]);
    let mut command = hosts.longhaul(&["filter", "status", "lf0", "--interval", "50ms", "--json"]);
    command.stdout(Stdio::piped());
    let mut watching = hosts.ours.enter(|| command.spawn()).unwrap().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut rejected = || {
        let whole = object(lines.next()?.unwrap().as_bytes());
        Some(whole["result"]["total"]["rejected"]["packets"].as_u64().unwrap())
    };
    let before = rejected().unwrap();
    let socket =
        hosts.theirs.enter(|| PacketSocket::open(hosts.their_index, &PacketOptions::default())).unwrap().unwrap();
    let frame = [&[2, 9, 9, 9, 9, 9][..], &THEIR_MAC, &[8, 0], &[0x45; 46]].concat();
    (0..5).for_each(|_| socket.send(&[0; 10], &[&frame]).unwrap());
    let deadline = Instant::now() + Duration::from_secs(5);
    while rejected().unwrap() < before + 5 {
        assert!(Instant::now() < deadline);
    }
    drop(attached);
    while rejected().is_some() {
        assert!(Instant::now() < deadline + Duration::from_secs(5), "it goes on without a filter");
    }
    assert!(watching.wait().unwrap().success());
}

#[test]
fn a_killed_controller_takes_its_filter_with_it() {
    let Some(hosts) = Hosts::new() else { return };
    let mut attached = hosts.attach(&["--enforce"]);
    assert_eq!(hosts.status()["enforces"], true);
    attached.0.kill().unwrap();
    attached.0.wait().unwrap();
    until("the filter to go", || hosts.run(&["filter", "status", "lf0"]).status.code() == Some(1));
}

/// Who tries enforcement for a while over a filter that stays would leave the host with it.
#[test]
fn a_filter_that_stays_is_replaced_by_attach_pin_only() {
    let Some(hosts) = Hosts::new() else { return };
    if !has_bpf_fs() {
        return longhaul_testing::no_judge!("no BPF file system");
    }
    assert!(hosts.run(&["filter", "attach", "lf0", "--pin"]).status.success());
    let refused = hosts.run(&["filter", "attach", "lf0", "--enforce", "-t", "1s"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("give --pin, or detach it first"), "{refused:?}");
    assert_eq!(hosts.status()["enforces"], false);
    assert!(hosts.run(&["filter", "attach", "lf0", "--pin", "--enforce"]).status.success());
    assert_eq!(hosts.status()["enforces"], true);
    assert!(hosts.run(&["filter", "detach", "lf0"]).status.success());
}

#[test]
fn a_pinned_one_returns_to_counting_by_itself_and_leaves_no_trace() {
    let Some(hosts) = Hosts::new() else { return };
    if !has_bpf_fs() {
        return longhaul_testing::no_judge!("no BPF file system");
    }
    let output = hosts.run(&["filter", "attach", "lf0", "--pin", "--for", "1500ms"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let status = hosts.status();
    assert!(status["enforces"] == true && status["kept"] == true && status["reverts_in_ns"].is_u64(), "{status:#}");
    until("it to return to counting", || hosts.status()["enforces"] == false);
    let late = hosts.run(&["filter", "confirm", "lf0"]);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    // Another takes its place, and is confirmed in time. An address that is still looked for on the link would change routes later.
    until("addresses to be settled", || {
        let tentative = || Command::new("ip").args(["-6", "address", "show", "tentative"]).output().unwrap();
        hosts.ours.enter(tentative).unwrap().stdout.is_empty()
    });
    assert!(hosts.run(&["filter", "attach", "lf0", "--pin", "--for", "30s"]).status.success());
    assert!(hosts.run(&["filter", "confirm", "lf0"]).status.success());
    let status = hosts.status();
    assert!(status["enforces"] == true && status["reverts_in_ns"].is_null(), "{status:#}");
    // Nobody follows: after a change it passes what it cannot know.
    assert_eq!(status["addresses_current"], true);
    hosts.ip("address add 10.96.7.7/16 dev lf0");
    assert_eq!(hosts.status()["addresses_current"], false);
    assert!(hosts.run(&["filter", "detach", "lf0"]).status.success());
    assert_eq!(hosts.run(&["filter", "status", "lf0"]).status.code(), Some(1));
}

/// Each is refused in a line that says why, and done with --force. What the kernel has no kind of link for is skipped, and says so.
#[test]
fn what_would_break_is_refused() {
    for (setup, code) in [
        ("link add lbr type bridge; link set lf0 master lbr", "part_of"),
        (
            "link add lbo type bond mode active-backup; link set lf0 down; link set lf0 master lbo; link set lf0 up",
            "part_of",
        ),
        ("link add lte type team; link set lf0 down; link set lf0 master lte; link set lf0 up", "part_of"),
        ("link add lvr type vrf table 10; link set lf0 master lvr", "part_of"),
        ("link add lmv link lf0 type macvlan mode bridge", "shared"),
        ("link add liv link lf0 type ipvlan mode l2", "shared"),
        ("link set lf0 promisc on", "promiscuous"),
        ("net/ipv4/conf/lf0/forwarding", "forwarding"),
        ("net/ipv6/conf/lf0/forwarding", "forwarding"),
        // Linux 6.17.
        ("net/ipv6/conf/lf0/force_forwarding", "forwarding"),
        // The kernel goes by the first.
        ("net/ipv6/conf/all/forwarding net/ipv6/conf/lf0/forwarding=0", "forwarding"),
    ] {
        let Some(hosts) = Hosts::new() else { return };
        if setup.starts_with("net/") {
            for set in setup.split(' ') {
                let (key, value) = set.split_once('=').unwrap_or((set, "1"));
                hosts.ours.enter(|| longhaul_kernel::sysctl::write(key, value)).unwrap().unwrap();
            }
        } else if let Err(why) = hosts.try_ip(setup) {
            longhaul_testing::skipped!("{why}");
            continue;
        }
        println!("tried: {setup}");
        let output = hosts.run(&["filter", "attach", "lf0", "--enforce", "--json", "-t", "10ms"]);
        assert_eq!(output.status.code(), Some(1), "{setup}: {output:?}");
        let error = object(&output.stdout)["error"].clone();
        assert!(error["code"] == code && error["remedy"].as_str().is_some_and(|text| !text.is_empty()), "{error:#}");
        assert_eq!(hosts.run(&["filter", "status", "lf0"]).status.code(), Some(1), "nothing was attached");
        let counting = hosts.run(&["filter", "attach", "lf0", "--json", "-t", "10ms"]);
        assert!(counting.status.success(), "{setup}: {counting:?}");
        let caveats = object(&counting.stdout)["caveats"].clone();
        assert_eq!(caveats[0]["code"], code, "{caveats:#}");
        let forced = hosts.run(&["filter", "attach", "lf0", "--enforce", "--force", "--json", "-t", "10ms"]);
        assert!(forced.status.success(), "{setup}: {forced:?}");
        let judges = object(&forced.stdout)["result"]["judges"].clone();
        let judged = [&judges["ipv4_addresses"], &judges["ipv6_addresses"]];
        assert_eq!(judged, [!setup.starts_with("net/ipv4"), !setup.starts_with("net/ipv6")], "{setup}: {judges:#}");
    }
}

/// A bridge accepts frames for its ports. A tunnel has no Ethernet header: what stands in its place are IP addresses.
#[test]
fn interfaces_that_are_no_ends_of_ethernet_are_refused() {
    for (setup, name, code) in
        [("link add lbr type bridge", "lbr", "bridge"), ("tuntap add ltu mode tun", "ltu", "no_ethernet")]
    {
        let Some(hosts) = Hosts::new() else { return };
        if let Err(why) = hosts.try_ip(setup) {
            longhaul_testing::skipped!("{why}");
            continue;
        }
        let output = hosts.run(&["filter", "attach", name, "--enforce", "--json", "-t", "10ms"]);
        assert_eq!(object(&output.stdout)["error"]["code"], code, "{output:?}");
    }
}

/// The interface has another name when forwarding is turned on.
#[test]
fn a_renamed_interface_is_followed() {
    let Some(hosts) = Hosts::new() else { return };
    let mut following = hosts.ours.enter(|| Following::begin("lf0")).unwrap().unwrap();
    let options = FilterOptions { enforce: true, ..FilterOptions::default() };
    let index = hosts.ours.enter(|| Netlink::open().unwrap().index_of("lf0").unwrap()).unwrap();
    let filter = hosts.ours.enter(|| Filter::attach(index, &options)).unwrap().unwrap();
    let tell = |following: &mut Following| hosts.ours.enter(|| following.tell(&filter)).unwrap().unwrap();
    assert!(tell(&mut following) && !tell(&mut following));
    hosts.try_ip("link set lf0 name lf9").unwrap();
    tell(&mut following);
    hosts.ours.enter(|| longhaul_kernel::sysctl::write("net/ipv4/conf/lf9/forwarding", "1")).unwrap().unwrap();
    assert!(tell(&mut following), "forwarding changes routes");
    let (judgement, _) = filter.followed().unwrap();
    assert!(!judgement.ipv4 && judgement.ipv6, "{judgement:?}");
}

/// What lies on top of an interface, here in a namespace of its own as a container has it, keeps its frames; and tagged ones pass as long
/// as something does, as that may be a VLAN.
#[test]
fn what_lies_on_top_keeps_its_frames() {
    let Some(hosts) = Hosts::new() else { return };
    if let Err(why) = hosts.try_ip("link add lmv link lf0 type macvlan mode bridge") {
        return longhaul_testing::skipped!("{why}");
    }
    let container = NetNamespace::create().unwrap();
    let theirs = format!("/proc/{}/fd/{}", std::process::id(), container.as_fd().as_raw_fd());
    hosts.try_ip(&format!("link set lmv netns {theirs}")).unwrap();
    let mut inside = container.enter(Netlink::open).unwrap().unwrap();
    let upper = inside.index_of("lmv").unwrap();
    inside.set_up(upper, true).unwrap();
    inside.add_address(&Address { ifindex: upper, ip: [10, 96, 3, 3].into(), prefix_bits: 16 }).unwrap();
    let socket =
        hosts.theirs.enter(|| PacketSocket::open(hosts.their_index, &PacketOptions::default())).unwrap().unwrap();
    let tagged = [&OUR_MAC[..], &THEIR_MAC, &[0x81, 0, 0, 100, 8, 0], &[0x45; 46]].concat();
    let foreign = [&[2, 9, 9, 9, 9, 9][..], &THEIR_MAC, &[8, 0], &[0x45; 46]].concat();
    let count = |table: &str, reason: &str| {
        let status = hosts.status();
        let rows = status[table].as_array().unwrap().clone();
        let row = rows.iter().find(|row| row["reason"] == reason);
        row.map_or(0, |row| row["frames"]["packets"].as_u64().unwrap())
    };
    // The container's link is not seen from here; that a veth cannot tell its address from others is.
    let refused = hosts.run(&["filter", "attach", "lf0", "--enforce", "--json"]);
    assert_eq!(object(&refused.stdout)["error"]["code"], "promiscuous");
    // The kernel hands all frames over to it, and so they pass unless forced.
    for (force, accepted, rejected) in [(&[][..], "handed_over", 0), (&["--enforce", "--force"], "our_unicast", 3)] {
        let _filter = hosts.attach(force);
        let mut ping = Command::new("ping");
        ping.args(["-c", "3", "-i", "0.05", "-W", "2", "10.96.3.3"]);
        let output = hosts.theirs.enter(|| ping.output()).unwrap().unwrap();
        assert!(output.status.success(), "{force:?}: {output:?} {:#}", hosts.status());
        let before = count("accepted", accepted);
        for _ in 0..3 {
            socket.send(&[0; 10], &[&tagged]).unwrap();
            socket.send(&[0; 10], &[&foreign]).unwrap();
        }
        until("tagged frames to be accepted", || count("accepted", accepted) >= before + 3);
        until("frames for others to be counted", || count("rejected", "foreign_unicast") == rejected);
        assert_eq!(count("rejected", "vlan_not_ours"), 0);
        assert!(force.is_empty() || count("accepted", "secondary_unicast") >= 3, "{:#}", hosts.status());
    }
    let mut delete = Command::new("ip");
    assert!(container.enter(|| delete.args(["link", "delete", "lmv"]).status()).unwrap().unwrap().success());
    let _filter = hosts.attach(&["--enforce"]);
    (0..3).for_each(|_| socket.send(&[0; 10], &[&tagged]).unwrap());
    until("tagged frames to be rejected", || count("rejected", "vlan_not_ours") == 3);
}

#[test]
fn what_is_rejected_can_be_seen_and_scraped() {
    let Some(hosts) = Hosts::new() else { return };
    let file =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rejected-{}.pcapng", std::process::id()));
    let metrics = file.with_extension("prom");
    let metrics_of = metrics.to_str().unwrap();
    let _filter = hosts.attach(&["--sample", file.to_str().unwrap(), "-t", "3s", "--prometheus", metrics_of]);
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let flood = scope.spawn(|| hosts.flood(&stop));
        std::thread::sleep(Duration::from_millis(20));
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap().0
    });
    until("all to be counted", || hosts.status()["total"]["rejected"]["packets"].as_u64() >= Some(sent));
    let scraped = hosts.run(&["filter", "status", "lf0", "--prometheus"]);
    let text = String::from_utf8(scraped.stdout).unwrap();
    let row = "longhaul_filter_reason_packets_total{interface=\"lf0\",reason=\"foreign_unicast\",verdict=\"rejected\"}";
    assert!(text.lines().any(|line| line == format!("{row} {sent}")), "{sent}: {text}");
    is_exposition(&text);
    // The process that stays writes the same into a file each second, and removes it at its end.
    let written = || std::fs::read_to_string(&metrics).unwrap_or_default();
    until("the file to say so", || written().lines().any(|line| line == format!("{row} {sent}")));
    let time = written()
        .lines()
        .find_map(|line| line.strip_prefix("longhaul_filter_timestamp_seconds{interface=\"lf0\"} ")?.parse().ok());
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(time.is_some_and(|time: u64| time.abs_diff(now) < 10), "{time:?} {now}");
    is_exposition(&written());
    until("the process to end", || hosts.run(&["filter", "status", "lf0"]).status.code() == Some(1));
    let read = Command::new("tshark")
        .args(["-r", file.to_str().unwrap(), "-T", "fields", "-e", "eth.dst", "-e", "frame.comment"])
        .output();
    match read {
        Err(error) => longhaul_testing::no_judge!("tshark: {error}"),
        Ok(read) => {
            let text = String::from_utf8(read.stdout).unwrap();
            let foreign = text.lines().filter(|line| *line == "02:09:09:09:09:09\tforeign_unicast").count();
            assert!(foreign > 0 && foreign as u64 <= sent, "{foreign} of {sent}: {text}");
        }
    }
    std::fs::remove_file(file).unwrap();
    assert!(!metrics.exists(), "old figures are not left");
}

/// A filter that stays goes on without the process that read its samples.
#[test]
fn samples_end_with_who_reads_them() {
    let Some(hosts) = Hosts::new() else { return };
    let filter = hosts.ours.enter(|| Filter::attach(hosts.index, &FilterOptions::default())).unwrap().unwrap();
    let file =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("followed-{}.pcapng", std::process::id()));
    let followed = hosts.run(&["filter", "follow", "lf0", "--sample", file.to_str().unwrap(), "-t", "200ms"]);
    assert!(followed.status.success(), "{followed:?}");
    std::fs::remove_file(file).unwrap();
    let options = PacketOptions { promiscuous: false, ..PacketOptions::default() };
    let socket = hosts.theirs.enter(|| PacketSocket::open(hosts.their_index, &options)).unwrap().unwrap();
    let foreign = [&[2, 9, 9, 9, 9, 9][..], &THEIR_MAC, &[8, 0], &[0x45; 46]].concat();
    (0..3).for_each(|_| socket.send(&[0; 10], &[&foreign]).unwrap());
    until("all to be counted", || filter.counters().unwrap().total().rejected.packets >= 3);
    let mut sampled = 0;
    filter.samples().unwrap().drain(|_| sampled += 1);
    assert_eq!(sampled, 0);
}

/// Prometheus, "Exposition formats", text format 0.0.4: a family is its HELP, its TYPE, then its samples, once; no sample twice.
fn is_exposition(text: &str) {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let (mut families, mut samples) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    let (mut described, mut family) = ("", "");
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            described = help.split_once(' ').unwrap().0;
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(is_name(name) && name == described && families.insert(name), "{line}");
            assert!(["counter", "gauge"].contains(&kind) && (kind == "counter") == name.ends_with("_total"), "{line}");
            family = name;
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        value.parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        assert!(samples.insert(series), "twice: {line}");
        let (name, labels) = series.split_once('{').unwrap();
        assert!(name == family, "{line} behind the type of {family}");
        for label in labels.strip_suffix('}').unwrap().split(',') {
            let (name, value) = label.split_once('=').unwrap();
            let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            assert!(is_name(name) && value.is_some_and(|value| !value.contains(['"', '\\'])), "{line}");
        }
    }
    assert!(families.len() >= 9 && samples.len() > 300, "{} families, {} samples", families.len(), samples.len());
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let Some(hosts) = Hosts::new() else { return };
    for (arguments, exit, code) in [
        (&["status", "lf0"][..], 1, "no_filter"),
        (&["detach", "lf0"], 1, "no_filter"),
        (&["status", "none0"], 1, "no_interface"),
        (&["attach", "lf0", "--allow", "10.0.0.0/40"], 2, "usage"),
        (&["attach", "lf0", "--pin", "-t", "1s"], 2, "usage"),
    ] {
        let output = hosts.run(&[&["filter"], arguments, &["--json"]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), text.lines().count()), (Some(exit), 1), "{text}");
        assert_eq!(object(&output.stdout)["error"]["code"], code, "{text}");
    }
}
