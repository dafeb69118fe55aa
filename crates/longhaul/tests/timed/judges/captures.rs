//! `analyze` and `compare` judged: the kernel's TCP and UDP through the forwarder, captured at both ends and clipped. Each count is that
//! of the forwarder's log and of the kernel's counters, or is said to be unknown.
//!
//! `LONGHAUL_JUDGE_SECONDS` goes on with other seeds for so long; without it each case runs once. `LONGHAUL_JUDGE_SEED` is the first seed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::captures::{Folder, json, missing};
use crate::common::forwarder::*;
use crate::common::side_by_side;
use longhaul_captures::pcap::Writer;
use longhaul_captures::{CaptureReader, LinkType, Record};
use longhaul_testing::waiting::until;
use serde_json::Value;

/// In each direction. A round trip is 20 ms: longer than any copy is late.
const ONE_WAY: Duration = Duration::from_millis(10);
const PORT: u16 = 9_000;

/// tcpdump on a host.
struct Capture {
    child: Child,
    file: String,
}

impl Capture {
    fn start(forwarder: &Forwarder, host: Host, folder: &Folder) -> Self {
        let (file, said) = (folder.file(&format!("{host:?}.pcap")), folder.file(&format!("{host:?}.said")));
        let mut command = Command::new("tcpdump");
        command.args(["-i", "eth0", "--time-stamp-precision=nano", "-s", "256", "-B", "32768", "-Z", "root"]);
        command.args(["--immediate-mode", "-U", "-w", &file, "tcp or udp or ip6 proto 6 or ip6 proto 17"]);
        let child = forwarder.spawn(host, command.stderr(File::create(&said).unwrap()));
        until("tcpdump", || fs::read_to_string(&said).unwrap().contains("listening on"));
        Self { child, file }
    }

    /// Ends it once it has as many packets as `passed`.
    fn finish(mut self, passed: usize) -> String {
        until("the capture to be written", || frames(&self.file) >= passed);
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap();
        assert_eq!(frames(&self.file), passed, "captured all, and nothing twice");
        self.file
    }
}

fn frames(file: &str) -> usize {
    let Ok(mut reader) = File::open(file).map_err(drop).and_then(|file| CaptureReader::new(file).map_err(drop)) else {
        return 0;
    };
    let mut count = 0;
    while let Ok(Some(_)) = reader.next() {
        count += 1;
    }
    count
}

/// `from` with `snap` bytes of each packet.
fn clipped(from: &str, snap: usize) -> String {
    let to = format!("{}-{snap}.pcap", from.trim_end_matches(".pcap"));
    let mut reader = CaptureReader::new(File::open(from).unwrap()).unwrap();
    let mut writer = Writer::new(BufWriter::new(File::create(&to).unwrap()), LinkType::Ethernet, snap as u32).unwrap();
    while let Some(record) = reader.next().unwrap() {
        let snippet = &record.snippet[..record.snippet.len().min(snap)];
        writer.write(&Record { snippet, ..record }).unwrap();
    }
    writer.into_inner().flush().unwrap();
    to
}

/// A counter of the kernel in a host.
fn counter(forwarder: &Forwarder, host: Host, name: &str) -> u64 {
    let text = forwarder.shell(host, "cat /proc/net/snmp /proc/net/netstat");
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.chunks(2).find_map(|pair| {
        let at = pair[0].split(' ').position(|column| column == name)?;
        pair[1].split(' ').nth(at)?.parse().ok()
    });
    found.unwrap_or_else(|| panic!("no {name}"))
}

/// Frames of TCP or UDP that arrived from a host, and that departed to it, each with its place among the arrivals.
fn passed(log: &Log, direction: Direction) -> (Vec<&Arrival>, Vec<(usize, &Packet)>) {
    let is_ours = |packet: &Packet| matches!(packet.protocol, Some(6 | 17));
    let arrived = log.arrivals.iter().filter(|arrival| arrival.direction == direction && is_ours(&arrival.packet));
    let departed = log.departed(direction).filter(|(_, packet)| is_ours(packet));
    (arrived.collect(), departed.map(|(departure, packet)| (departure.arrival, packet)).collect())
}

/// What the log says of the data that a sender sent, and the receiver got.
#[derive(Debug, Default, PartialEq, Eq)]
struct TcpTruth {
    sent_again: u64,
    got_again: u64,
    reordered: u64,
    copied: u64,
}

