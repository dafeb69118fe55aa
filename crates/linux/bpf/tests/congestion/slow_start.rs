//! HyStart++ (RFC 9406) and limited slow start (RFC 3742), which are parameters of every control.

use longhaul_congestion::{Algorithm, Settings, Variant};

use crate::flow::{MS, round_trip, window_based};
use crate::native::Native;

/// A flow of ten packets in its first slow start.
fn first_slow_start(algorithm: Algorithm, set: &[&str]) -> Native {
    let mut settings = Settings::new(algorithm, Variant::Paper).unwrap();
    for assignment in set {
        settings.set(assignment).unwrap();
    }
    let mut flow = Native::new(&settings);
    flow.socket.srtt_8us = 100 * MS * 8;
    flow.init();
    flow
}

const NEVER: u32 = 0x7fff_ffff;

/// RFC 9406 §4.2, by hand: RttThresh is 100/8 = 12.5 ms. A rise of less changes nothing; one of more makes growth a quarter; after five round
/// trips of that slow start is over.
#[test]
fn hystart_ends_slow_start_when_the_rtt_rises() {
    let mut flow = first_slow_start(Algorithm::Scalable, &["hystart=1"]);
    for window in [20, 40, 80] {
        assert_eq!(round_trip(&mut flow, 100 * MS, 1), window);
    }
    assert_eq!(round_trip(&mut flow, 112 * MS, 1), 160, "12 ms are no sign");
    assert_eq!(round_trip(&mut flow, 120 * MS, 1), 320, "the last had 112 ms: 14 are the threshold");
    // 120 + 15: from the ninth ACK on a quarter.
    let window = round_trip(&mut flow, 136 * MS, 1);
    assert_eq!(window, 320 + 8 + 312 / 4);
    let mut expected = f64::from(window);
    let mut rounds = 0;
    while flow.socket.ssthresh == NEVER {
        expected *= 1.25;
        let seen = round_trip(&mut flow, 137 * MS, 1);
        rounds += 1;
        assert!((f64::from(seen) / expected - 1.0).abs() < 0.02 || flow.socket.ssthresh < NEVER, "{seen}, {expected}");
        assert!(rounds < 7);
    }
    assert_eq!(rounds, 5, "five round trips of conservative slow start, the first of them that of the rise");
    // Congestion avoidance from here.
    let before = flow.socket.cwnd;
    assert!((before - before / 90..=before).contains(&flow.socket.ssthresh), "{:?}", flow.socket);
    assert!(round_trip(&mut flow, 137 * MS, 1) <= before + before / 90);
}

#[test]
fn hystart_goes_on_when_the_queue_was_none() {
    let mut flow = first_slow_start(Algorithm::Scalable, &["hystart=1"]);
    for _ in 0..4 {
        round_trip(&mut flow, 100 * MS, 1);
    }
    round_trip(&mut flow, 130 * MS, 1);
    let before = flow.socket.cwnd;
    let slower = round_trip(&mut flow, 140 * MS, 1);
    assert!(slower < before * 13 / 10, "{before} to {slower}");
    // Below the baseline of 130 ms again.
    round_trip(&mut flow, 100 * MS, 1);
    let before = flow.socket.cwnd;
    assert!(round_trip(&mut flow, 100 * MS, 1) >= before * 19 / 10);
    assert_eq!(flow.socket.ssthresh, NEVER);
}

/// CUBIC has it by default (RFC 9438 §4.10), the others where it is asked for; and no control does in a later slow start.
#[test]
fn every_control_has_hystart() {
    for algorithm in window_based() {
        let ends = |set: &[&str], ssthresh: Option<u32>| {
            let mut flow = first_slow_start(algorithm, set);
            flow.socket.ssthresh = ssthresh.unwrap_or(NEVER);
            for rtt_ms in [100, 100, 100, 100, 130, 131, 131, 131, 131, 131, 131, 131] {
                round_trip(&mut flow, rtt_ms * MS, 1);
                flow.socket.cwnd = flow.socket.cwnd.min(5000);
            }
            flow.socket.ssthresh < ssthresh.unwrap_or(NEVER)
        };
        assert!(ends(&["hystart=1"], None), "{algorithm}");
        // Vegas, FAST and YeAH have ends of their own.
        if ![Algorithm::Vegas, Algorithm::Fast, Algorithm::Yeah].contains(&algorithm) {
            assert_eq!(ends(&[], None), algorithm == Algorithm::Cubic, "{algorithm}");
            assert!(!ends(&["hystart=1"], Some(100_000)), "{algorithm}: not the first slow start");
        }
    }
}

/// RFC 3742 §2: beyond max_ssthresh a round trip adds max_ssthresh/2 packets.
#[test]
fn every_control_has_limited_slow_start() {
    for algorithm in window_based() {
        for packets in [1, 2, 45, 99] {
            let mut flow = first_slow_start(algorithm, &["max_ssthresh=100", "hystart=0"]);
            while flow.socket.cwnd < 1000 {
                round_trip(&mut flow, 25 * MS, packets);
            }
            let windows: Vec<u32> = (0..5).map(|_| round_trip(&mut flow, 25 * MS, packets)).collect();
            for pair in windows.windows(2) {
                let added = pair[1] - pair[0];
                // K is a whole number, of the window at each ACK; Vegas grows every other round trip.
                // Its ACK that ends a round trip may be one of them.
                let vegas = algorithm == Algorithm::Vegas && (added <= 5 || (45..=52).contains(&added));
                assert!(vegas || (47..=52).contains(&added), "{algorithm}, ACKs of {packets}: {windows:?}");
            }
        }
    }
}
