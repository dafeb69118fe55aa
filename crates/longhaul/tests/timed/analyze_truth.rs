//! `longhaul analyze` where packets are lost and reordered at once: a list says which packets the emulator drops, the sender's own capture
//! which ones were retransmitted, and the two together what each packet at the receiver is. `tcptrace` and `tshark` read the same captures,
//! and each of their differences is one that these tests name.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::ops::Range;
use std::process::Stdio;

use crate::common::captures::{Capture, Folder, Tcptrace, json, missing, on, rewrite, total, tshark_count};
use crate::common::{TestLab, printed, quiet};
use longhaul_captures::{CaptureReader, Packet, Transport, dissect};
use longhaul_testing::waiting::until;
use serde_json::Value;

/// 5 ms there, with delays that reorder packets, and 2 ms back.
const UNRULY: &str = "
name = 'unruly'
[[forward]]
name = 'wan'
rate = '200Mbit'
queue = '64MiB'
delay = '5ms'
jitter = { law = 'normal', stddev = '300us', order = 'free' }
[[backward]]
delay = '2ms'
";

/// At least, whatever their jitter.
const ROUND_TRIP_NS: i64 = 6_000_000;

/// Packets that the emulator drops, in the order in which they come to it: single ones, a run, some close to each other.
fn scripted() -> Vec<u64> {
    let mut list: Vec<u64> = (1..12).map(|n| 60 + n * 83).collect();
    list.extend([400, 401, 402, 403, 405, 407]);
    list.sort_unstable();
    list
}

fn frames(file: &str) -> Vec<Packet> {
    let mut reader = CaptureReader::new(File::open(file).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push(dissect(&record));
    }
    packets
}

/// A packet by name: ports, identification, sequence number, length, flags.
type Name = (u16, u16, u32, u32, u32, u16);

/// Those of `client`'s TCP packets that it sent.
fn sent_by_client(packets: &[Packet]) -> impl Iterator<Item = (Name, &Packet)> {
    let client = packets.first().and_then(|packet| packet.ip).unwrap().src;
    packets.iter().filter_map(move |packet| {
        let ip = packet.ip.filter(|ip| ip.src == client)?;
        let Transport::Tcp(tcp) = packet.transport else { panic!("{packet:?}") };
        let name = (tcp.src_port, tcp.dst_port, ip.id.unwrap(), tcp.seq, tcp.payload_len, tcp.flags);
        Some((name, packet))
    })
}

/// What the client sent, as the two captures and the list of drops have it.
#[derive(Debug, Default)]
struct Truth {
    dropped: HashSet<Name>,
    /// Retransmissions, at the client.
    retransmitted: u64,
    /// At the server, below the highest byte: retransmissions, and reordered packets.
    retransmissions: u64,
    out_of_order: u64,
    unique_bytes: u64,
    /// Of the retransmissions at the server, those that filled a hole.
    filled: u64,
    /// Of the reordered ones, those a round trip behind a packet that was sent later.
    stalled: u64,
    /// Of all packets of the client, those received after one of the same connection that was sent later.
    reordered: u64,
}

impl Truth {
    fn of(client: &[Packet], server: &[Packet], list: &[u64]) -> Self {
        let mut truth = Self::default();
        let mut again = HashSet::new();
        let mut highest: HashMap<u16, u32> = HashMap::new();
        for (number, (name, _)) in (1..).zip(sent_by_client(client)) {
            let (port, _, _, seq, len, _) = name;
            if list.contains(&number) {
                truth.dropped.insert(name);
            }
            let end = highest.entry(port).or_insert(seq);
            if len > 0 && (seq.wrapping_sub(*end) as i32) < 0 {
                truth.retransmitted += 1;
                again.insert(name);
            }
            let own_end = seq.wrapping_add(len + u32::from(name.5 & 2 != 0));
            *end = if (own_end.wrapping_sub(*end) as i32) > 0 { own_end } else { *end };
        }
        let numbers: HashMap<Name, usize> = sent_by_client(client).zip(0..).map(|((name, _), n)| (name, n)).collect();
        let mut latest: HashMap<u16, usize> = HashMap::new();
        let mut highest: HashMap<u16, u32> = HashMap::new();
        let mut came: HashMap<u16, HashSet<u32>> = HashMap::new();
        // Port, bytes, and since when they were missed.
        let mut holes: Vec<(u16, Range<u32>, i64)> = Vec::new();
        for (name, packet) in sent_by_client(server) {
            assert!(!truth.dropped.contains(&name), "{name:?} was dropped and came");
            let (port, _, _, seq, len, _) = name;
            let latest = latest.entry(port).or_default();
            truth.reordered += u64::from(numbers[&name] < *latest);
            *latest = numbers[&name].max(*latest);
            let end = highest.entry(port).or_insert(seq);
            let seen = came.entry(port).or_default();
            let new = (0..len).filter(|byte| seen.insert(seq.wrapping_add(*byte))).count() as u64;
            truth.unique_bytes += new;
            if len > 0 && (seq.wrapping_sub(*end) as i32) < 0 {
                let retransmitted = again.contains(&name);
                truth.retransmissions += u64::from(retransmitted);
                truth.out_of_order += u64::from(!retransmitted);
                let hole = holes.iter().find(|(of, bytes, _)| *of == port && bytes.contains(&seq));
                let waited_ns = hole.map_or(0, |(_, _, since_ns)| packet.at_ns - since_ns);
                truth.stalled += u64::from(!retransmitted && waited_ns > ROUND_TRIP_NS);
                truth.filled += u64::from(retransmitted && new > 0);
            }
            if (seq.wrapping_sub(*end) as i32) > 0 {
                holes.push((port, *end..seq, packet.at_ns));
            }
            let own_end = seq.wrapping_add(len + u32::from(name.5 & 2 != 0));
            *end = if (own_end.wrapping_sub(*end) as i32) > 0 { own_end } else { *end };
        }
        truth
    }
}