impl TcpTruth {
    fn of(log: &Log) -> Self {
        let mut truth = Self::default();
        let end = |packet: &Packet| {
            let tcp = packet.tcp.unwrap();
            tcp.sequence
                .wrapping_add(tcp.payload_bytes as u32 + u32::from(tcp.flags & 2 != 0) + u32::from(tcp.flags & 1 != 0))
        };
        let numbers = |packet: &Packet| packet.tcp.is_some_and(|tcp| end(packet) != tcp.sequence);
        let is_below = |packet: &Packet, highest: u32| (packet.tcp.unwrap().sequence.wrapping_sub(highest) as i32) < 0;
        let mut again = HashSet::new();
        // Of each flow its first sequence number, and what was sent once: the start and end of each segment, from that number. The order
        // does not tell: two CPUs of the sender's host may swap segments on their way to the forwarder.
        let mut sent: HashMap<(u16, u16), (u32, BTreeMap<u32, u32>)> = HashMap::new();
        for (place, arrival) in (0..).zip(&log.arrivals) {
            let packet = &arrival.packet;
            if arrival.direction != Direction::Forward || !numbers(packet) {
                continue;
            }
            let (first, sent) =
                sent.entry(packet.ports.unwrap()).or_insert_with(|| (packet.tcp.unwrap().sequence, BTreeMap::new()));
            let [from, to] = [packet.tcp.unwrap().sequence, end(packet)].map(|number| number.wrapping_sub(*first));
            if sent.range(..to).next_back().is_some_and(|(_, end)| *end > from) {
                again.insert(place);
                truth.sent_again += 1;
            } else {
                sent.insert(from, to);
            }
        }
        // What left the forwarder: its place in the order of sending, and the end of each.
        let mut left: HashMap<usize, ((u16, u16), u32)> = HashMap::new();
        for (place, packet) in passed(log, Direction::Forward).1.into_iter().filter(|(_, packet)| numbers(packet)) {
            let ports = packet.ports.unwrap();
            let is_beyond = |(_, (of, end)): &(&usize, &((u16, u16), u32))| *of == ports && is_below(packet, *end);
            let mut beyond = left.iter().filter(is_beyond).peekable();
            if left.contains_key(&place) {
                truth.copied += 1;
            } else if beyond.peek().is_some() {
                // Sent once more before anything beyond it was sent that came: the receiver sees what was reordered. RACK makes a sender do so, for an
                // acknowledgment of an earlier segment that it sent later.
                let was_expected = beyond.all(|(other, _)| *other > place);
                let is_again = again.contains(&place) && !was_expected;
                *if is_again { &mut truth.got_again } else { &mut truth.reordered } += 1;
            }
            left.insert(place, (ports, end(packet)));
        }
        truth
    }
}

