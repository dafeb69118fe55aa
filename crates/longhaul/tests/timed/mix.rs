//! `longhaul mix` between two namespaces.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Output, Stdio};

use crate::common::{alone, longhaul, object, side_by_side};
use longhaul_bpf::filter::{Filter, FilterOptions, Reason};
use longhaul_filter::Following;
use longhaul_kernel::capability;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::ethtool;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_kernel::schedule::allowed_cpus;
use longhaul_mix::StreamReceiver;
use longhaul_units::Nanos;
use longhaul_wire::probe::Cookie;
use serde_json::Value;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);
const TARGET: &str = "10.97.0.2:5210";

/// Two hosts and a cable, `lan` at both.
struct Cable {
    client: NetNamespace,
    server: NetNamespace,
}

impl Cable {
    /// The far end takes XDP frames where `napi` is. `None` without root, which is printed.
    fn new(napi: bool) -> Option<Self> {
        if !capability::is_root_in_namespace() {
            longhaul_testing::no_judge!("it takes root");
            return None;
        }
        let (client, server) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
        let (client_mac, server_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let end = |host, mac| VethEnd { name: "lan", namespace: Some(host), mtu_bytes: None, mac: Some(mac) };
        Netlink::open().unwrap().create_veth(&end(&client, client_mac), &end(&server, server_mac)).unwrap();
        let set_up = |host: &NetNamespace, own: Ipv4Addr, other: Ipv4Addr, mac| {
            let mut netlink = host.enter(Netlink::open).unwrap().unwrap();
            let index = netlink.index_of("lan").unwrap();
            netlink.set_up(index, true).unwrap();
            netlink.add_address(&Address { ifindex: index, ip: own.into(), prefix_bits: 24 }).unwrap();
            netlink.add_permanent_neighbour(index, other.into(), mac).unwrap();
            (netlink, index)
        };
        let (mut links, client_index) = set_up(&client, CLIENT, SERVER, server_mac);
        set_up(&server, SERVER, CLIENT, client_mac);
        assert!(links.wait_until_ready(client_index, monotonic() + Nanos::from_secs(5)).unwrap());
        if napi {
            server.enter(|| ethtool::set_features("lan", &[("rx-gro", true)])).unwrap().unwrap();
        }
        Some(Self { client, server })
    }

    /// `longhaul mix lan` at the client.
    fn mix(&self, arguments: &[&str]) -> Output {
        let run = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
            command.args(["mix", "lan", "--json"]).args(arguments).output().unwrap()
        };
        self.client.enter(run).unwrap()
    }

