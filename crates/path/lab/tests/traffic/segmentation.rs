//! Super-packets of a real kernel that the path cuts into pieces: checksums and lengths right on every piece, as tshark, the
//! receiving stack and the bytes themselves say.

use std::net::IpAddr;

use crate::common::capture::{Capture, Tcpdump, frames_of, judge, write_pcap};
use crate::common::datagrams::{SEGMENTS_MOST, Sink, Source};
use crate::common::transfer::Transfer;
use crate::common::{
    SERVER_V4, SERVER_V6, Scratch, alone, assert_faithful, brisk, counters, hop, lab, missing, run, run_in_core,
    settled, unprivileged,
};
use longhaul_lab::Lab;
use longhaul_lab::plan::HOST_INTERFACE;

/// Loss, copies and a jitter that reorders packets tear runs apart; the rate spaces them wider than `batch_time`, in
/// which some 80 packets fit, so that long runs are cut by time too.
const TEARING: &str = "
    [[forward]]
    rate = '20Gbit'
    delay = '1ms'
    loss = { random = '1%' }
    duplicate = '1%'
    [[forward]]
    rate = '2Gbit'
    delay = '1ms'
    [[forward]]
    delay = '100us'
    jitter = { law = 'uniform', stddev = '3us', order = 'free' }
    [[backward]]
    delay = '1ms'
    loss = { random = '0.5%' }";

const DATAGRAMS: u64 = 6_000;
const TCP_BYTES: u64 = 8_000_000;

/// Sends UDP super-packets and a TCP stream over IPv4 and IPv6, and checks every byte.
fn send_all(lab: &Lab) {
    for server in [SERVER_V4, SERVER_V6] {
        let sink = Sink::new(lab, "server", server);
        // A length that is not a multiple of anything, a batch that leaves a short one at the end.
        let mut source = Source::new(lab, "client", server, 1181, SEGMENTS_MOST - 11);
        source.send_until(DATAGRAMS, &sink, 1000);
        settled(lab);
        let heard = sink.finish();
        assert_eq!(heard.damaged, 0);
        assert!(heard.reordered() > 0 && heard.duplicates() > 0, "the path tears nothing apart");
        Transfer::start(lab, "client", "server", server, TCP_BYTES, brisk()).finish();
    }
}

/// The receiving stack found nothing wrong, and the path did what it was told.
fn check_counters(lab: &Lab) {
    let status = settled(lab);
    assert_faithful(&status);
    let from_client = &status.ports[0];
    let to_server = &status.ports[1];
    assert!(from_client.received.packets > 4 * from_client.received_frames, "no super-packets: {from_client:?}");
    assert!(to_server.sent_frames > from_client.received_frames * 3 / 2, "runs were not cut: {to_server:?}");
    assert!(hop(&status, "forward.hop1").counters.dropped_loss.packets > 50);
    for host in ["client", "server"] {
        let counters = counters(lab, host);
        for name in [
            "Ip.InHdrErrors",
            "IpExt.InCsumErrors",
            "Tcp.InCsumErrors",
            "Tcp.InErrs",
            "Udp.InCsumErrors",
            "Udp.InErrors",
            "Udp6InErrors",
            "Udp6InCsumErrors",
            "Ip6InHdrErrors",
            "IpExt.InTruncatedPkts",
            "Ip6InTruncatedPkts",
        ] {
            assert_eq!(counters[name], 0, "{name} of {host}");
        }
    }
}

/// The frames as the emulator sends them: super-packets whose checksum the receiving interface would complete.
#[test]
fn pieces_of_super_packets_have_good_checksums_and_lengths() {
    if unprivileged() || missing("tshark") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let lab = lab(TEARING);
    let captures = ["client", "server"]
        .map(|host| (host, Capture::start(&lab.host(host).unwrap().namespace, HOST_INTERFACE, usize::MAX)));
    send_all(&lab);
    check_counters(&lab);
    for (host, capture) in captures {
        let frames = capture.finish();
        assert!(host == "client" || frames.iter().any(|frame| frame.original_bytes > 5000), "no run of packets");
        let file = scratch.file(host);
        write_pcap(&file, &frames);
        let verdict = judge(&file);
        assert!(verdict.bad.is_empty(), "{} of {} at {host}: {:?}", verdict.bad.len(), frames.len(), verdict.bad[0]);
        assert_eq!((verdict.frames, verdict.good), (frames.len() as u64, frames.len() as u64), "at {host}");
    }
}

/// The kernel cuts what the emulator sends, as the emulator's interfaces offer no offload, and completes the checksums: what
/// tcpdump sees has none left to complete.
#[test]
fn a_kernel_cuts_the_pieces_further() {
    if unprivileged() || missing("tshark") || missing("tcpdump") || missing("ethtool") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let lab = lab(TEARING);
    for host in lab.hosts() {
        run_in_core(&lab, &["ethtool", "-K", &host.plan.port, "tx", "off", "tso", "off", "gso", "off"]);
        // What is cut shall not be joined again before it is looked at.
        run(&lab, &host.plan.name, &["ethtool", "-K", HOST_INTERFACE, "gro", "off"]);
    }
    let file = scratch.file("server.pcap");
    let tcpdump = Tcpdump::start(&lab, "server", "in", "0", "tcp or udp", file.clone());
    send_all(&lab);
    check_counters(&lab);
    // Each frame is a packet, as nobody joins them.
    let packets = lab.status().unwrap().ports[1].sent.packets;
    tcpdump.finish(|pcap| frames_of(pcap).count() as u64 >= packets);
    let verdict = judge(&file);
    assert!(verdict.bad.is_empty(), "{} of {}: {:?}", verdict.bad.len(), verdict.frames, verdict.bad[0]);
    assert_eq!(verdict.good, verdict.frames);
    assert_eq!(verdict.frames, packets);
}

/// A path without loss moves super-packets whole, and single ones where that is asked.
#[test]
fn wire_packets_are_the_same_as_those_of_runs() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    for wire in [false, true] {
        let spec = longhaul_lab::LabSpec { wire, ..Default::default() };
        let lab = crate::common::lab_with(spec, "[[both]]\nrate = '10Gbit'\ndelay = '1ms'");
        let address: IpAddr = SERVER_V4;
        let sink = Sink::new(&lab, "server", address);
        let mut source = Source::new(&lab, "client", address, 1000, 50);
        source.send_until(5_000, &sink, 1000);
        let status = settled(&lab);
        assert_faithful(&status);
        assert_eq!(sink.finish().numbers, (0..5_000).collect::<Vec<_>>());
        let port = &status.ports[1];
        assert_eq!(port.sent.packets, 5_000);
        assert_eq!(port.sent.bytes, 5_000 * 1042);
        assert_eq!(port.sent_frames == 5_000, wire, "{} frames", port.sent_frames);
    }
}
