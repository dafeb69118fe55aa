//! Reports made to cost much: time and memory for them follow their length, whatever numbers they name.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use longhaul_udp::account::MAX_SEQUENCES;
use longhaul_udp::{UdpEndReport, UdpParameters, UdpReceiverReport, UdpResult, UdpSenderReport};

/// Runs as a report has them: pairs of numbers, left out and within.
fn runs(pairs: impl IntoIterator<Item = (u64, u64)>) -> String {
    let mut bytes = Vec::new();
    for mut value in pairs.into_iter().flat_map(|(gap, packets)| [gap, packets]) {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }
    STANDARD_NO_PAD.encode(bytes)
}

fn receiver(losses: &[(u64, u64, String)], evidence: &[String], totals: &str) -> UdpReceiverReport {
    let streams: Vec<String> = losses.iter().map(|(sent, lost, runs)| format!(
        r#"{{"counts":{{"received_packets":0,"duplicate_packets":0,"out_of_range_packets":0,"missing_packets":0,"reordering":{}}},
            "jitter_ns":null,"first_arrival_ns":0,"last_arrival_ns":0,
            "losses":{{"sent_packets":{sent},"lost_packets":{lost},"runs":"{runs}"}}}}"#,
        serde_json::to_string(&longhaul_udp::account::ReorderingSummary::default()).unwrap()
    )).collect();
    let classes: Vec<String> = (evidence.iter().enumerate())
        .map(|(unit, runs)| {
            format!(r#"{{"location":"receiver_ring","reason":"r{unit}","unit_packets":{unit},"runs":"{runs}"}}"#)
        })
        .collect();
    let text = format!(
        r#"{{"sender":null,"receiver":{{"streams":[{}],"evidence":[[{}]],"totals":[{totals}],"complete":true,"method":"bpf","counters":{{}}}}}}"#,
        streams.join(","),
        classes.join(",")
    );
    serde_json::from_str::<UdpEndReport>(&text).unwrap().receiver.unwrap()
}

/// The client's whole work on the report of a server.
fn lost_packets(losses: &[(u64, u64, String)], evidence: &[String], totals: &str) -> u64 {
    let began = Instant::now();
    let receiver = receiver(losses, evidence, totals);
    let sender = UdpSenderReport::default();
    let assembled = UdpResult::assemble(&UdpParameters::default(), &sender, &receiver);
    let written = assembled.attribution.losses().map(|loss| loss.packets).sum::<u64>();
    assert_eq!(written, assembled.result.lost_packets);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    let longest = assembled.result.losses.iter().map(|loss| loss.reason.len()).max();
    assert!(longest < Some(500), "{longest:?}");
    assembled.result.lost_packets
}

#[test]
fn evidence_far_away_costs_what_its_text_does() {
    // Every second of 4,000 packets, beside 30 kinds of events of which each names the last possible packet alone.
    let losses = [(MAX_SEQUENCES, 2_000, runs((0..2_000).map(|_| (1, 1))))];
    let far: Vec<String> = (0..30).map(|_| runs([(MAX_SEQUENCES - 1, 1)])).collect();
    assert_eq!(lost_packets(&losses, &far, ""), 2_000);
    // The same where all that the other end sent is an event.
    let all: Vec<String> = (0..30).map(|_| runs([(0, MAX_SEQUENCES)])).collect();
    assert_eq!(lost_packets(&losses, &all, ""), 2_000);
}

#[test]
fn loss_maps_of_all_streams_take_the_memory_of_their_text() {
    // 64 streams of which every packet, and of every 65,536 three thousand, are lost: 8 KiB each as bitmaps.
    let whole: Vec<(u64, u64, String)> =
        (0..64).map(|_| (MAX_SEQUENCES, MAX_SEQUENCES, runs([(0, MAX_SEQUENCES)]))).collect();
    assert_eq!(lost_packets(&whole, &[], ""), 64 * MAX_SEQUENCES);
    let some = (MAX_SEQUENCES, 20_000 * 3_000, runs((0..20_000).map(|_| (62_536, 3_000))));
    assert_eq!(lost_packets(&vec![some; 8], &[], ""), 8 * 20_000 * 3_000);
}

#[test]
fn what_counters_say_is_told_once() {
    // Each loss without an event is told with the shares of all counters.
    let losses = [(MAX_SEQUENCES, 400_000, runs((0..9_000).map(|_| (1, 1)).chain([(1, 391_000)])))];
    let long = "x".repeat(50_000);
    assert_eq!(
        lost_packets(
            &losses,
            &[],
            &format!(r#"{{"location":"receiver_ring","reason":"{long}","packets":400000,"scope":"host"}}"#)
        ),
        400_000
    );
    let locations = ["receiver_ring", "sender_qdisc"];
    let many: Vec<String> = (0..2_000)
        .map(|n| format!(r#"{{"location":"{}","reason":"r{n}","packets":1,"scope":"host"}}"#, locations[n % 2]))
        .collect();
    assert_eq!(lost_packets(&losses, &[], &many.join(",")), 400_000);
}