    fn mixed(&self, arguments: &[&str]) -> Value {
        let output = self.mix(&[&["--target", TARGET][..], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)
    }

    /// Counts what has `cookie` at the server.
    fn counting(&self, cookie: Cookie) -> StreamReceiver {
        let at: SocketAddr = TARGET.parse().unwrap();
        self.server.enter(|| StreamReceiver::start(at, cookie, 64 << 20)).unwrap().unwrap()
    }
}

fn cookie(whole: &Value) -> Cookie {
    Cookie(whole["parameters"]["target"]["cookie"].as_u64().unwrap() as u32)
}

fn class_counts(whole: &Value) -> Vec<u64> {
    let classes = whole["result"]["classes"].as_array().unwrap();
    classes.iter().map(|class| class["sent_packets"].as_u64().unwrap()).collect()
}

/// Both engines send the same, as much as asked, by the weights; the stream of it arrives whole.
#[test]
fn a_mix_is_what_was_asked_and_its_stream_arrives_whole() {
    let _alone = alone();
    let Some(cable) = Cable::new(true) else { return };
    let cookie = cookie(&cable.mixed(&["-k", "1", "--seed", "7"]));
    let mut by_engine = Vec::new();
    for (engine, named) in [("xdp", "live_frames"), ("packet", "packet_socket")] {
        let receiver = cable.counting(cookie);
        let whole = cable.mixed(&["-k", "20000", "--pps", "20000", "--seed", "7", "--engine", engine]);
        let result = &whole["result"];
        assert_eq!((&result["engine"], &result["sent_packets"]), (&named.into(), &20_000.into()), "{whole:#}");
        assert_eq!(result["refused_packets"], 0);
        let counts = class_counts(&whole);
        assert_eq!(counts.iter().sum::<u64>(), 20_000);
        let classes = result["classes"].as_array().unwrap();
        let expected: Vec<f64> = classes.iter().map(|class| class["share"].as_f64().unwrap() * 20_000.0).collect();
        // Pearson's X² with 18 degrees of freedom: beyond 42.31 once in a thousand times.
        let deviation: f64 = counts.iter().zip(&expected).map(|(count, e)| (*count as f64 - e).powi(2) / e).sum();
        assert!(counts.len() == 19 && deviation < 42.31, "{counts:?} {deviation}");

        let numbered = result["stream"]["numbered_packets"].as_u64().unwrap();
        let received = receiver.finish(numbered).unwrap();
        let counted = (received.counts.received_packets, received.counts.missing_packets);
        assert_eq!(counted, (numbered, 0), "{engine}: {:?}", received.counts);
        assert_eq!(received.counts.duplicate_packets, 0);
        assert_eq!(counts[0], numbered, "the stream is the mix's first class");
        by_engine.push(counts);
    }
    assert_eq!(by_engine[0], by_engine[1], "a frame is a function of seed and number");
    let other = cable.mixed(&["-k", "20000", "--pps", "0", "--seed", "8"]);
    assert_ne!(class_counts(&other), by_engine[0]);
}

/// From two CPUs go the frames that go from one, each once, and the stream has one sequence.
#[test]
fn threads_share_the_frames_of_a_mix() {
    let _alone = alone();
    let Some(cable) = Cable::new(true) else { return };
    let allowed = allowed_cpus().unwrap();
    let [first, second, ..] = allowed[..] else {
        longhaul_testing::skipped!("it takes two CPUs");
        return;
    };
    // A ring for each.
    let mut command = Command::new("ethtool");
    command.args(["--set-channels", "lan", "rx", "2"]);
    assert!(cable.server.enter(|| command.status()).unwrap().unwrap().success());
    let amount = ["-k", "20001", "--pps", "20000", "--seed", "7"];
    let single = cable.mixed(&amount);
    let cookie = cookie(&single);
    for engine in ["xdp", "packet"] {
        let receiver = cable.counting(cookie);
        let cpus = format!("{second},{first},{first}");
        let whole = cable.mixed(&[&amount[..], &["--engine", engine, "--cpu", &cpus]].concat());
        let result = &whole["result"];
        assert_eq!((&result["sent_packets"], &result["refused_packets"]), (&20_001.into(), &0.into()), "{whole:#}");
        assert_eq!(class_counts(&whole), class_counts(&single), "{engine}");
        let numbered = result["stream"]["numbered_packets"].as_u64().unwrap();
        assert_eq!(result["stream"], single["result"]["stream"]);
        let counts = receiver.finish(numbered).unwrap().counts;
        let counted = (counts.received_packets, counts.missing_packets, counts.duplicate_packets);
        assert_eq!(counted, (numbered, 0, 0), "{engine}: {counts:?}");
        let ns = result["duration_ns"].as_u64().unwrap();
        assert!((950_000_000..1_100_000_000).contains(&ns), "two threads at half the rate each: {ns}");
    }
    let refused = cable.mix(&["--target", TARGET, "-k", "1", "--cpu", "1000"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("CPUs [1000] cannot be used; allowed here: ["), "{text}");
}

/// The stream by IPv6, by both engines; and what asks for the target is for it: a filter there says so, and it answers.
#[test]
fn a_target_by_ipv6_and_questions_for_the_target() {
    let _alone = alone();
    let Some(cable) = Cable::new(true) else { return };
    let (own, target): (Ipv6Addr, Ipv6Addr) = ("fd97::1".parse().unwrap(), "fd97::2".parse().unwrap());
    for (host, ip) in [(&cable.client, own), (&cable.server, target)] {
        let ip = format!("{ip}/64");
        let mut command = Command::new("ip");
        command.args(["address", "add", &ip, "dev", "lan", "nodad"]);
        assert!(host.enter(|| command.status()).unwrap().unwrap().success());
    }
    let index = cable.server.enter(|| Netlink::open().unwrap().index_of("lan").unwrap()).unwrap();
    let filter =
        cable.server.enter(|| Filter::attach(index, &FilterOptions { enforce: true, ..FilterOptions::default() }));
    let filter = filter.unwrap().unwrap();
    cable.server.enter(|| Following::begin("lan").unwrap().tell(&filter).unwrap()).unwrap();
    let mac = ["--target-mac", "02:00:00:00:00:02"];
    let mix = |name: &str, kinds: &[&str]| {
        let file = std::env::temp_dir().join(format!("longhaul-mix-{name}-{}.toml", std::process::id()));
        let classes: String = kinds.iter().map(|kind| format!("[[class]]\nkind = \"{kind}\"\nweight = 1\n")).collect();
        std::fs::write(&file, format!("name = \"{name}\"\nsize = 100\n{classes}")).unwrap();
        file
    };
    let six = mix("six", &["stream", "solicitation-for-target", "ipv6"]);
    for engine in ["xdp", "packet"] {
        let arguments =
            ["--target", "[fd97::2]:5210", "--mix", six.to_str().unwrap(), "--seed", "7", "--engine", engine];
        let run = |count: &[&str]| {
            let output = cable.mix(&[&arguments[..], &mac, count].concat());
            assert!(output.status.success(), "{output:?}");
            object(&output.stdout)
        };
        let cookie = cookie(&run(&["-k", "1"]));
        let at = SocketAddr::from((target, 5210));
        let receiver = cable.server.enter(|| StreamReceiver::start(at, cookie, 64 << 20)).unwrap().unwrap();
        let before = filter.counters().unwrap();
        let whole = run(&["-k", "9000", "--pps", "30000"]);
        assert_eq!(whole["parameters"]["target"]["source"], "fd97::1");
        let counts = class_counts(&whole);
        let numbered = whole["result"]["stream"]["numbered_packets"].as_u64().unwrap();
        let received = receiver.finish(numbered).unwrap();
        assert_eq!((received.counts.received_packets, received.counts.missing_packets), (numbered, 0), "{engine}");
        let after = filter.counters().unwrap();
        let moved = |reason| after.reason(reason).packets - before.reason(reason).packets;
        assert!(moved(Reason::NeighbourDiscovery) >= counts[1], "{engine}: {counts:?}");
        assert_eq!(moved(Reason::ForeignUnicast), counts[2], "{engine}");
    }
    let four = mix("four", &["arp-for-target", "arp"]);
    let before = filter.counters().unwrap();
    let whole = cable.mixed(&["--mix", four.to_str().unwrap(), "-k", "500", "--pps", "5000"]);
    let (counts, after) = (class_counts(&whole), filter.counters().unwrap());
    let moved = |reason| after.reason(reason).packets - before.reason(reason).packets;
    assert_eq!([moved(Reason::ArpForUs), moved(Reason::ArpForOthers)], [counts[0], counts[1]]);
    let refused = cable.mix(&[&["--target", "fd97::2", "--mix", four.to_str().unwrap(), "-k", "1"][..], &mac].concat());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && text.contains("needs an IPv4 target"), "{text}");
    [six, four].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

#[test]
fn time_and_rate_are_held() {
    let _alone = alone();
    let Some(cable) = Cable::new(true) else { return };
    let whole = cable.mixed(&["-t", "1s", "--pps", "2000", "--size", "300"]);
    let (sent, ns) =
        (whole["result"]["sent_packets"].as_u64().unwrap(), whole["result"]["duration_ns"].as_u64().unwrap());
    assert!((1_900..=2_002).contains(&sent) && (950_000_000..1_050_000_000).contains(&ns), "{whole:#}");
    let stream: u64 = whole["result"]["sent_bytes"].as_u64().unwrap();
    assert_eq!(stream, 300 * sent, "every frame has the size");
}

#[test]
fn ctrl_c_prints_what_was_sent() {
    let _alone = alone();
    let Some(cable) = Cable::new(true) else { return };
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["mix", "lan", "--json", "--target", TARGET, "--pps", "0", "--interval", "100ms"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut running = cable.client.enter(start).unwrap();
    // It is under way once it says how far it is.
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("frames/s ")));
    Process::open(running.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    let rest = std::thread::spawn(move || lines.count());
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let whole = object(&output.stdout);
    assert_eq!(whole["result"]["interrupted"], true);
    assert!(whole["result"]["sent_packets"].as_u64() > Some(1_000), "{whole:#}");
    rest.join().unwrap();
}

/// A far end without NAPI takes no XDP frames: a packet socket sends them, and the result says so.
#[test]
fn without_live_frames_a_packet_socket_sends() {
    let _shared = side_by_side();
    let Some(cable) = Cable::new(false) else { return };
    let whole = cable.mixed(&["-k", "1000", "--pps", "0"]);
    assert_eq!(
        (&whole["result"]["engine"], &whole["result"]["sent_packets"]),
        (&"packet_socket".into(), &1_000.into())
    );
    let caveat = &whole["caveats"][0];
    assert_eq!(caveat["code"], "packet_socket_used", "{whole:#}");
    let far = cable.server.enter(|| Netlink::open().unwrap().index_of("lan").unwrap()).unwrap();
    let remedy = format!("`ethtool -K IF gro on` in the network namespace of its far end, interface {far} there");
    assert_eq!(caveat["remedy"], remedy);
    let output = cable.mix(&["--target", TARGET, "-k", "1", "--engine", "xdp"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("ethtool -K IF gro on"), "{text}");
}

#[test]
fn the_default_route_is_left_alone() {
    let _shared = side_by_side();
    let Some(cable) = Cable::new(true) else { return };
    let mut routed = Command::new("ip");
    routed.args(["route", "add", "default", "via", &SERVER.to_string()]);
    assert!(cable.client.enter(|| routed.status()).unwrap().unwrap().success());
    let output = cable.mix(&["--target", TARGET, "-k", "1"]);
    assert_eq!(object(&output.stdout)["error"]["code"], "default_route");
    cable.mixed(&["-k", "1", "--on-default-route"]);
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let _shared = side_by_side();
    let folder = std::env::temp_dir();
    let file = folder.join(format!("longhaul-mix-{}.toml", std::process::id()));
    std::fs::write(&file, "name = \"x\"\nsize = 64\n[[class]]\nkind = \"arp\"\nwait = 1\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, exit, said) in [
        (&["lo", "--mix", file][..], 2, ".toml:5:1: unknown field `wait`"),
        (&["lo", "--mix", "nimo"], 2, "give a file, or one of nima"),
        (&["lo"], 2, "mix nima has frames for a target: name it with --target IP[:PORT]"),
        (&["lo", "--target", "nobody"], 2, "--target nobody: give the IP address of a host"),
        (
            &["lo", "--target", "10.0.0.2", "--target-mac", "01:00:5e:00:00:01"],
            2,
            "--target-mac 01:00:5e:00:00:01: give a unicast",
        ),
        (&["lo", "--target", "10.0.0.2", "--size", "63"], 2, "63 is not in 64..=1518"),
        (&["there-is-none", "--target", "10.0.0.2"], 1, "no such interface"),
    ] {
        let output = longhaul(&[&["mix"][..], arguments].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {text}");
        assert!(text.contains(said) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
    std::fs::remove_file(file).unwrap();
}
