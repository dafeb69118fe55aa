//! The packets that a path is told to lose or to damage, and no others, are those that do not arrive.

use std::collections::{BTreeMap, HashMap};

use crate::common::capture::{Capture, Captured};
use crate::common::datagrams::{SEGMENTS_MOST, Sink, Source};
use crate::common::transfer::Transfer;
use crate::common::{
    SERVER_V4, SERVER_V6, alone, assert_faithful, brisk, counters, hop, lab, lab_with, settled, unprivileged,
};
use longhaul_lab::plan::HOST_INTERFACE;
use longhaul_lab::{Lab, LabSpec};
use longhaul_wire::Gso;

const EVERY: &str = "
    [[forward]]
    rate = '10Gbit'
    delay = '2ms'
    loss = { every = 30000 }
    [[backward]]
    delay = '2ms'";

/// Proven by who receives: each datagram of the super-packets is numbered.
#[test]
fn exactly_every_30000th_datagram_is_missing() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = lab(EVERY);
    let sink = Sink::new(&lab, "server", SERVER_V4);
    let mut source = Source::new(&lab, "client", SERVER_V4, 500, SEGMENTS_MOST);
    source.send_until(200_000, &sink, 20_000);
    let status = settled(&lab);
    assert_faithful(&status);
    let heard = sink.finish();
    assert_eq!(heard.missing(200_000), [29_999, 59_999, 89_999, 119_999, 149_999, 179_999]);
    assert_eq!((heard.numbers.len(), heard.damaged), (200_000 - 6, 0));
    assert!(heard.numbers.is_sorted());
    assert_eq!(hop(&status, "forward.hop1").counters.dropped_loss.packets, 6);
    assert!(status.ports[0].received_frames < 200_000 / 30, "the stream did not come in super-packets");
    assert!(status.ports[1].sent_frames < 200_000 / 10, "the stream did not leave in super-packets");
}

/// What a policer drops of super-packets is what is missing, packet by packet, and the rest is its rate and a burst.
#[test]
fn a_policer_drops_what_is_missing() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = lab(
        "[[forward]]\nrate = '10Gbit'\n[[forward]]\ndelay = '2ms'\npolicer = '1Mbit,64KiB'\n[[backward]]\ndelay = '2ms'",
    );
    let sink = Sink::new(&lab, "server", SERVER_V4);
    let mut source = Source::new(&lab, "client", SERVER_V4, 1000, SEGMENTS_MOST);
    let began = std::time::Instant::now();
    source.send_until(20_000, &sink, 20_000);
    let status = settled(&lab);
    let seconds = began.elapsed().as_secs_f64();
    assert_faithful(&status);
    let heard = sink.finish();
    let policed = &hop(&status, "forward.hop2").counters;
    let missing = heard.missing(20_000).len() as u64;
    assert!(heard.numbers.is_sorted());
    // 1000 bytes, UDP, IP, Ethernet and what L1 adds: 1066 bytes. Other packets (neighbour discovery) take tokens too.
    let most = (f64::from(64 << 10) + seconds * 125_000.0) / 1066.0;
    let came = heard.numbers.len() as u64;
    assert!(came >= 55 && came as f64 <= most, "{came} of at most {most}");
    assert!(policed.dropped_policer.packets.abs_diff(missing) <= 20, "{policed:?} for {missing}");
    assert_eq!(policed.dropped().packets, policed.dropped_policer.packets);
}

/// Sequence number and payload bytes.
type Segment = (u32, u32);

/// The IPv4 TCP segments of a capture, super-packets as what they stand for.
fn segments(frames: &[Captured]) -> Vec<Segment> {
    let mut segments = Vec::new();
    for Captured { frame, vnet, .. } in frames {
        let total = u32::from(u16::from_be_bytes([frame[16], frame[17]]));
        let payload = total - 20 - u32::from(frame[46] >> 4) * 4;
        let size = if vnet.gso() == Gso::None { payload.max(1) } else { vnet.gso_size.into() };
        let sequence = u32::from_be_bytes(frame[38..42].try_into().unwrap());
        for i in 0..payload.div_ceil(size).max(1) {
            segments.push((sequence.wrapping_add(i * size), size.min(payload - i * size)));
        }
    }
    segments
}

