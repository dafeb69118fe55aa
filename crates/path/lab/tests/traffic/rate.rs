//! A rate is what arrives, at the layer at which it is told.

use crate::common::capture::Capture;
use crate::common::datagrams::{PORT, SEGMENTS_MOST, Sink, Source};
use crate::common::{SERVER_V4, alone, assert_faithful, hop, settled, unprivileged, wire_lab};
use longhaul_kernel::clock::realtime;
use longhaul_testing::waiting::until;

const RATE_BPS: f64 = 100e6;
const BYTES: usize = 500;
/// More than 2.5 s of them.
const PACKETS: u64 = 60_000;
/// Packets that may wait to be taken by the emulator.
const UNREAD: u64 = 16_000;

/// Ethernet, IPv4 and UDP headers; at L1 preamble, FCS and gap too.
const FRAME_BYTES: usize = 14 + 20 + 8 + BYTES;
const L1_BYTES: usize = FRAME_BYTES + 24;

#[test]
fn a_rate_holds_at_l1_and_at_l2() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    for (layer, packet_bytes) in [("L1", L1_BYTES), ("L2", FRAME_BYTES)] {
        let lab =
            wire_lab(&format!("[[forward]]\nrate = '100Mbit'\nlayer = '{layer}'\nqueue = '100MiB'\ndelay = '5ms'"));
        let capture = Capture::start(&lab.host("server").unwrap().namespace, "eth0", 64);
        let sink = Sink::new(&lab, "server", SERVER_V4);
        // All wait in the queue before it is measured how they leave, so that nobody but the emulator has a part in that.
        let mut source = Source::new(&lab, "client", SERVER_V4, BYTES, SEGMENTS_MOST);
        while source.next() < PACKETS {
            source.send(PACKETS - source.next());
            if source.next().is_multiple_of(UNREAD) {
                let taken = || lab.status().unwrap().ports[0].received.packets;
                until("the emulator to take them", || taken() + UNREAD / 2 > source.next());
            }
        }
        let from = realtime().0 as f64 * 1e-9;
        let backlog_ns = hop(&lab.status().unwrap(), "forward.hop1").backlog_ns;
        assert!(backlog_ns > 1_200_000_000, "the sender was so slow that the queue has only {backlog_ns} ns");
        let status = settled(&lab);
        assert_faithful(&status);
        sink.finish().assert_complete(PACKETS);
        let stamps: Vec<f64> = (capture.finish().iter())
            .filter(|frame| frame.frame[36..38] == PORT.to_be_bytes())
            .map(|frame| frame.at.0 as f64 * 1e-9)
            .skip_while(|&at| at < from)
            .collect();

        let nominal = packet_bytes as f64 * 8.0 / RATE_BPS;
        // A busy machine makes some packets late and none early: how late the most punctual ones are of those at the
        // beginning and of those at the end shows how the rate was kept between the two.
        let lag = |i: usize| stamps[i] - stamps[0] - i as f64 * nominal;
        let edge = stamps.len() / 10;
        let least = |range: std::ops::Range<usize>| range.map(lag).fold(f64::INFINITY, f64::min);
        let last = stamps.len() - 1;
        let span = (last - edge) as f64 * nominal;
        let slow = (least(last - edge..last + 1) - least(0..edge)) / span;
        let plain = (stamps[last] - stamps[0]) / (last as f64 * nominal) - 1.0;
        println!(
            "{layer}: {:+.4} % over {span:.2} s; {:+.4} % by the first and the last packet; late by {} ns (p99)",
            slow * 100.0,
            plain * 100.0,
            status.lateness.p99_ns,
        );
        assert!(span > 1.0 && slow.abs() < 0.005, "{layer}: {:.3} % slow over {span} s", slow * 100.0);
    }
}