/// Sends 4 MB through the lab while both hosts capture. The captures of client and server.
fn transfer(lab: &TestLab, folder: &Folder) -> [String; 2] {
    for host in ["client", "server"] {
        let quiet = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1; ethtool -K eth0 tso off gso off gro off";
        assert!(on(lab, host, &["sh", "-c", quiet]).stdout(Stdio::null()).status().unwrap().success());
    }
    let captures = ["client", "server"].map(|host| Capture::start(lab, host, folder));
    let mut server = on(lab, "server", &["iperf3", "-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    let listens = || on(lab, "server", &["sh", "-c", "ss -ltn | grep -q :5201"]).status().unwrap().success();
    until("iperf3 to listen", listens);
    // Counting begins anew with the change, so that the first packet of the captures is the first of the list.
    let list: Vec<String> = scripted().iter().map(u64::to_string).collect();
    let change = format!("forward.wan.loss=list({})", list.join(","));
    printed(&["lab", "set", "--name", &lab.name, &change]);
    assert!(on(lab, "client", &["iperf3", "-4", "-c", "server", "-n", "4M"]).output().unwrap().status.success());
    server.wait().unwrap();
    captures.map(Capture::finish)
}

/// Snippets without what tells best: identifications, and time stamps if `stamps`.
fn without_evidence(from: &str, to: &str, stamps: bool) {
    rewrite(from, to, |_, snippet| {
        snippet[18..20].fill(0);
        let options = 54..(34 + usize::from(snippet[46] >> 4) * 4).min(snippet.len());
        let options = &mut snippet[options];
        let mut at = 0;
        while at + 1 < options.len() && options[at] != 0 {
            match (options[at], usize::from(options[at + 1])) {
                (1, _) => at += 1,
                (_, 0 | 1) => break,
                (8, len) if stamps => options[at..at + len].fill(1),
                (_, len) => at += len,
            }
        }
    });
}

#[test]
fn each_packet_is_told_as_what_the_list_of_drops_makes_it() {
    let _machine = quiet();
    if missing("tcpdump") || missing("iperf3") {
        return;
    }
    let folder = Folder::new("truth");
    let path = folder.file("unruly.toml");
    fs::write(&path, UNRULY).unwrap();
    let Some(lab) = TestLab::up("truth", &path) else { return };
    let [a, b] = transfer(&lab, &folder);
    let list = scripted();
    let truth = Truth::of(&frames(&a), &frames(&b), &list);
    println!(
        "{} dropped; {} retransmitted; received: {} retransmissions, {} of them into holes, {} reordered",
        truth.dropped.len(),
        truth.retransmitted,
        truth.retransmissions,
        truth.filled,
        truth.out_of_order
    );
    assert_eq!(truth.dropped.len(), list.len());
    assert!(truth.out_of_order > 100 && truth.retransmissions > 10, "{truth:?}");

    // Each dropped packet by name, and no other.
    let compared = json(&["compare", "--same-clock", "--json", &a, &b]);
    let forward = &compared["result"]["points"]["directions"][0];
    assert_eq!(forward["lost_packets"].as_u64(), Some(list.len() as u64), "{forward:#}");
    assert_eq!(forward["reordered_packets"].as_u64(), Some(truth.reordered), "{forward:#}");
    let mut named: Vec<u64> = truth.dropped.iter().map(|name| name.3.into()).collect();
    named.sort_unstable();
    let runs = forward["lost"].as_array().unwrap();
    let ends: HashSet<u64> = runs
        .iter()
        .flat_map(|run| [&run["first_sequence"], &run["last_sequence"]])
        .map(|end| end.as_u64().unwrap())
        .collect();
    assert!(ends.iter().all(|end| named.contains(end)), "{ends:?} of {named:?}");

    let sent = json(&["analyze", "--json", &a]);
    assert_eq!(total(&sent, "retransmitted_packets"), truth.retransmitted);
    assert_eq!(total(&sent, "out_of_order_packets"), 0, "at the sender nothing is reordered");
    let received = json(&["analyze", "--json", &b]);
    judged("with all evidence", &received, &truth, 0);
    assert_eq!(total(&received, "retransmissions_of_unseen"), truth.filled);

    let plain = folder.file("plain.pcap");
    without_evidence(&b, &plain, false);
    judged("without identifications", &json(&["analyze", "--json", &plain]), &truth, 0);
    without_evidence(&b, &plain, true);
    // Where the machine stood still while they were on their way, nothing is left to tell them by.
    judged("by time and signals alone", &json(&["analyze", "--json", &plain]), &truth, truth.stalled);
    beside_tcptrace(&b, &truth, &received);
    beside_tshark(&b, &truth);
}

/// Retransmissions and reordered packets, to `error` packets.
fn judged(how: &str, found: &Value, truth: &Truth, error: u64) {
    let (again, out_of_order) = (total(found, "retransmitted_packets"), total(found, "out_of_order_packets"));
    let twice = total(found, "duplicate_packets");
    println!(
        "{how}: {again} retransmissions of {}, {out_of_order} reordered of {}, {twice} duplicates",
        truth.retransmissions, truth.out_of_order
    );
    assert_eq!(again + out_of_order + twice, truth.retransmissions + truth.out_of_order, "{how}");
    assert!(again.abs_diff(truth.retransmissions) <= error, "{how}: {again} of {}", truth.retransmissions);
}

/// tcptrace knows bytes that came before, and no more: what fills a hole is out of order to it, whether reordered or retransmitted. A SACK
/// on a reset counts with it, though nobody reads the acknowledgment of one.
fn beside_tcptrace(file: &str, truth: &Truth, ours: &Value) {
    let Some(theirs) = Tcptrace::of(file) else { return };
    let flows = ours["result"]["flows"].as_array().unwrap();
    assert_eq!(theirs.connections(), flows.len(), "connections");
    let of = |name: &str| -> u64 {
        flows.iter().flat_map(|flow| [&flow["forward"], &flow["backward"]]).map(|way| way[name].as_u64().unwrap()).sum()
    };
    for (name, ours) in [
        ("total_packets", of("packets")),
        ("actual_data_pkts", of("data_packets")),
        ("actual_data_bytes", of("payload_bytes")),
        ("unique_bytes_sent", of("unique_bytes")),
        ("rexmt_data_bytes", total(ours, "retransmitted_bytes")),
        ("rexmt_data_pkts", truth.retransmissions - truth.filled),
        ("outoforder_pkts", truth.out_of_order + truth.filled),
        ("dsack_pkts_sent", total(ours, "dsack_blocks")),
    ] {
        assert_eq!(theirs.sum(name), ours, "{name}");
    }
    let resets = theirs.sum("resets_sent");
    let sacks = total(ours, "sack_acks");
    assert!((sacks..=sacks + resets).contains(&theirs.sum("sacks_sent")), "{sacks} and {resets} resets");
}

/// Wireshark sees the same segments below the highest one, and splits them at fixed times: within 3 ms or the handshake's round trip of
/// the last segment they are out of order to it, after the retransmission.
fn beside_tshark(file: &str, truth: &Truth) {
    if missing("tshark") {
        return;
    }
    let count = |what: &str| tshark_count(file, &format!("tcp.len > 0 and ({what})"));
    let again = count("tcp.analysis.retransmission or tcp.analysis.fast_retransmission");
    let out_of_order = count("tcp.analysis.out_of_order");
    println!(
        "Wireshark: {again} retransmissions of {}, {out_of_order} reordered of {}",
        truth.retransmissions, truth.out_of_order
    );
    assert_eq!(again + out_of_order, truth.retransmissions + truth.out_of_order);
}