/// Proven by capture at both ends: what comes from the client, without each 30,000th packet, is what the server gets.
#[test]
fn exactly_every_30000th_segment_is_missing() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = lab(EVERY);
    let captures = [
        // Beside the emulator, in whose order packets are counted. Two CPUs may hand it a flow's frames.
        Capture::start(lab.core(), "client1", 96),
        Capture::start(&lab.host("server").unwrap().namespace, HOST_INTERFACE, 96),
    ];
    Transfer::start(&lab, "client", "server", SERVER_V4, 150_000_000, brisk()).finish();
    let status = settled(&lab);
    assert_faithful(&status);
    let [sent, arrived] = captures.map(|capture| segments(&capture.finish()));
    assert_eq!(sent.len() as u64, status.ports[0].received.packets);
    assert!(sent.len() > 100_000 && status.ports[0].received_frames < sent.len() as u64 / 5, "{} packets", sent.len());
    let lost: Vec<Segment> = sent.iter().skip(29_999).step_by(30_000).copied().collect();
    assert_eq!(hop(&status, "forward.hop1").counters.dropped_loss.packets, lost.len() as u64);
    // As a bag: the order in which two CPUs hand frames to the receiver is not the path's.
    let mut missing: HashMap<Segment, i64> = HashMap::new();
    sent.iter().for_each(|segment| *missing.entry(*segment).or_default() += 1);
    arrived.iter().for_each(|segment| *missing.entry(*segment).or_default() -= 1);
    missing.retain(|_, count| *count != 0);
    assert_eq!(missing, lost.into_iter().map(|segment| (segment, 1)).collect());
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let missing = |seed: u64, batch: u64| {
        let spec = LabSpec { seed, ..LabSpec::default() };
        let lab = lab_with(spec, "[[forward]]\nrate = '5Gbit'\ndelay = '1ms'\nloss = { random = '3%' }");
        let sink = Sink::new(&lab, "server", SERVER_V4);
        let mut source = Source::new(&lab, "client", SERVER_V4, 300, batch);
        source.send_until(10_000, &sink, 2_000);
        assert_faithful(&settled(&lab));
        sink.finish().missing(10_000)
    };
    let first = missing(7, 20);
    assert!((200..400).contains(&first.len()), "{} of 10,000 at 3 %", first.len());
    assert!(first == missing(7, 20), "other packets of the same sequence were lost");
    assert!(first == missing(7, 1), "other packets were lost when sent one by one");
    assert!(first != missing(8, 20), "another seed lost the same packets");
}

const CORRUPTING: &str = "
    [[forward]]
    rate = '1Gbit'
    delay = '1ms'
    corrupt = '5%'
    [[backward]]
    delay = '1ms'";

/// What the receiving stack threw away for a bad checksum or a header that makes no sense.
fn discarded(counters: &BTreeMap<String, u64>, names: &[&str]) -> u64 {
    names.iter().map(|name| counters[*name]).sum()
}

#[test]
fn damaged_packets_are_discarded_by_the_receiver() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    // UDP.InErrors has its bad checksums and lengths; a flipped bit of IPv4's header is found by its checksum.
    let over_v4 = ["Udp.InErrors", "Ip.InHdrErrors"];
    let lab = lab(CORRUPTING);
    stream_intact(&lab);
    let status = settled(&lab);
    assert_faithful(&status);
    let corrupted = hop(&status, "forward.hop1").counters.corrupted.packets;
    assert!((800..1_200).contains(&corrupted), "{corrupted} of 20,000 at 5 %");
    let after = counters(&lab, "server");
    assert_eq!(discarded(&after, &over_v4), corrupted, "{after:?}");
    assert!(after["Udp.InCsumErrors"] > corrupted * 8 / 10, "{after:?}");

    for server in [SERVER_V4, SERVER_V6] {
        let before = counters(&lab, "server")["Tcp.InCsumErrors"];
        Transfer::start(&lab, "client", "server", server, 5_000_000, brisk()).finish();
        let now = counters(&lab, "server")["Tcp.InCsumErrors"];
        assert!(now > before + 50, "{} of the segments to {server} had a bad checksum", now - before);
    }
}

/// Sends 20,000 datagrams: all come intact but those that were damaged, which do not come.
fn stream_intact(lab: &Lab) {
    let sink = Sink::new(lab, "server", SERVER_V4);
    let mut source = Source::new(lab, "client", SERVER_V4, 900, 40);
    source.send_until(20_000, &sink, 2_000);
    let corrupted = hop(&settled(lab), "forward.hop1").counters.corrupted.packets;
    let heard = sink.finish();
    assert_eq!(heard.damaged, 0);
    assert_eq!(heard.missing(20_000).len() as u64, corrupted);
}
