//! `longhaul compare` of small captures whose super-packets stand for very many wire packets.

use std::fs::{self, File};
use std::io::{BufWriter, Write};

use longhaul_captures::pcap::Writer;
use longhaul_captures::{LinkType, Record};

use crate::common::captures::{Folder, json};
use crate::common::{longhaul, object};

const MS: i64 = 1_000_000;
/// Payload of the longest super-packet of BIG TCP, whose length IP's header has no room for.
const PAYLOAD: u32 = 524_280;
/// From one to the next: 84 Gb/s.
const INTERVAL_NS: i64 = 50_000;
/// Bytes of each packet that are captured.
const SNIPPET: usize = 96;

/// A capture of a TCP flow in one direction, at one point.
#[derive(Clone, Copy)]
struct Flow {
    /// Payload bytes of a segment, as the receiver offers them.
    mss: u16,
    super_packets: u32,
    sequence: u32,
    /// When the receiver's SYN-ACK passes, and the first super-packet.
    at_ns: [i64; 2],
    /// Frames of another protocol at the end, of 60,000 bytes each.
    others: usize,
}

/// Ethernet, IPv4 and TCP, from the sender or from the receiver.
fn headers(is_sender: bool, ip_len: u16, sequence: u32, length_and_flags: [u8; 2]) -> Vec<u8> {
    let (mut hosts, mut ports) = ([[10_u8, 0, 0, 1], [10, 0, 0, 2]], [1_000_u16, 2_000]);
    if !is_sender {
        hosts.reverse();
        ports.reverse();
    }
    let mut frame = vec![2_u8, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(ip_len.to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(hosts.concat());
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend(sequence.to_be_bytes());
    frame.extend(1_u32.to_be_bytes());
    frame.extend(length_and_flags);
    frame.extend([0xff, 0xff, 0, 0, 0, 0]);
    frame
}

impl Flow {
    fn write(self, path: &str) {
        let mut writer = Writer::new(BufWriter::new(File::create(path).unwrap()), LinkType::Ethernet, 65_535).unwrap();
        let mut write = |at_ns: i64, snippet: &[u8], frame_len: u32| {
            let at_ns = 1_700_000_000_000_000_000 + at_ns;
            let record = Record { at_ns, frame_len, snippet, ..Record::default() };
            writer.write(&record).unwrap();
        };
        let [answer_ns, mut at_ns] = self.at_ns;
        let mut answer = headers(false, 44, 0, [0x60, 0x12]);
        answer.extend([2, 4]);
        answer.extend(self.mss.to_be_bytes());
        write(answer_ns, &answer, answer.len() as u32);
        for number in 0..self.super_packets {
            let sequence = self.sequence.wrapping_add(number.wrapping_mul(PAYLOAD));
            let mut snippet = headers(true, 0, sequence, [0x50, 0x10]);
            let frame_len = snippet.len() as u32 + PAYLOAD;
            snippet.resize(SNIPPET, 0);
            write(at_ns, &snippet, frame_len);
            at_ns += INTERVAL_NS;
        }
        let mut other = vec![0_u8; 60_000];
        other[12..14].copy_from_slice(&[0x88, 0xb5]);
        (0..self.others).for_each(|_| write(at_ns, &other, 60_000));
        writer.into_inner().flush().unwrap();
    }
}

/// What hosts send as BIG TCP over paths of 1,500 bytes: all of a megabyte of it is matched.
#[test]
fn a_megabyte_of_big_tcp_is_compared() {
    let folder = Folder::new("big-tcp");
    let [a, b] = ["a.pcap", "b.pcap"].map(|name| folder.file(name));
    let sent = Flow { mss: 1_448, super_packets: 8_900, sequence: 1, at_ns: [5 * MS, 10 * MS], others: 0 };
    sent.write(&a);
    Flow { at_ns: [0, 15 * MS], ..sent }.write(&b);
    assert!(fs::metadata(&a).unwrap().len() < 1_000_000);
    let compared = json(&["compare", "--same-clock", "--json", &a, &b]);
    let forward = &compared["result"]["points"]["directions"][0];
    let of = |name: &str| forward[name].as_u64().unwrap();
    let segments = u64::from(PAYLOAD.div_ceil(1_448)) * 8_900;
    assert_eq!((of("reached_packets"), of("lost_packets"), of("unknown_packets")), (segments, 0, 0), "{forward:#}");
    assert_eq!(forward["delay"]["max_ns"], 5e6, "{forward:#}");
}

/// Segments of 36 bytes make 14,564 of each super-packet. What else is in the files buys none of them.
#[test]
fn small_captures_that_stand_for_too_many_wire_packets_are_refused() {
    let folder = Folder::new("too-many-wire-packets");
    let [a, b] = ["a.pcap", "b.pcap"].map(|name| folder.file(name));
    for (super_packets, others) in [(200, 16), (2_740, 11)] {
        let sent = Flow { mss: 36, super_packets, sequence: 1, at_ns: [0, MS], others };
        sent.write(&a);
        Flow { sequence: 1 << 31, ..sent }.write(&b);
        assert!(fs::metadata(&a).unwrap().len() < 1_000_000);
        for arguments in [
            &["compare", "--json", &a, &b][..],
            &["compare", "--json", "--behaviour", &a, &b, &a, &b],
            &["profile", "--json", &a, &b],
            &["verify", "lan", "--json", "--against", &a, "--against", &b],
        ] {
            let output = longhaul(arguments);
            let said = object(&output.stdout);
            assert_eq!(said["error"]["code"], "too_many_wire_packets", "{arguments:?}: {said}");
        }
    }
}