/// A transfer of `bytes` from client to server; then both captures and the log.
fn transfer(
    plan: Plan,
    ipv6: bool,
    bytes: usize,
    folder: &Folder,
) -> Option<([String; 2], Log, BTreeMap<&'static str, u64>)> {
    let forwarder = Forwarder::up(plan)?;
    let captures = [Host::Client, Host::Server].map(|host| Capture::start(&forwarder, host, folder));
    let to = if ipv6 { Host::Server.ipv6() } else { Host::Server.ipv4() };
    let listener =
        forwarder.namespace(Host::Server).enter(move || TcpListener::bind(SocketAddr::new(to, PORT))).unwrap().unwrap();
    let reading = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let mut stream = forwarder
        .namespace(Host::Client)
        .enter(move || TcpStream::connect(SocketAddr::new(to, PORT)))
        .unwrap()
        .unwrap();
    stream.write_all(&vec![7; bytes]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    // Until the other end closes.
    stream.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(reading.join().unwrap(), bytes as u64);
    let names = ["RetransSegs", "TCPTimeouts", "TCPLossProbes"];
    std::thread::sleep(3 * ONE_WAY + Duration::from_millis(5));
    let counters = names.map(|name| (name, counter(&forwarder, Host::Client, name)));
    let log = forwarder.finish();
    assert_eq!(log.missed, 0);
    let seen = |host: Host| {
        let (out, into) = match host {
            Host::Client => (Direction::Forward, Direction::Backward),
            Host::Server => (Direction::Backward, Direction::Forward),
        };
        passed(&log, out).0.len() + passed(&log, into).1.len()
    };
    let [client, server] = captures;
    let files = [client.finish(seen(Host::Client)), server.finish(seen(Host::Server))];
    Some((files, log, counters.into()))
}

/// The first seed, and others for as long as is asked.
fn seeds() -> impl Iterator<Item = u64> {
    let number = |key: &str| std::env::var(key).ok().and_then(|text| text.parse::<u64>().ok());
    let end = Instant::now() + Duration::from_secs(number("LONGHAUL_JUDGE_SECONDS").unwrap_or(0));
    let first = number("LONGHAUL_JUDGE_SEED").unwrap_or(1);
    (first..).take_while(move |seed| *seed == first || Instant::now() < end)
}

fn forward(file: &str) -> Value {
    let mut analysed = json(&["analyze", "--json", file]);
    analysed["result"]["flows"][0]["forward"]["tcp"].take()
}

/// Packets that `compare` may leave open because the machine stood still: some for each 10 ms.
fn left_open(log: &Log) -> u64 {
    log.latest_ns / 10_000_000
}

fn counts<const N: usize>(tcp: &Value, of: [&str; N]) -> [u64; N] {
    of.map(|name| tcp[name].as_u64().unwrap())
}

#[test]
fn each_segment_is_what_the_forwarder_made_of_it() {
    let _shared = side_by_side();
    if missing("tcpdump") {
        return;
    }
    let is_tcp: fn(&Packet) -> bool = |packet| packet.tcp.is_some();
    for (seed, ipv6) in seeds().flat_map(|seed| [(seed, false), (seed, true)]) {
        let there = Chances { lose: 0.01, lose_run: 3, copy: 0.03, delay: 0.03, which: is_tcp, ..Chances::default() };
        let back = Chances { lose: 0.01, copy: 0.02, which: is_tcp, ..Chances::default() };
        let plan = Plan { forward: there, backward: back, seed, one_way: ONE_WAY, ..Plan::default() };
        let folder = Folder::new(&format!("judge-tcp-{ipv6}-{seed}"));
        let Some((files, log, kernel)) = transfer(plan, ipv6, 3_000_000, &folder) else { return };
        let truth = TcpTruth::of(&log);
        assert_eq!(truth.sent_again, kernel["RetransSegs"], "the log and the kernel agree");
        assert!(truth.sent_again > 5 && truth.reordered > 5 && truth.copied > 5, "{truth:?}");
        for snap in [256, 96, 90, 74, 54] {
            let [client, server] = files.each_ref().map(|file| clipped(file, snap));
            let late = Duration::from_nanos(log.latest_ns);
            let case = format!("seed {seed}, IPv6 {ipv6}, {snap} bytes, late by {late:?}, {truth:?}, {kernel:?}");
            if ipv6 && snap < 74 {
                let analysed = json(&["analyze", "--json", &server]);
                assert_eq!(analysed["result"]["flows_total"], 0, "no ports, no flows: {case}");
                continue;
            }
            let [at_client, at_server] = [&client, &server].map(|file| forward(file));
            let kinds =
                ["retransmitted_packets", "out_of_order_packets", "duplicate_packets", "captured_behind_ack_packets"];
            assert_eq!(counts(&at_client, kinds), [truth.sent_again, 0, 0, 0], "client, {case}");
            let at_server_late = counts(&at_server, kinds);
            let [untold] = counts(&at_server, ["late_packets_judged_without_rtt"]);
            if untold > 0 {
                // The SYN-ACK was sent twice, and no time stamps: three kinds of one sum.
                let sum = truth.got_again + truth.reordered + truth.copied;
                assert_eq!((at_server_late.iter().sum::<u64>(), at_server_late[3]), (sum, 0), "server, {case}");
                assert!(snap < if ipv6 { 86 } else { 66 }, "server, {case}");
            } else if snap < if ipv6 { 86 } else { 66 } {
                // No time stamps, and identification is not there or not always evidence: time tells, and the machine may be late.
                let [again, reordered, copied, behind] = at_server_late;
                let sum = truth.got_again + truth.reordered + truth.copied;
                assert_eq!((again + reordered + copied, behind), (sum, 0), "server, {case}");
                // The handshake alone tells the round trip here: late by half the way, only the sum is sure.
                let is_late = Duration::from_nanos(log.latest_ns) >= ONE_WAY / 2;
                for (told, truth) in [(again, truth.got_again), (copied, truth.copied)] {
                    let right = told.abs_diff(truth) <= 2 + truth / 10;
                    assert!(right || is_late, "server: {at_server_late:?}, {case}");
                }
            } else {
                assert_eq!(at_server_late, [truth.got_again, truth.reordered, truth.copied, 0], "server, {case}");
            }
            for (end, tcp) in [("client", &at_client), ("server", &at_server)] {
                let causes = ["fast_retransmissions", "timeout_retransmissions", "retransmissions_of_unknown_cause"];
                let [fast, by_timer, unknown] = counts(tcp, causes);
                assert_eq!(fast + by_timer + unknown, counts(tcp, ["retransmitted_packets"])[0], "{end}, {case}");
                if kernel["TCPTimeouts"] == 0 {
                    assert!(by_timer <= kernel["TCPLossProbes"], "{end}: {by_timer} by timer, {case}");
                }
            }
            compared(&log, [ipv6 && snap < 86, ipv6], [&client, &server], &case);
        }
    }
}

/// Both directions, as `compare` has them, beside the log. What was on its way when a capture began or ended may be left open. `may_equal`: some
/// packets of the direction are the same to the bit, as far as they were captured: without identification acknowledgments, and without
/// time stamps a segment and its retransmission. Of these a lost one and a copy of another make good for each other.
fn compared(log: &Log, may_equal: [bool; 2], [client, server]: [&str; 2], case: &str) {
    let found = json(&["compare", "--json", "--same-clock", client, server]);
    for (direction, name) in [(Direction::Forward, "a_to_b"), (Direction::Backward, "b_to_a")] {
        let (arrived, departed) = passed(log, direction);
        let left: HashSet<usize> = departed.iter().map(|(place, _)| *place).collect();
        let (lost, copies) = ((arrived.len() - left.len()) as u64, (departed.len() - left.len()) as u64);
        let told = found["result"]["points"]["directions"].as_array().unwrap();
        let told = told.iter().find(|told| told["direction"] == name).unwrap();
        let number = |name: &str| told[name].as_u64().unwrap();
        let outside = told["not_observable"]["outside_packets"].as_u64().unwrap();
        let (told_lost, unknown) = (number("lost_packets"), number("unknown_packets"));
        assert!(told_lost <= lost && unknown <= copies, "{name}: {told_lost} of {lost}, {unknown} of {copies}, {case}");
        let equals = if may_equal[direction as usize] { copies - unknown.min(copies) } else { 0 };
        assert!(copies - unknown <= equals + outside, "{name}: {unknown} of {copies} copies, {case}");
        assert!(told_lost + equals + outside >= lost, "{name}: {told_lost} of {lost} lost, {outside} outside, {case}");
        // The first and the last window, where the machine is late.
        assert!(outside <= 40 + left_open(log), "{name}: {outside} outside, {case}");
        assert_eq!(number("alike_packets"), 0, "{name}: {case}");
        let least = told["delay"]["min_ns"].as_f64().unwrap();
        // A lost packet and a copy of its equal are told as one packet, which then seems quicker than the path.
        assert!(may_equal[direction as usize] || least >= 0.99 * ONE_WAY.as_nanos() as f64, "{name}: {least}, {case}");
    }
}

/// How a program sends its datagrams.
#[derive(Debug, Clone, Copy)]
struct Sender {
    ipv6: bool,
    connected: bool,
    numbered: bool,
}

impl Sender {
    /// Whether snippets of so many bytes tell its datagrams apart; `None` where they do not have its ports and lengths.
    fn is_known(self, snap: usize, by_identification: bool) -> Option<bool> {
        let payload = 14 + if self.ipv6 { 40 } else { 20 } + 8;
        let by_number = self.numbered && snap >= payload + 18;
        (snap >= payload).then_some(by_number || by_identification)
    }
}

const DATAGRAMS: u32 = 500;

#[test]
fn datagrams_are_known_or_said_to_be_alike() {
    let _shared = side_by_side();
    if missing("tcpdump") {
        return;
    }
    let [yes, no] = [true, false];
    let senders = [(no, yes, yes), (no, yes, no), (no, no, no), (yes, yes, yes), (yes, yes, no)];
    let senders = senders.map(|(ipv6, connected, numbered)| Sender { ipv6, connected, numbered });
    for (seed, sender) in seeds().flat_map(|seed| senders.map(|sender| (seed, sender))) {
        let which: fn(&Packet) -> bool = |packet| packet.is_udp() && packet.transport_bytes > 100;
        let there = Chances { lose: 0.04, lose_run: 3, copy: 0.03, delay: 0.05, which, ..Chances::default() };
        let folder = Folder::new(&format!("judge-udp-{}-{}-{}-{seed}", sender.ipv6, sender.connected, sender.numbered));
        let Some((files, log)) =
            datagrams(Plan { forward: there, seed, one_way: ONE_WAY, ..Plan::default() }, sender, &folder)
        else {
            return;
        };
        let (arrived, departed) = passed(&log, Direction::Forward);
        let left: HashSet<usize> = departed.iter().map(|(place, _)| *place).collect();
        let truth = [arrived.len(), arrived.len() - left.len(), departed.len() - left.len()].map(|count| count as u64);
        // About 20 and 14: in an hour of seeds 5 is not rare.
        assert!(truth[1] > 0 && truth[2] > 0, "{truth:?}");
        // Kernels differ in what they give packets of sockets that are not connected.
        let ids: HashSet<Option<u32>> = arrived.iter().map(|arrival| arrival.packet.ip_id).collect();
        let by_identification = ids.len() == arrived.len();
        assert!(by_identification || ids.len() == 1, "{} identifications", ids.len());
        assert!(by_identification != sender.ipv6 || !sender.connected, "{sender:?}");
        for snap in [256, 96, 80, 62, 54] {
            let [client, server] = files.each_ref().map(|file| clipped(file, snap));
            let output = crate::common::longhaul(&["compare", "--json", "--same-clock", &client, &server]);
            let found: Value = serde_json::from_slice(&output.stdout).unwrap();
            let case = format!("seed {seed}, {sender:?}, {snap} bytes: {found}");
            let told = &found["result"]["points"]["directions"][0];
            match sender.is_known(snap, by_identification) {
                Some(true) => {
                    let [_, lost, unknown] = counts(told, ["sent_packets", "lost_packets", "unknown_packets"]);
                    // A machine that is late by more than the pauses leaves some open.
                    let outside = told["not_observable"]["outside_packets"].as_u64().unwrap();
                    assert_eq!(lost + unknown + outside, truth[1] + truth[2], "{truth:?}, {case}");
                    assert!(
                        lost <= truth[1] && unknown <= truth[2] && outside <= 20 + left_open(&log),
                        "{truth:?}, {case}"
                    );
                    assert_eq!(counts(told, ["sent_packets"])[0], truth[0] - (truth[1] - lost), "{truth:?}, {case}");
                    assert_eq!(counts(told, ["alike_packets"]), [0], "{case}");
                    let least = told["delay"]["min_ns"].as_f64().unwrap();
                    assert!(least >= 0.99 * ONE_WAY.as_nanos() as f64, "{case}");
                }
                Some(false) if output.status.success() => {
                    assert!(counts(told, ["sent_packets"])[0] <= 1, "{case}");
                    assert_eq!(found["caveats"][0]["code"], "datagrams_alike", "{case}");
                }
                Some(false) => assert_eq!(found["error"]["code"], "all_alike", "{case}"),
                None => assert_eq!(found["error"]["code"], "nothing_in_common", "{case}"),
            }
        }
    }
}

/// Sends datagrams, and captures them at both ends. To the first and the last ones nothing happens: they are short.
fn datagrams(plan: Plan, sender: Sender, folder: &Folder) -> Option<([String; 2], Log)> {
    let forwarder = Forwarder::up(plan)?;
    let captures = [Host::Client, Host::Server].map(|host| Capture::start(&forwarder, host, folder));
    let of = |host: Host| if sender.ipv6 { host.ipv6() } else { host.ipv4() };
    let bind = |host: Host| {
        let at = SocketAddr::new(of(host), PORT);
        forwarder.namespace(host).enter(move || UdpSocket::bind(at).unwrap()).unwrap()
    };
    let (from, to) = (bind(Host::Client), bind(Host::Server));
    let address: SocketAddr = to.local_addr().unwrap();
    if sender.connected {
        from.connect(address).unwrap();
    }
    for number in 0..DATAGRAMS {
        if number == 20 || number == DATAGRAMS - 20 {
            std::thread::sleep(4 * ONE_WAY);
        }
        let mut payload = vec![7_u8; if (20..DATAGRAMS - 20).contains(&number) { 200 } else { 60 }];
        if sender.numbered {
            // No probe of longhaul's: what would be its cookie differs.
            payload[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
        }
        if sender.connected {
            from.send(&payload).unwrap()
        } else {
            from.send_to(&payload, address).unwrap()
        };
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(2 * ONE_WAY);
    let log = forwarder.finish();
    assert_eq!(log.missed, 0);
    let [client, server] = captures;
    let (arrived, departed) = passed(&log, Direction::Forward);
    Some(([client.finish(arrived.len()), server.finish(departed.len())], log))
}
